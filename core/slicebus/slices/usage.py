"""The running account of one admission cycle: who holds how much of the quota now, and who will.

There are two trees of quota. In the one of now everybody counts who holds quota, so nothing is given twice. In the one
of later those do not count who are evicted, and those do who wait for what they leave: nobody else gets that.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from slicebus.slices.cohorts import Forest, Node, grow
from slicebus.slices.preemption import Candidate, Victim
from slicebus.slices.quantities import larger
from slicebus.slices.quota import ClusterQueue, Cohort, Usage, holders, total_by_queue, usage_by_chain
from slicebus.slices.workload import Admission, Slice, SliceKey


class QuotaUse:
    """Changed by `charge`, `reserve` and `preempt`."""

    def __init__(
        self,
        queues: Mapping[str, ClusterQueue],
        cohorts: Sequence[Cohort],
        slices: Iterable[Slice],
        evicted: Collection[SliceKey],
    ) -> None:
        """`evicted` are those whose eviction is decided, and not written yet."""
        found = [*slices]
        self.held = holders(found)
        """The holder of each chain."""
        self.charged = usage_by_chain(found)
        self._queues, self._cohorts = queues, cohorts
        self._going = {
            chain for chain, slice in self.held.items() if slice.evicted or slice.deleting or slice.key in evicted
        }
        self.now = grow(queues.values(), cohorts, total_by_queue(self.charged))
        self._later: Forest | None = None
        self._members: dict[str, list[str]] | None = None
        self._candidates: dict[str, list[Candidate]] = {}
        self._admitted: set[str] = set()
        self._at_first: dict[tuple[str, str], Usage] = {}
        """What chains held, by queue, before they got more in this cycle."""
        self._aside: tuple[str, Usage] | None = None
        """What counts nowhere at the moment."""
        self._gives = False
        self._standing: Forest | None = None
        if self._going:
            self._look_ahead()

    @property
    def later(self) -> Forest:
        """As it will be: the same as now while nobody is evicted."""
        return self._later or self.now

    def going(self) -> list[Slice]:
        """The holders who are evicted."""
        return [self.held[chain] for chain in self._going]

    def own(self, queue: str, slice: Slice) -> Usage:
        """What a slice's chain holds of a queue."""
        return self.charged.get((queue, slice.chain_id), {})

    @contextmanager
    def without(self, slice: Slice, queue: str) -> Iterator[None]:
        """What a slice's chain holds of a queue counts nowhere meanwhile: of a replacement only the difference does."""
        own = self.own(queue, slice)
        self._count(queue, own, times=-1)
        self._aside = queue, own
        yield
        self._aside = None
        self._count(queue, own, times=1)

    def is_going(self, slice: Slice) -> bool:
        """Whether a holder is evicted."""
        return slice.chain_id in self._going

    def charge(self, slice: Slice) -> None:
        """Count a slice that is admitted, in place of what its chain had."""
        assert slice.admission is not None
        queue = slice.admission.cluster_queue
        before = self.own(queue, slice)
        usage = larger(before, slice.usage())
        more = _difference(usage, before)
        self.now.queues[queue].give(more)
        if self._later is not None:
            self._later.queues[queue].give(more)
        self._gives = True
        self._at_first.setdefault((queue, slice.chain_id), before)
        self.charged[queue, slice.chain_id] = usage
        self.held[slice.chain_id] = slice
        self._admitted.add(slice.chain_id)
        self._candidates.pop(queue, None)

    def reserve(self, slice: Slice, admission: Admission) -> None:
        """Keep for a slice, on top of what its chain has, what it waits for."""
        queue = admission.cluster_queue
        before = self.own(queue, slice)
        usage = larger(before, msgspec.structs.replace(slice, admission=admission).usage())
        self._gives = True
        self._look_ahead().queues[queue].give(_difference(usage, before))

    def preempt(self, victims: Iterable[Victim]) -> None:
        """Count the victims no longer, later."""
        later = self._look_ahead()
        for victim in victims:
            candidate = victim.candidate
            self._going.add(candidate.slice.chain_id)
            later.queues[candidate.node.name].use_all(candidate.usage, times=-1)
            self._candidates.pop(candidate.node.name, None)

    def holders_of(self, node: Node) -> Sequence[Candidate]:
        """Who may be preempted in a queue, as far as quota goes: not who is evicted, nor admitted in this cycle."""
        found = self._candidates.get(node.name)
        if found is None:
            held, going, admitted = self._chains().get(node.name, ()), self._going, self._admitted
            chains = (chain for chain in held if chain not in going and chain not in admitted)
            found = [
                Candidate(slice=self.held[chain], node=node, usage=self.charged[node.name, chain]) for chain in chains
            ]
            self._candidates[node.name] = found = sorted(found, key=lambda candidate: candidate.order)
        return found

    def _count(self, queue: str, usage: Usage, *, times: int) -> None:
        self.now.queues[queue].use_all(usage, times=times)
        if self._later is not None:
            self._later.queues[queue].use_all(usage, times=times)

    def _chains(self) -> Mapping[str, list[str]]:
        """The chains by the queue whose quota their holder has."""
        if self._members is None:
            self._members = {}
            for chain, slice in self.held.items():
                if slice.admission is not None:
                    self._members.setdefault(slice.admission.cluster_queue, []).append(chain)
        return self._members

    def set_apart(self) -> None:
        """From now on what was held before this cycle is told from what it gives, where victims are searched."""
        if self._gives and self._standing is None:
            usage = {key: used for key, used in (self.charged | self._at_first).items() if key[1] not in self._going}
            self._standing = grow(self._queues.values(), self._cohorts, total_by_queue(usage))
            if self._aside is not None:
                queue, own = self._aside
                self._standing.queues[queue].use_all(own, times=-1)
            _link(self.later, self._standing)

    def _look_ahead(self) -> Forest:
        """The tree of later, from now on another than that of now."""
        if self._later is None:
            usage = {key: used for key, used in self.charged.items() if key[1] not in self._going}
            self._later = grow(self._queues.values(), self._cohorts, total_by_queue(usage))
            self._candidates = {}
            if self._standing is not None:
                _link(self.now, self.now)
                _link(self._later, self._standing)
        return self._later


def _link(forest: Forest, standing: Forest) -> None:
    for name, node in forest.queues.items():
        node.standing = standing.queues[name]
    for name, node in forest.cohorts.items():
        node.standing = standing.cohorts[name]


def _difference(usage: Usage, before: Usage) -> Usage:
    return {key: value - before.get(key, 0) for key, value in usage.items()}
