"""Counts what the agent does for its jobs, by what its store shows afterwards."""

from prometheus_client import CollectorRegistry, Counter

from slicebus.agent.state.store import AgentStore
from slicebus.decisions.table import FORGOTTEN
from slicebus.kube.cache import Change
from slicebus.slices.workload.ungate import is_gated


class JobMetrics:
    """Counts published requests, and pods that have lost their gate."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter("slicebus_agent_scale_requests", "Scale requests published.", registry=registry)
        self._ungated = Counter("slicebus_agent_ungated_pods", "Pods whose gate was removed.", registry=registry)

    def follow(self, store: AgentStore) -> None:
        """Count from now on."""
        store.published.observe(self._published)
        store.pods.subscribe(self._pod_changed)

    def _published(self, _: object, request: object) -> None:
        if request is not FORGOTTEN:
            self._requests.inc()

    def _pod_changed(self, change: Change) -> None:
        if change.old is not None and change.new is not None and is_gated(change.old) and not is_gated(change.new):
            self._ungated.inc()
