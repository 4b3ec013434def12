"""Ends the run of a job that has had quota for its `maximumExecutionTimeSeconds`, as Kueue does.

The job is evicted and its Workload deactivated: it gives its quota back when no pod is left, and runs again when
somebody activates the Workload, with its whole time.
"""

from slicebus.decisions.commands import Command, Patch, Requeue
from slicebus.kube.resources import WORKLOADS
from slicebus.manager.decide.admission import admission_writes
from slicebus.manager.decide.job.execution_time import left_s, limit_s
from slicebus.manager.state.views import JobView
from slicebus.slices.admission.cycle import Evict
from slicebus.slices.api.kueue import Condition, EvictionReason
from slicebus.slices.workload.workload import Slice

_MARGIN_S = 1.0
"""Times in conditions are whole seconds."""


def reconcile(view: JobView, *, now: str) -> list[Command]:
    """The next step for a job whose time is over; one write a pass."""
    evicted = view.evicted
    if evicted is not None and evicted.active and evicted.evicting and _is_for_time(evicted):
        return [Patch(resource=WORKLOADS, target=view.workload(evicted), body={"spec": {"active": False}})]
    holder, left = view.holder, left_s(view, now=now)
    if holder is None or left is None or left > 0:
        return []
    message = f"exceeding the maximum execution time of {limit_s(view.workload(holder))} s"
    evict = Evict(key=holder.key, reason=EvictionReason.EXECUTION_TIME, message=message)
    return admission_writes.commands(view, holder, evict, now=now)


def requeue_after(view: JobView, *, now: str) -> list[Command]:
    """Reconcile the job when its time is over."""
    left = left_s(view, now=now)
    return [Requeue(job=view.ref, delay_s=max(0.0, left) + _MARGIN_S)] if left is not None else []


def _is_for_time(slice: Slice) -> bool:
    return bool(slice.conditions[Condition.EVICTED].get("reason") == EvictionReason.EXECUTION_TIME)
