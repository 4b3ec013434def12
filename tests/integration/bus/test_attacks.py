"""What somebody with one agent's credentials tries on RabbitMQ. The rights that slicebus defines refuse it; with `.*`
each of these works, so that the tests can fail."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import aio_pika
import pytest
from aio_pika.abc import AbstractConnection
from aiormq.abc import AbstractChannel
from pamqp.commands import Basic

from integration.bus.contract import CONTROL, EAST, message, take
from slicebus.bus.contract import Bus
from slicebus.bus.factory import connect
from slicebus.bus.rabbitmq.failures import translated
from slicebus.proto.errors import ForbiddenError, SlicebusError
from slicebus.proto.messages import ClusterName, ClusterUid, Lane
from slicebus.proto.rights import (
    Action,
    Member,
    Use,
    Viewer,
    agent_rights,
    agent_uses,
    manager_uses,
    too_much,
    viewer_rights,
)
from slicebus.proto.topology import (
    AGENT_DEAD,
    AGENT_DECISIONS,
    AGENT_JOURNAL,
    DEAD,
    DECISIONS,
    DOWN,
    JOURNAL,
    STRANGERS,
    UP,
    Topology,
    agent_queue,
    agent_topology,
    cluster_queue,
    cluster_topology,
    manager_topology,
)
from support.rabbitmq import ADMIN, RabbitBroker
from support.rabbitmq_releases import every_rabbitmq
from support.waiting import eventually

pytestmark = every_rabbitmq

UID = ClusterUid("3f1c9a3e-0b7d-4e0c-9a57-2f4f5d6c7b8a")
WEST, EAST_2 = ClusterName("west"), ClusterName("east-2")
OWN, OTHERS = agent_queue(EAST, Lane.CONTROL, UID), agent_queue(WEST, Lane.CONTROL, UID)
SAME_NAME = agent_queue(EAST, Lane.STATUS, UID)
"""A queue's name, and an exchange's: they have names apart."""
TOPOLOGY = manager_topology() + sum(
    (cluster_topology(name) + agent_topology(name, UID) for name in (EAST, WEST)), start=Topology((), (), ())
)
QUORUM: dict[str, str | int] = {"x-queue-type": "quorum"}


@pytest.fixture
async def manager(rabbitmq: RabbitBroker, vhost: str) -> AsyncIterator[Bus]:
    """The manager's connection. It has made everything, and ordered something of west."""
    bus = await connect(rabbitmq.url(vhost, "manager"), name="manager")
    await bus.declare(TOPOLOGY)
    await bus.publish(DOWN, message(f"west.delete.{UID}", b"an order for west", user_id="manager"))
    yield bus
    await bus.aclose()


@asynccontextmanager
async def channel_of(url: str) -> AsyncIterator[AbstractChannel]:
    """A plain channel, without anything of slicebus."""
    connection = await aio_pika.connect(url)
    try:
        async with connection.channel(publisher_confirms=True) as channel:
            yield await channel.get_underlay_channel()  # type: ignore[misc]
    finally:
        await connection.close()


async def publish(channel: AbstractChannel, exchange: str, key: str, **properties: object) -> None:
    given = Basic.Properties(**{"user_id": "east", **properties})  # type: ignore[arg-type]
    await channel.basic_publish(b"an attack", exchange=exchange, routing_key=key, properties=given)


async def consume(channel: AbstractChannel, queue: str, **arguments: str) -> None:
    async def ignore(_: object) -> None:
        return

    await channel.basic_qos(prefetch_count=1)
    await channel.basic_consume(queue, ignore, arguments=dict(arguments))


async def by_an_exchange_of_its_own(channel: AbstractChannel) -> None:
    """Topic permissions are checked where a message is published, and not where it goes from there."""
    await channel.exchange_declare(SAME_NAME, exchange_type="fanout")
    await channel.exchange_bind(destination=AGENT_DECISIONS, source=SAME_NAME)
    await publish(channel, SAME_NAME, "west.decisions")


async def by_a_queue_of_its_own(channel: AbstractChannel) -> None:
    """What the broker dead-letters has the key that the queue says, and nobody's permissions."""
    name = "slicebus.agent.east.more.control"
    detour = {"x-dead-letter-exchange": AGENT_DECISIONS, "x-dead-letter-routing-key": "west.decisions"}
    await channel.queue_declare(name, durable=True, arguments=QUORUM | detour)


Attack = Callable[[AbstractChannel], Awaitable[object]]
ATTACKS: dict[str, Attack] = {
    "read the journal": lambda channel: consume(channel, JOURNAL, **{"x-stream-offset": "first"}),
    "delete the journal": lambda channel: channel.queue_delete(JOURNAL),
    "delete an exchange": lambda channel: channel.exchange_delete(DOWN),
    "delete the manager's queue": lambda channel: channel.queue_delete(CONTROL),
    "purge the manager's queue": lambda channel: channel.queue_purge(CONTROL),
    "unbind the manager's queue": lambda channel: channel.queue_unbind(CONTROL, UP, "*.hello"),
    "consume the manager's queue": lambda channel: consume(channel, CONTROL),
    "read the dead letters": lambda channel: consume(channel, DEAD),
    "purge the dead letters": lambda channel: channel.queue_purge(DEAD),
    "publish an order": lambda channel: publish(channel, DOWN, f"west.delete.{UID}"),
    "publish an order for itself": lambda channel: publish(channel, DOWN, f"east.delete.{UID}"),
    "publish into a queue": lambda channel: publish(channel, "", OTHERS),
    "speak for another cluster": lambda channel: publish(channel, UP, "west.hello"),
    "speak for one with a longer name": lambda channel: publish(channel, UP, "east-2.hello"),
    "record the manager's decisions": lambda channel: publish(channel, DECISIONS, "manager.decisions"),
    "record among the manager's decisions": lambda channel: publish(channel, DECISIONS, "east.decisions"),
    "record another's decisions": lambda channel: publish(channel, AGENT_DECISIONS, "west.decisions"),
    "dead-letter for another": lambda channel: publish(channel, AGENT_DEAD, "west.hello"),
    "fill the manager's dead letters": lambda channel: publish(channel, DEAD, "east.hello"),
    "speak as a stranger": lambda channel: publish(channel, STRANGERS, "east.hello"),
    "read the agents' journal": lambda channel: consume(channel, AGENT_JOURNAL, **{"x-stream-offset": "first"}),
    "consume what it has sent": lambda channel: consume(channel, cluster_queue(EAST, Lane.STATUS)),
    "purge what another has sent": lambda channel: channel.queue_purge(cluster_queue(WEST, Lane.STATUS)),
    "consume another's queue": lambda channel: consume(channel, OTHERS),
    "delete another's queue": lambda channel: channel.queue_delete(OTHERS),
    "bind its own queue to another's keys": lambda channel: channel.queue_bind(OWN, DOWN, "west.#"),
    "bind its own queue to all keys": lambda channel: channel.queue_bind(OWN, UP, "#"),
    "bind a queue to the dead letters": lambda channel: channel.queue_bind(OWN, DEAD, "#"),
    "bind the dead-letter queue to the orders": lambda channel: channel.queue_bind(DEAD, DOWN, "#"),
    "feed the reports from the orders": lambda channel: channel.exchange_bind(destination=UP, source=DOWN),
    "make a queue": lambda channel: channel.queue_declare("mine", durable=True),
    "go around the topics by an exchange of its own": by_an_exchange_of_its_own,
    "go around the topics by a queue of its own": by_a_queue_of_its_own,
}


async def refusal(url: str, attack: Attack) -> str | None:
    """What the broker says to an attack; None where it works."""
    try:
        with translated("attack"):
            async with channel_of(url) as channel:
                await attack(channel)
    except ForbiddenError as error:
        return str(error)
    return None


async def test_an_agents_user_may_do_nothing_of_it(manager: Bus, rabbitmq: RabbitBroker, vhost: str) -> None:
    url = rabbitmq.url(vhost, "east")
    answers = {name: await refusal(url, attack) for name, attack in ATTACKS.items()}
    assert {name: answer for name, answer in answers.items() if "ACCESS_REFUSED" not in (answer or "")} == {}
    assert await manager.check(TOPOLOGY) == []
    assert await take(manager, OTHERS, 1) == [b"an order for west"]
    assert (await manager.depth(CONTROL)).ready == 0
    recorded = [record.message.body async for record in manager.read_stream(JOURNAL, "first", follow=False)]
    assert recorded == [b"an order for west"]


async def test_with_broad_rights_all_of_it_works(manager: Bus, rabbitmq: RabbitBroker, vhost: str) -> None:
    rabbitmq.broaden(vhost, "east")
    url, refused = rabbitmq.url(vhost, "east"), {}
    for name, attack in ATTACKS.items():
        await manager.declare(TOPOLOGY)
        refused[name] = await refusal(url, attack)
    assert {name: answer for name, answer in refused.items() if answer} == {}


async def test_an_exchange_of_its_own_name_is_why_an_agent_makes_nothing(
    manager: Bus, rabbitmq: RabbitBroker, vhost: str
) -> None:
    """With rights to make and bind its own queues, and the least topic permissions, the keys of others are open."""
    [own] = agent_rights(Member(EAST, "east")).permissions
    queues = own.read.removeprefix("^").removesuffix("$")
    writes = own.write.removeprefix("^").removesuffix("$")
    rabbitmq.permit(vhost, "east", configure=own.read, write=f"^({writes}|{queues})$", read=f"^({queues}|{DOWN})$")
    url = rabbitmq.url(vhost, "east")
    assert await refusal(url, ATTACKS["record another's decisions"]) is not None
    assert await refusal(url, by_an_exchange_of_its_own) is None
    records = [record.message async for record in manager.read_stream(AGENT_JOURNAL, "first", follow=False)]
    assert [(record.routing_key, record.user_id) for record in records] == [("west.decisions", "east")]


OF_VIEWERS = ("read the journal", "read the agents' journal")
MORE_ATTACKS: dict[str, Attack] = {
    "publish into the journal": lambda channel: publish(channel, "", JOURNAL),
    "delete the journal": lambda channel: channel.queue_delete(JOURNAL),
    "bind the journal": lambda channel: channel.queue_bind(JOURNAL, UP, "#"),
    "unbind the journal": lambda channel: channel.queue_unbind(JOURNAL, DOWN, "#"),
    "bind the agents' journal": lambda channel: channel.queue_bind(AGENT_JOURNAL, DOWN, "#"),
    "make a queue of the broker's naming": lambda channel: channel.queue_declare("", exclusive=True),
    "make an exchange": lambda channel: channel.exchange_declare("mine"),
    "declare the journal": lambda channel: channel.queue_declare(
        JOURNAL, durable=True, arguments={"x-queue-type": "stream"}
    ),
}


async def test_a_viewers_user_reads_the_journals_and_may_do_nothing_else(
    manager: Bus, rabbitmq: RabbitBroker, vhost: str
) -> None:
    """The same attacks, with the rights of a viewer in place of an agent's."""
    [own] = viewer_rights(Viewer("east")).permissions
    rabbitmq.api("DELETE", f"topic-permissions/{vhost}/east")
    rabbitmq.permit(vhost, "east", configure=own.configure, write=own.write, read=own.read)
    url, attacks = rabbitmq.url(vhost, "east"), ATTACKS | MORE_ATTACKS
    answers = {name: await refusal(url, attack) for name, attack in attacks.items()}
    allowed = [name for name, answer in answers.items() if "ACCESS_REFUSED" not in (answer or "")]
    assert allowed == list(OF_VIEWERS), answers
    viewer = await connect(url, name="viewer")
    try:
        with suppress(SlicebusError):  # No broker purges a stream, whoever asks: it can be read below.
            await refusal(url, lambda channel: channel.queue_purge(JOURNAL))
        with pytest.raises(ForbiddenError):
            await viewer.publish(UP, message("east.hello", user_id="east"))
        for _ in range(2):
            read = [record.message.body async for record in viewer.read_stream(JOURNAL, "first", follow=False)]
            assert read == [b"an order for west"]
    finally:
        await viewer.aclose()
    assert await manager.check(TOPOLOGY) == []
    assert await take(manager, OTHERS, 1) == [b"an order for west"]
    assert (await manager.depth(CONTROL)).ready == 0


LARGE = b"x" * 4 * 1024 * 1024


async def test_an_agent_cannot_reach_the_managers_journal(manager: Bus, rabbitmq: RabbitBroker, vhost: str) -> None:
    """Its large records and reports come into the agents' stream, and the manager's stays as it was."""
    first = [record async for record in manager.read_stream(JOURNAL, "first", follow=False)]
    async with channel_of(rabbitmq.url(vhost, "east")) as channel:
        properties = Basic.Properties(user_id="east")
        for _ in range(5):
            for exchange, key in ((AGENT_DECISIONS, "east.decisions"), (UP, "east.status")):
                await channel.basic_publish(LARGE, exchange=exchange, routing_key=key, properties=properties)
    assert [record async for record in manager.read_stream(JOURNAL, "first", follow=False)] == first
    assert len(first) == 1
    theirs = [record.message async for record in manager.read_stream(AGENT_JOURNAL, "first", follow=False)]
    assert [message.routing_key for message in theirs] == ["east.decisions", "east.status"] * 5


@pytest.mark.parametrize("exchange", [UP, AGENT_DECISIONS, AGENT_DEAD])
async def test_another_users_id_is_refused_by_the_broker_itself(
    exchange: str, manager: Bus, rabbitmq: RabbitBroker, vhost: str
) -> None:
    key = "east.decisions" if exchange == AGENT_DECISIONS else "east.hello"
    with pytest.raises(ForbiddenError, match="user_id"), translated("attack"):
        async with channel_of(rabbitmq.url(vhost, "east")) as channel:
            await publish(channel, exchange, key, user_id="manager")


async def test_keys_of_others_in_the_header_cc_reach_nobody_else(
    manager: Bus, rabbitmq: RabbitBroker, vhost: str
) -> None:
    """RabbitMQ 3 does not check these keys, so the manager leaves what another's user has put into a cluster's queues;
    later versions refuse the message."""
    with suppress(ForbiddenError), translated("attack"):
        async with channel_of(rabbitmq.url(vhost, "east")) as channel:
            await publish(channel, UP, "east.hello", headers={"CC": ["west.hello", f"west.delete.{UID}"]})
    await manager.publish(UP, message("west.hello", b"the last", user_id="manager"))
    async with manager.subscribe(cluster_queue(WEST, Lane.CONTROL), prefetch=5) as subscription:
        async for delivery in subscription:
            await delivery.ack()
            if delivery.message.body == b"the last":
                break
            assert (delivery.message.routing_key, delivery.message.user_id) == ("east.hello", "east")
    assert (await manager.depth(CONTROL)).ready == 0
    assert await take(manager, OTHERS, 1) == [b"an order for west"]


[LIMITS] = agent_rights(Member(EAST, "east")).limits


@pytest.fixture
async def opened(rabbitmq: RabbitBroker, vhost: str) -> AsyncIterator[list[AbstractConnection]]:
    """Connections of east, closed afterwards: the limit counts them in every vhost."""
    connections: list[AbstractConnection] = []
    yield connections
    for connection in connections:
        await connection.close()

    async def closed() -> bool:
        found = await asyncio.to_thread(rabbitmq.api, "GET", "connections")
        return not [one for one in found if one.get("user") == "east"]

    await eventually(closed, "the broker has noticed")


async def open_connections(url: str, count: int, into: list[AbstractConnection]) -> None:
    with translated("attack"):
        for _ in range(count):
            into += [await aio_pika.connect(url)]


async def open_channels(connection: AbstractConnection, count: int) -> None:
    with translated("attack"):
        for _ in range(count):
            await connection.channel().initialize()


async def test_connections_of_a_user_are_limited(
    opened: list[AbstractConnection], rabbitmq: RabbitBroker, vhost: str
) -> None:
    with pytest.raises(SlicebusError):
        await open_connections(rabbitmq.url(vhost, "east"), LIMITS.connections + 1, opened)
    assert len(opened) == LIMITS.connections


async def test_channels_of_a_user_are_limited(
    opened: list[AbstractConnection], rabbitmq: RabbitBroker, vhost: str
) -> None:
    await open_connections(rabbitmq.url(vhost, "east"), 1, opened)
    await open_channels(opened[0], LIMITS.channels)
    with pytest.raises(SlicebusError, match="limit"):
        await open_channels(opened[0], 1)


async def test_what_a_user_may_is_found_out_without_a_trace(manager: Bus, rabbitmq: RabbitBroker, vhost: str) -> None:
    before = rabbitmq.api("GET", f"definitions/{vhost}")
    east = await connect(rabbitmq.url(vhost, "east"), name="east")
    try:
        tried = too_much(EAST)
        assert await east.refused(agent_uses(EAST, UID)) == []
        assert await east.refused(tried) == list(tried)
        rabbitmq.broaden(vhost, "east")
        assert await east.refused(tried) == []
        rabbitmq.permit(vhost, "east", configure="^$", write=r"^slicebus\.up$", read="^$")
        refused = await east.refused(agent_uses(EAST, UID))
        assert refused is not None
        assert [str(use) for use in refused] == [
            "publish east.relabel to slicebus.agent-dead",
            "publish east.decisions to slicebus.agent-decisions",
            f"read {OWN}",
            f"read {agent_queue(EAST, Lane.STATUS, UID)}",
        ]
    finally:
        await east.aclose()
    assert await manager.refused(manager_uses()) == []
    assert await manager.refused(too_much(None)) == list(too_much(None))
    after = rabbitmq.api("GET", f"definitions/{vhost}")
    assert {kind: after[kind] for kind in ("exchanges", "queues", "bindings")} == {
        kind: before[kind] for kind in ("exchanges", "queues", "bindings")
    }
    assert (await manager.depth(CONTROL)).ready == 0
    assert [record.offset async for record in manager.read_stream(JOURNAL, "first", follow=False)] == [0]


async def test_an_exchange_that_is_there_is_not_deleted_to_find_out(rabbitmq: RabbitBroker, vhost: str) -> None:
    admin = await connect(rabbitmq.url(vhost, ADMIN), name="admin")
    try:
        with pytest.raises(SlicebusError, match="is no way to find out"):
            await admin.refused([Use(Action.CONFIGURE, DOWN)])
    finally:
        await admin.aclose()
