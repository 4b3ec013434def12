"""Obeys whoever suspends a job of the manager: it is evicted, gives its quota back when no pod is left, and waits until
somebody resumes it.

Meanwhile its Workload is deactivated, so that no admission cycle looks at it. A mark tells that from a Workload that
somebody else has deactivated: only what has the mark is activated again.
"""

from slicebus.decisions.commands import Command, Patch
from slicebus.kube.resources import WORKLOADS
from slicebus.manager.decide.admission import admission_writes
from slicebus.manager.decide.manifests import annotation_patch
from slicebus.manager.state.annotations import annotation
from slicebus.manager.state.views import JobView
from slicebus.slices.admission.cycle import Evict
from slicebus.slices.api import api_names
from slicebus.slices.api.kueue import EvictionReason
from slicebus.slices.workload.workload import Slice


def reconcile(view: JobView, *, now: str) -> list[Command]:
    """The next step for a job that its user has suspended, or resumed; one write a pass."""
    if not view.is_suspended_by_user:
        return [_activate(view, slice, True) for slice in view.unfinished if _is_marked(view, slice)]
    if view.holder is not None:
        evict = Evict(key=view.holder.key, reason=EvictionReason.SUSPENDED, message="Its user has suspended the job")
        return admission_writes.commands(view, view.holder, evict, now=now)
    return [_activate(view, slice, False) for slice in view.unfinished if slice.active]


def _activate(view: JobView, slice: Slice, active: bool) -> Command:
    mark = annotation_patch(api_names.SUSPENDED_ANNOTATION, None if active else "true")
    return Patch(resource=WORKLOADS, target=view.workload(slice), body=mark | {"spec": {"active": active}})


def _is_marked(view: JobView, slice: Slice) -> bool:
    return annotation(view.workload(slice), api_names.SUSPENDED_ANNOTATION) is not None
