"""How far queues and cohorts are past their limits, counted over the whole tree at once.

Written against Kueue's description of the API and not with the product's own tree, so that each holds the other.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping

from slicebus.slices.quantities import add, times
from slicebus.slices.quota import (
    ClusterQueue,
    Cohort,
    FlavorResource,
    Limits,
    Usage,
    total_by_queue,
    usage_by_chain,
)
from slicebus.slices.workload import Slice

Excess = dict[tuple[str, FlavorResource], int]
"""By the name of a queue or cohort, its flavors and resources."""
_NONE = Limits()


def excess(queues: Collection[ClusterQueue], cohorts: Collection[Cohort], used: Mapping[str, Usage]) -> Excess:
    """Everything that is used past a limit: of a queue what it may borrow, of a root its quota."""
    members: dict[str, list[ClusterQueue | Cohort]] = defaultdict(list)
    for member in (*queues, *cohorts):
        members[member.cohort if isinstance(member, ClusterQueue) else member.parent].append(member)
    unmade = members.keys() - {cohort.name for cohort in cohorts} - {""}
    members[""] += [Cohort(name=name) for name in sorted(unmade)]
    found: Excess = {}

    def count(node: ClusterQueue | Cohort, key: FlavorResource, *, is_root: bool) -> tuple[int, int]:
        """What a node gives its parent to lend, and what it uses of the parent's."""
        limits = node.limits.get(key, _NONE)
        quota = limits.nominal
        if isinstance(node, ClusterQueue):
            use = used.get(node.name, {}).get(key, 0)
        else:
            below = [count(member, key, is_root=False) for member in members[node.name]]
            quota, use = quota + sum(lent for lent, _ in below), sum(borrowed for _, borrowed in below)
        most = quota if is_root else None if limits.borrowing is None else quota + limits.borrowing
        if most is not None and use > most:
            found[node.name, key] = use - most
        lent = quota if limits.lending is None else min(quota, limits.lending)
        return lent, max(0, use - (quota - lent))

    for key in sorted({key for usage in used.values() for key in usage}):
        for root in members[""]:
            count(root, key, is_root=True)
    return found


def grown(before: Excess, after: Excess) -> Excess:
    """What has become worse."""
    return {where: value for where, value in after.items() if value > before.get(where, 0)}


Fit = list[tuple[str, int, str]]
"""Pod sets with their counts and flavors."""


def fitting(
    slice: Slice, slices: Collection[Slice], queues: Collection[ClusterQueue], cohorts: Collection[Cohort]
) -> Fit | None:
    """How a slice that waits could be admitted now; None where it does not fit, or something is past its limits.

    Pod sets are taken in their order, each on the first flavor that has room, or on the one that it has already. A
    slice that takes a part of what it asks for fits when one pod more does.
    """
    queue = next(one for one in queues if one.name == slice.queue)
    chain = [one for one in slices if one.job_uid == slice.job_uid and one.admission is not None and not one.finished]
    held = chain[-1] if chain else None
    used = total_by_queue(usage_by_chain(one for one in slices if one.job_uid != slice.job_uid))
    counts = slice.counts
    if slice.partial and held is not None:
        counts = {name: min(count, held.granted.get(name, 0) + 1) for name, count in counts.items()}
    found: Fit = []
    for pod_set in slice.pod_sets:
        kept = set(held.admission.flavors_of(pod_set.name).values()) if held and held.admission else set()
        for flavor in queue.resource_groups[0].flavors:
            needs = times(pod_set.requests, counts[pod_set.name])
            taken = add(used.get(queue.name, {}), {(flavor.name, name): value for name, value in needs.items()})
            past = {key for _, key in excess(queues, cohorts, used | {queue.name: taken})}
            has_room = not any(value and (flavor.name, name) in past for name, value in needs.items())
            if has_room and (not kept or flavor.name in kept):
                break
        else:
            return None
        used = used | {queue.name: taken}
        found.append((pod_set.name, counts[pod_set.name], flavor.name))
    return found
