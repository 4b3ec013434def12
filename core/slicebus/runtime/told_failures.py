"""Knows which failures of a key are to be told: what an API server refuses, and what it has long failed at."""

import asyncio
from collections.abc import Hashable
from typing import Generic, TypeVar

from slicebus.proto.errors import PermanentError, UnavailableError, WebhookError

_LONG_S = 20.0
"""So long an API server may fail at one call before that is told, as where an object is too large for its store."""

Key = TypeVar("Key", bound=Hashable)


class ToldFailures(Generic[Key]):
    """The keys at which the API server fails."""

    def __init__(self) -> None:
        self._since: dict[Key, float] = {}
        """Since when, by the loop's time."""

    def is_told(self, key: Key, error: PermanentError | UnavailableError) -> bool:
        """Whether an error is to be told: a refusal at once, a failure after a while. That the server is away is
        told elsewhere, for all keys together."""
        if isinstance(error, PermanentError | WebhookError):
            return True
        if not error.is_answer:
            return False
        now_s = asyncio.get_running_loop().time()
        return now_s - self._since.setdefault(key, now_s) >= _LONG_S

    def forget(self, key: Key) -> None:
        """Forget the failures of a key: it was handled."""
        self._since.pop(key, None)
