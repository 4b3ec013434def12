"""Keeps one connection up, and knows what is under way on it.

When a file of the login changes, a new connection is made first. The old one ends when nothing is under way on it any
more: its publishes are confirmed, its deliveries are settled. Closing it first was rejected: every delivery that is
being handled would come again, and count towards the delivery limit.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

import structlog
from aio_pika.abc import AbstractChannel, AbstractConnection
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_delay, stop_never

from slicebus.ambient.backoff import Backoff
from slicebus.bus.rabbitmq.blocking import blocked
from slicebus.bus.rabbitmq.connector import Connector
from slicebus.bus.rabbitmq.failures import translated
from slicebus.bus.settings import BusSettings
from slicebus.proto.errors import ConfigurationError, ForbiddenError, SlicebusError, UnavailableError

_log = structlog.get_logger()
_CLOSE_S = 5.0
_RETIRE_S = 30.0
"""How long a connection that was replaced goes on with what is under way on it."""


class LinkConsumer(Protocol):
    """Consumes on a connection."""

    async def leave(self) -> None:
        """Consume no more on it. Return when every message that came on it is settled."""

    def end(self) -> None:
        """Note that it is lost: nothing more comes, and what came can no longer be settled."""


class Link:
    """Holds a connection, its channel for publishing, and its users."""

    def __init__(self, connection: AbstractConnection) -> None:
        self.connection = connection
        self.publishing: AbstractChannel | None = None
        self.publishing_since_s = 0.0
        """When that channel was opened, in the loop's time."""
        self.consumers: set[LinkConsumer] = set()
        self._users = 0
        self._unused = asyncio.Event()
        self._unused.set()

    @contextmanager
    def used(self) -> Iterator[None]:
        """Have `retire` wait until the context is left."""
        self._users += 1
        self._unused.clear()
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                self._unused.set()

    async def retire(self, *, within_s: float) -> None:
        """Close the connection when nothing is under way any more, or when the time is over: the rest is then cut off,
        as by a failure. Its successor has to be in use already, so that nothing new begins here."""
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    # A consumer that fails has lost its channel, and so its deliveries.
                    await asyncio.gather(*(consumer.leave() for consumer in self.consumers), return_exceptions=True)
                    await self._unused.wait()
        finally:
            await self.close()

    async def close(self) -> None:
        """Close the connection. A peer that no longer answers must not delay the end of the process, nor hide why it
        ends, as `asyncio.timeout` does before Python 3.11.3 (`Recorder.recording`)."""
        with suppress(Exception), translated("close"):
            await asyncio.wait_for(self.connection.close(), _CLOSE_S)


class LinkKeeper:
    """Keeps one connection up until it is closed."""

    def __init__(self, connector: Connector, *, name: str, settings: BusSettings) -> None:
        self._connector = connector
        self._name = name
        self._settings = settings
        self._backoff = Backoff(first_s=0.2, most_s=settings.reconnect_most_s)
        self.link: Link | None = None
        """The newest connection; it may be lost."""
        self._retiring: set[asyncio.Task[None]] = set()
        self._supervisor: asyncio.Task[None] | None = None
        self._up = asyncio.Event()
        self._down = asyncio.Event()
        self.closed = False
        self.reconnected: list[Callable[[], None]] = []
        """They are called after each connection that follows a lost one."""

    @property
    def is_up(self) -> bool:
        """Whether there is a connection now."""
        return self._up.is_set()

    @property
    def blocked(self) -> str:
        """Why the broker takes nothing from the connection; empty while it does, and while there is none."""
        return blocked(self.link.connection) if self.is_up and self.link is not None else ""

    async def start(self) -> None:
        """Make the first connection. Raises UnavailableError, ForbiddenError, ConfigurationError."""
        await self._connect(within_s=self._settings.connect_s)
        self._supervisor = asyncio.create_task(self._supervise(), name=f"bus:{self._name}")

    async def aclose(self) -> None:
        """Close every connection. Idempotent."""
        self.closed = True
        self._down.set()
        tasks = [*self._retiring, *([self._supervisor] if self._supervisor else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.link is not None:
            await self.link.close()

    async def wait_up(self) -> Link:
        """The connection, as soon as there is one."""
        while True:
            await self._up.wait()
            if self.link is not None and not self.link.connection.is_closed:
                return self.link
            self._up.clear()
            self._down.set()

    async def _connect(self, *, within_s: float | None) -> None:
        attempts = AsyncRetrying(
            retry=retry_if_exception_type(UnavailableError),
            wait=self._pause_s,
            stop=stop_after_delay(within_s) if within_s else stop_never,
            before_sleep=self._log_attempt,
            reraise=True,
        )
        await attempts(self._connect_once)

    def _pause_s(self, state: RetryCallState) -> float:
        """The pause before the next attempt; 0 until every node was tried."""
        rounds, rest = divmod(state.attempt_number, self._connector.nodes)
        return 0.0 if rest else self._backoff.pause_s(rounds)

    def _log_attempt(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        _log.warning("bus.unreachable", name=self._name, attempt=state.attempt_number, error=str(error))

    async def _connect_once(self) -> None:
        connection = await self._connector.open()
        connection.close_callbacks.add(self._lost)
        self.link = Link(connection)
        self._down.clear()
        self._up.set()

    def _lost(self, connection: AbstractConnection | None, error: BaseException | None) -> None:
        if self.link is None or connection is not self.link.connection:
            return
        self._up.clear()
        self._down.set()
        for consumer in self.link.consumers:
            consumer.end()
        if not self.closed:
            _log.warning("bus.lost", name=self._name, error=str(error))

    async def _supervise(self) -> None:
        while not self.closed:
            if not await self._is_down():
                await self._renew()
                continue
            if self.closed:
                return
            try:
                await self._connect(within_s=None)
            except (ForbiddenError, ConfigurationError) as error:
                # Users and permissions may follow: a restored broker starts before its definitions are loaded. So may
                # files: a certificate and its key are not replaced in one step everywhere.
                _log.error("bus.refused", name=self._name, error=str(error))
                await asyncio.sleep(self._settings.reconnect_most_s)
                continue
            _log.info("bus.reconnected", name=self._name)
            for callback in self.reconnected:
                callback()

    async def _is_down(self) -> bool:
        """Wait until the connection is lost; False when it is time to look at the files."""
        try:
            async with asyncio.timeout(self._settings.files_s if self._connector.has_files else None):
                await self._down.wait()
        except TimeoutError:
            return False
        return True

    async def _renew(self) -> None:
        """Where a file has changed, connect anew, and only then let the present connection end."""
        before = self.link
        try:
            if not await self._connector.has_changed():
                return
            await self._connect_once()
        except SlicebusError as error:
            # The present connection goes on; the next look tries again.
            _log.error("bus.not_renewed", name=self._name, error=str(error))
            return
        _log.info("bus.renewed", name=self._name, user=self._connector.user)
        if before is not None:
            task = asyncio.create_task(before.retire(within_s=_RETIRE_S), name=f"bus:{self._name}:retire")
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)
