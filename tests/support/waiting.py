"""Waiting for what other processes do."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from slicebus.proto.errors import NotFoundError, UnavailableError

Found = TypeVar("Found")


async def eventually(look: Callable[[], Awaitable[Found]], what: str, *, within_s: float = 30.0) -> Found:
    """The first true value that `look` gives. Fails with what it gave last."""
    last: object = None
    try:
        async with asyncio.timeout(within_s):
            while True:
                try:
                    last = found = await look()
                    if found:
                        return found
                except (NotFoundError, UnavailableError) as error:
                    last = error
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"after {within_s:.0f} s still not: {what}; last: {last!r}") from None
