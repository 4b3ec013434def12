"""How far queues and cohorts are past their limits, and what would fit, counted over the whole tree at once.

Written against Kueue's description of the API and not with the product's own tree, so that each holds the other.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple

from simulation.usage_order import cluster_queue_of
from slicebus.slices.api.quantities import add, times
from slicebus.slices.quota.quota import (
    ClusterQueue,
    Cohort,
    FlavorResource,
    Limits,
    Usage,
    usage_by_chain,
)
from slicebus.slices.workload.workload import FlavorName, Slice
from support.usage import total_by_queue

Where = tuple[str, FlavorResource]
"""The name of a queue or cohort, one of its flavors and a resource."""
Excess = dict[Where, int]
_NONE = Limits()


class _Count(NamedTuple):
    """What is there, and what is used: of a cohort what its members lend it, and borrow from it."""

    quota: int
    use: int
    most: int | None
    """That it may use; None for no limit."""


class _Tree:
    """All queues and cohorts, with what is used of every queue."""

    def __init__(
        self, queues: Collection[ClusterQueue], cohorts: Collection[Cohort], used: Mapping[str, Usage]
    ) -> None:
        self._members: dict[str, list[ClusterQueue | Cohort]] = defaultdict(list)
        for member in (*queues, *cohorts):
            self._members[_parent(member)].append(member)
        unmade = self._members.keys() - {cohort.name for cohort in cohorts} - {""}
        self._roots = [*self._members[""], *(Cohort(name=name) for name in sorted(unmade))]
        self._parents = {member.name: _parent(member) for member in (*queues, *cohorts)}
        self._used = used
        self.counts: dict[Where, _Count] = {}
        for key in sorted({key for usage in used.values() for key in usage}):
            for root in self._roots:
                self._count(root, key, is_root=True)

    def _count(self, node: ClusterQueue | Cohort, key: FlavorResource, *, is_root: bool) -> tuple[int, int]:
        """What a node gives its parent to lend, and what it uses of the parent's."""
        limits = node.limits.get(key, _NONE)
        quota = limits.nominal
        if isinstance(node, ClusterQueue):
            use = self._used.get(node.name, {}).get(key, 0)
        else:
            below = [self._count(member, key, is_root=False) for member in self._members.get(node.name, ())]
            quota, use = quota + sum(lent for lent, _ in below), sum(borrowed for _, borrowed in below)
        most = quota if is_root else None if limits.borrowing is None else quota + limits.borrowing
        self.counts[node.name, key] = _Count(quota, use, most)
        lent = quota if limits.lending is None else min(quota, limits.lending)
        return lent, max(0, use - (quota - lent))

    def level(self, queue: str, key: FlavorResource) -> int:
        """How far up a queue borrows: 0 for not at all, else the height of the smallest part of the tree that has what
        is used there, or of the whole tree."""
        name = queue
        while self.counts[name, key].use > self.counts[name, key].quota and self._parents.get(name):
            name = self._parents[name]
        return self._height(name)

    def _height(self, name: str) -> int:
        """The levels below a node."""
        return max((1 + self._height(member.name) for member in self._members.get(name, ())), default=0)


def excess(queues: Collection[ClusterQueue], cohorts: Collection[Cohort], used: Mapping[str, Usage]) -> Excess:
    """Everything that is used past a limit: of a queue what it may borrow, of a root its quota."""
    counts = counted(queues, cohorts, used).items()
    return {where: use - most for where, (_, use, most) in counts if most is not None and use > most}


def counted(
    queues: Collection[ClusterQueue], cohorts: Collection[Cohort], used: Mapping[str, Usage]
) -> Mapping[Where, _Count]:
    """What every queue and cohort has of each resource, and uses."""
    return _Tree(queues, cohorts, used).counts


def grown(before: Excess, after: Excess) -> Excess:
    """What has become worse."""
    return {where: value for where, value in after.items() if value > before.get(where, 0)}


Fit = list[tuple[str, int, str]]
"""Pod sets with their counts and flavors; one that has had no pods yet has none."""


def fitting(
    slice: Slice, slices: Collection[Slice], queues: Collection[ClusterQueue], cohorts: Collection[Cohort]
) -> Fit | None:
    """How a slice that waits could be admitted now; None where it does not fit, or something is past its limits.

    Pod sets are taken in their order. Each gets the flavor that it has already, or of those with room the first; of a
    queue that looks at the next one rather than borrow the one that is borrowed the least far up. That stands, even
    where a later pod set finds no room then and would with another choice. A slice that takes a part of what it asks
    for fits when one pod more does.
    """
    queue = next(one for one in queues if one.name == cluster_queue_of(slice.queue))
    chain = [one for one in slices if one.job_uid == slice.job_uid and one.admission is not None and not one.finished]
    held = chain[-1] if chain else None
    used = total_by_queue(usage_by_chain(one for one in slices if one.job_uid != slice.job_uid))
    counts = slice.counts
    if slice.partial and held is not None:
        sizes = slice.replica_sizes
        counts = {name: min(count, held.granted.get(name, 0) + sizes.get(name, 1)) for name, count in counts.items()}
    found: Fit = []
    for pod_set in slice.pod_sets:
        kept = _flavors_of(held, pod_set.name) if held is not None else set()
        if not (kept or counts[pod_set.name]):
            found.append((pod_set.name, 0, ""))
            continue
        needs = times(pod_set.charged, counts[pod_set.name])
        levels = {
            flavor.name: level
            for flavor in queue.resource_groups[0].flavors
            if not kept or flavor.name in kept
            if (level := _level(queue, queues, cohorts, used, _of_flavor(flavor.name, needs))) is not None
        }
        if not levels:
            return None
        next_when_borrowing = queue.fungibility.next_when_borrowing
        best = min(levels, key=levels.__getitem__) if next_when_borrowing else next(iter(levels))
        used = used | {queue.name: add(used.get(queue.name, {}), _of_flavor(best, needs))}
        found.append((pod_set.name, counts[pod_set.name], best))
    return found


def _flavors_of(held: Slice, pod_set: str) -> set[FlavorName]:
    """The flavors that the pods of a pod set have already: of a template without requests those that are charged for
    what the pods themselves request."""
    observed = held.observed.pod_sets.get(pod_set) if held.observed is not None else None
    beyond = {FlavorName(name) for name in observed.flavors.values()} if observed is not None else set()
    return beyond | set(held.admission.flavors_of(pod_set).values() if held.admission is not None else ())


def _level(
    queue: ClusterQueue,
    queues: Collection[ClusterQueue],
    cohorts: Collection[Cohort],
    used: Mapping[str, Usage],
    needs: Usage,
) -> int | None:
    """How far up a queue would borrow for what is needed, at the resource where that is farthest; None for no room."""
    tree = _Tree(queues, cohorts, used | {queue.name: add(used.get(queue.name, {}), needs)})
    wanted = [key for key, value in needs.items() if value]
    past = {key for (_, key), (_, use, most) in tree.counts.items() if most is not None and use > most}
    return None if past.intersection(wanted) else max((tree.level(queue.name, key) for key in wanted), default=0)


def _of_flavor(flavor: str, needs: Mapping[str, int]) -> Usage:
    return {(FlavorName(flavor), resource): value for resource, value in needs.items()}


def _parent(member: ClusterQueue | Cohort) -> str:
    return member.cohort if isinstance(member, ClusterQueue) else member.parent
