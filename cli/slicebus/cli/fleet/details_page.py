"""The details of a worker cluster as a page for the terminal."""

from collections.abc import Iterator, Sequence

from slicebus.cli.cluster.listing import aligned
from slicebus.cli.durations import age_of
from slicebus.cli.fleet.details import ClusterDetails, ClusterNotice, FlavorRoom
from slicebus.cli.jobs.rows import JobRow

_UNLIMITED = "unlimited"
_UNKNOWN = "?"
_WHOLE = "(all nodes)"
"""In place of the name of a flavor, for what an agent reports of all its nodes together."""


def page(details: ClusterDetails) -> Iterator[str]:
    """The lines of the page."""
    yield from _aligned([(f"{name}:", text) for name, text in _facts(details) if text])
    yield from _section("Room", [_ROOM, *map(_room, details.room)] if details.room else [])
    yield from _section("Jobs", [_JOBS, *map(_job, details.jobs)] if details.jobs else [])
    lacking = sorted(details.lacking.items())
    yield from _section("Namespaces whose jobs it does not take", lacking)
    yield from _section("Conditions", list(map(_notice, details.conditions)))
    yield from _section("Events", list(map(_notice, details.events)))
    if details.events_unread:
        yield ""
        yield f"Events: {details.events_unread}"


_ROOM = ("FLAVOR", "RESOURCE", "CAPACITY", "OTHERS", "GRANTED", "LEFT")
_JOBS = ("NAMESPACE", "NAME", "KIND", "STATE", "GRANTED", "READY", "WHY")


def _facts(details: ClusterDetails) -> Iterator[tuple[str, str]]:
    yield "Name", details.name
    yield "Status", ", ".join(details.states)
    yield "Since", f"{details.since}, {age_of(details.since)} ago" if details.since else "unknown"
    yield "Seen", f"{details.heard}, {age_of(details.heard)} ago" if details.heard else "never"
    yield "Lag", f"{details.lag_s} s"
    yield "Out of sync", f"{details.out_of_sync} jobs"
    yield (
        "Deletes held",
        f"{details.held_deletes}: slicebus fleet release {details.name}" if details.held_deletes else "",
    )
    yield "Broker user", details.user
    yield "Cluster UID", details.uid or "none reported yet"
    yield "Epoch", str(details.epoch)
    yield "Agent", details.agent
    yield "Kubernetes", details.kubernetes
    yield "Schedulers", ", ".join(details.schedulers)
    yield "Labels", ", ".join(f"{name}={value}" for name, value in sorted(details.labels.items()))
    yield "Takes", details.takes


def _room(room: FlavorRoom) -> tuple[str, ...]:
    granted, left = (_UNKNOWN if amount is None else amount for amount in (room.granted, room.left))
    return (room.flavor or _WHOLE, room.resource, room.capacity or _UNLIMITED, room.others, granted, left or _UNLIMITED)


def _job(job: JobRow) -> tuple[str, ...]:
    ready = "?" if job.ready is None else str(job.ready)
    return (job.namespace, job.name, job.kind, job.state, str(sum(job.granted.values())), ready, job.why)


def _notice(notice: ClusterNotice) -> tuple[str, ...]:
    return (notice.at, notice.reason, notice.message)


def _section(title: str, rows: Sequence[Sequence[str]]) -> Iterator[str]:
    if rows:
        yield ""
        yield f"{title}:"
        yield from (f"  {line}" for line in _aligned(rows))


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    lines, _ = aligned(rows)
    return lines
