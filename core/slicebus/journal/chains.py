"""Puts recorded messages and steps together into chains: everything that one change of one job set off, and after what.

Messages name their chain. A step belongs to the chain of the message that it was decided for, else to that of the wish
it writes down, else to the first that names the slice it brings, else to what its role knew of last at that time.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime

from slicebus.journal.entry import Entry
from slicebus.journal.steps import Step, Taken
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

MANAGER = ""
"""In the place of an agent's cluster: a cluster may be named as it likes."""


class Chain:
    """What belongs together, of one job."""

    def __init__(self, job: str, correlation_id: str = "") -> None:
        self.job = job
        self.correlation_id = correlation_id
        self.entries: list[Entry] = []
        self.steps: list[Step] = []
        self.settled: Entry | None = None
        """The status that shows its end."""

    @property
    def messages(self) -> list[Message]:
        """Those that can be read, as they were published."""
        return [entry.received.message for entry in self.entries if entry.received]

    @property
    def shown(self) -> list[Entry]:
        """Its messages, and the status that shows its end, in the journal's order."""
        entries = [*self.entries, self.settled] if self.settled else self.entries
        return sorted(entries, key=lambda entry: entry.offset)

    def slices(self) -> Iterator[str]:
        """The slices that it is about."""
        for message in self.messages:
            match message:
                case WorkloadSpec(workload=workload):
                    yield workload.get("metadata", {}).get("name", "")
                case Relabel(to_workload=name) | Pending(workload=name):
                    yield name

    def requests(self) -> Iterator[tuple[str, int]]:
        """The wishes that it is about."""
        for message in self.messages:
            if isinstance(message, ScaleRequest):
                yield message.worker_uid, message.worker_generation


class Chains:
    """The chains of a recording."""

    def __init__(self, entries: Iterable[Entry], told: Iterable[Step | Taken]) -> None:
        self._taken: dict[str, dict[str, datetime]] = {}
        """When each role took which message, by its own clock."""
        self.statuses: dict[str, list[Entry]] = {}
        """Those of each job; what they show is looked for afterwards."""
        self._by_id: dict[tuple[str, str], Chain] = {}
        self._loose: dict[tuple[str, str], Chain] = {}
        """Chains of slices that no message names."""
        self._gather(entries)
        steps = []
        for each in told:
            if isinstance(each, Step):
                steps.append(each)
            else:
                self._taken.setdefault(_by(each), {}).setdefault(each.message_id, each.at)
        self._steps = steps

    @property
    def all(self) -> list[Chain]:
        """Every chain, in the order of their beginnings."""
        return [*self._by_id.values(), *self._loose.values()]

    def place_steps(self) -> None:
        """Give every step its chain. Those that are about no change that is known are left out."""
        by_job: dict[str, list[Chain]] = {}
        for chain in self._by_id.values():
            by_job.setdefault(chain.job, []).append(chain)
        for step in self._steps:
            if (found := self._chain_of(step, by_job.get(step.job, []))) is not None:
                found.steps.append(step)

    def ordered(self, chain: Chain) -> list[Entry | Step]:
        """All of a chain, causes first: each role's by its own clock, and nothing before a message that the role had
        taken. What neither orders goes by time."""
        lines: dict[str, list[Entry | Step]] = {}
        everything: list[Entry | Step] = [*chain.shown, *chain.steps]
        for each in sorted(everything, key=_at):
            lines.setdefault(_by(each), []).append(each)
        found: list[Entry | Step] = []
        while heads := [line[0] for line in lines.values() if line]:
            waited_for = [e for line in lines.values() for e in line if isinstance(e, Entry)]
            ready = [head for head in heads if not any(self._follows(head, e) for e in waited_for)]
            first = min(ready or heads, key=_at)
            found.append(first)
            lines[_by(first)].pop(0)
        return found

    def _gather(self, entries: Iterable[Entry]) -> None:
        """Messages by job and correlation. What was said again, as nobody had answered it, is no chain of its own, a
        message that came back under its id is no other one, and a delete is answered by whoever finds that the job is
        gone."""
        first: dict[tuple[object, ...], str] = {}
        again: dict[tuple[str, str], str] = {}
        deletes: dict[JobRef, str] = {}
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
            id = again.get((entry.subject, entry.correlation_id), entry.correlation_id)
            match message:
                case Delete(job=job):
                    deletes[job] = id
                case Applied(job=job, deleted=True):
                    id = deletes.get(job, id)
            if (said := _said(entry, message)) is not None:
                id = again[entry.subject, entry.correlation_id] = first.setdefault(said, id)
            chain = self._by_id.setdefault((entry.subject, id), Chain(entry.subject, id))
            chain.entries.append(entry)

    def _chain_of(self, step: Step, chains: list[Chain]) -> Chain | None:
        found = next((chain for chain in chains if self._is_of(step, chain)), None)
        if found is None and step.slice:
            found = next((chain for chain in chains if step.slice in chain.slices()), None)
            return found or self._loose.setdefault((step.job, step.slice), Chain(step.job))
        if found is not None or step.request or step.correlation_id:
            return found
        return self._last_known(step, chains)

    def _is_of(self, step: Step, chain: Chain) -> bool:
        if step.request is not None:
            return step.request in chain.requests()
        return bool(step.correlation_id) and (
            chain.correlation_id == step.correlation_id
            or any(entry.correlation_id == step.correlation_id for entry in chain.entries)
        )

    def _last_known(self, step: Step, chains: list[Chain]) -> Chain | None:
        """The newest that the role knew of; where that had ended, what it did belongs to the next."""
        known = [number for number, chain in enumerate(chains) if any(self._knew(step, e) for e in chain.shown)]
        if not known:
            return chains[0] if chains else None
        number = known[-1]
        chain = chains[number]
        ended = chain.settled is not None and self._knew(step, chain.settled)
        return chains[number + 1] if ended and number + 1 < len(chains) else chain

    def _follows(self, later: Entry | Step, message: Entry) -> bool:
        """Whether something comes after another role's message for sure."""
        if _by(later) == _by(message):
            return False
        if isinstance(later, Step):
            return self._knew(later, message)
        taken = self._taken.get(_by(later))
        if taken is None:
            return message.offset < later.offset
        at = taken.get(message.record.message.message_id or "")
        return at is not None and at <= _at(later)

    def _knew(self, step: Step, message: Entry) -> bool:
        """Whether a role had published or taken a message by then. Where its taking is not recorded, when it was
        published counts."""
        at = message.published
        if _by(step) != _by(message):
            taken = self._taken.get(_by(step), {})
            at = taken.get(message.record.message.message_id or "", None if taken else at)
        return at is not None and at <= step.at


def _said(entry: Entry, message: Message | None) -> tuple[object, ...] | None:
    """What a message says that begins a chain, which may be said again; None for others."""
    if entry.correlation_id != entry.record.message.message_id:
        return None
    match message:
        case ScaleRequest(worker_uid=uid, worker_generation=generation):
            return entry.subject, uid, generation
        case WorkloadSpec() | Relabel() | Suspend() | Delete():
            return message.job, message.type, message.spec_version
    return None


def _by(each: Entry | Step | Taken) -> str:
    """Whose clock it is: `MANAGER`, or the agent's cluster."""
    if isinstance(each, Entry):
        return MANAGER if each.direction is Direction.DOWN else each.cluster
    return each.source.cluster or MANAGER


def _at(each: Entry | Step) -> datetime:
    at = each.at if isinstance(each, Step) else each.published
    assert at is not None
    return at
