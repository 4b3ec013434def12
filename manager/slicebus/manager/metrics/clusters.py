"""Gauges of the fleet at the moment of a scrape, of what each WorkerCluster shows.

Only the first shard of a manager that leads has them: where nobody leads nobody knows, and a series that ends says so.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from slicebus.manager.state.store import ManagerStore
from slicebus.manager.state.worker_clusters import CONNECTED, is_true

_LABELS = ("cluster",)


class ClusterMetrics(Collector):
    """The gauges of the manager that leads, of the clusters in its fleet."""

    def __init__(self, store: ManagerStore) -> None:
        self._store = store

    def describe(self) -> Iterable[Metric]:
        """Describe nothing: otherwise the registry would collect when this is registered."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Every gauge of every accepted cluster; nothing of what a cluster has never reported."""
        connected = GaugeMetricFamily("slicebus_cluster_connected", "1 while the agent speaks, else 0.", labels=_LABELS)
        text = "When the last heartbeat came that the WorkerCluster shows: one in half a minute."
        heard = GaugeMetricFamily("slicebus_cluster_last_heartbeat_timestamp_seconds", text, labels=_LABELS)
        text = "The age of the oldest work that the agent has not done, by its last report."
        lag = GaugeMetricFamily("slicebus_cluster_lag_seconds", text, labels=_LABELS)
        text = "Jobs that are not at the newest order that the agent has, by its last report."
        behind = GaugeMetricFamily("slicebus_cluster_out_of_sync", text, labels=_LABELS)
        jobs = GaugeMetricFamily("slicebus_cluster_jobs", "Jobs on the cluster, by its last report.", labels=_LABELS)
        for cluster in self._store.clusters.all() if self._store.shards.own.index == 0 else ():
            if not cluster.get("spec", {}).get("accepted"):
                continue
            name, status = (cluster["metadata"]["name"],), cluster.get("status", {})
            connected.add_metric(name, is_true(cluster, CONNECTED))
            if at := status.get("lastHeartbeatTime"):
                heard.add_metric(name, datetime.fromisoformat(at).timestamp())
            for gauge, field in ((lag, "lagSeconds"), (behind, "outOfSync"), (jobs, "jobs")):
                if field in status:
                    gauge.add_metric(name, status[field])
        yield from (connected, heard, lag, behind, jobs)
