"""Lets a cycle decide about thousands that wait by the first few of each kind.

Slices are of one kind where nothing that a cycle reads differs but their age. Of a kind the oldest comes first. Where
that one gets nothing, and takes nothing from anybody, the next one gets nothing either: by then there is no more quota,
and whom it may preempt the oldest may preempt too. So a cycle sees the first of each kind. Where the last of
those gets anything, it is decided again with more, until it has come to one that just waits.
"""

import heapq
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from slicebus.slices.admission.cycle import Admit, Decision, Evict, Shrink, Wait
from slicebus.slices.admission.lines import kind_of
from slicebus.slices.admission.queue_order import Rank, rank
from slicebus.slices.api.kueue import WAITING_FOR_PREEMPTED, Condition
from slicebus.slices.workload.workload import Slice, SliceKey

FRONT = 2
"""How many of each kind a cycle sees at first."""
_AWAITS = ("the end of ", "fewer pods of ")
"""How a cycle says what admits a slice for which quota is kept until others have left."""


class _Kind(msgspec.Struct):
    """The waiting slices that are alike."""

    front: deque[Slice]
    """Those in the ledger, in order."""
    rest: list[tuple[Rank, SliceKey, Slice]]
    """The others: a heap."""


class Fronts:
    """Keeps the waiting slices: the first of each kind in the ledger, and the others beside it."""

    def __init__(self, put: Callable[[Slice], None], remove: Callable[[Slice], None]) -> None:
        """`put` and `remove` change the ledger."""
        self._put = put
        self._remove = remove
        self._kinds: dict[bytes, _Kind] = {}
        self._kind_of: dict[SliceKey, bytes] = {}
        self._of_chain: dict[str, Slice] = {}
        self._gone: set[tuple[SliceKey, bytes]] = set()
        """Those that left before they came to the front."""

    def add(self, slice: Slice, *, alone: bool = False) -> None:
        """Have another one wait. `alone`: it is like no other."""
        name = slice.key.encode() if alone else kind_of(slice)
        self._kind_of[slice.key] = name
        self._of_chain[slice.chain_id] = slice
        self._gone.discard((slice.key, name))
        kind = self._kinds.setdefault(name, _Kind(deque(), []))
        heapq.heappush(kind.rest, (rank(slice), slice.key, slice))
        while kind.front and rank(slice) < rank(kind.front[-1]):
            self._back(kind)  # It comes before those.
        self._fill(name, kind, FRONT)

    def remove(self, slice: Slice) -> None:
        """Have one wait no longer."""
        key, name = slice.key, self._kind_of.pop(slice.key, None)
        if name is None:
            return
        kind = self._kinds[name]
        self._of_chain.pop(slice.chain_id, None)
        found = next((member for member in kind.front if member.key == key), None)
        if found is None:
            self._gone.add((key, name))
            return
        kind.front.remove(found)
        self._remove(found)
        self._fill(name, kind, FRONT)
        if not kind.front and not kind.rest:
            del self._kinds[name]

    def of_chain(self, chain_id: str) -> Slice | None:
        """The slice of a job that waits, in the ledger or beside it."""
        return self._of_chain.get(chain_id)

    def show(self, slice: Slice) -> None:
        """Replace one at the front by a version of itself that shows another reason to wait."""
        name = self._kind_of.get(slice.key)
        if name is None:
            return
        front = self._kinds[name].front
        for index, member in enumerate(front):
            if member.key == slice.key:
                front[index] = self._of_chain[slice.chain_id] = slice
                self._put(slice)

    def cycle(self, decide: Callable[[], Sequence[Decision]]) -> Sequence[Decision]:
        """What a cycle decides, as if it saw all. `decide` runs it on the ledger."""
        while True:
            decided = decide()
            if not self._extend(decided):
                return decided

    def trim(self) -> None:
        """Take those back that are not needed at the front any more."""
        for kind in self._kinds.values():
            while len(kind.front) > 4 * FRONT and not _is_awaiting(kind.front[-1]):
                self._back(kind)

    def _extend(self, decided: Sequence[Decision]) -> bool:
        """Bring more of those kinds to the front whose last one just seen gets anything."""
        moved, own = {each.key for each in decided if _is_more_than_waiting(each)}, False
        for key in moved:
            name = self._kind_of.get(key)
            kind = self._kinds.get(name) if name is not None else None
            if name is not None and kind is not None and kind.rest and kind.front and kind.front[-1].key == key:
                own |= self._fill(name, kind, 2 * len(kind.front))
        return own

    def _fill(self, name: bytes, kind: _Kind, size: int) -> bool:
        before = len(kind.front)
        while kind.rest and len(kind.front) < size:
            _, key, slice = heapq.heappop(kind.rest)
            if (key, name) in self._gone:
                self._gone.discard((key, name))
                continue
            kind.front.append(slice)
            self._put(slice)
        return len(kind.front) > before

    def _back(self, kind: _Kind) -> None:
        last = kind.front.pop()
        self._remove(last)
        heapq.heappush(kind.rest, (rank(last), last.key, last))


def _is_awaiting(slice: Slice) -> bool:
    """Whether it shows that quota is kept for it: it has a claim that the others of its kind have not."""
    return slice.conditions.get(Condition.QUOTA_RESERVED, {}).get("reason") == WAITING_FOR_PREEMPTED


def _is_more_than_waiting(decision: Decision) -> bool:
    match decision:
        case Admit():
            return True
        case Wait(would_admit=would_admit):
            return would_admit.startswith(_AWAITS)
        case Evict() | Shrink():
            return False  # Its own decision is that of the one who gets the quota.
        case _:
            return False
