"""What a decision about one job may look at: the cached objects, as values."""

from functools import cached_property

import msgspec

from slicebus.proto.messages import ClusterName, JobRef, Manifest
from slicebus.slices.workload import Slice


class JobView(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One job of the manager with everything that belongs to it. Manifests are read-only."""

    ref: JobRef
    job: Manifest | None
    """None when the job is gone, or another one has its name."""
    workloads: dict[str, Manifest]
    """Every Workload of the job by name."""
    slices: tuple[Slice, ...]
    """The same Workloads, oldest first."""
    flavors: dict[str, Manifest] = {}
    """ResourceFlavors by name."""
    priority_classes: dict[str, int] = {}
    """Values of the WorkloadPriorityClasses by name."""
    in_fleet: bool = True
    """Whether a WorkerCluster of the chain's cluster still exists."""
    deletes_held: bool = False
    """Whether too many jobs of the cluster would be deleted at once: somebody has to look first."""
    published: int = 0
    """The newest version that this process has published since the worker's agent last said hello."""

    @cached_property
    def holder(self) -> Slice | None:
        """The newest admitted slice: the one that the worker's pods may run on."""
        return next((slice for slice in reversed(self.slices) if slice.admitted), None)

    @cached_property
    def cluster(self) -> ClusterName | None:
        """Where the chain runs."""
        name = next((slice.cluster for slice in reversed(self.slices) if slice.cluster), None)
        return ClusterName(name) if name else None

    def workload(self, slice: Slice) -> Manifest:
        """The manifest of a slice."""
        return self.workloads[slice.name]
