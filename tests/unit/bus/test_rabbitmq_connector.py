"""What a connection leaves behind."""

import asyncio
import gc
from contextlib import suppress
from unittest.mock import AsyncMock

import aio_pika
import pytest
from aio_pika.connection import make_url

from slicebus.bus.access import Access, address_of
from slicebus.bus.rabbitmq_connector import Connection, Connector
from slicebus.bus.settings import BusSettings


async def test_a_connection_that_never_came_up_is_collected_anywhere() -> None:
    """A warning about a coroutine that nobody awaits would fail the test."""
    connections = [Connection(make_url("amqp://127.0.0.1:1/"))]

    def collect() -> None:
        connections.clear()
        gc.collect()

    await asyncio.to_thread(collect)


async def test_a_connection_that_comes_together_with_a_cancellation_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = AsyncMock(spec=Connection)
    connecting = asyncio.Event()

    async def connect(*_arguments: object, **_options: object) -> Connection:
        # As asyncio.wait_for does it: the result is there, and the cancellation is lost.
        connecting.set()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        return connection

    monkeypatch.setattr(aio_pika, "connect", connect)
    address = address_of("amqp://user:secret@127.0.0.1/", Access())
    opening = asyncio.create_task(Connector(address, Access(), name="test", settings=BusSettings()).open())
    await connecting.wait()
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    connection.close.assert_awaited_once()
