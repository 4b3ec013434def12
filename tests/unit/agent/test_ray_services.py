"""A RayService that is being upgraded: what its two clusters want together, and whose pods start first."""

from typing import Any

import pytest
from msgspec import structs

from slicebus.agent.decide.job import reconcile
from slicebus.agent.decide.order import order_sizes
from slicebus.agent.state import annotations
from slicebus.agent.state.store import AgentStore
from slicebus.agent.state.views import JobKey, WorkerJobReading, WorkerView
from slicebus.decisions.commands import Patch
from slicebus.kube.resources import RAYCLUSTERS, RAYSERVICES
from slicebus.proto.messages import JobRef, WorkloadSpec
from slicebus.slices.api import api_names, kueue
from slicebus.slices.workload.ungate import Pod
from unit.agent.objects import EAST, a_copy, a_pod
from unit.agent.test_ray_pods import WORKERS, a_spec, an_object

Manifest = dict[str, Any]
KEY = JobKey("RayService", "team", "chat")
REF = JobRef("ray.io/v1", "RayService", "team", "chat", "manager-uid")


def a_view(*clusters: tuple[str, Manifest], granted: dict[str, int], pods: tuple[Manifest, ...] = ()) -> WorkerView:
    """A service with these clusters, the one that serves first."""
    at = annotations.job_metadata(REF, workload="w1", version=1, grant=granted)
    job = an_object("RayService", "chat", {"rayClusterConfig": a_spec()}, **at)
    serves, *beside = [an_object("RayCluster", name, spec) for name, spec in clusters]
    return WorkerView(
        key=KEY,
        job=job,
        reading=WorkerJobReading.from_manifest(job),
        scale_target=serves,
        beside=tuple(beside),
        copies=(a_copy(of=REF, pod_sets=("head", WORKERS)),),
        pods=tuple(map(Pod.from_manifest, pods)),
    )


def a_worker(name: str, *, of: str, gated: bool = True) -> Manifest:
    pod = a_pod(name, gated=gated, phase="Pending" if gated else "Running")
    pod["metadata"]["labels"] = {kueue.POD_SET_LABEL: WORKERS, api_names.MANAGER_UID_LABEL: REF.uid}
    owner = {"kind": "RayCluster", "name": of, "uid": f"uid-{of}", "controller": True}
    pod["metadata"]["ownerReferences"] = [owner]
    return pod


def started(view: WorkerView) -> list[str]:
    return [patch.target["metadata"]["name"] for command in reconcile.ungate(view) for patch in command.patches]  # type: ignore[attr-defined]


def test_the_cluster_that_serves_is_the_scale_target_and_the_next_is_beside_it() -> None:
    store = AgentStore()
    status = {"pendingServiceStatus": {"rayClusterName": "next"}, "activeServiceStatus": {"rayClusterName": "now"}}
    at = annotations.job_metadata(REF, workload="w1", version=1, grant={})
    service = an_object("RayService", "chat", {"rayClusterConfig": a_spec()}, **at) | {"status": status}
    store.cache_of(RAYSERVICES).put(service)  # type: ignore[union-attr]
    assert store.view(KEY).scale_targets == ()
    for name, replicas in (("next", 3), ("now", 2)):
        store.cache_of(RAYCLUSTERS).put(an_object("RayCluster", name, a_spec(replicas=replicas, named=(name,))))  # type: ignore[union-attr]
    view = store.view(KEY)
    assert [each["metadata"]["name"] for each in view.scale_targets] == ["now", "next"]
    assert view.counts == view.desired == {"head": 2, WORKERS: 5}
    assert view.named_for_deletion == {"now", "next"}


def test_an_upgrade_asks_for_both() -> None:
    view = a_view(("now", a_spec(replicas=2)), ("next", a_spec(replicas=2)), granted={"head": 1, WORKERS: 2})
    [note] = reconcile.request(view, EAST)
    assert isinstance(note, Patch)
    assert isinstance(note.body, dict)
    asked = annotations.PendingRequests.from_job(note.body)
    assert asked is not None
    assert (asked.worker_uid, asked.wanted) == ("uid-now", {"head": 2, WORKERS: 4})


@pytest.mark.parametrize(
    ("own", "is_beside", "is_due"),
    [
        ({"head": 1, WORKERS: 2}, True, True),
        ({"head": 1, WORKERS: 1}, True, False),
        ({"head": 1, WORKERS: 2}, False, False),
    ],
    ids=["the one that serves has it", "it is about to have it", "no upgrade"],
)
def test_an_upgrade_is_asked_for_again_where_the_manager_has_a_size_of_its_own_in_place_of_it(
    own: dict[str, int], is_beside: bool, is_due: bool
) -> None:
    """The manager's size is that of one cluster: what the other one needs was asked for with what it overrules."""
    clusters = [("now", a_spec(replicas=2)), ("next", a_spec(replicas=2))][: 1 + is_beside]
    wanted = {"head": len(clusters), WORKERS: 2 * len(clusters)}
    view = a_view(*clusters, granted={"head": 1, WORKERS: 2})
    assert view.job is not None
    assert view.scale_target is not None
    target = view.scale_target["metadata"]
    said = annotations.PendingRequests(target["uid"], target["generation"], wanted, overruled=True)
    view.job["metadata"]["annotations"] |= {
        api_names.REQUESTED_ANNOTATION: said.to_annotation(),
        api_names.BASELINE_ANNOTATION: annotations.encode_counts(own),
    }
    view = structs.replace(view, reading=WorkerJobReading.from_manifest(view.job))
    notes = [command for command in reconcile.request(view, EAST) if isinstance(command, Patch)]
    asked = [annotations.PendingRequests.from_job(note.body) for note in notes if isinstance(note.body, dict)]
    assert [one.wanted for one in asked if one is not None] == ([wanted] if is_due else [])


def with_group(spec: Manifest, name: str) -> Manifest:
    [group] = spec["workerGroupSpecs"]
    return spec | {"workerGroupSpecs": [group, group | {"groupName": name}]}


def test_a_group_that_was_taken_back_where_it_was_added_goes_with_its_cluster() -> None:
    """KubeRay adds it in place, and prepares another cluster when it is removed."""
    granted = {"head": 1, WORKERS: 1}
    more = with_group(a_spec(), "more")
    assert a_view(("now", more), granted=granted).counts == granted | {"more": 1}, "it is told"
    assert a_view(("now", more), ("next", a_spec()), granted=granted).counts == {"head": 2, WORKERS: 2}
    assert a_view(("now", more), ("next", a_spec()), granted=granted | {"more": 1}).counts["more"] == 1


@pytest.mark.parametrize(("granted", "names"), [(1, []), (2, ["z"]), (3, ["z", "a"])])
def test_what_the_old_cluster_makes_anew_starts_before_the_new_cluster(granted: int, names: list[str]) -> None:
    pods = (a_worker("a", of="next"), a_worker("z", of="now"), a_worker("runs", of="now", gated=False))
    view = a_view(("now", a_spec()), ("next", a_spec()), granted={WORKERS: granted}, pods=pods)
    assert started(view) == names


def test_what_a_cluster_that_is_neither_has_left_does_not_start() -> None:
    """As that of an upgrade that was edited again before it served."""
    pods = (a_worker("a", of="abandoned"), a_worker("b", of="next"))
    view = a_view(("now", a_spec()), ("next", a_spec()), granted={WORKERS: 9}, pods=pods)
    assert started(view) == ["b"]
    assert started(structs.replace(view, beside=())) == []


def test_one_that_either_autoscaler_has_named_does_not_start() -> None:
    pods = (a_worker("a", of="next"), a_worker("b", of="now"))
    view = a_view(("now", a_spec(named=("b",))), ("next", a_spec(named=("a",))), granted={WORKERS: 2}, pods=pods)
    assert started(view) == []


@pytest.mark.parametrize(
    ("autoscales", "names"),
    [(False, ["now", "next", "chat"]), (True, [])],
    ids=["replicas are a resize", "they are not"],
)
def test_a_size_from_the_manager_is_that_of_each_cluster_and_of_those_to_come(
    autoscales: bool, names: list[str]
) -> None:
    spec = a_spec(replicas=1) | {"enableInTreeAutoscaling": autoscales}
    view = a_view(("now", spec), ("next", spec), granted={WORKERS: 2})
    assert view.job is not None
    job = view.job | {"spec": {"rayClusterConfig": spec}}
    wanted = an_object("RayService", "chat", {"rayClusterConfig": a_spec(replicas=3)})
    order = WorkloadSpec(job=REF, spec_version=2, workload={}, manifest=wanted, granted={})
    reading = WorkerJobReading.from_manifest(job)
    assert reading is not None
    patches = order_sizes.take(structs.replace(view, job=job, reading=reading), order, reading)
    assert [patch.target["metadata"]["name"] for patch in patches if isinstance(patch, Patch)] == names
