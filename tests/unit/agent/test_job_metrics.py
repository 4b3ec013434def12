"""What the agent does for its jobs is counted."""

from prometheus_client import CollectorRegistry

from slicebus.agent.metrics.jobs import JobMetrics
from slicebus.agent.state.store import AgentStore
from unit.agent.objects import a_pod


def test_pods_behind_the_gate_are_shown_and_those_that_lose_it_counted() -> None:
    store, registry = AgentStore(), CollectorRegistry()
    JobMetrics(registry).follow(store)

    def shown() -> tuple[float | None, float | None]:
        names = ("slicebus_gated_pods", "slicebus_agent_ungated_pods_total")
        gated, ungated = (registry.get_sample_value(name) for name in names)
        return gated, ungated

    for name in ("a", "b", "c"):
        store.pods.put(a_pod(name, gated=True))
    store.pods.put(a_pod("d"))
    assert shown() == (3, 0)
    store.pods.put(a_pod("a") | {"metadata": a_pod("a")["metadata"] | {"resourceVersion": "31"}})
    assert shown() == (2, 1)
    store.pods.remove(a_pod("b", gated=True))
    assert shown() == (1, 1), "a pod that goes has not lost its gate"
