"""The recorded messages of the last hour, newest first, with filters."""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from slicebus.cli.cluster.filters import check_known
from slicebus.cli.view.hour import RecordedHour
from slicebus.cli.view.pages.paging import PageOf, page_number, page_of
from slicebus.journal.entry import Entry, matching
from slicebus.journal.summary import summary
from slicebus.proto.messages import MESSAGES, Heartbeat

FILTERS = ("type", "cluster", "job", "chain")
"""The parameters of the page's address, beside `page`."""
_QUIET = Heartbeat.type
"""It is shown only where somebody asks for it."""


class MessageRow(msgspec.Struct, frozen=True, kw_only=True):
    """One message."""

    offset: int
    at: datetime | None
    direction: str
    """`up`, `down`; empty for a message that cannot be read."""
    cluster: str
    type: str
    job: str
    """`Kind/namespace/name`; empty for a message about the cluster."""
    text: str
    chain: str
    """Its correlation id."""


class MessagesPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some of the messages."""

    page: PageOf[MessageRow]
    filters: dict[str, str]
    types: tuple[str, ...]
    clusters: tuple[str, ...]
    since: datetime | None
    """The time of the oldest message that is kept; None where there is none."""
    journal: str
    """Why the journal is not read, or not up to now; empty where it is."""


def messages_page(hour: RecordedHour, query: Mapping[str, str]) -> MessagesPage:
    """The messages that an address asks for. Raises ConfigurationError for a type or a cluster that there is not."""
    given = {name: query[name] for name in FILTERS if query.get(name)}
    clusters = tuple(sorted({entry.cluster for entry in hour.entries}))
    check_known(given.get("type"), "message type", MESSAGES)
    check_known(given.get("cluster"), "worker cluster", clusters)
    wanted = matching(
        cluster=given.get("cluster"), job=given.get("job"), type=given.get("type"), correlation=given.get("chain")
    )
    hides_quiet = given.get("type") != _QUIET and "chain" not in given
    found = [entry for entry in hour.entries if wanted(entry) and not (hides_quiet and entry.type == _QUIET)]
    page = page_of(found[::-1], page_number(query.get("page", "")))
    return MessagesPage(
        page=page.of(_rows(page.rows)),
        filters=given,
        types=tuple(sorted(MESSAGES)),
        clusters=clusters,
        since=hour.entries[0].published if hour.entries else None,
        journal=hour.problem,
    )


def _rows(entries: Sequence[Entry]) -> list[MessageRow]:
    return [
        MessageRow(
            offset=entry.offset,
            at=entry.published,
            direction=entry.direction or "",
            cluster=entry.cluster,
            type=entry.type,
            job=entry.subject,
            text=summary(entry),
            chain=entry.correlation_id,
        )
        for entry in entries
    ]
