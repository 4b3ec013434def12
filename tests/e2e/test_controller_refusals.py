"""A worker's KubeRay refuses a job: the manager has its words, and the quota comes free after a while."""

import pytest

from slicebus.agent.act import pod_refusals
from slicebus.cli.demo.world import World
from slicebus.manager.state.settings import ManagerDecisionSettings
from slicebus.proto.messages import ClusterName, Manifest
from slicebus.slices.api import api_names
from slicebus.slices.api.conditions import conditions_of
from slicebus.slices.api.kueue import Condition
from slicebus.slices.workload.waiting import CONTROLLER_REFUSED, Waiting
from slicebus.slices.workload.workload import Slice
from support import roles
from support.scenario import NAMESPACE, Scenario, elastic, expect_used, set_quota
from support.waiting import eventually

EAST = ClusterName("east")
TIMEOUT = {"ray.io/initializing-timeout": "abc"}


@pytest.fixture
def world(bare_east: World) -> World:
    """Clusters without roles: a test starts them."""
    return bare_east


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_ROUND_S", "_LACKING_S", "_AGAIN_S"):
        monkeypatch.setattr(pod_refusals, name, 0.5)


def refused(kind: str) -> tuple[Manifest, str]:
    """A job that is refused, and a part of the controller's words."""
    job = elastic(kind, "odd")
    if kind == "RayService":
        job["metadata"]["annotations"] |= TIMEOUT
        return job, "ValidationFailed: the annotation ray.io/initializing-timeout is no duration: abc"
    cluster = job["spec"] if kind == "RayCluster" else job["spec"]["rayClusterSpec"]
    cluster["tlsOptions"] = {}
    return job, "no tlsOptions here"


async def submit(world: World, kind: str) -> tuple[Scenario, str]:
    await set_quota(world, 8)
    job, words = refused(kind)
    scenario = Scenario(world, kind, "odd")
    await world.manager.create(scenario.resource, job)
    return scenario, words


def runs(manifest: Manifest) -> tuple[str, str] | None:
    found = (entry for entry in conditions_of(manifest) if entry["type"] == api_names.RUNS_CONDITION)
    return next(((entry["status"], entry["reason"]) for entry in found), None)


@pytest.mark.parametrize("kind", ["RayCluster", "RayJob", "RayService"])
async def test_the_manager_has_the_controllers_words(world: World, urls: dict[str, str], kind: str) -> None:
    async with roles.manager(world, urls), roles.agent(world, urls, EAST):
        scenario, words = await submit(world, kind)

        async def told() -> Waiting | None:
            job = await world.manager.get(scenario.resource, scenario.name, NAMESPACE)
            here = Waiting.from_manifest(job)
            has_conditions = kind != "RayJob"
            shows = runs(job) == ("False", CONTROLLER_REFUSED) or not has_conditions
            return here if here is not None and here.reason == CONTROLLER_REFUSED and shows else None

        waiting = await eventually(told, "the manager's job says why")
        assert waiting is not None
        assert words in waiting.message
        [slice] = await scenario.chain()
        assert slice.conditions[api_names.RUNS_CONDITION]["status"] == "False"
        await scenario.expect_event(CONTROLLER_REFUSED, on=world.manager)


async def test_its_quota_comes_free_after_a_while(world: World, urls: dict[str, str]) -> None:
    soon = ManagerDecisionSettings(refused_requeue_s=2.0)
    async with roles.manager(world, urls, decisions=soon), roles.agent(world, urls, EAST):
        scenario, words = await submit(world, "RayCluster")

        async def given_back() -> Slice | None:
            [slice] = await scenario.chain() or [None]
            is_evicted = slice is not None and slice.condition(Condition.EVICTED)
            return slice if is_evicted and slice is not None and slice.lacks_quota else None

        slice = await eventually(given_back, "its quota is given back")
        assert slice is not None
        evicted = slice.conditions[Condition.EVICTED]
        assert evicted["reason"] == "RefusedOnWorkerCluster"
        assert words in evicted["message"]
        assert slice.avoids == {"east"}
        await expect_used(world, "0")
