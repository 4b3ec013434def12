"""Tells users which fields of their objects are set and not honored, where slicebus admits.

Queues and flavors show it by a condition of their own. A job shows it on its Workloads, with an Event: its own status
is its worker's.
"""

from collections.abc import Iterable, Mapping, Sequence

from slicebus.decisions.commands import Command, Emit, Patch
from slicebus.kube.resources import COHORTS, WORKLOADS, Resource
from slicebus.manager.decide.job import size_bounds
from slicebus.manager.decide.manifests import findings_patch
from slicebus.manager.state.annotations import annotation
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Manifest
from slicebus.slices.api import api_names
from slicebus.slices.api.conditions import Finding
from slicebus.slices.api.honored import finding, unhonored
from slicebus.slices.api.selectors import problem_of_text


def findings(
    resource: Resource, manifest: Manifest, *, above: Iterable[Manifest] = (), more: Mapping[str, str] = {}
) -> list[Finding]:
    """The condition that an object lacks; none where it says enough. `above` are the Cohorts of a ClusterQueue, which
    have no conditions of their own. `more` is not honored either, and why."""
    found = {**unhonored(resource.kind, manifest), **more}
    for cohort in above:
        name = f"{COHORTS.kind} {cohort['metadata']['name']}"
        found |= {f"{name} {path}": instead for path, instead in unhonored(COHORTS.kind, cohort).items()}
    told = finding(manifest, found)
    return [told] if told is not None else []


def of_objects(resource: Resource, manifests: Sequence[Manifest], *, now: str) -> list[Command]:
    """The writes of these conditions onto objects whose status has nothing else."""
    return [
        Patch(resource=resource, target=manifest, body=findings_patch(manifest, told, now=now), subresource="status")
        for manifest in manifests
        for told in findings(resource, manifest)
    ]


def _selects(job: Manifest) -> dict[str, str]:
    """What is wrong with the cluster selector of a job that has a slice: it may have been edited since."""
    wrong = problem_of_text(annotation(job, api_names.CLUSTER_SELECTOR_ANNOTATION) or "")
    instead = f"no cluster takes the job when it starts next, as it is no label selector: {wrong}"
    return {f"metadata.annotations[{api_names.CLUSTER_SELECTOR_ANNOTATION}]": instead} if wrong else {}


def of_job(view: JobView, job: Manifest, *, now: str) -> list[Command]:
    """The writes of the conditions onto the job's Workloads that have not ended, and an Event on the job with the first
    that says something is not honored."""
    asked = (view.reading.unhonored if view.reading is not None else {}) | size_bounds.unheeded(view) | _selects(job)
    commands: list[Command] = []
    for workload in map(view.workload, view.unfinished):
        told = finding(workload, asked | unhonored(WORKLOADS.kind, workload))
        if told is None:
            continue
        body = findings_patch(workload, told, now=now)
        commands.append(Patch(resource=WORKLOADS, target=workload, body=body, subresource="status", only_shows=True))
        if not told.status:
            commands.append(Emit(regarding=job, reason=told.reason, note=told.message, warning=True))
    return commands
