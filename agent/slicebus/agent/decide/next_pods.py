"""The pods of a job that are granted and wait for their start."""

from slicebus.agent.state.views import WorkerView
from slicebus.proto.messages import Manifest
from slicebus.slices.jobs import KINDS
from slicebus.slices.ungate import to_ungate


def next_pods(view: WorkerView) -> list[Manifest]:
    """The gated pods that may start by the grant, in order; none of a job that does not run."""
    job, scale_target = view.reading, view.scale_target
    if job is None or scale_target is None or not job.runs:
        return []
    kind, targets = KINDS[view.key.kind], {target["metadata"]["uid"]: target for target in view.scale_targets}
    return to_ungate(
        view.pod_sets,
        job.granted,
        owners=(job.manifest, *view.scale_targets),
        replica_size=lambda pod_set, owner: kind.replica_size(targets.get(owner, scale_target), pod_set),
        named_for_deletion=view.named_for_deletion,
    )
