"""The list of jobs, with the filters of `slicebus jobs`."""

from collections.abc import Collection, Mapping, Sequence
from typing import Generic

import msgspec

from slicebus.cli.cluster.filters import unknown
from slicebus.cli.jobs.command import JobFilter, Row, filtered
from slicebus.cli.jobs.rows import JobRow
from slicebus.cli.view.pages.paging import PageOf, page_number, page_of
from slicebus.cli.view.rendering import link
from slicebus.manager.state.shown_states import ShownState
from slicebus.proto.errors import ConfigurationError

FILTERS = ("state", "namespace", "queue", "cluster", "name")
"""The parameters of the page's address, beside `page`."""


class JobsPage(msgspec.Struct, Generic[Row], frozen=True, kw_only=True):
    """Some of the jobs."""

    page: PageOf[Row]
    filters: dict[str, str]
    """Those that are set."""
    states: tuple[str, ...]
    namespaces: tuple[str, ...]
    queues: tuple[str, ...]
    clusters: tuple[str, ...]
    """What there is to choose from."""


def jobs_page(
    rows: Sequence[Row], query: Mapping[str, str], *, queues: Collection[str] = (), clusters: Collection[str] = ()
) -> JobsPage[Row]:
    """The jobs that an address asks for; `queues` and `clusters` are those that may have none. Raises
    ConfigurationError for a filter that names nothing that is there."""
    given = {name: query[name] for name in FILTERS if query.get(name)}
    wanted = JobFilter(state=_state(given.get("state")), queue=given.get("queue"), cluster=given.get("cluster"))
    namespaces = tuple(sorted({row.namespace for row in rows}))
    namespace, part = given.get("namespace"), given.get("name", "")
    found = [
        row
        for row in filtered(rows, wanted, queues=queues, clusters=clusters)
        if namespace in (None, row.namespace) and part.lower() in row.name.lower()
    ]
    return JobsPage(
        page=page_of(found, page_number(query.get("page", ""))),
        filters=given,
        states=tuple(ShownState),
        namespaces=namespaces,
        queues=tuple(sorted({*queues, *(row.queue for row in rows)} - {""})),
        clusters=tuple(sorted({*clusters, *(row.cluster for row in rows)} - {""})),
    )


def job_link(row: JobRow) -> str:
    """The page of a job."""
    return link("jobs", row.kind, row.namespace, row.name)


def _state(text: str | None) -> ShownState | None:
    if text is None:
        return None
    known = {value.lower(): value for value in ShownState}
    if text.lower() not in known:
        raise ConfigurationError(unknown(text, "state", known.values()))
    return known[text.lower()]
