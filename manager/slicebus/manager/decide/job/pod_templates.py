"""Decides which slices take edited pod templates over, and which keep the old ones.

A slice is charged by its own pod sets, and a worker keeps the pods that it got. When somebody edits the templates, a
slice without a copy on a worker takes the new ones over, or ends where they are other pod sets. A job that runs keeps
its pods; where its kind takes edits over, only what they request. So do its next slices, or they would be charged for
pods that nobody runs. Where the edit gives the job other pod sets, the worker may still ask for another size of those
that it has.
"""

from collections.abc import Iterator

from slicebus.decisions.commands import Command, Patch
from slicebus.kube.resources import WORKLOADS
from slicebus.manager.decide.job import devices
from slicebus.manager.decide.manifests import annotation_patch
from slicebus.manager.state.annotations import annotation, as_copied
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Counts, Manifest
from slicebus.slices.api import api_names
from slicebus.slices.jobs import KINDS
from slicebus.slices.workload.chain import structural_message
from slicebus.slices.workload.workload import Slice


def take_over(view: JobView, job: Manifest) -> list[Command]:
    """Commands that give the job's present pods to slices without quota, while its worker holds nothing."""
    if not view.is_withdrawn or view.problems:
        return []
    return [
        Patch(resource=WORKLOADS, target=view.workload(slice), body=body)
        for slice in view.unfinished
        if slice.admission is None and (body := _pods_patch(slice, view, job))
    ]


def with_former_pod_sets(view: JobView) -> list[Slice]:
    """The slices that wait with pod sets that their job no longer has, while its worker holds nothing: with quota they
    would have it for pods that nobody makes."""
    if view.holder is not None or not view.is_withdrawn or view.problems or view.reading is None:
        return []
    return [slice for slice in view.unfinished if slice.counts.keys() != view.desired.own.keys()]


def refused(slice: Slice, view: JobView) -> str:
    """Why a running job does not get its edited pods; empty where they request the same as those of the slice.

    Where its kind takes edits over, the reason is KubeRay's, for edits that KubeRay would refuse.
    """
    own = view.desired.own if view.job is not None else slice.counts
    if own.keys() != slice.counts.keys():
        return structural_message(slice.counts, own)
    if names := " and ".join(sorted(_changed(slice, view))):
        return f"A job that runs keeps its pods: what {names} requests is changed when it is made anew"
    if names := " and ".join(view.resized_replicas):
        return f"A job that runs keeps its pods: how many {names} has in a replica is changed when it is made anew"
    takes_edits = view.job is not None and "fields" in KINDS[view.ref.kind].bounds(as_copied(view.job))
    return "; ".join(problem.message for problem in view.problems) if takes_edits else ""


def pod_sets(job: Manifest, view: JobView, *, counts: Counts) -> list[Manifest]:
    """The pod sets of a job's next slice, which `counts` names."""
    newest = next(map(view.workload, reversed(view.unfinished)), None)
    kept = {pod_set["name"]: pod_set for pod_set in newest["spec"]["podSets"]} if newest else {}
    present = {pod_set["name"]: pod_set for pod_set in KINDS[view.ref.kind].pod_sets(as_copied(job))}
    # In the order of the job; where it has others by now, in that of the slice.
    return [(present | kept)[name] | {"count": counts[name]} for name in (present | kept) if name in counts]


def _changed(slice: Slice, view: JobView) -> Iterator[str]:
    """The names of a slice's pod sets whose requests differ in the job."""
    requests = view.reading.requests if view.reading else {}
    for pod_set in slice.pod_sets:
        if pod_set.name in requests and requests[pod_set.name] != pod_set.requests:
            yield pod_set.name


def _pods_patch(slice: Slice, view: JobView, job: Manifest) -> Manifest:
    """The job's pod templates with the slice's counts, and what devices these claim; empty where nothing is different.
    A merge patch replaces the whole list."""
    is_changed = any(_changed(slice, view))
    if not (is_changed or view.device_resources):
        return {}
    workload = view.workload(slice)
    pod_sets = KINDS[view.ref.kind].pod_sets(as_copied(job))
    templates = {pod_set["name"]: {"template": pod_set["template"]} for pod_set in pod_sets}
    after = [one | templates.get(one["name"], {}) for one in workload["spec"]["podSets"]]
    claimed = annotation(workload, api_names.DEVICES_ANNOTATION)
    counted = devices.note(view, after) if view.device_resources else claimed
    if counted == claimed:
        return {"spec": {"podSets": after}} if is_changed else {}
    return {"spec": {"podSets": after}} | annotation_patch(api_names.DEVICES_ANNOTATION, counted)
