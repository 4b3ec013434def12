"""Rule 12: the journal alone explains every decision."""

from collections.abc import Iterable

from simulation.violations import Violation
from slicebus.bus.contract import Record
from slicebus.cli.replay.page import MODELS
from slicebus.decisions.replay import Replayer


def check(records: Iterable[Record]) -> int:
    """Make the decisions of a run again; returns how many. Raises Violation for one that comes out otherwise."""
    replayer, count = Replayer(MODELS), 0
    for made in replayer.feed_together(records):
        count += 1
        if not made.same:
            what = f"rule 12: {made.source} decided {made.what} at {made.position}"
            then, now = made.recorded.decode(), made.made.decode() or made.problem
            raise Violation(f"{what} from {made.given.decode()} to be {then}, and now it is {now}")
    if not count:
        raise Violation("rule 12: no decision was recorded")
    return count
