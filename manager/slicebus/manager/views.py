"""What a decision about one job may look at: the cached objects, as values."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Self

import msgspec

from slicebus.manager.records import Dispatch, Wish, applied_version, wish_of
from slicebus.proto.messages import ClusterName, JobRef, Manifest, Status
from slicebus.slices import kueue
from slicebus.slices.jobs import KINDS
from slicebus.slices.workload import Slice


class Outbox(msgspec.Struct, frozen=True):
    """The newest dispatch of a job, and the object that it is written on: a Workload, or the job after its last one."""

    record: Dispatch
    carrier: Manifest
    is_applied: bool
    """Whether the worker has reported it."""

    @classmethod
    def newest(cls, records: Iterable[tuple[Dispatch | None, Manifest]]) -> Self | None:
        """The newest dispatch of a job, from what everything says that may have one; None where nothing was ever
        dispatched."""
        newest: tuple[Dispatch, Manifest] | None = None
        for record, carrier in records:
            if record is not None and (newest is None or record.version > newest[0].version):
                newest = record, carrier
        return cls(*newest, is_applied=applied_version(newest[1]) >= newest[0].version) if newest else None


class JobView(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One job of the manager with everything that belongs to it. Manifests are read-only."""

    ref: JobRef
    job: Manifest | None
    """None when the job is gone, or another one has its name."""
    workloads: dict[str, Manifest]
    """Every Workload of the job by name."""
    slices: tuple[Slice, ...]
    """The same Workloads, oldest first."""
    outbox: Outbox | None = None
    """The newest dispatch of the job."""
    flavors: dict[str, Manifest] = {}
    """ResourceFlavors by name."""
    priority_classes: dict[str, int] = {}
    """Values of the WorkloadPriorityClasses by name."""
    in_fleet: bool = True
    """Whether the WorkerCluster of `cluster` still exists."""
    deletes_held: bool = False
    """Whether too many jobs of the cluster would be deleted at once: somebody has to look first."""
    given_up: bool = False
    """Whether `cluster` is given up: the job leaves it without its answer."""
    behind: dict[ClusterName, int] = {}
    """As in the newest dispatch, those that are still in the fleet."""
    recalled: dict[ClusterName, int] = {}
    """What this process has told these, since their agents last said hello."""
    published: int = 0
    """The newest version that this process has published since the worker's agent last said hello."""
    checks: frozenset[str] = frozenset()
    """The names of our AdmissionChecks, where a Kueue admits."""
    reported: Status | None = None
    """What the worker last said of the job, where a Kueue admits."""
    told: str = ""
    """The last notice of why a request waits, where a Kueue admits (`notices.told_of`)."""

    @cached_property
    def wish(self) -> Wish:
        """The size that the job shall have. Only of a job that is there."""
        assert self.job is not None
        return wish_of(self.job, KINDS[self.ref.kind])

    @cached_property
    def holder(self) -> Slice | None:
        """The newest admitted slice: the one that the worker's pods may run on. None while it is evicted."""
        standing = next((slice for slice in reversed(self.slices) if slice.admitted or slice.evicting), None)
        return standing if standing is not None and standing.admitted else None

    @cached_property
    def evicted(self) -> Slice | None:
        """The slice that has lost its quota, or is about to, until it has some again."""
        return next((slice for slice in reversed(self.slices) if slice.evicted and not slice.finished), None)

    @cached_property
    def place(self) -> ClusterName | None:
        """Where the chain was admitted to."""
        return place_of(self.slices)

    @cached_property
    def cluster(self) -> ClusterName | None:
        """The cluster that has the job's copy, or shall have it. After an eviction that may be another than `place`."""
        return cluster_of(self.slices, self.outbox)

    def workload(self, slice: Slice) -> Manifest:
        """The manifest of a slice."""
        return self.workloads[slice.name]


def place_of(slices: Sequence[Slice]) -> ClusterName | None:
    """As `JobView.place`."""
    name = next((slice.cluster for slice in reversed(slices) if slice.cluster is not None), None)
    return ClusterName(name) if name else None


def cluster_of(slices: Sequence[Slice], outbox: Outbox | None) -> ClusterName | None:
    """As `JobView.cluster`."""
    if outbox is None or not outbox.record.cluster or (outbox.record.hash == kueue.ABSENT and outbox.is_applied):
        return place_of(slices)
    return ClusterName(outbox.record.cluster)
