"""Works out the size of a job that pods are taken back from, until it has them again.

The note on its Workload says what it had and what it keeps. The note stands while nobody has resized the job since: its
worker's newest size request is the one that was overruled, or it follows the note. Until the worker has no surplus pod
left, the job's size is what it keeps. From then on it wants again what it had, and its worker has what is granted.

A job that is given more than somebody asked for has such a note too: what it wants is then more than it had.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import timedelta

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from slicebus.manager.state.annotations import DesiredSize, SizeRequest, TakenBack, reported_status, with_ended
from slicebus.manager.state.outbox import Outbox
from slicebus.manager.state.settings import ManagerDecisionSettings
from slicebus.proto.messages import Counts, Manifest, counts_text
from slicebus.slices.admission.notices import is_for_budget
from slicebus.slices.admission.preemption import preempted_for, preemptor_job
from slicebus.slices.api.kueue import Condition
from slicebus.slices.jobs import KINDS
from slicebus.slices.quota.quota import ClusterQueue
from slicebus.slices.workload.reclaimed import Beneficiary, Reclaimed
from slicebus.slices.workload.workload import Slice, chain_id

_MOMENT_S = 1.0
RING = timedelta(minutes=10)
"""Workloads that have taken quota from each other in turn within this time do not begin again."""


class ElasticRules(msgspec.Struct, frozen=True, kw_only=True):
    """What a job's queue and the manager allow it of what it says of its size."""

    notice_cap_s: float = 0.0
    """The longest notice that it gets of pods that it loses to others."""
    gives_pods: bool = True
    """Whether it loses some pods before all."""
    grows: bool = True
    """Whether it takes quota that nobody waits for."""
    stopped: bool = False
    """Whether its queue is drained: all its jobs go at once."""


def allowed(queue: ClusterQueue | None, settings: ManagerDecisionSettings, *, beside_kueue: bool) -> ElasticRules:
    """The rules for the jobs of a queue; those of the manager where it is missing. Beside a Kueue nobody gets a
    notice."""
    if beside_kueue:
        return ElasticRules()
    most = ElasticRules(
        notice_cap_s=settings.notice_cap_s,
        gives_pods=settings.pods_before_jobs,
        grows=settings.idle_growth_s > 0,
    )
    if queue is None:
        return most
    return ElasticRules(
        notice_cap_s=queue.longest_notice_s(most.notice_cap_s),
        gives_pods=queue.gives_pods(most.gives_pods),
        grows=most.grows and queue.opportunistic,
        stopped=queue.drained,
    )


def as_reclaimed(desired: DesiredSize, holder: Slice | None, outbox: Outbox | None) -> DesiredSize:
    """The desired size by the note on the slice that holds the job's quota; unchanged where none stands."""
    note = holder.reclaimed if holder is not None else None
    requested, taken = desired.requested, desired.taken_back
    if holder is None or note is None or requested is None or taken is None or not _stands(note, requested, taken):
        return desired
    if not note.before.keys() == note.to.keys() == desired.counts.keys() == desired.own.keys():
        return desired
    if not (note.done or (is_known(note, outbox) if note.grows else _is_done(note, requested, holder))):
        return replace(desired, reclaimed=note)
    left, ended = holder.unfinished_counts, {name: requested.finished.get(name, 0) for name in holder.counts}
    size = _set_size(note, holder, counts=left if taken.counts_ended else with_ended(left, ended))
    what = "In quota that nobody waits for" if note.asked else "Pods are back"
    restored = replace(taken, counts=size, message=f"{what}: {counts_text(size)} of {counts_text(note.before)}")
    if taken.counts_ended:
        restored = replace(restored, counts=with_ended(size, ended), finished=ended)
    return replace(
        desired,
        counts=note.before if taken.counts_ended else _wish(note, requested),
        taken_back=restored,
        reclaimed=replace(note, done=True),
    )


def taken_back(
    job: Manifest,
    desired: DesiredSize,
    request: SizeRequest,
    left: Counts,
    *,
    at: str,
    message: str,
    note: str | msgspec.UnsetType = msgspec.UNSET,
) -> TakenBack:
    """What overrules a request by the size at which so many pods are left. Where pods that have ended for good count in
    that, it is no larger than the job is."""
    kind = KINDS[job["kind"]]
    if not kind.end_follows(job):
        return TakenBack(counts=left, request=request.key, at=at, message=message, note=note)
    size = kind.size_for(job | {"status": reported_status(job)}, left, request.finished)
    size = {name: min(count, max(desired.sent[name], request.size.get(name, 0))) for name, count in size.items()}
    ended = {name: count - left[name] for name, count in size.items()}
    return TakenBack(counts=size, request=request.key, at=at, message=message, note=note, finished=ended)


def kept(desired: DesiredSize, slice: Slice) -> Slice:
    """A slice as it is when the pods are gone that others take from its job.

    An order says so beforehand: its worker lowers its grant by itself before it reports them gone, and needs no other
    order then.
    """
    left = slice.shrinks_to if desired.reclaimed is not None else None
    return slice.at_most(left) if left is not None else slice


def told_s(outbox: Outbox | None) -> float | None:
    """How long before its pods go an evicted job was told, by the order for that; None where there is none yet."""
    record = outbox.record if outbox is not None else None
    return record.notice_s if record is not None and record.suspended and record.notice_s is not UNSET else None


def beside(note: Reclaimed | None, notice_s: float) -> float:
    """A notice that comes while another one may run. Who has none any more is told for a moment: the worker ends no
    notice before an earlier one, and those that were told keep their time."""
    is_told = note is not None and note.notice_s > 0 and not note.done
    return max(notice_s, _MOMENT_S) if is_told else notice_s


def is_awaited(
    slices: Collection[Slice],
    chain_of: Callable[[str], Iterable[Slice]],
    waits: Callable[[str, str], bool],
    *,
    drains: Callable[[Slice], bool] | None = None,
    outbox: Outbox | None = None,
) -> bool:
    """Whether a slice waits for what this chain is told to lose; also where that is lost already, or not told before.

    `chain_of` gives the slices of a job by its chain; `waits` says by their UIDs whether a Workload, or its job, wants
    quota; `drains` says whether the budget of an evicted slice does, which it does where that is None.
    """
    evicted = next((slice for slice in slices if slice.evicting), None)
    if evicted is not None:
        preemptor, told = preempted_for(evicted), told_s(outbox)
        if not (told if told is not None else beside(evicted.reclaimed, evicted.elasticity.notice_s)):
            return True
        if is_for_budget(evicted):
            return drains is None or drains(evicted)
        if not preemptor:
            return True
        return waits(preemptor, preemptor_job(evicted.conditions[Condition.PREEMPTED]["message"]))
    note = _told_note(slices)
    return note is None or any(slice.pending for each in note.awaited_by for slice in chain_of(_chain(each)))


def gone(slices: Collection[Slice], chain_of: Callable[[str], Iterable[Slice]]) -> frozenset[str]:
    """The UIDs of those for whom this chain is told to lose pods, and of whose chain no slice wants quota or has any;
    also of those that run, and have given up what they wanted in addition, or get it no more.

    Who has got it otherwise is not gone: others may have counted on what was to be freed for it.
    """
    note = _told_note(slices)
    awaited_by = note.awaited_by if note is not None else ()
    return frozenset(each.uid for each in awaited_by if _is_gone(each, [*chain_of(_chain(each))]))


def _is_gone(beneficiary: Beneficiary, chain: Sequence[Slice]) -> bool:
    """`chain` is sorted, oldest first."""
    if any(slice.pending or slice.evicting for slice in chain):
        return False
    given_up = (at for at, slice in enumerate(chain) if slice.uid == beneficiary.uid and slice.admission is None)
    since = next(given_up, 0)
    return not any(slice.keeps_quota for slice in chain[since:])


def _told_note(slices: Collection[Slice]) -> Reclaimed | None:
    """The note of a chain whose notice may run, and by which pods go for somebody."""
    note = next((slice.reclaimed for slice in slices if slice.keeps_quota and slice.reclaimed is not None), None)
    return note if note is not None and note.notice_s and not (note.done or note.to_nobody) else None


def _chain(beneficiary: Beneficiary) -> str:
    return chain_id(beneficiary.workload.partition("/")[0], beneficiary.job_uid or beneficiary.uid)


def is_known(note: Reclaimed, outbox: Outbox | None) -> bool:
    """Whether the worker has applied an order with this note: it then applies the larger size that comes with the same
    one, unless somebody resizes the job there first."""
    return outbox is not None and outbox.is_reported and outbox.record.taken_back == note.id


def _stands(note: Reclaimed, requested: SizeRequest, taken: TakenBack) -> bool:
    return taken.note == note.id and (taken.request == requested.key or requested.follows == note.id)


def _is_done(note: Reclaimed, requested: SizeRequest, holder: Slice) -> bool:
    """Whether the worker has said that it has no more pods, and their quota is free."""
    is_told = requested.follows == note.id and all(
        count <= note.to.get(name, 0) for name, count in requested.counts.items()
    )
    return is_told and note.left_of(holder.granted) is None


def _wish(note: Reclaimed, requested: SizeRequest) -> Counts:
    """What the job wants to have again. A pod set with pods that have ended for good wants no more than are left."""
    return {
        name: requested.counts.get(name, 0) if requested.finished.get(name) else count
        for name, count in note.before.items()
    }


def _set_size(note: Reclaimed, holder: Slice, *, counts: Counts) -> Counts:
    """The size that the worker's job has by now: what was kept, and of the rest what has quota again. `counts` are the
    slice's, as the size counts them."""
    admitted = holder.admission.counts if holder.admission is not None else {}
    granted = {name: min(count, admitted.get(name, 0)) for name, count in counts.items()}
    return {name: min(count, max(note.to[name], granted.get(name, 0))) for name, count in note.before.items()}
