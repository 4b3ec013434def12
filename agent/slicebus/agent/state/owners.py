"""Finds the jobs that an object in the agent's cluster belongs to, by what the job kinds declare."""

from collections.abc import Callable, Iterator

from slicebus.agent.state import annotations
from slicebus.agent.state.views import JobKey
from slicebus.proto.messages import Manifest
from slicebus.slices.jobs import KINDS
from slicebus.slices.jobs.copies import without
from slicebus.slices.workload.redis_cleanup import cleans_redis

_KINDS_OF_LABEL = {
    label: tuple(name for name, kind in KINDS.items() if label in kind.owner_labels)
    for label in dict.fromkeys(label for kind in KINDS.values() for label in kind.owner_labels)
}
_PARENTS = {
    child: tuple(name for name, kind in KINDS.items() if kind.child_kind == child)
    for child in {kind.child_kind for kind in KINDS.values() if kind.child_kind}
}


def has_parents(kind: str) -> bool:
    """Whether jobs of another kind have scale targets of this one: their own controllers make those."""
    return kind in _PARENTS


def keys_of_job(job: Manifest) -> Iterator[JobKey]:
    """The job itself, when it is ours; for the scale target that another job made, that job."""
    namespace = job["metadata"]["namespace"]
    made_by = [(parent, KINDS[parent].made_by(job)) for parent in _PARENTS.get(job["kind"], ())]
    if keys := [JobKey(parent, namespace, name) for parent, name in made_by if name]:
        yield from keys
    elif annotations.is_ours(job):
        yield JobKey(job["kind"], namespace, job["metadata"]["name"])


def keys_of_pod(pod: Manifest, find: Callable[[JobKey], Manifest | None]) -> Iterator[JobKey]:
    """The jobs that a pod's labels name. `find` gives a job that is here.

    A label that several kinds use names the first that is here, or else all: a Job's label may be that of a RayJob's
    submitter.
    """
    labels = _naming_labels(pod)
    for label in filter(labels.__contains__, _KINDS_OF_LABEL):
        for kind in _KINDS_OF_LABEL[label]:
            key = JobKey(kind, pod["metadata"]["namespace"], labels[label])
            if (job := find(key)) is not None:
                yield from keys_of_job(job)
                break
            if not _names_parent(labels, kind):
                yield key


def owner_labels(pod: Manifest) -> Iterator[str]:
    """The labels of a pod that name its job, each as `namespace/label=value`."""
    labels = _naming_labels(pod)
    for label in filter(labels.__contains__, _KINDS_OF_LABEL):
        yield f"{pod['metadata']['namespace']}/{label}={labels[label]}"


def _naming_labels(pod: Manifest) -> dict[str, str]:
    """A pod's labels; of one that cleans up without those of its Job, which is KubeRay's own and no job of ours."""
    labels: dict[str, str] = pod["metadata"].get("labels") or {}
    return without(labels, KINDS["Job"].owner_labels) if cleans_redis(pod) else labels


def _names_parent(labels: dict[str, str], kind: str) -> bool:
    return any(label in labels for parent in _PARENTS.get(kind, ()) for label in KINDS[parent].owner_labels)
