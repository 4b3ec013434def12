"""The slices that wait in one ClusterQueue, in their order, in one cycle.

The first few of a line (`lines`) have their turns one by one. Of the others the next one has a turn too. Where it gets
nothing and changes nothing, the same holds for all of them while nothing changes, and they are set aside. Once anything
has changed, those are told the same whose turns would have come before that, and the rest goes on.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from itertools import accumulate, compress

import msgspec

from slicebus.slices.admission.decisions import Decision, Wait
from slicebus.slices.admission.lines import Behind
from slicebus.slices.admission.preemption import Claim
from slicebus.slices.admission.queue_order import ClaimOf, Rank, claim_of, rank
from slicebus.slices.admission.snapshot import Snapshot
from slicebus.slices.workload.waiting import LEFT_OUT, without_numbers
from slicebus.slices.workload.workload import Slice

Turn = tuple[Claim, int, Rank, str]
"""When a slice has its turn among all queues: by its claim, the distance of its quota, its rank, and its queue."""


class Aside(msgspec.Struct, frozen=True):
    """What is decided about everybody of a line while nothing changes."""

    wait: Wait
    distance: int = 0
    """That of the quota that they are nominated for."""
    on_cluster: bool = False
    """Whether it depends on the room of clusters too, which other trees of quota share."""


class Rest:
    """Those of a line that are not decided one by one."""

    def __init__(self, behind: Behind, as_charged: Callable[[Slice], Slice]) -> None:
        self._line = behind.line
        self._members: Sequence[Slice] = behind.line.members
        self._next = behind.start
        self._as_charged = as_charged
        self._told: list[tuple[int, int, Wait]] = []
        """What those from one index to before another one are told."""
        self.aside: Aside | None = None
        """What is decided about all of them from the next one on; None while they have turns."""

    @property
    def next_rank(self) -> Rank | None:
        """The rank of the next one; None at the end, or while they are aside."""
        is_over = self.aside is not None or self._next == len(self._members)
        return None if is_over else rank(self._members[self._next])

    def peek(self) -> Slice:
        """The next one, as it is charged."""
        return self._as_charged(self._members[self._next])

    def take(self) -> None:
        """Go on to the one after that."""
        self._next += 1

    def give_back(self) -> None:
        """Go back to the one that was taken last."""
        self._next -= 1

    def last_before(self, first: Rank, queue: str) -> Turn | None:
        """The turn that the last one of those aside would have before a slice of this rank."""
        if self.aside is None or (index := bisect_left(self._members, first, key=rank)) <= self._next:
            return None
        return Claim.NONE, self.aside.distance, rank(self._members[index - 1]), queue

    def first_after(self, turn: Turn, queue: str) -> Rank | None:
        """The rank of the first one of those aside whose turn would come after this one."""
        assert self.aside is not None
        own = Claim.NONE, self.aside.distance
        if own < turn[:2]:
            return None
        index = self._next
        if own == turn[:2]:
            index = bisect_right(self._members, turn[2:], lo=index, key=lambda slice: (rank(slice), queue))
        return rank(self._members[index]) if index < len(self._members) else None

    def resume(self, end: Rank | None) -> None:
        """Tell those aside that come before this rank, all for None, and let the rest go on."""
        if self.aside is None:
            return
        members, first = self._members, self._next
        self._next = len(members) if end is None else bisect_left(members, end, lo=first, key=rank)
        if first < self._next:
            self._told.append((first, self._next, self.aside.wait))
        self.aside = None

    def told(self) -> Iterator[Wait]:
        """What those are told that had no turn of their own, where they do not show it."""
        self.resume(None)
        merged: list[tuple[int, int, Wait]] = []
        for first, end, wait in self._told:
            said = _without_numbers(wait)
            if merged and merged[-1][1] == first and _says_same(merged[-1][2], said):
                first, _, said = merged.pop()
            merged.append((first, end, said))
        for first, end, said in merged:
            others = self._line.not_showing((said.reason, said.message))
            for _, slice in sorted((index, slice) for index, slice in others if first <= index < end):
                yield msgspec.structs.replace(said, key=slice.key)


class WaitingQueue:
    """The slices of one ClusterQueue that have not been decided."""

    def __init__(self, name: str, slices: Sequence[Slice], claim_of: ClaimOf, rests: Iterable[Rest] = ()) -> None:
        """`slices` come in order. Those of `rests` have no claim, and come by their rank."""
        self._name = name
        self._slices = deque(slices)
        # A preemptor lifts its whole queue: the slices before it come first. The last claim is that of the queue.
        self._claims = list(accumulate(map(claim_of, reversed(slices)), min))
        self._rests = [*rests]
        self._source: Rest | None = None
        """Whose next one comes next; None for the first of the slices."""
        self._taken: Rest | None = None
        """The same of the one that was taken last."""
        self._reached: Turn | None = None
        """The turn of that one, at the least."""
        self.distance = 0
        """That of the quota for which the next one is known to be nominated."""
        self.head: Slice | None = None
        """The next one; None at the end."""
        self._look()

    @property
    def has_taken_from_behind(self) -> bool:
        """Whether the one that was taken last came behind others of its line."""
        return self._taken is not None

    @property
    def depends_on_clusters(self) -> bool:
        """Whether any are aside that depend on the room of clusters."""
        return any(rest.aside is not None and rest.aside.on_cluster for rest in self._rests)

    @property
    def turn(self) -> Turn:
        """The turn of the next one: not before those that come before it in the queue."""
        assert self.head is not None
        own, claim = rank(self.head), self._claims[-1] if self._claims else Claim.NONE
        turn: Turn = (claim, self.distance, own, self._name)
        before = (rest.last_before(own, self._name) for rest in self._rests if rest.aside is not None)
        return max([turn, *(each for each in (self._reached, *before) if each is not None)])

    def take(self) -> Slice:
        """Take the next one."""
        head = self.head
        assert head is not None
        self._reached, self._taken, self.distance = self.turn, self._source, 0
        if self._source is not None:
            self._source.take()
        else:
            self._slices.popleft()
            self._claims.pop()
        self._look()
        return head

    def set_aside(self, aside: Aside) -> None:
        """Leave those of its line out that are decided as the one that was taken last, from behind others."""
        assert self._taken is not None
        self._taken.give_back()
        self._taken.aside = aside
        self._look()

    def resume(self, changed: Turn | None, *, own: Rank | None = None, in_tree: bool = True) -> bool:
        """Go on with those aside, after a slice has changed something in its turn; whether there were any. Without a
        turn everybody before the next one has been decided. `own` is the rank of that slice, where it is of this
        queue, `in_tree` whether it is of this tree of quota."""
        aside = [rest for rest in self._rests if rest.aside is not None]
        due = [rest for rest in aside if in_tree or (rest.aside is not None and rest.aside.on_cluster)]
        if not due:
            return False
        ends = [own] if own is not None else [rank(self.head)] if self.head is not None else []
        if changed is not None:
            ends += [end for rest in aside if (end := rest.first_after(changed, self._name)) is not None]
        distances = {id(rest): rest.aside.distance for rest in due if rest.aside is not None}
        end = min(ends, default=None)
        for rest in due:
            rest.resume(end)
        self._look()
        is_stopped = own is None and self.head is not None and rank(self.head) == end
        if changed is not None and is_stopped and (Claim.NONE, 0, end, self._name) < changed:
            # Where it was nominated before the change, it waits for its turn at that distance.
            self.distance = max(self.distance, distances.get(id(self._source), 0))
        return True

    def told(self) -> Iterator[Wait]:
        """What those are told that had no turn of their own."""
        for rest in self._rests:
            yield from rest.told()

    def _look(self) -> None:
        """Find the next one."""
        ranked = [(next_rank, index) for index, rest in enumerate(self._rests) if (next_rank := rest.next_rank)]
        first, source = min(ranked, default=(None, -1))
        is_claimed = bool(self._claims) and self._claims[-1] is not Claim.NONE
        if self._slices and (first is None or is_claimed or rank(self._slices[0]) < first):
            head, self._source = self._slices[0], None
        elif first is not None:
            self._source = self._rests[source]
            head = self._source.peek()
        else:
            head, self._source = None, None
        if self.head is None or head is None or head.key != self.head.key:
            self.distance = 0
        self.head = head


def told_behind(decision: Decision) -> Decision:
    """A decision about a slice behind others of a line: numbers change with whatever comes and goes before it."""
    return _without_numbers(decision) if isinstance(decision, Wait) else decision


def _without_numbers(wait: Wait) -> Wait:
    return msgspec.structs.replace(wait, message=_in_words(wait.message), would_admit=_in_words(wait.would_admit))


def in_lines(snapshot: Snapshot, preemptors: Set[str]) -> tuple[list[Behind], list[Slice]]:
    """Those behind others that are decided by the next one of each line, and those that have a turn each: where a queue
    does not go by rank alone, and where others lose for one of a line. `preemptors` are the UIDs of such slices."""
    lines, single = list[Behind](), list[Slice]()
    waiting, name_of = snapshot.part.waiting, snapshot.cluster_queue_of
    sought = preemptors - {slice.uid for slice in waiting}
    claimed = {name_of(slice) for slice in waiting if claim_of(slice, preemptors) is not Claim.NONE}
    has_claim = [bool(sought) and any(slice.uid in sought for slice in those.line.members) for those in snapshot.behind]
    claimed |= {name_of(those.line.members[0]) for those in compress(snapshot.behind, has_claim)}
    for those, is_claimed in zip(snapshot.behind, has_claim, strict=True):
        name = name_of(those.line.members[0])
        queue = snapshot.cluster_queues.get(name)
        goes_by_rank = queue is None or not (queue.usage_based or (queue.strict_fifo and name in claimed))
        if goes_by_rank and not is_claimed:
            lines.append(those)
        else:
            single += those.line.members[those.start :]
    return lines, single


def _in_words(text: str) -> str:
    return without_numbers(text, mark=LEFT_OUT)


def _says_same(one: Wait, other: Wait) -> bool:
    return (one.reason, one.message, one.would_admit) == (other.reason, other.message, other.would_admit)
