"""Translates the errors of aio-pika, aiormq and asyncio to slicebus errors, by one table.

When a connection falls silent, aiormq ends its waiters with the CancelledError of its own reader. Nobody has cancelled
the waiting task, so it must get an error instead: a CancelledError would end it silently. Conversely aiormq uses
`asyncio.wait_for`, which in Python 3.11 loses a cancellation that comes together with the result: the cancelled task
would go on, and its owner would wait for it for ever.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from aio_pika import exceptions
from aio_pika.abc import AbstractChannel

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
def translated(what: str) -> Iterator[None]:
    """Raise the slicebus error for an error of the broker or the connection."""
    task = asyncio.current_task()
    cancelled_before = task.cancelling() if task else 0
    try:
        yield
        if task and task.cancelling() > cancelled_before:
            raise asyncio.CancelledError
    except SlicebusError:
        raise
    except asyncio.CancelledError as error:
        if task is None or task.cancelling() > cancelled_before:
            raise
        raise UnavailableError(f"{what}: the connection has fallen silent") from error
    except tuple(row[0] for row in _TABLE) as error:
        raise _error_of(error)(f"{what}: {error or type(error).__name__}") from error


async def close_quietly(channel: AbstractChannel) -> None:
    """Close a channel that may be gone already."""
    with suppress(Exception), translated("close a channel"):
        await channel.close()


def _error_of(error: BaseException) -> type[SlicebusError]:
    if any(word in str(error) for word in _REFUSALS):
        return ForbiddenError
    return next(ours for theirs, ours in _TABLE if isinstance(error, theirs))
