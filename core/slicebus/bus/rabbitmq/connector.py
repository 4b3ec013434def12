"""Opens connections to the nodes of a broker, in turn, with the content of the files at that moment."""

import asyncio
from collections import deque
from urllib.parse import quote, urlunsplit

import aio_pika
import aiormq.connection
from aio_pika.abc import AbstractConnection

from slicebus.ambient.clock import randomness
from slicebus.bus.access.address import Access, Address, Host
from slicebus.bus.access.login import Files, Login, digest_of, read_login
from slicebus.bus.rabbitmq import unreadable
from slicebus.bus.rabbitmq.failures import translated
from slicebus.bus.settings import BusSettings
from slicebus.proto.errors import ConfigurationError

_ATTEMPT_S = 10.0
"""How long one attempt to connect may take: TCP, TLS and login."""
_NEARLY_S = 1.0
"""How long an attempt that nobody wants any more may go on."""
aiormq.connection.Connection.FRAME_BUFFER_SIZE = 0
"""No limit to the frames that wait to be sent: `BusSettings.in_flight` is one. Where there is one, aiormq does not
confirm that the broker has closed a channel while so many wait; it then uses the channel's number again, and the broker
closes the connection."""
unreadable.read_on()


class Connection(aio_pika.Connection):
    """A connection that only its opener closes.

    aio-pika's own closes itself when it is collected, also after a login was refused: then there is nothing to close,
    and perhaps no event loop to do it in.
    """

    def __del__(self) -> None:
        """Do nothing."""


class Connector:
    """Makes the connections of one user. It begins with any node, so that the clients spread over all, and goes on with
    the next one after each attempt."""

    def __init__(self, address: Address, access: Access, *, name: str, settings: BusSettings) -> None:
        self._address = address
        self._access = access
        self._name = name
        self._settings = settings
        hosts = list(address.hosts)
        randomness().shuffle(hosts)
        self._hosts = deque(hosts)
        self._files = Files.of(address, access)
        self._login: Login | None = None

    @property
    def user(self) -> str:
        """The user of every connection. Raises RuntimeError before the first one."""
        if self._login is None:
            raise RuntimeError("no connection was opened yet")
        return self._login.user

    @property
    def nodes(self) -> int:
        """How many nodes there are to try."""
        return len(self._hosts)

    @property
    def has_files(self) -> bool:
        """Whether the login has files, which can change."""
        return bool(self._files)

    async def has_changed(self) -> bool:
        """Whether the content of a file differs from when the last connection was made. Raises ConfigurationError."""
        digest = digest_of(await asyncio.to_thread(self._files.read))
        return self._login is None or self._login.digest != digest

    async def open(self) -> AbstractConnection:
        """Open a connection to the next node.

        Raises UnavailableError, ForbiddenError when the broker refuses the user, and ConfigurationError for files that
        cannot be used, or are of another user than before: messages carry the user's name.
        """
        host = self._hosts[0]
        self._hosts.rotate(-1)
        login = await asyncio.to_thread(read_login, self._address, self._access)
        if self._login is not None and login.user != self.user:
            raise ConfigurationError(f"the certificate is of {login.user}, and this process began as {self.user}")
        opening = asyncio.create_task(self._connected(host, login), name=f"connect:{self._name}")
        try:
            with translated(f"connect to {host}"):
                connection = await asyncio.shield(opening)
        except asyncio.CancelledError:
            await _abandon(opening)
            raise
        self._login = login
        return connection

    async def _connected(self, host: Host, login: Login) -> AbstractConnection:
        return await aio_pika.connect(
            self._url(host, login),
            ssl_context=login.context,
            timeout=min(self._settings.connect_s / self.nodes, _ATTEMPT_S),
            client_properties={"connection_name": self._name},
            heartbeat=None if self._address.option("heartbeat") else self._settings.heartbeat_s,
            auth="external" if login.password is None else "plain",
            connection_class=Connection,
        )

    def _url(self, host: Host, login: Login) -> str:
        credentials = "" if login.password is None else f"{quote(login.user, '')}:{quote(login.password, '')}@"
        return urlunsplit(self._address.parts._replace(netloc=f"{credentials}{host}"))


async def _abandon(opening: asyncio.Task[AbstractConnection]) -> None:
    """Close a connection that is being opened. The libraries forget one whose opening is cancelled when it is nearly
    up, and leave its tasks: so it comes up first, unless the broker takes long to answer."""
    await asyncio.wait([opening], timeout=_NEARLY_S)
    opening.cancel()
    (outcome,) = await asyncio.gather(opening, return_exceptions=True)
    if isinstance(outcome, AbstractConnection):
        await outcome.close()
