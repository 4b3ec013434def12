"""Gives back the quota of pods that have ended for good. They are reported together, as they often end one after the
other.

Each report is a request for another size: it costs a write of the Workload and a new order, and most jobs end soon
after their first pod.
"""

from slicebus.agent.state.tables import AgentTable
from slicebus.agent.state.views import Finishing, WorkerView
from slicebus.decisions.commands import Command, Forget, Remember, Requeue

SETTLES_S = 5.0
"""How long after the first pod others may end that are reported with it."""
_MARGIN_S = 0.1


def reconcile(view: WorkerView, *, now_s: float) -> list[Command]:
    """Note that pods have ended for good, that it is time to report them, or that they are reported."""
    known, job = view.finishing, view.reading
    if job is None or not job.runs or view.told == view.left:
        return [Forget(table=AgentTable.FINISHING, key=view.key)] if known else []
    if known is None:
        return [Remember(table=AgentTable.FINISHING, key=view.key, value=Finishing(since_s=now_s))]
    if known.settled or now_s - known.since_s < SETTLES_S:
        return []
    return [Remember(table=AgentTable.FINISHING, key=view.key, value=Finishing(known.since_s, settled=True))]


def requeue_after(view: WorkerView, *, now_s: float) -> list[Command]:
    """Requeue the job for when it is time. Call it after each reconcile: of several delays only the earliest counts."""
    known, job = view.finishing, view.reading
    if known is None or job is None or known.settled:
        return []
    # A little later: a delay that rounds to nothing would come back before its time, again and again.
    return [Requeue(job=job.ref, delay_s=known.since_s + SETTLES_S - now_s + _MARGIN_S)]
