"""Which pods of a Ray cluster go when an order makes it smaller, and when their names go."""

from typing import Any

import pytest
from msgspec import structs

from slicebus.agent.decide.order import notices, order_sizes, pods_that_go
from slicebus.agent.state.annotations import annotation
from slicebus.agent.state.reclaim import PendingReclaim
from slicebus.agent.state.views import WorkerJobReading, WorkerView
from slicebus.decisions.commands import Patch
from slicebus.proto.messages import JobRef, Notice, WorkloadSpec
from slicebus.sandbox.apiserver.patches import json_patch, merge_patch
from slicebus.slices.api import api_names
from slicebus.slices.jobs import KINDS
from slicebus.slices.workload.ungate import Pod
from unit.agent.objects import a_spec as an_order
from unit.agent.test_ray_pods import WORKERS, a_spec, a_view, a_worker

Manifest = dict[str, Any]
GROUP = "/spec/workerGroupSpecs/0"
MINUTES = {"old": "2026-01-31T12:00:00Z", "young": "2026-01-31T12:07:00Z"}


def pod(
    name: str, state: str = "ready", *, age: str = "old", of: str = "", replica: str = "", told: str = ""
) -> Manifest:
    """A pod in a state: ready, starts, gated, going, over. `told` is the second of its deadline."""
    made = a_worker(name, gated=state == "gated", replica=replica)
    made["metadata"]["creationTimestamp"] = MINUTES[age]
    if of:
        owner = {"kind": "RayCluster", "name": of, "uid": f"uid-{of}", "controller": True}
        made["metadata"]["ownerReferences"] = [owner]
    if told:
        notice = PendingReclaim(id=told, before={}, to={}, deadline=f"2026-01-31T12:00:{told}Z")
        made["metadata"]["annotations"] = {api_names.RECLAIM_ANNOTATION: notice.to_told()}
    if state == "going":
        made["metadata"]["deletionTimestamp"] = MINUTES["young"]
    ready = "True" if state == "ready" else "False"
    made["status"] = {
        "phase": "Failed" if state == "over" else "Running",
        "conditions": [{"type": "Ready", "status": ready}],
    }
    return made


def view_of(spec: Manifest, *pods: Manifest, kind: str = "RayCluster", autoscaled: bool = False) -> WorkerView:
    """A job whose pods belong to its cluster, unless they say something else."""
    spec = spec | {"enableInTreeAutoscaling": autoscaled}
    view = a_view(spec, 99, kind=kind)
    assert view.scale_target is not None
    name = view.scale_target["metadata"]["name"]
    owner = {"kind": "RayCluster", "name": name, "uid": f"uid-{name}", "controller": True}
    for each in pods:
        each["metadata"].setdefault("ownerReferences", [owner])
    return structs.replace(view, pods=tuple(map(Pod.from_manifest, pods)))


def named(view: WorkerView, count: int) -> list[str] | None:
    """The names that are set for another count; None for no change of them."""
    assert view.scale_target is not None
    patch = pods_that_go.named(view, view.scale_target, {"head": 1, WORKERS: count})
    if not patch:
        return None
    assert [(entry["op"], entry["path"]) for entry in patch] == [
        ("test", f"{GROUP}/groupName"),
        ("add", f"{GROUP}/scaleStrategy"),
    ]
    [names] = patch[1]["value"].values()
    return list(names)


FIVE = (
    pod("a"),
    pod("b", "starts"),
    pod("c", age="young"),
    pod("d", "gated"),
    pod("e", "starts", age="young"),
)
LOSSES: dict[str, tuple[tuple[Manifest, ...], int, list[str] | None]] = {
    "none is too many": (FIVE, 5, None),
    "fewer than wanted": (FIVE, 7, None),
    "gated first": (FIVE, 4, ["d"]),
    "then the youngest that is not ready": (FIVE, 3, ["d", "e"]),
    "then those that are not ready": (FIVE, 2, ["b", "d", "e"]),
    "then the youngest": (FIVE, 1, ["b", "c", "d", "e"]),
    "all": (FIVE, 0, ["a", "b", "c", "d", "e"]),
    "of one age by name": ((pod("x"), pod("y"), pod("w")), 1, ["w", "x"]),
    "what goes already": ((pod("a", "going"), pod("b", "gated"), pod("c")), 2, ["a"]),
    "what has ended": ((pod("a", "over"), pod("b", "gated"), pod("c")), 2, ["a"]),
    "what had its notice": ((pod("a", told="30"), pod("b", "gated"), pod("c")), 2, ["a"]),
    "of these the earlier deadline": (
        (pod("a", told="40", age="young"), pod("b", told="30"), pod("c", "over")),
        1,
        ["b", "c"],
    ),
    "of another cluster": ((pod("a", of="another"), pod("b"), pod("c")), 1, ["b"]),
}


@pytest.mark.parametrize("kind", ["RayCluster", "RayJob"])
@pytest.mark.parametrize(("pods", "count", "names"), LOSSES.values(), ids=LOSSES.keys())
def test_those_go_that_have_least_to_lose(
    pods: tuple[Manifest, ...], count: int, names: list[str] | None, kind: str
) -> None:
    pods = tuple(each | {"metadata": {**each["metadata"]}} for each in pods)
    assert named(view_of(a_spec(replicas=5), *pods, kind=kind), count) == names


def test_what_is_named_already_goes_before_anything_else_and_stays_named() -> None:
    pods = pod("a"), pod("b", "gated"), pod("c"), pod("d")
    assert named(view_of(a_spec(replicas=4, named=("a",)), *pods), 3) is None
    assert named(view_of(a_spec(replicas=4, named=("a", "c", "has-gone")), *pods), 3) == ["a", "c"]


def replicas(*states: str, hosts: int = 2, labelled: bool = True) -> list[Manifest]:
    """Replicas whose last pod has the state; the others are ready."""
    return [
        pod(f"{number}-{host}", state if host == hosts - 1 else "ready", replica=f"r{number}" if labelled else "")
        for number, state in enumerate(states)
        for host in range(hosts)
    ]


def test_replicas_go_whole() -> None:
    view = view_of(a_spec(hosts=2, replicas=3), *replicas("ready", "starts", "ready"))
    assert named(view, 4) == ["1-0", "1-1"]
    assert named(view, 2) == ["0-0", "0-1", "1-0", "1-1"]
    assert named(view, 6) is None


def test_one_that_lacks_a_host_goes_first() -> None:
    """KubeRay deletes it anyway."""
    pods = replicas("gated", "ready", "ready")[:-1]
    assert named(view_of(a_spec(hosts=2, replicas=3), *pods), 4) == ["2-0"]


def test_without_labels_pods_of_several_hosts_go_one_by_one() -> None:
    """As KubeRay before 1.6 takes them."""
    view = view_of(a_spec(hosts=2, replicas=2), *replicas("gated", "starts", labelled=False))
    assert named(view, 2) == ["0-1", "1-1"]


def order_of(view: WorkerView, size: int, reason: str | None) -> WorkloadSpec:
    """An order that sets a number of workers."""
    assert view.reading is not None
    job = view.reading.manifest
    spec = job["spec"]["rayClusterSpec"] if view.key.kind == "RayJob" else job["spec"]
    [group] = spec["workerGroupSpecs"]
    sized = spec | {"workerGroupSpecs": [group | {"replicas": size, "minReplicas": 0, "maxReplicas": 9}]}
    wanted = {"rayClusterSpec": sized} if view.key.kind == "RayJob" else sized
    job = job | {"spec": wanted}
    of = JobRef("ray.io/v1", view.key.kind, "team", "train", "manager-uid")
    return structs.replace(
        an_order(2, job=of), manifest=job, resized_because="so it is", resized_reason=reason, taken_back="word-1"
    )


@pytest.mark.parametrize("kind", ["RayCluster", "RayJob"])
@pytest.mark.parametrize("reason", [api_names.RECLAIMED, None], ids=["for others", "by its user"])
def test_the_names_come_in_one_patch_with_the_size(kind: str, reason: str | None) -> None:
    view = view_of(a_spec(replicas=3), pod("a"), pod("b", "gated"), pod("c"), kind=kind)
    assert view.reading is not None
    [patch, *_] = order_sizes.take(view, order_of(view, 2, reason), view.reading)
    assert isinstance(patch, Patch)
    assert view.scale_target is not None
    assert patch.target == view.scale_target
    assert [entry["path"] for entry in patch.body if entry["op"] == "add"] == [  # type: ignore[index]
        f"{GROUP}/replicas",
        f"{GROUP}/scaleStrategy",
    ]


def test_growth_names_nobody() -> None:
    view = view_of(a_spec(replicas=1), pod("a"))
    assert view.reading is not None
    [patch, *_] = order_sizes.take(view, order_of(view, 2, None), view.reading)
    assert isinstance(patch, Patch)
    assert [entry["path"] for entry in patch.body if entry["op"] == "add"] == [f"{GROUP}/replicas"]  # type: ignore[index]


@pytest.mark.parametrize("kind", ["RayCluster", "RayJob"])
def test_names_go_when_none_of_the_pods_is_left(kind: str) -> None:
    spec = a_spec(replicas=1, named=("b", "c"))
    assert pods_that_go.cleared(view_of(spec, pod("a"), pod("c", "going"), kind=kind)) == []
    [patch] = pods_that_go.cleared(view_of(spec, pod("a"), kind=kind))
    assert patch.body == [
        {"op": "test", "path": f"{GROUP}/groupName", "value": WORKERS},
        {"op": "add", "path": f"{GROUP}/scaleStrategy", "value": {"workersToDelete": []}},
    ]
    assert pods_that_go.cleared(view_of(a_spec(replicas=1), pod("a"), kind=kind)) == []


def test_ray_clears_its_own_names() -> None:
    assert pods_that_go.cleared(view_of(a_spec(named=("b",)), pod("a"), autoscaled=True)) == []


def test_a_job_that_does_not_run_is_left_alone() -> None:
    view = view_of(a_spec(named=("b",)), pod("a"))
    assert view.job is not None
    job = view.job | {"spec": view.job["spec"] | {"suspend": True}}
    assert annotation(job, api_names.GRANTED_ANNOTATION)
    halted = structs.replace(view, job=job, reading=WorkerJobReading.from_manifest(job), scale_target=job)
    assert pods_that_go.cleared(halted) == []


# --- with the autoscaler on ------------------------------------------------------------------------------------------


def capped_view(*pods: Manifest, kind: str = "RayCluster", since: str | None = "2026-01-31T12:00:00Z") -> WorkerView:
    """A cluster whose autoscaler is kept to one worker, and has not acted since."""
    view = view_of(a_spec(replicas=3), *pods, kind=kind, autoscaled=True)
    target = view.scale_target
    assert target is not None
    capped = json_patch(target, KINDS[kind].cap(target, {"head": 1, WORKERS: 1}))
    is_own = target is view.job
    reading = WorkerJobReading.from_manifest(capped) if is_own else view.reading
    return structs.replace(
        view, job=capped if is_own else view.job, reading=reading, scale_target=capped, surplus_since=since
    )


@pytest.mark.parametrize("kind", ["RayCluster", "RayJob"])
def test_when_ray_has_not_acted_the_pods_are_named(kind: str) -> None:
    view = capped_view(pod("a"), pod("b", "starts"), pod("c"), kind=kind)
    assert pods_that_go.overdue(view, now="2026-01-31T12:00:29Z", after_s=30) == []
    [waits] = pods_that_go.requeue_after(view, now="2026-01-31T12:00:29Z", after_s=30)
    assert waits.delay_s == 2
    [patch] = pods_that_go.overdue(view, now="2026-01-31T12:00:30Z", after_s=30)
    assert pods_that_go.requeue_after(view, now="2026-01-31T12:00:30Z", after_s=30) == []
    assert patch.target == view.scale_target
    assert [(entry["path"], entry["value"]) for entry in patch.body if entry["op"] == "add"] == [  # type: ignore[index]
        (f"{GROUP}/replicas", 1),
        (f"{GROUP}/scaleStrategy", {"workersToDelete": ["a", "b"]}),
    ]


def test_ray_keeps_its_nodes_until_the_notice_is_over() -> None:
    view = view_of(a_spec(replicas=3), pod("a"), pod("b"), pod("c"), autoscaled=True)
    notice = Notice(id="word-1", notice_s=120.0, why="so it is")
    order = structs.replace(order_of(view, 1, api_names.RECLAIMED), notice=notice)
    assert view.reading is not None
    assert order_sizes.take(view, order, view.reading) == []
    begun = "2026-01-31T12:00:00Z"
    noted, _ = notices.of_spec(view, order, view.reading, now=begun)
    assert view.job is not None
    job = merge_patch(view.job, {"metadata": {"annotations": noted}})
    told = structs.replace(view, job=job, reading=WorkerJobReading.from_manifest(job), scale_target=job)
    assert {command.target["kind"] for command in notices.reconcile(told, now=begun)} == {"Pod"}  # type: ignore[union-attr]
    [patch] = notices.reconcile(told, now="2026-01-31T12:02:01Z")
    assert isinstance(patch, Patch)
    assert {"op": "add", "path": f"{GROUP}/maxReplicas", "value": 1} in patch.body


def test_a_surplus_that_is_not_for_others_is_rays_own() -> None:
    view = view_of(a_spec(replicas=1), pod("a"), pod("b"), autoscaled=True)
    late = structs.replace(view, surplus_since="2026-01-31T12:00:00Z")
    assert pods_that_go.overdue(late, now="2026-01-31T13:00:00Z", after_s=30) == []
    assert pods_that_go.requeue_after(late, now="2026-01-31T12:00:01Z", after_s=30) == []


def test_nothing_is_overdue_while_ray_acts() -> None:
    view = capped_view(pod("a"), pod("b"), since=None)
    assert pods_that_go.overdue(view, now="2026-01-31T13:00:00Z", after_s=30) == []
