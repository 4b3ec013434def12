"""Decides which pending slices get quota and a cluster now, why the others wait, and who loses quota or pods.

A `cycle` is one pass over all pending slices. Each admission is charged before the next slice is assessed, so that it
never admits more than there is, whichever decisions are written. A replacement is charged the difference.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import msgspec

from slicebus.slices.admission.awaited import Losers, awaited
from slicebus.slices.admission.cycle_order import Pending, by_distance, by_share, nominated_by
from slicebus.slices.admission.decisions import Admit, Decision, Evict, Shrink, Wait, deed_of, deeds_of, wait_for
from slicebus.slices.admission.growth_limit import Growths
from slicebus.slices.admission.idle_quota import Grow, IdleQuota, may_grow
from slicebus.slices.admission.lines import Behind
from slicebus.slices.admission.nominating import Nominator, after_evictions
from slicebus.slices.admission.notices import Notices
from slicebus.slices.admission.opportunistic import Opportunistic, with_opportunistic
from slicebus.slices.admission.preemption import Claim, Preemptor
from slicebus.slices.admission.preemption_conflicts import PreemptionConflicts
from slicebus.slices.admission.preemption_cycles import PreemptionCycles
from slicebus.slices.admission.queue_order import claim_of, in_order, preemptors_first, rank
from slicebus.slices.admission.reductions import Victim, note_lost
from slicebus.slices.admission.reservations import Reservations
from slicebus.slices.admission.sharing import FairSharing, Head
from slicebus.slices.admission.snapshot import Snapshot, in_turn, leavers, stopped, why_deactivated
from slicebus.slices.admission.spared import enough_of
from slicebus.slices.admission.trials import without
from slicebus.slices.admission.usage import QuotaUse
from slicebus.slices.admission.victims import Search
from slicebus.slices.admission.waiting_queue import Aside, Rest, WaitingQueue, in_lines, told_behind
from slicebus.slices.api.kueue import INADMISSIBLE, WAITING_FOR_PREEMPTED
from slicebus.slices.placement.flavors import Misfit, Mode, Nomination, Room, nominate
from slicebus.slices.placement.fleet import Fleet
from slicebus.slices.placement.placement import Placed, Placer, usage_of
from slicebus.slices.quota.quota import ClusterQueue, usable_queue
from slicebus.slices.workload.workload import Admission, Slice

__all__ = ["Admit", "Decision", "Evict", "Grow", "Shrink", "Wait", "cycle", "in_order"]


class _Cycle:
    """One pass over all pending slices."""

    def __init__(self, snapshot: Snapshot, evicted: Iterable[Slice]) -> None:
        self.snapshot = snapshot
        part, queues, unasked = snapshot.part, snapshot.cluster_queues, with_opportunistic(snapshot)
        self.use = QuotaUse(
            queues,
            snapshot.cohorts,
            part.holdings,
            evicted,
            part.shrinking,
            unasked,
            pods_before_jobs=snapshot.pods_before_jobs,
            unevictable=snapshot.unevictable,
            unshrinkable=snapshot.unshrinkable,
        )
        self.search = Search(self.use, snapshot.fair_sharing.strategies)
        self.reservations = Reservations(self.use)
        self.preemption_cycles = PreemptionCycles(snapshot.part.preempted, snapshot.preemption_cycles_since)
        self.growths = Growths(snapshot.part, snapshot.cluster_queues, snapshot.growth_limit)
        self.preemption_conflicts = PreemptionConflicts(self.use, self.search, self._assess, self._queue_of)
        self.blocked: set[str] = set()
        self._has_changed = self._had_victims = False
        """Of the slice that was decided last: whether it changed anything, and whether it found victims."""
        fleet = Fleet(snapshot.clusters, snapshot.load, snapshot.granted)
        self.placer = Placer(fleet, snapshot.strategy, snapshot.namespaces)
        self.placer.evict(leaving := self.use.evicted_holders())
        self.placer.shrink(self.use.reduced_holders())
        self.opportunistic = Opportunistic(self.use, self.placer)
        self.nominator = Nominator(snapshot.flavors, self.use, self.search, self.opportunistic, self._claim_of)
        self.losers = Losers(leaving, self.use.shrinking_holders())
        losing, cap_s = [*leaving, *self.use.shrinking_holders()], snapshot.notice_cap_s
        self.notices = Notices(losing, queues, cap_s=cap_s, told_s=snapshot.told_s)

    def decide(self, pending: Iterable[Slice], behind: Iterable[Behind]) -> Iterator[Decision]:
        """Decide every pending slice once, last the refused ones, and what nobody asked for; then who else may grow.

        Those `behind` are decided by the next ones of their lines.
        """
        by_queue: dict[str, list[Slice]] = {}
        refused, unasked = list[Slice](), list[Slice]()
        for slice in pending:
            if slice.grows_unasked:
                unasked.append(slice)
            elif slice.key in self.snapshot.refused:
                refused.append(slice)
            elif isinstance(ready := self._made_ready(slice), Wait):
                yield ready
            else:
                by_queue.setdefault(self._usable_queue_of(slice).name, []).append(ready)
        rests: dict[str, list[Rest]] = {}
        for those in behind:
            rest = Rest(those, lambda slice: self._as_charged(slice, self._usable_queue_of(slice)))
            if isinstance(ready := self._made_ready(first := those.line.members[0]), Wait):
                rest.aside = Aside(ready)
                yield from rest.told()
            else:
                rests.setdefault(self._usable_queue_of(first).name, []).append(rest)
        waiting = {name: self._waiting(name, slices, rests.get(name, ())) for name, slices in by_queue.items()}
        for slice, assessment in self._ranked(waiting):
            queue, before = self._usable_queue_of(slice), self.use.changes
            decisions = self._decisions_of(slice, queue, assessment)
            self._has_changed = self.use.changes != before
            is_blocked = queue.strict_fifo and not isinstance(decisions[-1], Admit)
            aside = self._aside(slice, queue, assessment, decisions[-1])
            if is_blocked and queue.name not in self.blocked:
                self.blocked.add(queue.name)
                aside = None  # The others wait behind it.
            if not waiting[queue.name].has_taken_from_behind:
                yield from decisions
            elif aside is not None:
                waiting[queue.name].set_aside(aside)
            else:
                yield from map(told_behind, decisions)
        for queue_waiting in waiting.values():
            yield from queue_waiting.told()
        yield from map(self._left_over, refused)
        with self.opportunistic.counted():
            for slice in unasked:
                yield from self._grow(slice)
            yield from IdleQuota(self.snapshot, self.use, self.placer).grown()

    def _made_ready(self, slice: Slice) -> Slice | Wait:
        """The slice as it is charged; or that it waits, as nothing that comes free would admit it."""
        queue = self._queue_of(slice)
        if isinstance(queue, str):
            return Wait(key=slice.key, reason=INADMISSIBLE, message=queue)
        spent = self._spent(charged := self._as_charged(slice, queue), queue)
        return wait_for(slice, spent) if spent is not None else charged

    def _waiting(self, name: str, slices: Iterable[Slice], rests: Sequence[Rest]) -> WaitingQueue:
        """The slices of a queue, which come by rank, in its order."""
        queue, ordered = self.snapshot.cluster_queues[name], in_turn(self.snapshot, name, slices)
        if not queue.strict_fifo:
            ordered = preemptors_first(ordered, self._claim_of)
        return WaitingQueue(name, ordered, self._claim_of, rests)

    def _aside(
        self, slice: Slice, queue: ClusterQueue, assessment: Nomination | Misfit, decision: Decision
    ) -> Aside | None:
        """What is decided about everybody who is like this slice while nothing changes; None where that may differ."""
        if self._has_changed or not isinstance(decision, Wait):
            return None
        if isinstance(assessment, Misfit):
            # It may have had a flavor for one part by its age, before there was none for another part.
            has_parts = len(slice.pod_sets) > 1 or len(queue.resource_groups) > 1
            return None if has_parts and queue.preempts_by_age_and_flavor else Aside(decision)
        may_find_others = queue.preempts_by_age_and_flavor or not self.preemption_conflicts.knows_enough_of(queue)
        if assessment.mode is not Mode.FIT and may_find_others:
            return None
        if (nominated := nominated_by(assessment)) is None:
            return Aside(decision)
        # With fair sharing it holds up others. Where it had victims, another one may have others.
        may_differ = assessment.mode is not Mode.FIT and self._had_victims
        has_own_turn = may_differ or self.snapshot.fair_sharing is not FairSharing.OFF
        return None if has_own_turn else Aside(decision, nominated.distance, on_cluster=True)

    def _left_over(self, slice: Slice) -> Decision:
        """Admit a slice with what all others have left, without taking anything from anybody."""
        if isinstance(ready := self._made_ready(slice), Wait):
            return ready
        queue = self._usable_queue_of(slice)
        found: Nomination | Misfit | Placed = self._assess(ready)
        if isinstance(found, Nomination):
            found = self._place(ready, queue, found.admission) if found.mode is Mode.FIT else found.misfit
        return self._take(ready, queue, found) if isinstance(found, Placed) else wait_for(slice, found)

    def _grow(self, slice: Slice) -> Iterator[Decision]:
        """Admit a slice for more than somebody asked for where that has room now, or let its job ask for no more."""
        usable, holder = self._queue_of(slice), self.use.holder(slice.chain_id)
        is_next = holder is not None and holder.key == slice.replaces
        if holder is None or not is_next or self.use.is_evicted(holder) or self.use.is_shrinking(holder):
            return
        queue = usable if not isinstance(usable, str) and may_grow(slice, holder, usable) else None
        if queue is not None and self._spent(slice := self._as_charged(slice, queue), queue) is None:
            with self.use.without(slice, queue.name):
                room = msgspec.structs.replace(self.nominator.room(slice, queue), victims=None)
                nomination = nominate(slice, room, replaced=holder)
            if isinstance(nomination, Nomination) and nomination.mode is Mode.FIT:
                placed = self._place(slice, queue, nomination.admission)
                if isinstance(placed, Placed):
                    yield self._take(slice, queue, placed)
                    return
        asked = holder.reclaimed.asked if holder.reclaimed is not None else {}
        yield Grow(key=holder.key, to=holder.held_counts, asked=asked)

    def _as_charged(self, slice: Slice, queue: ClusterQueue) -> Slice:
        """The slice with what its pods will request, as far as clusters have told what they add."""
        replaced = self.use.holder(slice.chain_id)
        return self.placer.as_charged(slice, queue, cluster=replaced.cluster if replaced is not None else None)

    def _ranked(self, pending: Pending) -> Iterator[tuple[Slice, Nomination | Misfit]]:
        trees: dict[int, list[str]] = {}
        for name in pending:
            trees.setdefault(id(self.use.tree_of(name)), []).append(name)
        if self.snapshot.fair_sharing is FairSharing.OFF:
            return by_distance(pending, trees.values(), self._assess, lambda: self._has_changed)
        return by_share(pending, trees.values(), self._assess, lambda: self._has_changed, self._head)

    def _head(self, slice: Slice, nomination: Nomination) -> Head:
        queue = nomination.admission.cluster_queue
        own, needs = self.use.own(queue, slice), usage_of(slice, nomination.admission)
        return Head(
            node=self.use.projected.queues[queue],
            needs={key: need - own.get(key, 0) for key, need in needs.items()},
            claim=self._claim_of(slice),
            rank=rank(slice),
        )

    def _claim_of(self, slice: Slice) -> Claim:
        return claim_of(slice, self.losers.preemptors)

    def _usable_queue_of(self, slice: Slice) -> ClusterQueue:
        return self.snapshot.cluster_queues[self.snapshot.local_queues[slice.local_queue].cluster_queue]

    def _queue_of(self, slice: Slice) -> ClusterQueue | str:
        """The queue of a slice, or why it cannot be used."""
        snapshot = self.snapshot
        queue = usable_queue(slice, snapshot.cluster_queues, snapshot.local_queues, snapshot.namespaces)
        problem = self.use.current.problem(queue.name) if isinstance(queue, ClusterQueue) else None
        return problem[1] if problem is not None else queue

    def _spent(self, slice: Slice, queue: ClusterQueue, admission: Admission | None = None) -> Misfit | None:
        """Why the budgets of a slice, as it is charged, do not let it have more."""
        return self.snapshot.spent_budgets.refuse(slice, queue.name, self.use.own(queue.name, slice), admission)

    def _assess(self, slice: Slice) -> Nomination | Misfit:
        """What a slice could be assigned now, or why it need not be assessed."""
        queue = self._usable_queue_of(slice)
        if queue.name in self.blocked:
            message = f"waits behind the head of the StrictFIFO ClusterQueue {queue.name}"
            return Misfit(message, "the workloads before it")
        replaced = self.use.holder(slice.chain_id)
        if replaced is not None and replaced.key != slice.replaces:
            return Misfit("the slice that it replaces is not the one that holds the job's quota")
        if replaced is not None and self.use.is_evicted(replaced):
            return Misfit("the job is evicted, and comes back at its spec's size")
        if replaced is not None and self.use.is_shrinking(replaced):
            return Misfit("the job loses pods to others, and grows again when those are gone", "the end of these pods")
        tree, has_quota = self.use.tree_of(queue.name), replaced is not None
        if misfit := self.preemption_cycles.waits_behind(slice, tree, has_quota=has_quota):
            return misfit
        with self.use.without(slice, queue.name):
            return self.nominator.nominate(slice, self.nominator.room(slice, queue), replaced)

    def _decisions_of(self, slice: Slice, queue: ClusterQueue, assessment: Nomination | Misfit) -> list[Decision]:
        """The decisions that admit the next slice or let it wait. Its own comes last, after the evictions for it."""
        if isinstance(assessment, Misfit):
            return [wait_for(slice, assessment)]
        match assessment.mode:
            case Mode.FIT:
                return self._admit(slice, queue, assessment.admission)
            case Mode.AFTER_EVICTION:
                return self._await_room(slice, queue, assessment)
            case Mode.NO_CANDIDATES:
                self.preemption_conflicts.remember(slice, queue)
                return [wait_for(slice, assessment.misfit)]
            case _:
                return self._preempt(slice, queue, assessment)

    def _preempt(self, slice: Slice, queue: ClusterQueue, nomination: Nomination) -> list[Decision]:
        """Evict the victims of a slice or let them shrink, and let the slice wait."""
        needs, misfit = usage_of(slice, nomination.admission), nomination.misfit
        replaced = self.use.holder(slice.chain_id)
        with self.use.without(slice, queue.name):
            room = self.nominator.room(slice, queue)
            preemptor = Preemptor(
                slice=slice, queue=queue, node=room.projected or room.node, needs=needs, short=nomination.short
            )
            admission_without = partial(self._admission_without, slice, room, replaced)
            victims, admission = list[Victim](), None
            for number, victims in enumerate(self.search.plans(preemptor)):
                if (admission := admission_without(victims)) is not None:
                    if number or usage_of(slice, admission) != needs:
                        victims = enough_of(victims, lambda fewer: admission_without(fewer) == admission)
                    break
        self._had_victims = bool(victims)
        if cycle_message := self.preemption_cycles.describe_cycle(slice, victims):
            admission, misfit = None, msgspec.structs.replace(misfit, message=f"{misfit.message}. {cycle_message}")
        if admission is not None and (limited := self.growths.refuse(replaced, victims)):
            admission, misfit = None, limited
        if admission is None or self.preemption_conflicts.would_preempt(preemptor, usage_of(slice, admission), victims):
            with self.use.without(slice, queue.name):
                spared = self.nominator.without_victims(slice, room, replaced)
            self.preemption_conflicts.remember(slice, queue)
            return self._admit(slice, queue, spared.admission) if spared else [wait_for(slice, misfit)]
        note_lost(self.placer, victims)
        with self.placer.projected(), without(victims):
            place = self._place(slice, queue, admission, later=True)
        if isinstance(place, Misfit):  # It would have quota and no cluster: nobody loses quota for that.
            note_lost(self.placer, victims, times=-1)
            return [wait_for(slice, place)]
        self.use.preempt(victims)
        self.growths.note(replaced, victims)
        self.search.forget()
        decided = deeds_of(preemptor, victims, own=self.use.own(queue.name, slice))
        return [*decided, *self._await_room(slice, queue, nomination, decided)]

    def _admission_without(
        self, slice: Slice, room: Room, replaced: Slice | None, victims: Sequence[Victim]
    ) -> Admission | None:
        """What a slice is assigned without these victims, once the waiting slices have chosen their flavors again."""
        with without(victims):
            if after_evictions(slice, room, replaced) is None:
                return None
            with self.reservations.chosen_again(victims, self._choose):
                return after_evictions(slice, room, replaced)

    def _choose(self, slice: Slice) -> Admission | None:
        """What a waiting slice is assigned after the evictions."""
        return after_evictions(slice, self.nominator.room(slice, self._usable_queue_of(slice)))

    def _await_room(
        self, slice: Slice, queue: ClusterQueue, nomination: Nomination, decided: Sequence[Evict | Shrink] = ()
    ) -> list[Decision]:
        """Let a slice wait for evicted workloads and lost pods, and reserve their quota for it. Pods that nobody asked
        for, and that are in its way, go too."""
        unasked = self._take_opportunistic(slice, queue, nomination.admission)
        lost = (*decided, *unasked)
        evicted = self.losers.evicted_for(slice.uid) | {each.key for each in lost if isinstance(each, Evict)}
        shrunk = (self.losers.shrunk_for(slice.uid) | {each.key for each in lost if isinstance(each, Shrink)}) - evicted
        self.reservations.keep(slice, nomination.admission, queue)
        self.preemption_cycles.note_waiting(slice, self.use.tree_of(queue.name))
        if not (evicted or shrunk):
            pods = ", and the pods that others lose" if self.use.shrinking_holders() else ""
            message = f"{nomination.misfit.message}. Fits when those are gone who are evicted already{pods}"
            # Its own victims may leave before the others: what they left stays reserved for it.
            reason = WAITING_FOR_PREEMPTED if self._claim_of(slice) is Claim.FREED else nomination.misfit.reason
            ends = f"the end of evicted workloads{pods}"
            return [Wait(key=slice.key, reason=reason, message=message, would_admit=ends)]
        (who, ends), until = awaited(evicted, shrunk), self.notices.told(evicted | shrunk, slice.uid)
        message, ends = f"{nomination.misfit.message}. Pending the preemption of {who}{until}", f"{ends}{until}"
        return [*unasked, Wait(key=slice.key, reason=WAITING_FOR_PREEMPTED, message=message, would_admit=ends)]

    def _take_opportunistic(self, slice: Slice, queue: ClusterQueue, admission: Admission) -> list[Evict | Shrink]:
        """Take the pods that nobody asked for and that are in the way of this admission."""
        if self.opportunistic.is_empty:
            return []
        needs, node = usage_of(slice, admission), self.use.projected.queues[queue.name]
        preemptor = Preemptor(slice=slice, queue=queue, node=node, needs=needs, short=frozenset())

        def has_room() -> bool:
            with self.use.without(slice, queue.name):
                has_quota = node.has_room(needs)
            with self.placer.projected():
                return has_quota and isinstance(self._place(slice, queue, admission, later=True), Placed)

        return [deed_of(preemptor, victim) for victim in self.opportunistic.take(has_room)]

    def _admit(self, slice: Slice, queue: ClusterQueue, admission: Admission) -> list[Decision]:
        placed = self._place(slice, queue, admission)
        if isinstance(placed, Misfit):
            with self.placer.projected():
                later = self._place(slice, queue, admission)
            if isinstance(later, Misfit):
                return [wait_for(slice, placed)]
            # Until then nobody else gets its quota: whoever got it would be preempted for it, again and again.
            nomination = Nomination(admission=admission, mode=Mode.AFTER_EVICTION, misfit=placed)
            return self._await_room(slice, queue, nomination)
        return [self._take(slice, queue, placed)]

    def _take(self, slice: Slice, queue: ClusterQueue, placed: Placed) -> Admit:
        replaced, own = self.use.holder(slice.chain_id), self.use.own(queue.name, slice)
        self.use.charge(msgspec.structs.replace(slice, admission=placed.admission, cluster=placed.cluster))
        self.placer.take(placed, self.use.own(queue.name, slice), own=own, replaced=replaced)
        return Admit(key=slice.key, admission=placed.admission, cluster=placed.cluster)

    def _place(
        self, slice: Slice, queue: ClusterQueue, admission: Admission, *, later: bool = False
    ) -> Placed | Misfit:
        """The place where a slice would run, with the quota that is free now or after the evictions."""
        replaced, own = self.use.holder(slice.chain_id), self.use.own(queue.name, slice)
        with self.use.without(slice, queue.name):
            room = self.nominator.room(slice, queue).later if later else self.nominator.room(slice, queue)
            placed = self.placer.find(slice, admission, room, own=own, replaced=replaced)
        spent = self._spent(slice, queue, placed.admission) if isinstance(placed, Placed) else None
        return spent or placed


def cycle(snapshot: Snapshot) -> list[Decision]:
    """Decide about every pending slice, and who is evicted or loses pods.

    BestEffortFIFO lets later slices pass one that waits, StrictFIFO does not. The same snapshot gives the same answer.
    """
    part, to_evict = snapshot.part, stopped(snapshot)
    deactivated, pending = [slice for slice in part.waiting if slice.deactivated], in_order(part.waiting)
    decided: list[Decision] = [
        *(Evict(key=slice.key, reason=reason, message=message) for slice, (reason, message) in to_evict),
        *(Wait(key=slice.key, reason=INADMISSIBLE, message=why_deactivated(slice)) for slice in deactivated),
    ]
    if not pending and snapshot.idle_growth is None:
        return decided
    run = _Cycle(snapshot, leavers(snapshot, to_evict))
    behind, single = in_lines(snapshot, run.losers.preemptors)
    keys, made = {slice.key for slice in single}, run.decide(in_order([*pending, *single]), behind)
    return [*decided, *(told_behind(each) if each.key in keys else each for each in made)]
