"""Notes why a broker blocks a connection: memory or disk is short there (`connection.blocked`, a RabbitMQ extension).

RabbitMQ blocks a connection with its first publish during an alarm, and reads nothing more from it: neither requests
nor acknowledgements. aiormq stops writing then, and keeps the reason nowhere, so its two handlers are wrapped. Its log
is silent here, as it repeats what is raised: these two events are logged instead.
"""

from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakKeyDictionary

import structlog
from aio_pika.abc import AbstractConnection
from aiormq.connection import Connection

_log = structlog.get_logger()
_UNKNOWN = "it does not say why"
_REASONS: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
"""The reason of each connection of aiormq that is blocked now."""
_BLOCKED, _UNBLOCKED = (f"_Connection__handle_connection_{event}" for event in ("blocked", "unblocked"))


def blocked(connection: AbstractConnection) -> str:
    """Why the broker takes nothing from a connection, in its words; empty while it does."""
    transport = connection.transport
    return _REASONS.get(transport.connection, "") if transport is not None else ""


def note_blocks() -> None:
    """Have aiormq's connections noted that are blocked. Raises AttributeError where it handles them otherwise."""
    for name, wrapped in ((_BLOCKED, _noting), (_UNBLOCKED, _forgetting)):
        setattr(Connection, name, wrapped(getattr(Connection, name)))


def _noting(handle: Callable[[Any, Any], Awaitable[None]]) -> Callable[[Any, Any], Awaitable[None]]:
    async def noting(connection: Any, frame: Any) -> None:
        _REASONS[connection] = reason = frame.reason or _UNKNOWN
        _log.warning("bus.blocked", reason=reason)
        await handle(connection, frame)

    return noting


def _forgetting(handle: Callable[[Any, Any], Awaitable[None]]) -> Callable[[Any, Any], Awaitable[None]]:
    async def forgetting(connection: Any, frame: Any) -> None:
        _REASONS.pop(connection, None)
        _log.info("bus.unblocked")
        await handle(connection, frame)

    return forgetting


note_blocks()
