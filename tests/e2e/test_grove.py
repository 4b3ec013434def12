"""Grove's PodGang over the life of a job, in every version that a watch tells of.

Grove and its scheduler are not there: the cluster's own scheduler places the pods.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any, Self

import msgspec
import pytest
import yaml
from prometheus_client import CollectorRegistry

from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.kube.client import JsonPatch, KubeClient, MergePatch
from slicebus.kube.resources import JOBS, PODS, RAYCLUSTERS, Resource
from slicebus.proto.messages import ClusterName
from slicebus.slices.api import kueue
from slicebus.slices.schedulers.grove import POD_GANGS
from support import roles
from support.scenario import NAMESPACE, Scenario, set_quota
from support.schedulers import GROVE, Recording, Version, chosen, install, made_for, profiles, recorded, remove
from support.waiting import PATIENCE_S, eventually

Manifest = dict[str, Any]
EAST = ClusterName("east")
OTHER_GATE = "example.dev/other"


@pytest.fixture
async def world(bare_east: World) -> AsyncIterator[World]:
    """Clusters without roles, and without the definition afterwards."""
    await set_quota(bare_east, 20)
    yield bare_east
    await remove(bare_east.workers[EAST], GROVE)


@pytest.fixture(params=["own", "real"])
def definition(request: pytest.FixtureRequest) -> list[Manifest]:
    """That of slicebus' own writing, as an empty list, and Grove's."""
    if request.param == "own":
        return []
    folder = request.getfixturevalue("shared_dir") / "crds" / "grove"
    if not folder.is_dir():
        pytest.skip("no ../shared/crds/grove with Grove's definition")
    return [yaml.safe_load((folder / "scheduler.grove.io_podgangs.yaml").read_text())]


class State(msgspec.Struct, frozen=True):
    """What one version of a PodGang says."""

    number: int
    names: dict[str, list[str]]
    least: dict[str, int]
    initialized: tuple[str, ...]
    """Status, reason and transition time of the condition; empty where there is none."""
    generation: int

    @classmethod
    def of(cls, version: Version) -> "State":
        groups = version.object["spec"]["podgroups"]
        conditions = version.object.get("status", {}).get("conditions", ())
        found = next((each for each in conditions if each["type"] == "Initialized"), None)
        return cls(
            number=version.number,
            names={group["name"]: [each["name"] for each in group["podReferences"]] for group in groups},
            least={group["name"]: group["minReplicas"] for group in groups},
            initialized=(found["status"], found["reason"], found["lastTransitionTime"]) if found else (),
            generation=version.object["metadata"]["generation"],
        )

    @property
    def is_initialized(self) -> bool:
        return self.initialized[:1] == ("True",)

    @property
    def named(self) -> set[str]:
        return {name for names in self.names.values() for name in names}


def history(seen: Recording) -> list[State]:
    """Of the one PodGang, and that it is as Grove's own are."""
    versions = [State.of(version) for version in seen.of(POD_GANGS) if version.type != "DELETED"]
    first, pending = versions[:2]
    assert (first.named, first.initialized) == (set(), ()), "it is made early, and names nobody"
    assert (pending.named, pending.initialized[:2]) == (set(), ("False", "PodGangPodsCreationPending"))
    filled = next(state for state in versions if state.named)
    assert all(filled.names.values()), "it names pods of every pod set at once"
    assert not filled.is_initialized
    assert all(all(state.names.values()) for state in versions[versions.index(filled) :]), "no names are taken away"
    done = [state.is_initialized for state in versions]
    assert done == sorted(done), "what is initialized stays so"
    initialized = [state for state in versions if state.is_initialized]
    assert {state.initialized for state in initialized} == {
        ("True", "PodGangPodsCreated", initialized[0].initialized[2])
    }
    for pod, number in seen.let_go().items():
        naming = next(state for state in versions if pod in state.named)
        assert number > max(naming.number, initialized[0].number), f"{pod} is let go after it is named"
    changes = [(a, b) for a, b in itertools.pairwise(versions) if a.generation != b.generation]
    assert all((a.names, a.least) != (b.names, b.least) for a, b in changes), "a spec is written for a change only"
    return versions


async def pods_of(client: KubeClient, name: str) -> set[str]:
    page = await client.list(PODS, namespace=NAMESPACE)
    names = {pod["metadata"]["name"] for pod in page.items if "deletionTimestamp" not in pod["metadata"]}
    return {each for each in names if each.startswith(name)}


async def expect_named(client: KubeClient, seen: Recording, name: str, workers: int) -> State:
    """Wait until the PodGang names all pods that are there, so many workers among them, and the watch has told it."""

    async def look() -> State | None:
        [found] = await made_for(client, GROVE, name)
        state = State.of(Version(int(found["metadata"]["resourceVersion"]), "", found))
        return state if state.named == await pods_of(client, name) and len(state.named) == workers + 1 else None

    state = await eventually(look, f"the PodGang of {name} names {workers} workers and the head")
    assert state is not None

    async def is_told() -> bool:
        return any(version.number >= state.number for version in seen.of(POD_GANGS))

    await eventually(is_told, "the watch has told it")
    return state


@pytest.mark.real
async def test_a_pod_gang_from_one_worker_to_five_to_three(
    world: World, urls: dict[str, str], definition: list[Manifest]
) -> None:
    east = world.workers[EAST]
    await install(east, GROVE, instead=definition)
    async with (
        roles.manager(world, urls),
        roles.agent(world, urls, EAST, schedulers=profiles(GROVE)),
        recorded(east, POD_GANGS) as seen,
    ):
        scenario = Scenario(world, "RayCluster", "gang")
        await world.manager.create(RAYCLUSTERS, chosen(objects.ray_cluster("gang"), GROVE))
        await scenario.expect_pods(running=1)
        state = await expect_named(east, seen, "gang", 1)
        assert state.least == {"head": 1, "small-group": 1}
        running = MergePatch({"status": {"phase": "Running"}})
        told = await east.patch(POD_GANGS, "raycluster-gang", NAMESPACE, running, subresource="status")

        await scenario.scale(5)
        await scenario.expect_pods(running=5)
        await expect_named(east, seen, "gang", 5)
        after = [each for each in seen.of(POD_GANGS) if each.number > int(told["metadata"]["resourceVersion"])]
        assert len(State.of(after[0]).named) > 2, "a status of somebody else leads to no write"
        assert {each.object["status"]["phase"] for each in after} == {"Running"}

        victim = sorted(state.names["small-group"])[0]
        await east.delete(PODS, victim, NAMESPACE)
        await scenario.expect_pods(running=5)
        assert victim not in (await expect_named(east, seen, "gang", 5)).named, "the pod that is made anew is named"

        await scenario.scale(3)
        await scenario.expect_pods(running=3)
        state = await expect_named(east, seen, "gang", 3)
        assert state.least == {"head": 1, "small-group": 1}
        assert len(history(seen)[-1].named) == 4


async def test_the_gate_of_somebody_else_stays(world: World, urls: dict[str, str]) -> None:
    east = world.workers[EAST]
    await install(east, GROVE)
    async with roles.manager(world, urls), roles.agent(world, urls, EAST, schedulers=profiles(GROVE)):
        job = chosen(objects.job("held"), GROVE)
        job["spec"]["template"]["spec"]["schedulingGates"] = [{"name": OTHER_GATE}]
        await world.manager.create(JOBS, job)

        async def gates() -> list[str]:
            return [
                gate["name"]
                for pod in (await east.list(PODS, namespace=NAMESPACE)).items
                for gate in pod["spec"].get("schedulingGates", ())
            ]

        async def only_theirs() -> bool:
            return await gates() == [OTHER_GATE]

        await eventually(only_theirs, "only the gate of somebody else is left")
        [pod_gang] = await made_for(east, GROVE, "held")
        assert State.of(Version(0, "", pod_gang)).is_initialized
        [pod] = await pods_of(east, "held")
        await east.patch(PODS, pod, NAMESPACE, JsonPatch([{"op": "remove", "path": "/spec/schedulingGates/0"}]))
        await Scenario(world, "Job", "held").expect_pods(running=1)


class HangingClient:
    """Stands between an agent and its API server, and never answers from one write to PodGangs or pods on."""

    def __init__(self, client: KubeClient, *, step: str) -> None:
        self._client = client
        self._step = step
        self.reached = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def metered(self, registry: CollectorRegistry) -> Self:
        """As `KubeClient.metered`, for the only role that has it."""
        self._client = self._client.metered(registry)
        return self

    async def patch(
        self, resource: Resource, name: str, namespace: str | None, patch: MergePatch | JsonPatch, **how: Any
    ) -> Manifest:
        """As `KubeClient.patch`."""
        if _step_of(resource, patch) == self._step:
            self.reached.set()
            await asyncio.Event().wait()
        return await self._client.patch(resource, name, namespace, patch, **how)


def _step_of(resource: Resource, patch: MergePatch | JsonPatch) -> str:
    text = str(patch.body)
    if resource == PODS:
        return "let go" if "schedulingGates" in text else ""
    if resource != POD_GANGS:
        return ""
    if "podReferences" in text:
        return "name"
    return "initialize" if "PodGangPodsCreated'" in text else "say that pods are pending"


@pytest.mark.parametrize("step", ["say that pods are pending", "name", "initialize", "let go"])
async def test_an_agent_goes_on_where_another_was_killed(world: World, urls: dict[str, str], step: str) -> None:
    east = world.workers[EAST]
    await install(east, GROVE)
    settings = {"schedulers": profiles(GROVE)}
    scenario = Scenario(world, "RayCluster", "gang")
    hanging: Any = HangingClient(east, step=step)
    async with roles.manager(world, urls), recorded(east, POD_GANGS) as seen:
        async with roles.agent(world, urls, EAST, client=hanging, **settings):
            await world.manager.create(RAYCLUSTERS, chosen(objects.ray_cluster("gang", replicas=2), GROVE))
            await asyncio.wait_for(hanging.reached.wait(), PATIENCE_S)
        assert seen.let_go() == {}
        async with roles.agent(world, urls, EAST, **settings):
            await scenario.expect_pods(running=2)
            state = await expect_named(east, seen, "gang", 2)
            assert state.least == {"head": 1, "small-group": 2}
        versions = history(seen)
        async with roles.agent(world, urls, EAST, **settings):
            await scenario.scale(4)
            await scenario.expect_pods(running=4)
            await expect_named(east, seen, "gang", 4)
            assert history(seen)[: len(versions)] == versions
            assert kueue.ELASTIC_GATE not in str(await scenario.pods())
