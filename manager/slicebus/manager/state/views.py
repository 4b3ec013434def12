"""The input of decisions about one job: its cached objects, as values."""

from collections.abc import Mapping, Sequence
from typing import Self

import msgspec
from propcache.api import cached_property

from slicebus.bus.sizes import MESSAGE_BYTES
from slicebus.manager.state.annotations import DesiredSize, as_copied, desired_size_of
from slicebus.manager.state.outbox import WITHDRAWN, WITHOUT_PODS, Held, Outbox, OutboxState
from slicebus.manager.state.requirements import is_elastic, is_managed, queue_of
from slicebus.proto.messages import ClusterName, Counts, JobRef, Manifest, Status, Waits
from slicebus.slices.api import kueue
from slicebus.slices.jobs import KINDS
from slicebus.slices.workload import workload
from slicebus.slices.workload.pod_requests import pod_requests
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


class JobReading(msgspec.Struct, frozen=True, dict=True):
    """One version of a job's manifest. Each part is parsed when it is first read."""

    manifest: Manifest

    @cached_property
    def outbox(self) -> Outbox | None:
        """The newest dispatch, once it is on the job: after the last Workload."""
        return Outbox.from_manifest(self.manifest)

    @cached_property
    def desired(self) -> DesiredSize:
        """The size that the job shall have."""
        return desired_size_of(self.manifest, KINDS[self.manifest["kind"]])

    @cached_property
    def is_autoscaled(self) -> bool:
        """Whether Ray's autoscaler owns the size where the job runs."""
        return KINDS[self.manifest["kind"]].is_autoscaled(as_copied(self.manifest))

    @cached_property
    def requests(self) -> dict[str, dict[str, int] | None]:
        """What one pod requests, by pod set; None for unreadable requests."""
        pod_sets = KINDS[self.manifest["kind"]].pod_sets(as_copied(self.manifest))
        return {pod_set["name"]: _requests(pod_set["template"]) for pod_set in pod_sets}


class JobView(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One job of the manager with everything that belongs to it. Manifests are read-only."""

    ref: JobRef
    reading: JobReading | None
    """The job, parsed once for each version; None when it is gone, or another job has its name."""
    workloads: dict[str, Manifest]
    """Every Workload of the job by name."""
    slices: tuple[Slice, ...]
    """The same Workloads, oldest first."""
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
    checks: frozenset[str] = frozenset()
    """The names of our AdmissionChecks, where a Kueue admits."""
    reported: Status | None = None
    """The worker's last status of the job, where a Kueue admits."""
    last_notice: str = ""
    """The last notice of why a request waits (`waiting.notice_key`)."""
    would_admit: Mapping[SliceKey, str] = {}
    """What would admit the slices that wait, in words, as far as it is known."""
    waits: Waits | None = None
    """Why the job does not have its size, where only its worker knows, by its last report."""
    message_bytes: int = MESSAGE_BYTES
    """The limit of a message."""
    readiness: Readiness | None = None
    """None where pods have no limit to get ready."""
    fixed_jobs: bool = False
    """Whether jobs without the elastic annotation are run too."""

    @property
    def job(self) -> Manifest | None:
        """The manifest; None where `reading` is."""
        return self.reading.manifest if self.reading is not None else None

    @cached_property
    def desired(self) -> DesiredSize:
        """The size that the job shall have. Only for a job that exists.

        Ray's autoscaler owns the size of a job that runs: replicas that were edited on the manager's job are for its
        next start. A Kueue reads them itself. A job of a fixed size keeps it while it has quota, but for pods that have
        ended.
        """
        assert self.reading is not None
        edited = self.reading.desired
        if self.is_fixed and self.holder is not None:
            ended, gone = edited.finished, self.holder.reclaimable
            left = {
                name: max(0, n - max(ended.get(name, 0), gone.get(name, 0))) for name, n in self.holder.counts.items()
            }
            return msgspec.structs.replace(edited, counts=left, kept=self.holder.counts)
        return msgspec.structs.replace(edited, counts=self.kept_counts) if self.kept_counts is not None else edited

    @cached_property
    def kept_counts(self) -> Counts | None:
        """The size that Ray's autoscaler has asked for, or began with, where somebody has edited another one since."""
        if self.reading is None or self.holder is None or self.checks or not self.reading.is_autoscaled:
            return None
        edited, requested = self.reading.desired, self.reading.desired.requested
        if edited.correlation is not None:
            return None
        kept = requested.counts if requested is not None and requested.counts else self.holder.counts
        return kept if kept.keys() == edited.counts.keys() and kept != edited.counts else None

    @property
    def vanished(self) -> bool:
        """Whether the job exists, and its copy is gone without an order."""
        return self.job is not None and self.outbox is not None and self.outbox.record.has_vanished

    @cached_property
    def unfinished(self) -> list[Slice]:
        """The slices that have not finished."""
        return [slice for slice in self.slices if not slice.finished]

    @property
    def is_managed(self) -> bool:
        """Whether slicebus runs the job, by its metadata or since it was taken."""
        return self.job is not None and (is_managed(self.job, fixed_jobs=self.fixed_jobs) or self.is_taken)

    @cached_property
    def is_fixed(self) -> bool:
        """Whether the job has one Workload whose size stays: by that Workload, or before there is one by the job's
        metadata."""
        if self.job is None or self.checks:
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
    def is_without_pods(self) -> bool:
        """Whether the worker surely has no pod of the job: it has reported that, or it holds nothing of it."""
        return self.state == WITHOUT_PODS or self.is_withdrawn

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
            outbox=Outbox.newest([self.outbox if is_elsewhere else None, Outbox.from_manifest(changed)]),
        )

    def workload(self, slice: Slice) -> Manifest:
        """The manifest of a slice."""
        return self.workloads[slice.name]


def place_of(slices: Sequence[Slice]) -> ClusterName | None:
    """The cluster that a chain was admitted to, as in `JobView.place`."""
    name = workload.place_of(slices)
    return ClusterName(name) if name is not None else None


def cluster_of(slices: Sequence[Slice], outbox: Outbox | None) -> ClusterName | None:
    """The cluster that has the job's copy, or shall have it, as in `JobView.cluster`."""
    if outbox is None or not outbox.record.cluster or outbox.state() == WITHDRAWN:
        return place_of(slices)
    return ClusterName(outbox.record.cluster)


def _requests(template: Manifest) -> dict[str, int] | None:
    try:
        return pod_requests(template.get("spec", {}))
    except ValueError:
        return None
