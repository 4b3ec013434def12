"""Decides when a failure has lasted for so long that somebody is told: a server may fail at one thing for ever.

What a server refuses is told at once. That a server is away is never told here: it says nothing of one thing, and the
role tells it for all of them together.
"""

import math
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

import msgspec

from slicebus.proto.errors import ConflictError, PermanentError, SlicebusError, UnavailableError, WebhookError

Key = TypeVar("Key", bound=Hashable)


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long each kind of failure is waited for, in seconds."""

    webhook_s: float
    """A webhook does not answer the server."""
    server_s: float
    """The server fails at this one thing, as at an object that is too large for its store."""
    conflict_s: float = math.inf
    """Something else is in the way, such as an earlier object that does not go."""

    def of(self, error: SlicebusError) -> float:
        """How long an error is waited for: 0.0 for a refusal, infinite for one that says nothing of this one thing."""
        match error:
            case PermanentError():
                return 0.0
            case WebhookError():
                return self.webhook_s
            case UnavailableError(is_answer=True):
                return self.server_s
            case ConflictError():
                return self.conflict_s
            case _:
                return math.inf


OBJECT_PATIENCE: Final = Patience(webhook_s=0.0, server_s=20.0)
"""Before an object shows what it lacks."""
MESSAGE_PATIENCE: Final = Patience(webhook_s=5.0, server_s=15.0, conflict_s=15.0)
"""Before a message counts as refused, and its sender hears of it: the next ones about its job wait meanwhile."""


class LastingFailures(Generic[Key]):
    """Since when each key fails."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._since_s: dict[Key, float] = {}

    def has_lasted(self, key: Key, error: SlicebusError, *, now_s: float) -> bool:
        """Whether an error is to be told: the key has failed for as long as this error is waited for. Only errors that
        are waited for begin that time. `now_s` is of any clock that only goes forward."""
        patience_s = self._patience.of(error)
        if patience_s in (0.0, math.inf):
            return patience_s == 0.0
        return now_s - self._since_s.setdefault(key, now_s) >= patience_s

    def forget(self, key: Key) -> None:
        """Forget the failures of a key: it was handled, or is gone."""
        self._since_s.pop(key, None)
