"""A bus for each test: once each RabbitMQ, once the in-process one."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from integration.bus.contract import EAST, EAST_UID, Connect
from slicebus.bus.contract import Bus
from slicebus.bus.factory import connect
from slicebus.bus.settings import BusSettings
from slicebus.proto.topology import agent_topology, manager_topology
from support.rabbitmq import ADMIN, RabbitBroker
from support.rabbitmq_releases import EACH
from support.servers import vhost_of

USERS = ("manager", "east", "west", ADMIN)


@pytest.fixture(params=["memory", *EACH])
async def connect_as(request: pytest.FixtureRequest) -> AsyncIterator[Connect]:
    """Connects as a user to a broker of the test's own; every connection is closed afterwards."""
    async with AsyncExitStack() as stack:
        if request.param == "memory":
            name = request.getfixturevalue("broker_name")
            urls = {user: f"memory://{user}@{name}" for user in USERS}
        else:
            broker: RabbitBroker = request.getfixturevalue("brokers")(request.param)
            vhost = stack.enter_context(vhost_of(broker))
            urls = {user: broker.url(vhost, user) for user in USERS}

        async def make(user: str = "manager", **how: Any) -> Bus:
            settings = BusSettings(**{"confirm_s": 10.0} | how)
            bus = await connect(urls[user], name=f"test {user}", settings=settings)
            stack.push_async_callback(bus.aclose)
            return bus

        yield make


@pytest.fixture
async def bus(connect_as: Connect) -> Bus:
    made = await connect_as()
    await made.declare(manager_topology() + agent_topology(EAST, EAST_UID))
    return made
