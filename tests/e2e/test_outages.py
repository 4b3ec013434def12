"""Every part is killed and started again amid resizes: nothing is lost, nothing runs twice, no quota leaks."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from slicebus.cli.demo.world import World
from support.controlplane import ControlPlane
from support.fleet import Fleet, Jobs, QuotaWatch, connected, nothing_is_left, queues_of
from support.rabbitmq import RabbitBroker
from support.scenario import set_quota

pytestmark = [pytest.mark.rabbitmq, pytest.mark.controlplane]

JOBS, RESIZES, QUOTA, MOST, PACE_S = 20, 200, 50, 6, 0.2
"""Together the jobs may want more than twice the quota."""
SEED = int(os.environ.get("OUTAGE_SEED", "7"))


async def test_200_resizes_come_through_whatever_is_killed(
    fleet: Fleet, clusters: World, control_plane: ControlPlane, rabbitmq: RabbitBroker, vhost: str
) -> None:
    """A minute and more: seven faults one after the other, with two restarts of API servers and one of the broker."""
    random, world = Random(SEED), clusters
    await set_quota(world, QUOTA)
    jobs, quota = Jobs(world, [f"job-{number}" for number in range(JOBS)]), QuotaWatch(world, QUOTA)
    await jobs.submit()

    async def resize() -> None:
        for number in range(RESIZES):
            name = random.choice(sorted(jobs.wanted))
            # In the end every wish fits.
            most = MOST if number < RESIZES - JOBS else QUOTA // JOBS
            await jobs.resize(name, random.randint(1, most))
            await asyncio.sleep(PACE_S)
        for name in sorted(name for name, size in jobs.wanted.items() if size > QUOTA // JOBS):
            await jobs.resize(name, random.randint(1, QUOTA // JOBS))

    async def restart_broker() -> None:
        await asyncio.to_thread(rabbitmq.kill)
        rabbitmq.launch()
        await asyncio.to_thread(rabbitmq.wait_ready)

    async def restart_api_server(name: str) -> None:
        cluster = control_plane.clusters[name]
        await asyncio.to_thread(cluster.api_server.kill)
        cluster.api_server.start()
        await asyncio.to_thread(cluster.wait_ready)
        # Left alone, the Job controller may look away for a minute (client-go's pauses between tries), and KWOK forgets
        # about a pod when the request for it is cut.
        cluster.start_controllers()

    async def crash(*names: str) -> None:
        for name in names:
            fleet.crash(name)

    faults: list[tuple[Callable[..., Awaitable[None]], tuple[str, ...]]] = [
        (crash, ("east",)),
        (crash, ("manager",)),
        (restart_api_server, ("east",)),
        (restart_broker, ()),
        (crash, ("west", "manager")),
        (restart_api_server, ("manager",)),
        (crash, ("east", "west", "manager")),
    ]
    random.shuffle(faults)
    told = f"seed {SEED}, faults {[(fault.__name__, *names) for fault, names in faults]}"
    try:
        async with quota.watching(), asyncio.TaskGroup() as group:
            group.create_task(resize())
            for fault, names in faults:
                await asyncio.sleep(random.uniform(1, 4))
                await fault(*names)
        async with quota.watching():
            await jobs.agreed()
        assert not quota.violations
        assert quota.looks > 20
        fleet.expect_no_tracebacks()
        await nothing_is_left(rabbitmq.url(vhost, "manager"), await queues_of(world))
        for name in world.workers:
            assert await connected(world, name)
    except BaseException as error:
        error.add_note(told)
        raise
