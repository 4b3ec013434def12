"""What a cycle decides from."""

from collections.abc import Mapping

import msgspec

from slicebus.slices.admission.growth_limit import GrowthLimit
from slicebus.slices.admission.sharing import FairSharing
from slicebus.slices.placement.fleet import Cluster, Strategy
from slicebus.slices.quota.holdings import Part
from slicebus.slices.quota.quota import ClusterQueue, Cohort, FlavorResource, LocalQueue, ResourceFlavor


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs of a cycle."""

    cluster_queues: Mapping[str, ClusterQueue]
    cohorts: tuple[Cohort, ...]
    local_queues: Mapping[tuple[str, str], LocalQueue]
    """By namespace and name."""
    flavors: Mapping[str, ResourceFlavor]
    namespaces: Mapping[str, Mapping[str, str]]
    """Labels by namespace."""
    part: Part
    clusters: tuple[Cluster, ...]
    load: Mapping[str, int]
    """The number of chains on each worker cluster, also of jobs that are not among the slices."""
    granted: Mapping[str, Mapping[FlavorResource, int]] = {}
    """What these chains together are granted, by worker cluster."""
    strategy: Strategy = Strategy.SPREAD
    """The placement strategy of queues that name none."""
    fair_sharing: FairSharing = FairSharing.OFF
    preemption_cycles_since: str | None = None
    """See `PreemptionCycles`."""
    growth_limit: GrowthLimit | None = None
    """None for no limit."""
