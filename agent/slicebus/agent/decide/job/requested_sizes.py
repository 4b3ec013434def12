"""Works out the size that a worker's job asks for, beside what it is granted."""

from collections.abc import Collection, Mapping
from typing import Self

import msgspec

from slicebus.agent.state import annotations
from slicebus.agent.state.annotations import Word
from slicebus.agent.state.views import WorkerJobReading, WorkerView
from slicebus.proto.messages import Counts


class RequestedSizes(msgspec.Struct, frozen=True):
    """The sizes that decide whether a request is due."""

    wanted: Counts
    """The size to ask for. A pod set with pods that are going counts as many as run, or those that `word` leaves it."""
    granted: Counts
    going: frozenset[str]
    """The pod sets with more running pods than are wanted in the end, where that is not asked for yet."""
    word: Word | None = None
    """An earlier word of the manager whose pods are gone, while those of a later one still go."""

    @classmethod
    def of(cls, view: WorkerView, job: WorkerJobReading) -> Self:
        """The sizes of a job that runs."""
        desired, granted = view.desired, job.granted
        running = {name: len(members.running) for name, members in view.own_pod_sets.items() if members.running}
        going = frozenset(name for name, count in running.items() if count > desired.get(name, 0))
        if not going:
            return cls(desired, granted, going)
        for word in reversed(job.earlier_words) if going <= desired.keys() else ():
            left = {name: count - view.finished.get(name, 0) for name, count in word.size.items()}
            asked = {name: min(left.get(name, 0), granted.get(name, 0)) for name in going}
            if word.frees(granted) and all(running[name] <= count for name, count in asked.items()):
                return cls(desired | asked, granted, frozenset(), word)
        return cls({name: running[name] if name in going else count for name, count in desired.items()}, granted, going)

    @property
    def lowered(self) -> Counts:
        """The grant while the request waits."""
        return annotations.lowered(self.granted, self.wanted)

    @property
    def are_less(self) -> bool:
        """Whether less is wanted than is granted, apart from pod sets with pods that are going."""
        return _without(self.lowered, self.going) != _without(self.granted, self.going)

    def are_news_to(self, known: Counts) -> bool:
        """Whether another size is wanted than is known, apart from pod sets with pods that are going."""
        return _without(self.wanted, self.going) != _without(known, self.going)


def _without(counts: Mapping[str, int], names: Collection[str]) -> Counts:
    return {name: count for name, count in counts.items() if name not in names}
