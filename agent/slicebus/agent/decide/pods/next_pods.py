"""The pods of a job that are granted and wait for their start."""

from slicebus.agent.decide.pods.pod_fit import Fit
from slicebus.agent.state.views import WorkerView
from slicebus.proto.messages import Manifest
from slicebus.slices.jobs import KINDS
from slicebus.slices.workload.ungate import to_ungate


def next_pods(view: WorkerView) -> list[Manifest]:
    """The gated pods that may start by the grant, in order; none of a job that does not run. Where a notice runs,
    none takes the place of one that goes."""
    job, scale_target = view.reading, view.scale_target
    if job is None or scale_target is None or not job.runs:
        return []
    fit = Fit(view)
    kind, targets = KINDS[view.key.kind], {target["metadata"]["uid"]: target for target in view.scale_targets}
    return to_ungate(
        view.pod_sets,
        job.startable,
        owners=(job.manifest, *view.scale_targets),
        replica=kind.replica,
        replica_size=lambda pod_set, owner: kind.replica_size(targets.get(owner, scale_target), pod_set),
        named_for_deletion=about_to_go(view),
        fits=lambda pod: fit.misfit(pod) is None,
    )


def about_to_go(view: WorkerView) -> frozenset[str]:
    """The pods that the job's controller deletes, whatever is granted: those that it is told to, and those of a cluster
    that the job had before. KubeRay deletes that later, and makes its pods until then."""
    child_kind, targets = KINDS[view.key.kind].child_kind, {target["metadata"]["uid"] for target in view.scale_targets}
    abandoned = (
        pod.name
        for pod in view.pods
        if pod.owner is not None and pod.owner.kind == child_kind and pod.owner.uid not in targets
    )
    return view.named_for_deletion.union(abandoned)
