"""The input of decisions about one job: its cached objects, as values."""

from collections.abc import Mapping, Sequence
from typing import Self

import msgspec
from propcache.api import cached_property

from slicebus.bus.sizes import MESSAGE_BYTES
from slicebus.kube.cache import Key
from slicebus.manager.state.annotations import DesiredSize, SizeRequest, annotation, desired_size_of, size_requests_of
from slicebus.manager.state.job_reading import JobReading
from slicebus.manager.state.outbox import STOPPED, WITHDRAWN, Held, Outbox, OutboxState
from slicebus.manager.state.reclaims import ElasticRules, as_reclaimed, beside, told_s
from slicebus.manager.state.requirements import is_elastic, is_managed, queue_of
from slicebus.manager.state.unshown_end import UnshownEnd
from slicebus.proto.messages import ClusterName, Counts, JobRef, Manifest, PodProblem, Status, Waits
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.kueue import Condition
from slicebus.slices.jobs import KINDS, Outcome, Problem
from slicebus.slices.jobs.suspension import can_suspend, is_suspended
from slicebus.slices.workload import chain
from slicebus.slices.workload.workload import Slice, SliceKey


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """How long the pods of a job have to get ready, in seconds; None for no limit."""

    start_s: float | None = None
    """After the admission."""
    recovery_s: float | None = None
    """After they were ready."""
    scale_up_s: float | None = None
    """After the admission of a scale-up, which alone is taken back then; None: as `start_s`."""
    counts_from: str
    """RFC 3339: no time counts before."""
    connected_since: str | None = None
    """RFC 3339; None while the job's cluster is not connected."""


class ReportedPods(msgspec.Struct, frozen=True):
    """Why granted pods do not run, by the worker's last report."""

    spec_version: int
    """The version that the report is about: problems of an earlier run say nothing of the next one."""
    problems: dict[str, PodProblem]
    """By pod set."""


class JobView(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One job of the manager with everything that belongs to it. Manifests are read-only."""

    ref: JobRef
    reading: JobReading | None
    """The job, parsed once for each version; None when it is gone, or another job has its name."""
    workloads: dict[str, Manifest]
    """Every Workload of the job by name."""
    slices: tuple[Slice, ...]
    """The same Workloads, oldest first."""
    requests: Mapping[str, SizeRequest] = {}
    """The worker's last size request, as each Workload by its name has it."""
    outbox: Outbox | None = None
    """The newest dispatch of the job."""
    cluster: ClusterName | None
    """The cluster that has the job's copy, or shall have it. After an eviction it may differ from `place`."""
    flavors: dict[str, Manifest] = {}
    """ResourceFlavors by name."""
    priority_classes: dict[str, int] = {}
    """Values of the WorkloadPriorityClasses by name."""
    in_fleet: bool = True
    """Whether the WorkerCluster of `cluster` still exists."""
    deletes_held: bool = False
    """Whether the breaker of the cluster holds the job's delete."""
    given_up: bool = False
    """Whether `cluster` is given up: the job leaves it without its report."""
    left_copies: dict[ClusterName, int] = {}
    """The `left_copies` of the newest dispatch on clusters that are still in the fleet."""
    recalled: dict[ClusterName, int] = {}
    """The version of the last delete published to each of these clusters, since its agent last said hello."""
    published: int = 0
    """The newest version that this process has published since the worker's agent last said hello."""
    checks: frozenset[str] | None = None
    """The names of our AdmissionChecks, where a Kueue admits; there may be none any more. None where slicebus does. Who
    does not know the settings, as a command, tells it by the checks that are there."""
    reported: Status | None = None
    """The worker's last status of the job, where a Kueue admits."""
    last_notice: str = ""
    """The last notice of why a request waits (`waiting.notice_key`)."""
    device_resources: Mapping[str, str] = {}
    """The resource by which the devices of a DeviceClass are charged."""
    claim_templates: Mapping[Key, Manifest] = {}
    """The ResourceClaimTemplates of the job's namespace, by that and their names."""
    would_admit: Mapping[SliceKey, str] = {}
    """What would admit the slices that wait, in words, as far as it is known."""
    waits: Waits | None = None
    """Why the job does not have its size, where only its worker knows, by its last report."""
    reported_pods: ReportedPods | None = None
    """Why granted pods do not run there, by its last report; None where it has not said so to this process."""
    refused_request: Waits | None = None
    """The worker's request that the API server refuses to write, and why."""
    end_tried_at: str | None = None
    """When its end, which is still to be written onto it, was tried last, as RFC 3339."""
    message_bytes: int = MESSAGE_BYTES
    """The limit of a message."""
    readiness: Readiness | None = None
    """None where pods have no limit to get ready."""
    fixed_jobs: bool = False
    """Whether jobs without the elastic annotation are run too."""
    refused_s: float = 0.0
    """How long a job that its controller refuses keeps its quota; 0 for ever."""
    is_awaited: bool = True
    """Whether somebody still waits for the pods that it is told to lose."""
    gone: frozenset[str] = frozenset()
    """The UIDs of those whom it is told to lose pods for and who want no quota any more, nor have any."""
    allowed: ElasticRules = ElasticRules()
    """What its queue and the manager allow it of what it says of its size."""

    def notice_s(self, slice: Slice) -> float:
        """How long before it loses pods the job is told: what it asks for, as far as that is allowed."""
        return min(slice.elasticity.notice_s, self.allowed.notice_cap_s)

    def eviction_notice_s(self, slice: Slice) -> float:
        """The same for an evicted slice: what it was told, whatever it asks for now. Pods told before have time."""
        told = told_s(self.outbox)
        return told if told is not None else beside(slice.reclaimed, self.notice_s(slice))

    @property
    def beside_kueue(self) -> bool:
        """Whether a Kueue admits the job, rather than slicebus."""
        return self.checks is not None

    @property
    def job(self) -> Manifest | None:
        """The manifest; None where `reading` is."""
        return self.reading.manifest if self.reading is not None else None

    @cached_property
    def desired(self) -> DesiredSize:
        """The size that the job shall have. Only for a job that exists.

        Ray's autoscaler owns the size of a job that runs: replicas that were edited on the manager's job are for its
        next start. A Kueue reads them itself. A job of a fixed size keeps it while it has quota, but for pods that have
        ended. A worker's request for other pod sets than the job has by now ends with the slices that have those. A
        suspended copy keeps the number of hosts that it was made with.
        """
        edited = self._edited
        if not self.unfinished and edited.counts.keys() != edited.own.keys():
            return msgspec.structs.replace(edited, counts=edited.own)
        if self.is_fixed and self.holder is not None:
            ended, gone = edited.finished, self.holder.reclaimable
            left = {
                name: max(0, n - max(ended.get(name, 0), gone.get(name, 0))) for name, n in self.holder.counts.items()
            }
            return msgspec.structs.replace(edited, counts=left, kept=self.holder.counts)
        kept = self.kept_counts if self.holder is not None else self._counts_of_copy
        return msgspec.structs.replace(edited, counts=kept) if kept is not None else edited

    @cached_property
    def _edited(self) -> DesiredSize:
        """The size by the worker's last request, or by the job's spec where that was edited since, or by the note that
        pods were taken back."""
        assert self.reading is not None
        edited = desired_size_of(self.reading.manifest, self.reading.own_counts, self.requested)
        return as_reclaimed(edited, self.holder, self.outbox)

    @property
    def is_autoscaled(self) -> bool:
        """Whether Ray's autoscaler owns the size where the job runs: as its worker's copy was made, whatever the spec
        says by now."""
        noted = self.outbox.record.autoscaled if self.outbox is not None else msgspec.UNSET
        if noted is not msgspec.UNSET:
            return noted
        return self.reading is not None and self.reading.is_autoscaled

    @cached_property
    def keeper(self) -> Slice | None:
        """The slice whose Workload has the worker's newest size request; of several the one that lasts longest.

        Of two with one revision the later message counts: a manager that stood still may have made a slice late.
        """

        def order(slice: Slice) -> tuple[int | bool, ...]:
            request, lasts = self.requests[slice.name], not (slice.finished or slice.deleting)
            return request.revision, request.epoch, request.sequence, lasts, slice == self.holder

        noted = [slice for slice in self.slices if slice.name in self.requests]
        return max(noted, key=order, default=None)

    @property
    def requested(self) -> SizeRequest | None:
        """The worker's newest size request.

        Before a Workload has one, the job's own annotation only says which messages are late. Where an earlier version
        kept the request there, it counts if it asks for no less than what is granted: a user may have written it, and
        gets nothing free by it.
        """
        if self.keeper is not None:
            return self.requests[self.keeper.name]
        left = self.reading.left_request if self.reading is not None else None
        if left is None or self.reading is None or self.holder is None or self.outbox is self.reading.outbox:
            return left.cleared() if left else None
        granted, asked = self.holder.granted, left.counts
        is_no_less = granted.keys() == asked.keys() and all(asked[name] >= count for name, count in granted.items())
        return left if is_no_less and not left.finished and not left.taken_back else left.cleared()

    @cached_property
    def kept_counts(self) -> Counts | None:
        """The size that Ray's autoscaler has asked for, or began with, where somebody has edited another one since. So
        of any job whose replicas were edited to have another number of hosts, which is for its next start."""
        if self.holder is None or self.beside_kueue or not (self.is_autoscaled or self.resized_replicas):
            return None
        edited, requested = self._edited, self.requested
        if edited.correlation is not None or edited.reclaimed is not None:
            return None
        kept = requested.counts if requested is not None and requested.counts else self.holder.counts
        return kept if kept.keys() == edited.counts.keys() and kept != edited.counts else None

    @property
    def _counts_of_copy(self) -> Counts | None:
        """The pods that the suspended copy of a job makes with the replicas of its spec, where these have another
        number of hosts by now: the copy keeps its own."""
        edited = self._edited
        if self.beside_kueue or self.state.held is not Held.SUSPENDED or self.is_withdrawn or not self.unfinished:
            return None
        if edited.correlation is not None or edited.reclaimed is not None:
            return None
        runs = self.unfinished[-1].replica_sizes
        sizes = {name: (self._replica_size(name), runs.get(name, 1)) for name in edited.counts}
        resized = {name: edited.counts[name] // now * before for name, (now, before) in sizes.items() if now != before}
        return edited.counts | resized if resized else None

    @cached_property
    def resized_replicas(self) -> list[str]:
        """The pod sets of a job that runs whose replicas have another number of pods by its spec than where it runs."""
        if self.reading is None or self.holder is None:
            return []
        runs = self.holder.replica_sizes
        return [
            name
            for name in self.reading.own_counts
            if name in self.holder.counts and self._replica_size(name) != runs.get(name, 1)
        ]

    def _replica_size(self, pod_set: str) -> int:
        """How many pods a replica of a pod set has by the spec."""
        return KINDS[self.ref.kind].step(self.job, pod_set) if self.job is not None else 1

    @cached_property
    def unshown_end(self) -> UnshownEnd | None:
        """The end that the API server refuses to show on the job; None where there is none."""
        return next(filter(None, map(UnshownEnd.from_workload, self.workloads.values())), None)

    @cached_property
    def outcome(self) -> Outcome:
        """Where the job stands: by its own status, or by an end that this does not show. Only for a job that exists."""
        assert self.job is not None
        own = KINDS[self.ref.kind].outcome(self.job)
        return self.unshown_end.outcome if self.unshown_end and not own.phase.is_terminal else own

    @property
    def problems(self) -> list[Problem]:
        """Why the job cannot be taken as it is now; empty for one that can, or that is gone."""
        return self.reading.problems if self.reading is not None else []

    @property
    def vanished(self) -> bool:
        """Whether the job exists, and its copy is gone without an order."""
        return self.job is not None and self.outbox is not None and self.outbox.record.has_vanished

    @cached_property
    def unfinished(self) -> list[Slice]:
        """The slices that have not finished."""
        return [slice for slice in self.slices if not slice.finished]

    @property
    def priority(self) -> int | None:
        """That of its newest unfinished slice; None where it has none."""
        return self.unfinished[-1].priority if self.unfinished else None

    @property
    def is_managed(self) -> bool:
        """Whether slicebus runs the job, by its metadata or since it was taken."""
        return self.job is not None and (is_managed(self.job, fixed_jobs=self.fixed_jobs) or self.is_taken)

    @cached_property
    def is_fixed(self) -> bool:
        """Whether the job has one Workload whose size stays: by that Workload, or before there is one by the job's
        metadata."""
        if self.job is None or self.beside_kueue:
            return False
        return not (self.unfinished[-1].elastic if self.unfinished else is_elastic(self.job))

    @cached_property
    def is_taken(self) -> bool:
        """Whether slicebus runs the job, or has still to let go of its Workloads, whatever its metadata says by now."""
        finalizers = (workload["metadata"].get("finalizers", ()) for workload in self.workloads.values())
        return any(kueue.RESOURCE_IN_USE_FINALIZER in names for names in finalizers)

    @property
    def queue(self) -> str:
        """The LocalQueue of the chain; where there is none, the one that the job's label names."""
        if self.unfinished:
            return self.unfinished[-1].queue
        named = queue_of(self.job) if self.job is not None else ""
        return named or (self.slices[-1].queue if self.slices else "")

    @cached_property
    def holder(self) -> Slice | None:
        """The newest admitted slice: the one that the worker's pods may run on. None while it is evicted."""
        newest = next((slice for slice in reversed(self.slices) if slice.admitted or slice.evicting), None)
        return newest if newest is not None and newest.admitted else None

    @cached_property
    def evicted(self) -> Slice | None:
        """The slice that has lost its quota, or is about to, until it has some again."""
        return next((slice for slice in reversed(self.unfinished) if slice.evicted), None)

    @cached_property
    def waits_for_pods(self) -> Slice | None:
        """The slice of a job that has ended while pods of it run on: it is charged for those."""
        return next((slice for slice in self.unfinished if slice.waits_for_pods), None)

    @cached_property
    def is_suspended_by_user(self) -> bool:
        """Whether somebody else than the manager has suspended the job.

        The manager suspends only evicted ones. Where their slices have ended since, it has still to resume them.
        """
        if self.job is None or self.beside_kueue or not is_suspended(self.job):
            return False
        if annotation(self.job, api_names.SUSPENDED_ANNOTATION) is None:
            return True
        return bool(self.unfinished) and not any(Condition.EVICTED in slice.conditions for slice in self.unfinished)

    @cached_property
    def place(self) -> ClusterName | None:
        """The cluster that the chain was admitted to."""
        return place_of(self.slices)

    @cached_property
    def state(self) -> OutboxState:
        """What the worker shall hold, and how far that has come."""
        return self.outbox.state(published=self.published) if self.outbox is not None else WITHDRAWN

    @property
    def is_withdrawn(self) -> bool:
        """Whether the worker surely holds nothing: no dispatch, its delete is reported, or it left the fleet."""
        return self.state == WITHDRAWN or not self.in_fleet

    @property
    def is_withdrawing(self) -> bool:
        """Whether it is recorded that the worker shall hold nothing. Nothing stops the delete any more."""
        return self.state.held is Held.ABSENT

    @property
    def is_stopped(self) -> bool:
        """Whether the worker has reported that it stopped the job: it has no pod left, or, where the kind cannot be
        suspended, its notice is over."""
        return self.state == STOPPED

    @property
    def is_without_pods(self) -> bool:
        """Whether the worker surely has no pod of the job: it has reported that, or it holds nothing of it."""
        return (self.is_stopped and can_suspend(self.ref.kind)) or self.is_withdrawn

    @property
    def has_left_copy(self) -> bool:
        """Whether it counts as withdrawn although its cluster, which was given up, may have a copy left."""
        return self.is_withdrawing and self.cluster in self.left_copies

    def with_workload(self, changed: Manifest) -> Self:
        """The view after a change of one Workload. What it says of clusters stays."""
        name, slice = changed["metadata"]["name"], Slice.from_manifest(changed)
        is_elsewhere = self.outbox is not None and self.outbox.recorded_on is not self.workloads[name]
        return msgspec.structs.replace(
            self,
            workloads=self.workloads | {name: changed},
            slices=tuple(slice if other.name == name else other for other in self.slices),
            requests={**self.requests, **size_requests_of({name: changed})},
            outbox=Outbox.newest([self.outbox if is_elsewhere else None, Outbox.from_manifest(changed)]),
        )

    def workload(self, slice: Slice) -> Manifest:
        """The manifest of a slice."""
        return self.workloads[slice.name]


def place_of(slices: Sequence[Slice]) -> ClusterName | None:
    """The cluster that a chain was admitted to, as in `JobView.place`."""
    name = chain.place_of(slices)
    return ClusterName(name) if name is not None else None


def cluster_of(slices: Sequence[Slice], outbox: Outbox | None) -> ClusterName | None:
    """The cluster that has the job's copy, or shall have it, as in `JobView.cluster`."""
    if outbox is None or not outbox.record.cluster or outbox.state() == WITHDRAWN:
        return place_of(slices)
    return ClusterName(outbox.record.cluster)
