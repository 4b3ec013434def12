"""The input of an admission cycle, from what the manager knows and from its settings."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from slicebus.kube.times import time_text
from slicebus.manager.decide.job import size_bounds
from slicebus.manager.state.outbox import Outbox
from slicebus.manager.state.owners import job_of
from slicebus.manager.state.reclaims import RING, told_s
from slicebus.manager.state.store import ManagerStore
from slicebus.slices.admission.growth_limit import GrowthLimit
from slicebus.slices.admission.snapshot import IdleGrowth, Snapshot
from slicebus.slices.workload.workload import Counts, SliceKey


class Since(msgspec.Struct, frozen=True, kw_only=True):
    """When a cycle takes place, and from when on it looks back, each a metav1.Time."""

    preemption_cycles: str
    """As in `PreemptionCycles`."""
    growth: str = ""
    """As in `GrowthLimit`; empty where nothing is limited."""
    idle: str = ""
    """As in `IdleGrowth`; empty for a cycle in which no job grows into idle quota."""
    now: str = ""
    """The time of the cycle, to which budgets are counted; empty for a cycle in which none is spent."""

    @classmethod
    def at(cls, moment: datetime, *, growth_window_s: float) -> "Since":
        """Of a cycle at that moment that gives no idle quota away."""
        growth = time_text(moment - timedelta(seconds=growth_window_s))
        return cls(preemption_cycles=time_text(moment - RING), growth=growth, now=time_text(moment))


def snapshot_of(
    store: ManagerStore,
    trees: Sequence[str] | None,
    since: Since,
    *,
    in_lines: bool = False,
    refused: frozenset[SliceKey] = frozenset(),
    unevictable: frozenset[SliceKey] = frozenset(),
) -> Snapshot:
    """What a cycle over some trees of quota decides from; all for None. `in_lines` and `refused` as in
    `Quotas.snapshot`, `unevictable` as in `Snapshot`."""
    settings, assumed = store.settings, {key: uncertain.decision for key, uncertain in store.uncertain.items()}
    limits_growth = settings.growth_victims and since.growth
    snapshot = store.quotas.snapshot(
        trees,
        assumed,
        strategy=settings.placement_strategy,
        fair_sharing=settings.fair_sharing,
        preemption_cycles_since=since.preemption_cycles,
        growth_limit=GrowthLimit(settings.growth_victims, settings.growth_window_s, since.growth)
        if limits_growth
        else None,
        notice_cap_s=settings.notice_cap_s,
        pods_before_jobs=settings.pods_before_jobs,
        moment=datetime.fromisoformat(since.now) if since.now else None,
        usage_rule=settings.usage_rule,
        in_lines=in_lines,
        refused=refused,
    )
    idle = IdleGrowth(since.idle, settings.idle_headroom, useful=_useful(store, snapshot)) if since.idle else None
    told = _told_s(store, snapshot)
    return msgspec.structs.replace(snapshot, told_s=told, idle_growth=idle, unevictable=unevictable)


def _told_s(store: ManagerStore, snapshot: Snapshot) -> dict[SliceKey, float]:
    """What `Snapshot` knows of the notices of evicted slices."""
    workloads = {slice.key: store.workloads.get(slice.namespace, slice.name) for slice in snapshot.part.leaving}
    told = {key: told_s(Outbox.from_manifest(workload)) for key, workload in workloads.items() if workload is not None}
    return {key: notice_s for key, notice_s in told.items() if notice_s is not None}


def _useful(store: ManagerStore, snapshot: Snapshot) -> dict[SliceKey, Counts]:
    """What `IdleGrowth` knows of the jobs of a snapshot."""
    useful: dict[SliceKey, Counts] = {}
    for queue in snapshot.cluster_queues:
        for holder in snapshot.part.holdings.holders_in(queue):
            ref = job_of(store, holder.key) if holder.elasticity.most else None
            job = store.view(ref).job if ref is not None else None
            if job is not None and (bounds := size_bounds.useful(job, holder.elasticity.most)):
                useful[holder.key] = bounds
    return useful
