"""What is different on a worker after an outage, or behind the agent's back, is found and made good; not more."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any

import pytest

from slicebus.bus.contract import Bus
from slicebus.bus.factory import connect
from slicebus.cli.demo.world import World
from slicebus.journal.entry import Entry
from slicebus.journal.streams import read_journals
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.resources import EVENTS, JOBS, WORKERCLUSTERS, WORKLOADS
from slicebus.kube.transport import Answer, Request, Transport
from slicebus.manager.decide.cluster import worker_cluster_status
from slicebus.proto.messages import ClusterName, Delete, Inventory, Message, Resync, WorkloadSpec
from slicebus.slices.api import api_names
from support import roles
from support.installation import run_cli
from support.scenario import NAMESPACE, Scenario, elastic, set_quota
from support.waiting import eventually

Manifest = dict[str, Any]
EAST = ClusterName("east")
OFTEN = {"inventory_s": 1.0}


@pytest.fixture
def world(bare_east: World) -> World:
    """Clusters without roles: a test starts and stops them."""
    return bare_east


@pytest.fixture
async def journal(urls: dict[str, str]) -> AsyncIterator[Bus]:
    """A connection that may read what was recorded, whichever roles run."""
    bus = await connect(urls["manager"], name="journal")
    yield bus
    await bus.aclose()


async def messages(journal: Bus, *types: type[Message]) -> list[Any]:
    """What has gone over the bus until now."""
    found = []
    async with aclosing(read_journals(journal, "first", follow=False)) as records:
        async for record in records:
            entry = Entry.from_record(record)
            if entry.received and isinstance(entry.received.message, types):
                found.append(entry.received.message)
    return found


async def said(journal: Bus, *types: type[Message], more_than: int) -> list[Any]:
    async def look() -> list[Any] | None:
        found = await messages(journal, *types)
        return found if len(found) > more_than else None

    return await eventually(look, f"more than {more_than} of {types}") or []


async def submitted(world: World, *names: str) -> list[Scenario]:
    """Jobs that run on east."""
    await set_quota(world, 2 * len(names))
    scenarios = [Scenario(world, "Job", name) for name in names]
    for scenario in scenarios:
        await scenario.submit()
    for scenario in scenarios:
        await scenario.expect_pods(running=1)
    return scenarios


async def names_on(client: KubeClient) -> set[str]:
    return {job["metadata"]["name"] for job in (await client.list(JOBS, namespace=NAMESPACE)).items}


async def forget_job(world: World, name: str) -> None:
    """The manager's cluster loses a job and everything that would have told its worker."""
    for workload in (await world.manager.list(WORKLOADS, namespace=NAMESPACE)).items:
        if workload["metadata"]["ownerReferences"][0]["name"] == name:
            metadata = {"finalizers": []}
            await world.manager.patch(
                WORKLOADS, workload["metadata"]["name"], NAMESPACE, MergePatch({"metadata": metadata})
            )
            await world.manager.delete(WORKLOADS, workload["metadata"]["name"], NAMESPACE)
    await world.manager.delete(JOBS, name, NAMESPACE)


# --- differences ----------------------------------------------------------------------------------------------------


@pytest.mark.real
async def test_a_job_that_was_deleted_while_its_agent_was_away_is_cleaned(world: World, urls: dict[str, str]) -> None:
    async with roles.manager(world, urls):
        async with roles.agent(world, urls, "east"):
            [deleted, _] = await submitted(world, "deleted", "stays")
        await world.manager.delete(JOBS, "deleted", NAMESPACE)
        async with roles.agent(world, urls, "east"):
            await deleted.expect_nothing_left()
            assert await names_on(world.workers[EAST]) == {"stays"}


async def test_a_job_that_the_manager_knows_nothing_of_is_cleaned(
    world: World, urls: dict[str, str], journal: Bus
) -> None:
    async with roles.manager(world, urls), roles.agent(world, urls, "east"):
        [lost, _] = await submitted(world, "lost", "stays")
    await forget_job(world, "lost")
    async with roles.manager(world, urls), roles.agent(world, urls, "east"):
        await lost.expect_nothing_left()
        orders = await messages(journal, Delete)
        assert [(order.job.name, order.reason) for order in orders] == [("lost", "UnknownJob")]
        assert await names_on(world.workers[EAST]) == {"stays"}


@pytest.mark.real
async def test_what_vanished_from_the_worker_comes_back(world: World, urls: dict[str, str]) -> None:
    async with roles.manager(world, urls):
        async with roles.agent(world, urls, "east"):
            [scenario] = await submitted(world, "vanished")
        worker = world.workers[EAST]
        for copy in (await worker.list(WORKLOADS, namespace=NAMESPACE)).items:
            await worker.delete(WORKLOADS, copy["metadata"]["name"], NAMESPACE)
        await worker.delete(JOBS, "vanished", NAMESPACE)

        async def gone() -> bool:
            return not await names_on(worker)

        await eventually(gone, "the worker has nothing")
        async with roles.agent(world, urls, "east"):
            await scenario.expect_pods(running=1)
            await scenario.expect_unfinished(1)


async def test_a_job_that_was_deleted_behind_the_agents_back_stays_as_it_may_have_ended(
    world: World, urls: dict[str, str]
) -> None:
    async with roles.manager(world, urls):
        async with roles.agent(world, urls, "east"):
            [scenario] = await submitted(world, "gone")
        await world.workers[EAST].delete(JOBS, "gone", NAMESPACE)
        async with roles.agent(world, urls, "east"):
            await scenario.expect_event("VanishedOnWorker", on=world.manager)
            await world.manager.delete(JOBS, "gone", NAMESPACE)
            await scenario.expect_nothing_left()


async def test_what_somebody_changed_on_the_worker_is_put_right(world: World, urls: dict[str, str]) -> None:
    async with roles.manager(world, urls), roles.agent(world, urls, "east", **OFTEN):
        [scenario] = await submitted(world, "changed")
        forged = {"metadata": {"annotations": {api_names.GRANTED_ANNOTATION: '{"main":9}'}}}
        await world.workers[EAST].patch(JOBS, "changed", NAMESPACE, MergePatch(forged))

        async def right() -> bool:
            return bool(
                (await scenario.worker_job())["metadata"]["annotations"][api_names.GRANTED_ANNOTATION] == '{"main":1}'
            )

        await eventually(right, "the grant is what it was")


async def test_a_status_that_was_missed_is_asked_for(world: World, urls: dict[str, str], journal: Bus) -> None:
    async with roles.manager(world, urls), roles.agent(world, urls, "east", **OFTEN):
        [scenario] = await submitted(world, "missed")

        async def mirrored() -> bool:
            there, here = await world.manager.get(JOBS, "missed", NAMESPACE), await scenario.worker_job()
            return bool(there.get("status") == here.get("status") and here["status"].get("ready") == 1)

        await eventually(mirrored, "all that happened is reported")
        before = len(await messages(journal, Resync))
        body = {"status": {"active": None, "ready": None}}
        await world.manager.patch(JOBS, "missed", NAMESPACE, MergePatch(body), subresource="status")
        await eventually(mirrored, "the status is the worker's")
        asked = await messages(journal, Resync)
        # Again where the answer comes after the next inventory.
        assert {tuple(job.name for job in resync.jobs) for resync in asked[before:]} == {("missed",)}


async def test_what_is_the_same_costs_an_inventory_and_no_more(
    world: World, urls: dict[str, str], journal: Bus
) -> None:
    async with roles.manager(world, urls) as manager:
        async with roles.agent(world, urls, "east"):
            await submitted(world, "one", "two")
        async with roles.agent(world, urls, "east", **OFTEN):

            async def compared_twice() -> bool:
                inventories = await messages(journal, Inventory)
                return len(inventories) >= 4 and inventories[-1].page == 0

            before = await messages(journal, WorkloadSpec)
            await eventually(compared_twice, "some inventories")
            assert await messages(journal, WorkloadSpec) == before
            assert manager.metric("slicebus_manager_differences_total", cluster="east", difference="renew") == 0
            assert manager.metric("slicebus_manager_differences_total", cluster="east", difference="stray") == 0


async def test_a_manager_that_starts_asks_for_the_inventory(world: World, urls: dict[str, str], journal: Bus) -> None:
    async with AsyncExitStack() as outlasting:
        async with roles.manager(world, urls):
            await outlasting.enter_async_context(roles.agent(world, urls, "east"))
            await submitted(world, "runs")
        inventories, asked = len(await messages(journal, Inventory)), len(await messages(journal, Resync))
        async with roles.manager(world, urls):
            await said(journal, Inventory, more_than=inventories)
            # What the inventory shows may be asked for right after it.
            assert (await messages(journal, Resync))[asked].reason == "NoInventory"


# --- too many deletes -----------------------------------------------------------------------------------------------

MANY = [f"many-{number}" for number in range(6)]
BREAKER = {"breaker_count": 3}


async def held(world: World, count: int) -> None:
    async def look() -> bool:
        status = (await world.manager.get(WORKERCLUSTERS, "east")).get("status", {})
        return bool(status.get("heldDeletes", {}).get("jobs", 0) == count)

    await eventually(look, f"{count} deletes are held")


async def warnings_on(world: World, cluster: Manifest) -> list[str]:
    """The types of the Events about held deletes: they come right after the status."""
    events = (await world.manager.list(EVENTS)).items
    on_cluster = [event for event in events if event["involvedObject"].get("uid") == cluster["metadata"]["uid"]]
    return [event["type"] for event in on_cluster if event["reason"] == "DeletesHeld"]


@pytest.mark.parametrize("how", ["deleted", "forgotten"])
async def test_a_mass_delete_stops_until_it_is_released(
    world: World, urls: dict[str, str], journal: Bus, kubeconfig: Path, how: str
) -> None:
    worker = world.workers[EAST]
    async with AsyncExitStack() as outlasting:
        async with roles.manager(world, urls, **BREAKER):
            await outlasting.enter_async_context(roles.agent(world, urls, "east", **OFTEN))
            scenarios = await submitted(world, *MANY)
        # While no manager looks, so that it finds them all at once.
        for name in MANY:
            await (world.manager.delete(JOBS, name, NAMESPACE) if how == "deleted" else forget_job(world, name))
        async with roles.manager(world, urls, **BREAKER) as manager:
            await held(world, len(MANY))
            cluster = await world.manager.get(WORKERCLUSTERS, "east")
            assert worker_cluster_status.is_held(cluster)

            async def counted() -> bool:
                return manager.metric("slicebus_deletes_held", cluster="east") == len(MANY)

            await eventually(counted, "the metric says so")
            assert await eventually(lambda: warnings_on(world, cluster), "an Event says so") == ["Warning"]
            inventories = len(await messages(journal, Inventory))
            await said(journal, Inventory, more_than=inventories + 1)
            assert await messages(journal, Delete) == []
            assert await names_on(worker) == set(MANY)
            env = {"KUBECONFIG": str(kubeconfig)}
            listed = await asyncio.to_thread(run_cli, "fleet", "list", env=env)
            assert "deletes held" in listed.stdout, listed.stderr
            refused = await asyncio.to_thread(run_cli, "fleet", "release", "east", env=env)
            assert (refused.returncode, f"has of {len(MANY)} jobs: --yes says" in refused.stderr) == (2, True), refused
            released = await asyncio.to_thread(run_cli, "fleet", "release", "east", "--yes", env=env)
            assert released.stdout == f"released {len(MANY)} deletes on east\n", released.stderr
            for scenario in scenarios:
                await scenario.expect_nothing_left()
            await held(world, 0)
            assert not worker_cluster_status.is_held(await world.manager.get(WORKERCLUSTERS, "east"))
            again = await asyncio.to_thread(run_cli, "fleet", "release", "east", env=env)
            assert again.stdout == "no deletes are held for east\n"


async def test_what_is_held_is_held_by_the_next_manager(world: World, urls: dict[str, str], journal: Bus) -> None:
    async with AsyncExitStack() as outlasting:
        async with roles.manager(world, urls, **BREAKER):
            await outlasting.enter_async_context(roles.agent(world, urls, "east"))
            await submitted(world, *MANY)
        for name in MANY:
            await world.manager.delete(JOBS, name, NAMESPACE)
        for _ in range(2):
            async with roles.manager(world, urls, **BREAKER):
                await held(world, len(MANY))
        assert await messages(journal, Delete) == []


# --- what is stuck ----------------------------------------------------------------------------------------------------


class Stuck:
    """A way to an API server on which some writes wait until they may go on."""

    def __init__(self, client: KubeClient, holds: Callable[[Request], bool]) -> None:
        self._transport: Transport = client._transport
        self._holds = holds
        self.free = asyncio.Event()
        self.held: list[str] = []
        """The paths of those that have come so far."""

    @property
    def host(self) -> str:
        return self._transport.host

    async def request(self, request: Request) -> Answer:
        if request.method != "GET" and self._holds(request):
            self.held.append(request.path)
            await self.free.wait()
        return await self._transport.request(request)

    def stream(self, request: Request) -> Any:
        return self._transport.stream(request)

    async def aclose(self) -> None:
        await self._transport.aclose()


async def test_an_object_that_is_stuck_delays_no_other(world: World, urls: dict[str, str]) -> None:
    direct = world.workers[EAST]
    stuck = Stuck(direct, lambda request: "stuck" in request.path or b'"name":"stuck"' in (request.body or b""))
    client = KubeClient(stuck)
    async with roles.manager(world, urls), roles.agent(world, urls, "east", client=client, workers=2, prefetch=4):
        await set_quota(world, 20)
        await world.manager.create(JOBS, elastic("Job", "stuck"))

        async def hangs() -> bool:
            return bool(stuck.held)

        await eventually(hangs, "the first write hangs")
        scenarios = [Scenario(world, "Job", f"free-{number}") for number in range(5)]
        for scenario in scenarios:
            await scenario.submit()
        for scenario in scenarios:
            await scenario.expect_pods(running=1)
            await scenario.scale(2)
            await scenario.expect_pods(running=2)
        assert "stuck" not in await names_on(direct)
        stuck.free.set()
        await Scenario(world, "Job", "stuck").expect_pods(running=1)


async def test_no_spec_is_behind_a_status(world: World, urls: dict[str, str]) -> None:
    """Not one status gets through, and they pile up; specs and resizes do."""
    stuck = Stuck(world.manager, lambda request: request.path.endswith("/status") and "/jobs/" in request.path)
    names = [f"job-{number}" for number in range(40)]
    async with roles.manager(world, urls, client=KubeClient(stuck), prefetch=20), roles.agent(world, urls, "east"):
        await set_quota(world, 100)
        for name in names:
            await world.manager.create(JOBS, elastic("Job", name))

        async def full() -> bool:
            return len(stuck.held) >= 8

        await eventually(full, "as many statuses hang as may be under way of one lane")
        # What is asked of a job whose own status hangs waits for that.
        resized = next(name for name in reversed(names) if not any(f"/jobs/{name}/" in path for path in stuck.held))
        last = Scenario(world, "Job", resized)
        await last.expect_pods(running=1)
        await last.scale(3)
        await last.expect_pods(running=3)
        assert not (await world.manager.get(JOBS, resized, NAMESPACE)).get("status", {}).get("ready")
        stuck.free.set()

        async def mirrored() -> bool:
            jobs = (await world.manager.list(JOBS, namespace=NAMESPACE)).items
            ready = {job["metadata"]["name"]: job.get("status", {}).get("ready") for job in jobs}
            return ready == dict.fromkeys(names, 1) | {resized: 3}

        await eventually(mirrored, "every status is there, the newest of each job")
