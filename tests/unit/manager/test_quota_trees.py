"""When a part of the quota has nothing to decide."""

from collections.abc import Callable
from typing import Any

import pytest

from slicebus.manager.decide import catalog
from slicebus.manager.state.quota_trees import NOWHERE
from slicebus.manager.state.store import ManagerStore
from slicebus.slices.admission.cycle import Evict
from slicebus.slices.api import kueue
from unit.manager.objects import a_workload

Manifest = dict[str, Any]


def an_object(kind: str, name: str, spec: Manifest, namespace: str = "") -> Manifest:
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1"}
    return {
        "apiVersion": kueue.API_VERSION,
        "kind": kind,
        "metadata": metadata | ({"namespace": namespace} if namespace else {}),
        "spec": spec,
    }


def a_store(*workloads: Manifest, stop: str = "None", stop_local: str = "None") -> ManagerStore:
    """LocalQueue `queue` names ClusterQueue `cq`; another tree is not used."""
    store = ManagerStore()
    for name in ("cq", "other"):
        store.cluster_queues.put(an_object("ClusterQueue", name, {"stopPolicy": stop, "resourceGroups": []}))
    store.local_queues.put(an_object("LocalQueue", "queue", {"clusterQueue": "cq", "stopPolicy": stop_local}, "team"))
    for workload in workloads:
        store.workloads.put(workload)
    return store


def inactive(workload: Manifest) -> Manifest:
    return workload | {"spec": workload["spec"] | {"active": False}}


SINCE = "2026-01-01T00:00:00Z"
RUNS, WAITS = a_workload("w1", admitted=1), a_workload("w2")
STATES: dict[str, tuple[Callable[[], ManagerStore], bool]] = {
    "nobody": (a_store, True),
    "everybody has what he wants": (lambda: a_store(RUNS), True),
    "somebody waits": (lambda: a_store(RUNS, WAITS), False),
    "somebody who waits is deactivated": (lambda: a_store(inactive(WAITS)), False),
    "somebody who has quota is deactivated": (lambda: a_store(inactive(RUNS)), False),
    "the queue is drained": (lambda: a_store(RUNS, stop="HoldAndDrain"), False),
    "the local queue is drained": (lambda: a_store(RUNS, stop_local="HoldAndDrain"), False),
    "the queue is held": (lambda: a_store(RUNS, stop="Hold"), True),
}


@pytest.mark.parametrize(("made", "settled"), STATES.values(), ids=STATES.keys())
def test_whether_there_is_anything_to_decide(made: Callable[[], ManagerStore], settled: bool) -> None:
    store = made()
    assert store.quotas.is_settled(None) is settled
    assert store.quotas.is_settled(["queue/cq"]) is settled
    decided = catalog.cycle(store, trees=None, preemption_cycles_since=SINCE)
    assert bool(decided) is not settled


def test_who_is_deactivated_with_quota_of_a_deleted_queue_is_evicted_with_what_has_no_queue() -> None:
    store = a_store(inactive(RUNS))
    store.cluster_queues.remove(store.cluster_queues.get(None, "cq") or {})
    decided = catalog.cycle(store, trees=[NOWHERE], preemption_cycles_since=SINCE)
    assert [decision.key for decision in decided if isinstance(decision, Evict)] == ["team/w1"]


def test_waiting_in_another_tree_is_no_reason() -> None:
    assert a_store(WAITS).quotas.is_settled(["queue/other"])


def test_who_was_active_again_is_forgotten() -> None:
    store = a_store(inactive(RUNS))
    store.workloads.put(RUNS | {"metadata": RUNS["metadata"] | {"resourceVersion": "30"}})
    assert store.quotas.is_settled(None)
