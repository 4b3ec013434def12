"""Says in Kueue's words for whose end or pods a slice waits."""

from collections.abc import Collection, Iterable, Set

from slicebus.slices.admission.notices import named
from slicebus.slices.admission.preemption import preempted_for
from slicebus.slices.workload.workload import Slice, SliceKey


class Losers:
    """Knows who loses quota or pods already, and for whom."""

    def __init__(self, leaving: Iterable[Slice], shrinking: Iterable[Slice]) -> None:
        self._evicted: dict[str, set[SliceKey]] = {}
        """By the UID of their preemptor."""
        for victim in leaving:
            self._evicted.setdefault(preempted_for(victim), set()).add(victim.key)
        self._shrunk: dict[str, set[SliceKey]] = {}
        for slice in shrinking:
            for taken in slice.reclaimed.awaited_by if slice.reclaimed is not None else ():
                self._shrunk.setdefault(taken.uid, set()).add(slice.key)
        self.preemptors = self._evicted.keys() | self._shrunk.keys()
        """The UIDs of those for whom somebody loses."""

    def evicted_for(self, uid: str) -> Set[SliceKey]:
        """The evicted slices of one preemptor."""
        return self._evicted.get(uid, frozenset())

    def shrunk_for(self, uid: str) -> Set[SliceKey]:
        """The slices that lose pods for it."""
        return self._shrunk.get(uid, frozenset())


def awaited(evicted: Collection[SliceKey], shrunk: Collection[SliceKey]) -> tuple[str, str]:
    """How many have to go, or to lose pods, and what would admit the slice. Not both are empty."""
    losers = (evicted, "{} workload(s)", "the end of {}"), (shrunk, "pods of {} workload(s)", "fewer pods of {}")
    told = [(size.format(len(keys)), end.format(named(keys))) for keys, size, end in losers if keys]
    return " and ".join(size for size, _ in told), " and ".join(end for _, end in told)
