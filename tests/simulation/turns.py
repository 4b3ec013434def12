"""How often jobs are preempted in turn. By fair sharing they may be for ever (docs/decisions/0016), otherwise never."""

from collections import Counter


class Turns:
    """Counts by chain.

    A preemption by fair sharing begins every count anew: the turns that it is a part of bring others about, within a
    queue or to reclaim quota. A ring without it goes on when these turns end, and is counted then.
    """

    def __init__(self) -> None:
        self._lost: Counter[str] = Counter()

    def lose(self, chain: str, *, by_share: bool) -> int:
        """A chain is preempted: how often that happened to it since the last preemption by fair sharing."""
        if by_share:
            self._lost.clear()
            return 0
        self._lost[chain] += 1
        return self._lost[chain]
