"""What an edit of queues, priorities or clusters would change."""

from datetime import UTC, datetime
from typing import Any

import pytest

from slicebus.kube.resources import CLUSTERQUEUES, RESOURCEFLAVORS, WORKERCLUSTERS, WORKLOADPRIORITYCLASSES, Resource
from slicebus.manager.decide.forecast.difference import Effect, Fate, edited, effects
from slicebus.manager.state.store import ManagerStore
from slicebus.slices.api import api_names
from slicebus.slices.workload.workload import SliceKey
from unit.manager.objects import a_job, a_workload
from unit.manager.test_explain import a_store, an_object, of_another

Manifest = dict[str, Any]
MOMENT = datetime(2026, 6, 1, tzinfo=UTC)


def changes(store: ManagerStore, *edits: tuple[Resource, Manifest]) -> list[Effect]:
    return effects(store, edited(store, edits), moment=MOMENT)


def a_queue(store: ManagerStore, cores: int, **spec: Any) -> tuple[Resource, Manifest]:
    """The store's queue with so many cores."""
    queue = store.cluster_queues.get(None, "cq")
    assert queue is not None
    [group] = queue["spec"]["resourceGroups"]
    resources = [{"name": "cpu", "nominalQuota": str(cores)}, {"name": "memory", "nominalQuota": "1Gi"}]
    groups = [{**group, "flavors": [{"name": "spot", "resources": resources}]}]
    return CLUSTERQUEUES, {**queue, "spec": {**queue["spec"], "resourceGroups": groups, **spec}}


def running(count: int = 4, *more: Manifest, **how: Any) -> ManagerStore:
    return a_store(a_job(count), a_workload(count=count, admitted=count, dispatched=1, applied=1, **how), *more)


def waiting(name: str, count: int, *, priority: int = 0) -> Manifest:
    workload = of_another(name, count)
    workload["spec"]["priority"] = priority
    return workload


def test_more_quota_admits() -> None:
    store = running(4, waiting("w", 3), waiting("x", 9))
    [admitted] = changes(store, a_queue(store, 8))
    assert (admitted.fate, admitted.job, admitted.pods, admitted.cluster) == (
        Fate.ADMITTED,
        "Job/team/w",
        {"main": 3},
        "east",
    )
    assert not admitted.takes_pods


def test_an_edit_that_changes_nothing_has_no_effect() -> None:
    store = running(4, waiting("w", 3))
    assert changes(store, a_queue(store, 5)) == []
    assert changes(store, a_queue(store, 6)) == [], "another amount is no other reason"


def test_less_quota_evicts_nobody() -> None:
    store = running(4, waiting("w", 1))
    [waits] = changes(store, a_queue(store, 2))
    assert (waits.fate, waits.job, waits.before) == (Fate.WAITS, "Job/team/w", "")
    assert "insufficient unused quota" in waits.message


def test_a_policy_takes_pods_and_lets_somebody_in_later() -> None:
    store = running(4, waiting("w", 5, priority=9))
    lost, later = changes(store, a_queue(store, 5, preemption={"withinClusterQueue": "LowerPriority"}))
    assert (lost.fate, lost.job, lost.pods, lost.left, lost.reason) == (
        Fate.EVICTED,
        "Job/team/train",
        {"main": 4},
        {},
        "InClusterQueue",
    )
    assert lost.takes_pods
    assert (later.fate, later.job, later.pods, later.cluster) == (Fate.LATER, "Job/team/w", {"main": 5}, "east")


def test_some_pods_of_whoever_can_miss_them() -> None:
    willing = a_workload(count=4, admitted=4, dispatched=1, applied=1)
    willing["metadata"]["annotations"][api_names.MIN_SIZE_ANNOTATION] = "main=1"
    store = a_store(a_job(4), willing, waiting("w", 3, priority=9))
    shrunk, _ = changes(store, a_queue(store, 5, preemption={"withinClusterQueue": "LowerPriority"}))
    assert (shrunk.fate, shrunk.pods, shrunk.left) == (Fate.SHRUNK, {"main": 4}, {"main": 2})


def test_a_stopped_queue() -> None:
    store = running(4, waiting("w", 1))
    evicted, waits = changes(store, a_queue(store, 5, stopPolicy="HoldAndDrain"))
    assert (evicted.fate, evicted.job, evicted.reason) == (Fate.EVICTED, "Job/team/train", "ClusterQueueStopped")
    assert (waits.fate, waits.job) == (Fate.WAITS, "Job/team/w")


def test_a_drained_cluster() -> None:
    store = running(4)
    east = store.clusters.get(None, "east")
    assert east is not None
    [evicted] = changes(store, (WORKERCLUSTERS, {**east, "spec": {**east["spec"], "drain": True}}))
    assert (evicted.fate, evicted.job, evicted.cluster) == (Fate.EVICTED, "Job/team/train", "east")


@pytest.mark.parametrize(
    ("resource", "name", "told"),
    [
        (CLUSTERQUEUES, "cq", "ClusterQueue cq doesn't exist"),
        (WORKERCLUSTERS, "east", "there is no WorkerCluster"),
        (RESOURCEFLAVORS, "spot", "flavor spot not found"),
    ],
)
def test_an_object_that_goes(resource: Resource, name: str, told: str) -> None:
    store = running(4, waiting("w", 1))
    cache = store.cache_of(resource)
    assert cache is not None
    [manifest] = [each for each in cache.all() if each["metadata"]["name"] == name]
    [waits] = effects(store, edited(store, [], [(resource, manifest)]), moment=MOMENT)
    assert (waits.fate, waits.job, waits.before) == (Fate.WAITS, "Job/team/w", "")
    assert told in waits.message


def test_a_class_that_goes_leaves_its_value() -> None:
    store = running(4, first := waiting("w", 1))
    first["spec"] |= {"priority": 5, "priorityClassRef": {"kind": "WorkloadPriorityClass", "name": "a"}}
    store.workloads.put(first)
    store.priority_classes.put(an_object("a", {}, value=5))
    gone = store.priority_classes.all()
    after = edited(store, [], [(WORKLOADPRIORITYCLASSES, manifest) for manifest in gone])
    assert after.slices[SliceKey("team/w")].priority == 5


def test_another_value_of_a_class() -> None:
    store = running(4)
    high, low = waiting("high", 5), waiting("low", 5)
    for workload, name, value in ((high, "a", 5), (low, "b", 1)):
        workload["spec"] |= {"priority": value, "priorityClassRef": {"kind": "WorkloadPriorityClass", "name": name}}
        store.workloads.put(workload)
        store.priority_classes.put(an_object(name, {}, value=value))
    store.cluster_queues.put(a_queue(store, 9)[1] | {"metadata": {"name": "cq", "uid": "cq", "resourceVersion": "2"}})
    raised = {**an_object("b", {}), "value": 9}
    found = changes(store, (WORKLOADPRIORITYCLASSES, raised))
    assert [(each.fate, each.job) for each in found] == [(Fate.ADMITTED, "Job/team/low"), (Fate.WAITS, "Job/team/high")]


def test_the_store_stays_as_it_is() -> None:
    store = running(4, waiting("w", 3))
    before = [[*cache.all()] for _, cache in store.decides_by()]
    changes(store, a_queue(store, 9))
    assert [[*cache.all()] for _, cache in store.decides_by()] == before
