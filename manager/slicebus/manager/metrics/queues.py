"""Gauges of the queues at the moment of a scrape, under Kueue's names and labels.

They are computed from the caches at each scrape, so a deleted queue leaves no series. Source: Kueue v0.20,
`pkg/metrics`.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from slicebus.manager.state.budgets import BudgetOwner
from slicebus.manager.state.quota_trees import Quotas
from slicebus.manager.state.store import ManagerStore
from slicebus.slices.admission.sharing import FairSharing, Share, share
from slicebus.slices.api.kueue import Condition
from slicebus.slices.api.quantities import in_units
from slicebus.slices.quota.cohorts import Forest, Node, grow
from slicebus.slices.quota.quota import ClusterQueue, FlavorResource, LocalQueue, Usage, keys_by_cluster_queue
from slicebus.slices.workload.workload import Slice
from slicebus.slices.workload.workload_counts import SliceState

_QUEUE = ("cluster_queue",)
_LOCAL = ("name", "namespace")
_FLAVOR = ("flavor", "resource")
_RESOURCE = ("cohort", "cluster_queue", "flavor", "resource")


class QueueMetrics(Collector):
    """The gauges of the manager that leads, of the queues that it has."""

    def __init__(self, store: ManagerStore, *, now: Callable[[], datetime]) -> None:
        self._store = store
        self._now = now

    def describe(self) -> Iterable[Metric]:
        """Describe nothing: otherwise the registry would collect when this is registered."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Every gauge of every readable ClusterQueue."""
        quotas, shards = self._store.quotas, self._store.shards
        usage = quotas.ledger.holdings.totals
        queues = [queue for name, queue in quotas.cluster_queues.items() if shards.has_cluster_queue(name)]
        cohorts = [cohort for cohort in quotas.cohorts if shards.has_cohort(cohort.name)]
        yield from _workloads(quotas, queues)
        yield _oldest(quotas, queues, now=self._now())
        yield from _resources(queues, usage)
        locals = [queue for queue in quotas.local_queues.values() if shards.has_cluster_queue(queue.cluster_queue)]
        yield from _local_queues(quotas, locals)
        forest = grow(queues, cohorts, usage)
        yield from _cohorts(forest)
        if self._store.settings.fair_sharing is not FairSharing.OFF:
            yield from _shares(forest)
        yield _budgets([*queues, *cohorts, *locals], quotas, self._now())


def _workloads(quotas: Quotas, queues: Iterable[ClusterQueue]) -> Iterator[Metric]:
    workload_counts, members = quotas.ledger.workload_counts, keys_by_cluster_queue(quotas.local_queues.values())
    pending = GaugeMetricFamily(
        "kueue_pending_workloads",
        "Workloads that wait for quota: active, or inadmissible until somebody changes something.",
        labels=(*_QUEUE, "status"),
    )
    reserving = GaugeMetricFamily("kueue_reserving_active_workloads", "Workloads that have quota.", labels=_QUEUE)
    admitted = GaugeMetricFamily("kueue_admitted_active_workloads", "Workloads that may run.", labels=_QUEUE)
    for queue in (queue.name for queue in queues):
        counted = workload_counts.total(members.get(queue, ()))
        pending.add_metric((queue, "active"), counted[SliceState.PENDING] - counted[SliceState.INADMISSIBLE])
        pending.add_metric((queue, "inadmissible"), counted[SliceState.INADMISSIBLE])
        reserving.add_metric((queue,), counted[SliceState.RESERVING])
        admitted.add_metric((queue,), counted[SliceState.ADMITTED])
    yield from (pending, reserving, admitted)


def _oldest(quotas: Quotas, queues: Iterable[ClusterQueue], *, now: datetime) -> Metric:
    text = "The age of the oldest workload that waits for quota since it was made or requeued; 0 without one."
    oldest = GaugeMetricFamily("slicebus_pending_oldest_seconds", text, labels=_QUEUE)
    ages = {queue.name: 0.0 for queue in queues}
    for key in quotas.ledger.waiting_in():
        queue = quotas.cluster_queue_of(key)
        if queue in ages:
            ages[queue] = max(ages[queue], *(_waited_s(slice, now) for slice in quotas.ledger.waiting(key)))
    for name, age_s in ages.items():
        oldest.add_metric((name,), age_s)
    return oldest


def _waited_s(slice: Slice, now: datetime) -> float:
    requeued = slice.conditions.get(Condition.REQUEUED, {})
    since = requeued["lastTransitionTime"] if requeued.get("status") == "True" else slice.created
    return max(0.0, (now - datetime.fromisoformat(since)).total_seconds())


def _local_queues(quotas: Quotas, queues: Iterable[LocalQueue]) -> Iterator[Metric]:
    pending = GaugeMetricFamily(
        "kueue_local_queue_pending_workloads", "Workloads of a LocalQueue that wait.", labels=(*_LOCAL, "status")
    )
    usage = GaugeMetricFamily(
        "kueue_local_queue_resource_usage", "What the workloads of a LocalQueue use.", labels=(*_LOCAL, *_FLAVOR)
    )
    for queue in queues:
        counted, labels = quotas.ledger.workload_counts.total([queue.key]), (queue.name, queue.namespace)
        pending.add_metric((*labels, "active"), counted[SliceState.PENDING] - counted[SliceState.INADMISSIBLE])
        pending.add_metric((*labels, "inadmissible"), counted[SliceState.INADMISSIBLE])
        limits = (
            quotas.cluster_queues[queue.cluster_queue].limits if queue.cluster_queue in quotas.cluster_queues else {}
        )
        used = quotas.ledger.used_in.totals.get((queue.key, queue.cluster_queue), {})
        for flavor, resource in {**limits, **used}:
            usage.add_metric((*labels, flavor, resource), in_units(resource, used.get((flavor, resource), 0)))
    yield from (pending, usage)


def _cohorts(forest: Forest) -> Iterator[Metric]:
    text = "The quota of a cohort and of what is below it, without what its members lend nobody."
    quota = GaugeMetricFamily("kueue_cohort_subtree_quota", text, labels=("cohort", *_FLAVOR))
    text = "What the queues of a cohort, and of those below it, use."
    used = GaugeMetricFamily("kueue_cohort_subtree_resource_reservations", text, labels=("cohort", *_FLAVOR))
    for node in forest.cohorts.values():
        for key, amount in node.quota.items():
            quota.add_metric((node.name, *key), in_units(key[1], amount))
            used.add_metric((node.name, *key), in_units(key[1], _used_below(node, key)))
    yield from (quota, used)


def _used_below(cohort: Node, key: FlavorResource) -> int:
    used = sum(queue.used(key) for queue in cohort.queues)
    return used + sum(_used_below(child, key) for child in cohort.cohorts)


def _resources(queues: Iterable[ClusterQueue], used: Mapping[str, Usage]) -> Iterator[Metric]:
    usage = GaugeMetricFamily(
        "kueue_cluster_queue_resource_usage", "What a queue uses, in cores, bytes or pieces.", labels=_RESOURCE
    )
    nominal = GaugeMetricFamily("kueue_cluster_queue_nominal_quota", "The nominal quota of a queue.", labels=_RESOURCE)
    borrowing = GaugeMetricFamily(
        "kueue_cluster_queue_borrowing_limit", "The most that a queue borrows; +Inf without a limit.", labels=_RESOURCE
    )
    lending = GaugeMetricFamily(
        "kueue_cluster_queue_lending_limit", "The most that a queue lends; +Inf without a limit.", labels=_RESOURCE
    )
    for queue in queues:
        for (flavor, resource), limits in queue.limits.items():
            labels = (queue.cohort, queue.name, flavor, resource)
            amount = used.get(queue.name, {}).get((flavor, resource), 0)
            usage.add_metric(labels, in_units(resource, amount))
            nominal.add_metric(labels, in_units(resource, limits.nominal))
            borrowing.add_metric(labels, _limit(resource, limits.borrowing))
            lending.add_metric(labels, _limit(resource, limits.lending))
    yield from (usage, nominal, borrowing, lending)


def _shares(forest: Forest) -> Iterator[Metric]:
    text = "The borrowed part of what could be, in thousandths, by the weight; NaN for who borrows without one."
    of_queues = GaugeMetricFamily("kueue_cluster_queue_weighted_share", text, labels=("cluster_queue", "cohort"))
    of_cohorts = GaugeMetricFamily("kueue_cohort_weighted_share", text, labels=("cohort",))
    for node in forest.queues.values():
        of_queues.add_metric((node.name, node.parent.name if node.parent else ""), _weighted(share(node)))
    for node in forest.cohorts.values():
        of_cohorts.add_metric((node.name,), _weighted(share(node)))
    yield from (of_queues, of_cohorts)


def _budgets(owners: Sequence[BudgetOwner], quotas: Quotas, moment: datetime) -> Metric:
    text = "What is spent of a budget in its window, as a part of it."
    spent = GaugeMetricFamily("slicebus_budget_spent_ratio", text, labels=("kind", *_LOCAL, "resource"))
    budgets = quotas.budgets
    for owner in owners:
        namespace = owner.namespace if isinstance(owner, LocalQueue) else ""
        for balance in budgets.own(owner, moment):
            spent.add_metric((type(owner).__name__, owner.name, namespace, balance.resource), balance.share)
    return spent


def _weighted(share: Share) -> float:
    is_unlimited, value = share.order
    return math.nan if is_unlimited else value


def _limit(resource: str, limit: int | None) -> float:
    return math.inf if limit is None else in_units(resource, limit)
