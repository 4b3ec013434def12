"""The check of `slicebus doctor` that counts the dead letters: each is a message whose effect is missing."""

from collections import Counter
from collections.abc import Iterable

from slicebus.bus.contract import Bus
from slicebus.bus.dead_letters.browse import browse
from slicebus.bus.dead_letters.letters import DeadLetter, head
from slicebus.cli.doctor.check import Check
from slicebus.proto.messages import Lane
from slicebus.proto.topology import DEAD_LETTERS

_MOST_READ = 10_000
"""The most letters of a queue that are read to say what they are. A browse takes the whole queue."""
_MOST_NAMED = 4
_ADVICE = (
    "`slicebus dead list` has the detail of each: mend its reason, then send it back by `slicebus dead requeue`, "
    "or delete it by `slicebus dead discard`"
)


async def dead_letters_check(bus: Bus) -> Check:
    """Whether a message lies in a dead-letter queue: how many, and of which cluster, type and reason. Raises
    ForbiddenError, and NotFoundError where the manager has declared no queue yet."""
    letters, unread = list[DeadLetter](), 0
    for queue in DEAD_LETTERS:
        depth = (await bus.depth(queue)).ready
        if depth > _MOST_READ:
            unread += depth
            continue
        async with browse(bus, queue, keep=head) as deliveries:
            letters += [DeadLetter.from_message(delivery.message) async for delivery in deliveries]
    return dead_letter_finding(letters, unread=unread)


def dead_letter_finding(letters: Iterable[DeadLetter], *, unread: int = 0) -> Check:
    """The check of these letters, and of so many more that were not read."""
    groups = Counter((letter.type, letter.cluster, _lane_of(letter), letter.reason or "unknown") for letter in letters)
    count = groups.total() + unread
    if not count:
        return Check("dead letters", "none")
    largest = groups.most_common(_MOST_NAMED)
    named = [f"{number} {type} of {cluster}{lane}: {reason}" for (type, cluster, lane, reason), number in largest]
    if more := groups.total() - sum(number for _, number in largest):
        named.append(f"{more} more")
    told = f": {'; '.join(named)}" if named else ""
    return Check("dead letters", f"{count} {'message' if count == 1 else 'messages'}{told}", _ADVICE)


def _lane_of(letter: DeadLetter) -> str:
    """The lane of the queue that it was in; empty where that is unknown."""
    lane = letter.queue.rpartition(".")[2]
    return f" in the lane {lane}" if lane in tuple(Lane) else ""
