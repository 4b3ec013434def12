"""What an object says, and what it said not long ago: somebody may still decide by that."""

from typing import Generic, TypeVar

Value = TypeVar("Value")
_SEEN_S = 90.0
"""How old what an admission is made by may be: longer than a process is stopped, and then a slow way."""


class Versions(Generic[Value]):
    """Of one object, as far as it is compared."""

    def __init__(self) -> None:
        self._said: list[tuple[float, Value]] = []
        """With the time since when."""

    def say(self, now_s: float, value: Value) -> None:
        """It says this from now on."""
        if not self._said or self._said[-1][1] != value:
            self._said.append((now_s, value))

    def lately(self, now_s: float) -> list[Value]:
        """The newest first."""
        old = sum(since <= now_s - _SEEN_S for since, _ in self._said[1:])
        return [value for _, value in reversed(self._said[old:])]

    def settle(self) -> None:
        """Everybody knows what it says now."""
        del self._said[:-1]
