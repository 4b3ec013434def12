"""Describes an API server as a client reaches it: its address, its certificates, and the header that says who asks."""

import asyncio
import base64
import json
import math
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import msgspec

from slicebus.proto.errors import ConfigurationError, UnavailableError

_READ_AGAIN_S = 60.0
"""The kubelet writes a new token when an hour is left of the old one."""
_PLUGIN_S = 60.0
_RUN_AGAIN_S = 10.0
_EARLY_S = 30.0
"""A token of a plugin is renewed so long before it expires."""


class Credentials(Protocol):
    """Say who asks."""

    async def authorization(self) -> str | None:
        """The value of the header Authorization; None for no header."""

    def renew(self) -> bool:
        """Read them anew, since the server does not take them. Whether there may be others now."""


class Fixed(msgspec.Struct, frozen=True):
    """One value for ever: a token or a password of a kubeconfig, or nothing."""

    value: str | None = None

    @classmethod
    def basic(cls, user: str, password: str) -> "Fixed":
        """A user and a password."""
        return cls(f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}")

    async def authorization(self) -> str | None:
        """The value."""
        return self.value

    def renew(self) -> bool:
        """There is no other."""
        return False


class TokenFile:
    """A file with a token, which somebody replaces before the token expires."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigurationError where it cannot be read."""
        self._path = path
        self._token, self._read_at = self._read(), time.monotonic()

    async def authorization(self) -> str | None:
        """The token of at most a minute ago. Where the file cannot be read any more, the last token is used."""
        if time.monotonic() - self._read_at > _READ_AGAIN_S:
            self._read_at = time.monotonic()
            self.renew()
        return f"Bearer {self._token}"

    def renew(self) -> bool:
        """Read the file now."""
        before = self._token
        with suppress(ConfigurationError):
            self._token = self._read() or before
        return self._token != before

    def _read(self) -> str:
        try:
            return self._path.read_text().strip()
        except OSError as error:
            raise ConfigurationError(f"token: {error}") from error


class Plugin:
    """A command that prints a token as an ExecCredential (client.authentication.k8s.io)."""

    def __init__(self, command: Sequence[str], env: dict[str, str], info: dict[str, Any]) -> None:
        self._command, self._info = command, info
        self._env = os.environ | env
        self._token, self._until = "", 0.0
        self._ran_at = -math.inf
        self._running = asyncio.Lock()

    async def authorization(self) -> str | None:
        """A token that has not expired. Raises UnavailableError where the command prints none."""
        async with self._running:
            if time.time() > self._until - _EARLY_S:
                await self._run()
        return f"Bearer {self._token}"

    def renew(self) -> bool:
        """Have the command run before the next request, at most once in some seconds: it may ask a cloud."""
        if time.monotonic() - self._ran_at < _RUN_AGAIN_S:
            return False
        self._until = 0.0
        return True

    async def _run(self) -> None:
        self._ran_at = time.monotonic()
        env = self._env | {"KUBERNETES_EXEC_INFO": json.dumps(self._info)}
        name = self._command[0]
        try:
            async with asyncio.timeout(_PLUGIN_S):
                process = await asyncio.create_subprocess_exec(
                    *self._command, env=env, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
                )
                printed, _ = await process.communicate()
            status = json.loads(printed)["status"]
            token, expires = status["token"], status.get("expirationTimestamp")
            until = datetime.fromisoformat(expires).timestamp() if expires else math.inf
        except (ValueError, KeyError, TypeError) as error:
            raise UnavailableError(f"credential plugin {name} prints no token: {error!r}") from error
        except (OSError, TimeoutError) as error:
            raise UnavailableError(f"credential plugin {name}: {error!r}") from error
        self._token, self._until = token, until


class ApiServer(msgspec.Struct, frozen=True, kw_only=True):
    """Says where a server is and how to reach it. Certificates are PEM, in a file or as bytes.

    Files are read again when they change.
    """

    host: str
    authority: Path | bytes | None = None
    """The authorities that its certificate may come from. None: those that the system trusts."""
    certificate: Path | bytes | None = None
    """The client's certificate, with its key where `key` is None."""
    key: Path | bytes | None = None
    verify: bool = True
    name: str | None = None
    """The name in the server's certificate, where it is not that of the address."""
    proxy: str | None = None
    credentials: Credentials = Fixed()
    namespace: str = ""
    """The namespace of whoever names none; empty where nothing says it."""
