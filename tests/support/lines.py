"""Decides an admission cycle in two ways: every waiting slice by itself, and by lines of those that are alike."""

from collections import Counter
from collections.abc import Sequence
from unittest.mock import patch

import msgspec

from slicebus.slices.admission import waiting_queue
from slicebus.slices.admission.cycle import Decision, Wait, cycle
from slicebus.slices.admission.lines import Lines, is_plain, shown_by
from slicebus.slices.admission.snapshot import Snapshot

_LATER = "2999-01-01T00:00:00Z"


def in_lines(snapshot: Snapshot, *, front: int) -> Snapshot:
    """The snapshot with so many of each line in its part, and the others behind them."""
    part, lines = snapshot.part, Lines(front=front)
    waiting = Counter(slice.chain_id for slice in part.waiting)
    for slice in part.waiting:
        has_quota = part.holdings.holder(slice.chain_id) is not None or part.holdings.used_by(slice.chain_id)
        lines.put(slice, is_only=waiting[slice.chain_id] == 1 and not has_quota)
    queues = dict.fromkeys(slice.local_queue for slice in part.waiting)
    first, behind = lines.waiting_in(queues, apart=snapshot.refused)
    return msgspec.structs.replace(
        snapshot, part=msgspec.structs.replace(part, waiting=tuple(first)), behind=tuple(behind)
    )


def with_alike(snapshot: Snapshot) -> Snapshot:
    """The snapshot in which three more wait for each that nobody tells from others: one as old, and two newcomers."""
    more = [
        msgspec.structs.replace(slice, name=f"{slice.name}-{number}", uid=f"{slice.uid}/{number}", created=created)
        for slice in snapshot.part.waiting
        if is_plain(slice) and snapshot.part.holdings.holder(slice.chain_id) is None
        for number, created in enumerate((slice.created, _LATER, _LATER))
    ]
    alone = [msgspec.structs.replace(slice, job_uid=slice.uid) for slice in more]
    part = msgspec.structs.replace(snapshot.part, waiting=(*snapshot.part.waiting, *alone))
    return msgspec.structs.replace(snapshot, part=part)


def one_by_one(snapshot: Snapshot) -> Snapshot:
    """The snapshot with all that wait in its part."""
    behind = [slice for those in snapshot.behind for slice in those.line.members[those.start :]]
    part = msgspec.structs.replace(snapshot.part, waiting=(*snapshot.part.waiting, *behind))
    return msgspec.structs.replace(snapshot, part=part, behind=())


def compared(snapshot: Snapshot, *, front: int) -> str:
    """How the decisions about a snapshot in lines differ from those about everybody by itself; empty where they do not.
    Those behind others are told numbers too, to compare those."""
    lined = in_lines(snapshot, front=front)
    if not lined.behind:
        return ""
    with patch.object(waiting_queue, "_in_words", str):
        return _difference(lined, cycle(snapshot), cycle(lined))


def _difference(world: Snapshot, single: Sequence[Decision], lined: Sequence[Decision]) -> str:
    """Who shows already what it would be told is told nothing."""
    behind = {slice.key: slice for those in world.behind for slice in those.line.members[those.start :]}
    told = {each.key: each for each in lined if isinstance(each, Wait)}
    for each in single:
        if isinstance(each, Wait) and each.key in behind and each.key not in told:
            shown = shown_by(behind[each.key])
            told[each.key] = Wait(key=each.key, reason=shown[0], message=shown[1], would_admit=each.would_admit)
    expected = {each.key: each for each in single if isinstance(each, Wait)}
    for key in expected.keys() | told.keys():
        if expected.get(key) != told.get(key):
            return f"{key}: {expected.get(key)} one by one, and {told.get(key)} in lines"
    deeds, others = ([each for each in decided if not isinstance(each, Wait)] for decided in (single, lined))
    return "" if deeds == others else f"{deeds} one by one, and {others} in lines"
