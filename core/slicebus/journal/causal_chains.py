"""Groups recorded messages and steps into chains: everything that one change of one job set off, in causal order.

A message names its chain. A step belongs to the chain of the message that was being handled, else to that of the size
request that it records, else to the first chain that names its slice, else to the newest chain that its role knew of.

An eviction ends an attempt of a slice. It is a chain of its own, which begins with the step that says why. What the
slice does after it belongs to the next attempt: to the first chain that names the slice from then on.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime

from slicebus.journal.entry import Entry
from slicebus.journal.steps import Consumed, RecordedStep
from slicebus.proto.messages import (
    Applied,
    Delete,
    Direction,
    JobRef,
    Message,
    Pending,
    Relabel,
    ScaleRequest,
    Status,
    Suspend,
    WorkloadSpec,
)

_EVICTED = "EvictedDueTo"
"""Begins the reason of an order that follows an eviction, as `dispatch` writes it."""
MANAGER = ""
"""Stands where an agent has its cluster. No cluster has an empty name."""


class Chain:
    """Holds the messages and steps of one change of one job."""

    def __init__(self, job: str, correlation_id: str = "") -> None:
        self.job = job
        self.correlation_id = correlation_id
        self.entries: list[Entry] = []
        self.steps: list[RecordedStep] = []
        self.settled: Entry | None = None
        """The status that shows the outcome."""
        self.is_readmission = False
        """Whether it admits a slice that was evicted before."""

    @property
    def messages(self) -> list[Message]:
        """The readable messages, in the order of the journal."""
        return [entry.received.message for entry in self.entries if entry.received]

    @property
    def evicted(self) -> str:
        """Why it evicts a slice, as the step says, or else the order; empty where it evicts none."""
        said = next((step.evicted for step in self.steps if step.evicted), "")
        match self.messages[:1]:
            case [Suspend(reason=reason, message=message)] if reason.startswith(_EVICTED):
                return said or message or reason.removeprefix(_EVICTED)
            case _:
                return said

    @property
    def released(self) -> RecordedStep | None:
        """The step by which a quota is free; None before."""
        return next((step for step in reversed(self.steps) if step.released), None)

    @property
    def shown(self) -> list[Entry]:
        """The messages and the status that shows the outcome, in the order of the journal."""
        entries = [*self.entries, self.settled] if self.settled else self.entries
        return sorted(entries, key=lambda entry: entry.offset)

    def names(self, slice: str, *, since: datetime | None) -> bool:
        """Whether a message of it names a slice, of which it begins an attempt after `since`."""
        is_later = since is None or not self.entries or (self.entries[0].published or since) >= since
        return is_later and slice in self.slices()

    def slices(self) -> Iterator[str]:
        """The names of its slices."""
        for message in self.messages:
            match message:
                case WorkloadSpec(workload=workload):
                    yield workload.get("metadata", {}).get("name", "")
                case Relabel(to_workload=name) | Pending(workload=name):
                    yield name
                case _:
                    continue  # It names no slice that is new to the chain.

    def requests(self) -> Iterator[tuple[str, int]]:
        """The idempotency keys of its size requests: worker UID and generation."""
        for message in self.messages:
            if isinstance(message, ScaleRequest):
                yield message.worker_uid, message.worker_generation


class Chains:
    """Groups a recording into chains."""

    def __init__(self, entries: Iterable[Entry], events: Iterable[RecordedStep | Consumed]) -> None:
        self._consumed: dict[str, dict[str, datetime]] = {}
        """When each role consumed each message, by the role's own clock."""
        self.statuses: dict[str, list[Entry]] = {}
        """The status messages of each job."""
        self._by_id: dict[tuple[str, str], Chain] = {}
        self._loose: dict[tuple[str, str, datetime | None, bool], Chain] = {}
        """The chains that no message names, by job, slice, when it was evicted last, and whether they are of that."""
        self._evictions: dict[tuple[str, str], list[datetime]] = {}
        """When each slice was evicted, by job and slice."""
        self._gather(entries)
        steps = []
        for event in events:
            if isinstance(event, RecordedStep):
                steps.append(event)
                if event.evicted:
                    self._evictions.setdefault((event.job, event.slice), []).append(event.at)
            else:
                self._consumed.setdefault(_clock_of(event), {}).setdefault(event.message_id, event.at)
        self._steps = steps

    @property
    def all(self) -> list[Chain]:
        """Every chain that begins with a message, in order; then those of slices that no message names."""
        return [*self._by_id.values(), *self._loose.values()]

    def place_steps(self) -> None:
        """Add every step to its chain. A step that belongs to no known chain is left out."""
        by_job: dict[str, list[Chain]] = {}
        for chain in self._by_id.values():
            by_job.setdefault(chain.job, []).append(chain)
        for step in self._steps:
            if (owner := self._chain_of(step, by_job.get(step.job, []))) is not None:
                owner.steps.append(step)

    def ordered(self, chain: Chain) -> list[Entry | RecordedStep]:
        """The entries and steps of a chain, causes first.

        Those of one role are in the order of its own clock, and come after every message that it had consumed by then.
        Where neither gives an order, time does.
        """
        lines: dict[str, list[Entry | RecordedStep]] = {}
        everything: list[Entry | RecordedStep] = [*chain.shown, *chain.steps]
        for item in sorted(everything, key=_time_of):
            lines.setdefault(_clock_of(item), []).append(item)
        ordered: list[Entry | RecordedStep] = []
        while heads := [line[0] for line in lines.values() if line]:
            waited_for = [e for line in lines.values() for e in line if isinstance(e, Entry)]
            ready = [head for head in heads if not any(self._follows(head, e) for e in waited_for)]
            first = min(ready or heads, key=_time_of)
            ordered.append(first)
            lines[_clock_of(first)].pop(0)
        return ordered

    def _gather(self, entries: Iterable[Entry]) -> None:
        """Group the messages by job and correlation.

        A message that repeats an unanswered one begins no chain. A message that was redelivered under its id counts
        once. Any report of the job's deletion answers the delete.
        """
        first: dict[tuple[object, ...], str] = {}
        repeated: dict[tuple[str, str], str] = {}
        deletes: dict[JobRef, str] = {}
        suspends: dict[tuple[JobRef, int], str] = {}
        without_pods: set[JobRef] = set()
        seen: set[str] = set()
        for entry in entries:
            message, message_id = entry.received.message if entry.received else None, entry.record.message.message_id
            if entry.is_decisions or not entry.published or not entry.subject or message_id in seen:
                continue
            if message_id:
                seen.add(message_id)
            if isinstance(message, Status):
                self.statuses.setdefault(entry.subject, []).append(entry)
                continue
            id = repeated.get((entry.subject, entry.correlation_id), entry.correlation_id)
            match message:
                case Delete():
                    deletes[message.job] = id
                    without_pods.add(message.job)
                case Suspend():
                    suspends[message.job, message.spec_version] = id
                    without_pods.add(message.job)
                case Applied(deleted=True):
                    id = deletes.get(message.job, id)
                case Applied():
                    # The agent reports it when no pod is left, and knows by then no more what asked for that.
                    id = suspends.get((message.job, message.spec_version), id)
                case _:
                    pass  # Its own correlation says what it belongs to.
            if (key := _repeat_key(entry, message)) is not None:
                id = repeated[entry.subject, entry.correlation_id] = first.setdefault(key, id)
            chain = self._by_id.setdefault((entry.subject, id), Chain(entry.subject, id))
            chain.entries.append(entry)
            if isinstance(message, WorkloadSpec) and message.job in without_pods:
                without_pods.discard(message.job)
                chain.is_readmission = len(chain.entries) == 1

    def _chain_of(self, step: RecordedStep, chains: list[Chain]) -> Chain | None:
        evicted = max((at for at in self._evictions.get((step.job, step.slice), ()) if at <= step.at), default=None)
        if step.leaves and evicted is not None:
            chain = next((chain for chain in chains if _takes_pods_away(chain, since=evicted)), None)
            return chain or self._loose_chain(step, evicted)
        chain = next((chain for chain in chains if self._is_of(step, chain)), None)
        if chain is None and step.slice:
            chain = next((chain for chain in chains if chain.names(step.slice, since=evicted)), None)
            return chain or self._loose_chain(step, evicted)
        if chain is not None or step.request or step.correlation_id:
            return chain
        return self._last_known(step, chains)

    def _loose_chain(self, step: RecordedStep, evicted: datetime | None) -> Chain:
        """The chain of an attempt of a slice, or of the eviction before it, that no message names."""
        chain = self._loose.setdefault((step.job, step.slice, evicted, step.leaves), Chain(step.job))
        chain.is_readmission = evicted is not None and not step.leaves
        return chain

    def _is_of(self, step: RecordedStep, chain: Chain) -> bool:
        if step.request is not None:
            return step.request in chain.requests()
        return bool(step.correlation_id) and (
            chain.correlation_id == step.correlation_id
            or any(entry.correlation_id == step.correlation_id for entry in chain.entries)
        )

    def _last_known(self, step: RecordedStep, chains: list[Chain]) -> Chain | None:
        """The newest chain that the role knew of, or the one after it where that had ended."""
        known = [number for number, chain in enumerate(chains) if any(self._knew_of(step, e) for e in chain.shown)]
        if not known:
            return chains[0] if chains else None
        number = known[-1]
        chain = chains[number]
        ended = chain.settled is not None and self._knew_of(step, chain.settled)
        # A role's step can have set off only a chain that the role begins.
        following = next((then for then in chains[number + 1 :] if _clock_of(then.entries[0]) == _clock_of(step)), None)
        return following if ended and following is not None else chain

    def _follows(self, later: Entry | RecordedStep, message: Entry) -> bool:
        """Whether an entry or a step comes for certain after another role's message."""
        if _clock_of(later) == _clock_of(message):
            return False
        if isinstance(later, RecordedStep):
            return self._knew_of(later, message)
        consumed = self._consumed.get(_clock_of(later))
        if consumed is None:
            return message.offset < later.offset
        at = consumed.get(message.record.message.message_id or "")
        return at is not None and at <= _time_of(later)

    def _knew_of(self, step: RecordedStep, message: Entry) -> bool:
        """Whether a role had published or consumed a message by the time of a step.

        Where the recording lacks what the role consumed, the time of publishing counts.
        """
        at = message.published
        if _clock_of(step) != _clock_of(message):
            consumed = self._consumed.get(_clock_of(step), {})
            at = consumed.get(message.record.message.message_id or "", None if consumed else at)
        return at is not None and at <= step.at


def _takes_pods_away(chain: Chain, *, since: datetime) -> bool:
    """Whether a chain begins with the order that follows an eviction."""
    first = chain.entries[0]
    return (
        bool(chain.messages)
        and isinstance(chain.messages[0], Suspend | Delete)
        and first.published is not None
        and first.published >= since
    )


def _repeat_key(entry: Entry, message: Message | None) -> tuple[object, ...] | None:
    """A key that a message which begins a chain shares with every repeat of it; None for other messages."""
    if entry.correlation_id != entry.record.message.message_id:
        return None
    match message:
        case ScaleRequest(worker_uid=uid, worker_generation=generation):
            return entry.subject, uid, generation
        case WorkloadSpec() | Relabel() | Suspend() | Delete():
            return message.job, message.type, message.spec_version
        case _:
            return None


def _clock_of(item: Entry | RecordedStep | Consumed) -> str:
    """The role whose clock gave the time: `MANAGER`, or the agent's cluster."""
    if isinstance(item, Entry):
        return MANAGER if item.direction is Direction.DOWN else item.cluster
    return item.source.cluster or MANAGER


def _time_of(item: Entry | RecordedStep) -> datetime:
    at = item.at if isinstance(item, RecordedStep) else item.published
    assert at is not None
    return at
