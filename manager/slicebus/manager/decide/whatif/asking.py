"""Plays a past with every change that somebody asks about, alone and together, and without any."""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

import msgspec

from slicebus.kube.resources import CLUSTERQUEUES, COHORTS
from slicebus.kube.times import unix_time_text
from slicebus.manager.decide.whatif.answer import (
    Curves,
    Played,
    WhatIf,
    changed,
    curves,
    reproduction,
    summary,
)
from slicebus.manager.decide.whatif.hypotheses import (
    Hypothetical,
    PolicyEdit,
    PreemptionChange,
    QuotaChange,
    RoomChange,
)
from slicebus.manager.decide.whatif.play import Play
from slicebus.manager.decide.whatif.recorded_past import RecordedPast

UNCHANGED = "unchanged"
TOGETHER = "together"
WAS = "was"
_CONSTANT_WORK = "a run is over when it has had the pod-seconds that it had: more pods end it earlier"
_CONSTANT_TIME = "a run takes the time that it took, with other sizes too (--constant-work: as many pod-seconds)"


class DrawnAnswer(msgspec.Struct, frozen=True):
    """An answer, and what is drawn of it."""

    answer: WhatIf
    curves: tuple[Curves, ...]


def ask(
    past: RecordedPast,
    changes: Sequence[Hypothetical],
    *,
    constant_work: bool = False,
    played: Callable[[str], None] = lambda _: None,
) -> DrawnAnswer:
    """The answer about these changes: each alone where there are several, and all together where they go together.
    `played` is called with the name of each play before it."""
    until = past.until
    played(UNCHANGED)
    first = Play(past, constant_work=constant_work)
    unchanged = first.run()
    drawn = [curves(WAS, past.was, until), curves(UNCHANGED, unchanged, until)]
    plays, lengths = list[Played](), [first.lengths]
    for name, some in variants(changes):
        played(name)
        play = Play(past, some, constant_work=constant_work)
        chronicle = play.run()
        lengths.append(play.lengths)
        drawn.append(curves(name, chronicle, until))
        plays.append(Played(summary=summary(name, chronicle, until), changed=changed(unchanged, chronicle, until)))
    estimated = max(len(each.estimated) for each in lengths)
    endless = max(len(each.endless) for each in lengths)
    answer = WhatIf(
        since=unix_time_text(past.since),
        until=unix_time_text(until),
        jobs=len(past.jobs),
        was=summary(WAS, past.was, until),
        unchanged=summary(UNCHANGED, unchanged, until),
        reproduction=reproduction(past.was, unchanged),
        plays=tuple(plays),
        left_out=tuple(_left_out(past, constant_work=constant_work, estimated=estimated, endless=endless)),
    )
    return DrawnAnswer(answer, tuple(drawn))


def variants(changes: Sequence[Hypothetical]) -> Iterator[tuple[str, Sequence[Hypothetical]]]:
    """What is played: each change alone, then all together, unless two of them change the same."""
    for change in changes:
        yield change.text, [change]
    pairs = combinations([list(_subjects(change)) for change in changes], 2)
    if len(changes) > 1 and not any(_is_same(a, b) for one, other in pairs for a in one for b in other):
        yield TOGETHER, changes


def _subjects(change: Hypothetical) -> Iterator[tuple[str, ...]]:
    """What a change is about. An empty part is all of them."""
    match change:
        case QuotaChange():
            yield "quota", change.queue, change.resource, change.flavor
        case RoomChange():
            yield "room", change.cluster, change.resource, change.flavor
        case PreemptionChange():
            yield "preemption", change.queue, change.field
        case PolicyEdit():
            for resource, manifest in change.edits:
                if resource in (CLUSTERQUEUES, COHORTS):
                    yield "quota", manifest["metadata"]["name"], "", ""
                if resource == CLUSTERQUEUES:
                    yield "preemption", manifest["metadata"]["name"], ""


def _is_same(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    return len(one) == len(other) and all(a == b or not (a and b) for a, b in zip(one, other, strict=True))


def _left_out(past: RecordedPast, *, constant_work: bool, estimated: int, endless: int) -> Iterator[str]:
    yield _CONSTANT_WORK if constant_work else _CONSTANT_TIME
    yield "what users would have done otherwise: jobs come, are resized, stopped and deleted as they were"
    yield "growth into idle quota, and pods that charge more than they request"
    if not past.gone_known:
        yield f"how long pods take to go after an eviction: none was recorded, so {past.gone_elsewhere_s:g} s"
    if estimated:
        yield f"the run times of {estimated} jobs that had not ended: the median of others like them that ran longer"
    if endless:
        yield f"the ends of {endless} jobs: nobody like them has ended, so they run on"
    if past.interruptions:
        yield f"what happened in {past.interruptions} gaps of the recording: what differs after them is known"
