"""What the agent watches, and the caches that it keeps it in."""

from collections.abc import Iterator

from slicebus.agent.state import annotations, owners
from slicebus.agent.state.pod_shape import fitted_pod
from slicebus.agent.state.schedulers import BY_JOB, by_job
from slicebus.agent.state.views import JobKey
from slicebus.kube.cache import Cache, Change
from slicebus.kube.resources import JOB_RESOURCES, NODES, PODS, WORKLOADS, Resource
from slicebus.proto.messages import Manifest, is_job_name
from slicebus.slices.api import api_names, kueue
from slicebus.slices.jobs import fitting
from slicebus.slices.schedulers import every_resource
from slicebus.slices.workload.ungate import Pod

BY_OWNER = "owner"
"""The index of the pods by the labels of their owner."""
_OURS = f"{api_names.ORIGIN_LABEL}={api_names.ORIGIN}"

SELECTORS: dict[Resource, str | None] = {
    # What a job's own controller makes does not have our label.
    **{resource: None if owners.has_parents(kind) else _OURS for kind, resource in JOB_RESOURCES.items()},
    WORKLOADS: _OURS,
    PODS: kueue.POD_SET_LABEL,
    NODES: None,
}
"""The watched resources, each with its label selector."""
SCHEDULING_SELECTORS: dict[Resource, str | None] = {
    # Others make the queues, without our label.
    resource: _OURS if resource.namespaced else None
    for resource in every_resource()
}
"""The resources that are watched too where a profile enables a scheduler backend that needs them."""
MADE_FOR_JOBS = tuple(resource for resource in SCHEDULING_SELECTORS if resource.namespaced)
QUEUES = tuple(resource for resource in SCHEDULING_SELECTORS if not resource.namespaced)


def cache_for(resource: Resource) -> Cache:
    """An empty cache with the indexes that a resource has."""
    if resource == PODS:
        return Cache({BY_OWNER: owners.owner_labels}, fitting=fitted_pod)
    if resource == WORKLOADS or resource in MADE_FOR_JOBS:
        return Cache({BY_JOB: lambda copy: [by_job(key.kind, key.namespace, key.name) for key in keys_of_copy(copy)]})
    return Cache(fitting=fitting(resource.kind) if resource in JOB_RESOURCES.values() else None)


def keys_of_copy(copy: Manifest) -> Iterator[JobKey]:
    """The job that a Workload copy is for; none where somebody has made of its annotation what no job is called."""
    kind, _, name = (annotations.annotation(copy, api_names.JOB_ANNOTATION) or "").partition("/")
    if kind in JOB_RESOURCES and is_job_name(name):
        yield JobKey(kind, copy["metadata"]["namespace"], name)


def pod_stands(change: Change) -> bool:
    """Whether a pod has changed in nothing that a decision reads."""
    old, new = change.old, change.new
    return old is not None and new is not None and Pod.from_manifest(new).stands_as(Pod.from_manifest(old))
