"""Chooses the pause before a retry: longer after each failure, with jitter.

Every retry waits by a `Backoff`: `repeated` and tenacity take one as `wait`, and code with its own state counts
failures. tenacity's own strategies were rejected: they know one source of random numbers a process, and a simulation
has several processes in one.
"""

import msgspec
from tenacity import RetryCallState

from slicebus.ambient.clock import randomness
from slicebus.proto.errors import TransientError

_DOUBLINGS = 64
"""More than lie between any two pauses, and less than a float has."""

_SHORTER, _LONGER = 0.5, 1.5


class Backoff(msgspec.Struct, frozen=True):
    """Pauses that double from about `first_s` to at most `most_s` seconds.

    Jitter makes each up to half shorter or longer. A server may ask for a longer one.
    """

    first_s: float
    most_s: float

    def pause_s(self, failures: int, error: BaseException | None = None) -> float:
        """The pause after so many failures in a row, at least one, of which `error` was the last: no shorter than the
        server has asked for."""
        pause_s = min(self.first_s * 2.0 ** min(failures - 1, _DOUBLINGS), self.most_s / _LONGER)
        pause_s *= randomness().uniform(_SHORTER, _LONGER)
        return max(pause_s, error.retry_after_s) if isinstance(error, TransientError) else pause_s

    def __call__(self, state: RetryCallState) -> float:
        """The pause that tenacity makes."""
        return self.pause_s(state.attempt_number, state.outcome.exception() if state.outcome is not None else None)
