"""Knows who may get the quota that a job loses: who waits for it in a queue that takes workloads."""

from collections.abc import Collection

import msgspec
from msgspec.structs import replace

from slicebus.manager.state.quota_trees import Quotas
from slicebus.slices.admission.preemption import may_preempt
from slicebus.slices.api.kueue import Condition, PreemptionReason
from slicebus.slices.quota.cohorts import queue_node
from slicebus.slices.quota.quota import usable_queue
from slicebus.slices.workload.workload import Slice


class Demand(msgspec.Struct, frozen=True):
    """Who wants quota of the tree in which a job has its own."""

    quotas: Quotas
    losing: Collection[Slice]
    """The slices of the job."""

    def chain(self, chain_id: str) -> list[Slice]:
        """The slices of another job, oldest first. Those that wait where they get none of it count as deactivated."""
        return [self._as_it_waits(slice) for slice in self.quotas.ledger.chain(chain_id)]

    def waits(self, uid: str, job_uid: str) -> bool:
        """Whether a Workload of this UID, or of a job of that UID, wants some. Looks at everybody who waits."""
        return any(self._may_have(slice) for slice in self.quotas.ledger.pending(uid, job_uid))

    def drains(self, evicted: Slice) -> bool:
        """Whether a budget for which the job is evicted still takes its quota, and is the same."""
        said = evicted.conditions[Condition.EVICTED].get("message", "").split("; ")
        return not self.quotas.budgets.draining(evicted).isdisjoint(said)

    def _as_it_waits(self, slice: Slice) -> Slice:
        return slice if not slice.pending or self._may_have(slice) else replace(slice, active=False)

    def _may_have(self, slice: Slice) -> bool:
        """Whether a slice that waits may get what the job loses: its queue is not stopped, and of the same tree, and
        would still preempt the job for it."""
        quotas = self.quotas
        queue = usable_queue(slice, quotas.cluster_queues, quotas.local_queues, quotas.namespace_labels())
        loser = next((one for one in self.losing if one.keeps_quota or one.evicting), None)
        if isinstance(queue, str) or loser is None or loser.admission is None:
            return not isinstance(queue, str)
        held = loser.admission.cluster_queue
        if quotas.trees.get(queue_node(queue.name)) != quotas.trees.get(queue_node(held)):
            return False
        policy = queue.preemption
        whom = policy.within_queue if queue.name == held else policy.reclaim
        return _goes_to_all(loser) or may_preempt(slice, loser, whom)


def _goes_to_all(loser: Slice) -> bool:
    """Whether a job loses pods that nobody had asked for: they go whatever the policies say."""
    taken = loser.reclaimed.awaited_by if loser.reclaimed is not None else ()
    preempted = loser.conditions.get(Condition.PREEMPTED, {})
    reasons = {preempted.get("reason") if loser.evicting else None}
    return PreemptionReason.OPPORTUNISTIC in reasons or any(each.opportunistic for each in taken)
