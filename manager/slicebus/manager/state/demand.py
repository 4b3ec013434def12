"""Knows who may get the quota that a job loses: who waits for it in a queue that takes workloads."""

from collections.abc import Collection

import msgspec

from slicebus.manager.state.quota_trees import Quotas
from slicebus.slices.quota.cohorts import queue_node
from slicebus.slices.quota.quota import usable_queue
from slicebus.slices.workload.workload import Slice


class Demand(msgspec.Struct, frozen=True):
    """Who wants quota of the tree in which a job has its own."""

    quotas: Quotas
    losing: Collection[Slice]
    """The slices of the job."""

    def chain(self, chain_id: str) -> list[Slice]:
        """The slices of another job, oldest first, without those that wait where they get nothing of it."""
        return [slice for slice in self.quotas.ledger.chain(chain_id) if not slice.pending or self._may_have(slice)]

    def waits(self, uid: str, job_uid: str) -> bool:
        """Whether a Workload of this UID, or of a job of that UID, wants some. Looks at everybody who waits."""
        return any(self._may_have(slice) for slice in self.quotas.ledger.pending(uid, job_uid))

    def _may_have(self, slice: Slice) -> bool:
        """Whether a slice that waits may get what the job loses: its queue is not stopped, and of the same tree."""
        quotas = self.quotas
        queue = usable_queue(slice, quotas.cluster_queues, quotas.local_queues, quotas.namespace_labels())
        if isinstance(queue, str):
            return False
        held = {one.admission.cluster_queue for one in self.losing if one.admission is not None}
        trees = {quotas.trees.get(queue_node(name)) for name in held}
        return not held or quotas.trees.get(queue_node(queue.name)) in trees
