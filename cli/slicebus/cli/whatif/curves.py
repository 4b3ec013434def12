"""An answer as one self-contained HTML file: the table, and curves of who waited and what was used. Pure."""

from collections.abc import Iterator, Sequence
from functools import cache

import msgspec
from jinja2 import PackageLoader, Template

from slicebus.cli.whatif.page import rows_of, told_change, trust_text
from slicebus.journal.page import environment, style
from slicebus.manager.decide.whatif.answer import Curves
from slicebus.manager.decide.whatif.asking import DrawnAnswer

_WIDTH, _HEIGHT = 960.0, 160.0


class CurveLine(msgspec.Struct, frozen=True):
    """One line of a chart."""

    name: str
    points: str
    """As SVG takes them."""
    number: int
    """Which colour it has."""


class CurveChart(msgspec.Struct, frozen=True):
    """Lines over the same time, in the same unit."""

    title: str
    most: float
    """The value at the top."""
    lines: tuple[CurveLine, ...]


def html(asked: DrawnAnswer) -> str:
    """The page of an answer. It loads nothing."""
    answer = asked.answer
    summaries = [answer.was, answer.unchanged, *(play.summary for play in answer.plays)]
    return _template().render(
        answer=answer,
        style=style(),
        trust=trust_text(answer.reproduction),
        rows=rows_of(summaries),
        changed=[(play.summary.name, [told_change(each) for each in play.changed]) for play in answer.plays],
        charts=list(_charts(asked.curves)),
        width=_WIDTH,
        height=_HEIGHT,
    )


def _charts(curves: Sequence[Curves]) -> Iterator[CurveChart]:
    yield _chart("jobs that wait", [(each.name, each.waiting) for each in curves])
    for subject in sorted({name for each in curves for name in each.used}):
        yield _chart(f"{subject} used", [(each.name, each.used.get(subject, ())) for each in curves])


def _chart(title: str, values: Sequence[tuple[str, Sequence[float]]]) -> CurveChart:
    most = max((value for _, each in values for value in each), default=0.0) or 1.0
    lines = (CurveLine(name, _points(each, most), number) for number, (name, each) in enumerate(values))
    return CurveChart(title, most, tuple(lines))


def _points(values: Sequence[float], most: float) -> str:
    """A step for each part of the span."""
    step = _WIDTH / max(1, len(values))
    corners = (
        (x * step, _HEIGHT - value / most * _HEIGHT)
        for number, value in enumerate(values)
        for x in (number, number + 1)
    )
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)


@cache
def _template() -> Template:
    return environment(PackageLoader("slicebus.cli.whatif", ".")).get_template("curves.html.j2")
