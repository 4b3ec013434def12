"""In which order the heads of the queues are decided. Slices of one queue come by priority, then age.

Source: Kueue v0.19.2, `pkg/scheduler`.
"""

import heapq
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping

from slicebus.slices.flavors import Misfit, Mode, Nomination
from slicebus.slices.kueue import Condition
from slicebus.slices.preemption import WAITING_FOR_PREEMPTED
from slicebus.slices.sharing import Head, fairest
from slicebus.slices.workload import Slice

Rank = tuple[int, str, str]
Lines = Mapping[str, deque[Slice]]
"""Those that wait by ClusterQueue, in order."""
Found = Nomination | Misfit
Look = Callable[[Slice], Found]
"""What a slice could have now. Asked again whenever that may be less by then."""


def rank(slice: Slice) -> Rank:
    """By priority, then age."""
    return -slice.priority, slice.created, slice.uid


def waits_for_preempted(slice: Slice) -> bool:
    """Whether the last cycle has left it waiting for somebody who was preempted for it."""
    return slice.conditions.get(Condition.QUOTA_RESERVED, {}).get("reason") == WAITING_FOR_PREEMPTED


def preemptors_first(line: Iterable[Slice], is_preemptor: Callable[[Slice], bool]) -> deque[Slice]:
    """A queue in which nobody takes what was made free for one behind him, and loses it to whom it was taken from."""
    return deque(sorted(line, key=lambda slice: not is_preemptor(slice)))


def by_distance(lines: Lines, look: Look, is_preemptor: Callable[[Slice], bool]) -> Iterator[tuple[Slice, Found]]:
    """Without fair sharing: who waits for its victims, then who needs the least from other queues, then by rank."""
    preemptors = Counter({name: sum(map(is_preemptor, line)) for name, line in lines.items()})

    def turn(name: str, distance: int) -> tuple[bool, int, Rank, str]:
        # Those before a preemptor in its queue have their turn with it.
        return not preemptors[name], distance, rank(lines[name][0]), name

    turns = [turn(name, 0) for name in lines]
    heapq.heapify(turns)
    while turns:
        _, distance, _, name = heapq.heappop(turns)
        line = lines[name]
        found = look(line[0])
        nominated = _nominated(found)
        if nominated is not None and nominated.distance > distance:
            heapq.heappush(turns, turn(name, nominated.distance))
            continue
        slice = line.popleft()
        preemptors[name] -= is_preemptor(slice)
        yield slice, found
        if line:
            heapq.heappush(turns, turn(name, 0))


def by_share(
    lines: Lines, trees: Iterable[Iterable[str]], look: Look, head: Callable[[Slice, Nomination], Head]
) -> Iterator[tuple[Slice, Found]]:
    """With fair sharing: the queues of each tree by what part of it they borrow. `head` is what one would use."""
    for names in trees:
        heads: dict[str, Head] = {}
        while True:
            for name in names:
                line = lines[name]
                while line and name not in heads:
                    found = look(line[0])
                    nominated = _nominated(found)
                    if nominated is not None:
                        heads[name] = head(line[0], nominated)
                    else:
                        yield line.popleft(), found
            if not heads:
                break
            name = fairest(heads)
            del heads[name]
            found = look(lines[name][0])
            yield lines[name].popleft(), found


def _nominated(found: Found) -> Nomination | None:
    """What takes a turn: who can have nothing takes nothing from those after it."""
    return found if isinstance(found, Nomination) and found.mode > Mode.NO_CANDIDATES else None
