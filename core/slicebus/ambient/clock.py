"""Time and randomness, from the context that a task runs in.

A process has the machine's. A simulation gives each of its processes a clock and a source of its own, without anything
else knowing: tasks inherit the context that they are made in.
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
    """This moment, in UTC."""
    clock = _now.get(None)
    return clock() if clock else datetime.now(UTC)


def randomness() -> Random:
    """The source of random numbers; the machine's is fit for secrets."""
    return _random.get(_SYSTEM)


def random_bytes(count: int) -> bytes:
    """So many random bytes."""
    return randomness().randbytes(count)


def random_hex(count: int) -> str:
    """So many random bytes as hexadecimal text."""
    return random_bytes(count).hex()


@contextmanager
def ambient(*, clock: Callable[[], datetime], random: Random) -> Iterator[None]:
    """What is run within, and every task made within, has this clock and this source."""
    now_token, random_token = _now.set(clock), _random.set(random)
    try:
        yield
    finally:
        _now.reset(now_token)
        _random.reset(random_token)
