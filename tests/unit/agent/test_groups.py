"""The groups of a cluster are independent: pods of one that are going hold up no other, and keep their quota."""

from typing import Any

import pytest
from msgspec import structs

from slicebus.agent.decide.job import reconcile
from slicebus.agent.state import annotations
from slicebus.agent.state.annotations import PendingRequests
from slicebus.agent.state.views import JobKey, WorkerJobReading, WorkerView
from slicebus.decisions.commands import Patch, Publish, Remember
from slicebus.proto.messages import Counts, JobRef, ScaleRequest
from slicebus.slices.api import api_names, kueue
from slicebus.slices.workload.ungate import Pod
from unit.agent.objects import EAST, a_pod

Manifest = dict[str, Any]
REF = JobRef("ray.io/v1", "RayCluster", "team", "train", "manager-uid")
TEMPLATE = {"spec": {"containers": [{"name": "ray", "image": "i"}]}}
UNASKED = PendingRequests("worker-uid", 1, {"head": 1, "left": 4, "right": 1})
"""A request that was answered: four pods of one group, one of the other."""


def counts(left: int, right: int) -> Counts:
    return {"head": 1, "left": left, "right": right}


def a_cluster(wanted: Counts, granted: Counts, *, requested: PendingRequests | None, baseline: Counts | None) -> Any:
    at = annotations.job_metadata(REF, workload="w1", version=1, grant=granted)
    if requested is not None:
        at["annotations"][api_names.REQUESTED_ANNOTATION] = requested.to_annotation()
    if baseline is not None:
        at["annotations"][api_names.BASELINE_ANNOTATION] = annotations.encode_counts(baseline)
    groups = [
        {"groupName": name, "replicas": count, "template": TEMPLATE} for name, count in wanted.items() if name != "head"
    ]
    own = {"name": "train", "namespace": "team", "uid": "worker-uid", "resourceVersion": "10", "generation": 2}
    spec = {"headGroupSpec": {"template": TEMPLATE}, "workerGroupSpecs": groups}
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": own | at, "spec": spec}


def a_view(
    wanted: Counts,
    granted: Counts,
    running: Counts,
    *,
    requested: PendingRequests | None = UNASKED,
    baseline: Counts | None = None,
) -> WorkerView:
    """A cluster whose head runs, and so many pods of each group, terminating ones among them."""
    job = a_cluster(wanted, granted, requested=requested, baseline=baseline)
    pods = [a_pod(f"{name}-{index}", pod_set=name) for name, count in running.items() for index in range(count)]
    for pod in pods:
        labels = pod["metadata"]["labels"]
        pod["metadata"]["labels"] = {name: labels[name] for name in (kueue.POD_SET_LABEL, api_names.MANAGER_UID_LABEL)}
    key, found = JobKey("RayCluster", "team", "train"), tuple(map(Pod.from_manifest, pods))
    return seen(WorkerView(key=key, job=job, pods=found))


def seen(view: WorkerView) -> WorkerView:
    assert view.job is not None
    return structs.replace(view, reading=WorkerJobReading.from_manifest(view.job), scale_target=view.job)


def asked(view: WorkerView) -> list[Counts]:
    """The sizes that are published until nothing is left to do."""
    return [request.wanted for request in carried_out(view)[0]]


def carried_out(view: WorkerView) -> tuple[list[ScaleRequest], WorkerView]:
    """The requests, and the view after what was noted on the job."""
    published: list[ScaleRequest] = []
    while commands := reconcile.request(view, EAST):
        for command in commands:
            match command:
                case Publish(message=ScaleRequest() as request):
                    published.append(request)
                case Remember(value=value):
                    view = structs.replace(view, published=value)
                case Patch(body=dict() as body):
                    assert view.job is not None
                    metadata = view.job["metadata"]
                    noted = metadata["annotations"] | body["metadata"]["annotations"]
                    view = seen(structs.replace(view, job=view.job | {"metadata": metadata | {"annotations": noted}}))
    return published, view


@pytest.mark.parametrize(
    ("wanted", "running", "request_"),
    [
        (counts(4, 3), counts(4, 1), counts(4, 3)),
        (counts(2, 1), counts(4, 1), None),
        (counts(2, 1), counts(3, 1), None),
        (counts(2, 1), counts(2, 1), counts(2, 1)),
        (counts(2, 3), counts(4, 1), counts(4, 3)),
        (counts(2, 3), counts(3, 1), counts(3, 3)),
        (counts(2, 3), counts(2, 1), counts(2, 3)),
        (counts(2, 0), counts(4, 0), counts(4, 0)),
        (counts(2, 0), counts(4, 1), None),
    ],
    ids=[
        "one grows",
        "one shrinks, its pods run",
        "one shrinks, some of its pods have gone",
        "one shrinks, its pods have gone",
        "one grows while all pods of the other run",
        "one grows while some pods of the other run",
        "one grows, the pods of the other have gone",
        "one has shrunk while the pods of the other run",
        "both shrink",
    ],
)
def test_a_group_asks_whatever_the_other_does(wanted: Counts, running: Counts, request_: Counts | None) -> None:
    assert asked(a_view(wanted, counts(4, 1), running)) == ([] if request_ is None else [request_])


def test_the_lower_number_is_asked_for_when_the_pods_have_gone() -> None:
    view = a_view(counts(2, 3), counts(4, 1), counts(3, 1))
    [first], view = carried_out(view)
    assert (first.wanted, first.granted) == (counts(3, 3), counts(4, 1))
    [second], view = carried_out(structs.replace(view, pods=view.pods[:-2] + view.pods[-1:]))
    assert second.wanted == counts(2, 3)
    assert second.worker_generation > first.worker_generation
    assert carried_out(view)[0] == []


def test_no_quota_of_a_pod_that_runs_is_given_back() -> None:
    """The manager frees the quota of what is not asked for at once; the grant is lowered with the request."""
    _, view = carried_out(a_view(counts(0, 3), counts(4, 1), counts(3, 1)))
    assert view.reading is not None
    assert view.reading.granted == counts(3, 1)


def test_what_an_order_has_granted_since_is_given_back_by_group() -> None:
    answered = structs.replace(UNASKED, wanted=counts(2, 1))
    assert asked(a_view(counts(2, 1), counts(4, 3), counts(4, 1), requested=answered)) == [counts(4, 1)]
    assert asked(a_view(counts(2, 1), counts(4, 1), counts(4, 1), requested=answered)) == []


@pytest.mark.parametrize(
    ("baseline", "request_"),
    [(counts(2, 3), None), (counts(2, 1), counts(4, 3))],
    ids=["the manager's own size", "another size of the other group"],
)
def test_a_size_of_the_manager_is_not_asked_for_while_its_pods_are_going(
    baseline: Counts, request_: Counts | None
) -> None:
    """The worker would ask for the larger size again that the manager has just taken back."""
    overruled = structs.replace(UNASKED, wanted=counts(4, 3), overruled=True)
    view = a_view(counts(2, 3), counts(4, 1), counts(4, 1), requested=overruled, baseline=baseline)
    assert asked(view) == ([] if request_ is None else [request_])


def test_a_size_that_was_changed_back_is_asked_for_by_group() -> None:
    untold = a_view(counts(2, 1), counts(4, 1), counts(4, 1), requested=None, baseline=counts(2, 3))
    assert asked(untold) == [counts(4, 1)]
    assert asked(structs.replace(untold, pods=())) == [counts(2, 1)]


def test_pods_of_a_group_that_was_taken_out_keep_their_quota() -> None:
    view = a_view(counts(4, 1), counts(4, 1), counts(4, 1))
    assert view.job is not None
    spec = view.job["spec"]
    without_left = spec | {"workerGroupSpecs": spec["workerGroupSpecs"][1:]}
    changed = seen(structs.replace(view, job=view.job | {"spec": without_left}))
    assert asked(changed) == []
    assert asked(structs.replace(changed, pods=())) == [{"head": 1, "right": 1}]
