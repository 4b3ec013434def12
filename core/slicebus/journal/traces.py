"""Finds the traces of a recording: what set a change off, each hop with its time, and the outcome.

A trace follows one chain: a scale request and its answers, or an order of the manager and its answer. It ends with the
first status that shows the new size, which an agent publishes unasked. The steps of recorded decisions are hops between
the messages.

Times come from the publishers' clocks, so the time between two machines is as exact as their clocks agree. A cause
still comes before its effect.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from slicebus.journal.causal_chains import Chain, Chains
from slicebus.journal.entry import Entry
from slicebus.journal.steps import Consumed, RecordedStep, Steps
from slicebus.journal.summary import summary
from slicebus.proto.messages import (
    Applied,
    ClusterName,
    Counts,
    Delete,
    Direction,
    Message,
    Pending,
    Refused,
    ScaleRequest,
    Status,
    Suspend,
    WorkloadSpec,
    counts_text,
)

_CLOCKS_AGREE = timedelta(milliseconds=100)
"""A smaller difference shows nothing: two machines may publish at the same time."""
STEP = "step"
"""The type of a hop that is no message."""


class TraceOutcome(StrEnum):
    """The state of a trace at the end of the recording."""

    DONE = "done"
    """Every granted pod is ready; for a deletion: the worker has reported that the job is gone."""
    WAITS = "waits"
    """The last message or step says that the request waits."""
    REFUSED = "refused"
    """The worker could not apply the order."""
    DEAD = "dead letter"
    """A message of it was dead-lettered, and nothing came after that."""
    OVERTAKEN = "overtaken"
    """It had not ended when the next trace of the job began."""
    UNDER_WAY = "under way"


class Hop(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a trace, or one step between messages."""

    offset: int
    """In the journal; -1 for a step."""
    at: datetime
    since_start: timedelta = timedelta()
    direction: Direction | None
    """None for a step, and for what cannot be read."""
    by: str
    """Who published or decided it: `manager`, or the agent's cluster."""
    type: str
    """Of the message; `STEP`."""
    text: str
    name: str = ""
    """Of a step: what was done, in words that do not vary."""
    message_id: str = ""
    """Of a message."""
    routing_key: str = ""
    """Of a message."""


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """One change of one job, from what set it off to its end."""

    correlation_id: str
    """Empty where no message was sent."""
    job: str
    """`Kind/namespace/name`."""
    cluster: ClusterName
    """Empty before the job has one."""
    title: str
    """In a few words: `resize main 1 -> 5`, `start with main=1`, `delete`."""
    hops: tuple[Hop, ...]
    outcome: TraceOutcome
    waited_for: str = ""
    """Why it waits, or waited."""
    dead: str = ""
    """Why a message of it was dead-lettered."""
    evicted: str = ""
    """Why it evicts the job."""
    ended: datetime | None = None
    """When its outcome was there; None where it has not ended. Steps may follow, which only clean up."""
    admitted: datetime | None = None
    """When its last wait for quota ended; None where it never waited."""

    @property
    def began(self) -> datetime:
        """The first hop's time."""
        return self.hops[0].at

    @property
    def took(self) -> timedelta:
        """The time until its outcome was there; until the last hop where it has not ended."""
        last = max(hop.since_start for hop in self.hops)
        return min(last, self.ended - self.began) if self.ended is not None else last

    @property
    def waited(self) -> timedelta:
        """How much of that it waited for quota."""
        return self.admitted - self.began if self.admitted is not None else timedelta()

    @property
    def note(self) -> str:
        """The reason for the outcome; empty where there is none to give."""
        match self.outcome:
            case TraceOutcome.DEAD:
                return self.dead
            case _ if self.evicted:
                return self.evicted
            case TraceOutcome.DONE | TraceOutcome.OVERTAKEN | TraceOutcome.UNDER_WAY:
                return f"waited: {self.waited_for}" if self.waited_for else ""
            case TraceOutcome.REFUSED:
                return next((hop.text for hop in reversed(self.hops) if hop.type == Refused.type), "")
            case TraceOutcome.WAITS:
                return self.waited_for

    @property
    def clocks_apart(self) -> timedelta:
        """The least difference that the hops show between the clocks of its machines; 0 where they show none."""
        latest, apart = self.hops[0].since_start, timedelta()
        for hop in self.hops:
            apart, latest = max(apart, latest - hop.since_start), max(latest, hop.since_start)
        return apart if apart > _CLOCKS_AGREE else timedelta()


class Size(msgspec.Struct, frozen=True):
    """The pod counts of a job at one moment; None for a count that did not change then."""

    at: datetime
    wanted: int | None = None
    granted: int | None = None
    ready: int | None = None


def traces(
    entries: Iterable[Entry],
    events: Iterable[RecordedStep | Consumed] | None = None,
    *,
    dead: Mapping[str, str] | None = None,
) -> list[Trace]:
    """The traces of a recording, oldest first. A message about no job belongs to none.

    `events` are what `Steps` has read from the recording, where the caller has done so. `dead` has the reason of each
    dead letter, by message id.
    """
    entries = list(entries)
    steps = Steps()
    chains = Chains(entries, [event for entry in entries for event in steps.feed(entry)] if events is None else events)
    for chain in chains.all:
        chain.settled = _settled(chain, chains.statuses.get(chain.job, []))
    chains.place_steps()
    unordered = [_trace_of(chain, chains, dead or {}) for chain in chains.all]
    return list(_with_overtaken(sorted(unordered, key=lambda trace: trace.began)))


def sizes(entries: Iterable[Entry]) -> dict[str, list[Size]]:
    """The wanted, granted and ready pod counts of each job over time, by `Kind/namespace/name`."""
    by_job: dict[str, list[Size]] = {}
    for entry in entries:
        if entry.received and entry.published:
            for size in _sizes_of(entry.published, entry.received.message):
                by_job.setdefault(entry.subject, []).append(size)
    return by_job


def _settled(chain: Chain, statuses: list[Entry]) -> Entry | None:
    granted = next((m for m in reversed(chain.messages) if isinstance(m, WorkloadSpec)), None)
    return next((e for e in statuses if _shows(e, granted, chain.entries[0])), None) if granted else None


def _trace_of(chain: Chain, chains: Chains, dead: Mapping[str, str]) -> Trace:
    hops = tuple(_hops(chain, chains))
    reason = next((dead[id] for e in chain.entries if (id := e.record.message.message_id or "") in dead), "")
    refused = [step for step in chain.steps if step.dead]
    if not reason and refused and chain.settled is None and hops[-1].text == refused[-1].text:
        reason = refused[-1].dead
    waits = _waits(chain)
    return Trace(
        correlation_id=chain.correlation_id,
        job=chain.job,
        cluster=ClusterName(chain.entries[0].cluster if chain.entries else ""),
        title=_title(chain),
        hops=hops,
        outcome=_outcome(chain, dead=bool(reason), waits=waits),
        waited_for=waits or _last_wait(chain),
        dead=reason or next((step.dead for step in refused), ""),
        evicted=chain.evicted,
        ended=_ended(chain),
        admitted=_admitted(chain),
    )


def _hops(chain: Chain, chains: Chains) -> Iterator[Hop]:
    began: datetime | None = None
    for item in chains.ordered(chain):
        hop = _hop_of_step(item) if isinstance(item, RecordedStep) else _hop_of_message(item)
        began = began or hop.at
        yield msgspec.structs.replace(hop, since_start=hop.at - began)


def _hop_of_message(entry: Entry) -> Hop:
    assert entry.published is not None
    return Hop(
        offset=entry.offset,
        at=entry.published,
        direction=entry.direction,
        by="manager" if entry.direction is Direction.DOWN else entry.cluster,
        type=entry.type,
        text=summary(entry),
        message_id=entry.record.message.message_id or "",
        routing_key=entry.record.message.routing_key,
    )


def _hop_of_step(step: RecordedStep) -> Hop:
    by = step.source.cluster or step.source.role
    return Hop(offset=-1, at=step.at, direction=None, by=by, type=STEP, text=step.text, name=step.name)


def _with_overtaken(ordered: list[Trace]) -> Iterator[Trace]:
    """Mark every trace that had not ended when the next one of its job began."""
    last = {trace.job: number for number, trace in enumerate(ordered)}
    for number, trace in enumerate(ordered):
        if number < last[trace.job] and trace.outcome in (TraceOutcome.WAITS, TraceOutcome.UNDER_WAY):
            trace = msgspec.structs.replace(trace, outcome=TraceOutcome.OVERTAKEN)
        yield trace


def _shows(entry: Entry, granted: WorkloadSpec, first: Entry) -> bool:
    """Whether a status shows exactly the granted pods as ready."""
    status = _message(entry)
    assert isinstance(status, Status)
    if entry.offset < first.offset or status.spec_version < granted.spec_version:
        return False
    ready = {name: pods.ready for name, pods in status.pods.items()}
    return all(ready.get(name, 0) == count for name, count in granted.granted.items())


def _outcome(chain: Chain, *, dead: bool, waits: str) -> TraceOutcome:
    if chain.settled is not None:
        return TraceOutcome.DONE
    if dead:
        return TraceOutcome.DEAD
    if _ended(chain) is not None:
        return TraceOutcome.DONE
    if chain.messages and isinstance(chain.messages[-1], Refused):
        return TraceOutcome.REFUSED
    return TraceOutcome.WAITS if waits else TraceOutcome.UNDER_WAY


def _ended(chain: Chain) -> datetime | None:
    """When the outcome was there: the pods are ready, or gone with all that the change takes away."""
    if chain.settled is not None:
        return chain.settled.published
    if chain.released is not None:
        return chain.released.at
    gone = [entry for entry in chain.entries if entry.received and _is_gone(entry.received.message, chain)]
    return gone[-1].published if gone else None


def _is_gone(message: Message, chain: Chain) -> bool:
    """Whether an agent reports that the job is gone, or that no pod of a suspended one is left."""
    return isinstance(message, Applied) and (message.deleted or isinstance(chain.messages[0], Suspend))


def _admitted(chain: Chain) -> datetime | None:
    """When its last wait ended."""
    waited = False
    admitted: datetime | None = None
    for step in chain.steps:
        waited = waited or bool(step.waits)
        if step.admitted and waited:
            admitted, waited = step.at, False
    return admitted


def _waits(chain: Chain) -> str:
    """Why it waits now, by the manager's last step; by its last message where no steps are recorded."""
    decided = [step for step in chain.steps if step.waits or step.admitted]
    if decided:
        return decided[-1].waits
    last = chain.messages[-1] if chain.messages else None
    return last.message if isinstance(last, Pending) else ""


def _last_wait(chain: Chain) -> str:
    """Why it waited last, as the worker was told; as the manager's step says where it was told nothing."""
    told = [message.message for message in chain.messages if isinstance(message, Pending)]
    said = [step.waits for step in chain.steps if step.waits]
    return next(reversed(told or said), "")


def _title(chain: Chain) -> str:
    if chain.evicted:
        return "eviction"
    if not chain.messages:
        wanted = next((step.counts for step in chain.steps if step.counts), {})
        again = "waits again" if chain.is_readmission else f"wants {counts_text(wanted)}"
        return chain.entries[0].type if chain.entries else again
    match first := chain.messages[0]:
        case WorkloadSpec(granted=granted) if chain.is_readmission:
            return f"start again with {counts_text(granted)}"
        case ScaleRequest(granted=granted, wanted=wanted):
            moved = (f"{name} {granted.get(name, 0)} -> {n}" for name, n in wanted.items() if n != granted.get(name, 0))
            return f"resize {', '.join(moved) or counts_text(wanted)}"
        case WorkloadSpec(spec_version=1, granted=granted):
            return f"start with {counts_text(granted)}"
        case WorkloadSpec(granted=granted):
            return f"set to {counts_text(granted)}"
        case Delete():
            return "delete"
        case Suspend():
            return "suspend"
        case _:
            return first.type


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
        case _:
            return  # It changes no count.


def _message(entry: Entry) -> Message:
    assert entry.received is not None
    return entry.received.message


def _total(counts: Counts) -> int:
    return sum(counts.values())
