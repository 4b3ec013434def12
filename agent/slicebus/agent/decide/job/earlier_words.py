"""Keeps the sizes of the manager's words whose pods had not gone when a later word came.

Somebody else waits for the pods of each word. So each of these sizes is asked for when no more pods run than that,
while those that a later word takes still go. They are an annotation of the job, in the write that notes the later word,
so no restart of the agent forgets them.
"""

from collections.abc import Iterable

import msgspec

from slicebus.agent.state.annotations import Word, lowered
from slicebus.agent.state.views import WorkerJobReading
from slicebus.proto.messages import Counts
from slicebus.slices.api import api_names
from slicebus.slices.jobs import KINDS

_MOST = 16
"""Of further ones the oldest stay: these have waited longest."""

Notes = dict[str, str | None]


def note(job: WorkerJobReading, word: str | None, size: Counts) -> Notes:
    """The annotation of a job that a later word gives this size, where it changes. Without a word all are over:
    somebody else has set the size."""
    known = {one.id: one for one in (*job.earlier_words, *_last_words(job)) if word and one.id != word}
    return _noted(job, (one for one in known.values() if _leaves_more(one, size)), granted=job.granted)


def frees(job: WorkerJobReading, word: Word, granted: Counts) -> bool:
    """Whether less is granted when the job says that the pods of a word are gone."""
    return lowered(granted, KINDS[job.ref.kind].left_at(job.manifest, word.size)) != granted


def left(job: WorkerJobReading, granted: Counts) -> Notes:
    """The annotation of a job that a request leaves this grant, where it changes."""
    return _noted(job, job.earlier_words, granted=granted)


def _noted(job: WorkerJobReading, words: Iterable[Word], *, granted: Counts) -> Notes:
    kept = tuple(word for word in words if frees(job, word, granted))[:_MOST]
    if kept == job.earlier_words:
        return {}
    return {api_names.EARLIER_WORDS_ANNOTATION: msgspec.json.encode(kept).decode() if kept else None}


def _last_words(job: WorkerJobReading) -> Iterable[Word]:
    """The word that the job follows, and the one that its notice is of."""
    word, reclaim = job.last_word, job.reclaim
    if word is not None:
        yield word
    if reclaim is not None and reclaim.suspends is None:
        yield Word(reclaim.word, reclaim.to)


def _leaves_more(word: Word, size: Counts) -> bool:
    return word.size.keys() == size.keys() and any(count > size[name] for name, count in word.size.items())
