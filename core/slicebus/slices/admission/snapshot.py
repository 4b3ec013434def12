"""What a cycle decides from."""

from collections.abc import Iterable, Mapping

import msgspec

from slicebus.slices.admission.budget_limit import SpentBudgets
from slicebus.slices.admission.growth_limit import GrowthLimit
from slicebus.slices.admission.lines import Behind
from slicebus.slices.admission.sharing import FairSharing
from slicebus.slices.admission.usage_order import LocalUses, by_usage
from slicebus.slices.api.kueue import Condition, EvictionReason
from slicebus.slices.placement.fleet import Cluster, Strategy
from slicebus.slices.quota.holdings import Part
from slicebus.slices.quota.quota import ClusterQueue, Cohort, FlavorResource, LocalQueue, ResourceFlavor
from slicebus.slices.workload.workload import Counts, Slice, SliceKey

_DEACTIVATED = "The workload is deactivated"


class IdleGrowth(msgspec.Struct, frozen=True):
    """Which running jobs may grow into quota that nobody waits for, and how far."""

    since: str
    """Those that have neither got quota nor lost pods since then, a metav1.Time."""
    headroom: float
    """The part of each queue's quota and of each cluster that stays free, from 0 to 1."""
    useful: Mapping[SliceKey, Counts] = {}
    """How many pods by pod set jobs have work for, by the slices that hold their quota. What is not named has work for
    all that it takes."""


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
    behind: tuple[Behind, ...] = ()
    """The waiting slices that are not in `part`: of their lines it has the first ones only."""
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
    refused: frozenset[SliceKey] = frozenset()
    """The waiting slices whose admission could not be written: they come after all others, and take nothing."""
    unevictable: frozenset[SliceKey] = frozenset()
    """The quota holders whose eviction, or whose loss of pods, could not be written: nobody takes anything of them."""
    notice_cap_s: float = 0.0
    """The longest notice that a job gets before it loses pods; a queue may have a shorter one."""
    told_s: Mapping[SliceKey, float] = {}
    """How long before their end evicted slices were told, where their workers' orders say so."""
    pods_before_jobs: bool = True
    """Whether jobs may lose some pods before all, where their queue does not say."""
    idle_growth: IdleGrowth | None = None
    """None where no job grows into idle quota in this cycle."""
    spent_budgets: SpentBudgets = SpentBudgets()
    local_uses: LocalUses = LocalUses()
    """Of the ClusterQueues that go by that."""

    @property
    def unshrinkable(self) -> frozenset[SliceKey]:
        """The quota holders whose worker has refused since `preemption_cycles_since` to take some of their pods: they
        lose all or none."""
        since = self.preemption_cycles_since
        if since is None:
            return frozenset()
        noted = ((slice.key, slice.reclaimed) for slice in self.part.preempted)
        return frozenset(key for key, note in noted if note is not None and note.refused_at >= since)

    def cluster_queue_of(self, slice: Slice) -> str:
        """The ClusterQueue that a slice's LocalQueue names; empty where there is no such LocalQueue."""
        local = self.local_queues.get(slice.local_queue)
        return local.cluster_queue if local is not None else ""


def stopped(snapshot: Snapshot) -> list[tuple[Slice, tuple[EvictionReason, str]]]:
    """The quota holders that are deactivated, in a drained queue or of a drained budget, and why they are evicted."""

    def reason(slice: Slice) -> tuple[EvictionReason, str] | None:
        if not slice.active:
            return EvictionReason.DEACTIVATED, _DEACTIVATED
        local = snapshot.local_queues.get(slice.local_queue)
        if local is not None and local.drained:
            return EvictionReason.LOCAL_QUEUE_STOPPED, "The LocalQueue is stopped"
        queue = snapshot.cluster_queues.get(slice.admission.cluster_queue) if slice.admission else None
        if queue is not None and queue.drained:
            return EvictionReason.CLUSTER_QUEUE_STOPPED, "The ClusterQueue is stopped"
        spent = snapshot.spent_budgets.why_drained(slice)
        return (EvictionReason.BUDGET_SPENT, spent) if spent else None

    holder = snapshot.part.holdings.holder
    held = (slice for slice in snapshot.part.to_stop if holder(slice.chain_id) is slice)
    return [(slice, why) for slice in held if (why := reason(slice))]


def leavers(snapshot: Snapshot, stopped: Iterable[tuple[Slice, object]]) -> list[Slice]:
    """The quota holders that are evicted, and those of the stopped ones whose eviction can be written."""
    return [*snapshot.part.leaving, *(slice for slice, _ in stopped if slice.key not in snapshot.unevictable)]


def in_turn(snapshot: Snapshot, queue: str, slices: Iterable[Slice]) -> list[Slice]:
    """The slices of a ClusterQueue, which come by rank, in the order of the queue."""
    found = snapshot.cluster_queues.get(queue)
    is_by_usage = found is not None and found.usage_based
    return by_usage(slices, snapshot.local_uses) if is_by_usage else list(slices)


def why_deactivated(slice: Slice) -> str:
    """What to tell of a slice that would be pending if it were active."""
    evicted = slice.conditions.get(Condition.EVICTED, {})
    is_explained = evicted.get("reason") in (EvictionReason.EXECUTION_TIME, EvictionReason.SUSPENDED)
    return f"{_DEACTIVATED}: {evicted.get('message', '')}" if is_explained else _DEACTIVATED
