"""Granted pods that wait for the places of terminating pods say so, on both sides, until these have gone."""

from typing import Any

import pytest
from msgspec import structs

from slicebus.agent.decide import catalog
from slicebus.agent.decide.job import reconcile, waiting
from slicebus.agent.decide.pods import terminating_pods
from slicebus.agent.state.store import AgentStore
from slicebus.agent.state.views import JobKey, WorkerView
from slicebus.decisions.commands import Emit, Patch, Requeue
from slicebus.kube.resources import JOBS, PODS, WORKLOADS
from slicebus.proto.messages import Manifest, Waits
from slicebus.slices.workload.waiting import PODS_TERMINATING, Waiting
from unit.agent.objects import KEY, NOW, a_copy, a_job, a_pod, a_view

DUE = "2026-01-31T11:58:00Z"
ENDS = terminating_pods._ENDS
ONE = f"1 granted pod stays gated, as 1 terminating pod has its place: on node n1. {ENDS}"


def going(name: str, *, due: str = DUE, node: str | None = "n1", **how: Any) -> Manifest:
    pod = a_pod(name, **how)
    placed = {"nodeName": node} if node else {}
    return pod | {"metadata": pod["metadata"] | {"deletionTimestamp": due}, "spec": pod["spec"] | placed}


def gated(name: str) -> Manifest:
    return a_pod(name, gated=True, others=(), phase="Pending")


def view_of(*pods: Manifest, granted: int = 2, shown: Waiting | None = None, **how: Any) -> WorkerView:
    """A Job that wants as many pods as it was granted."""
    job = a_job(granted, granted=granted, baseline=granted, **how)
    job["metadata"]["annotations"] |= {"slicebus.dev/waiting": shown.to_annotation()} if shown else {}
    return a_view(job, a_copy(linked="worker-uid"), pods=pods)


def text_of(view: WorkerView) -> str | None:
    found = terminating_pods.problem(view, now=NOW)
    return found[0].message if found is not None else None


RUNS = a_pod("r", ready=True)
TOLD: dict[str, tuple[WorkerView, str | None]] = {
    "one": (view_of(RUNS, going("p"), gated("q")), ONE),
    "several": (
        view_of(*(going(name, node=f"n{name}") for name in "abcd"), *map(gated, "efgh"), granted=4),
        "4 granted pods stay gated, as 4 terminating pods have their places: "
        f"on node na, on node nb, on node nc, …. {ENDS}",
    ),
    "more than wait": (
        view_of(going("a"), going("b"), gated("c")),
        f"1 granted pod stays gated, as 2 terminating pods have its place: on node n1. {ENDS}",
    ),
    "one without a node": (view_of(RUNS, going("p", node=None), gated("q")), ONE.replace("node n1", "no node")),
    "one of two that has had its time": (
        view_of(going("a"), going("b", due="2026-01-31T11:59:30Z"), gated("c"), gated("d")),
        ONE,
    ),
    "one that was to go a moment ago": (view_of(RUNS, going("p", due="2026-01-31T11:59:01Z"), gated("q")), None),
    "one that is to go": (view_of(RUNS, going("p", due="2026-01-31T12:05:00Z"), gated("q")), None),
    "one whose time nobody can read": (view_of(RUNS, going("p", due="soon"), gated("q")), None),
    "one that nobody waits for": (view_of(RUNS, going("p")), None),
    "one that has ended": (view_of(RUNS, going("p", phase="Succeeded"), gated("q")), None),
    "one of another pod set": (view_of(RUNS, RUNS, going("p", pod_set="other"), gated("q")), None),
    "one that was not granted": (view_of(going("a"), RUNS, RUNS, gated("q")), None),
    "pods that go too": (view_of(RUNS, going("p"), going("q", gated=True, others=())), None),
    "a suspended job": (view_of(RUNS, going("p"), gated("q"), suspended=True), None),
}


@pytest.mark.parametrize(("view", "text"), TOLD.values(), ids=TOLD.keys())
def test_what_keeps_granted_pods_gated_is_told(view: WorkerView, text: str | None) -> None:
    assert text_of(view) == text


STUCK = RUNS, going("p"), gated("q")
SHOWN = Waiting.of({"main": 2}, {"main": 2}, reason=PODS_TERMINATING, message=ONE, since=DUE)


def test_it_is_shown_with_one_event_and_told_to_the_manager() -> None:
    view = view_of(*STUCK)
    assert reconcile.ungate(view) == [], "a terminating pod may run on"
    patch, event = waiting.reconcile(view, now=NOW)
    assert isinstance(patch, Patch)
    assert isinstance(patch.body, dict)
    assert Waiting.from_manifest(patch.body) == SHOWN
    assert isinstance(event, Emit)
    assert (event.reason, event.note) == (PODS_TERMINATING, ONE)
    shown = view_of(*STUCK, shown=SHOWN)
    assert waiting.reconcile(shown, now="2026-01-31T13:00:00Z") == [], "nothing is said twice"
    assert shown.reading is not None
    told = Waits(wanted=SHOWN.wanted, reason=PODS_TERMINATING, message=ONE, since=DUE)
    assert waiting.reported(shown, shown.reading) == told


def test_another_node_is_news() -> None:
    other = structs.replace(SHOWN, message=ONE.replace("n1", "pool-x7k2p"))
    view = view_of(RUNS, going("p", node="pool-9bvw4"), gated("q"), shown=other)
    [patch] = waiting.reconcile(view, now=NOW)
    assert isinstance(patch, Patch)


def test_it_goes_when_the_place_is_free() -> None:
    view = view_of(RUNS, gated("q"), shown=SHOWN)
    assert reconcile.ungate(view)
    [patch] = waiting.reconcile(view, now=NOW)
    assert isinstance(patch, Patch)
    assert patch.body == {"metadata": {"annotations": {"slicebus.dev/waiting": None}}}


def delays(*pods: Manifest, **how: Any) -> list[float]:
    return [one.delay_s for one in terminating_pods.requeue_after(view_of(*pods, **how), now=NOW)]  # type: ignore[union-attr]


def test_the_job_is_looked_at_again_when_a_pod_has_had_its_time() -> None:
    assert delays(RUNS, going("p", due="2026-01-31T11:59:30Z"), gated("q")) == [31.0]
    assert delays(going("p", due="2026-01-31T12:00:30Z"), going("o", due="2026-01-31T12:01:00Z"), gated("q")) == [91.0]
    assert delays(*STUCK) == []
    assert delays(RUNS, going("p", due="2026-01-31T12:00:30Z")) == []
    assert delays(RUNS, going("p", due="2026-01-31T12:00:30Z"), gated("q"), suspended=True) == []


def test_a_pod_that_turns_terminating_has_its_job_reconciled() -> None:
    """One may wait for its place already: nothing else would say for how long."""
    store = AgentStore()
    cache = store.cache_of(PODS)
    assert cache is not None
    cache.put(RUNS)
    changed: list[JobKey] = []
    store.on_change(changed.append)
    changed.clear()
    cache.put(RUNS | {"metadata": RUNS["metadata"] | {"resourceVersion": "31"}})
    assert changed == []
    cache.put(RUNS | {"metadata": RUNS["metadata"] | {"resourceVersion": "32", "deletionTimestamp": DUE}})
    assert KEY in changed


def test_the_agent_waits_for_that_time() -> None:
    store = AgentStore()
    view = view_of(*STUCK)
    [copy] = view.copies
    for resource, manifest in ((JOBS, view.job), (WORKLOADS, copy), *((PODS, pod.manifest) for pod in view.pods)):
        store.cache_of(resource).put(manifest)  # type: ignore[union-attr, arg-type]
    work = catalog.reconcile_job(store, key=KEY, fenced=False, now_s=0.0, now="2026-01-31T11:58:10Z")
    assert 51.0 in [command.delay_s for command in work.commands if isinstance(command, Requeue)]
