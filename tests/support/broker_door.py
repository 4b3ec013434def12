"""The door of a broker: it answers like RabbitMQ until somebody is refused, and nobody gets further.

`tests/integration/cli/test_plain_errors.py` has the same errors from RabbitMQ itself.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pamqp.base import Frame
from pamqp.commands import Connection
from pamqp.frame import marshal

LOGIN = Connection.Close(
    403,
    "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For details see the broker logfile.",
    0,
    0,
)
VHOST = Connection.Close(530, "NOT_ALLOWED - vhost nowhere not found", 10, 40)
NO_RIGHT = Connection.Close(530, "NOT_ALLOWED - access to vhost 'nowhere' refused for user 'u'", 10, 40)
LIMIT = Connection.Close(
    530, "NOT_ALLOWED - connection refused for user 'u': user connection limit (8) is reached", 10, 40
)


@asynccontextmanager
async def door(refusal: Connection.Close, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """The port of a broker that refuses everybody so: the login, or the vhost."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def send(frame: Frame) -> None:
            writer.write(marshal(frame, 0))
            await writer.drain()

        try:
            await reader.readexactly(len(b"AMQP\x00\x00\x09\x01"))
            await send(Connection.Start(server_properties={}, mechanisms="PLAIN", locales="en_US"))
            await _frame(reader)
            if refusal is not LOGIN:
                await send(Connection.Tune(2047, 131_072, 60))
                await _frame(reader)
                await _frame(reader)
            await send(refusal)
            await reader.read()
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def _frame(reader: asyncio.StreamReader) -> None:
    """Read a frame and its end."""
    head = await reader.readexactly(7)
    await reader.readexactly(int.from_bytes(head[3:], "big") + 1)
