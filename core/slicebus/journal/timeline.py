"""The recorded messages as stories: what set a change off, each hop with its time, and how it came out.

A story is the messages of one correlation: a scale request and everything that answers it, or an order of the manager
and its answer. The status that first shows the new size belongs to it too; agents publish that on their own account.
Times are the publishers' clocks, so hops between machines are as exact as their clocks agree.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from slicebus.journal.entry import Entry
from slicebus.journal.summary import counts_text, summary
from slicebus.proto.messages import (
    Applied,
    ClusterName,
    Counts,
    Delete,
    Direction,
    JobRef,
    Message,
    Pending,
    Refused,
    ScaleRequest,
    Status,
    WorkloadSpec,
)


class Outcome(StrEnum):
    """How a story stands at the end of the recording."""

    DONE = "done"
    """Every pod that was granted is ready; for a deletion: the worker has said that it is gone."""
    WAITS = "waits"
    """The last word is that the request waits or was refused."""
    REFUSED = "refused"
    """The worker could not apply the order."""
    UNDER_WAY = "under way"


class Hop(msgspec.Struct, frozen=True):
    """One message of a story."""

    offset: int
    """In the journal."""
    at: datetime
    since_start: timedelta
    direction: Direction
    type: str
    text: str


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """One change of one job, from what set it off to its end."""

    correlation_id: str
    job: str
    """`Kind/namespace/name`."""
    cluster: ClusterName
    title: str
    """In a few words: `resize main 1 -> 5`, `start with main=1`, `delete`."""
    hops: tuple[Hop, ...]
    outcome: Outcome
    waited_for: str = ""
    """Why it waits, or did for some time."""

    @property
    def began(self) -> datetime:
        """The first message's time."""
        return self.hops[0].at

    @property
    def took(self) -> timedelta:
        """Until the last hop."""
        return self.hops[-1].since_start


class Size(msgspec.Struct, frozen=True):
    """A job's pods at one moment: None where this moment says nothing of it."""

    at: datetime
    wanted: int | None = None
    granted: int | None = None
    ready: int | None = None


def stories(entries: Iterable[Entry]) -> list[Story]:
    """The stories of a recording, by their start. Messages about no job, and unreadable ones, belong to none."""
    readable = [entry for entry in entries if entry.received and entry.published and _job(entry.received.message)]
    chains = _chains(entry for entry in readable if not isinstance(_message(entry), Status))
    statuses: dict[JobRef, list[Entry]] = {}
    for entry in readable:
        message = _message(entry)
        if isinstance(message, Status):
            statuses.setdefault(message.job, []).append(entry)
    told = [_story(chain, statuses) for chain in chains.values()]
    return sorted(told, key=lambda story: story.began)


def sizes(entries: Iterable[Entry]) -> dict[str, list[Size]]:
    """How many pods each job wanted, was granted and had ready, over time; by `Kind/namespace/name`."""
    found: dict[str, list[Size]] = {}
    for entry in entries:
        if entry.received and entry.published:
            for size in _sizes_of(entry.published, entry.received.message):
                found.setdefault(entry.subject, []).append(size)
    return found


def _chains(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    """Entries by correlation. A request that was published twice is one story."""
    chains: dict[str, list[Entry]] = {}
    first: dict[tuple[JobRef, str, int], str] = {}
    for entry in entries:
        message, chain = _message(entry), entry.correlation_id
        if isinstance(message, ScaleRequest):
            chain = first.setdefault((message.job, message.worker_uid, message.worker_generation), chain)
        chains.setdefault(chain, []).append(entry)
    return chains


def _story(chain: list[Entry], statuses: dict[JobRef, list[Entry]]) -> Story:
    messages = [_message(entry) for entry in chain]
    granted = next((m for m in reversed(messages) if isinstance(m, WorkloadSpec)), None)
    settled = (
        next((e for e in statuses.get(granted.job, ()) if _shows(e, granted, chain[0])), None) if granted else None
    )
    ordered = sorted([*chain, settled] if settled else chain, key=lambda entry: (entry.published, entry.offset))
    began = ordered[0].published
    assert began is not None
    return Story(
        correlation_id=chain[0].correlation_id,
        job=chain[0].subject,
        cluster=ClusterName(chain[0].cluster),
        title=_title(messages),
        hops=tuple(_hops(ordered, began)),
        outcome=Outcome.DONE if settled else _outcome(messages),
        waited_for=next((m.message for m in reversed(messages) if isinstance(m, Pending)), ""),
    )


def _hops(ordered: list[Entry], began: datetime) -> Iterator[Hop]:
    for entry in ordered:
        assert entry.published is not None
        yield Hop(
            offset=entry.offset,
            at=entry.published,
            since_start=entry.published - began,
            direction=_message(entry).direction,
            type=entry.type,
            text=summary(entry),
        )


def _shows(entry: Entry, granted: WorkloadSpec, first: Entry) -> bool:
    """Whether a status says that just what was granted is ready."""
    status = _message(entry)
    assert isinstance(status, Status)
    if entry.offset < first.offset or status.spec_version < granted.spec_version:
        return False
    ready = {name: pods.ready for name, pods in status.pods.items()}
    return all(ready.get(name, 0) == count for name, count in granted.granted.items())


def _outcome(messages: list[Message]) -> Outcome:
    match messages[-1]:
        case Pending():
            return Outcome.WAITS
        case Refused():
            return Outcome.REFUSED
        case Applied(deleted=True):
            return Outcome.DONE
    return Outcome.UNDER_WAY


def _title(messages: list[Message]) -> str:
    match messages[0]:
        case ScaleRequest(granted=granted, wanted=wanted):
            moved = (f"{name} {granted.get(name, 0)} -> {n}" for name, n in wanted.items() if n != granted.get(name, 0))
            return f"resize {', '.join(moved)}"
        case WorkloadSpec(spec_version=1, granted=granted):
            return f"start with {counts_text(granted)}"
        case WorkloadSpec(granted=granted):
            return f"set to {counts_text(granted)}"
        case Delete():
            return "delete"
    return messages[0].type


def _sizes_of(at: datetime, message: Message) -> Iterator[Size]:
    match message:
        case ScaleRequest(wanted=wanted):
            yield Size(at, wanted=_total(wanted))
        case WorkloadSpec(spec_version=1, granted=granted):
            yield Size(at, wanted=_total(granted), granted=_total(granted), ready=0)
        case WorkloadSpec(granted=granted):
            yield Size(at, granted=_total(granted))
        case Status(pods=pods):
            yield Size(at, ready=sum(status.ready for status in pods.values()))


def _job(message: Message) -> JobRef | None:
    job: JobRef | None = getattr(message, "job", None)
    return job


def _message(entry: Entry) -> Message:
    assert entry.received is not None
    return entry.received.message


def _total(counts: Counts) -> int:
    return sum(counts.values())
