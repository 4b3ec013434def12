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
from traceback import walk_tb

from aio_pika import exceptions
from aio_pika.abc import AbstractChannel
from aiormq import spec

from slicebus.ambient.cancellation import Cancellation
from slicebus.ambient.connection_failures import reason_of
from slicebus.proto.errors import ForbiddenError, InvalidError, NotFoundError, SlicebusError, UnavailableError

_CLOSE_S = 5.0
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
_NOT_ALLOWED = 530
"""The broker's code for a vhost that it lacks or that the user may not use, and for a limit that is reached."""
_LIMIT = "limit"
_LOGIN = "Login was refused"
_EXTERNAL_LOGIN = f"{_LOGIN} using authentication mechanism EXTERNAL"
_CLOSED = "unexpectedly closed"
"""The words of aiormq for the end of a connection in the middle of a frame."""


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
    """Close a channel that may be gone already, and whose connection may end before it answers."""
    with suppress(Exception), translated("close a channel"):
        async with asyncio.timeout(_CLOSE_S):
            await channel.close()


def _error_of(error: Exception) -> type[SlicebusError] | None:
    """The slicebus error for an error; None for a programming error. A connection that ends without a reason gives its
    waiters a bare Exception."""
    if isinstance(error, SlicebusError):
        return type(error)
    if (close := _close_of(error)) is not None and close.reply_code == _NOT_ALLOWED:
        return UnavailableError if _LIMIT in close.reply_text else ForbiddenError
    ours = next((ours for theirs, ours in _TABLE if isinstance(error, theirs)), None)
    if ours is None:
        return UnavailableError if type(error) is Exception else None
    return ForbiddenError if any(word in str(error) for word in _REFUSALS) else ours


def _text_of(error: Exception) -> str:
    """The error for people. aiormq wraps those of TLS, whose text is a tuple with a line number of OpenSSL."""
    cause = error if isinstance(error, ssl.SSLError) else error.__cause__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"the broker's certificate is refused: {cause.verify_message}"
    if isinstance(cause, ssl.SSLError):
        return reason_of(cause)
    if (close := _close_of(error)) is not None:
        return f"the broker refuses the connection: {close.reply_text.partition(' - ')[2] or close.reply_text}"
    match error:
        case exceptions.ProbableAuthenticationError() if _EXTERNAL_LOGIN in str(error):
            return "the broker refuses the login by EXTERNAL: it has no user of the certificate's name"
        case exceptions.ProbableAuthenticationError() if _LOGIN in str(error):
            return "the broker refuses the login: the user or the password is wrong"
        case exceptions.AMQPConnectionError() if _CLOSED in str(error):
            return "the server has closed the connection without a reason"
        case _ if type(error) is Exception:
            return "the connection was lost"
        case _:
            return reason_of(error)


def _close_of(error: BaseException) -> spec.Connection.Close | None:
    """The broker's refusal of a connection, where aiormq expected something else. Its error has the frame's type only,
    so the frame is taken from where it was raised."""
    if not isinstance(error, exceptions.InvalidFrameError):
        return None
    values = (value for frame, _ in walk_tb(error.__traceback__) for value in frame.f_locals.values())
    return next((value for value in values if isinstance(value, spec.Connection.Close)), None)
