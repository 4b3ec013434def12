"""What a single admission cycle may do with idle quota: nobody who waits is decided otherwise for it.

As in `cycle_rules` the cycle itself is asked about other worlds: one without whoever grows, and one without the pods
that nobody asked for.
"""

from collections.abc import Iterable

import msgspec

from simulation.cycle_rules import newcomer, with_room, with_waiting
from simulation.limits import counted
from simulation.violations import Violation
from slicebus.slices.admission import cycle as admission
from slicebus.slices.admission.cycle import Admit, Decision, Grow, Wait
from slicebus.slices.admission.opportunistic import with_opportunistic
from slicebus.slices.admission.snapshot import Snapshot
from slicebus.slices.api.quantities import add, times
from slicebus.slices.quota.quota import Usage
from slicebus.slices.workload.workload import Slice

_decide = admission.cycle


def check(snapshot: Snapshot, decided: list[Decision]) -> None:
    """Raise Violation for a decision that breaks a rule."""
    unasked = [slice for slice in snapshot.part.waiting if slice.grows_unasked]
    if unasked or any(isinstance(each, Grow) for each in decided):
        _check_last(snapshot, decided)
        _check_headroom(snapshot, decided)
    for slice in unasked:
        _check_newcomer(snapshot, slice)
    if snapshot.part.opportunistic:
        _check_free(snapshot)


def _check_last(snapshot: Snapshot, decided: Iterable[Decision]) -> None:
    """Whoever grows comes after everybody who waits: all others are decided as in a world where nobody does."""
    unasked = {slice.key for slice in snapshot.part.waiting if slice.grows_unasked}
    asked = [each for each in decided if each.key not in unasked and not isinstance(each, Grow)]
    others = tuple(slice for slice in snapshot.part.waiting if slice.key not in unasked)
    alone = _decide(msgspec.structs.replace(with_waiting(snapshot, others), idle_growth=None))
    if asked != alone:
        changed = sorted({each.key for each in (*asked, *alone) if (each in asked) != (each in alone)})
        raise Violation(f"idle quota: {changed} are decided otherwise because others grow")


def _check_newcomer(snapshot: Snapshot, slice: Slice) -> None:
    """The same, if somebody of a lower priority came who wants just what a job is about to be given."""
    holder = snapshot.part.holdings.holder(slice.chain_id)
    if holder is None:
        return
    more = {name: max(0, count - holder.held_counts.get(name, 0)) for name, count in slice.counts.items()}
    waiting = (*snapshot.part.waiting, newcomer(slice, more, priority=slice.priority - 1))
    world = with_waiting(with_room(snapshot), waiting)
    _check_last(world, _decide(world))


def _check_headroom(snapshot: Snapshot, decided: Iterable[Decision]) -> None:
    """A job that is given more does not take the last of its tree's quota."""
    before, queues = dict(snapshot.part.holdings.totals), snapshot.cluster_queues.values()
    used = before
    for each in decided:
        if isinstance(each, Grow):
            queue, more = _given(snapshot, each)
            used = used | {queue: add(used.get(queue, {}), more)}
    if used is before:
        return
    count = counted(queues, snapshot.cohorts, before)
    for where, (_, use, most) in counted(queues, snapshot.cohorts, used).items():
        if most is not None and use >= most and use > (count[where].use if where in count else 0):
            raise Violation(f"idle quota: all {most} of {where} are given away, and nothing is left")


def _given(snapshot: Snapshot, grow: Grow) -> tuple[str, Usage]:
    """The queue of a job that is given more, and what that uses."""
    holdings = snapshot.part.holdings
    [holder] = [
        slice for queue in snapshot.cluster_queues for slice in holdings.holders_in(queue) if slice.key == grow.key
    ]
    more: Usage = {}
    for pods in holder.admission.pod_sets if holder.admission is not None else ():
        count = max(0, grow.to[pods.name] - holder.held_counts[pods.name])
        used = times(pods.of_one, count)
        more = add(more, {(flavor, resource): used.get(resource, 0) for resource, flavor in pods.flavors.items()})
    return _queue_of(holder), more


def _check_free(snapshot: Snapshot) -> None:
    """Nobody waits because of pods that nobody asked for: a newcomer that asks for just those of a job gets them, if it
    would get as much where nobody has such pods.

    Said while nobody leaves, as it might wait for that, and while no job that has such pods has two slices with quota.
    """
    part, free = snapshot.part, with_opportunistic(snapshot)
    if (
        part.leaving
        or part.shrinking
        or any(part.holdings.used_by(slice.chain_id) != {_queue_of(slice): slice.usage} for slice in free)
    ):
        return
    world, holdings = msgspec.structs.replace(with_room(snapshot), idle_growth=None), part.holdings.copy()
    for slice in free:
        holdings.settle(slice.chain_id, [_as_asked(slice)])
    without = msgspec.structs.replace(part, holdings=holdings, opportunistic=())
    for slice in free:
        unasked = {name: n - _as_asked(slice).held_counts[name] for name, n in slice.held_counts.items()}
        waiting = (newcomer(slice, unasked),)
        alone = _decide(with_waiting(msgspec.structs.replace(world, part=without), waiting))
        beside = _decide(with_waiting(world, waiting))
        if any(isinstance(each, Admit) for each in alone) and all(isinstance(each, Wait) for each in beside):
            raise Violation(f"idle quota: a newcomer would wait for {unasked} of {slice.name}, which nobody asked for")


def _as_asked(slice: Slice) -> Slice:
    """A slice without the pods that nobody asked for."""
    return msgspec.structs.replace(slice.at_most(slice.asked_counts or {}), reclaimed=None)


def _queue_of(holder: Slice) -> str:
    return holder.admission.cluster_queue if holder.admission is not None else ""
