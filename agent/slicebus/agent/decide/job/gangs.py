"""Makes the objects that a job's scheduler backend needs before the job's first pod starts.

The objects are owned by the worker's job and go with it. An object is written again only where what the backend asks
for has changed: its annotation has what that was last time. An object that cannot be changed is replaced when no pods
are left that use it: those of the job, or of one pod set, which its label names.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from slicebus.agent.decide.job.room import patch_job
from slicebus.agent.decide.pods.next_pods import next_pods
from slicebus.agent.state import annotations
from slicebus.agent.state.schedulers import RefusedObject
from slicebus.agent.state.tables import AgentTable
from slicebus.agent.state.views import WorkerJobReading, WorkerView
from slicebus.decisions.commands import Command, Create, Forget, Patch, Remember, Remove, Requeue
from slicebus.kube.resources import Resource
from slicebus.proto.errors import ConflictError
from slicebus.proto.messages import Counts, Manifest
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.conditions import has_finding, with_findings
from slicebus.slices.api.fingerprints import content_hash
from slicebus.slices.jobs import KINDS
from slicebus.slices.jobs.base import Problem
from slicebus.slices.schedulers import Gang, SchedulerBackend, SchedulingObject, Synced
from slicebus.slices.workload.elasticity import Elasticity, in_whole
from slicebus.slices.workload.ungate import pod_set_of

_TRIED_AGAIN_S = 30.0
"""After this time an object that the API server refused is tried again: a queue may be open by then."""


class _Scheduled(NamedTuple):
    """A job with its backend and what that asks for."""

    job: WorkerJobReading
    backend: SchedulerBackend
    synced: Synced


def reconcile(view: WorkerView, *, now: str | None, now_s: float) -> list[Command]:
    """The next commands that make or change the objects; empty where they are as asked for, or have to be removed
    first. `now` is RFC 3339, `now_s` the process' own time."""
    job = view.reading
    if job is None or job.is_going or not (name := annotations.scheduler(job.manifest)):
        return []
    minimum = _minimum(view, job) if job.runs else {}
    if minimum != annotations.gang(job.manifest) and (job.runs or not view.pod_sets):
        text = annotations.encode_counts(minimum) if minimum else None
        return patch_job(job.manifest, {"metadata": {"annotations": {api_names.GANG_ANNOTATION: text}}})
    scheduled, refused = _scheduled(view), view.refused_object
    if scheduled is None or not job.runs or scheduled.synced.blocked or view.schedulers.why_unusable(name):
        return []
    if refused is not None and now_s - refused.since_s < _TRIED_AGAIN_S:
        return []
    commands = next(
        filter(None, (_make(view, job, wanted, now=now, now_s=now_s) for wanted in scheduled.synced.objects)), []
    )
    return [*([Forget(table=AgentTable.REFUSED_OBJECTS, key=view.key)] if refused else []), *commands]


def removes(view: WorkerView) -> list[Command]:
    """Removes the objects that no pods use and that the job no longer needs: all of a job that does not run, and those
    that have to be replaced.

    The newest is removed first. A removed object counts as present until the watch says that it has gone.
    """
    job = view.reading
    if job is None or job.is_going or not (name := annotations.scheduler(job.manifest)):
        return []
    if view.schedulers.why_unusable(name):
        return []
    scheduled = _scheduled(view)
    wanted = scheduled.synced.objects if scheduled is not None and job.runs else ()
    stays = {(item.resource, item.name): _hash(item) for item in wanted}
    can_change = {(item.resource, item.name) for item in wanted if not item.is_fixed}

    def goes(resource: Resource, target: Manifest) -> bool:
        if _is_going(target) or _is_used(view, pod_set_of(target)):
            return False
        key = resource, target["metadata"]["name"]
        is_same = annotations.annotation(target, api_names.SPEC_HASH_ANNOTATION) == stays.get(key)
        return key not in stays or not (is_same or key in can_change)

    present = view.schedulers.made_for(job.manifest)
    return [
        Remove(resource=resource, target=target) for resource, target in reversed([*present]) if goes(resource, target)
    ]


def ensure_none_left(view: WorkerView) -> None:
    """Raises ConflictError while objects of a suspended job are left: a PodGroup that is being deleted would stay for
    the first pod that names it, with the minimum of the earlier gang."""
    if (left := left_object(view)) is not None:
        raise ConflictError(f"{left['kind']} {left['metadata']['name']} of the gang before is still there")


def left_object(view: WorkerView) -> Manifest | None:
    """An object of a suspended job that is left; None when all have gone."""
    job = view.reading
    made = view.schedulers.made_for(job.manifest) if job is not None else iter(())
    return next((target for _, target in made), None)


def allowed(view: WorkerView) -> list[Manifest]:
    """The next pods that their scheduler backend lets start."""
    pods = next_pods(view)
    if view.reading is None or not annotations.scheduler(view.reading.manifest):
        return pods
    scheduled = _scheduled(view)
    if scheduled is None or _blocks(view) is not None or not _are_there(view, scheduled):
        return []
    starts = scheduled.synced.starts
    return [pod for pod in pods if starts is None or pod["metadata"]["name"] in starts]


def problem(view: WorkerView) -> Problem | None:
    """Why granted pods of a job do not start; None where nothing but time is needed."""
    if blocks := _blocks(view):
        return blocks
    job = view.reading
    scheduled = _scheduled(view) if job is not None and job.runs and annotations.scheduler(job.manifest) else None
    return scheduled.synced.stuck if scheduled is not None else None


def _blocks(view: WorkerView) -> Problem | None:
    """Why no pod is let start; None where none waits."""
    job = view.reading
    if job is None or not (name := annotations.scheduler(job.manifest)) or not (pods := next_pods(view)):
        return None
    scheduled = _scheduled(view)
    if scheduled is None:
        return Problem(
            "SchedulerNotEnabled", f"no profile of this cluster's agent enables the scheduler backend {name}"
        )
    if reason := view.schedulers.why_unusable(name):
        return Problem("SchedulerUnusable", f"the scheduler backend {name} cannot be used: {reason}")
    if scheduled.synced.blocked is not None:
        return scheduled.synced.blocked
    if view.refused_object is not None:
        return Problem("SchedulingObjectRefused", view.refused_object.message)
    return _taken(view, scheduled) or _pruned(scheduled, pods)


def reported(view: WorkerView) -> Counts | UnsetType:
    """The least pods by pod set that the job's scheduler keeps together; UNSET for a job that is no gang, and where
    nothing is made for it."""
    job = view.reading
    if job is None or not job.runs or not annotations.scheduler(job.manifest):
        return UNSET
    scheduled = _scheduled(view)
    return scheduled.synced.minimum if scheduled is not None and scheduled.synced.minimum is not None else UNSET


def requeue_after(view: WorkerView, *, now_s: float) -> list[Command]:
    """Requeue the job for when a refused object is to be tried again."""
    refused, job = view.refused_object, view.reading
    left_s = _TRIED_AGAIN_S - (now_s - refused.since_s) if refused is not None else 0.0
    return [Requeue(job=job.ref, delay_s=left_s)] if job is not None and left_s > 0 else []


def _scheduled(view: WorkerView) -> _Scheduled | None:
    job = view.reading
    backend = view.schedulers.backend(annotations.scheduler(job.manifest)) if job is not None else None
    if job is None or backend is None:
        return None
    namespace = view.key.namespace
    gang = Gang(
        job=job.manifest,
        minimum=annotations.gang(job.manifest),
        granted=job.granted,
        pods=_pods(view),
        unplaced=frozenset(_unplaced(view)),
        find=lambda resource, name: view.schedulers.find(resource, name, namespace),
    )
    return _Scheduled(job, backend, backend.sync(gang) if gang.minimum else Synced())


def _minimum(view: WorkerView, job: WorkerJobReading) -> Counts:
    """The pods of each pod set that start together: what was granted when it began to have pods, or the least size that
    the job names, or less by now."""
    known, late = annotations.gang(job.manifest), KINDS[view.key.kind].late_pod_sets(job.manifest)
    granted = {name: count for name, count in job.granted.items() if count and name not in late}
    least = _least(view, job)
    return {name: min(known.get(name) or least.get(name, count), count) for name, count in granted.items()}


def _least(view: WorkerView, job: WorkerJobReading) -> Counts:
    """The least size of each pod set that the job names one for: at least a pod, in whole replicas."""
    copy = view.copy_of(job.slice)
    if copy is None:
        return {}
    sizes = {pod_set["name"]: pod_set["count"] for pod_set in copy["spec"]["podSets"]}
    said = Elasticity.from_annotations(copy["metadata"].get("annotations") or {}, sizes).least
    steps = {name: KINDS[view.key.kind].step(job.manifest, name) for name in said}
    return {name: in_whole(max(count, 1), steps[name]) for name, count in said.items()}


def _pods(view: WorkerView) -> dict[str, tuple[str, ...]]:
    names_of: dict[str, list[str]] = {
        name: [pod.name for pod in members.running if not pod.is_terminating] for name, members in view.pod_sets.items()
    }
    for pod in next_pods(view):
        names_of.setdefault(pod_set_of(pod), []).append(pod["metadata"]["name"])
    return {name: tuple(sorted(names)) for name, names in names_of.items()}


def _unplaced(view: WorkerView) -> Iterator[str]:
    for name, members in view.pod_sets.items():
        if any(not pod.is_terminating and not pod.manifest["spec"].get("nodeName") for pod in members.running):
            yield name


def _make(
    view: WorkerView, job: WorkerJobReading, wanted: SchedulingObject, *, now: str | None, now_s: float
) -> list[Command]:
    """The next command for one object; empty where it is as it should be."""
    present = view.schedulers.find(wanted.resource, wanted.name, view.key.namespace)
    manifest = _manifest(view, job, wanted)
    refused = Remember(table=AgentTable.REFUSED_OBJECTS, key=view.key, value=RefusedObject(now_s))
    if present is None:
        return [Create(resource=wanted.resource, manifest=manifest, if_refused=refused)]
    if not _is_made_for(present, job) or _is_going(present):
        return []
    if annotations.annotation(present, api_names.SPEC_HASH_ANNOTATION) != _hash(wanted):
        if wanted.is_fixed:
            return []
        body = {
            "metadata": {name: manifest["metadata"][name] for name in ("labels", "annotations")},
            "spec": wanted.spec,
        }
        return [Patch(resource=wanted.resource, target=present, body=body, if_refused=refused)]
    if now is None or all(has_finding(present, condition) for condition in wanted.conditions):
        return []
    others = {name: value for name, value in wanted.status.items() if name not in present.get("status", {})}
    body = {"status": others | {"conditions": with_findings(present, *wanted.conditions, now=now)}}
    return [Patch(resource=wanted.resource, target=present, body=body, subresource="status", if_refused=refused)]


def _manifest(view: WorkerView, job: WorkerJobReading, wanted: SchedulingObject) -> Manifest:
    metadata = job.manifest["metadata"]
    owner = {
        "apiVersion": job.manifest["apiVersion"],
        "kind": job.manifest["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }
    marks = {
        api_names.JOB_ANNOTATION: f"{view.key.kind}/{view.key.name}",
        api_names.JOB_UID_ANNOTATION: metadata["uid"],
        api_names.SPEC_HASH_ANNOTATION: _hash(wanted),
    }
    pod_set = {kueue.POD_SET_LABEL: wanted.pod_set} if wanted.pod_set else {}
    return {
        "apiVersion": wanted.resource.api_version,
        "kind": wanted.resource.kind,
        "metadata": {
            "name": wanted.name,
            "namespace": view.key.namespace,
            "labels": wanted.labels | pod_set | {api_names.ORIGIN_LABEL: api_names.ORIGIN},
            "annotations": wanted.annotations | marks,
            "ownerReferences": [owner],
        },
        "spec": wanted.spec,
    }


def _are_there(view: WorkerView, scheduled: _Scheduled) -> bool:
    """Whether every object is there, as it was last asked for, and every pod that has to start with others."""
    for wanted in scheduled.synced.objects:
        present = view.schedulers.find(wanted.resource, wanted.name, view.key.namespace)
        if present is None or not _is_made_for(present, scheduled.job):
            return False
        # Kubernetes keeps what pods use, whoever has deleted it: a wait for another one would last for ever.
        stays = wanted.is_fixed and _is_used(view, wanted.pod_set)
        is_same = annotations.annotation(present, api_names.SPEC_HASH_ANNOTATION) == _hash(wanted)
        if not stays and (_is_going(present) or not is_same):
            return False
    return all(_staying(view, name) >= count for name, count in scheduled.synced.together.items())


def _staying(view: WorkerView, pod_set: str) -> int:
    members = view.pod_sets.get(pod_set)
    return sum(not pod.is_terminating for pod in (*members.gated, *members.running)) if members is not None else 0


def _taken(view: WorkerView, scheduled: _Scheduled) -> Problem | None:
    for wanted in scheduled.synced.objects:
        present = view.schedulers.find(wanted.resource, wanted.name, view.key.namespace)
        if present is not None and not _is_going(present) and not _is_made_for(present, scheduled.job):
            label = f"{wanted.resource.kind} {wanted.name} ({wanted.resource.group})"
            return Problem("SchedulingObjectExists", f"{label} is there already and was not made for this job")
    return None


def _pruned(scheduled: _Scheduled, pods: Iterable[Manifest]) -> Problem | None:
    """A definition without a field of pods drops it from the template: such pods would start alone."""
    for pod in pods:
        if lost := scheduled.backend.prepare(scheduled.job.manifest, pod_set_of(pod)).lost_in(pod):
            name, kind = pod["metadata"]["name"], scheduled.job.manifest["kind"]
            by = f"the definition of {kind}, or its controller, drops it"
            return Problem("SchedulingPruned", f"pod {name} lacks {', '.join(lost)} of its template: {by}")
    return None


def _is_made_for(present: Manifest, job: WorkerJobReading) -> bool:
    uid: str = job.manifest["metadata"]["uid"]
    return annotations.annotation(present, api_names.JOB_UID_ANNOTATION) == uid


def _is_used(view: WorkerView, pod_set: str) -> bool:
    """Whether pods are left that may use an object of a pod set, or of the job."""
    return pod_set in view.pod_sets if pod_set else bool(view.pod_sets)


def _is_going(target: Manifest) -> bool:
    return "deletionTimestamp" in target["metadata"]


def _hash(wanted: SchedulingObject) -> str:
    return content_hash(msgspec.to_builtins((wanted.spec, wanted.labels, wanted.annotations)))
