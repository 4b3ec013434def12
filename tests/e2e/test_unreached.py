"""A resize that nobody answers, as no manager or no broker is there: the worker's user is told, once, until it is over.

Whatever starts again meanwhile, and whatever was said before. In how many seconds real parts say it: test_truth.py.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from prometheus_client import CollectorRegistry

from slicebus.agent.act import reach as looks
from slicebus.agent.decide.cluster import reach
from slicebus.ambient.clock import now
from slicebus.bus.factory import connect
from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World, running
from slicebus.kube.client import MergePatch
from slicebus.kube.resources import LEASES
from slicebus.kube.times import micro_time_text
from slicebus.manager.app import Manager
from slicebus.manager.settings import ManagerSettings
from slicebus.proto.messages import ClusterName, Lane
from slicebus.proto.topology import cluster_queue
from slicebus.sandbox.bus import MemoryBroker
from slicebus.slices.workload.waiting import BROKER_NOT_REACHED, MANAGER_NOT_REACHED, Waiting
from support.installation import run_cli
from support.kubeconfig import write_kubeconfig
from support.refusing import WEBHOOK_DENIES, refusing
from support.requests import api_requests
from support.roles import LEASE, Running, agent, manager
from support.scenario import Scenario, set_quota
from support.telling import events_of, expect_lease_says, expect_one_event, not_shown, shown
from support.waiting import eventually

ALARM = "low on memory"
QUOTA_CPU = 20


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents that look and say so within two seconds."""
    for module, name, value in (
        (looks, "_LOOK_S", 0.2),
        (looks, "_AGAIN_S", 0.1),
        (reach, "MANAGER_S", 1.0),
        (reach, "BROKER_S", 0.5),
    ):
        monkeypatch.setattr(module, name, value)


@pytest.fixture
async def job(bare_east: World, urls: dict[str, str]) -> Scenario:
    """A job that runs with one pod on a worker without an agent, and whose manager has ended."""
    scenario = Scenario(bare_east, "Job", "a")
    async with manager(bare_east, urls), agent(bare_east, urls, "east"):
        await set_quota(bare_east, QUOTA_CPU)
        await scenario.submit()
        await scenario.expect_pods(running=1)
    return scenario


async def told(*arguments: str, kubeconfig: Path) -> CompletedProcess[str]:
    return await asyncio.to_thread(run_cli, *arguments, env={"KUBECONFIG": str(kubeconfig)})


async def test_a_manager_that_has_gone_is_told_to_everybody_until_it_is_back(
    bare_east: World, urls: dict[str, str], tmp_path: Path
) -> None:
    kubeconfig, scenario = (
        write_kubeconfig(tmp_path / "config", bare_east.manager.host),
        Scenario(bare_east, "Job", "a"),
    )
    async with AsyncExitStack() as stack:
        async with manager(bare_east, urls):
            await stack.enter_async_context(agent(bare_east, urls, "east"))
            await set_quota(bare_east, QUOTA_CPU)
            await scenario.submit()
            await scenario.expect_pods(running=1)
            listed = await told("fleet", "list", kubeconfig=kubeconfig)
            assert (listed.returncode, listed.stderr) == (0, "")
            assert "connected" in listed.stdout
        await scenario.scale(3)
        waiting = await shown(scenario, MANAGER_NOT_REACHED)
        assert waiting.message.startswith("manager not reached since 20")
        assert waiting.wanted == {"main": 3}
        await expect_one_event(scenario, MANAGER_NOT_REACHED)
        listed = await told("fleet", "list", kubeconfig=kubeconfig)
        assert (listed.returncode, "connected" in listed.stdout, "unknown" in listed.stdout) == (1, False, True)
        assert listed.stderr.startswith("✗ no manager leads since 20")
        explained = await told("explain", "a", "-o", "json", kubeconfig=kubeconfig)
        assert (explained.returncode, explained.stdout[0]) == (1, "{"), "the result is there, and machines can read it"
        assert explained.stderr.startswith("✗ no manager leads since 20")
        async with manager(bare_east, urls):
            await scenario.expect_pods(running=3)
            await not_shown(scenario)
            assert (await told("explain", "a", kubeconfig=kubeconfig)).returncode == 0


async def test_a_broker_that_takes_nothing_is_told_on_the_job_until_it_does(
    bare_east: World, urls: dict[str, str], broker_name: str
) -> None:
    """The publish of the request holds the lock of the job for half a minute; what is shown does not wait for that."""
    scenario, broker = Scenario(bare_east, "Job", "a"), MemoryBroker.named(broker_name)
    async with manager(bare_east, urls), agent(bare_east, urls, "east"):
        await set_quota(bare_east, QUOTA_CPU)
        await scenario.submit()
        await scenario.expect_pods(running=1)
        broker.alarm = ALARM
        await scenario.scale(3)
        waiting = await shown(scenario, BROKER_NOT_REACHED, within_s=20.0)
        assert waiting.message.endswith(f": it takes nothing from publishers, {ALARM}")
        await expect_one_event(scenario, BROKER_NOT_REACHED)
        for client, name in ((bare_east.manager, "manager"), (await scenario.worker(), "agent")):
            await expect_lease_says(client, name, ALARM)
        broker.alarm = ""
        await scenario.expect_pods(running=3)
        await not_shown(scenario)


async def test_what_the_manager_has_answered_stands_and_the_next_size_is_unanswered(
    job: Scenario, urls: dict[str, str]
) -> None:
    """A request of before the outage has its answer: quota. One that is made in it has none, and never that one."""
    async with agent(job.world, urls, "east") as east:
        async with manager(job.world, urls):
            await job.scale(QUOTA_CPU + 10)
            answered = await shown(job, "Pending")
        await expect_unread(east)
        assert Waiting.from_manifest(await job.worker_job()) == answered
        await job.scale(QUOTA_CPU + 20)
        waiting = await shown(job, MANAGER_NOT_REACHED)
        assert (waiting.wanted["main"], waiting.would_admit) == (QUOTA_CPU + 20, "")
        await job.scale(1)
        await not_shown(job)
        assert await events_of(job, MANAGER_NOT_REACHED) == 1


async def expect_unread(of: Running) -> None:
    """Wait until nobody reads what the cluster sends, and for longer than it takes to say so."""

    async def look() -> bool:
        return not (await of.bus.depth(cluster_queue(ClusterName(of.bus.user), Lane.CONTROL))).consumers

    await eventually(look, "nobody reads")
    await asyncio.sleep(reach.MANAGER_S + 1)


async def test_an_agent_that_starts_again_in_the_outage_says_it_no_second_time(
    job: Scenario, urls: dict[str, str]
) -> None:
    async with agent(job.world, urls, "east"):
        await job.scale(3)
        waiting = await shown(job, MANAGER_NOT_REACHED)
        await expect_one_event(job, MANAGER_NOT_REACHED)
    before = (await job.worker_job())["metadata"]["resourceVersion"]
    async with agent(job.world, urls, "east") as east:
        await expect_unread(east)
        after = await job.worker_job()
        assert (Waiting.from_manifest(after), after["metadata"]["resourceVersion"]) == (waiting, before)
        assert await events_of(job, MANAGER_NOT_REACHED) == 1
        async with manager(job.world, urls):
            await job.expect_pods(running=3)
            await not_shown(job)


async def test_at_rest_nothing_is_written_in_an_outage(job: Scenario, urls: dict[str, str]) -> None:
    """Neither the job again, by turns of two steps, nor an Event."""
    async with agent(job.world, urls, "east") as east:
        await job.scale(3)
        await shown(job, MANAGER_NOT_REACHED)
        await expect_one_event(job, MANAGER_NOT_REACHED)
        before = written_by(east)
        await asyncio.sleep(20 * looks._AGAIN_S)
        assert written_by(east) == before


def written_by(role: Running) -> Counter[tuple[str, ...]]:
    """What a role has written, without the renewals of its Lease."""
    read = ("get", "list", "watch")
    return Counter({of: n for of, n in api_requests(role.registry).items() if of[0] not in read and of[1] != "leases"})


async def test_a_manager_that_only_stands_by_answers_nobody(job: Scenario, urls: dict[str, str]) -> None:
    world = job.world
    spec = {"holderIdentity": "elsewhere", "renewTime": micro_time_text(now()), "leaseDurationSeconds": 300}
    await world.manager.patch(LEASES, "slicebus-manager", objects.SYSTEM_NAMESPACE, MergePatch({"spec": spec}))
    async with agent(world, urls, "east") as east, standby(world, urls):
        await job.scale(3)
        await shown(job, MANAGER_NOT_REACHED)
        await expect_unread(east)
        await shown(job, MANAGER_NOT_REACHED)
        given_back = MergePatch({"spec": {"holderIdentity": ""}})
        await world.manager.patch(LEASES, "slicebus-manager", objects.SYSTEM_NAMESPACE, given_back)
        await job.expect_pods(running=3)
        await not_shown(job)


@asynccontextmanager
async def standby(world: World, urls: dict[str, str]) -> AsyncIterator[None]:
    """A manager that waits for the Lease."""
    bus = await connect(urls["manager"], name="manager")
    given = {"amqp_url": urls["manager"], "namespace": objects.SYSTEM_NAMESPACE, "identity": "manager-2"}
    role = Manager(ManagerSettings(**given | LEASE), world.manager, bus, CollectorRegistry())
    try:
        async with running(role.run()):
            yield
    finally:
        await bus.aclose()


async def test_a_manager_that_is_back_and_refuses_is_reached(job: Scenario, urls: dict[str, str]) -> None:
    """What it says takes the place of what the agent has said."""
    world = job.world
    async with agent(world, urls, "east"):
        await job.scale(3)
        await shown(job, MANAGER_NOT_REACHED)
        with refusing(world.apis[world.manager.host], WEBHOOK_DENIES, verbs="POST PATCH", path="/workloads"):
            async with manager(world, urls):
                refused = await shown(job, "RequestRefused")
                assert "not reached" not in refused.message
                assert await events_of(job, MANAGER_NOT_REACHED) == 1
        async with manager(world, urls):
            await job.expect_pods(running=3)
            await not_shown(job)
