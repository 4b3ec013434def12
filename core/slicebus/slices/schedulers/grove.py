"""Makes a PodGang of a job for Grove, from which Grove's own backends make what their scheduler needs.

The PodGang comes before the pods and says so (`Initialized` is False). It is initialized once, when all pods that are
granted are there and it names them; from then on it only gets other pods.
"""

from typing import Any

from slicebus.slices.api.conditions import Finding, conditions_of
from slicebus.slices.api.resource import Resource
from slicebus.slices.jobs.base import Problem
from slicebus.slices.schedulers.base import Gang, Profile, SchedulingObject, Synced, is_late, object_name
from slicebus.slices.schedulers.kube import kuberay_problems
from slicebus.slices.workload.pod_scheduling import PodScheduling

Manifest = dict[str, Any]

POD_GANGS = Resource("scheduler.grove.io", "v1alpha1", "podgangs", "PodGang")
_POD_GANG_LABEL = "grove.io/podgang"
_INITIALIZED = "Initialized"
_CREATION_PENDING = Finding(
    _INITIALIZED, False, "PodGangPodsCreationPending", "the pods that are granted are not all there yet"
)
_PODS_CREATED = Finding(_INITIALIZED, True, "PodGangPodsCreated", "the PodGang names every pod that is granted")
_FIRST_STATUS = {"phase": "Pending"}
"""The schema wants a phase; from then on it is the scheduler's."""


class Grove:
    """Grove starts pods when the PodGang that names them is initialized."""

    name = "grove"
    makes: tuple[Resource, ...] = (POD_GANGS,)
    reads: tuple[Resource, ...] = ()
    writes_status = True

    def __init__(self, profile: Profile) -> None:
        self._profile = profile

    def validate(self, job: Manifest) -> list[Problem]:
        """Jobs that KubeRay itself schedules as gangs are refused."""
        return kuberay_problems(job)

    def prepare(self, job: Manifest, pod_set: str) -> PodScheduling:
        """The label that names the job's PodGang."""
        label = {} if is_late(job, pod_set) else {_POD_GANG_LABEL: object_name(job)}
        return PodScheduling(scheduler_name=self._profile.scheduler_name, labels=label)

    def sync(self, gang: Gang) -> Synced:
        """The PodGang, the condition that says whether it is initialized, and the pods that may start."""
        present = gang.find(POD_GANGS, object_name(gang.job))
        named = _named(present)
        are_there = all(len(gang.pods.get(pod_set, ())) >= gang.granted.get(pod_set, 0) for pod_set in gang.minimum)
        was_initialized = present is not None and _is_initialized(present)
        # Whoever waits for it sees first that it names nobody yet.
        is_filled = was_initialized or (are_there and present is not None and _says_initialized(present))
        # What is named stays until there are others.
        pods = named | {name: starting for name in gang.minimum if is_filled and (starting := gang.pods.get(name, ()))}
        groups = [
            {
                "name": pod_set,
                "minReplicas": count,
                "podReferences": [
                    {"namespace": gang.job["metadata"]["namespace"], "name": name} for name in pods.get(pod_set, ())
                ],
            }
            for pod_set, count in gang.minimum.items()
        ]
        is_named = bool(named) and all(named.get(pod_set) for pod_set in gang.minimum)
        condition = _PODS_CREATED if was_initialized or (are_there and is_named) else _CREATION_PENDING
        pod_gang = SchedulingObject(
            resource=POD_GANGS,
            name=object_name(gang.job),
            spec={"podgroups": groups},
            conditions=(condition,),
            status=_FIRST_STATUS,
        )
        starts = {name for names in named.values() for name in names} if was_initialized else set[str]()
        late = {name for pod_set, names in gang.pods.items() if is_late(gang.job, pod_set) for name in names}
        return Synced(objects=(pod_gang,), minimum=gang.minimum, starts=frozenset(starts | late))


def _named(present: Manifest | None) -> dict[str, tuple[str, ...]]:
    """The pods that a PodGang names, by pod set; without pod sets of which it names none."""
    groups = present["spec"].get("podgroups", ()) if present is not None else ()
    named = {group["name"]: tuple(pod["name"] for pod in group.get("podReferences", ())) for group in groups}
    return {name: pods for name, pods in named.items() if pods}


def _is_initialized(present: Manifest) -> bool:
    return any(entry["type"] == _INITIALIZED and entry["status"] == "True" for entry in conditions_of(present))


def _says_initialized(present: Manifest) -> bool:
    return any(entry["type"] == _INITIALIZED for entry in conditions_of(present))
