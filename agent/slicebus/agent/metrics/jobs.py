"""Counts what the agent does for its jobs, by what its store shows afterwards."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from slicebus.agent.state.store import AgentStore
from slicebus.decisions.table import FORGOTTEN
from slicebus.kube.cache import Change
from slicebus.slices.workload.ungate import is_gated


class JobMetrics:
    """Counts published requests, pods behind their gate, and pods that have lost it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter("slicebus_agent_scale_requests", "Scale requests published.", registry=registry)
        self._gated = Gauge("slicebus_gated_pods", "Pods that wait behind the gate for their grant.", registry=registry)
        self._ungated = Counter("slicebus_agent_ungated_pods", "Pods whose gate was removed.", registry=registry)

    def follow(self, store: AgentStore) -> None:
        """Count from now on."""
        store.published.observe(self._published)
        store.pods.subscribe(self._pod_changed)

    def _published(self, _: object, request: object) -> None:
        if request is not FORGOTTEN:
            self._requests.inc()

    def _pod_changed(self, change: Change) -> None:
        was_gated, gated = (pod is not None and is_gated(pod) for pod in (change.old, change.new))
        self._gated.inc(gated - was_gated)
        if was_gated and not gated and change.new is not None:
            self._ungated.inc()
