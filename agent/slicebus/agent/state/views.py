"""The view of one job on the worker: everything that a decision about it may read."""

from collections import Counter
from collections.abc import Mapping
from typing import Self

import msgspec
from msgspec import UNSET, UnsetType
from propcache.api import cached_property

from slicebus.agent.state import annotations
from slicebus.agent.state.edited_templates import EditedTemplates
from slicebus.agent.state.policy import Policy
from slicebus.agent.state.reclaim import PendingReclaim
from slicebus.agent.state.schedulers import RefusedObject, Schedulers
from slicebus.agent.state.status_bounds import bounded, fitting
from slicebus.kube.resources import GONE
from slicebus.proto.messages import (
    MOST_COUNT,
    Counts,
    JobPhase,
    JobRef,
    Manifest,
    PodProblem,
    PodSetStatus,
    RequestKey,
    Status,
    Waits,
)
from slicebus.slices.api import api_names
from slicebus.slices.jobs import KINDS
from slicebus.slices.jobs.base import Outcome
from slicebus.slices.jobs.suspension import is_suspended
from slicebus.slices.workload.ungate import Pod, PodSets, by_pod_set


class JobKey(msgspec.Struct, frozen=True, order=True):
    """The kind, namespace and name of a job on the worker. Successive jobs of the manager may share it."""

    kind: str
    namespace: str
    name: str

    @classmethod
    def of(cls, job: JobRef) -> Self:
        """The key of the worker's copy of a manager's job."""
        return cls(job.kind, job.namespace, job.name)

    def __str__(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}"


class Tombstone(msgspec.Struct, frozen=True):
    """The end of one job of the manager."""

    job: JobRef
    version: int
    at_s: int
    """Unix time."""


class WorkerJobReading(msgspec.Struct, frozen=True):
    """The content of one version of a job that an agent has created."""

    manifest: Manifest
    ref: JobRef
    """The manager's job that it is the copy of."""
    slice: str
    """The slice that its annotation names; empty for none."""
    version: int
    """The applied spec version."""
    granted: Counts
    requested: annotations.PendingRequests | None
    is_suspended: bool
    """Whether the manager has suspended it."""
    is_going: bool
    outcome: Outcome
    reclaim: PendingReclaim | None = None
    """The notice that runs for it."""
    earlier_words: tuple[annotations.Word, ...] = ()
    """The manager's words before its last one that it has not reported, oldest first."""

    @classmethod
    def from_manifest(cls, manifest: Manifest) -> Self | None:
        """The content of a job; None for one that no agent has created."""
        if not annotations.is_ours(manifest):
            return None
        return cls(
            manifest,
            ref=annotations.reference(manifest),
            slice=annotations.slice_of(manifest),
            version=annotations.spec_version(manifest),
            granted=annotations.granted(manifest),
            requested=annotations.PendingRequests.from_job(manifest),
            is_suspended=annotations.is_suspended(manifest),
            is_going="deletionTimestamp" in manifest["metadata"],
            outcome=KINDS[manifest["kind"]].outcome(manifest),
            reclaim=PendingReclaim.from_job(manifest),
            earlier_words=annotations.earlier_words(manifest),
        )

    def is_of(self, job: JobRef) -> bool:
        """Whether it was made for this job of the manager."""
        return self.ref.uid == job.uid

    @property
    def last_word(self) -> annotations.Word | None:
        """The manager's word that has set its size; None where something else has."""
        id = annotations.annotation(self.manifest, api_names.FOLLOWS_ANNOTATION)
        size = annotations.baseline(self.manifest)
        return annotations.Word(id, size) if id and size is not None else None

    @property
    def runs(self) -> bool:
        """Whether it is neither being deleted, nor suspended, nor ended."""
        is_halted = self.is_going or self.is_suspended or is_suspended(self.manifest)
        return not is_halted and self.outcome.phase is JobPhase.RUNNING

    @property
    def startable(self) -> Counts:
        """The pods by pod set that may be started: what is granted, without what a notice says that it loses."""
        return annotations.lowered(self.granted, self.reclaim.to) if self.reclaim is not None else self.granted

    def report(
        self,
        pods: Mapping[str, PodSetStatus] = {},
        *,
        waits: Waits | UnsetType = UNSET,
        gang: Counts | UnsetType = UNSET,
    ) -> Status:
        """The report on the job's state, with its pods by pod set."""
        status = Status(
            job=self.ref,
            workload=self.slice,
            spec_version=self.version,
            phase=self.outcome.phase,
            message=self.outcome.message,
            job_status=fitting(self.manifest.get("status", {})),
            pods=dict(pods),
            waits=waits,
            gang=gang,
        )
        return bounded(status)


class Withdrawn(msgspec.Struct, frozen=True):
    """A request that Ray's autoscaler took back while it waited."""

    size: Counts
    """What it asks for."""
    instead_of: Counts
    """The grant when it was taken back."""
    since_s: float
    """In the process' own time."""
    stands: bool = True
    """Whether it is still the size to ask for."""


class Finishing(msgspec.Struct, frozen=True):
    """Pods of a job have ended for good, and the manager is to be told of it."""

    since_s: float
    """In the process' own time."""
    settled: bool = False
    """Whether it is time to tell the manager."""


class PodsRefusal(msgspec.Struct, frozen=True):
    """Says why a job lacks pods, by the Events of its controllers. Without a reason they say nothing."""

    reason: str = ""
    """One of `REFUSED_THERE`."""
    text: str = ""


class PodSetProblem(msgspec.Struct, frozen=True):
    """Why pods of one pod set do not run, as this process has seen it."""

    problem: PodProblem
    said_since: str
    """Since when in these words; RFC 3339."""


class WorkerView(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One job with all objects that belong to it. Manifests are read-only."""

    key: JobKey
    job: Manifest | None
    """The job that has the name, ours or not."""
    reading: WorkerJobReading | None = None
    """The content of `job`, read once for each version; None where the job is not ours."""
    scale_target: Manifest | None = None
    """The object whose spec has the counts; None while a RayJob has no cluster yet."""
    beside: tuple[Manifest, ...] = ()
    """Further objects whose counts are added: the cluster that a RayService is being upgraded to."""
    copies: tuple[Manifest, ...] = ()
    """Workloads that the agent has created for the job."""
    pods: tuple[Pod, ...] = ()
    """The pods of the job; of a job that has gone those that carry its name."""
    unanswered: tuple[Pod, ...] = ()
    """Pods that were to be ungated, with an unknown result, as they were before. In `pods` they have no gate."""
    left_requests: Mapping[str, annotations.PendingRequests] = {}
    """The requests without an answer of jobs that have gone from here, by the UID of the manager's job."""
    unserved: Mapping[str, str] = {}
    """The kinds that the job needs and the API server does not serve, with the reason."""
    definition: str | None = None
    """The UID of the definition of the job's kind; GONE where there is none; None where it is not known."""
    policy: Policy = Policy()
    """What orders may make here."""
    namespace_labels: Mapping[str, str] | None = None
    """The labels of the job's namespace when they were last read; None where nobody read them, or it is missing."""
    published: RequestKey | None = None
    """The last request that the broker has confirmed to this process; it may not be on the job yet."""
    surplus_since: str | None = None
    """Since when this process knows that more pods run than are wanted; RFC 3339."""
    withdrawn: Withdrawn | None = None
    """A request that was taken back, as far as this process knows."""
    finishing: Finishing | None = None
    """Set where pods have ended for good since the last request, as far as this process knows."""
    refused_pods: PodsRefusal | None = None
    """Why pods are not made, by the Events of the job's controllers; None before they were read."""
    schedulers: Schedulers = Schedulers(unserved={}, forbidden={}, caches={})
    """The scheduler backends of the cluster, and the objects that they need."""
    refused_object: RefusedObject | None = None
    """An object for the job's scheduler backend that the API server refused, as far as this process knows."""
    refused_write: Waits | None = None
    """Why the API server refuses what the job needs; None while it does not."""
    pod_problems: Mapping[str, PodSetProblem] = {}
    """Why granted pods that are there do not run, by pod set; also before they had the time to start."""
    edited: EditedTemplates = {}
    """What pod templates have named since somebody edited them here."""

    @property
    def desired(self) -> Counts:
        """The size to ask for: that of the scale target, without the pods that have ended for good, unless a larger one
        was just taken back. Empty without a scale target.

        What ended pods give back is requested after a while, together.
        """
        if self.withdrawn is not None and self.withdrawn.stands:
            return self.withdrawn.size
        return self.left if self.finishing is not None and self.finishing.settled else self.told

    @property
    def left(self) -> Counts:
        """The size of the scale target without the pods that have ended for good."""
        ended = KINDS[self.key.kind].finished(self.reading.manifest) if self.reading is not None else {}
        return {name: count - ended.get(name, 0) for name, count in self.counts.items()} if ended else self.counts

    @property
    def told(self) -> Counts:
        """`left` with the ended pods that the manager was not told of: those since the last request, or all where none
        was made. Where they count in the job's size, another size since does not change how many it was told of."""
        counts, left, job = self.counts, self.left, self.reading
        if job is None or left == counts:
            return left
        known = job.requested.wanted if job.requested is not None else job.granted
        if job.requested is not None and KINDS[self.key.kind].ends_by_size(job.manifest):
            known = {name: count - job.requested.finished.get(name, 0) for name, count in counts.items()}
        return {name: min(count, max(left[name], known.get(name, 0))) for name, count in counts.items()}

    @property
    def counts(self) -> Counts:
        """The counts of the scale target and of the objects beside it; empty without one.

        During an upgrade, groups that only the old cluster has and that were granted nothing are left out: somebody had
        added them there, and has taken them back. They go with that cluster.
        """
        if self.reading is None:
            return {}
        kind, job, total = KINDS[self.key.kind], self.reading.manifest, Counter[str]()
        for target in self.scale_targets:
            total.update(kind.counts(job, target))
        if self.beside:
            known = self.reading.granted.keys() | kind.counts(job, job)
            return {name: min(count, MOST_COUNT) for name, count in total.items() if name in known}
        return dict(total)

    @property
    def scale_targets(self) -> tuple[Manifest, ...]:
        """The scale target and the objects beside it; none without one."""
        return (self.scale_target, *self.beside) if self.scale_target is not None else ()

    @cached_property
    def named_for_deletion(self) -> frozenset[str]:
        """The pods that the job's controller is told to delete."""
        kind = KINDS[self.key.kind]
        return frozenset().union(*map(kind.named_for_deletion, self.scale_targets))

    @property
    def finished(self) -> Counts:
        """The pods that `desired` leaves out, as they have ended for good."""
        desired = self.desired
        return {name: left for name, count in self.counts.items() if (left := count - desired.get(name, 0)) > 0}

    @cached_property
    def own_copies(self) -> tuple[Manifest, ...]:
        """The Workload copies of the very job that is there: those of an earlier one that had the name say nothing of
        it."""
        job = self.reading
        return tuple(copy for copy in self.copies if annotations.is_of(copy, job.ref)) if job is not None else ()

    def copy_of(self, slice: str) -> Manifest | None:
        """The Workload copy of a slice, by its name."""
        return next((copy for copy in self.copies if copy["metadata"]["name"] == slice), None)

    @property
    def is_hidden(self) -> bool:
        """Whether nobody can know if the job exists: the kind may not be read, or has other versions only."""
        return self.key.kind in self.unserved and self.definition != GONE

    @cached_property
    def pod_sets(self) -> PodSets:
        """The pods that have not ended, without those that clean up and those of strangers; also those that earlier
        jobs of this name left."""
        return by_pod_set(self.known_pods)

    @cached_property
    def own_pod_sets(self) -> PodSets:
        """`pod_sets` without the pods that an earlier job of this name has left: that one is charged for them.

        The label alone does not tell, as tenants may write it: a pod that belongs to one of the job's objects is its
        own whatever it says.
        """
        if self.reading is None:
            return self.pod_sets
        own, label = self.reading.ref.uid, api_names.MANAGER_UID_LABEL
        pods = [p for p in self.known_pods if p.labels.get(label, own) == own or p.owner_uid in self.own_uids]
        return self.pod_sets if len(pods) == len(self.known_pods) else by_pod_set(pods)

    @cached_property
    def known_pods(self) -> list[Pod]:
        """The pods of the job without those of strangers, also such as have ended or clean up."""
        return [pod for pod in self.pods if not self._is_strangers(pod)]

    @cached_property
    def own_uids(self) -> set[str]:
        """UIDs of the job's objects that may own pods."""
        return {target["metadata"]["uid"] for target in (*filter(None, [self.job]), *self.scale_targets)}

    def _is_strangers(self, pod: Pod) -> bool:
        """Whether somebody has made a pod that only looks like one of the job: it would be charged to it. A tenant may
        write any label but that of the manager's UID, and a definition may leave that one out. With another UID it is
        left by an earlier job of the name, or of a job of another kind whose template has the label that names this."""
        kind, uid = KINDS[self.key.kind], pod.labels.get(api_names.MANAGER_UID_LABEL)
        if pod.owner_uid in self.own_uids or (uid and (self.reading is None or uid == self.reading.ref.uid)):
            return False
        if pod.owner is None or kind.pod_owners is None:
            return uid is None and pod.owner is None
        earlier = {self.key.kind, kind.child_kind} if uid else set[str]()
        return pod.owner.kind not in kind.pod_owners | earlier

    @property
    def has_running_pods(self) -> bool:
        """Whether a pod of the job runs."""
        return any(members.running for members in self.own_pod_sets.values())

    @cached_property
    def running(self) -> set[str]:
        """UIDs of the manager's jobs with running pods under this name, whether the jobs are still there or not."""
        pods = (pod for members in self.pod_sets.values() for pod in members.running)
        return {uid for pod in pods if (uid := pod.labels.get(api_names.MANAGER_UID_LABEL))}
