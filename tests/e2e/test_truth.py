"""What tools and a worker's user are told while no manager works, or the broker takes nothing: by whom, and when."""

import asyncio
import time
import urllib.error
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, TypeVar

import pytest
import structlog

from slicebus.cli.demo.world import World
from slicebus.slices.workload.waiting import BROKER_NOT_REACHED, MANAGER_NOT_REACHED
from support.controlplane import ControlPlane
from support.fleet import Fleet
from support.installation import run_cli
from support.rabbitmq import RabbitBroker
from support.scenario import Scenario, set_quota
from support.telling import expect_lease_says, expect_one_event, not_shown, shown
from support.waiting import eventually

_log = structlog.get_logger()
BOUND_S = 50.0
"""Everybody is told within 30 s on a quiet machine (docs/operations.md)."""
Told = TypeVar("Told")


@pytest.fixture
async def two_managers(
    clusters: World, control_plane: ControlPlane, rabbitmq: RabbitBroker, vhost: str, tmp_path: Path
) -> AsyncIterator[Fleet]:
    made = Fleet(tmp_path)
    made.add_all(control_plane, lambda name: rabbitmq.url(vhost, name))
    url = rabbitmq.url(vhost, "manager")
    made.add("manager-2", "manager", url=url, kubeconfig=control_plane.clusters["manager"].kubeconfig)
    async with made.kept():
        await made.ready()
        yield made


class Watch:
    """Notes in how many seconds somebody says something."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self.seconds: dict[str, float] = {}

    async def until(self, who: str, look: Callable[[], Any]) -> Any:
        """What `look`, which blocks, returns first that is true."""

        async def ask() -> Any:
            return await asyncio.to_thread(look)

        return await self.of(who, eventually(ask, f"{who} says so", within_s=BOUND_S))

    async def of(self, who: str, told: Awaitable[Told]) -> Told:
        """The same of what is waited for elsewhere."""
        found = await told
        self.seconds[who] = round(time.monotonic() - self._began, 1)
        return found


def readyz(fleet: Fleet, name: str) -> str:
    """What the probe of a role says."""
    try:
        return fleet.roles[name].probe("/readyz").strip()
    except urllib.error.HTTPError as error:
        return error.read().decode().strip()


@pytest.mark.rabbitmq
@pytest.mark.controlplane
async def test_with_both_managers_stopped_each_tool_says_so_first(
    two_managers: Fleet, clusters: World, control_plane: ControlPlane
) -> None:
    """Half a minute: so long an agent waits for a standby that takes over."""
    fleet, scenario = two_managers, Scenario(clusters, "Job", "sweep")
    await set_quota(clusters, 20)
    await scenario.submit()
    await scenario.expect_pods(running=1)
    manager_kubeconfig, where = control_plane.clusters["manager"].kubeconfig, await scenario.cluster()
    fleet.held |= {"manager", "manager-2"}
    for name in ("manager", "manager-2"):
        fleet.crash(name)
    watch = Watch()
    await scenario.scale(3)

    def command(*arguments: str) -> Callable[[], CompletedProcess[str] | None]:
        def look() -> CompletedProcess[str] | None:
            done = run_cli(*arguments, env={"KUBECONFIG": str(manager_kubeconfig)})
            return done if done.stderr.startswith("✗ no manager leads since 20") else None

        return look

    told = "manager not reached since 20"
    listed, jobs, explained, _, waiting = await asyncio.gather(
        watch.until("fleet list", command("fleet", "list")),
        watch.until("jobs", command("jobs", "-A", "--no-headers")),
        watch.until("explain", command("explain", "sweep")),
        watch.until("readyz", lambda: told in readyz(fleet, where)),
        watch.of("job", shown(scenario, MANAGER_NOT_REACHED, within_s=BOUND_S)),
    )
    assert (listed.returncode, "connected" in listed.stdout) == (1, False)
    assert listed.stdout.count("unknown") == len(clusters.workers)
    assert jobs.returncode == 1
    assert jobs.stdout.split()[3] == "Unknown"
    assert "NoManager: no manager leads since 20" in jobs.stdout
    assert (explained.returncode, "sweep" in explained.stdout) == (1, True)
    assert (waiting.message.startswith(told), waiting.wanted) == (True, {"main": 3})
    await expect_one_event(scenario, MANAGER_NOT_REACHED)
    doctor = await asyncio.to_thread(fleet.roles["manager"].doctor)
    assert (doctor.returncode, "✗ leader       nobody leads since 20" in doctor.stdout.splitlines()[1]) == (1, True)
    assert "its connection is unknown until the check of the leader passes" in doctor.stdout

    def of_agent() -> CompletedProcess[str] | None:
        done = fleet.roles[where].doctor()
        return done if told in "".join(done.stdout.splitlines()[1:2]) else None

    doctor = await watch.until("doctor of the agent", of_agent)
    assert doctor.returncode == 1
    assert f"✗ manager      nobody reads what {where} sends" in doctor.stdout
    columns = control_plane.clusters["manager"].kubectl("get", "workerclusters").splitlines()
    assert columns[0].split()[2:4] == ["CONNECTED", "SEEN"]
    _log.info("told", **watch.seconds)
    fleet.held.clear()
    await scenario.expect_pods(running=3)
    await not_shown(scenario)
    await eventually(lambda: asyncio.to_thread(fleet.roles[where].is_ready), f"{where} is ready again")


@pytest.fixture
def blocked(rabbitmq: RabbitBroker) -> Iterator[Callable[[], None]]:
    """Has the broker block publishers; when the test is over it no longer does."""
    try:
        yield lambda: _watermark(rabbitmq, "0.0000001")
    finally:
        _watermark(rabbitmq, "0.4")


def _watermark(broker: RabbitBroker, share: str) -> None:
    broker.ctl("set_vm_memory_high_watermark", share)


@pytest.mark.rabbitmq
@pytest.mark.controlplane
async def test_with_the_broker_blocked_every_role_says_why_and_the_doctor_ends(
    fleet: Fleet, clusters: World, rabbitmq: RabbitBroker, blocked: Callable[[], None]
) -> None:
    """Half a minute: so long a publish waits for its confirm, and the job is told of it before."""
    scenario = Scenario(clusters, "Job", "sweep")
    await set_quota(clusters, 20)
    await scenario.submit()
    await scenario.expect_pods(running=1)
    where = await scenario.cluster()
    await asyncio.to_thread(blocked)
    watch, told = Watch(), "the broker takes nothing from publishers: low on memory"
    await scenario.scale(3)
    *_, waiting = await asyncio.gather(
        watch.until("readyz of the agent", lambda: told in readyz(fleet, where)),
        watch.until("readyz of the manager", lambda: told in readyz(fleet, "manager")),
        watch.of("job", shown(scenario, BROKER_NOT_REACHED, within_s=BOUND_S)),
    )
    assert waiting.message.endswith("it takes nothing from publishers, low on memory")
    await expect_one_event(scenario, BROKER_NOT_REACHED)
    for name in (where, "manager"):
        assert "slicebus_broker_blocked 1.0" in fleet.roles[name].probe("/metrics")
    for client, role in ((clusters.manager, "manager"), (clusters.workers[where], "agent")):
        await expect_lease_says(client, role, told)
    for name in (where, "manager"):

        def doctor(name: str = name) -> CompletedProcess[str] | None:
            began, done = time.monotonic(), fleet.roles[name].doctor()
            watch.seconds[f"doctor of {name}, by itself"] = round(time.monotonic() - began, 1)
            return done if told in done.stdout else None

        done = await watch.until(f"doctor of {name}", doctor)
        assert watch.seconds[f"doctor of {name}, by itself"] < BOUND_S, "every check ends"
        assert done.returncode == 1
        assert "✗ broker       it takes nothing from publishers: low on memory" in done.stdout
        assert "✓ permissions" in done.stdout, "the rest goes on"
    _log.info("told", **watch.seconds)
    await asyncio.to_thread(_watermark, rabbitmq, "0.4")
    watch = Watch()
    await watch.of("pods", scenario.expect_pods(running=3))
    await watch.of("nothing shown", not_shown(scenario))
    for name in (where, "manager"):
        await eventually(lambda name=name: asyncio.to_thread(fleet.roles[name].is_ready), f"{name} is ready again")  # type: ignore[misc]
    _log.info("over", **watch.seconds)
    fleet.expect_no_tracebacks()


@pytest.mark.rabbitmq
@pytest.mark.controlplane
async def test_with_the_broker_down_every_role_says_so_and_a_resize_too(
    fleet: Fleet, clusters: World, control_plane: ControlPlane, rabbitmq: RabbitBroker
) -> None:
    """A broker takes 7 to 20 s to start."""
    scenario, manager = Scenario(clusters, "Job", "sweep"), control_plane.clusters["manager"]
    await set_quota(clusters, 20)
    await scenario.submit()
    await scenario.expect_pods(running=1)
    where = await scenario.cluster()
    await asyncio.to_thread(rabbitmq.kill)
    watch, told = Watch(), "there is no connection to the broker"
    try:
        await scenario.scale(3)

        def listed() -> CompletedProcess[str] | None:
            done = run_cli("fleet", "list", env={"KUBECONFIG": str(manager.kubeconfig)})
            return done if done.returncode else None

        found, *_, waiting = await asyncio.gather(
            watch.until("fleet list", listed),
            watch.until("readyz of the agent", lambda: told in readyz(fleet, where)),
            watch.until("readyz of the manager", lambda: told in readyz(fleet, "manager")),
            watch.of("job", shown(scenario, BROKER_NOT_REACHED, within_s=BOUND_S)),
        )
        assert found.stderr.startswith("✗ the manager does not work: ")
        assert (told in found.stderr, "connected" in found.stdout) == (True, False)
        assert waiting.message.endswith(told.replace("to the broker", "to it"))
        await expect_one_event(scenario, BROKER_NOT_REACHED)
        doctor = await asyncio.to_thread(fleet.roles[where].doctor)
        assert (doctor.returncode, "✗ broker" in doctor.stdout, "✓ permissions" in doctor.stdout) == (1, True, True)
    finally:
        rabbitmq.launch()
        await asyncio.to_thread(rabbitmq.wait_ready)
    _log.info("told", **watch.seconds)
    await scenario.expect_pods(running=3)
    await not_shown(scenario)
    fleet.expect_no_tracebacks()


@pytest.mark.rabbitmq
@pytest.mark.controlplane
async def test_with_an_agent_gone_the_managers_side_says_so(
    fleet: Fleet, clusters: World, control_plane: ControlPlane
) -> None:
    """Half a minute: so long a cluster may be silent. On the worker nobody is left who could say anything."""
    scenario, manager = Scenario(clusters, "Job", "sweep"), control_plane.clusters["manager"]
    await set_quota(clusters, 20)
    await scenario.submit()
    await scenario.expect_pods(running=1)
    where = await scenario.cluster()
    fleet.held.add(where)
    fleet.crash(where)
    watch = Watch()

    def listed(*, silent: bool) -> bool:
        done = run_cli("fleet", "list", env={"KUBECONFIG": str(manager.kubeconfig)})
        return done.returncode == 0 and ("silent" in done.stdout) is silent

    def kubectl() -> bool:
        condition = '{.status.conditions[?(@.type=="Connected")].status}'
        return manager.kubectl("get", "workercluster", where, "-o", f"jsonpath={condition}") == "False"

    await asyncio.gather(
        watch.until("kubectl get workerclusters", kubectl),
        watch.until("fleet list", lambda: listed(silent=True)),
    )
    doctor = await asyncio.to_thread(fleet.roles["manager"].doctor)
    assert (doctor.returncode, f"✗ cluster {where} not connected" in doctor.stdout) == (1, True)
    _log.info("told", **watch.seconds)
    fleet.held.clear()
    await scenario.scale(3)
    await scenario.expect_pods(running=3)
    await watch.until("fleet list of a cluster that is back", lambda: listed(silent=False))
