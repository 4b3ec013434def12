"""A user edits an autoscaled cluster on the manager: replicas are for its next start, bounds reach it at once."""

from typing import Any

import pytest

from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.kube.client import JsonPatch, MergePatch
from slicebus.kube.resources import CLUSTERQUEUES, RAYCLUSTERS
from slicebus.manager.state.requirements import SIZE_EDITED
from slicebus.slices.api import api_names
from support.scenario import NAMESPACE, Scenario, elastic, expect_used, set_quota
from support.waiting import eventually

_AT = {"RayCluster": "/spec", "RayJob": "/spec/rayClusterSpec"}


@pytest.mark.parametrize("turns_off", [False, True], ids=["", "with its autoscaler turned off"])
@pytest.mark.parametrize("kind", ["RayCluster", "RayJob"])
async def test_it_takes_no_quota_until_the_cluster_starts_anew(world: World, kind: str, turns_off: bool) -> None:
    await set_quota(world, 20)
    scenario = Scenario(world, kind, "tune")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    await scenario.scale(3)
    await scenario.expect_pods(running=3)
    runs = await scenario.running()

    edit = [{"op": "replace", "path": f"{_AT[kind]}/workerGroupSpecs/0/replicas", "value": 5}]
    off = {"op": "replace", "path": f"{_AT[kind]}/enableInTreeAutoscaling", "value": False}
    await world.manager.patch(scenario.resource, scenario.name, NAMESPACE, JsonPatch(edit + [off] * turns_off))
    assert "small-group=3" in await scenario.expect_event(SIZE_EDITED, on=world.manager)

    async def is_known() -> bool:
        annotations = (await scenario.worker_job())["metadata"]["annotations"]
        return '"small-group":5' in annotations[api_names.BASELINE_ANNOTATION]

    await eventually(is_known, "the worker knows the edited size")
    await scenario.scale(4)
    await scenario.expect_pods(running=4)
    assert runs < await scenario.running()
    assert max(scenario.workers_of(slice) for slice in await scenario.chain()) == 4

    stop = {"spec": {"stopPolicy": "HoldAndDrain"}}
    await world.manager.patch(CLUSTERQUEUES, objects.CLUSTER_QUEUE, None, MergePatch(stop))
    await expect_used(world, "0")
    await world.manager.patch(CLUSTERQUEUES, objects.CLUSTER_QUEUE, None, MergePatch({"spec": {"stopPolicy": "None"}}))
    await scenario.expect_pods(running=5)


@pytest.mark.parametrize("kind", ["RayCluster", "RayJob", "RayService"])
async def test_another_number_of_hosts_is_for_the_next_start(world: World, kind: str) -> None:
    """It multiplied the size: others lost pods for replicas that nobody had asked for."""
    await set_quota(world, 20)
    scenario = Scenario(world, kind, "tune")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    await scenario.scale(2)
    await scenario.expect_pods(running=2)
    job = await world.manager.get(scenario.resource, scenario.name, NAMESPACE)
    field = next((name for name in ("rayClusterSpec", "rayClusterConfig") if name in job["spec"]), None)
    at = f"/spec/{field}" if field else "/spec"
    edit = [{"op": "add", "path": f"{at}/workerGroupSpecs/0/numOfHosts", "value": 4}]
    await world.manager.patch(scenario.resource, scenario.name, NAMESPACE, JsonPatch(edit))
    assert "replica" in await scenario.expect_event(api_names.STRUCTURAL_CHANGE, on=world.manager)
    await scenario.scale(3)
    await scenario.expect_pods(running=3)
    assert max(scenario.workers_of(slice) for slice in await scenario.chain()) == 3


@pytest.mark.parametrize("kind", ["RayCluster", "RayJob"])
async def test_the_bounds_of_its_autoscaler_reach_the_cluster_that_runs(world: World, kind: str) -> None:
    await set_quota(world, 20)
    scenario = Scenario(world, kind, "tune")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    runs, worker, at = await scenario.running(), await scenario.worker(), _AT[kind]
    edit: list[dict[str, Any]] = [
        {"op": "add", "path": f"{at}/workerGroupSpecs/0/minReplicas", "value": 2},
        {"op": "add", "path": f"{at}/workerGroupSpecs/0/maxReplicas", "value": 7},
        {"op": "add", "path": f"{at}/autoscalerOptions", "value": {"upscalingMode": "Conservative"}},
    ]
    await world.manager.patch(scenario.resource, scenario.name, NAMESPACE, JsonPatch(edit))

    async def has_them() -> bool:
        [cluster] = (await worker.list(RAYCLUSTERS, namespace=NAMESPACE)).items
        [group], options = cluster["spec"]["workerGroupSpecs"], cluster["spec"]["autoscalerOptions"]
        return (group["minReplicas"], group["maxReplicas"], options.get("upscalingMode")) == (2, 7, "Conservative")

    await eventually(has_them, "the RayCluster has the bounds")
    await scenario.expect_pods(running=2)
    assert runs < await scenario.running()
    await scenario.expect_unfinished(2)


@pytest.mark.parametrize(
    ("edits", "runs"),
    [({"maxReplicas": 10, "replicas": 10}, 10), ({"suspend": True}, 0), ({"minReplicas": 4}, 4)],
    ids=["more than it could have", "a suspended group", "a larger least"],
)
async def test_the_bounds_of_a_cluster_without_autoscaler_reach_it(
    world: World, edits: dict[str, Any], runs: int
) -> None:
    await set_quota(world, 20)
    scenario, job = Scenario(world, "RayCluster", "tune"), elastic("RayCluster", "tune")
    job["spec"] |= {"enableInTreeAutoscaling": False}
    job["spec"]["workerGroupSpecs"][0] |= {"replicas": 2, "minReplicas": 1, "maxReplicas": 5}
    await world.manager.create(scenario.resource, job)
    await scenario.expect_pods(running=2)
    at = "/spec/workerGroupSpecs/0"
    edit = [{"op": "add", "path": f"{at}/{name}", "value": value} for name, value in edits.items()]
    await world.manager.patch(scenario.resource, scenario.name, NAMESPACE, JsonPatch(edit))

    async def has_them() -> bool:
        [group] = (await scenario.worker_job())["spec"]["workerGroupSpecs"]
        return {name: group.get(name) for name in edits} == edits

    await eventually(has_them, "the RayCluster has what was edited")
    await scenario.expect_pods(running=runs)
