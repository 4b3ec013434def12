"""Plays a recorded past again: events come when they did, the manager's cycle decides, and runs take what they took.

Between two events nothing is decided, as nothing has changed: a manager decides when an input changes. So a day takes
as many cycles as it has events that somebody waits for, and no time passes in between.
"""

import heapq
from collections.abc import Callable, Iterable, Sequence
from math import inf

import msgspec

from slicebus.kube.resources import CLUSTERQUEUES, COHORTS, Resource
from slicebus.kube.times import unix_time_text
from slicebus.manager.decide.whatif import hypotheses, transitions
from slicebus.manager.decide.whatif.chronicle import Chronicle
from slicebus.manager.decide.whatif.hypotheses import Hypothetical, altered
from slicebus.manager.decide.whatif.played_job import PlayedJob, RunLengths
from slicebus.manager.decide.whatif.played_world import PlayedWorld
from slicebus.manager.decide.whatif.recorded_jobs import CountsAt, RecordedJob
from slicebus.manager.decide.whatif.recorded_past import PolicyChange, RecordedPast
from slicebus.proto.messages import Counts, Manifest
from slicebus.slices.admission.cycle import Admit, Decision, Evict, Shrink, Wait
from slicebus.slices.admission.growth_limit import is_limited
from slicebus.slices.api.kueue import Condition, EvictionReason
from slicebus.slices.workload.chain import CreateSlice, FinishSlice, SetCounts, plan
from slicebus.slices.workload.workload import Slice

_ROUNDS = 20
"""Of cycles at one moment: each that admits or takes anything is followed by another."""
_LOOKS = 10
"""As the manager decides a growth again that waits for time to pass: so often in its window."""
_ROUNDING_S = 1e-3
"""What sums of Unix times may be off."""
_REACTION_S = 0.1
"""How much later a job's own reconcile comes than the cycle about the same change."""
_PREEMPTED = EvictionReason.PREEMPTED


class Play:
    """One past, played once."""

    def __init__(
        self, past: RecordedPast, changes: Sequence[Hypothetical] = (), *, constant_work: bool = False
    ) -> None:
        """`constant_work`: a run is over when it has had the pod-seconds that it had; else after the time it took."""
        self.chronicle = Chronicle(past.since)
        self.lengths = RunLengths(past, constant_work=constant_work)
        self._past = past
        self._changes = changes
        self._world = PlayedWorld(past.settings)
        self._waiting_slices = self._world.waiting
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._at = past.since
        self._looks = False
        self._jobs: dict[str, PlayedJob] = {}

    def run(self) -> Chronicle:
        """Play to the end of the span."""
        policies = [(each, self._altered(each, manifest)) for each, manifest in self._past.policies]
        known = [*policies, *((each.resource, each.manifest) for each in self._past.changes)]
        for resource, manifest in (*policies, *hypotheses.added(known, self._changes)):
            self._world.take(resource, manifest)
        self.chronicle.set_quota(self._world.quota(), self._at)
        for change in self._past.changes:
            self._after(change.at, lambda change=change: self._change(change))  # type: ignore[misc]
        for job in self._past.jobs:
            if job.arrived <= self._past.since:
                self._begin(job)
            else:
                self._after(job.arrived, lambda job=job: self._arrive(job))  # type: ignore[misc]
        self._decide()
        while self._events and self._events[0][0] <= self._past.until:
            self._at = self._events[0][0]
            while self._events and self._events[0][0] == self._at:
                heapq.heappop(self._events)[2]()
            self._decide()
        return self.chronicle

    # What comes from outside.

    def _begin(self, recorded: RecordedJob) -> None:
        """Take a job that is there when the span begins."""
        slice, holds = self._ranked(recorded, recorded.slice), recorded.slice.admission is not None
        job = self._jobs[recorded.chain] = PlayedJob(recorded)
        self.chronicle.arrive(recorded.chain, recorded.job, self._world.queue_of(slice), recorded.arrived, holds=holds)
        self._schedule(job)
        if not holds:
            self._waiting_slices.add(slice, alone=slice.evicted or transitions.is_preempted(slice))
            return
        self._world.put(slice)
        self._start(job, began=recorded.runs[0].began if recorded.runs else self._at)
        if slice.evicted:
            job.stop()
            self._after(self._at + self._gone_s(slice), self._if_running(job, lambda: self._give_back(job)))
        self._account(job)

    def _arrive(self, recorded: RecordedJob) -> None:
        slice = transitions.arrived(self._ranked(recorded, recorded.slice))
        job = self._jobs[recorded.chain] = PlayedJob(recorded)
        self.chronicle.arrive(recorded.chain, recorded.job, self._world.queue_of(slice), self._at)
        self._schedule(job)
        self._waiting_slices.add(slice)

    def _schedule(self, job: PlayedJob) -> None:
        """Have everything happen to a job that does not depend on its runs."""
        for size in job.sizes_apart:
            self._after(size.at, lambda size=size: self._resize(job, size))  # type: ignore[misc]
        for at, active in job.recorded.activity:
            self._after(at, lambda active=active: self._edit(job, active=active))  # type: ignore[misc]
        for at, priority, queue in job.recorded.ranks:
            self._after(at, lambda p=priority, q=queue: self._edit(job, priority=p, queue=q))  # type: ignore[misc]
        if job.recorded.gone is not None and job.recorded.run_s is None:
            self._after(job.recorded.gone, lambda: self._end(job))

    def _edit(self, job: PlayedJob, **fields: object) -> None:
        """Have a user change the Workloads of a job."""
        for slice in self._world.ledger.chain(job.chain):
            if slice.admission is not None:
                self._world.put(msgspec.structs.replace(slice, **fields))
        if (waiting := self._waiting(job)) is not None:
            self._waiting_slices.remove(waiting)
            edited = msgspec.structs.replace(waiting, **fields)
            self._waiting_slices.add(edited, alone=edited.replaces is not None or transitions.is_preempted(edited))

    def _change(self, change: PolicyChange) -> None:
        manifest = change.manifest if change.gone else self._altered(change.resource, change.manifest)
        self._world.take(change.resource, manifest, gone=change.gone)
        if change.resource in (CLUSTERQUEUES, COHORTS):
            self.chronicle.set_quota(self._world.quota(), self._at)
        for evict in self._world.due_moves():
            self._evict(evict)

    def _altered(self, resource: Resource, manifest: Manifest) -> Manifest:
        return altered(resource, manifest, self._changes)

    def _ranked(self, recorded: RecordedJob, slice: Slice) -> Slice:
        value = hypotheses.priorities(self._changes).get(recorded.priority_class)
        return slice if value is None else msgspec.structs.replace(slice, priority=value)

    # Runs.

    def _start(self, job: PlayedJob, *, began: float) -> None:
        """Have a run begin, and everything happen that depends on it."""
        job.start(self._at, self.lengths.of(job, began=began, now=self._at))
        for offset_s, size in job.sizes_of_run():
            self._in_run(job, began + offset_s, lambda size=size: self._resize(job, size))  # type: ignore[misc]
        for offset_s, ended in job.reclaimable_of_run():
            self._in_run(job, began + offset_s, lambda ended=ended: self._reclaim(job, ended.counts))  # type: ignore[misc]
        if (failure_s := job.failure_s()) is not None:
            self._in_run(job, began + failure_s, lambda: self._fail(job))
        self._plan_end(job)

    def _plan_end(self, job: PlayedJob) -> None:
        """Have a run end when it has had what it needs, with the pods that it has now."""
        holder = self._world.holder(job.chain)
        pods = sum(holder.held_counts.values()) if holder is not None else 0
        job.go_on(self._at, pods if self.lengths.constant_work else 1)
        if (ends := job.ends_at) != inf:
            plan_number = job.plans
            self._in_run(job, ends, lambda: self._end(job) if job.plans == plan_number else None)

    def _in_run(self, job: PlayedJob, at: float, then: Callable[[], None]) -> None:
        """Have something happen then if the present run goes on. What has been before the span began is known."""
        if at >= self._at - _ROUNDING_S:
            self._after(at, self._if_running(job, then))

    def _if_running(self, job: PlayedJob, then: Callable[[], None]) -> Callable[[], None]:
        """What happens only while the present run goes on."""
        run = job.run

        def happen() -> None:
            if job.run == run and job.is_there:
                then()

        return happen

    def _end(self, job: PlayedJob) -> None:
        """Have a job be over."""
        if not job.is_there:
            return
        job.is_there = False
        self._stop_waiting(job)
        for slice in self._world.ledger.chain(job.chain):
            self._world.drop(slice)
        self.chronicle.leave(job.chain, self._at)

    def _fail(self, job: PlayedJob) -> None:
        holder = self._world.holder(job.chain)
        if holder is not None and holder.keeps_quota:
            self._evict(Evict(key=holder.key, reason=EvictionReason.PODS_READY_TIMEOUT, message="as it did"))

    def _reclaim(self, job: PlayedJob, counts: Counts) -> None:
        """Have some pods of a job end for good."""
        holder = self._world.holder(job.chain)
        if holder is not None and holder.keeps_quota:
            self._world.put(msgspec.structs.replace(holder, reclaimable=counts))
            self._account(job)

    def _resize(self, job: PlayedJob, size: CountsAt) -> None:
        """Have a job want another size."""
        counts = size.counts
        if size.is_own:
            job.baseline = counts
        if not job.is_there or counts.keys() != job.wanted.keys():
            return
        job.wanted = counts
        holder = self._world.holder(job.chain)
        if holder is None:
            if (waiting := self._waiting(job)) is not None:
                self._waiting_slices.remove(waiting)
                self._waiting_slices.add(transitions.resized(waiting, counts), alone=transitions.is_preempted(waiting))
        elif holder.keeps_quota and holder.shrinks_to is None:
            self._follow(job, holder, counts)

    def _follow(self, job: PlayedJob, holder: Slice, counts: Counts, *, queued_since: str = "") -> None:
        """Bring the slices of a job to a size, as the manager plans it."""
        for command in plan(self._world.ledger.chain(job.chain), counts):
            match command:
                case CreateSlice():
                    job.slices += 1
                    made = transitions.replacement(
                        holder, counts, number=job.slices, now=self._now, queued_since=queued_since
                    )
                    self._waiting_slices.add(made, alone=True)
                case SetCounts(slice=slice) if slice.admission is not None:
                    self._world.put(transitions.resized(slice, command.counts))
                case SetCounts(slice=slice):
                    self._waiting_slices.remove(slice)
                    self._waiting_slices.add(transitions.resized(slice, command.counts), alone=True)
                case FinishSlice(slice=slice):
                    self._waiting_slices.remove(slice)
                case _:
                    pass
        self._plan_end(job)
        self._account(job)

    # What is decided.

    def _decide(self) -> None:
        """Decide until nothing changes at this moment."""
        for _ in range(_ROUNDS):
            if not self._carry_out(self._world.decide(self._at)):
                return

    def _carry_out(self, decided: Iterable[Decision]) -> bool:
        changes = False
        for decision in decided:
            match decision:
                case Admit():
                    changes |= self._admit(decision)
                case Evict():
                    changes |= self._evict(decision)
                case Shrink():
                    changes |= self._shrink(decision)
                case Wait():
                    self._wait(decision)
                case _:
                    pass  # Nobody grows into idle quota here.
        self._waiting_slices.trim()
        return changes

    def _admit(self, decision: Admit) -> bool:
        slice = self._world.ledger.slices[decision.key]
        job, holder = self._jobs[slice.chain_id], self._world.holder(slice.chain_id)
        self._waiting_slices.remove(slice)
        if holder is not None:
            self._world.drop(holder)
        self._world.put(transitions.admitted(slice, decision, now=self._now))
        self.chronicle.admit(job.chain, self._at)
        if holder is None:
            self._start(job, began=self._at)
        else:
            self._plan_end(job)
        self._account(job)
        return True

    def _evict(self, decision: Evict) -> bool:
        holder = self._world.ledger.slices.get(decision.key)
        if holder is None or not holder.keeps_quota:
            return False
        job = self._jobs[holder.chain_id]
        self._stop_waiting(job)
        self._world.put(transitions.evicted(holder, decision, now=self._now))
        pods = sum(holder.held_counts.values())
        self.chronicle.lose(job.chain, pods, to_others=decision.reason == _PREEMPTED)
        has_pods, recorded_s = self._at - job.began >= self._past.ready_s, job.recorded_gone_s
        job.stop()
        gone_s = recorded_s if recorded_s is not None else self._gone_s(holder) if has_pods else 0.0
        self._after(self._at + max(gone_s, _REACTION_S), self._if_running(job, lambda: self._give_back(job)))
        return True

    def _give_back(self, job: PlayedJob) -> None:
        """Have the last pods of an evicted job go."""
        holder = self._world.holder(job.chain)
        if holder is None:
            return
        self._world.drop(holder)
        job.wanted = job.baseline
        self._waiting_slices.add(transitions.given_back(holder, job.baseline, now=self._now), alone=True)
        self.chronicle.wait(job.chain, self._at)
        self._account(job)

    def _shrink(self, decision: Shrink) -> bool:
        holder = self._world.ledger.slices.get(decision.key)
        if holder is None or not holder.keeps_quota:
            return False
        job = self._jobs[holder.chain_id]
        self._stop_waiting(job)
        pods = sum(holder.held_counts.values()) - sum(decision.to.values())
        self._world.put(transitions.shrinking(holder, decision, job.wanted, now=self._now))
        self.chronicle.lose(job.chain, pods, to_others=True)
        gone_s = job.next_shrink_s()
        gone_s = gone_s if gone_s is not None else self._gone_s(holder)
        self._after(self._at + gone_s, self._if_running(job, lambda: self._end_shrink(job)))
        return True

    def _end_shrink(self, job: PlayedJob) -> None:
        """Have the lost pods of a job go. It waits for them from then on, when it is decided who gets them."""
        holder = self._world.holder(job.chain)
        if holder is None or holder.shrinks_to is None:
            return
        self._world.put(transitions.shrunk(holder))
        self._plan_end(job)
        self._account(job)
        self._after(self._at + _REACTION_S, self._if_running(job, lambda: self._want_back(job)))

    def _want_back(self, job: PlayedJob) -> None:
        """Have a job wait for the pods that it has lost."""
        holder = self._world.holder(job.chain)
        if holder is not None and holder.keeps_quota and holder.shrinks_to is None:
            admitted = holder.conditions.get(Condition.ADMITTED, {}).get("lastTransitionTime", self._now)
            self._follow(job, holder, job.wanted, queued_since=holder.queued_since or admitted)

    def _wait(self, decision: Wait) -> None:
        slice = self._world.ledger.slices.get(decision.key)
        if slice is None:
            return
        if slice.conditions.get(Condition.QUOTA_RESERVED, {}).get("reason") != decision.reason:
            slice = transitions.waiting(slice, decision, now=self._now)
            self._waiting_slices.show(slice)
        if is_limited(slice) and not self._looks:
            self._looks = True
            self._after(self._at + self._past.settings.growth_window_s / _LOOKS, self._look)

    def _look(self) -> None:
        """Decide a growth again that waits for time to pass."""
        self._looks = False
        self._world.decide_all()

    # What everything needs.

    @property
    def cycles(self) -> int:
        """How many were decided."""
        return self._world.cycles

    @property
    def _now(self) -> str:
        return unix_time_text(self._at)

    def _after(self, at: float, happens: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (max(at, self._at), self._number, happens))

    def _gone_s(self, holder: Slice) -> float:
        """How long the pods of a job stay: as long as others did, and its notice."""
        gone_s = self._past.gone_s.get(holder.cluster or "", self._past.gone_elsewhere_s)
        return gone_s + min(holder.elasticity.notice_s, self._past.settings.notice_cap_s)

    def _waiting(self, job: PlayedJob) -> Slice | None:
        return self._waiting_slices.of_chain(job.chain)

    def _stop_waiting(self, job: PlayedJob) -> None:
        """Drop the slice of a job that waits, where it has one."""
        if (waiting := self._waiting(job)) is not None:
            self._waiting_slices.remove(waiting)

    def _account(self, job: PlayedJob) -> None:
        holder = self._world.holder(job.chain)
        self.chronicle.use(job.chain, holder.usage if holder is not None else {}, self._at)
