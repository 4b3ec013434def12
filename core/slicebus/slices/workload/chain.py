"""Plans the changes that bring the slices of one job to its wanted size.

A chain is the unfinished slices of one job. It usually has one. While a scale-up is pending it has two: the admitted
slice and its pending replacement. `plan` compares the chain with the wanted counts and returns the changes. Whoever
carries them out and plans again ends with no change left, whatever state a crash has left.

Source of the rules: KEP-77 and Kueue v0.19.2, `pkg/workloadslicing`.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

import msgspec

from slicebus.slices.api.kueue import FinishedReason
from slicebus.slices.workload.workload import Counts, Slice, SliceKey

NOTHING: Counts = {}
REPLACED_BY = "Replaced to accommodate a workload (UID: {uid}, JobUID: {job_uid}) due to workload slice aggregation"
OUT_OF_SYNC = "The workload slice is out of sync with its parent job"


class Scaling(Enum):
    """How wanted counts differ from a slice's counts."""

    NONE = "the counts are equal"
    DOWN = "some pod set shrank and none grew"
    UP = "some pod set grew, whatever the others did"
    STRUCTURAL = "the pod sets have other names, which is not a scaling"


def scaling(current: Counts, wanted: Counts) -> Scaling:
    """How `wanted` differs from `current`."""
    if current.keys() != wanted.keys():
        return Scaling.STRUCTURAL
    if current == wanted:
        return Scaling.NONE
    if any(wanted[name] > count for name, count in current.items()):
        return Scaling.UP
    return Scaling.DOWN


class CreateSlice(msgspec.Struct, frozen=True):
    """A slice is missing: the chain's first, or the replacement of an admitted one."""

    counts: Counts
    replaces: SliceKey | None
    chain: str | None
    """The name of the chain's first slice; None when this is it."""


class SetCounts(msgspec.Struct, frozen=True):
    """A slice changes in place: it shrinks, or it is not admitted yet."""

    slice: Slice
    counts: Counts


class Reclaim(msgspec.Struct, frozen=True):
    """Pods of an admitted slice have ended for good: they use no quota any more, and the slice keeps its counts."""

    slice: Slice
    counts: Counts
    """All that are reclaimable now, by pod set."""


class FinishSlice(msgspec.Struct, frozen=True):
    """A slice has ended."""

    slice: Slice
    reason: FinishedReason
    message: str


class RefuseScaling(msgspec.Struct, frozen=True):
    """The wanted pod sets are not those of the chain: nothing is changed, and the user is told."""

    slice: Slice
    message: str


ChainCommand = CreateSlice | SetCounts | Reclaim | FinishSlice | RefuseScaling


def plan(slices: Sequence[Slice], wanted: Counts, *, finished: Counts = NOTHING) -> list[ChainCommand]:
    """The commands that bring a job's slices to the wanted counts; none where nothing is to change.

    `slices` are all Workloads of the job, in any order. Slices are finished before one is created, so a chain never has
    more than two unfinished slices. `finished` are pods that have ended for good: a shrink by no more than those leaves
    the slice its counts.
    """
    unfinished = [slice for slice in slices if not slice.finished and not slice.deleting]
    if len(unfinished) > 1:
        unfinished = [slice for slice in oldest_first(slices) if slice in unfinished]
    if not unfinished:
        return [CreateSlice(counts=wanted, replaces=None, chain=None)]
    holder, pending = _holder_and_pending(unfinished)
    ended: list[ChainCommand] = [
        _finish(slice, holder) for slice in unfinished if slice is not holder and slice is not pending
    ]
    # An evicted slice stays as it is until its worker has no pod left: its quota is charged for what may still run.
    return ended if holder.evicting else ended + _resize(holder, pending, wanted, finished)


def _holder_and_pending(unfinished: Sequence[Slice]) -> tuple[Slice, Slice | None]:
    """The slice that holds the chain, and its pending replacement.

    The newest admitted slice holds the chain, also while it is evicted; then it has no replacement. Where none is
    admitted the oldest holds it: a worker's objects may still name that one.
    """
    admitted = [slice for slice in unfinished if slice.admitted or slice.evicting]
    if not admitted:
        return unfinished[0], None
    holder = admitted[-1]
    if holder.evicting:
        return holder, None
    replacements = [slice for slice in unfinished if not slice.admitted and slice.replaces == holder.key]
    return holder, replacements[-1] if replacements else None


def _finish(slice: Slice, holder: Slice) -> FinishSlice:
    """How a slice ends that is neither the holder nor its pending replacement."""
    if slice.admitted or holder.replaces == slice.key:
        message = REPLACED_BY.format(uid=holder.uid, job_uid=holder.job_uid)
        return FinishSlice(slice=slice, reason=FinishedReason.SLICE_REPLACED, message=message)
    return FinishSlice(slice=slice, reason=FinishedReason.OUT_OF_SYNC, message=OUT_OF_SYNC)


def _resize(holder: Slice, pending: Slice | None, wanted: Counts, finished: Counts) -> list[ChainCommand]:
    """The commands that bring a chain which is not evicted to the wanted counts."""
    if holder.counts.keys() != wanted.keys():
        return [RefuseScaling(slice=holder, message=structural_message(holder.counts, wanted))]
    if not holder.admitted:
        return [SetCounts(slice=holder, counts=wanted)] if holder.counts != wanted else []
    # Compared with the granted counts: a slice that was admitted in part still wants the rest.
    if scaling(holder.granted, wanted) is not Scaling.UP:
        withdrawn: list[ChainCommand] = [_withdraw(pending)] if pending else []
        return withdrawn + _shrink(holder, wanted, finished)
    if pending is None:
        return [CreateSlice(counts=wanted, replaces=holder.key, chain=holder.chain)]
    return [] if pending.counts == wanted else [SetCounts(slice=pending, counts=wanted)]


def _shrink(holder: Slice, wanted: Counts, finished: Counts) -> list[ChainCommand]:
    """One write that only takes grants away: the reclaimable pods never become fewer, and counts follow them."""
    reclaimable = {
        name: max(holder.reclaimable.get(name, 0), min(finished.get(name, 0), count - wanted[name]))
        for name, count in holder.counts.items()
    }
    if any(count != holder.reclaimable.get(name, 0) for name, count in reclaimable.items()):
        return [Reclaim(slice=holder, counts={name: count for name, count in reclaimable.items() if count})]
    counts = {name: count + reclaimable[name] for name, count in wanted.items()}
    return [SetCounts(slice=holder, counts=counts)] if counts != holder.counts else []


def given_back(holder: Slice, wanted: Counts) -> list[ChainCommand]:
    """The commands that shrink some pod sets at once, although another one grows and waits.

    A Kueue leaves the old slice as it is until the new one is admitted, which may be never.
    """
    granted = holder.granted
    if granted.keys() != wanted.keys() or scaling(granted, wanted) is not Scaling.UP:
        return []
    left = {name: min(count, wanted[name]) for name, count in granted.items()}
    counts = {name: count + holder.reclaimable.get(name, 0) for name, count in left.items()}
    return [SetCounts(slice=holder, counts=counts)] if left != granted else []


def _withdraw(pending: Slice) -> FinishSlice:
    return FinishSlice(slice=pending, reason=FinishedReason.OUT_OF_SYNC, message=OUT_OF_SYNC)


def structural_message(current: Mapping[str, int], wanted: Mapping[str, int]) -> str:
    """Which pod sets a refused resize would add and remove."""
    added, removed = sorted(wanted.keys() - current.keys()), sorted(current.keys() - wanted.keys())
    changes = [f"adds {', '.join(added)}"] * bool(added) + [f"removes {', '.join(removed)}"] * bool(removed)
    return f"A resize may change counts only, this one changes the pod sets: it {' and '.join(changes)}"


def place_of(chain: Sequence[Slice]) -> str | None:
    """The cluster that a chain was admitted to, by its slices, oldest first. Beside a Kueue its newest slice may get it
    last."""
    return next((slice.cluster for slice in reversed(chain) if slice.cluster is not None), None) or None


def oldest_first(slices: Iterable[Slice]) -> list[Slice]:
    """The slices of one job in the order of their creation.

    By creation time, but always after the slice that it replaces: times are whole seconds, and the clocks of a control
    plane's servers differ.
    """
    members = list(slices)
    if len(members) < 2:
        return members
    chain = {slice.key: slice for slice in members}

    def creation(slice: Slice) -> tuple[str, int, str]:
        latest, count, seen, uid = slice.created, 0, {slice.key}, slice.uid
        while slice.replaces in chain and slice.replaces not in seen:
            slice = chain[slice.replaces]
            seen.add(slice.key)
            latest, count = max(latest, slice.created), count + 1
        return latest, count, uid

    return sorted(chain.values(), key=creation)
