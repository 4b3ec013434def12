"""What an order changes of a job that is there: its size, and the bounds of its autoscaler.

Both are changed only where the manager has set others than the last time: whoever changed them here keeps them until
then.
"""

import msgspec

from slicebus.agent.state import annotations
from slicebus.agent.state.views import JobReading, WorkerView
from slicebus.decisions.commands import Command, Emit, Patch
from slicebus.kube.resources import JOB_RESOURCES
from slicebus.proto.messages import Counts, Manifest, WorkloadSpec
from slicebus.slices import own_api
from slicebus.slices.jobs import KINDS


def counts_of(order: WorkloadSpec) -> Counts:
    """The size that the manager has set: that of its user's spec, or the one before a scale-up that was taken back."""
    return KINDS[order.job.kind].counts(order.manifest, order.manifest)


def sets_another(order: WorkloadSpec, job: JobReading) -> bool:
    """Whether the manager has set another size than the last time. A scale-up that is taken back is one in any case:
    the worker may have grown from that very size."""
    taken_back = order.taken_back or None
    is_news = (
        taken_back is not None and annotations.annotation(job.manifest, own_api.TAKEN_BACK_ANNOTATION) != taken_back
    )
    return is_news or annotations.baseline(job.manifest) != counts_of(order)


def sets_other_bounds(order: WorkloadSpec, job: JobReading) -> bool:
    """Whether the manager has set other bounds than the last time."""
    bounds = _bounds(order)
    return bool(bounds) and annotations.bounds(job.manifest) != bounds


def note(order: WorkloadSpec) -> dict[str, str]:
    """The annotations of a job by which the next order is compared with this one."""
    noted = {own_api.BASELINE_ANNOTATION: annotations.encode_counts(counts_of(order))}
    if bounds := _bounds(order):
        noted[own_api.BOUNDS_ANNOTATION] = msgspec.json.encode(bounds, order="sorted").decode()
    return noted | ({own_api.TAKEN_BACK_ANNOTATION: order.taken_back} if order.taken_back else {})


def take(view: WorkerView, order: WorkloadSpec, job: JobReading) -> list[Command]:
    """Applies a resize that started at the manager, and gives the autoscaler the bounds that were set there.

    A suspended job comes back with the counts of the manager's spec, whatever it had grown to.
    """
    return [*_take_counts(view, order, job), *_take_bounds(view, order, job)]


def _take_counts(view: WorkerView, order: WorkloadSpec, job: JobReading) -> list[Command]:
    # A suspended RayJob has no cluster: its own spec has the size of the next one.
    scale_target = job.manifest if job.manifest["spec"].get("suspend") else view.scale_target
    if scale_target is None or not sets_another(order, job):
        return []
    patch, why = KINDS[view.key.kind].resize(scale_target, counts_of(order)), order.resized_because or ""
    if not patch:
        return []
    told = [Emit(regarding=scale_target, reason="ScaleUpTakenBack", note=why, warning=True)] if why else []
    return [Patch(resource=JOB_RESOURCES[scale_target["kind"]], target=scale_target, body=patch), *told]


def _take_bounds(view: WorkerView, order: WorkloadSpec, job: JobReading) -> list[Command]:
    """In the job, and in the clusters that it has now."""
    if annotations.bounds(job.manifest) is None or not sets_other_bounds(order, job):
        return []
    kind, wanted = KINDS[view.key.kind], _bounds(order)
    targets = {found["metadata"]["uid"]: found for found in (*view.scale_targets, job.manifest)}
    return [
        Patch(resource=JOB_RESOURCES[target["kind"]], target=target, body=patch)
        for target in targets.values()
        if (patch := kind.set_bounds(target, wanted))
    ]


def _bounds(order: WorkloadSpec) -> Manifest:
    return KINDS[order.job.kind].bounds(order.manifest)
