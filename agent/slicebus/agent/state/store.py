"""The agent's caches, and the views of them that decisions are made from."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from slicebus.agent.state import annotations, owners
from slicebus.agent.state.annotations import PendingRequests
from slicebus.agent.state.departures import Departure
from slicebus.agent.state.edited_templates import EditedTemplates, joined, note_edit
from slicebus.agent.state.ended_jobs import EndedJobs
from slicebus.agent.state.left_requests import note_left
from slicebus.agent.state.policy import Policy
from slicebus.agent.state.schedulers import BY_JOB, RefusedObject, Schedulers, by_job
from slicebus.agent.state.settings import AgentDecisionSettings
from slicebus.agent.state.tables import AgentTable
from slicebus.agent.state.views import (
    Finishing,
    JobKey,
    PodSetProblem,
    PodsRefusal,
    Tombstone,
    Withdrawn,
    WorkerJobReading,
    WorkerView,
)
from slicebus.agent.state.watched import (
    BY_OWNER,
    MADE_FOR_JOBS,
    QUEUES,
    SCHEDULING_SELECTORS,
    SELECTORS,
    cache_for,
    keys_of_copy,
    pod_stands,
)
from slicebus.decisions.table import Table
from slicebus.kube.cache import Cache, Change
from slicebus.kube.readings import Readings
from slicebus.kube.resources import GONE, JOB_RESOURCES, NODES, PODS, WORKLOADS, Resource
from slicebus.proto.messages import JobRef, Manifest, RequestKey, Status, Waits
from slicebus.slices.api import api_names
from slicebus.slices.jobs import KINDS
from slicebus.slices.workload.ungate import Pod

POLICY = "policy"
"""The only key of the table of that name."""
_NO_FILE = Policy()


class AgentStore:
    """Everything that the agent decides by."""

    def __init__(self) -> None:
        self._caches = {resource: cache_for(resource) for resource in (*SELECTORS, *SCHEDULING_SELECTORS)}
        self.foreign_pods = Cache()
        """The pods that belong to no job of ours, slim. No decision reads them: they only take room."""
        self.settings = AgentDecisionSettings()
        """What decisions depend on beside objects and orders. `configure` changes it."""
        self._configured: Table[str, AgentDecisionSettings] = Table(str, AgentDecisionSettings)
        self.published: Table[JobKey, RequestKey] = Table(JobKey, RequestKey)
        """The last request on each job that the broker has confirmed to this process."""
        self.reported: Table[JobKey, tuple[Status, float]] = Table(JobKey, tuple[Status, float])
        """The last status of each job that was reported, and when, in the process' own time."""
        self.confirmed_suspended: Table[JobKey, tuple[str, int]] = Table(JobKey, tuple[str, int])
        """The suspended jobs of which this process has reported that no pod is left: the manager's UID, the version."""
        self.tombstones: Table[str, Tombstone] = Table(str, Tombstone)
        """The jobs of the manager that have ended here, by UID."""
        self._ended = EndedJobs(self.tombstones)
        self.ends_ordered: Table[str, int] = Table(str, int)
        """The version that has ended a job, by the UID of the manager's job, while its tombstone cannot be stored."""
        self.unreported: Table[str, bool] = Table(str, bool)
        """The UIDs of the jobs whose end has to be reported to the manager, again where it has asked again."""
        self.departed: Table[str, Departure] = Table(str, Departure)
        """The manager's jobs that were here, and of which only a Workload is left, by UID."""
        self.left_requests: Table[str, PendingRequests] = Table(str, PendingRequests)
        """The requests without an answer of jobs that have gone from here, by the UID of the manager's job."""
        self.unanswered: Table[str, str] = Table(str, str)
        """The pods that may have been let start or not, by UID, with the version at which that was asked for. The same
        request may come late, until the pod has another version."""
        self.unserved: Table[str, str] = Table(str, str)
        """The job kinds that the API server does not serve now, and why."""
        self.definitions: Table[str, str] = Table(str, str)
        """The UID of the definition of each custom job kind; empty when it has gone, and every job of it."""
        self.policy: Table[str, Policy] = Table(str, Policy)
        """The policy of this cluster, under `POLICY`; none before it is read."""
        self.namespaces: Table[str, dict[str, str]] = Table(str, dict[str, str])
        """The labels of the namespaces that the policy was asked about."""
        self.surplus: Table[JobKey, str] = Table(JobKey, str)
        """Since when more pods of a job run than are wanted, RFC 3339."""
        self.withdrawn: Table[JobKey, Withdrawn] = Table(JobKey, Withdrawn)
        """The requests that were taken back while they waited."""
        self.noticed: Table[JobKey, tuple[int, int]] = Table(JobKey, tuple[int, int])
        """Epoch and sequence of the newest notice of each job that says why it waits."""
        self.noticed_by: Table[JobKey, int] = Table(JobKey, int)
        """The shard of the manager that sent this notice, where that has not always been the first."""
        self.finishing: Table[JobKey, Finishing] = Table(JobKey, Finishing)
        """The jobs of which pods have ended for good since their last request."""
        self.refused_pods: Table[JobKey, PodsRefusal] = Table(JobKey, PodsRefusal)
        """Why pods of a job are not made, by the Events of its controllers."""
        self.unserved_objects: Table[str, str] = Table(str, str)
        """The resources of backends that the API server does not serve now, and why."""
        self.forbidden_schedulers: Table[str, str] = Table(str, str)
        """What the agent may not do for a backend, by its name."""
        self.refused_objects: Table[JobKey, RefusedObject] = Table(JobKey, RefusedObject)
        """The objects for scheduler backends that the API server refused."""
        self.refused_writes: Table[JobKey, Waits] = Table(JobKey, Waits)
        """Why the API server refuses what a job needs, until it takes it."""
        self.pod_problems: Table[JobKey, dict[str, PodSetProblem]] = Table(JobKey, dict[str, PodSetProblem])
        """Why granted pods of a job that are there do not run, by pod set."""
        self.edited: Table[str, EditedTemplates] = Table(str, EditedTemplates)
        """What edited pod templates of jobs and of their clusters have named, by UID."""
        self.schedulers = Schedulers(
            unserved=self.unserved_objects,
            forbidden=self.forbidden_schedulers,
            caches={resource: self._caches[resource] for resource in SCHEDULING_SELECTORS},
        )
        self.ordered: dict[JobKey, tuple[str, int]] = {}
        """The newest version of each job that was ordered from this process, with the UID of the manager's job."""
        kinds = JOB_RESOURCES.items()
        self._jobs = {kind: Readings(self._caches[of], WorkerJobReading.from_manifest) for kind, of in kinds}
        self._pods = Readings(self._caches[PODS], Pod.from_manifest)
        self._seen: WorkerView | None = None
        for cache in self._caches.values():
            cache.subscribe(self._forget_seen)
        for resource in JOB_RESOURCES.values():
            self._caches[resource].subscribe(self._note_departure)
            self._caches[resource].subscribe(self._note_left_requests)
            self._caches[resource].subscribe(self._note_edit)
        self._caches[WORKLOADS].subscribe(self._forget_departure)
        self._caches[PODS].subscribe(self._forget_unanswered)
        read: list[Table[Any, Any]] = [self.left_requests, self.unanswered, self.published, self.unserved]
        read += [self.definitions, self.policy, self.namespaces, self.surplus, self.withdrawn, self.finishing]
        read += [self.pod_problems, self.refused_pods, self.refused_objects, self.refused_writes, self.edited]
        for table in read:
            table.observe(self._forget_seen)
        self._configured.observe(self._take_settings)

    def configure(self, settings: AgentDecisionSettings) -> None:
        """Decide by these settings from now on. Call it before the first decision."""
        self._configured[AgentTable.SETTINGS] = settings  # The only key.

    def _take_settings(self, _: str, settings: AgentDecisionSettings) -> None:
        self.settings = settings
        self.schedulers.profiles = settings.profiles

    def caches(self) -> Iterator[tuple[Resource, Cache]]:
        """Each resource that is watched in any case, with its cache."""
        return ((resource, self._caches[resource]) for resource in SELECTORS)

    def decides_by(self) -> Iterator[tuple[Resource, Cache]]:
        """The caches that decisions are made from. Nodes are only counted for the heartbeat."""
        return ((resource, cache) for resource, cache in self._caches.items() if resource != NODES)

    def tables(self) -> Mapping[str, Table[Any, Any]]:
        """The tables beside the caches, by name."""
        return {
            AgentTable.PUBLISHED: self.published,
            AgentTable.REPORTED: self.reported,
            AgentTable.CONFIRMED_SUSPENDED: self.confirmed_suspended,
            AgentTable.TOMBSTONES: self.tombstones,
            AgentTable.ENDS_ORDERED: self.ends_ordered,
            AgentTable.UNREPORTED: self.unreported,
            AgentTable.DEPARTED: self.departed,
            AgentTable.LEFT_REQUESTS: self.left_requests,
            AgentTable.UNANSWERED: self.unanswered,
            AgentTable.UNSERVED: self.unserved,
            AgentTable.DEFINITIONS: self.definitions,
            AgentTable.POLICY: self.policy,
            AgentTable.NAMESPACES: self.namespaces,
            AgentTable.SURPLUS: self.surplus,
            AgentTable.WITHDRAWN: self.withdrawn,
            AgentTable.NOTICED: self.noticed,
            AgentTable.NOTICED_BY: self.noticed_by,
            AgentTable.FINISHING: self.finishing,
            AgentTable.REFUSED_PODS: self.refused_pods,
            AgentTable.SETTINGS: self._configured,
            AgentTable.UNSERVED_OBJECTS: self.unserved_objects,
            AgentTable.FORBIDDEN_SCHEDULERS: self.forbidden_schedulers,
            AgentTable.REFUSED_OBJECTS: self.refused_objects,
            AgentTable.REFUSED_WRITES: self.refused_writes,
            AgentTable.EDITED: self.edited,
            AgentTable.POD_PROBLEMS: self.pod_problems,
        }

    def is_foreign(self, resource: Resource, manifest: Manifest) -> bool:
        """Whether an object is a job that is not ours, and that no job of ours has made."""
        return resource.kind in JOB_RESOURCES and not any(owners.keys_of_job(manifest))

    def cache_of(self, resource: Resource) -> Cache | None:
        """The cache of a resource; None for one that is not watched."""
        return self._caches.get(resource)

    def view(self, key: JobKey) -> WorkerView:
        """Everything that belongs to one job. One reconcile makes several decisions, which get the same view while
        nothing has changed."""
        if self._seen is None or self._seen.key != key:
            self._seen = self._view(key)
        return self._seen

    def reading(self, key: JobKey) -> WorkerJobReading | None:
        """What is read of a job alone; None where it is not ours, or cannot be read."""
        return self._jobs[key.kind].values.get((key.namespace, key.name))

    def has_job(self, namespace: str, name: str) -> bool:
        """Whether a job of ours has this name, of any kind."""
        return any((namespace, name) in readings.values for readings in self._jobs.values())

    def _view(self, key: JobKey) -> WorkerView:
        job = self._job(key)
        pods = self._pods_of(key, job)
        targets = self._scale_targets(job) if job is not None else ()
        unanswered = tuple(filter(self._is_unanswered, pods)) if self.unanswered else ()
        if unanswered:
            pods = tuple(replace(pod, is_gated=False) if pod in unanswered else pod for pod in pods)
        return WorkerView(
            key=key,
            job=job,
            reading=self.reading(key),
            scale_target=targets[0] if targets else None,
            beside=targets[1:],
            copies=tuple(self._copies(key)),
            pods=pods,
            unanswered=unanswered,
            left_requests=self.left_requests,
            unserved=self._unserved_of(key.kind) if self.unserved else {},
            definition=self.definitions.get(key.kind),
            policy=self.policy.get(POLICY, _NO_FILE),
            namespace_labels=self.namespaces.get(key.namespace),
            published=self.published.get(key),
            surplus_since=self.surplus.get(key),
            withdrawn=self.withdrawn.get(key),
            finishing=self.finishing.get(key),
            refused_pods=self.refused_pods.get(key),
            schedulers=self.schedulers,
            refused_object=self.refused_objects.get(key),
            refused_write=self.refused_writes.get(key),
            pod_problems=self.pod_problems.get(key, {}),
            edited=self._edited(job, *targets) if self.edited else {},
        )

    def _edited(self, *jobs: Manifest | None) -> EditedTemplates:
        return joined(self.edited.get(job["metadata"]["uid"], {}) for job in jobs if job is not None)

    def _unserved_of(self, kind: str) -> dict[str, str]:
        kinds = (kind, KINDS[kind].child_kind)
        return {name: self.unserved[name] for name in kinds if name in self.unserved}

    def _is_unanswered(self, pod: Pod) -> bool:
        return self.unanswered.get(pod.manifest["metadata"]["uid"]) == _version(pod.manifest)

    def _copies(self, key: JobKey) -> list[Manifest]:
        return self._caches[WORKLOADS].by(BY_JOB, by_job(key.kind, key.namespace, key.name))

    def ended(self, key: JobKey) -> list[Tombstone]:
        """The ends of every job that had the name."""
        return self._ended.of(key)

    def holds(self, job: JobRef) -> bool:
        """Whether a Workload or a pod of the manager's job is here, whatever its kind. Walks over all of them."""
        has_copy = any(annotations.is_of(copy, job) for copy in self._caches[WORKLOADS].all())
        return has_copy or any(
            pod.labels.get(api_names.MANAGER_UID_LABEL) == job.uid for pod in self._pods.values.values()
        )

    def our_jobs(self) -> Iterator[JobKey]:
        """Every job that the agent has made."""
        for resource in JOB_RESOURCES.values():
            yield from (_key(job) for job in self._caches[resource].all() if annotations.is_ours(job))

    def keys(self) -> Iterator[JobKey]:
        """Every job that the agent has made, and those of which only Workload copies are left; some of them twice."""
        yield from self.our_jobs()
        for copy in self._caches[WORKLOADS].all():
            yield from keys_of_copy(copy)

    def behind(self) -> int:
        """How many jobs are not at the newest version that was ordered."""
        return sum(1 for key, order in self.ordered.items() if not self._is_at(key, order))

    def nodes(self) -> list[Manifest]:
        """The cluster's nodes."""
        return self._caches[NODES].all()

    @property
    def pods(self) -> Cache:
        """Every pod that is in a pod set, of our jobs or not."""
        return self._caches[PODS]

    def on_change(self, callback: Callable[[JobKey], None]) -> None:
        """Call back with every job that a change may concern."""

        def changed(
            keys: Callable[[Manifest], Iterable[JobKey]], *, unless: Callable[[Change], bool] = lambda _: False
        ) -> Callable[[Change], None]:
            def forward(change: Change) -> None:
                manifest = change.new or change.old
                for key in keys(manifest) if manifest and not unless(change) else ():
                    callback(key)

            return forward

        for resource in JOB_RESOURCES.values():
            self._caches[resource].subscribe(changed(owners.keys_of_job))
        for resource in (WORKLOADS, *MADE_FOR_JOBS):
            self._caches[resource].subscribe(changed(keys_of_copy))
        for resource in QUEUES:
            self._caches[resource].subscribe(changed(self._keys_held_up))
        self._caches[PODS].subscribe(changed(lambda pod: owners.keys_of_pod(pod, self._job), unless=pod_stands))

    def _forget_seen(self, *_: object) -> None:
        self._seen = None

    def _note_departure(self, change: Change) -> None:
        """Note how a job has gone without an order. One that is deleted right after it was made has no linked Workload
        yet, and of one that had ended nobody sends a Workload again that somebody has deleted."""
        job = WorkerJobReading.from_manifest(change.old) if change.old is not None and change.new is None else None
        if job is None:
            return
        if job.ref.uid in self.tombstones and not self._has_copy(job.ref):
            return  # It went by an order.
        departure, known = Departure.of(job, change.final), self.departed.get(job.ref.uid)
        if self.definitions.get(job.ref.kind) == GONE and departure.end is None:
            return  # It went with its definition.
        # A recording has the entry before the change that it came of, and of that not whether it was seen.
        if known is None or known.worker_uid != departure.worker_uid:
            self.departed[job.ref.uid] = departure

    def _has_copy(self, job: JobRef) -> bool:
        return any(annotations.is_of(copy, job) for copy in self._copies(JobKey.of(job)))

    def _note_edit(self, change: Change) -> None:
        if change.new is None or any(owners.keys_of_job(change.new)):
            note_edit(change, self.edited)

    def _note_left_requests(self, change: Change) -> None:
        note_left(change, self.left_requests)

    def _forget_departure(self, change: Change) -> None:
        """Forget how a job has gone when its copies go by an order. Where somebody else deletes them, it is still to be
        reported."""
        copy = change.old
        if copy is None or change.new is not None:
            return
        uid = annotations.annotation(copy, api_names.MANAGER_UID_ANNOTATION) or ""
        if uid in self.tombstones:
            self.departed.pop(uid, None)

    def _forget_unanswered(self, change: Change) -> None:
        pod = change.old
        if pod is not None and (change.new is None or _version(change.new) != _version(pod)):
            self.unanswered.pop(pod["metadata"]["uid"], None)

    def _is_at(self, key: JobKey, order: tuple[str, int]) -> bool:
        uid, version = order
        job = self._job(key)
        mine = job is not None and annotations.annotation(job, api_names.MANAGER_UID_ANNOTATION) == uid
        return job is not None and mine and annotations.spec_version(job) >= version

    def _scale_targets(self, job: Manifest) -> tuple[Manifest, ...]:
        kind = KINDS[job["kind"]]
        names = kind.children(job)
        if names is None:
            return (job,)
        targets = (self._job(JobKey(kind.child_kind, job["metadata"]["namespace"], name)) for name in names)
        return tuple(target for target in targets if target is not None)

    def _pods_of(self, key: JobKey, job: Manifest | None) -> tuple[Pod, ...]:
        named = job or {"kind": key.kind, "metadata": {"namespace": key.namespace, "name": key.name}, "spec": {}}
        pods = {
            pod: self._pods.values[pod]
            for selector in KINDS[key.kind].pod_selectors(named)
            for label, value in selector.items()
            for pod in self._caches[PODS].keyed_by(BY_OWNER, f"{key.namespace}/{label}={value}")
            if pod in self._pods.values
        }
        return tuple(pods.values())

    def _keys_held_up(self, _: Manifest) -> Iterator[JobKey]:
        """The jobs that may wait for a queue. Not all jobs: the status of a queue changes with every pod."""
        jobs = (job for resource in JOB_RESOURCES.values() for job in self._caches[resource].all())
        for job in filter(annotations.scheduler, jobs):
            if annotations.shows_held_up(job) or not any(self.schedulers.made_for(job)):
                yield _key(job)

    def _job(self, key: JobKey) -> Manifest | None:
        return self._caches[JOB_RESOURCES[key.kind]].get(key.namespace, key.name)


def _version(manifest: Manifest) -> str:
    return str(manifest["metadata"]["resourceVersion"])


def _key(job: Manifest) -> JobKey:
    return JobKey(job["kind"], job["metadata"]["namespace"], job["metadata"]["name"])
