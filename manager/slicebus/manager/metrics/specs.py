"""Measures how long the spec of an admitted slice takes to its worker."""

import asyncio

from prometheus_client import CollectorRegistry, Histogram

from slicebus.kube.cache import Cache, Change
from slicebus.manager.state.outbox import HOLDING, Outbox
from slicebus.proto.messages import Manifest

_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
"""Seconds."""


class SpecMetrics:
    """Measures from when a slice was admitted until its worker reported that it has the order.

    Only admissions that this process has seen count: the clock of another one is another clock.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._admitted_at: dict[tuple[str, str], float] = {}
        """The loop's time of each admission whose order is not applied, by the namespace and name of the Workload."""
        self._times = Histogram(
            "slicebus_spec_propagation_seconds",
            "From the admission of a slice until its worker reported its order as applied.",
            ["cluster"],
            buckets=_BUCKETS,
            registry=registry,
        )

    def follow(self, workloads: Cache) -> None:
        """Measure from now on."""
        workloads.subscribe(self._changed)

    def _changed(self, change: Change) -> None:
        new = change.new
        if new is None or not _has_quota(new):
            if change.old is not None:
                self._admitted_at.pop(_key(change.old), None)
            return
        if change.old is not None and not _has_quota(change.old):
            self._admitted_at[_key(new)] = asyncio.get_running_loop().time()
        if _key(new) in self._admitted_at:
            outbox = Outbox.from_manifest(new)
            if outbox is not None and outbox.state() == HOLDING:
                took_s = asyncio.get_running_loop().time() - self._admitted_at.pop(_key(new))
                self._times.labels(outbox.record.cluster).observe(took_s)


def _key(workload: Manifest) -> tuple[str, str]:
    return workload["metadata"]["namespace"], workload["metadata"]["name"]


def _has_quota(workload: Manifest) -> bool:
    return bool(workload.get("status", {}).get("admission"))
