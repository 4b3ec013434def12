"""What a single admission cycle may decide, by its snapshot alone: who comes first, and that nobody loses too much.

The rules ask the cycle itself about other snapshots, in which nobody has to be preempted: of the search for victims
they know nothing.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import patch

import msgspec

from simulation.violations import Violation
from slicebus.kube.times import time_text
from slicebus.slices.admission import cycle as admission
from slicebus.slices.admission.cycle import Admit, Decision, Evict, Shrink
from slicebus.slices.admission.preemption import preemptor_uid
from slicebus.slices.admission.queue_order import rank
from slicebus.slices.admission.snapshot import Snapshot
from slicebus.slices.api.kueue import WAITING_FOR_PREEMPTED, Condition, PreemptionReason
from slicebus.slices.api.quantities import in_units
from slicebus.slices.quota.holdings import Part
from slicebus.slices.quota.quota import ClusterQueue
from slicebus.slices.workload.reclaimed import Beneficiary, take_back
from slicebus.slices.workload.workload import Admission, Counts, Slice, SliceKey
from support.lines import compared, with_alike

Plan = Mapping[SliceKey, Counts | None]
"""The pods that each victim keeps, by pod set; None where it is evicted."""
_MOST_VICTIMS = 4
_MOST_NEWER = 16
"""So many claims take what is free of a simulated quota, also where there is more than what comes back."""
_decide = admission.cycle


@contextmanager
def watching(check: Callable[[Snapshot, list[Decision]], None]) -> Iterator[None]:
    """Have every admission cycle checked, while the context lasts."""

    def checked(snapshot: Snapshot) -> list[Decision]:
        decided = _decide(snapshot)
        check(snapshot, decided)
        return decided

    with patch.object(admission, "cycle", checked):
        yield


def check(snapshot: Snapshot, decided: list[Decision]) -> None:
    """Raise Violation for a decision that breaks a rule."""
    _check_order(snapshot, decided)
    _check_usage(snapshot, decided)
    _check_newer(snapshot, decided)
    _check_rings(snapshot, decided)
    _check_spared(snapshot, decided)


def check_lines(snapshot: Snapshot) -> None:
    """Raise Violation where those who are alike, and wait in lines, are decided otherwise than one by one.

    Few jobs of a run are alike, so each that waits has some like it.
    """
    if differs := compared(with_alike(snapshot), front=1):
        raise Violation(f"lines: {differs}")


def _check_order(snapshot: Snapshot, decided: Iterable[Decision]) -> None:
    """What a job has lost comes back before newer claims of its priority in its queue. Whoever waits for those it has
    preempted comes first."""
    waiting = {slice.key: slice for slice in snapshot.part.waiting if slice.key not in snapshot.refused}
    admitted = [waiting[each.key] for each in decided if isinstance(each, Admit) and each.key in waiting]
    lost = [slice for slice in waiting.values() if slice.queued_since and slice not in admitted and slice.active]
    for slice in lost:
        for other in admitted:
            if (
                _line_of(snapshot, other) == _line_of(snapshot, slice)
                and other.priority == slice.priority
                and (other.queued_since or other.created) > slice.queued_since
                and not _is_preemptor(snapshot, other)
                and slice.key in _admitted_without(snapshot, other)
            ):
                raise Violation(f"comes back: {other.name} gets what {slice.name} has lost, and is newer")


def _check_usage(snapshot: Snapshot, decided: Iterable[Decision]) -> None:
    """Of a queue that goes by past use nobody gets what somebody of another LocalQueue needs that has used less, also
    if everybody who waits there before him had got quota."""
    if not (uses := snapshot.local_uses.of_local_queues):
        return
    in_turn = [one for one in snapshot.part.waiting if one.key not in snapshot.refused]
    waiting = {one.key: one for one in in_turn if one.pending and not one.grows_unasked}
    admitted = [waiting[each.key] for each in decided if isinstance(each, Admit) and each.key in waiting]
    for other, slice in itertools.product(admitted, waiting.values()):
        is_rival = slice not in admitted and slice.local_queue != other.local_queue
        if is_rival and _queue_of(snapshot, slice) == _queue_of(snapshot, other) and other.local_queue in uses:
            before = [
                one for one in waiting.values() if one.local_queue == slice.local_queue and rank(one) < rank(slice)
            ]
            rule = snapshot.local_uses.rule
            more = rule.part(rule.ahead_s) * sum(rule.weighted(_needs(one)) for one in before)
            has_used_less = uses[slice.local_queue].share(more) < uses[other.local_queue].share()
            if has_used_less and not _is_preemptor(snapshot, other) and slice.key in _admitted_without(snapshot, other):
                raise Violation(f"by use: {other.name} gets what {slice.name} needs, whose queue has used less")


def _needs(slice: Slice) -> Mapping[str, float]:
    """In cores and bytes."""
    needs = Counter[str]()
    for pod_set in slice.pod_sets:
        count = slice.unfinished_counts[pod_set.name]
        needs.update({name: in_units(name, each * count) for name, each in pod_set.charged.items()})  # type: ignore[misc]
    return needs


def _line_of(snapshot: Snapshot, slice: Slice) -> object:
    """Where a slice waits in line: the LocalQueues of a ClusterQueue may have lines of their own."""
    queue = snapshot.cluster_queues.get(_queue_of(snapshot, slice))
    return slice.local_queue if queue is not None and queue.usage_based else _queue_of(snapshot, slice)


def _check_newer(snapshot: Snapshot, decided: Iterable[Decision]) -> None:
    """What a job has lost comes back before newer claims also where there are none: had its queue several for just
    that, it would get the same."""
    for each in decided:
        slice = next((one for one in snapshot.part.waiting if one.key == each.key and one.restores), None)
        holder = snapshot.part.holdings.holder(slice.chain_id) if slice is not None else None
        if slice is None or holder is None or not isinstance(each, Admit) or slice.key in snapshot.refused:
            continue
        more = {name: max(0, n - holder.held_counts.get(name, 0)) for name, n in each.admission.counts.items()}
        newer = [newcomer(slice, more, created=_later(slice.queued_since), number=n) for n in range(_MOST_NEWER)]
        if _admissions(with_waiting(snapshot, (*snapshot.part.waiting, *newer))).get(slice.key) != each.admission:
            raise Violation(f"comes back: newer claims for {more} would get what {slice.name} has lost")


def _check_rings(snapshot: Snapshot, decided: Iterable[Decision]) -> None:
    """Nobody takes pods from a job that has taken some from it, and lost some to it: the same preemptor would take
    nothing from the same victim if that had happened just now."""
    since = snapshot.preemption_cycles_since
    for each in decided:
        if not isinstance(each, Shrink) or not _preempts(each) or since is None:
            continue
        [victim] = _holders(snapshot, {each.key: each.to})
        preemptor = next(slice for slice in snapshot.part.waiting if slice.uid == each.beneficiary.uid)
        lost = (_lost_to(victim, preemptor, since), _lost_to(preemptor, victim, since))
        part = msgspec.structs.replace(snapshot.part, preempted=(*snapshot.part.preempted, *lost))
        others = filter(_preempts, _decide(msgspec.structs.replace(snapshot, part=part)))
        if any(other.key == each.key and _preemptor(other) == preemptor.uid for other in others):
            raise Violation(f"forth and back: {preemptor.name} would take pods of {victim.name} again and again")


def _preempts(decision: Decision) -> bool:
    """Whether it takes pods that somebody asked for."""
    is_unasked = isinstance(decision, Shrink) and decision.preemption == PreemptionReason.OPPORTUNISTIC
    return _takes(decision) and not is_unasked


def _lost_to(slice: Slice, other: Slice, at: str) -> Slice:
    """A slice as it is when its job has lost pods to another one."""
    beneficiary = Beneficiary(workload=other.key, uid=other.uid, job_uid=other.job_uid)
    held = slice.held_counts
    note = take_back(slice.reclaimed, held, held, beneficiary=beneficiary, at=at, reason="", message="")
    return msgspec.structs.replace(slice, reclaimed=msgspec.structs.replace(note, done=True))


def newcomer(like: Slice, counts: Counts, *, number: int = 0, **changes: Any) -> Slice:
    """The first slice of another job, of the same kind and in the same queue, which waits for so many pods. `number`
    tells several apart."""
    name = f"newcomer-{number}"
    pod_sets = tuple(msgspec.structs.replace(pods, count=counts.get(pods.name, 0)) for pods in like.pod_sets)
    fields = {"name": name, "uid": name, "job_uid": name, "pod_sets": pod_sets, "conditions": {}}
    nothing = {"admission": None, "admitted": False, "cluster": None, "replaces": None, "reclaimable": {}}
    unknown = {"observed": None, "reclaimed": None, "queued_since": "", "grown_at": "", "avoids": frozenset()}
    return msgspec.structs.replace(like, **{**fields, **nothing, **unknown, "partial": False, **changes})


def with_waiting(snapshot: Snapshot, waiting: tuple[Slice, ...]) -> Snapshot:
    """A world in which others wait."""
    return msgspec.structs.replace(snapshot, part=msgspec.structs.replace(snapshot.part, waiting=waiting))


def with_room(snapshot: Snapshot) -> Snapshot:
    """A world with room for everything on every cluster."""
    clusters = tuple(msgspec.structs.replace(each, capacity=None, max_room={}) for each in snapshot.clusters)
    return msgspec.structs.replace(snapshot, clusters=clusters)


def _later(time: str) -> str:
    return time_text(datetime.fromisoformat(time) + timedelta(seconds=1))


def _is_preemptor(snapshot: Snapshot, slice: Slice) -> bool:
    """Whether it waits for those that it has preempted: by what it says, which an API server may have refused to take,
    or by what those say that lose something for it."""
    if slice.conditions.get(Condition.QUOTA_RESERVED, {}).get("reason") == WAITING_FOR_PREEMPTED:
        return True
    part = snapshot.part
    return any(slice.uid in _takers(loser) for loser in (*part.leaving, *part.shrinking))


def _takers(loser: Slice) -> set[str]:
    """For whom a slice goes, or loses pods, by UID."""
    preempted, note = loser.conditions.get(Condition.PREEMPTED, {}), loser.reclaimed
    goes_for = {preemptor_uid(preempted["message"])} if preempted.get("status") == "True" else set()
    return goes_for | ({each.uid for each in note.beneficiaries} if note is not None and loser.shrinks_to else set())


def _admitted_without(snapshot: Snapshot, left_out: Slice) -> Mapping[SliceKey, Admission]:
    """What is admitted where one slice does not wait."""
    others = tuple(slice for slice in snapshot.part.waiting if slice.key != left_out.key)
    return _admissions(with_waiting(snapshot, others))


def _check_spared(snapshot: Snapshot, decided: list[Decision]) -> None:
    """No smaller plan would have done: with one replica more for somebody the preemptor does not get what it gets.

    Said of a cycle with one preemption, while nobody else leaves: then its plan is all that happens. What was found
    without borrowing has to be the least without. By fair shares a plan is the least of what the strategy allows.
    """
    plan = {each.key: each.to if isinstance(each, Shrink) else None for each in decided if _takes(each)}
    preemptors = {_preemptor(each) for each in decided if _takes(each)}
    part = snapshot.part
    if (
        not 0 < len(plan) <= _MOST_VICTIMS
        or len(preemptors) > 1
        or part.leaving
        or part.shrinking
        or part.opportunistic
    ):
        return
    if any(isinstance(each, Admit) or _is_by_share(each) for each in decided):
        return
    preemptor = next((slice for slice in part.waiting if slice.uid in preemptors), None)
    if preemptor is None:
        return
    smaller = [*_smaller(snapshot, plan)]
    found = [
        [each for each in smaller if _gets(way, preemptor, each) == gets]
        for way in _ways(snapshot, preemptor)
        if (gets := _gets(way, preemptor, plan)) is not None
    ]
    if found and all(found):
        raise Violation(f"spared: {preemptor.name} takes {dict(plan)}, and {dict(found[0][0])} would have done")


def _takes(decision: Decision) -> bool:
    return isinstance(decision, Shrink) or (isinstance(decision, Evict) and bool(decision.preemption))


def _is_by_share(decision: Decision) -> bool:
    by_share = PreemptionReason.IN_COHORT_FAIR_SHARING
    return isinstance(decision, Evict | Shrink) and decision.preemption == by_share


def _preemptor(decision: Decision) -> str:
    """The UID of the slice that gets the quota."""
    if isinstance(decision, Shrink):
        return decision.beneficiary.uid
    return preemptor_uid(decision.message) if isinstance(decision, Evict) else ""


def _ways(snapshot: Snapshot, preemptor: Slice) -> list[Snapshot]:
    """The world as it is, and with a queue that does not borrow; both with room for everything on every cluster."""
    world = msgspec.structs.replace(with_room(snapshot), growth_limit=None, preemption_cycles_since=None)
    queue = snapshot.cluster_queues[_queue_of(snapshot, preemptor)]
    queues = {**snapshot.cluster_queues, queue.name: _without_borrowing(queue)}
    return [world, msgspec.structs.replace(world, cluster_queues=queues)]


def _without_borrowing(queue: ClusterQueue) -> ClusterQueue:
    groups = tuple(
        msgspec.structs.replace(
            group,
            flavors=tuple(
                msgspec.structs.replace(
                    flavor,
                    limits={
                        resource: msgspec.structs.replace(limits, borrowing=0)
                        for resource, limits in flavor.limits.items()
                    },
                )
                for flavor in group.flavors
            ),
        )
        for group in queue.resource_groups
    )
    return msgspec.structs.replace(queue, resource_groups=groups)


def _smaller(snapshot: Snapshot, plan: Plan) -> Iterator[Plan]:
    """The plans that leave one victim one replica more, or its least size where it is evicted."""
    for key, to in plan.items():
        [slice] = [slice for slice in _holders(snapshot, plan) if slice.key == key]
        for kept in _next_sizes(slice, to):
            yield {**plan, key: kept}


def _next_sizes(slice: Slice, to: Counts | None) -> Iterator[Counts]:
    held = slice.held_counts
    if to is None:
        floors = {name: floor_of(slice, name) for name in held}
        yield {name: held[name] if floor is None else min(held[name], floor) for name, floor in floors.items()}
        return
    for name, count in to.items():
        if count < held[name]:
            yield to | {name: min(held[name], count + slice.replica_sizes.get(name, 1))}


def floor_of(slice: Slice, pod_set: str) -> int | None:
    """How many pods of a pod set are always left; None where it loses none."""
    least, step = slice.elasticity.least.get(pod_set), slice.replica_sizes.get(pod_set, 1)
    if least is None or slice.elasticity.gang is None:
        return None
    return -(-max(least, slice.elasticity.gang.get(pod_set, 0)) // step) * step


def _gets(world: Snapshot, preemptor: Slice, plan: Plan) -> Admission | None:
    """What the preemptor is admitted with, alone, when everything of a plan has happened."""
    holdings = world.part.holdings.copy()
    for slice in _holders(world, plan):
        to = plan[slice.key]
        holdings.settle(slice.chain_id, [slice.at_most(to)] if to is not None else [])
    part = Part(waiting=(preemptor,), holdings=holdings, leaving=(), to_stop=(), preempted=())
    return _admissions(msgspec.structs.replace(world, part=part)).get(preemptor.key)


def _holders(snapshot: Snapshot, plan: Plan) -> list[Slice]:
    holdings = snapshot.part.holdings
    return [slice for queue in snapshot.cluster_queues for slice in holdings.holders_in(queue) if slice.key in plan]


def _admissions(snapshot: Snapshot) -> Mapping[SliceKey, Admission]:
    return {each.key: each.admission for each in _decide(snapshot) if isinstance(each, Admit)}


def _queue_of(snapshot: Snapshot, slice: Slice) -> str:
    local = snapshot.local_queues.get(slice.local_queue)
    return local.cluster_queue if local is not None else ""
