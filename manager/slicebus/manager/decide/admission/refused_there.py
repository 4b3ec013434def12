"""Shows a job that is not carried out where it has quota, and gives the quota of one back that runs nothing after a
while.

The worker's agent reports that the controller of a job refuses it, or that the API server lets nobody make its pods.
The condition `RUNS_CONDITION` of the job and its Workload says so, from the manager's own clock. A job that its
controller refuses as a whole has no pod. It is evicted, as one whose pods do not get ready, and tried again after a
pause, on another cluster if there is one. Pods that only cannot be made keep their quota: who mends that need not wait
again.
"""

from datetime import datetime, timedelta

from slicebus.decisions.commands import Command, Patch, Requeue
from slicebus.kube.resources import JOB_RESOURCES, WORKLOADS
from slicebus.manager.decide.admission import admission_writes
from slicebus.manager.decide.manifests import annotation_patch, findings_patch
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Manifest
from slicebus.slices.admission.cycle import Evict
from slicebus.slices.api import api_names
from slicebus.slices.api.conditions import Finding, conditions_of, has_finding
from slicebus.slices.api.kueue import EvictionReason
from slicebus.slices.jobs import KINDS
from slicebus.slices.workload import avoided_clusters
from slicebus.slices.workload.waiting import CONTROLLER_REFUSED, REFUSED_THERE, Waiting
from slicebus.slices.workload.workload import Slice

_MARGIN_S = 1.0
"""Times in conditions are whole seconds."""
_RUNS = "CarriedOut"


def reconcile(view: JobView, *, now: str) -> list[Command]:
    """The next step for a job that its controller has refused for too long; one write a pass."""
    holder, at = view.holder, _deadline(view)
    if holder is None or at is None or datetime.fromisoformat(now) < at:
        return []
    workload, cluster = view.workload(holder), view.place or ""
    if cluster not in avoided_clusters.avoided_now(workload):
        avoided = avoided_clusters.avoid(avoided_clusters.read(workload), cluster, now=datetime.fromisoformat(now))
        body = annotation_patch(api_names.AVOIDED_CLUSTERS_ANNOTATION, avoided_clusters.to_annotation(avoided))
        return [Patch(resource=WORKLOADS, target=workload, body=body)]
    told = holder.conditions[api_names.RUNS_CONDITION].get("message", "")
    evict = Evict(key=holder.key, reason=EvictionReason.REFUSED, message=f"On cluster {cluster}: {told}")
    return admission_writes.commands(view, holder, evict, now=now)


def requeue_after(view: JobView, *, now: str) -> list[Command]:
    """Reconcile the job when its time is over."""
    at = _deadline(view)
    if at is None:
        return []
    left_s = (at - datetime.fromisoformat(now)).total_seconds()
    return [Requeue(job=view.ref, delay_s=max(0.0, left_s) + _MARGIN_S)]


def show(view: JobView, job: Manifest, *, now: str) -> list[Command]:
    """Write the condition onto the Workloads that have not ended, and onto a job whose kind has conditions."""
    found = _finding(view, job)
    commands: list[Command] = []
    for slice in view.unfinished:
        if (told := _news(view.workload(slice), found if slice is view.holder else None)) is not None:
            body = findings_patch(_counted_anew(view.workload(slice), told), told, now=now)
            commands.append(Patch(resource=WORKLOADS, target=view.workload(slice), body=body, subresource="status"))
    if KINDS[view.ref.kind].refusal.conditions and (told := _news(job, found)) is not None:
        body = findings_patch(job, told, now=now)
        resource = JOB_RESOURCES[view.ref.kind]
        commands.append(Patch(resource=resource, target=job, body=body, subresource="status", only_shows=True))
    return commands


def _finding(view: JobView, job: Manifest) -> Finding | None:
    """What the worker has reported; before a report to this manager, what an earlier one has shown."""
    if view.holder is None:
        return None
    told = view.waits if view.waits is not None else Waiting.from_manifest(job)
    if told is None or told.reason not in REFUSED_THERE:
        return None
    return Finding(api_names.RUNS_CONDITION, False, told.reason, told.message)


def _news(manifest: Manifest, found: Finding | None) -> Finding | None:
    """The condition that an object lacks; an object that never said anything need not say that all is well."""
    if found is not None:
        return None if has_finding(manifest, found) else found
    said = next((entry for entry in conditions_of(manifest) if entry["type"] == api_names.RUNS_CONDITION), None)
    if said is None or said.get("status") == "True":
        return None
    return Finding(api_names.RUNS_CONDITION, True, _RUNS, "Nothing refuses the job any more")


def _counted_anew(workload: Manifest, told: Finding) -> Manifest:
    """The Workload without a refusal of another kind: by that a job keeps its quota, so it does not count towards the
    time of one that its controller refuses as a whole."""
    kept = [entry for entry in conditions_of(workload) if entry["type"] != told.type or entry["reason"] == told.reason]
    is_new = told.reason == CONTROLLER_REFUSED and len(kept) < len(conditions_of(workload))
    return workload | {"status": workload["status"] | {"conditions": kept}} if is_new else workload


def _deadline(view: JobView) -> datetime | None:
    """When a job that runs nothing gives its quota back; None for any other job."""
    holder = view.holder
    if holder is None or not view.refused_s or not _is_refused(holder):
        return None
    since = datetime.fromisoformat(holder.conditions[api_names.RUNS_CONDITION]["lastTransitionTime"])
    return since + timedelta(seconds=view.refused_s)


def _is_refused(slice: Slice) -> bool:
    condition = slice.conditions.get(api_names.RUNS_CONDITION, {})
    return (condition.get("status"), condition.get("reason")) == ("False", CONTROLLER_REFUSED)
