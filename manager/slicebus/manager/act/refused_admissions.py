"""Knows the slices whose admission the API server refuses: for a while they come after all others, and preempt nobody.

Each time after that one may preempt again, as it may be admitted by now. Where it is refused once more, the while is
longer.
"""

from collections.abc import Callable

from slicebus.ambient.backoff import Backoff
from slicebus.ambient.timers import Timers
from slicebus.slices.workload.workload import SliceKey

_LAST = Backoff(first_s=30.0, most_s=900.0)
"""For so long a slice comes last; at most for about ten minutes. After that it may preempt once."""
_REST_S = 30.0
"""For so long no admission of it is written again."""


class RefusedAdmissions:
    """The slices of one admitter that were refused."""

    def __init__(self, due: Callable[[SliceKey], None]) -> None:
        """`due` gets each slice that comes in its turn again."""
        self._times: dict[SliceKey, int] = {}
        """How often a slice was refused in its turn."""
        self._last = Timers[SliceKey](due)
        self._rests = Timers[SliceKey](due)

    @property
    def keys(self) -> list[SliceKey]:
        """The slices that come last now."""
        return [key for key in self._times if key in self._last]

    def rests(self, key: SliceKey) -> bool:
        """Whether an admission of a slice would be tried too soon."""
        return key in self._rests

    def note(self, key: SliceKey, *, rests: bool) -> bool:
        """Have a slice come last that was refused. Whether it came in its turn before: others may have its quota.
        `rests`: nobody else chooses when its admission is tried again."""
        was_in_turn = key not in self._last
        self._times[key] = self._times.get(key, 0) + was_in_turn
        self._last.stop(key)
        self._last.start(key, _LAST.pause_s(self._times[key]))
        if rests:
            self._rests.start(key, _REST_S)
        return was_in_turn

    def forget(self, key: SliceKey) -> None:
        """Forget the refusals of a slice: it was admitted, is another one, or is gone."""
        self._times.pop(key, None)
        self._last.stop(key)
        self._rests.stop(key)
