"""Knows the slices whose admission or eviction the API server refuses, and when that is tried again.

One that is not admitted comes after all others for a while, and preempts nobody; one that is not evicted is no victim.
After that it has its turn again, as the server may take the write by now. Where it is refused once more, the while is
longer.
"""

from collections.abc import Callable

from slicebus.ambient.backoff import Backoff
from slicebus.ambient.timers import Timers
from slicebus.slices.workload.workload import SliceKey

_TURNS = Backoff(first_s=30.0, most_s=900.0)
"""For so long a slice is out of turn; at most for about ten minutes."""
_REST_S = 30.0
"""For so long nothing of the kind is written about it again."""


class RefusedWrites:
    """The slices of one admitter about which one kind of write was refused."""

    def __init__(self, due: Callable[[SliceKey], None]) -> None:
        """`due` gets each slice that has its turn again."""
        self._times: dict[SliceKey, int] = {}
        """How often a slice was refused in its turn."""
        self._out_of_turn = Timers[SliceKey](due)
        self._rests = Timers[SliceKey](due)

    @property
    def keys(self) -> list[SliceKey]:
        """The slices that are out of turn now."""
        return [key for key in self._times if key in self._out_of_turn]

    def has_turn_again(self, key: SliceKey) -> bool:
        """Whether a slice was refused, and has its turn again."""
        return key in self._times and key not in self._out_of_turn

    def rests(self, key: SliceKey) -> bool:
        """Whether the write would be tried too soon."""
        return key in self._rests

    def note(self, key: SliceKey, *, rests: bool) -> bool:
        """Note that the write was refused. Whether the slice had its turn before: others may have its quota, or lose
        theirs in its place. `rests`: nobody else chooses when the write is tried again."""
        was_in_turn = key not in self._out_of_turn
        self._times[key] = self._times.get(key, 0) + was_in_turn
        self._out_of_turn.stop(key)
        self._out_of_turn.start(key, _TURNS.pause_s(self._times[key]))
        if rests:
            self._rests.start(key, _REST_S)
        return was_in_turn

    def forget(self, key: SliceKey) -> None:
        """Forget the refusals of a slice: the write was taken, the slice is another one, or is gone."""
        self._times.pop(key, None)
        self._out_of_turn.stop(key)
        self._rests.stop(key)
