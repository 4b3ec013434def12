"""Counts the use of quota in one admission cycle, as it is and as it will be after the evictions.

There are two trees of quota. `current` counts every quota holder, so nothing is admitted twice. `projected` leaves out
evicted chains and the pods that others lose, and counts the slices that wait for their quota, so nobody else gets it.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from slicebus.slices.admission.preemption import Preemptor
from slicebus.slices.admission.reductions import Candidate, Victim, left_of
from slicebus.slices.admission.trials import without
from slicebus.slices.api.quantities import larger
from slicebus.slices.placement.placement import usage_of
from slicebus.slices.quota.cohorts import Forest, Node, grow
from slicebus.slices.quota.holdings import Holdings
from slicebus.slices.quota.quota import ChainInQueue, ClusterQueue, Cohort, Usage
from slicebus.slices.workload.workload import Admission, Slice, SliceKey


class QuotaUse:
    """Knows who uses how much quota. `charge`, `reserve` and `preempt` change it."""

    def __init__(
        self,
        queues: Mapping[str, ClusterQueue],
        cohorts: Sequence[Cohort],
        holdings: Holdings,
        evicted: Iterable[Slice],
        shrinking: Iterable[Slice] = (),
        opportunistic: Iterable[Slice] = (),
        *,
        pods_before_jobs: bool = True,
        unevictable: Collection[SliceKey] = (),
        unshrinkable: Collection[SliceKey] = (),
    ) -> None:
        """`holdings` may also have chains of other queues. `evicted` are the holders that are leaving, with those whose
        eviction is not written yet; `shrinking` those that lose pods; `opportunistic` those with pods that are free for
        everybody else. `pods_before_jobs` is for queues that do not say whether their jobs may lose some pods. Nobody
        takes anything of the `unevictable` holders, and no single pods of the `unshrinkable` ones."""
        self._pods_before_jobs = pods_before_jobs
        self._unevictable = unevictable
        self._unshrinkable = unshrinkable
        self._holdings = holdings
        self._queues, self._cohorts = queues, cohorts
        self._evicted = {slice.chain_id: slice for slice in evicted}
        self._shrinking = [slice for slice in shrinking if slice.chain_id not in self._evicted]
        self._losing = {slice.chain_id for slice in self._shrinking}
        kept = [slice for slice in opportunistic if slice.chain_id not in self._evicted]
        self._reduced = {slice.chain_id: slice for slice in (*self._shrinking, *kept)}
        self._left = {chain_id: self._left_of(slice) for chain_id, slice in self._reduced.items()}
        """The holders that lose pods or have opportunistic ones, as they are without those, and what they hold then."""
        self.opportunistic = [(slice, self._left[slice.chain_id]) for slice in kept]
        """The holders with opportunistic pods before this cycle, each without those, and with what it holds then."""
        self.current = grow(queues.values(), cohorts, holdings.totals)
        self._projected: Forest | None = None
        self._apart: set[Node] = set()
        """The roots of the projected trees that differ from the current ones."""
        self._candidates: dict[str, list[Candidate]] = {}
        self._admitted: dict[str, Slice] = {}
        """The holders that this cycle has admitted, by chain."""
        self._charged: dict[ChainInQueue, Usage] = {}
        """What these chains use since."""
        self._excluded: tuple[str, Usage] | None = None
        """Queue and usage that `without` leaves out at the moment."""
        self._has_given = False
        self.changes = 0
        """How often anything was charged, reserved or preempted."""
        self._standing: Forest | None = None
        if self._evicted or self._left:
            self._project()

    @property
    def projected(self) -> Forest:
        """The tree after the evictions; the same as `current` while no chain is evicted."""
        return self._projected or self.current

    def tree_of(self, queue: str) -> Node:
        """The root of the tree of a queue."""
        return self.current.queues[queue].root

    def is_apart(self, queue: str) -> bool:
        """Whether anything is evicted, given up or reserved in the tree of a queue."""
        return self.projected.queues[queue].root in self._apart

    def evicted_holders(self) -> list[Slice]:
        """The evicted quota holders."""
        return list(self._evicted.values())

    def shrinking_holders(self) -> list[Slice]:
        """The quota holders that lost pods before this cycle and have still to let them go."""
        return self._shrinking

    def reduced_holders(self) -> list[tuple[Slice, Slice]]:
        """These and the holders with opportunistic pods, each with what is left of it without those."""
        return [(slice, self._left[chain_id][0]) for chain_id, slice in self._reduced.items()]

    def holder(self, chain_id: str) -> Slice | None:
        """The newest slice of a chain that holds quota."""
        return self._admitted.get(chain_id) or self._holdings.holder(chain_id)

    def own(self, queue: str, slice: Slice) -> Usage:
        """What a slice's chain holds of a queue."""
        charged = self._charged.get((queue, slice.chain_id))
        return self._before_cycle(queue, slice.chain_id) if charged is None else charged

    @contextmanager
    def without(self, slice: Slice, queue: str) -> Iterator[None]:
        """Leave out what a slice's chain holds of a queue: a replacement is charged only the difference."""
        own = self.own(queue, slice)
        self._count(queue, own, times=-1)
        self._excluded = queue, own
        try:
            yield
        finally:
            self._excluded = None
            self._count(queue, own, times=1)

    @contextmanager
    def as_if(self, preemptor: Preemptor, victims: Sequence[Victim]) -> Iterator[bool]:
        """Change the projected tree as if a preemptor had its victims' quota and might be preempted, while the context
        lasts. The value is whether it borrows then."""
        slice, node, before = preemptor.slice, self.projected.queues[preemptor.queue.name], self._candidates
        kept = {victim.candidate.slice.chain_id: victim.left for victim in victims if victim.to is not None}
        evicted = {victim.candidate.slice.chain_id for victim in victims if victim.to is None}
        changed = {leaf.name: leaf for leaf in (node, *(victim.candidate.node for victim in victims))}
        self._candidates, charged = dict(before), self._charged
        self._charged = charged | {(each.node.name, chain_id): each.usage for chain_id, each in kept.items()}
        for name, leaf in changed.items():
            left_out = {slice.chain_id, *evicted}
            holders = [other for other in self.holders_of(leaf) if other.slice.chain_id not in left_out]
            holders = [kept.get(other.slice.chain_id, other) for other in holders]
            own = [Candidate(slice=slice, node=node, usage=preemptor.needs)] if leaf is node else []
            self._candidates[name] = sorted([*holders, *own], key=lambda candidate: candidate.order)
        more = _difference(preemptor.needs, self.own(preemptor.queue.name, slice))
        try:
            with without(victims):
                borrows = any(node.borrows(key, need) for key, need in more.items())
                node.use_all(more)
                try:
                    yield borrows
                finally:
                    node.use_all(more, times=-1)
        finally:
            self._candidates, self._charged = before, charged

    def is_evicted(self, slice: Slice) -> bool:
        """Whether a holder is evicted."""
        return slice.chain_id in self._evicted

    def is_shrinking(self, slice: Slice) -> bool:
        """Whether a holder has still to let pods go that others get."""
        return slice.chain_id in self._losing

    def note_losing(self, slice: Slice) -> None:
        """Note that others get opportunistic pods of a holder."""
        self._losing.add(slice.chain_id)

    def left_of(self, slice: Slice) -> Slice | None:
        """A holder without the pods that it loses, and without opportunistic ones; None where it has neither, or is
        evicted."""
        left = self._left.get(slice.chain_id)
        return left[0] if left is not None and slice.chain_id not in self._evicted else None

    def charge(self, slice: Slice) -> None:
        """Count an admitted slice in place of what its chain held."""
        assert slice.admission is not None
        queue = slice.admission.cluster_queue
        before = self.own(queue, slice)
        usage = larger(before, slice.usage)
        more = _difference(usage, before)
        self.current.queues[queue].give(more)
        if self._projected is not None:
            self._projected.queues[queue].give(more)
        self._has_given = True
        self.changes += 1
        self._charged[queue, slice.chain_id] = usage
        self._admitted[slice.chain_id] = slice
        for name in (queue, *self._holdings.used_by(slice.chain_id)):
            self._candidates.pop(name, None)

    def reserve(self, slice: Slice, admission: Admission) -> None:
        """Reserve what a slice waits for, on top of what its chain holds."""
        queue = admission.cluster_queue
        before = self.own(queue, slice)
        usage = larger(before, usage_of(slice, admission))
        self._has_given = True
        self.changes += 1
        node = self._project().queues[queue]
        node.give(_difference(usage, before))
        self._apart.add(node.root)

    def preempt(self, victims: Iterable[Victim]) -> None:
        """Leave what the victims lose out of `projected`."""
        projected = self._project()
        self.changes += 1
        for victim in victims:
            candidate = victim.candidate
            node = projected.queues[candidate.node.name]
            if victim.to is None:
                self._evicted[candidate.slice.chain_id] = candidate.slice
            else:
                self._left[candidate.slice.chain_id] = victim.left.slice, victim.left.usage
                self._losing.add(candidate.slice.chain_id)
            node.use_all(victim.freed, times=-1)
            self._apart.add(node.root)
            self._candidates.pop(candidate.node.name, None)

    def holders_of(self, node: Node) -> Sequence[Candidate]:
        """The quota holders of a queue that may be preempted: they are neither evicted nor admitted in this cycle, and
        the API server takes it."""
        candidates = self._candidates.get(node.name)
        if candidates is None:
            evicted, admitted = self._evicted, self._admitted
            candidates = [
                self._candidate(holder, node)
                for holder in self._holdings.holders_in(node.name)
                if not (holder.chain_id in evicted or holder.chain_id in admitted or holder.key in self._unevictable)
            ]
            self._candidates[node.name] = candidates = sorted(candidates, key=lambda candidate: candidate.order)
        return candidates

    def _candidate(self, holder: Slice, node: Node) -> Candidate:
        """A holder in a queue, without the pods that it loses."""
        left = self._left.get(holder.chain_id)
        slice, usage = left or (holder, self._before_cycle(node.name, holder.chain_id))
        is_allowed = self._queues[node.name].gives_pods(self._pods_before_jobs)
        gives_pods = is_allowed and holder.key not in self._unshrinkable
        return Candidate(slice=slice, node=node, usage=usage, gives_pods=gives_pods)

    def _left_of(self, holder: Slice) -> tuple[Slice, Usage]:
        """A holder that loses pods, as it is without those, and what it holds then."""
        assert holder.admission is not None
        used, held = self._before_cycle(holder.admission.cluster_queue, holder.chain_id), holder.held_counts
        limits = [to for to in (holder.shrinks_to, holder.asked_counts) if to is not None]
        to = {name: min(count, *(limit[name] for limit in limits)) for name, count in held.items()}
        return holder.at_most(to), left_of(used, holder, to)

    def _before_cycle(self, queue: str, chain_id: str) -> Usage:
        """What a chain held of a queue before this cycle."""
        return self._holdings.used_by(chain_id).get(queue, {})

    def _count(self, queue: str, usage: Usage, *, times: int) -> None:
        self.current.queues[queue].use_all(usage, times=times)
        if self._projected is not None:
            self._projected.queues[queue].use_all(usage, times=times)

    def track_standing(self) -> None:
        """Keep what was held before this cycle apart from what the cycle gives: the search for victims needs it."""
        if self._has_given and self._standing is None:
            self._standing, _ = self._without_evicted()
            if self._excluded is not None:
                queue, own = self._excluded
                self._standing.queues[queue].use_all(own, times=-1)
            _link(self.projected, self._standing)

    def _project(self) -> Forest:
        """Make `projected` a tree of its own, apart from `current`."""
        if self._projected is None:
            self._projected, self._apart = self._without_evicted()
            for (queue, chain_id), usage in self._charged.items():
                more = _difference(usage, self._before_cycle(queue, chain_id))
                self._projected.queues[queue].use_all(more)
            self._candidates = {}
            if self._standing is not None:
                _link(self.current, self.current)
                _link(self._projected, self._standing)
        return self._projected

    def _without_evicted(self) -> tuple[Forest, set[Node]]:
        """The trees as they were before this cycle, without the evicted chains and the pods that others lose, and the
        roots where there are any."""
        forest, roots = grow(self._queues.values(), self._cohorts, self._holdings.totals), set[Node]()
        for chain_id in self._evicted:
            for queue, usage in self._holdings.used_by(chain_id).items():
                if node := forest.queues.get(queue):
                    node.use_all(usage, times=-1)
                    roots.add(node.root)
        for chain_id, (slice, left) in self._left.items():
            assert slice.admission is not None
            queue = slice.admission.cluster_queue
            if chain_id not in self._evicted and (node := forest.queues.get(queue)):
                node.use_all(_difference(self._before_cycle(queue, chain_id), left), times=-1)
                roots.add(node.root)
        return forest, roots


def _link(forest: Forest, standing: Forest) -> None:
    for name, node in forest.queues.items():
        node.standing = standing.queues[name]
    for name, node in forest.cohorts.items():
        node.standing = standing.cohorts[name]


def _difference(usage: Usage, before: Usage) -> Usage:
    return {key: value - before.get(key, 0) for key, value in usage.items()}
