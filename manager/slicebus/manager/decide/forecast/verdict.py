"""What the next admission cycle would decide about slices that nobody has asked for yet, beside everybody else's."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

from slicebus.slices.admission.cycle import Admit, Decision, Evict, Shrink, Wait, cycle, in_order
from slicebus.slices.admission.preemption import preempted_for, preemptor_uid
from slicebus.slices.admission.snapshot import Snapshot, in_turn
from slicebus.slices.api.kueue import WAITING_FOR_PREEMPTED, Condition
from slicebus.slices.quota.quota import FlavorResource
from slicebus.slices.workload.workload import Counts, Slice, SliceKey


class Prospect(StrEnum):
    """What becomes of a job."""

    ADMITTED = "Admitted"
    """It has quota and a cluster at once."""
    PREEMPTS = "Preempts"
    """It has them when others have lost pods or all of theirs, and needs nobody's help for that."""
    WAITS = "Waits"
    REFUSED = "Refused"
    """It gets no Workload, and never will as it is."""

    @property
    def runs(self) -> bool:
        """Whether nothing has to change for it to run."""
        return self in (Prospect.ADMITTED, Prospect.PREEMPTS)


class PodSetPlace(msgspec.Struct, frozen=True, kw_only=True):
    """The flavors of a pod set."""

    name: str
    count: int
    flavors: dict[str, str]
    """By resource."""


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody would lose."""

    slice: SliceKey
    job: str = ""
    """`Kind/namespace/name`, where that is known."""
    pods: Counts
    """What it has now, by pod set."""
    left: Counts
    """What it keeps; nothing where it is evicted."""
    reason: str
    """The `PreemptionReason`."""


def lost(pods: Mapping[str, int], left: Mapping[str, int]) -> Counts:
    """The pods that go, by pod set, where only these are left."""
    return {name: gone for name, count in pods.items() if (gone := count - left.get(name, 0)) > 0}


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a cycle decides about one slice."""

    outcome: Prospect
    reason: str = ""
    """As the condition of the Workload has it; empty where it is admitted at once."""
    message: str = ""
    would_admit: str = ""
    """What would admit it, in words."""
    cluster_queue: str = ""
    cluster: str = ""
    """Where it would run, as far as that is known."""
    pod_sets: tuple[PodSetPlace, ...] = ()
    losses: tuple[Loss, ...] = ()
    position: int = 0
    """Its place among those that wait in its ClusterQueue, from 1; 0 where it does not wait."""
    of: int = 0
    ahead: tuple[SliceKey, ...] = ()
    """Who waits before it in its ClusterQueue, first come first."""


def verdicts(
    snapshot: Snapshot, slices: Sequence[Slice], *, instead_of: Iterable[Slice] = ()
) -> dict[SliceKey, Verdict]:
    """What the cycle decides about these slices together, by their keys. `instead_of`: slices that wait, and that some
    of them would take the place of."""
    world = with_slices(snapshot, slices, {slice.key for slice in instead_of})
    decided = cycle(world)
    keys = {slice.key for slice in slices}
    preempts = any(each.key in keys and isinstance(each, Wait) and _preempts(each) for each in decided)
    after = cycle(when_all_have_left(world, decided)) if preempts else ()
    placed = {each.key: each for each in after if isinstance(each, Admit)}
    return {slice.key: _verdict(world, slice, decided, placed.get(slice.key)) for slice in slices}


def with_slices(snapshot: Snapshot, slices: Sequence[Slice], replaced: Collection[SliceKey]) -> Snapshot:
    """The snapshot in which these slices wait too, and those that they take the place of do not."""
    part = snapshot.part
    waiting = (*(slice for slice in part.waiting if slice.key not in replaced), *slices)
    return msgspec.structs.replace(snapshot, part=msgspec.structs.replace(part, waiting=waiting))


def _verdict(world: Snapshot, slice: Slice, decided: Sequence[Decision], placed: Admit | None) -> Verdict:
    own = [each for each in decided if each.key == slice.key]
    queue = world.cluster_queue_of(slice)
    match own[-1] if own else None:
        case Admit() as admit:
            return _placed(Verdict(outcome=Prospect.ADMITTED, cluster_queue=queue), admit)
        case Wait() as wait:
            by_rank = [other for other in in_order(world.part.waiting) if world.cluster_queue_of(other) == queue]
            pending = in_turn(world, queue, by_rank)
            ahead = [other.key for other in pending[: pending.index(slice)]] if slice in pending else []
            preempts = _preempts(wait)
            waits = Verdict(
                outcome=Prospect.PREEMPTS if preempts else Prospect.WAITS,
                reason=wait.reason,
                message=wait.message,
                would_admit=wait.would_admit,
                cluster_queue=queue,
                losses=tuple(_losses(world, slice, decided)),
                position=len(ahead) + 1,
                of=len(pending),
                ahead=tuple(ahead),
            )
            return _placed(waits, placed) if preempts and placed is not None else waits
        case _:
            return Verdict(outcome=Prospect.WAITS, message="no cycle decides about it", cluster_queue=queue)


def _preempts(wait: Wait) -> bool:
    return wait.reason == WAITING_FOR_PREEMPTED


def _placed(verdict: Verdict, admit: Admit) -> Verdict:
    pod_sets = tuple(
        PodSetPlace(name=each.name, count=each.count, flavors={**each.flavors}) for each in admit.admission.pod_sets
    )
    return msgspec.structs.replace(verdict, cluster=admit.cluster, pod_sets=pod_sets)


def _losses(world: Snapshot, slice: Slice, decided: Iterable[Decision]) -> Iterable[Loss]:
    """What others lose for a slice: by the last cycles, and by this one."""
    holders = {holder.key: holder for holder in _holders(world)}
    for holder in world.part.leaving:
        if preempted_for(holder) == slice.uid:
            yield Loss(slice=holder.key, pods=holder.held_counts, left={}, reason=_reason_of(holder))
    for holder in world.part.shrinking:
        note = holder.reclaimed
        if note is not None and slice.uid in {each.uid for each in note.awaited_by}:
            yield Loss(slice=holder.key, pods=holder.held_counts, left=holder.shrinks_to or {}, reason=note.reason)
    for each in decided:
        match each:
            case Evict() if preemptor_uid(each.message) == slice.uid:
                yield Loss(slice=each.key, pods=holders[each.key].held_counts, left={}, reason=each.preemption)
            case Shrink() if each.beneficiary.uid == slice.uid:
                yield Loss(slice=each.key, pods=holders[each.key].held_counts, left=each.to, reason=each.preemption)


def _reason_of(preempted: Slice) -> str:
    """Why it was preempted, as its condition has it."""
    reason: str = preempted.conditions[Condition.PREEMPTED].get("reason", "")
    return reason


def _holders(world: Snapshot) -> Iterable[Slice]:
    for queue in world.cluster_queues:
        yield from world.part.holdings.holders_in(queue)


def when_all_have_left(world: Snapshot, decided: Iterable[Decision]) -> Snapshot:
    """The world as it is when everybody is gone who leaves, or is decided to."""
    left = dict[str, Slice | None]()
    holders = {holder.key: holder for holder in _holders(world)}
    for holder in world.part.shrinking:
        left[holder.chain_id] = _at_most(holder, holder.shrinks_to or holder.held_counts)
    for each in decided:
        match each:
            case Shrink():
                left[holders[each.key].chain_id] = _at_most(holders[each.key], each.to)
            case Evict() if each.key in holders:
                left[holders[each.key].chain_id] = None
    left |= {holder.chain_id: None for holder in world.part.leaving}
    return leaving(world, left)


def _at_most(holder: Slice, to: Mapping[str, int]) -> Slice:
    return msgspec.structs.replace(holder.at_most(to), reclaimed=None)


def leaving(world: Snapshot, left: Mapping[str, Slice | None]) -> Snapshot:
    """The world in which these chains have only this left, None for nothing."""
    part, holdings = world.part, world.part.holdings.copy()
    load, granted = dict(world.load), {cluster: dict(usage) for cluster, usage in world.granted.items()}
    for chain_id, remaining in left.items():
        holder = holdings.holder(chain_id)
        cluster = holder.cluster if holder is not None and holder.cluster else ""
        before = _used(holdings.used_by(chain_id))
        holdings.settle(chain_id, [remaining] if remaining is not None else [])
        after = _used(holdings.used_by(chain_id))
        if remaining is None and cluster in load:
            load[cluster] -= 1
        there = granted.setdefault(cluster, {})
        for key, amount in before.items():
            there[key] = max(0, there.get(key, 0) - amount + after.get(key, 0))

    def staying(slices: Iterable[Slice]) -> tuple[Slice, ...]:
        return tuple(slice for slice in slices if slice.chain_id not in left)

    stays = msgspec.structs.replace(
        part,
        holdings=holdings,
        leaving=(),
        shrinking=(),
        to_stop=staying(part.to_stop),
        opportunistic=staying(part.opportunistic),
    )
    return msgspec.structs.replace(world, part=stays, load=load, granted=granted)


def _used(uses: Mapping[str, Mapping[FlavorResource, int]]) -> dict[FlavorResource, int]:
    total = dict[FlavorResource, int]()
    for usage in uses.values():
        for key, amount in usage.items():
            total[key] = total.get(key, 0) + amount
    return total
