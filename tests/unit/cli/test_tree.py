"""`slicebus tree`: a job's slices, its copies on worker clusters, and their pods."""

from typing import Any

import pytest

from slicebus.cli.jobs.tree import TreeNode, WorkerSide, belonging, pod_state, tree_of
from slicebus.proto.messages import ClusterName
from slicebus.slices.api import api_names, kueue
from unit.manager.objects import EAST, REF, a_job, a_workload, asking, condition
from unit.manager.test_explain import a_store
from unit.manager.test_pod_problems import NO_NODE, SHOWN

Manifest = dict[str, Any]
Short = tuple[str, str, str, list[Any]]


def short(node: TreeNode) -> Short:
    return node.kind, node.name, node.state, [short(child) for child in node.children]


def a_pod(name: str, *, gated: bool = False, ready: bool = False, **metadata: Any) -> Manifest:
    return {
        "metadata": {"name": name, "labels": {"batch.kubernetes.io/job-name": "train", kueue.POD_SET_LABEL: "main"}}
        | metadata,
        "spec": {"schedulingGates": [{"name": kueue.ELASTIC_GATE}]} if gated else {"nodeName": "node-1"},
        "status": {"phase": "Running", "conditions": [condition("Ready", ready)]},
    }


def the_tree(*workloads: Manifest, wanted: int = 1, **sides: WorkerSide) -> TreeNode:
    store = a_store(asking(1, wanted) if wanted > 1 else a_job(1), *workloads)
    return tree_of(store.view(REF), {ClusterName(name): side for name, side in sides.items()})


RUNS = a_workload(admitted=1, dispatched=1, applied=1, conditions=(condition("PodsReady"),))


def test_what_the_manager_knows() -> None:
    grown = a_workload("w2", 3, replaces="w1")
    assert short(the_tree(RUNS, grown, wanted=3)) == (
        "Job",
        "team/train",
        "Resizing",
        [
            ("Workload", "w1", "Admitted", []),
            ("Workload", "w2", "Pending", []),
            ("Copy", "east", "as ordered", [("Pods", "by its report", "1 of 1 ready", [])]),
        ],
    )


def test_the_pods_of_a_worker() -> None:
    side = WorkerSide(a_job(2), [a_pod("train-b", gated=True), a_pod("train-a", ready=True)])
    *_, copy = the_tree(RUNS, east=side).children
    assert [short(pod) for pod in copy.children] == [("Pod", "train-a", "Ready", []), ("Pod", "train-b", "Gated", [])]
    assert copy.children[0].detail.startswith("main, node-1, ")


@pytest.mark.parametrize(
    ("side", "told"),
    [
        (WorkerSide(None, ()), ("Job", "train", "is not there", [])),
        (WorkerSide(None, (), "refused"), ("Pods", "unknown", "refused", [])),
    ],
)
def test_a_worker_without_the_copy(side: WorkerSide, told: Short) -> None:
    *_, copy = the_tree(RUNS, east=side).children
    assert [short(child) for child in copy.children] == [told]


def test_an_order_that_is_not_reported_yet() -> None:
    *_, copy = the_tree(a_workload(admitted=1, dispatched=3, applied=2)).children
    assert (copy.name, copy.state, copy.detail) == (EAST, "ordered, and not reported yet", "version 3, 2 is reported")


def test_why_pods_do_not_run() -> None:
    job = a_job(1, annotations={api_names.WAITING_ANNOTATION: SHOWN.to_annotation()})
    view = a_store(job, a_workload(admitted=1, dispatched=1, applied=1)).view(REF)
    known = tree_of(view, {}).children[-1].children[0]
    assert known.state == "1 granted"
    assert known.detail == f"pods of main do not run: Unschedulable: {NO_NODE.message}; --worker shows each"
    refused = condition("PodScheduled", False, "Unschedulable", NO_NODE.message)
    pod = a_pod("train-a") | {"status": {"phase": "Pending", "conditions": [refused]}}
    [shown] = tree_of(view, {EAST: WorkerSide(a_job(1), [pod])}).children[-1].children
    assert shown.state == "Pending"
    assert shown.detail.endswith(f", Unschedulable: {NO_NODE.message}")


def test_a_silent_cluster() -> None:
    node = tree_of(a_store(a_job(1), RUNS).view(REF), {}, is_reached=False)
    assert node.state == "Unknown"
    assert node.children[-1].detail == "version 1; the cluster is silent: what it does is not known"


@pytest.mark.parametrize(
    ("pod", "state"),
    [
        (a_pod("a", gated=True), "Gated"),
        (a_pod("a", ready=True), "Ready"),
        (a_pod("a"), "Running"),
        (a_pod("a", ready=True, deletionTimestamp="2026-01-01T00:00:00Z"), "Ending"),
        ({"metadata": {"name": "a"}, "spec": {}}, "Pending"),
    ],
)
def test_the_state_of_a_pod(pod: Manifest, state: str) -> None:
    assert pod_state(pod) == state


def test_pods_belong_by_the_labels_of_any_selector() -> None:
    pods = [a_pod("a"), a_pod("b", labels={"x": "y"}), a_pod("c", labels={})]
    assert [pod["metadata"]["name"] for pod in belonging(pods, [{"x": "y"}, {kueue.POD_SET_LABEL: "main"}])] == [
        "a",
        "b",
    ]
