"""The RabbitMQ connection, as far as it can be tested without a broker."""

import asyncio
from typing import Any
from unittest.mock import Mock

import pytest

from slicebus.bus.rabbitmq import RabbitBus
from slicebus.bus.settings import BusSettings


async def test_one_channel_is_opened_however_many_publishes_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    async def open_channel(_: RabbitBus, *, confirms: bool) -> Any:
        await asyncio.sleep(0)
        opened.append(Mock(is_closed=False))
        return opened[-1]

    monkeypatch.setattr(RabbitBus, "open_channel", open_channel)
    bus = RabbitBus("amqp://broker", name="test", settings=BusSettings())
    channels = await asyncio.gather(*(bus._publish_channel() for _ in range(20)))
    assert channels == opened * 20
    opened[0].is_closed = True
    assert await bus._publish_channel() is opened[1]


@pytest.mark.parametrize(
    ("url", "heartbeat"),
    [("amqp://broker", 6), ("amqp://broker/v?heartbeat=30", None)],
    ids=["default", "own"],
)
async def test_the_heartbeat_of_the_url_counts(
    url: str, heartbeat: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}

    async def connect(url: str, **options: Any) -> Any:
        given.update(options)
        return Mock(is_closed=False, close=_nothing)

    monkeypatch.setattr("aio_pika.connect", connect)
    bus = await RabbitBus.connect(url, name="test", settings=BusSettings(heartbeat_s=6))
    await bus.aclose()
    assert given["heartbeat"] == heartbeat


async def _nothing() -> None:
    return None
