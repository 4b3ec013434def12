"""Sends spans to a receiver of OpenTelemetry's protocol over HTTP, in protobuf."""

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from urllib.parse import unquote, urlsplit

import aiohttp

from slicebus.ambient.connection_failures import reason_of
from slicebus.cli import screen
from slicebus.journal.spans import TraceSpan
from slicebus.proto.errors import (
    ConfigurationError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    SlicebusError,
    UnavailableError,
)

HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"
"""The variable with headers of each request, such as a login: `name=value,name=value`, values quoted as in a URL."""
_PATH = "/v1/traces"
_TIMEOUT = aiohttp.ClientTimeout(total=10.0, connect=5.0)
_MOST_SPANS = 500
"""Of one request: some 300 KB."""
_SHOWN = 200
_MOST_ANSWER = 64 * 1024
_REFUSALS: dict[int, type[SlicebusError]] = {401: ForbiddenError, 403: ForbiddenError, 404: NotFoundError}
_LATER = (408, 429, 500, 502, 503, 504)


class OtlpReceiver:
    """A receiver by its address."""

    def __init__(
        self, address: str, session: aiohttp.ClientSession, encode: Callable[[Sequence[TraceSpan]], bytes]
    ) -> None:
        self.address = address
        self._session = session
        self._encode = encode

    async def send(self, spans: Sequence[TraceSpan]) -> None:
        """Return when the receiver has all of them. Raises UnavailableError where it may take them later, and a
        PermanentError where it refuses them."""
        for at in range(0, len(spans), _MOST_SPANS):
            await self._post(self._encode(spans[at : at + _MOST_SPANS]))

    async def _post(self, body: bytes) -> None:
        try:
            async with self._session.post(self.address, data=body, allow_redirects=False) as answer:
                said = await answer.content.read(_MOST_ANSWER)
        except aiohttp.ClientConnectorError as error:
            raise UnavailableError(f"{self.address} cannot be reached: {reason_of(error.os_error)}") from error
        except (aiohttp.ClientError, TimeoutError) as error:
            raise UnavailableError(f"{self.address} does not answer: {reason_of(error)}") from error
        if answer.status // 100 == 2:
            self._warn_of_refused(said)
            return
        words = " ".join(said.decode(errors="replace").split())[:_SHOWN]
        text = f"{self.address} answers {answer.status} {answer.reason}" + (f": {words}" if words else "")
        if answer.status in _LATER:
            raise UnavailableError(text)
        raise _REFUSALS.get(answer.status, InvalidError)(text)

    def _warn_of_refused(self, answer: bytes) -> None:
        from slicebus.cli.trace.protobuf import refused

        number, why = refused(answer)
        if number or why:
            screen.warn(f"{self.address} did not take {number} spans: {why}")


@asynccontextmanager
async def otlp_receiver(endpoint: str) -> AsyncIterator[OtlpReceiver]:
    """A receiver. Raises ConfigurationError for an address that is none, and without the package of the protocol."""
    try:
        from slicebus.cli.trace.protobuf import request
    except ImportError as error:
        raise ConfigurationError(f"--otlp needs the extra otlp, pip install 'slicebus[otlp]': {error}") from error
    headers = {"Content-Type": "application/x-protobuf", "User-Agent": "slicebus"} | headers_of(os.environ.get(HEADERS))
    async with aiohttp.ClientSession(headers=headers, timeout=_TIMEOUT, trust_env=True) as session:
        yield OtlpReceiver(address_of(endpoint), session, request)


def address_of(endpoint: str) -> str:
    """Where traces are sent to, by OpenTelemetry's rule: below the endpoint. Raises ConfigurationError."""
    try:
        parts = urlsplit(endpoint)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known:
        raise ConfigurationError("--otlp: not an address of HTTP, as http://collector:4318")
    if parts.username or parts.password:
        raise ConfigurationError(f"--otlp: a login in the address is shown to others; put a header into {HEADERS}")
    path = parts.path.rstrip("/")
    return parts._replace(path=path if path.endswith(_PATH) else path + _PATH).geturl()


def headers_of(text: str | None) -> dict[str, str]:
    """The headers of the variable. Raises ConfigurationError, which does not show them."""
    pairs = [pair.partition("=") for pair in (text or "").split(",") if pair.strip()]
    if not all(name.strip() and equals and f"{name}{unquote(value)}".isprintable() for name, equals, value in pairs):
        raise ConfigurationError(f"{HEADERS} is not of the form name=value,name=value")
    return {name.strip(): unquote(value.strip()) for name, _, value in pairs}
