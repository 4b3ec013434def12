"""What aio-pika, aiormq and asyncio raise, as slicebus errors: one table."""

from collections.abc import Iterator
from contextlib import contextmanager

from aio_pika import exceptions

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
"""The first row that matches. PublishError: no queue took a mandatory message. DeliveryError: the broker said no, a
queue is full. RuntimeError: aiormq writes to a connection that is closing."""
_REFUSALS = ("ACCESS_REFUSED", "user_id property")
"""Texts of the broker: the user may not do this, or the message claims to be from another user."""


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Raise the slicebus error of whatever the broker or the connection has raised."""
    try:
        yield
    except SlicebusError:
        raise
    except tuple(row[0] for row in _TABLE) as error:
        raise _error_of(error)(f"{what}: {error or type(error).__name__}") from error


def _error_of(error: BaseException) -> type[SlicebusError]:
    if any(word in str(error) for word in _REFUSALS):
        return ForbiddenError
    return next(ours for theirs, ours in _TABLE if isinstance(error, theirs))
