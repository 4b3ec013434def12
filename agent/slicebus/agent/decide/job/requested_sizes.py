"""Works out the size that a worker's job asks for, beside what it is granted."""

from collections.abc import Collection, Mapping
from typing import Self

import msgspec

from slicebus.agent.decide.job.earlier_words import frees
from slicebus.agent.state import annotations
from slicebus.agent.state.annotations import PendingRequests, Word
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
    """A word of the manager whose pods are gone, where more is wanted than it leaves: those of a later one still go, or
    another cluster of the job waits."""

    @classmethod
    def of(cls, view: WorkerView, job: WorkerJobReading) -> Self:
        """The sizes of a job that runs."""
        desired, granted = view.desired, job.granted
        running = {name: len(members.running) for name, members in view.own_pod_sets.items() if members.running}
        going = frozenset(name for name, count in running.items() if count > desired.get(name, 0))
        if not going:
            word = _unsaid_word(view, job, running)
            return cls(desired if word is None else word.size, granted, going, word)
        for word in reversed(job.earlier_words) if going <= desired.keys() else ():
            left = _left_by(word, view)
            asked = {name: min(left.get(name, 0), granted.get(name, 0)) for name in going}
            if frees(job, word, granted) and all(running[name] <= count for name, count in asked.items()):
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


def _unsaid_word(view: WorkerView, job: WorkerJobReading, running: Counts) -> Word | None:
    """The word that the job follows and whose pods are gone, with the size to ask for; None where that is said, or the
    request for what is wanted says it.

    It stays until it is published: a request for more would take its place, and whoever took the pods would wait.
    """
    word, last = job.last_word, job.requested
    if word is None or word.size.keys() != view.desired.keys():
        return None
    left = _left_by(word, view)
    if not any(count > left[name] for name, count in view.desired.items()):
        return None
    is_on_its_way = last is not None and last.follows == word.id and not is_published(view, last)
    is_due = is_on_its_way or frees(job, word, job.granted)
    return Word(word.id, left) if is_due and all(running.get(name, 0) <= n for name, n in left.items()) else None


def _left_by(word: Word, view: WorkerView) -> Counts:
    """The size that a word leaves, without pods that have ended for good."""
    return {name: count - view.finished.get(name, 0) for name, count in word.size.items()}


def is_published(view: WorkerView, last: PendingRequests) -> bool:
    """Whether an order has answered the newest request, or this agent has published it."""
    return not last.unanswered or view.published == last.key


def _without(counts: Mapping[str, int], names: Collection[str]) -> Counts:
    return {name: count for name, count in counts.items() if name not in names}
