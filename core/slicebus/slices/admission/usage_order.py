"""Orders the slices of one ClusterQueue by what their LocalQueues have used: who used less comes first.

Kueue takes one slice of a queue a cycle, and counts what it gets before the next one. Here a cycle decides them all, so
each counts for its LocalQueue as if it got its quota, and the others take turns with it.
Source: KEP-4136 of Kueue.
"""

import heapq
from collections import deque
from collections.abc import Iterable, Mapping

import msgspec

from slicebus.slices.admission.queue_order import Rank, rank
from slicebus.slices.quota.consumption import LocalUse, UsageRule, in_amounts
from slicebus.slices.quota.quota import needs_by_resource
from slicebus.slices.workload.workload import LocalQueueKey, Slice

_NOTHING = LocalUse(0.0, 1.0)


class LocalUses(msgspec.Struct, frozen=True):
    """What the LocalQueues have used whose ClusterQueues go by that."""

    rule: UsageRule = UsageRule()
    of_local_queues: Mapping[LocalQueueKey, LocalUse] = {}


def by_usage(slices: Iterable[Slice], uses: LocalUses) -> list[Slice]:
    """The slices of one ClusterQueue, which come by rank: of one LocalQueue that order stays."""
    waiting: dict[LocalQueueKey, deque[Slice]] = {}
    for slice in slices:
        waiting.setdefault(slice.local_queue, deque()).append(slice)
    more = dict.fromkeys(waiting, 0.0)

    def turn(key: LocalQueueKey) -> tuple[tuple[bool, float], Rank, LocalQueueKey]:
        return uses.of_local_queues.get(key, _NOTHING).share(more[key]), rank(waiting[key][0]), key

    turns = [turn(key) for key in waiting]
    heapq.heapify(turns)
    ordered: list[Slice] = []
    while turns:
        _, _, key = turns[0]
        slice = waiting[key].popleft()
        more[key] += uses.rule.part(uses.rule.ahead_s) * uses.rule.weighted(in_amounts(needs_by_resource(slice)))
        ordered.append(slice)
        if waiting[key]:
            heapq.heapreplace(turns, turn(key))
        else:
            heapq.heappop(turns)
    return ordered
