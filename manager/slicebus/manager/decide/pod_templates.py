"""The pods that a job's slices were made for, and those that the job has now.

A slice is charged by its own pod sets, and a worker keeps the pods that it was given. When somebody edits them, a slice
of which nothing can run yet is made for the new pods. A job that runs keeps those that it has: so do its next slices,
or they would be charged for pods that nobody runs.
"""

from collections.abc import Iterator

from slicebus.decisions.commands import Command, Patch
from slicebus.kube.resources import WORKLOADS
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Counts, Manifest
from slicebus.slices.jobs import KINDS
from slicebus.slices.workload import Slice


def take_over(view: JobView, job: Manifest) -> list[Command]:
    """The pods that the job has now, for slices of which nothing can run yet."""
    if not view.is_withdrawn or KINDS[view.ref.kind].problems(job):
        return []
    return [
        Patch(resource=WORKLOADS, target=view.workload(slice), body=_pods_patch(view.workload(slice), view, job))
        for slice in view.unfinished
        if slice.admission is None and any(_changed(slice, view))
    ]


def refused(slice: Slice, view: JobView) -> str:
    """Why a job does not get the pods that it asks for now; empty where they request what those of the slice do."""
    names = " and ".join(sorted(_changed(slice, view)))
    return f"A job that runs keeps its pods: what {names} requests is changed when it is made anew" if names else ""


def pod_sets(job: Manifest, view: JobView, *, counts: Counts) -> list[Manifest]:
    """The pod sets of a job's next slice."""
    newest = next(map(view.workload, reversed(view.unfinished)), None)
    kept = {pod_set["name"]: pod_set for pod_set in newest["spec"]["podSets"]} if newest else {}
    return [
        kept.get(pod_set["name"], pod_set) | {"count": counts[pod_set["name"]]}
        for pod_set in KINDS[view.ref.kind].pod_sets(job)
    ]


def _changed(slice: Slice, view: JobView) -> Iterator[str]:
    """The pod sets of a slice that request something else in the job."""
    requests = view.reading.requests if view.reading else {}
    for pod_set in slice.pod_sets:
        if pod_set.name in requests and requests[pod_set.name] != pod_set.requests:
            yield pod_set.name


def _pods_patch(workload: Manifest, view: JobView, job: Manifest) -> Manifest:
    """The pods of the job, as many as the slice has. A merge patch replaces the whole list."""
    templates = {pod_set["name"]: {"template": pod_set["template"]} for pod_set in KINDS[view.ref.kind].pod_sets(job)}
    return {"spec": {"podSets": [one | templates.get(one["name"], {}) for one in workload["spec"]["podSets"]]}}
