"""A change makes dirty exactly those trees of quota that it can matter to."""

from collections.abc import Callable
from typing import Any

import pytest

from slicebus.manager.act.dirty_trees import DirtyTrees
from slicebus.manager.state.quota_trees import NOWHERE
from slicebus.manager.state.store import ManagerStore
from slicebus.slices.api import api_names
from slicebus.slices.api.api_names import NO_PLACE
from slicebus.slices.api.kueue import WAITING_FOR_PREEMPTED
from unit.manager.objects import a_workload, condition

Manifest = dict[str, Any]


def an_object(name: str, spec: Manifest, version: int = 1, **more: Any) -> Manifest:
    metadata = {"name": name, "uid": name, "resourceVersion": str(version)} | more.pop("metadata", {})
    return {"metadata": metadata, "spec": spec, **more}


def a_queue(name: str, cohort: str = "", version: int = 1) -> Manifest:
    return an_object(name, {"cohortName": cohort, "namespaceSelector": {}}, version)


def a_local_queue(name: str, queue: str, version: int = 1) -> Manifest:
    return an_object(name, {"clusterQueue": queue}, version, metadata={"namespace": "team"})


def waiting(queue: str, version: int = 1, **spec: Any) -> Manifest:
    workload = a_workload()
    workload["metadata"]["resourceVersion"] = str(version)
    workload["spec"] |= {"queueName": queue} | spec
    return workload


def a_cluster(version: int = 1, **status: Any) -> Manifest:
    return an_object("east", {"accepted": True}, version, status=status)


def a_store() -> ManagerStore:
    """Queues a and b in cohort `x`, c in `y`, and d alone; a LocalQueue for a and for d."""
    store = ManagerStore()
    for name, cohort in (("a", "x"), ("b", "x"), ("c", "y"), ("d", "")):
        store.cluster_queues.put(a_queue(name, cohort))
    store.cohorts.put(an_object("x", {}))
    store.local_queues.put(a_local_queue("for-a", "a"))
    store.local_queues.put(a_local_queue("for-d", "d"))
    store.workloads.put(waiting("for-a"))
    store.clusters.put(a_cluster())
    return store


CHANGES: dict[str, tuple[Callable[[ManagerStore], None], list[str] | None]] = {
    "a workload": (lambda store: store.workloads.put(waiting("for-a", 2, priority=7)), ["cohort/x"]),
    "a workload that goes": (lambda store: store.workloads.remove(waiting("for-a", 2)), ["cohort/x"]),
    "a workload that goes to another queue": (
        lambda store: store.workloads.put(waiting("for-d", 2)),
        ["cohort/x", "queue/d"],
    ),
    "a workload of a queue that is not there": (
        lambda store: store.workloads.put(waiting("nobody", 2)),
        ["cohort/x", NOWHERE],
    ),
    "a queue's quota": (lambda store: store.cluster_queues.put(a_queue("b", "x", 2)), ["cohort/x", NOWHERE]),
    "a queue that changes its cohort": (
        lambda store: store.cluster_queues.put(a_queue("b", "y", 2)),
        ["cohort/x", "cohort/y", NOWHERE],
    ),
    "a queue that goes": (lambda store: store.cluster_queues.remove(a_queue("d", "", 2)), [NOWHERE, "queue/d"]),
    "a cohort's quota": (lambda store: store.cohorts.put(an_object("x", {}, 2)), ["cohort/x", NOWHERE]),
    "a cohort that gets a parent": (
        lambda store: store.cohorts.put(an_object("x", {"parentName": "y"}, 2)),
        ["cohort/x", "cohort/y", NOWHERE],
    ),
    "a LocalQueue that points elsewhere": (
        lambda store: store.local_queues.put(a_local_queue("for-d", "c", 2)),
        ["cohort/y", NOWHERE, "queue/d"],
    ),
    "a flavor": (lambda store: store.flavors.put(an_object("spot", {})), None),
    "a namespace": (lambda store: store.namespaces.put(an_object("team", {})), None),
    "a cluster that connects": (
        lambda store: store.clusters.put(a_cluster(2, conditions=[condition("Connected")])),
        None,
    ),
}


@pytest.mark.parametrize(("change", "trees"), CHANGES.values(), ids=CHANGES.keys())
def test_what_is_due_after(change: Callable[[ManagerStore], None], trees: list[str] | None) -> None:
    store = a_store()
    dirty = DirtyTrees(store)
    assert dirty.take() is None, "a cluster was there: everything is dirty at first"
    change(store)
    assert dirty.pending.is_set()
    assert dirty.take() == trees
    assert not dirty.pending.is_set()
    assert dirty.take() == []


EDITED: dict[str, tuple[Callable[[ManagerStore], None], str, str]] = {
    "a queue's own quota": (lambda store: store.cluster_queues.put(a_queue("d", "x", 2)), "abd", ""),
    "a queue's place in a tree": (lambda store: store.cluster_queues.put(a_queue("b", "y", 2)), "abc", ""),
    "a queue that goes": (lambda store: store.cluster_queues.remove(a_queue("d", "", 2)), "d", ""),
    "a queue's status": (
        lambda store: store.cluster_queues.put(a_queue("a", "x", 2) | {"status": {"pendingWorkloads": 3}}),
        "",
        "",
    ),
    "a cohort's quota": (lambda store: store.cohorts.put(an_object("x", {"resourceGroups": []}, 2)), "ab", ""),
    "a LocalQueue that points elsewhere": (
        lambda store: store.local_queues.put(a_local_queue("for-d", "c", 2)),
        "cd",
        "",
    ),
    "a slice": (lambda store: store.workloads.put(waiting("for-a", 2, priority=7)), "", ""),
    "a cluster that is cordoned": (
        lambda store: store.clusters.put(an_object("east", {"accepted": True, "cordoned": True}, 2, status={})),
        "",
        "east",
    ),
    "a heartbeat": (lambda store: store.clusters.put(a_cluster(2, lastHeartbeat="2026-01-31T12:00:00Z")), "", ""),
}


@pytest.mark.parametrize(("change", "queues", "clusters"), EDITED.values(), ids=EDITED.keys())
def test_what_somebody_has_edited_since_it_was_taken(
    change: Callable[[ManagerStore], None], queues: str, clusters: str
) -> None:
    store = a_store()
    dirty = DirtyTrees(store)
    dirty.take()
    change(store)
    assert "".join(queue for queue in "abcd" if dirty.is_edited(queue, "west")) == queues
    assert [cluster for cluster in ("east", "west") if dirty.is_edited("nobody", cluster)] == clusters.split()
    dirty.take()
    assert not any(dirty.is_edited(queue, "east") for queue in "abcd")


def test_a_heartbeat_makes_no_tree_dirty() -> None:
    store = a_store()
    dirty = DirtyTrees(store)
    dirty.take()
    store.clusters.put(a_cluster(2, lastHeartbeat="2026-01-31T12:00:00Z"))
    assert not dirty.pending.is_set()


def test_a_dispatch_makes_no_tree_dirty() -> None:
    store = a_store()
    dirty = DirtyTrees(store)
    dirty.take()
    dispatched = waiting("for-a", 2)
    dispatched["metadata"]["annotations"][api_names.DISPATCHED_ANNOTATION] = '{"version": 1, "hash": "abc"}'
    store.workloads.put(dispatched)
    assert not dirty.pending.is_set()


def for_a_place(queue: str, reason: str = NO_PLACE) -> Manifest:
    """A workload that waits for room on a cluster."""
    workload = waiting(queue, 2)
    workload["status"] = {"conditions": [condition("QuotaReserved", False, reason)]}
    return workload


def running(version: int, count: int = 3, **status: Any) -> Manifest:
    """A workload of queue d that holds cores on east."""
    workload = a_workload("other", count, admitted=3)
    workload["metadata"] |= {"uid": "other", "resourceVersion": str(version)}
    workload["metadata"]["ownerReferences"][0]["uid"] = "other"
    workload["spec"]["queueName"] = "for-d"
    workload["status"]["admission"]["clusterQueue"] = "d"
    workload["status"] |= status
    return workload


def reporting(version: int, *, cpu: str = "8", used: str = "0") -> Manifest:
    room = {"capacity": {"default": {"cpu": cpu}}, "used": {"default": {"cpu": used}}, "ours": {}}
    return a_cluster(version, conditions=[condition("Connected")], **room)


ROOM: dict[str, tuple[Callable[[ManagerStore], None], list[str]]] = {
    "a node more": (lambda store: store.clusters.put(reporting(3, cpu="9")), ["cohort/x"]),
    "others use less": (lambda store: store.clusters.put(reporting(3, used="3")), ["cohort/x"]),
    "others use more": (lambda store: store.clusters.put(reporting(3, used="5")), []),
    "a job of another tree ends": (lambda store: store.workloads.remove(running(4)), ["cohort/x", "queue/d"]),
    "a job of another tree shrinks": (lambda store: store.workloads.put(running(4, 2)), ["cohort/x", "queue/d"]),
    "a job of another tree is as it was": (
        lambda store: store.workloads.put(running(4, conditions=[condition("PodsReady")])),
        ["queue/d"],
    ),
}


@pytest.mark.parametrize("reason", [NO_PLACE, WAITING_FOR_PREEMPTED])
@pytest.mark.parametrize(("change", "trees"), ROOM.values(), ids=ROOM.keys())
def test_what_waits_for_room_is_due_when_there_is_more(
    change: Callable[[ManagerStore], None], trees: list[str], reason: str
) -> None:
    store = a_store()
    store.clusters.put(reporting(2, used="4"))
    store.workloads.put(for_a_place("for-a", reason))
    store.workloads.put(running(3))
    dirty = DirtyTrees(store)
    dirty.take()
    change(store)
    assert dirty.take() == trees


def test_what_could_not_be_done_is_due_again_with_what_came_meanwhile() -> None:
    store = a_store()
    dirty = DirtyTrees(store)
    dirty.take()
    dirty.add(["queue/d"])
    store.workloads.put(waiting("for-a", 2, priority=7))
    assert dirty.take() == ["cohort/x", "queue/d"]
