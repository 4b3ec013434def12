"""A TCP proxy on loopback that does to connections what networks do: cuts them, swallows what they carry, is slow."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Self

_CHUNK = 64 * 1024


class Proxy:
    """Between clients and one port. Connections that were swallowed stay so: no network brings them back."""

    def __init__(self, target_port: int) -> None:
        self.port = 0
        self.delay_s = 0.0
        """How long everything takes on its way."""
        self._target_port = target_port
        self._swallowing = False
        self._connections: set[_Connection] = set()

    @classmethod
    @asynccontextmanager
    async def before(cls, target_port: int) -> AsyncIterator[Self]:
        """A proxy that listens until the context is left."""
        proxy = cls(target_port)
        server = await asyncio.start_server(proxy._serve, "127.0.0.1", 0)
        proxy.port = int(server.sockets[0].getsockname()[1])
        try:
            yield proxy
        finally:
            server.close()
            proxy.cut()
            await asyncio.gather(*(connection.ended.wait() for connection in proxy._connections))

    @property
    def connections(self) -> int:
        """How many there are now."""
        return len(self._connections)

    def cut(self) -> None:
        """Reset every connection."""
        for connection in self._connections:
            connection.cut()

    def stall(self) -> None:
        """Let every connection stand, those that come too, and nothing pass until `resume`."""
        self._swallowing = True
        for connection in self._connections:
            connection.swallowed = True

    def resume(self) -> None:
        """Let new connections pass."""
        self._swallowing = False

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(self, writer, swallowed=self._swallowing)
        self._connections.add(connection)
        try:
            await connection.run(reader, self._target_port)
        finally:
            self._connections.discard(connection)


class _Connection:
    def __init__(self, proxy: Proxy, client: asyncio.StreamWriter, *, swallowed: bool) -> None:
        self.swallowed = swallowed
        self.ended = asyncio.Event()
        self._proxy = proxy
        self._writers = [client]

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def run(self, reader: asyncio.StreamReader, target_port: int) -> None:
        try:
            with suppress(OSError):
                target_reader, target = await asyncio.open_connection("127.0.0.1", target_port)
                self._writers.append(target)
                await asyncio.gather(self._pass(reader, target), self._pass(target_reader, self._writers[0]))
        finally:
            self.cut()
            self.ended.set()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(_CHUNK):
                if self._proxy.delay_s:
                    await asyncio.sleep(self._proxy.delay_s)
                if not self.swallowed:
                    writer.write(data)
                    await writer.drain()
        except OSError:
            pass
        finally:
            if not self.swallowed:
                self.cut()
