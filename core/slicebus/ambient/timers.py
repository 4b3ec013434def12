"""Keeps one timer a key: of several delays the earliest counts.

A timer for each delay would make ever more work of what fails again and again.
"""

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Timers(Generic[Key]):
    """The timers of the running loop."""

    def __init__(self, due: Callable[[Key], object]) -> None:
        """`due` gets each key when its delay is over."""
        self._due = due
        self._timers: dict[Key, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._timers)

    def __contains__(self, key: Key) -> bool:
        return key in self._timers

    def start(self, key: Key, delay_s: float) -> None:
        """Have a key due after `delay_s` seconds, or earlier where an earlier timer of it runs."""
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is not None and timer.when() <= loop.time() + delay_s:
            return
        self.stop(key)
        self._timers[key] = loop.call_later(delay_s, self._end, key)

    def stop(self, key: Key) -> None:
        """End the timer of a key, if one runs."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def stop_all(self) -> None:
        """End all timers."""
        for key in list(self._timers):
            self.stop(key)

    def _end(self, key: Key) -> None:
        del self._timers[key]
        self._due(key)
