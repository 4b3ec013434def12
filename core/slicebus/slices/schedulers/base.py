"""Defines the interface of a scheduler backend."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from slicebus.proto.messages import Counts
from slicebus.slices.api.conditions import Finding
from slicebus.slices.api.fingerprints import content_hash
from slicebus.slices.api.resource import Resource
from slicebus.slices.jobs import KINDS
from slicebus.slices.jobs.base import Problem
from slicebus.slices.workload.pod_scheduling import PodScheduling

Manifest = dict[str, Any]

_LABEL_VALUE_LENGTH = 63
_HASH_LENGTH = 8


class Profile(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Holds an agent's settings for one backend. Jobs that choose none get the agent's first profile."""

    name: str
    """The backend's name, by which jobs choose it."""
    scheduler_name: str = msgspec.field(default="", name="schedulerName")
    """The scheduler's name, where it has another one than usual."""
    queue: str = ""
    """The queue of jobs that name none, for backends with queues."""


class Gang(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's job that has quota, as a backend sees it. Manifests are read-only."""

    job: Manifest
    minimum: Counts
    """Pods by pod set that start together: those that were granted when the pod set began to have pods, or the least
    size that the job names, or fewer where fewer are granted now. Without pod sets that have none, and without late
    ones (`JobKind.late_pod_sets`). Never empty."""
    granted: Counts
    pods: Mapping[str, tuple[str, ...]]
    """The names of the pods that run, and of those that are next to start, by pod set, in order."""
    unplaced: frozenset[str] = frozenset()
    """The pod sets with pods that were let go and are on no node."""
    find: Callable[[Resource, str], Manifest | None]
    """The object of a resource with this name, in the job's namespace or of the cluster; None where there is none."""


class SchedulingObject(msgspec.Struct, frozen=True, kw_only=True):
    """An object that has to be there before pods start."""

    resource: Resource
    name: str
    spec: Manifest
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    pod_set: str = ""
    """The pod set whose pods use it; empty where those of the whole job do."""
    is_fixed: bool = False
    """Whether its spec cannot be changed. Such an object is replaced when no pod that uses it is left."""
    conditions: tuple[Finding, ...] = ()
    """Conditions of its status that the agent writes."""
    status: Manifest = {}
    """Other fields of its status, which the agent writes with the first conditions where nobody else has. A definition
    may require them."""


class Synced(msgspec.Struct, frozen=True, kw_only=True):
    """Says what has to be there for a gang."""

    objects: tuple[SchedulingObject, ...] = ()
    """In the order in which they are made."""
    minimum: Counts | None = None
    """The least pods by pod set that the scheduler keeps together; a pod set that is left out may lose all. None while
    nothing is made."""
    together: Counts = {}
    """The pods by pod set that have to be there before the first of them starts; empty where each starts by itself."""
    blocked: Problem | None = None
    """Why nothing can be made now, and no pod starts."""
    stuck: Problem | None = None
    """Why the scheduler cannot place pods that were let go. It holds up no other."""
    starts: frozenset[str] | None = None
    """The pods that may start as far as the backend is concerned, once the objects are there; None for all."""


class SchedulerBackend(Protocol):
    """One way of scheduling pods. Every method is a pure function.

    The agent makes the objects that `sync` asks for, owned by the worker's job, before it lets the first pod start. It
    writes to one only where what `sync` asks for has changed: never for a new status. They go with their owner.
    """

    name: str
    makes: tuple[Resource, ...]
    """The resources that the agent makes for it: they have to be served."""
    reads: tuple[Resource, ...]
    """The other resources that it reads."""
    writes_status: bool
    """Whether the agent writes the status of what it makes."""

    def validate(self, job: Manifest) -> list[Problem]:
        """Why it cannot schedule a job; empty where it can. `job` may be the manager's or the worker's."""

    def prepare(self, job: Manifest, pod_set: str) -> PodScheduling:
        """The fields that the pods of a pod set get in their template."""

    def sync(self, gang: Gang) -> Synced:
        """What has to be there before the gang's pods start."""


def is_late(job: Manifest, pod_set: str) -> bool:
    """Whether the pods of a pod set come only when others run: they are in no gang."""
    return pod_set in KINDS[job["kind"]].late_pod_sets(job)


def object_name(job: Manifest, pod_set: str = "") -> str:
    """The name of an object for a job, or for one of its pod sets, which fits a label of the pods. No other job has the
    same, as pod sets have no dots."""
    name = f"{job['kind'].lower()}-{job['metadata']['name']}" + (f".{pod_set}" if pod_set else "")
    if len(name) <= _LABEL_VALUE_LENGTH:
        return name
    digest = content_hash(name)[:_HASH_LENGTH]
    return f"{name[: _LABEL_VALUE_LENGTH - _HASH_LENGTH - 1].rstrip('-.')}-{digest}"


def queue_of(job: Manifest, key: str, profile: Profile) -> str:
    """The queue that a job names by a label or an annotation, else that of the profile; empty for none."""
    metadata = job["metadata"]
    named: str | None = (metadata.get("labels") or {}).get(key) or (metadata.get("annotations") or {}).get(key)
    return named or profile.queue
