"""When a part of the quota has nothing to decide, and who waits in it."""

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import pytest

from slicebus.manager.decide import catalog
from slicebus.manager.state.quota_trees import NOWHERE
from slicebus.manager.state.store import ManagerStore
from slicebus.slices.admission.cycle import Admit, Evict
from slicebus.slices.admission.lines import FRONT, shown_by
from slicebus.slices.api import kueue
from slicebus.slices.workload.workload import Admission, Slice, SliceKey
from support.lines import in_lines, one_by_one
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


def changed(random: Random, store: ManagerStore) -> None:
    """One of twelve Workloads of eight jobs comes, changes or goes."""
    number = random.randrange(12)
    before = store.workloads.get("team", f"w{number}")
    if before is not None and random.random() < 0.3:
        store.workloads.remove(before)
        return
    admitted = random.choice((None, None, None, 1))
    shown = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": random.choice("ab")}
    workload = a_workload(
        f"w{number}", random.choice((1, 2)), admitted=admitted, conditions=() if admitted else (shown,)
    )
    workload["metadata"]["ownerReferences"][0]["uid"] = f"job-{number % 8}"
    workload["metadata"]["resourceVersion"] = str(random.randrange(1_000_000))
    if random.random() < 0.2:
        workload["metadata"]["annotations"][kueue.REPLACEMENT_FOR_ANNOTATION] = "team/w1"
    store.workloads.put(inactive(workload) if random.random() < 0.1 else workload)


@pytest.mark.parametrize("seed", range(20))
def test_lines_have_everybody_who_waits_as_he_is(seed: int) -> None:
    random, store = Random(seed), a_store()
    for _ in range(60):
        changed(random, store)
        whole, lined = store.quotas.snapshot(None, {}), store.quotas.snapshot(None, {}, in_lines=True)
        assert by_key(one_by_one(lined).part.waiting) == by_key(whole.part.waiting)
        fresh = in_lines(whole, front=FRONT)
        assert by_key(lined.part.waiting) == by_key(fresh.part.waiting)
        assert [(each.line.members, each.start) for each in lined.behind] == [
            (each.line.members, each.start) for each in fresh.behind
        ]
        for those in lined.behind:
            others = {slice.key for _, slice in those.line.not_showing(("Pending", "a"))}
            assert others == {slice.key for slice in those.line.members if shown_by(slice) != ("Pending", "a")}


def test_who_was_admitted_without_an_answer_is_in_no_line() -> None:
    store = a_store()
    for number in range(6):
        workload = a_workload(f"w{number}")
        workload["metadata"]["ownerReferences"][0]["uid"] = f"job-{number}"
        store.workloads.put(workload)
    admission = Admission(cluster_queue="cq", pod_sets=())
    assumed = {SliceKey("team/w4"): Admit(key=SliceKey("team/w4"), admission=admission, cluster="east")}
    snapshot = store.quotas.snapshot(None, assumed, in_lines=True)
    assert [slice.name for slice in one_by_one(snapshot).part.waiting] == ["w0", "w1", "w2", "w3", "w5"]
    assert [len(each.line.members) for each in snapshot.behind] == [5]
    assert snapshot.part.holdings.holder("team/job-4") is not None


def by_key(slices: Iterable[Slice]) -> list[Slice]:
    return sorted(slices, key=lambda slice: slice.key)
