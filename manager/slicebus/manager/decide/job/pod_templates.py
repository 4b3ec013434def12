"""Decides which slices take edited pod templates over, and which keep the old ones.

A slice is charged by its own pod sets, and a worker keeps the pods that it got. When somebody edits the templates, a
slice without a copy on a worker takes the new ones over, or ends where they are other pod sets. A job that runs keeps
its pods; where its kind takes edits over, only what they request. So do its next slices, or they would be charged for
pods that nobody runs. Where the edit gives the job other pod sets, the worker may still ask for another size of those
that it has.
"""

from collections.abc import Iterable, Iterator

import msgspec

from slicebus.decisions.commands import Command, Patch
from slicebus.kube.resources import WORKLOADS
from slicebus.manager.decide.job import devices
from slicebus.manager.state.annotations import annotation, as_copied
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Counts, Manifest
from slicebus.slices.api import api_names
from slicebus.slices.jobs import KINDS
from slicebus.slices.placement.suitability import node_choice
from slicebus.slices.workload.chain import structural_message
from slicebus.slices.workload.pod_fit import charged_beside
from slicebus.slices.workload.workload import Slice


def take_over(view: JobView, job: Manifest) -> list[Command]:
    """Commands that give the job's present pods, and how many a replica has, to slices without quota, while its worker
    holds nothing."""
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
    """Why a running job does not get its edited pods; empty where they are charged for the same as those of the slice.

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
    """The names of a slice's pod sets that differ in the job in what they are charged for."""
    reading = view.reading
    requests, beside = (reading.requests, reading.charged_beside) if reading is not None else ({}, {})
    for pod_set in slice.pod_sets:
        if (name := pod_set.name) in requests and (
            requests[name] != pod_set.requests or beside[name] != charged_beside(pod_set.template.get("spec") or {})
        ):
            yield name


def replica_sizes(view: JobView, job: Manifest, names: Iterable[str]) -> str | None:
    """The annotation of a slice that says by how many pods each of these pod sets is resized, where that is more than
    one: a part of them is of no use. None where each is resized by one."""
    kind, known = KINDS[job["kind"]], view.unfinished[-1].replica_sizes if view.unfinished else {}
    steps = {
        name: known.get(name, 1)
        if name not in view.desired.own or name in view.resized_replicas
        else kind.step(job, name)
        for name in names
    }
    sizes = {name: size for name, size in steps.items() if size > 1}
    return msgspec.json.encode(sizes, order="sorted").decode() if sizes else None


def _pods_patch(slice: Slice, view: JobView, job: Manifest) -> Manifest:
    """The job's pod templates with the slice's counts, what devices these claim, and the sizes of replicas; empty where
    nothing is different. A merge patch replaces the whole list."""
    is_changed, workload = any(_changed(slice, view)) or _has_other_nodes(slice, view), view.workload(slice)
    noted = {api_names.REPLICA_SIZES_ANNOTATION: replica_sizes(view, job, slice.counts)}
    body: Manifest = {}
    if is_changed or view.device_resources:
        pod_sets = KINDS[view.ref.kind].pod_sets(as_copied(job))
        templates = {pod_set["name"]: {"template": pod_set["template"]} for pod_set in pod_sets}
        after = [one | templates.get(one["name"], {}) for one in workload["spec"]["podSets"]]
        body = {"spec": {"podSets": after}} if is_changed else {}
        if view.device_resources:
            noted[api_names.DEVICES_ANNOTATION] = devices.note(view, after)
            is_counted_anew = noted[api_names.DEVICES_ANNOTATION] != annotation(workload, api_names.DEVICES_ANNOTATION)
            body = {"spec": {"podSets": after}} if is_counted_anew else body
    changes = {name: value for name, value in noted.items() if annotation(workload, name) != value}
    return body | ({"metadata": {"annotations": changes}} if changes else {})


def _has_other_nodes(slice: Slice, view: JobView) -> bool:
    """Whether the job's pods choose other nodes by now: a flavor is assigned by what the slice says of them."""
    nodes = view.reading.nodes if view.reading else {}
    return any(
        pod_set.name in nodes and nodes[pod_set.name] != node_choice(pod_set.template.get("spec") or {})
        for pod_set in slice.pod_sets
    )
