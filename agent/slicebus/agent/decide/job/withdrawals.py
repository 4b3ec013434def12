"""Keeps a request that Ray's autoscaler takes back while it waits for quota, because it asks for the same size again at
once.

Autoscaler v2 gives up a pod that does not run for some minutes: it lowers the replicas, has the pods deleted, and asks
anew. If each of these were a request, the job would lose its place in the queue every time, and the quota that others
were evicted for. So the request stands for a while after it was taken back.
"""

from typing import NamedTuple

from msgspec.structs import replace

from slicebus.agent.state.annotations import PendingRequests, lowered
from slicebus.agent.state.tables import AgentTable
from slicebus.agent.state.views import Withdrawn, WorkerView
from slicebus.decisions.commands import Command, Forget, Remember, Requeue
from slicebus.proto.messages import Counts
from slicebus.slices.jobs import KINDS

STANDS_S = 30.0
"""How long a request stands after it was taken back. The autoscaler asks again within a few of its rounds of 5 s."""
_MARGIN_S = 0.1


def reconcile(view: WorkerView, *, now_s: float) -> list[Command]:
    """Note that a waiting request was taken back, that its time is over, or that it was asked for again."""
    known, less = view.withdrawn, _less(view)
    if less is None:
        return [Forget(table=AgentTable.WITHDRAWN, key=view.key)] if known else []
    if known is None or known.size != less.than.wanted:
        note = Withdrawn(size=less.than.wanted, instead_of=less.granted, since_s=now_s)
        begins = less.than.unanswered and less.keeps(note)
        return [Remember(table=AgentTable.WITHDRAWN, key=view.key, value=note)] if begins else []
    if known.stands and (now_s - known.since_s >= STANDS_S or not less.keeps(known)):
        return [Remember(table=AgentTable.WITHDRAWN, key=view.key, value=replace(known, stands=False))]
    return []


def requeue_after(view: WorkerView, *, now_s: float) -> list[Command]:
    """Requeue the job for when the time of a request that was taken back is over. Call it after each reconcile: of
    several delays only the earliest counts."""
    known, job = view.withdrawn, view.reading
    if known is None or job is None or not known.stands:
        return []
    # A little later: a delay that rounds to nothing would come back before its time, again and again.
    return [Requeue(job=job.ref, delay_s=known.since_s + STANDS_S - now_s + _MARGIN_S)]


class _Less(NamedTuple):
    """A smaller size than that of the last request."""

    wanted: Counts
    granted: Counts
    than: PendingRequests

    def keeps(self, withdrawn: Withdrawn) -> bool:
        """Whether no pod is given up that was granted already: that is a shrink, which frees quota."""
        return lowered(withdrawn.instead_of, self.wanted) == withdrawn.instead_of


def _less(view: WorkerView) -> _Less | None:
    """The size that Ray's autoscaler wants, if it is less than the last request and nothing else has changed."""
    job, target = view.reading, view.scale_target
    if job is None or target is None or job.requested is None or not job.runs:
        return None
    kind, last = KINDS[view.key.kind], job.requested
    if not kind.is_autoscaled(target) or last.overruled is True or last.worker_uid != target["metadata"]["uid"]:
        return None
    wanted = view.counts
    is_less = wanted.keys() == last.wanted.keys() and wanted != last.wanted and lowered(last.wanted, wanted) == wanted
    return _Less(wanted, job.granted, last) if is_less else None
