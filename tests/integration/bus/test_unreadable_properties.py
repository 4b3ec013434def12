"""Messages with properties that no client can decode: they delay nobody, and are dead letters like others."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import aio_pika
import pytest
from aiormq.abc import AbstractChannel
from aiormq.exceptions import ChannelPreconditionFailed
from pamqp import encode
from pamqp.commands import Basic

from integration.bus.contract import CONTROL, EAST, browse_all
from slicebus.bus.contract import Bus
from slicebus.bus.dead_letters.headers import REASON_HEADER
from slicebus.bus.factory import connect
from slicebus.bus.lanes import consume
from slicebus.proto.codec import decode_report
from slicebus.proto.errors import DeadReason
from slicebus.proto.messages import Lane
from slicebus.proto.topology import AGENT_DEAD, DEAD, UP, cluster_queue, cluster_topology, manager_topology
from support.rabbitmq import RabbitBroker
from support.rabbitmq_releases import every_rabbitmq
from support.waiting import eventually

pytestmark = every_rabbitmq

QUEUE = cluster_queue(EAST, Lane.CONTROL)


class _Bytes(str):
    """A text that is written as bytes of no encoding."""

    def encode(self, *_: object, **__: object) -> bytes:
        return b"\xff\xfe\xfd"


ODD: dict[str, dict[str, object]] = {
    "an id of no encoding": {"message_id": _Bytes("x")},
    "a type of no encoding": {"message_type": _Bytes("x")},
    "a header's name of no encoding": {"headers": {_Bytes("x"): "y"}},
    "a time that is none": {"timestamp": datetime(2020, 1, 1, tzinfo=UTC)},
    "a delivery mode that is none": {"delivery_mode": 7},
}


@pytest.fixture
async def manager(rabbitmq: RabbitBroker, vhost: str) -> AsyncIterator[Bus]:
    bus = await connect(rabbitmq.url(vhost, "manager"), name="manager")
    await bus.declare(manager_topology() + cluster_topology(EAST))
    yield bus
    await bus.aclose()


@pytest.fixture
async def thief(rabbitmq: RabbitBroker, vhost: str, manager: Bus) -> AsyncIterator[AbstractChannel]:
    """A plain channel of an agent's user."""
    connection = await aio_pika.connect(rabbitmq.url(vhost, "east"))
    async with connection.channel(publisher_confirms=True) as channel:
        yield await channel.get_underlay_channel()  # type: ignore[misc]
    await connection.close()


@pytest.mark.parametrize("odd", ODD)
async def test_one_is_a_dead_letter_and_the_next_is_handled(
    manager: Bus, thief: AbstractChannel, odd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[bool] = []
    manager.on_reconnect(lambda: lost.append(True))
    monkeypatch.setitem(encode.METHODS, "timestamp", lambda _: b"\x7f" * 8)
    monkeypatch.setattr(Basic.Properties, "validate", lambda _: None)
    for exchange in (UP, AGENT_DEAD):
        attack = thief.basic_publish(
            b"an attack",
            exchange=exchange,
            routing_key="east.scale-request",
            properties=Basic.Properties(user_id="east", **ODD[odd]),  # type: ignore[arg-type]
        )
        try:
            await attack
        except ChannelPreconditionFailed as error:
            pytest.skip(f"the broker refuses it itself: {error}")
    handled = asyncio.Event()

    async def handle(delivery: object) -> None:
        if delivery.message.body == b"the next":  # type: ignore[attr-defined]
            handled.set()
        else:
            decode_report(delivery.message)  # type: ignore[attr-defined]

    async with manager.subscribe(QUEUE, CONTROL, prefetch=1) as subscription:
        working = asyncio.create_task(consume(subscription, handle, key=lambda delivery: delivery.queue))
        await thief.basic_publish(
            b"the next", exchange=UP, routing_key="east.scale-request", properties=Basic.Properties(user_id="east")
        )
        await asyncio.wait_for(handled.wait(), 10)
        working.cancel()

    async def is_dead() -> bool:
        [letter] = await browse_all(manager, DEAD)
        assert letter.headers[REASON_HEADER] == DeadReason.MALFORMED
        return len(await browse_all(manager, AGENT_DEAD)) == 1

    await eventually(is_dead, "both lie among the dead letters, and can be read there")
    assert not lost
