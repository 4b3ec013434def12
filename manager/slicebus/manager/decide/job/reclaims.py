"""Takes pods back from a job, and gives them back to it when there is quota again.

The job's size meanwhile is that of `state.reclaims`. Here is what is written: the note, the request that it overrules,
what becomes of both with the next request, and the slice that waits for what was taken.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime

from msgspec.structs import replace

from slicebus.decisions.commands import Command, Emit, Patch, Requeue
from slicebus.kube.resources import WORKLOADS
from slicebus.manager.decide.job import size_bounds, withdrawals
from slicebus.manager.decide.order import dispatch, size_requests
from slicebus.manager.state.annotations import DesiredSize, SizeRequest, TakenBack, annotation
from slicebus.manager.state.reclaims import RING, beside, is_known, taken_back
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Counts, counts_text
from slicebus.slices.admission.cycle import Grow, Shrink
from slicebus.slices.api import api_names
from slicebus.slices.api.fingerprints import content_hash
from slicebus.slices.api.kueue import Condition
from slicebus.slices.jobs import KINDS
from slicebus.slices.workload import reclaimed
from slicebus.slices.workload.chain import Reclaim, plan
from slicebus.slices.workload.elasticity import INVALID_MAX_SIZE, in_whole
from slicebus.slices.workload.reclaimed import Reclaimed
from slicebus.slices.workload.workload import Slice

_LOOK_S = 5.0
"""After so long it is asked again whether anybody waits for the pods, or the quota, of a job whose notice runs."""
_MARGIN_S = 1.0
"""Times in notes are whole seconds."""


def take_back(view: JobView, decision: Shrink, *, now: str) -> Reclaimed:
    """The note that a job loses pods. What it wants to have again is also what it waits for, and what an earlier note
    has taken."""
    notice_s = view.notice_s(view.holder) if view.holder is not None else 0.0
    return reclaimed.take_back(
        view.desired.reclaimed,
        view.desired.counts,
        decision.to,
        held=view.holder.held_counts if view.holder is not None else {},
        beneficiary=decision.beneficiary,
        is_alone=decision.is_alone,
        at=now,
        reason=decision.preemption,
        message=decision.message,
        notice_s=beside(view.desired.reclaimed, notice_s),
    )


def give(view: JobView, holder: Slice, decision: Grow, *, now: str) -> Reclaimed:
    """The note that a job may have more than somebody asked for."""
    asked = {name: decision.asked.get(name, count) for name, count in holder.held_counts.items()}
    message = f"Grows to {counts_text(decision.to)} in quota that nobody waits for; {counts_text(asked)} are asked for"
    return reclaimed.grow(view.desired.reclaimed, holder.held_counts, decision.to, asked=asked, at=now, message=message)


def overruled(view: JobView, note: Reclaimed, *, now: str) -> SizeRequest:
    """The job's size request, overruled by what a note leaves."""
    requested = view.desired.requested or SizeRequest.nothing()
    taken = _taken_by(view, note, requested, at=now)
    return replace(requested, baseline=view.desired.own, taken_back=taken, follows="")


def _taken_by(view: JobView, note: Reclaimed, request: SizeRequest, *, at: str) -> TakenBack:
    """What overrules a request by what a note leaves."""
    assert view.job is not None
    return taken_back(view.job, view.desired, request, note.to, at=at, message=note.message, note=note.id)


def taken_text(held: Counts, to: Counts) -> str:
    """Which pods are taken, for people."""
    lost = {name: count - to[name] for name, count in held.items() if count > to[name]}
    return ", ".join(f"{count} of {held[name]} pods of {name}" for name, count in lost.items())


def heard(view: JobView, request: SizeRequest) -> tuple[SizeRequest, Reclaimed | None]:
    """A worker's new request beside the note, and the note from then on; None where it is forgotten.

    A request that carries the note out leaves it, and so does one for the very size that was set: an agent that ended
    in between could not say more. Any other is somebody's resize on the worker, and wins. While pods are still to go,
    one for no more than what is left needs no note; one for more is what the job wants to have again, and its worker is
    told once more what is left. One that carries out an earlier note, or this one as it was when it takes fewer pods
    since, leaves that: its worker is given these pods back. Where nobody takes any, it is what somebody asks for. One
    for more that comes when they are gone, and before the worker has applied an order with the note, is what the job
    wants to have again, too: that order is on its way, and leaves it no more than the note does.
    """
    note, taken = view.desired.reclaimed, view.desired.taken_back
    if note is None or taken is None:
        return replace(request, follows=""), None
    follows = request.follows == note.id or request.size == taken.counts
    if taken.counts_ended:
        return _heard_with_ended(view, request, note, taken, follows=follows)
    if follows and _is_too_small(request, note, taken):
        return replace(request, follows=note.id, taken_back=replace(taken, request=request.key)), note
    if follows:
        return replace(request, follows=note.id), note
    return _resized(view, request, note, taken, asked=request.size)


def _heard_with_ended(
    view: JobView, request: SizeRequest, note: Reclaimed, taken: TakenBack, *, follows: bool
) -> tuple[SizeRequest, Reclaimed | None]:
    """The same for a job whose size counts the pods that have ended: it asks for what is left of that.

    Where more have ended since, or others than was known, nobody has resized it. While pods are still to go its worker
    is told the size that leaves it as many.
    """
    last = view.desired.requested or SizeRequest.nothing()
    news = {name: request.finished.get(name, 0) - last.finished.get(name, 0) for name in note.to}
    note, before = reclaimed.after_ends(note, news), last.size if last.asks_for_size else view.desired.own
    if follows and _is_too_small(request, note, taken):
        return replace(request, follows=note.id, taken_back=_taken_by(view, note, request, at=taken.at)), note
    is_settled, is_same = note.done or note.grows, request.size == before or request.follows
    if follows and (is_settled or not _is_more(request.counts, note)):
        return replace(request, follows=note.id), note
    if is_settled or not (follows or is_same):
        return _resized(view, request, note, taken, asked=request.counts)
    again = replace(note, id=content_hash([note.id, request.size, request.key]))
    other = _taken_by(view, again, request, at=taken.at)
    if follows and all(count >= taken.counts.get(name, 0) for name, count in other.counts.items()):
        return replace(request, follows=note.id), note
    if other.counts == taken.counts:
        return replace(request, follows="", taken_back=replace(taken, request=request.key)), note
    return replace(request, follows="", taken_back=other), again


def _is_too_small(request: SizeRequest, note: Reclaimed, taken: TakenBack) -> bool:
    """Whether a request carries out a word that has been for fewer pods since: its worker is given the others back."""
    size = request.size
    return note.spares and not note.done and any(size.get(name, 0) < count for name, count in taken.counts.items())


def _is_more(asked: Counts, note: Reclaimed) -> bool:
    return asked.keys() == note.to.keys() and any(asked[name] > count for name, count in note.to.items())


def _resized(
    view: JobView, request: SizeRequest, note: Reclaimed, taken: TakenBack, *, asked: Counts
) -> tuple[SizeRequest, Reclaimed | None]:
    """The same for a request that does not carry the note out."""
    is_on_its_way = not (note.done and (note.asked or is_known(note, view.outbox)))
    if note.grows or not (request.follows or (is_on_its_way and _is_more(asked, note))):
        return replace(request, follows=""), None
    overrules = replace(request, follows="", taken_back=replace(taken, request=request.key))
    if request.follows:
        # It carries out an earlier note.
        return overrules, note
    wished = {name: max(count, asked[name]) for name, count in note.to.items()}
    if note.done:
        return overrules, replace(note, before=wished)
    again = replace(note, id=content_hash([note.id, asked, request.key]), before=wished, asked={})
    other = replace(taken, request=request.key, note=again.id)
    if taken.counts_ended:
        other = _taken_by(view, again, request, at=taken.at)
    return replace(request, follows="", taken_back=other), again


def is_released(view: JobView) -> bool:
    """Whether the quota of the pods is free that have ended for good, in a job whose size counts them. How many others
    it has is not known before."""
    if view.job is None or not KINDS[view.ref.kind].end_follows(view.job):
        return True
    desired = with_kept_quota(view)
    planned = plan(view.slices, desired.counts, finished=desired.finished)
    return not any(isinstance(command, Reclaim) for command in planned)


def with_kept_quota(view: JobView) -> DesiredSize:
    """The desired size, with the granted counts kept until the worker has carried out a shrink.

    The granted counts are capped by a request that no order has answered: the worker runs no more than that, and does
    not ask for the same size again. An answered request proves nothing: the spec may have grown and shrunk since.
    """
    desired, held = view.desired, view.holder.granted if view.holder else {}
    if dispatch.is_unanswered(view):
        assert desired.requested is not None
        held = {name: min(count, desired.requested.counts.get(name, count)) for name, count in held.items()}
    if held.keys() != desired.counts.keys():
        return desired
    return replace(desired, counts={name: max(n, held[name]) for name, n in desired.counts.items()})


def left_by(holder: Slice, request: SizeRequest, note: Reclaimed | None) -> Counts | None:
    """The counts of the slice when a request says that the pods are gone which a note takes: they go with the write of
    the request. None where they follow it, as for every other request: no order is to be written with them."""
    left = holder.shrinks_to
    if note is None or note != holder.reclaimed or left is None or request.follows != note.id:
        return None
    is_plain = not (request.finished or holder.reclaimable) and request.counts == left
    return left if is_plain and left.keys() == holder.counts.keys() else None


def annotations(view: JobView) -> dict[str, str]:
    """The annotations of a new slice that waits for what was taken back; empty for any other."""
    note = view.desired.reclaimed
    if note is None or not note.done or view.holder is None:
        return {}
    if note.asked:
        return {api_names.RECLAIMED_ANNOTATION: note.to_annotation()}
    since = view.holder.queued_since or _first_admitted(view)
    return {api_names.RECLAIMED_ANNOTATION: note.to_annotation(), api_names.QUEUED_SINCE_ANNOTATION: since}


def copied(view: JobView) -> list[Command]:
    """The writes that bring slices and note together: the slice that waits has the note while it stands, and no slice
    has one that does not."""
    wanted = annotations(view)
    return [
        command
        for slice in view.unfinished
        if slice.reclaimed is not None or slice.queued_since or wanted
        for command in _brought_together(view, slice, wanted)
    ]


def _brought_together(view: JobView, slice: Slice, wanted: Mapping[str, str]) -> Iterator[Command]:
    workload, holder = view.workload(slice), view.holder
    stands = view.desired.reclaimed
    changes: Mapping[str, str | None] = {}
    if slice.grows_unasked and slice.counts != view.desired.counts:
        # Without its note a cycle would take it for a size that somebody asks for.
        return
    if slice == holder:
        changes = {api_names.RECLAIMED_ANNOTATION: None} if slice.reclaimed is not None and stands is None else {}
    elif wanted and holder is not None and slice.replaces == holder.key and slice.admission is None:
        # It keeps its rank: earlier slices of the job may be forgotten by now.
        changes = {**wanted} | ({api_names.QUEUED_SINCE_ANNOTATION: slice.queued_since} if slice.queued_since else {})
    elif slice.admission is None:
        changes = dict.fromkeys((api_names.RECLAIMED_ANNOTATION, api_names.QUEUED_SINCE_ANNOTATION))
    changes = {name: value for name, value in changes.items() if annotation(workload, name) != value}
    if changes:
        yield Patch(resource=WORKLOADS, target=workload, body={"metadata": {"annotations": changes}})


def reconcile(view: JobView, *, now: str) -> list[Command]:
    """Forget the note of a job that has everything back, when nobody needs it any more to see a ring. Withdraw a
    notice for which nobody waits, one that leaves less than the job's least size by now, and a word that the worker
    refuses: who waits preempts anew. Take fewer pods where some of those are gone for whom they were to go, and pods
    that nobody asked for where the job may not have them any more."""
    if not is_released(view):
        return []
    if not view.is_awaited:
        if view.evicted is not None:
            return withdrawals.withdraw_eviction(view, now=now)
        return withdrawals.withdraw(view, withdrawals.NOBODY_WAITS)
    if withdrawals.is_below_least(view):
        return withdrawals.withdraw(view, withdrawals.BELOW_LEAST)
    given_up_at, moment = withdrawals.given_up_at(view), datetime.fromisoformat(now)
    if given_up_at is not None and given_up_at <= moment:
        return withdrawals.withdraw(view, withdrawals.REFUSED, refused_at=now)
    if spared := withdrawals.spare(view):
        return spared
    if given_back := _give_back(view, now=now):
        return given_back
    if _may_have_again(view):
        return withdrawals.withdraw(view, withdrawals.MAY_HAVE)
    requested, taken = view.desired.requested, view.desired.taken_back
    left_s = _remembered_s(view, moment)
    if requested is None or taken is None or left_s is None or left_s > 0:
        return []
    return size_requests.record(view, replace(requested, taken_back=taken, follows=""))


def requeue_after(view: JobView, *, now: str) -> list[Command]:
    """Reconcile the job when its note is no longer needed, or its worker has refused it for too long."""
    moment = datetime.fromisoformat(now)
    left_s, given_up_at = _remembered_s(view, moment), withdrawals.given_up_at(view)
    if given_up_at is not None:
        left_s = (given_up_at - moment).total_seconds()
    note = view.desired.reclaimed if view.job is not None else None
    if withdrawals.is_told_to_go(view) or (note is not None and note.notice_s and not note.done):
        left_s = _LOOK_S
    return [Requeue(job=view.ref, delay_s=max(0.0, left_s) + _MARGIN_S)] if left_s is not None else []


def _give_back(view: JobView, *, now: str) -> list[Command]:
    """A greatest size that was removed or made smaller, or a queue that lends no idle quota any more, leaves a job what
    somebody asked for. A greatest size that makes no sense takes nothing."""
    note, holder, job = view.desired.reclaimed, view.holder, view.job
    if job is None or note is None or not (note.done and note.asked) or holder is None or view.evicted is not None:
        return []
    if _rests_s(note, datetime.fromisoformat(now)) > 0:
        return []
    if any(problem.reason == INVALID_MAX_SIZE for problem in size_bounds.problems(job)):
        return []
    left = _most(view, holder, note.asked)
    if left == holder.held_counts or left.keys() != view.desired.counts.keys():
        return []
    message = f"It takes no more than {counts_text(left)} now"
    given = reclaimed.give_back(note, left, at=now, message=message, notice_s=view.notice_s(holder))
    text = f"Took back {taken_text(holder.held_counts, left)}: {message}"
    return [
        *size_requests.record(view, overruled(view, given, now=now), note=given),
        Emit(regarding=job, reason=api_names.RECLAIMED, note=text),
    ]


def _may_have_again(view: JobView) -> bool:
    """Whether a job has notice of pods that it was to give back, and may have all of these by now."""
    note, holder = view.desired.reclaimed, view.holder
    if note is None or holder is None or not (note.to_nobody and note.notice_s) or note.done:
        return False
    return view.evicted is None and _most(view, holder, note.asked or note.to) == holder.held_counts


def _most(view: JobView, holder: Slice, asked: Counts) -> Counts:
    """The pods that a job may have of those that it holds, where somebody has asked for so many."""
    most = holder.elasticity.most if view.allowed.grows else {}
    left = {}
    for name, held in holder.held_counts.items():
        step, wanted = holder.replica_sizes.get(name, 1), asked.get(name, held)
        left[name] = min(held, in_whole(max(wanted, most.get(name, wanted)), step))
    return left


def told(view: JobView) -> Iterator[str]:
    """What a job has lost, and for whom, for people; nothing where it has all of that again."""
    note, holder = view.desired.reclaimed, view.holder
    if note is None or holder is None:
        return
    if note.asked:
        unasked = {name: n for name, held in holder.granted.items() if (n := held - note.asked.get(name, held)) > 0}
        if unasked:
            held = counts_text(holder.granted)
            yield f"{api_names.GROWN} {note.at}: {counts_text(unasked)} of {held} are opportunistic"
        if note.done:
            return
    head = f"{api_names.RECLAIMED} {note.at}"
    by = f"{counts_text(note.before)} for {', '.join(note.names)} ({note.reason})"
    after = f" after {note.notice_s:g} s of notice" if note.notice_s else ""
    if not note.done and note.to_nobody:
        yield f"{head}: goes to {counts_text(note.to)}{after}: {note.message}"
    elif not note.done:
        yield f"{head}: goes to {counts_text(note.to)} of {by}{after}; grows again when those are gone"
    elif _lacks(view, holder):
        yield f"{head}: has {counts_text(holder.granted)} of {by}; the rest comes back with quota"


def _lacks(view: JobView, holder: Slice) -> bool:
    return any(count > holder.granted.get(name, 0) for name, count in view.desired.counts.items())


def _remembered_s(view: JobView, moment: datetime) -> float | None:
    """How long the note of a job that has everything back, or whose worker refuses to take pods, is still needed; None
    where it waits for something."""
    note, holder = view.desired.reclaimed if view.job is not None else None, view.holder
    if note is None or holder is None or not note.done:
        return None
    rests_s = _rests_s(note, moment)
    if note.asked or _lacks(view, holder):
        return rests_s if rests_s > 0 else None
    return max(rests_s, (datetime.fromisoformat(note.at) + RING - moment).total_seconds())


def _rests_s(note: Reclaimed, moment: datetime) -> float:
    """For how long a job loses no single pods as its worker has refused that; 0 or less for any other."""
    return (datetime.fromisoformat(note.refused_at) + RING - moment).total_seconds() if note.refused_at else 0.0


def _first_admitted(view: JobView) -> str:
    """When the oldest slice that the job still has got its quota."""
    reserved = (slice.conditions.get(Condition.QUOTA_RESERVED, {}) for slice in view.slices)
    times = [each["lastTransitionTime"] for each in reserved if each.get("status") == "True"]
    return min(times, default=view.slices[0].created)
