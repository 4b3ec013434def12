"""KAI's and Volcano's PodGroups over the life of a job, and where jobs go that choose a backend.

The schedulers themselves are not there: the cluster's own one places the pods.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from slicebus.ambient.backoff import Backoff
from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.kube import informers
from slicebus.kube.client import MergePatch
from slicebus.kube.resources import CLUSTERQUEUES, JOB_RESOURCES, JOBS, PODS, WORKERCLUSTERS
from slicebus.proto.messages import ClusterName
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.api_names import DISPATCHED_CONDITION, NO_PLACE
from slicebus.slices.api.kueue import Condition
from slicebus.slices.workload.waiting import Waiting
from support import roles
from support.installation import run_cli
from support.scenario import NAMESPACE, Scenario, elastic, expect_used, set_quota
from support.schedulers import (
    BACKENDS,
    GROVE,
    KAI,
    QUEUE,
    VOLCANO,
    Backend,
    chosen,
    install,
    made_for,
    open_queue,
    profiles,
    recorded,
    remove,
)
from support.waiting import eventually

Manifest = dict[str, Any]
EAST, WEST = ClusterName("east"), ClusterName("west")
each_backend = pytest.mark.parametrize("backend", [KAI, VOLCANO], ids=["kai", "volcano"])


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """For definitions that are missing."""
    monkeypatch.setattr(informers, "_BACKOFF", Backoff(first_s=0.2, most_s=1.0))


@pytest.fixture
async def world(bare: World) -> AsyncIterator[World]:
    """Clusters without roles, and without the definitions afterwards."""
    yield bare
    for client in bare.workers.values():
        await remove(client, *BACKENDS)


async def submitted(world: World, backend: Backend, name: str, *, parallelism: int = 1) -> Scenario:
    """A Job that chooses the backend."""
    await world.manager.create(JOBS, chosen(objects.job(name, parallelism=parallelism), backend))
    return Scenario(world, "Job", name)


async def waiting_of(scenario: Scenario) -> list[Waiting | None]:
    """What the job shows on both sides."""
    theirs = await scenario.world.manager.get(JOBS, scenario.name, NAMESPACE)
    return [Waiting.from_manifest(manifest) for manifest in (theirs, await scenario.worker_job())]


async def expect_reason(scenario: Scenario, reason: str, message: str) -> None:
    """Wait until both sides show it."""

    async def look() -> bool:
        found = await waiting_of(scenario)
        return all(each is not None and (each.reason, each.message) == (reason, message) for each in found)

    await eventually(look, f"both sides of {scenario.name} show {reason}: {message}")


async def expect_no_place(scenario: Scenario, why: str) -> None:
    async def look() -> list[str]:
        found = [slice.conditions.get(Condition.QUOTA_RESERVED, {}) for slice in await scenario.chain()]
        return [each["message"] for each in found if each.get("reason") == NO_PLACE and why in each["message"]]

    await eventually(look, f"{scenario.name} waits: {why}")


def sizes(backend: Backend, group: Manifest) -> tuple[int, int]:
    """The minimum of a group, and that of its one pod set."""
    spec = group["spec"]
    if backend == GROVE:
        [of_set] = [each["minReplicas"] for each in spec["podgroups"]]
        return of_set, of_set
    [of_set] = [each["minMember"] for each in spec["subGroups"]] if backend == KAI else _policies(spec)
    return spec["minMember"], of_set


def _policies(spec: Manifest) -> list[int]:
    [policy] = spec["subGroupPolicy"]
    assert policy["labelSelector"] == {"matchLabels": {kueue.POD_SET_LABEL: "main"}}
    return [policy["subGroupSize"]]


@each_backend
@pytest.mark.real
async def test_a_pod_group_over_the_life_of_a_job(world: World, urls: dict[str, str], backend: Backend) -> None:
    east = world.workers[EAST]
    await install(east, backend)
    await open_queue(east, backend)
    await set_quota(world, 20)

    async def group() -> Manifest | None:
        return next(iter(await made_for(east, backend, "gang")), None)

    async def has_minimum(count: int) -> bool:
        found = await group()
        return found is not None and sizes(backend, found) == (count, count)

    async with (
        roles.manager(world, urls),
        roles.agent(world, urls, EAST, schedulers=profiles(backend)),
        recorded(east, backend.makes) as seen,
    ):
        scenario = await submitted(world, backend, "gang", parallelism=3)
        await scenario.expect_pods(running=3)
        made = await group()
        assert made is not None
        assert sizes(backend, made) == (3, 3)
        assert made["spec"]["queue"] == QUEUE
        [owner] = made["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("Job", (await scenario.worker_job())["metadata"]["uid"])
        let_go = await seen.all_let_go(3)
        created = seen.of(backend.makes)[0].number
        existed = {version.name: version.number for version in reversed(seen.of(PODS)) if version.type == "ADDED"}
        assert len(let_go) == 3
        assert max(created, *existed.values()) < min(let_go.values()), "the gang is let go when all of it is there"

        await scenario.scale(5)
        await scenario.expect_pods(running=5)
        assert await group() == made, "growth leaves the group alone"
        status = MergePatch({"status": {"phase": "Running"}})
        told = await east.patch(backend.makes, made["metadata"]["name"], NAMESPACE, status, subresource="status")
        await scenario.scale(6)
        await scenario.expect_pods(running=6)
        assert await group() == told, "so does a new status"

        await scenario.scale(2)
        await scenario.expect_pods(running=2)
        await eventually(lambda: has_minimum(2), "a shrink lowers the minimum")
        shrunk = await group()
        assert shrunk is not None
        assert (shrunk["metadata"]["generation"], shrunk["status"]) == (2, {"phase": "Running"})

        await stop_queue(world, "HoldAndDrain")

        async def gone() -> bool:
            return await group() is None

        await eventually(gone, "the evicted job has no group")
        removed = await seen.removed(backend.makes)
        pods_gone = [version.number for version in seen.of(PODS) if version.type == "DELETED"]
        assert max(pods_gone) < removed, "it goes with the last pod"
        await stop_queue(world, "None")
        await scenario.expect_pods(running=3)
        await eventually(lambda: has_minimum(3), "the job comes back with its baseline")
        again = await group()
        assert again is not None
        assert again["metadata"]["uid"] != made["metadata"]["uid"]

        await world.manager.delete(JOBS, "gang", NAMESPACE)
        await scenario.expect_nothing_left()
        await eventually(gone, "the group goes with its owner")


async def stop_queue(world: World, policy: str) -> None:
    body = MergePatch({"spec": {"stopPolicy": policy}})
    await world.manager.patch(CLUSTERQUEUES, objects.CLUSTER_QUEUE, None, body)


KINDS: dict[str, tuple[str, Backend]] = {
    "RayJob by kai": ("RayJob", KAI),
    "RayJob by volcano": ("RayJob", VOLCANO),
    "RayJob by grove": ("RayJob", GROVE),
    "RayService by kai": ("RayService", KAI),
}


@pytest.mark.parametrize(("kind", "backend"), KINDS.values(), ids=KINDS.keys())
async def test_a_ray_cluster_starts_together_and_a_submitter_after_it(
    world: World, urls: dict[str, str], kind: str, backend: Backend
) -> None:
    east = world.workers[EAST]
    await install(east, backend)
    await open_queue(east, backend)
    await set_quota(world, 20)
    async with (
        roles.manager(world, urls),
        roles.agent(world, urls, EAST, schedulers=profiles(backend)),
        recorded(east, backend.makes) as seen,
    ):
        scenario = Scenario(world, kind, "ray")
        await world.manager.create(JOB_RESOURCES[kind], chosen(elastic(kind, "ray"), backend))
        await scenario.expect_pods(running=1)
        [group] = await made_for(east, backend, "ray")
        spec = group["spec"]
        least = {
            "kai": lambda: {each["name"]: each["minMember"] for each in spec["subGroups"]},
            "volcano": lambda: {each["name"]: each["subGroupSize"] for each in spec["subGroupPolicy"]},
            "grove": lambda: {each["name"]: each["minReplicas"] for each in spec["podgroups"]},
        }[backend.name]()
        assert least == {"head": 1, "small-group": 1}
        let_go = await seen.all_let_go(3 if kind == "RayJob" else 2)
        submitters = [number for name, number in let_go.items() if "-head-" not in name and "-worker-" not in name]
        ray = [number for number in let_go.values() if number not in submitters]
        assert len(ray) == 2
        assert seen.of(backend.makes)[0].number < min(ray)
        assert [number > max(ray) for number in submitters] == ([True] if kind == "RayJob" else [])

        await east.delete(backend.makes, group["metadata"]["name"], NAMESPACE)

        async def is_made_again() -> bool:
            found = await made_for(east, backend, "ray")
            return [each["metadata"]["uid"] for each in found] not in ([], [group["metadata"]["uid"]])

        await eventually(is_made_again, "what somebody has deleted is made again")
        await scenario.scale(3)
        await scenario.expect_pods(running=3)


async def usable(world: World, cluster: ClusterName, *expected: str) -> None:
    """Wait until the WorkerCluster shows these backends, beside the default one."""

    async def look() -> bool:
        status = (await world.manager.get(WORKERCLUSTERS, cluster)).get("status", {})
        return status.get("schedulerBackends") == ["default", *expected]

    await eventually(look, f"{cluster} says that it has {expected}")


@each_backend
async def test_a_job_waits_for_its_queue_and_no_other_job_does(
    world: World, urls: dict[str, str], kubeconfig: Path, backend: Backend
) -> None:
    east = world.workers[EAST]
    await install(east, backend)
    why = {
        "kai": ("QueueNotFound", f"there is no Queue {QUEUE} (scheduling.run.ai)"),
        "volcano": ("QueueNotOpen", f"Queue {QUEUE} (scheduling.volcano.sh) is Closed: it takes no PodGroup"),
    }[backend.name]
    if backend == VOLCANO:
        await open_queue(east, backend, state="Closed")
    await set_quota(world, 20)
    async with roles.manager(world, urls), roles.agent(world, urls, EAST, schedulers=profiles(backend)):
        waits = await submitted(world, backend, "waits", parallelism=2)
        await expect_reason(waits, *why)
        assert why[1] in await waits.expect_event(why[0], on=world.manager)
        await waits.expect_pods(running=0, gated=2)
        told = await asyncio.to_thread(run_cli, "explain", "team-a/waits", env={"KUBECONFIG": str(kubeconfig)})
        assert told.returncode == 0, told.stderr
        assert why[0] in told.stdout
        assert why[1] in " ".join(told.stdout.split())
        other = Scenario(world, "Job", "other")
        await other.submit()
        await other.expect_pods(running=1)
        assert await made_for(east, backend, "waits") == []

        await open_queue(east, backend)
        await waits.expect_pods(running=2)

        async def nothing_is_shown() -> bool:
            return await waiting_of(waits) == [None, None]

        await eventually(nothing_is_shown, "nobody shows why it waited")


@pytest.mark.parametrize("backend", [KAI, GROVE], ids=["kai", "grove"])
async def test_a_job_goes_where_its_backend_is_and_what_runs_outlasts_it(
    world: World, urls: dict[str, str], backend: Backend
) -> None:
    west = world.workers[WEST]
    await set_quota(world, 20)

    async with (
        roles.manager(world, urls),
        roles.agent(world, urls, EAST, schedulers=profiles(backend)),
        roles.agent(world, urls, WEST, schedulers=profiles(backend)),
    ):
        await usable(world, WEST)
        first = await submitted(world, backend, "first", parallelism=2)
        await expect_no_place(first, f"has no scheduler backend {backend.name}")
        await expect_used(world, "0")

        await install(west, backend)
        await open_queue(west, backend)
        await first.expect_pods(running=2)
        assert await first.cluster() == WEST
        await usable(world, WEST, backend.name)
        before = await first.running()

        await remove(west, backend)
        await usable(world, WEST)
        second = await submitted(world, backend, "second")
        await expect_no_place(second, f"has no scheduler backend {backend.name}")
        other = Scenario(world, "Job", "other")
        await other.submit()
        await other.expect_pods(running=1)
        assert await first.running() == before
        assert await waiting_of(first) == [None, None], "a job all of whose pods run waits for nothing"
        await expect_used(world, "3")

        await install(west, backend)
        await open_queue(west, backend)
        await second.expect_pods(running=1)
        assert await first.running() == before

        async def has_its_group() -> bool:
            for group in await made_for(west, backend, "first"):
                conditions = [each["status"] for each in group.get("status", {}).get("conditions", ())]
                return sizes(backend, group) == (2, 2) and conditions == (["True"] if backend == GROVE else [])
            return False

        await eventually(has_its_group, "the job that ran on has its group again")
        job = await first.worker_job()
        assert api_names.SCHEDULER_ANNOTATION in job["metadata"]["annotations"]


async def test_a_job_that_names_no_queue_is_refused_until_it_does(world: World, urls: dict[str, str]) -> None:
    east = world.workers[EAST]
    await install(east, KAI)
    await open_queue(east, KAI)
    await set_quota(world, 20)
    without_queue = profiles(KAI).replace(QUEUE, "")
    async with roles.manager(world, urls), roles.agent(world, urls, EAST, schedulers=without_queue):
        scenario = await submitted(world, KAI, "unnamed")

        async def refusal() -> str:
            found = [slice.conditions.get(DISPATCHED_CONDITION, {}) for slice in await scenario.chain()]
            return next((each["message"] for each in found if each.get("reason") == "QueueNotSet"), "")

        told = await eventually(refusal, "its Workload says what the job lacks")
        assert "name one by the label kai.scheduler/queue" in told
        await scenario.expect_event("QueueNotSet", on=world.manager)
        label = MergePatch({"metadata": {"labels": {"kai.scheduler/queue": QUEUE}}})
        await world.manager.patch(JOBS, "unnamed", NAMESPACE, label)
        await scenario.expect_pods(running=1)
        [group] = await made_for(east, KAI, "unnamed")
        assert group["spec"]["queue"] == QUEUE
