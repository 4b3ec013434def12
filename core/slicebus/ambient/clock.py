"""Gives time and randomness, from the context that a task runs in.

A process has the machine's. A simulation gives each of its processes a clock and a source of its own, and no other code
knows: tasks inherit the context in which they are made.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from random import Random, SystemRandom

_now: ContextVar[Callable[[], datetime]] = ContextVar("now")
_random: ContextVar[Random] = ContextVar("random")
_SYSTEM = SystemRandom()


def now() -> datetime:
    """The present moment, in UTC."""
    clock = _now.get(None)
    return clock() if clock else datetime.now(UTC)


def randomness() -> Random:
    """The source of random numbers; the machine's is fit for secrets."""
    return _random.get(_SYSTEM)


def random_bytes(count: int) -> bytes:
    """Draw `count` random bytes."""
    return randomness().randbytes(count)


def random_hex(count: int) -> str:
    """Draw `count` random bytes as hexadecimal text."""
    return random_bytes(count).hex()


@contextmanager
def ambient(*, clock: Callable[[], datetime], random: Random) -> Iterator[None]:
    """Give this clock and this source to all code that runs in the context, and to every task that is made there."""
    now_token, random_token = _now.set(clock), _random.set(random)
    try:
        yield
    finally:
        _now.reset(now_token)
        _random.reset(random_token)
