"""A client of RabbitMQ's management API, for commands that act as an administrator."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from shlex import quote as shell_quote
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import aiohttp
import orjson

from slicebus.ambient.backoff import Backoff
from slicebus.ambient.connection_failures import reason_of
from slicebus.ambient.retries import repeated
from slicebus.bus.access.address import CA_FILE
from slicebus.cli.broker.formats import exchanges, limits_of
from slicebus.proto.errors import (
    ConfigurationError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    SlicebusError,
    UnavailableError,
)
from slicebus.proto.rights import Definitions, Rights, UserLimits

_TIMEOUT = aiohttp.ClientTimeout(total=30.0)
_WHILE_THEY_END = Backoff(first_s=0.1, most_s=2.0)
_ENDED_WITHIN_S = 30.0
_UNCONSUMED_WITHIN_S = 15.0
"""A manager that is down, or busy with what the cluster has sent, holds up no revocation."""
_LOOKS_S = 0.5
_SHOWN = 300
"""So much of an answer, in bytes."""
_NO_ADDRESS = "SLICEBUS_BROKER_API: use https://USER:PASSWORD@HOST:15671"
_WITHOUT_RIGHTS = (b"Access refused", b"not authorised to access virtual host")
_STATUS: Mapping[int, type[SlicebusError]] = {
    400: InvalidError,
    401: ForbiddenError,
    403: ForbiddenError,
    404: NotFoundError,
    405: InvalidError,
}


class BrokerApi:
    """One vhost of a broker. Every change may be repeated."""

    def __init__(self, session: aiohttp.ClientSession, url: str, vhost: str, user: str) -> None:
        self._session = session
        self._url = url
        self._vhost = quote(vhost, safe="")
        self._name = vhost
        self._user = user

    @classmethod
    @asynccontextmanager
    async def connect(cls, url: str, vhost: str, *, ca_file: str | None = None) -> AsyncIterator["BrokerApi"]:
        """A client for `https://USER:PASSWORD@HOST:PORT`. `ca_file` has an authority beside those of the machine.
        Raises ConfigurationError for another address, and for a file that is no authority."""
        try:
            parts = urlsplit(url)
            port = f":{parts.port}" if parts.port else ""
            user = unquote(parts.username or "")
            login = aiohttp.encode_basic_auth(user, unquote(parts.password or ""))
        except ValueError:  # Its text has a part of the address, which may be of the password.
            raise ConfigurationError(_NO_ADDRESS) from None
        if parts.scheme not in ("http", "https") or not parts.hostname or not parts.username:
            raise ConfigurationError(_NO_ADDRESS)
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        address = f"{parts.scheme}://{host}{port}{parts.path.rstrip('/')}/api/"
        trusted = aiohttp.TCPConnector(ssl=_trusting(ca_file))
        async with aiohttp.ClientSession(
            headers={"Authorization": login}, timeout=_TIMEOUT, connector=trusted
        ) as session:
            yield cls(session, address, vhost, user)

    async def definitions(self) -> dict[str, Any]:
        """The users, rights, bounds and queues that the broker has, of every vhost."""
        exported: dict[str, Any] = await self._call("GET", "definitions")
        return exported

    async def tags_of(self, user: str) -> list[str] | None:
        """The tags of a user, such as `administrator`; None where there is no such user."""
        try:
            account = await self._call("GET", f"users/{_part(user)}")
        except NotFoundError:
            return None
        tags = account["tags"]
        return [tag for tag in tags.split(",") if tag] if isinstance(tags, str) else list(tags)

    async def permissions_of(self, user: str) -> list[dict[str, Any]]:
        """The permissions of a user in every vhost. Raises NotFoundError."""
        found: list[dict[str, Any]] = await self._call("GET", f"users/{_part(user)}/permissions")
        return found

    async def put_user(self, user: str, password: str) -> None:
        """Make a user, or give it another password."""
        await self._call("PUT", f"users/{_part(user)}", {"password": password, "tags": ""})

    async def put_rights(self, rights: Rights) -> None:
        """Give users exactly these rights and limits. Users and exchanges have to be there."""
        for permission in rights.permissions:
            allowed = {"configure": permission.configure, "write": permission.write, "read": permission.read}
            await self._call("PUT", f"permissions/{self._vhost}/{_part(permission.user)}", allowed)
        for topic in rights.topic_permissions:
            keys = {"exchange": topic.exchange, "write": topic.write, "read": topic.read}
            await self._call("PUT", f"topic-permissions/{self._vhost}/{_part(topic.user)}", keys)
        await self.put_limits(rights.limits)

    async def put_limits(self, limits: Iterable[UserLimits]) -> None:
        """Let users use so much of the broker at a time. Open connections stay."""
        for limit in limits:
            for name, value in limits_of(limit).items():
                await self._call("PUT", f"user-limits/{_part(limit.user)}/{name}", {"value": value})

    async def put_bounds(self, definitions: Definitions) -> None:
        """Make the exchanges, the policies and the limit of the vhost."""
        for exchange in exchanges(definitions, self._name):
            body = {name: exchange[name] for name in ("type", "durable", "auto_delete", "internal", "arguments")}
            await self._call("PUT", f"exchanges/{self._vhost}/{_part(exchange['name'])}", body)
        for policy in definitions.policies:
            body = {"pattern": policy.pattern, "definition": policy.definition, "priority": policy.priority}
            await self._call("PUT", f"policies/{self._vhost}/{_part(policy.name)}", body | {"apply-to": "queues"})
        await self._call("PUT", f"vhost-limits/{self._vhost}/max-queues", {"value": definitions.max_queues})

    async def remove_user(self, user: str) -> None:
        """Remove a user, and close its connections.

        The broker begins to close them itself when the user is gone, and answers 500 when one ends before it could
        close it for us. So it is asked again until none is left.
        """
        with suppress(NotFoundError):
            await self._call("DELETE", f"users/{_part(user)}")
        await repeated(
            lambda: self._call("DELETE", f"connections/username/{_part(user)}"),
            on=UnavailableError,
            wait=_WHILE_THEY_END,
            ends_at_s=asyncio.get_running_loop().time() + _ENDED_WITHIN_S,
        )

    async def queues(self) -> list[str]:
        """The names of the queues."""
        return [str(queue["name"]) for queue in await self._call("GET", f"queues/{self._vhost}?columns=name")]

    async def wait_unconsumed(self, queues: Collection[str]) -> None:
        """Return when nobody consumes these queues any more, or after a while: RabbitMQ 3.10 may close a connection
        whose queue is deleted. The broker counts its consumers every few seconds."""
        ends_at_s = asyncio.get_running_loop().time() + _UNCONSUMED_WITHIN_S
        while asyncio.get_running_loop().time() < ends_at_s:
            found = await self._call("GET", f"queues/{self._vhost}?columns=name,consumers")
            if not any(queue.get("consumers") for queue in found if queue["name"] in queues):
                return
            await asyncio.sleep(_LOOKS_S)

    async def remove_queue(self, queue: str) -> None:
        """Remove a queue with its messages."""
        with suppress(NotFoundError):
            await self._call("DELETE", f"queues/{self._vhost}/{_part(queue)}")

    async def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        data = None if body is None else orjson.dumps(body)
        headers = {"Content-Type": "application/json"}
        try:
            async with self._session.request(method, self._url + path, data=data, headers=headers) as answer:
                text = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnavailableError(f"the broker's management API: {_why(error)}") from error
        if answer.status >= 400:
            kind = _STATUS.get(answer.status, UnavailableError)
            why = f"{method} {path}: {answer.status} {text[:_SHOWN].decode(errors='replace')}"
            if answer.status == 401 and any(words in text for words in _WITHOUT_RIGHTS):
                # A vhost that rabbitmqctl has added gives nobody rights, not even an administrator.
                grant = f"rabbitmqctl set_permissions -p {shell_quote(self._name)} {shell_quote(self._user)}"
                why += f"; an administrator needs rights in the vhost too: {grant} '.*' '.*' '.*'"
            raise kind(why)
        try:
            return orjson.loads(text) if text else None
        except orjson.JSONDecodeError as error:
            said = " ".join(text[:_SHOWN].decode(errors="replace").split())
            raise InvalidError(f"{method} {path}: the answer is none of a management API: {said}") from error


def _trusting(ca_file: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    try:
        if ca_file:
            context.load_verify_locations(ca_file)
    except OSError as error:  # An SSLError is one, too.
        raise ConfigurationError(f"{CA_FILE}: {ca_file}: {error.strerror or error}") from error
    return context


def _why(error: Exception) -> str:
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return f"{error.host}:{error.port}: {reason_of(error.certificate_error)}"
        case aiohttp.ClientConnectorError():
            return f"{error.host}:{error.port} cannot be reached: {reason_of(error.os_error)}"
        case _:
            return reason_of(error)


def _part(name: str) -> str:
    return quote(name, safe="")
