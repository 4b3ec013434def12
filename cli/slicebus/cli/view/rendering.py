"""The templates of the pages."""

from datetime import datetime
from functools import cache
from urllib.parse import quote, urlencode

from jinja2 import ChoiceLoader, Environment, PackageLoader, Template, pass_context
from jinja2.runtime import Context

from slicebus.cli.durations import age_of
from slicebus.cli.view.pages.timeline import AT, Timeline
from slicebus.journal.page import arrow, environment, milliseconds
from slicebus.proto.messages import counts_text


@cache
def _environment() -> Environment:
    made = environment(
        ChoiceLoader([PackageLoader("slicebus.cli.view", "templates"), PackageLoader("slicebus.journal", ".")])
    )
    made.filters |= {"age": age_of, "counts": counts_text, "path": path, "share": _percent, "then": _then}
    made.globals |= {"arrow": arrow, "milliseconds": milliseconds, "link": _link, "clock": _clock}
    return made


def template(name: str) -> Template:
    """A template by its name without suffix."""
    return _environment().get_template(f"{name}.html.j2")


def path(*names: str) -> str:
    """The path of these names, each escaped: `/jobs/Job/team-a/train`."""
    return "".join(f"/{quote(name, safe='')}" for name in names)


def link(*names: str, **query: object) -> str:
    """A path of the view with a query; what is None or empty is left out."""
    given = {name: value for name, value in query.items() if value not in (None, "")}
    return path(*names) + (f"?{urlencode(given)}" if given else "")


@pass_context
def _then(context: Context, address: str) -> str:
    """An address of the view, at the moment that the page shows. A macro knows it where it is imported with context."""
    timeline: Timeline = context["timeline"]
    if not timeline.at:
        return address
    return f"{address}{'&' if '?' in address else '?'}{urlencode({AT: timeline.at})}"


@pass_context
def _link(context: Context, *names: str, **query: object) -> str:
    """The same of these names."""
    return _then(context, link(*names, **query))


def _percent(share: float | None) -> float:
    """A share of a bar that is not longer than whole."""
    return round(min(max(share or 0.0, 0.0), 1.0) * 100, 1)


def _clock(moment: datetime | None) -> str:
    return f"{moment:%H:%M:%S}" if moment is not None else ""
