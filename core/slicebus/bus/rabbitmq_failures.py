"""Translates the errors of aio-pika, aiormq and asyncio to slicebus errors, by one table.

When a connection falls silent, aiormq ends its waiters with the CancelledError of its own reader. Nobody has cancelled
the waiting task, so it must get an error instead: a CancelledError would end it silently. Conversely aiormq uses
`asyncio.wait_for`, which in Python 3.11 loses a cancellation that comes together with the result or with an error: the
cancelled task would go on, and its owner would wait for it for ever.
"""

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from aio_pika import exceptions
from aio_pika.abc import AbstractChannel

from slicebus.ambient.cancellation import Cancellation
from slicebus.proto.errors import ForbiddenError, InvalidError, NotFoundError, SlicebusError, UnavailableError

_TABLE: tuple[tuple[type[BaseException], type[SlicebusError]], ...] = (
    (exceptions.ChannelNotFoundEntity, NotFoundError),
    (exceptions.ChannelPreconditionFailed, InvalidError),
    (exceptions.PublishError, NotFoundError),
    (exceptions.DeliveryError, UnavailableError),
    (exceptions.AuthenticationError, ForbiddenError),
    (exceptions.ProbableAuthenticationError, ForbiddenError),
    (exceptions.AMQPError, UnavailableError),
    (TimeoutError, UnavailableError),
    (ConnectionError, UnavailableError),
    (OSError, UnavailableError),
    (RuntimeError, UnavailableError),
)
"""The first matching row counts. PublishError: no queue took a mandatory message. DeliveryError: the broker refused, a
queue is full. RuntimeError: aiormq writes to a connection that is closing."""
_REFUSALS = ("ACCESS_REFUSED", "user_id property")
"""Texts of the broker: the user lacks a permission, or the message has another user's id."""


@contextmanager
def translated(action: str) -> Iterator[None]:
    """Raise the slicebus error for an error of the broker or the connection; `action` begins its text. A task that was
    cancelled meanwhile gets its CancelledError, whatever the library made of that."""
    cancellation = Cancellation()
    try:
        yield
    except asyncio.CancelledError as error:
        if cancellation.is_asked:
            raise
        raise UnavailableError(f"{action}: the connection has fallen silent") from error
    except Exception as error:
        ours = _error_of(error)
        if ours is None:
            raise
        if cancellation.is_asked:
            raise asyncio.CancelledError from error
        if isinstance(error, SlicebusError):
            raise
        raise ours(f"{action}: {_text_of(error)}") from error
    if cancellation.is_asked:
        raise asyncio.CancelledError


async def close_quietly(channel: AbstractChannel) -> None:
    """Close a channel that may be gone already."""
    with suppress(Exception), translated("close a channel"):
        await channel.close()


def _error_of(error: Exception) -> type[SlicebusError] | None:
    """The slicebus error for an error; None for a programming error. A connection that ends without a reason gives its
    waiters a bare Exception."""
    if isinstance(error, SlicebusError):
        return type(error)
    ours = next((ours for theirs, ours in _TABLE if isinstance(error, theirs)), None)
    if ours is None:
        return UnavailableError if type(error) is Exception else None
    return ForbiddenError if any(word in str(error) for word in _REFUSALS) else ours


def _text_of(error: Exception) -> str:
    """The error for people. aiormq wraps those of TLS, whose text is a tuple with a line number of OpenSSL."""
    cause = error if isinstance(error, ssl.SSLError) else error.__cause__
    match cause:
        case ssl.SSLCertVerificationError():
            return f"the broker's certificate is refused: {cause.verify_message}"
        case ssl.SSLError():
            return f"TLS failed: {cause.reason or cause}"
        case _ if type(error) is Exception:
            return "the connection was lost"
        case _:
            return str(error) or type(error).__name__
