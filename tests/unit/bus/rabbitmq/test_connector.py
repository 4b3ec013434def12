"""What a connection leaves behind."""

import asyncio
import gc
from unittest.mock import AsyncMock

import aio_pika
import pytest
from aio_pika.connection import make_url

from slicebus.bus.access.address import Access, address_of
from slicebus.bus.rabbitmq import connector
from slicebus.bus.rabbitmq.connector import Connection, Connector
from slicebus.bus.settings import BusSettings


async def test_a_connection_that_never_came_up_is_collected_anywhere() -> None:
    """A warning about a coroutine that nobody awaits would fail the test."""
    connections = [Connection(make_url("amqp://127.0.0.1:1/"))]

    def collect() -> None:
        connections.clear()
        gc.collect()

    await asyncio.to_thread(collect)


class Opening:
    """An attempt to open a connection, which is cancelled while the broker still answers."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, is_nearly_up: bool = False, loses_cancellation: bool = False
    ) -> None:
        self.connection = AsyncMock(spec=Connection)
        self.was_cancelled = False
        self._is_nearly_up = is_nearly_up
        self._loses_cancellation = loses_cancellation
        self._goes_on = asyncio.Event()
        self._began = asyncio.Event()
        monkeypatch.setattr(aio_pika, "connect", self._connect)

    async def cancelled(self) -> None:
        """Raises CancelledError when nothing of the attempt is left."""
        address = address_of("amqp://user:secret@127.0.0.1/", Access())
        opening = asyncio.create_task(Connector(address, Access(), name="test", settings=BusSettings()).open())
        await self._began.wait()
        opening.cancel()
        if self._is_nearly_up:
            asyncio.get_running_loop().call_soon(self._goes_on.set)
        await opening

    async def _connect(self, *_arguments: object, **_options: object) -> Connection:
        self._began.set()
        try:
            await self._goes_on.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            if not self._loses_cancellation:
                raise
        return self.connection


async def test_a_connection_that_is_nearly_up_when_it_is_cancelled_comes_up_and_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opening = Opening(monkeypatch, is_nearly_up=True)
    with pytest.raises(asyncio.CancelledError):
        await opening.cancelled()
    assert not opening.was_cancelled
    opening.connection.close.assert_awaited_once()


async def test_a_connection_that_comes_together_with_a_cancellation_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As asyncio.wait_for does it: the result is there, and the cancellation is lost."""
    monkeypatch.setattr(connector, "_NEARLY_S", 0.01)
    opening = Opening(monkeypatch, loses_cancellation=True)
    with pytest.raises(asyncio.CancelledError):
        await opening.cancelled()
    assert opening.was_cancelled
    opening.connection.close.assert_awaited_once()


async def test_a_broker_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connector, "_NEARLY_S", 0.01)
    opening = Opening(monkeypatch)
    with pytest.raises(asyncio.CancelledError):
        await opening.cancelled()
    assert opening.was_cancelled
    opening.connection.close.assert_not_awaited()
