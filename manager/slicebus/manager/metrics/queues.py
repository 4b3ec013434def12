"""Gauges of the queues at the moment of a scrape, under Kueue's names and labels.

They are computed from the caches at each scrape, so a deleted queue leaves no series. Source: Kueue v0.19.2,
`pkg/metrics`.
"""

import math
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from slicebus.manager.state.quota_trees import Quotas
from slicebus.manager.state.store import ManagerStore
from slicebus.slices.admission.sharing import FairSharing, Share, share
from slicebus.slices.api.quantities import in_units
from slicebus.slices.quota.cohorts import Forest, grow
from slicebus.slices.quota.quota import ClusterQueue, Usage, keys_by_cluster_queue
from slicebus.slices.workload.workload_counts import SliceState

_QUEUE = ("cluster_queue",)
_RESOURCE = ("cohort", "cluster_queue", "flavor", "resource")


class QueueMetrics(Collector):
    """The gauges of the manager that leads, of the queues that it has."""

    def __init__(self, store: ManagerStore) -> None:
        self._store = store

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
        yield from _resources(queues, usage)
        if self._store.settings.fair_sharing is not FairSharing.OFF:
            yield from _shares(grow(queues, cohorts, usage))


def _workloads(quotas: Quotas, queues: Iterable[ClusterQueue]) -> Iterator[Metric]:
    workload_counts, members = quotas.ledger.workload_counts, keys_by_cluster_queue(quotas.local_queues.values())
    pending = GaugeMetricFamily("kueue_pending_workloads", "Workloads that wait.", labels=(*_QUEUE, "status"))
    reserving = GaugeMetricFamily("kueue_reserving_active_workloads", "Workloads with quota.", labels=_QUEUE)
    admitted = GaugeMetricFamily("kueue_admitted_active_workloads", "Admitted workloads.", labels=_QUEUE)
    for queue in (queue.name for queue in queues):
        counted = workload_counts.total(members.get(queue, ()))
        pending.add_metric((queue, "active"), counted[SliceState.PENDING] - counted[SliceState.INADMISSIBLE])
        pending.add_metric((queue, "inadmissible"), counted[SliceState.INADMISSIBLE])
        reserving.add_metric((queue,), counted[SliceState.RESERVING])
        admitted.add_metric((queue,), counted[SliceState.ADMITTED])
    yield from (pending, reserving, admitted)


def _resources(queues: Iterable[ClusterQueue], used: Mapping[str, Usage]) -> Iterator[Metric]:
    usage = GaugeMetricFamily("kueue_cluster_queue_resource_usage", "What is used.", labels=_RESOURCE)
    nominal = GaugeMetricFamily("kueue_cluster_queue_nominal_quota", "The nominal quota.", labels=_RESOURCE)
    borrowing = GaugeMetricFamily("kueue_cluster_queue_borrowing_limit", "+Inf without one.", labels=_RESOURCE)
    lending = GaugeMetricFamily("kueue_cluster_queue_lending_limit", "+Inf without one.", labels=_RESOURCE)
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
    text = "What is borrowed of what could be, in thousandths, divided by the weight."
    of_queues = GaugeMetricFamily("kueue_cluster_queue_weighted_share", text, labels=("cluster_queue", "cohort"))
    of_cohorts = GaugeMetricFamily("kueue_cohort_weighted_share", text, labels=("cohort",))
    for node in forest.queues.values():
        of_queues.add_metric((node.name, node.parent.name if node.parent else ""), _weighted(share(node)))
    for node in forest.cohorts.values():
        of_cohorts.add_metric((node.name,), _weighted(share(node)))
    yield from (of_queues, of_cohorts)


def _weighted(share: Share) -> float:
    is_unlimited, value = share.order
    return math.nan if is_unlimited else value


def _limit(resource: str, limit: int | None) -> float:
    return math.inf if limit is None else in_units(resource, limit)
