"""The broker is lost with all that it held, and rebuilt from its definitions: the objects say what to send again."""

import asyncio
from collections.abc import Callable

import pytest

from slicebus.cli.demo.world import World
from support.fleet import Fleet, Jobs, QuotaWatch
from support.rabbitmq import RabbitBroker
from support.scenario import set_quota

pytestmark = [pytest.mark.rabbitmq, pytest.mark.controlplane]

QUOTA = 12


@pytest.mark.parametrize("rebuild", [RabbitBroker.import_all, RabbitBroker.add_vhost], ids=["with queues", "without"])
async def test_a_fleet_goes_on_with_a_broker_that_was_rebuilt(
    fleet: Fleet, clusters: World, rabbitmq: RabbitBroker, vhost: str, rebuild: Callable[..., None]
) -> None:
    await set_quota(clusters, QUOTA)
    jobs, quota = Jobs(clusters, ["one", "two", "three", "four"]), QuotaWatch(clusters, QUOTA)
    await jobs.submit()
    await jobs.resize("one", 3)
    await jobs.agreed()
    async with quota.watching():
        await jobs.resize("two", 2)
        await asyncio.to_thread(rabbitmq.remove_vhost, vhost)
        # Nobody can say what the lost queues held, and these resizes are asked for meanwhile.
        await jobs.resize("one", 1)
        await jobs.resize("three", 4)
        await asyncio.to_thread(rebuild, rabbitmq, vhost, "east", "west")
        await jobs.agreed()
    assert not quota.violations
    fleet.expect_no_tracebacks()
