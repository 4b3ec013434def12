"""Plays jobs that compete for quota: the admission's own cycle decides, on a clock that jumps from event to event.

The jobs of a seed come in an hour to a cohort of up to three queues: large ones that run long, of which most can do
with a part of their pods, and small ones of a high priority. A job has pod-seconds of work, which its pods share. A pod
that is killed takes along what it has done since its start, and it ends some seconds later; until then its quota is
held. A job whose pods are taken back in several steps gives quota back when the last of them has ended.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import msgspec

from slicebus.slices.admission.cycle import Admit, Decision, Evict, Grow, Shrink, Wait, cycle
from slicebus.slices.admission.preemption import preemptor_job
from slicebus.slices.admission.snapshot import Snapshot
from slicebus.slices.api.kueue import Condition
from slicebus.slices.placement.fleet import Cluster
from slicebus.slices.quota.holdings import Part
from slicebus.slices.quota.quota import ClusterQueue, LocalQueue, ResourceFlavor
from slicebus.slices.workload.chain import CreateSlice, plan
from slicebus.slices.workload.elasticity import Elasticity
from slicebus.slices.workload.pod_sets import PodSet
from slicebus.slices.workload.reclaimed import take_back
from slicebus.slices.workload.workload import FlavorName, Slice, SliceKey

ARRIVALS_S = 3600
"""Jobs come in this time; those that run then go on to their end."""
CORES = 32
"""The quota of a queue. Every pod has one core."""
PREEMPTION = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
HIGH = 100
RING_S = 600
"""As `RING` of the manager."""
MAIN = "main"
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_CLUSTERS = (Cluster(name="east", accepted=True, cordoned=False, connected=True),)


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job of a seed."""

    name: str
    queue: str
    priority: int
    pods: int
    least: int | None
    """The pods that it can do with; None where it needs all."""
    runs_s: int
    """How long it runs with all its pods, undisturbed."""
    at_s: int
    """When it is submitted."""
    ends_s: int
    """How long its pods take to end."""


class Outcome(msgspec.Struct, kw_only=True):
    """What became of the jobs of some seeds."""

    killed: int = 0
    """Pods."""
    lacked: int = 0
    """The pods that preemptors lacked when others lost some for them: fewer kills would leave somebody waiting."""
    killed_of_elastic: int = 0
    """Of these the ones of jobs that can do with fewer."""
    killed_for_high: int = 0
    """And the ones for a job of a high priority."""
    lost_s: int = 0
    """Their pod-seconds."""
    evicted: int = 0
    """Jobs that lost all their pods at once."""
    wanted_s: int = 0
    """Pod-seconds of the quota while a job waits that could use some of it: it has pods, and fewer than it had."""
    used_s: int = 0
    """Of these the ones in which a pod ran."""
    quota_s: int = 0
    """Pod-seconds of the quota while anybody waits."""
    ran_s: int = 0
    """Of these the ones in which a pod ran."""
    waits_s: list[int] = []
    """How long each job of a high priority waited for its quota."""
    took_s: list[int] = []
    """How long each other job took from its submission to its end."""


def jobs_of(random: Random) -> list[Job]:
    """The jobs of a seed, in the order in which they come."""
    queues = [f"queue-{number}" for number in range(random.randint(1, 3))]
    jobs, at_s = list[Job](), 0.0
    while (at_s := at_s + random.expovariate(len(queues) / 720)) < ARRIVALS_S:
        pods = random.choice((8, 12, 16, 24))
        least = None if random.random() < 0.2 else max(1, pods // random.choice((2, 4, 8)))
        jobs.append(_job(random, f"large-{len(jobs)}", queues, at_s, pods, least, random.choice((0, 0, 10)), 600, 2400))
    at_s = 0.0
    while (at_s := at_s + random.expovariate(len(queues) / 480)) < ARRIVALS_S:
        pods = random.randint(1, 8)
        jobs.append(_job(random, f"small-{len(jobs)}", queues, at_s, pods, None, HIGH, 120, 900))
    return sorted(jobs, key=lambda job: job.at_s)


def _job(
    random: Random,
    name: str,
    queues: list[str],
    at_s: float,
    pods: int,
    least: int | None,
    priority: int,
    shortest_s: int,
    longest_s: int,
) -> Job:
    return Job(
        name=name,
        queue=random.choice(queues),
        priority=priority,
        pods=pods,
        least=least,
        runs_s=random.randint(shortest_s, longest_s),
        at_s=int(at_s),
        ends_s=random.randint(1, 30),
    )


class Play:
    """Plays the jobs of a seed in one way."""

    def __init__(self, jobs: list[Job], says: Callable[[Job], Elasticity], *, policy: Mapping[str, str] = PREEMPTION):
        self._to_come = list(reversed(jobs))
        self._says = says
        self._policy = policy
        self._queues = sorted({job.queue for job in jobs})
        self._world = _world(self._queues, policy)
        self._runs: dict[str, _Run] = {}
        """By the UID of the job, which is its name."""
        self._now_s = 0
        self._rings_s: list[int] = []
        """When a ring of preemptions may begin again."""
        self._made = 0
        self._taking: set[str] = set()
        """The jobs that others lose pods for now, in the cycle that is carried out."""
        self.outcome = Outcome()

    def play(self) -> Outcome:
        """What has become of all jobs when the last one has ended."""
        while self._to_come or self._runs:
            self._pass_time(self._next_s() - self._now_s)
            for name in [name for name, run in self._runs.items() if run.ends_in_s == 0]:
                self._end(self._runs.pop(name))
            while self._to_come and self._to_come[-1].at_s <= self._now_s:
                job = self._to_come.pop()
                self._runs[job.name] = _Run(job)
            for run in self._runs.values():
                if run.gone_at_s is not None and run.gone_at_s <= self._now_s:
                    run.let_go()
            while self._decide():
                pass
        return self.outcome

    def _next_s(self) -> int:
        """When something happens next."""
        self._rings_s = [ring_s for ring_s in self._rings_s if ring_s > self._now_s]
        times_s = [*self._rings_s, *([self._to_come[-1].at_s] if self._to_come else [])]
        for run in self._runs.values():
            times_s += [run.gone_at_s] if run.gone_at_s is not None else []
            times_s += [self._now_s + run.ends_in_s] if run.ends_in_s is not None else []
        return min(times_s)

    def _pass_time(self, span_s: int) -> None:
        runs, quota = self._runs.values(), CORES * len(self._queues)
        pods = sum(len(run.pods) for run in runs)
        assert pods + sum(run.ending for run in runs) <= quota
        if any(run.is_waiting for run in runs):
            self.outcome.quota_s += quota * span_s
            self.outcome.ran_s += pods * span_s
        if any(0 < len(run.pods) < run.job.pods for run in runs):
            self.outcome.wanted_s += quota * span_s
            self.outcome.used_s += pods * span_s
        for run in runs:
            run.work_left -= len(run.pods) * span_s
        self._now_s += span_s

    def _end(self, run: "_Run") -> None:
        if run.job.priority < HIGH:
            self.outcome.took_s.append(self._now_s - run.job.at_s)

    def _decide(self) -> bool:
        """Decide once about all slices, and carry it out; whether anybody got or lost quota."""
        for run in self._runs.values():
            self._follow(run)
        slices = [slice for run in self._runs.values() for slice in run.slices]
        decided = cycle(
            msgspec.structs.replace(
                self._world,
                part=Part.of(slices),
                load={"east": sum(run.holder is not None for run in self._runs.values())},
                preemption_cycles_since=_time(self._now_s - RING_S),
            )
        )
        of = {slice.key: self._runs[slice.job_uid] for slice in slices}
        self._taking.clear()
        for decision in decided:
            run = of[decision.key]
            if (slice := run.slice(decision.key)) is not None:
                self._carry_out(run, slice, decision)
        return any(not isinstance(decision, Wait) for decision in decided)

    def _follow(self, run: "_Run") -> None:
        """Make the slice that a job lacks: its first, or one for what it lost."""
        if run.gone_at_s is not None:
            return
        for command in plan(run.slices, {MAIN: run.job.pods}):
            assert isinstance(command, CreateSlice), "nobody resizes a job"
            self._made += 1
            run.slices.append(self._slice(run))

    def _slice(self, run: "_Run") -> Slice:
        job, name, holder = run.job, f"{run.job.name}-{self._made}", run.holder
        return Slice(
            namespace="team",
            name=name,
            uid=name,
            created=_time(self._now_s),
            job_uid=job.name,
            queue=job.queue,
            priority=job.priority,
            active=True,
            pod_sets=(PodSet(MAIN, job.pods, {"cpu": 1000}, {}),),
            replaces=holder.key if holder is not None else None,
            chain=holder.chain if holder is not None else name,
            admission=None,
            admitted=False,
            evicted=False,
            finished=False,
            deleting=False,
            cluster=None,
            conditions={},
            partial=holder is not None,
            elasticity=self._says(job),
            reclaimed=holder.reclaimed if holder is not None else None,
            queued_since=run.since if holder is not None else "",
        )

    def _carry_out(self, run: "_Run", slice: Slice, decision: Decision) -> None:
        now = _time(self._now_s)
        match decision:
            case Admit():
                if run.job.priority == HIGH and Condition.EVICTED not in slice.conditions:
                    self.outcome.waits_s.append(self._now_s - run.job.at_s)
                run.admit(slice, decision, now_s=self._now_s)
            case Wait():
                reserved = {"status": "False", "reason": decision.reason, "message": decision.message}
                run.replace(slice, conditions=slice.conditions | {Condition.QUOTA_RESERVED: reserved})
            case Evict():
                self.outcome.evicted += 1
                lost = {"status": "True", "lastTransitionTime": now, "message": decision.message}
                conditions = {Condition.EVICTED: lost, Condition.PREEMPTED: lost | {"reason": decision.preemption}}
                run.slices = [slice]
                run.replace(slice, evicted=True, admitted=False, conditions=slice.conditions | conditions)
                self._kill(run, 0, decision)
            case Shrink():
                note = take_back(
                    slice.reclaimed,
                    {MAIN: run.job.pods},
                    decision.to,
                    beneficiary=decision.beneficiary,
                    at=now,
                    reason=decision.preemption,
                    message=decision.message,
                )
                run.slices = [slice]
                run.replace(slice, reclaimed=note)
                self._kill(run, decision.to[MAIN], decision)
            case Grow():
                raise ValueError(f"{slice.name} has no greatest size: {decision}")

    @property
    def _free(self) -> int:
        """The pods of the quota that nobody has."""
        return CORES * len(self._queues) - sum(len(run.pods) + run.ending for run in self._runs.values())

    def _kill(self, run: "_Run", left: int, decision: Evict | Shrink) -> None:
        """End the youngest pods of a job."""
        kept, gone = run.pods[:left], run.pods[left:]
        lost_s = sum(self._now_s - began_s for began_s in gone)
        preemptor, outcome = self._runs[preemptor_job(decision.message)], self.outcome
        by = preemptor.job
        if by.name not in self._taking:
            self._taking.add(by.name)
            outcome.lacked += max(0, by.pods - len(preemptor.pods) - self._free)
        outcome.killed += len(gone)
        outcome.killed_of_elastic += len(gone) * (run.job.least is not None)
        outcome.killed_for_high += len(gone) * (by.priority == HIGH)
        outcome.lost_s += lost_s
        run.pods, run.work_left, run.ending = kept, run.work_left + lost_s, run.ending + len(gone)
        run.gone_at_s = self._now_s + run.job.ends_s
        self._rings_s.append(self._now_s + RING_S + 1)


class _Run:
    """A job that has come and not ended."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.slices: list[Slice] = []
        self.pods: list[int] = []
        """When each of its pods began, oldest first."""
        self.work_left = job.pods * job.runs_s
        """In pod-seconds."""
        self.ending = 0
        """Its pods that were killed and have not ended."""
        self.gone_at_s: int | None = None
        """When those have ended."""
        self.since = ""
        """When it got its quota, RFC 3339."""

    @property
    def holder(self) -> Slice | None:
        return next((slice for slice in self.slices if slice.admission is not None), None)

    @property
    def is_waiting(self) -> bool:
        return any(slice.pending for slice in self.slices)

    @property
    def ends_in_s(self) -> int | None:
        """How long it runs with the pods that it has; None without any."""
        return max(0, -(-self.work_left // len(self.pods))) if self.pods else None

    def slice(self, key: SliceKey) -> Slice | None:
        """One of its slices; None where that has gone, as the job lost pods."""
        return next((slice for slice in self.slices if slice.key == key), None)

    def replace(self, old: Slice, **changes: Any) -> None:
        new = msgspec.structs.replace(old, **changes)
        self.slices = [new if slice is old else slice for slice in self.slices]

    def admit(self, slice: Slice, decision: Admit, *, now_s: int) -> None:
        """Let it run with the quota that a slice gets."""
        self.since = self.since or _time(now_s)
        reserved = {"status": "True", "reason": "QuotaReserved", "lastTransitionTime": _time(now_s)}
        conditions = {type: found | {"status": "False"} for type, found in slice.conditions.items()}
        self.slices = [slice]
        self.replace(
            slice,
            admission=decision.admission,
            admitted=True,
            evicted=False,
            cluster=decision.cluster,
            conditions=conditions | {Condition.QUOTA_RESERVED: reserved},
        )
        self.pods += [now_s] * (decision.admission.counts[MAIN] - len(self.pods))

    def let_go(self) -> None:
        """Its pods have ended: their quota is free."""
        [slice] = self.slices
        self.gone_at_s, self.ending = None, 0
        if slice.evicted:
            self.since = ""
            self.replace(slice, admission=None, reclaimed=None, queued_since="", pod_sets=_pods(self.job.pods))
        elif slice.reclaimed is not None and slice.shrinks_to is not None:
            note = msgspec.structs.replace(slice.reclaimed, done=True)
            self.replace(slice, reclaimed=note, pod_sets=_pods(slice.shrinks_to[MAIN]))


def _pods(count: int) -> tuple[PodSet, ...]:
    return (PodSet(MAIN, count, {"cpu": 1000}, {}),)


def _time(at_s: int) -> str:
    return (_BEGIN + timedelta(seconds=at_s)).strftime("%Y-%m-%dT%H:%M:%SZ")


def _world(queues: list[str], policy: Mapping[str, str]) -> Snapshot:
    """The quota: queues of one cohort, which lend each other what they have."""
    quota = {"name": "default", "resources": [{"name": "cpu", "nominalQuota": str(CORES)}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [quota]}]
    spec = {"cohortName": "org", "namespaceSelector": {}, "resourceGroups": groups, "preemption": dict(policy)}
    made = [ClusterQueue.from_manifest({"metadata": {"name": name}, "spec": spec}) for name in queues]
    locals = [LocalQueue(namespace="team", name=name, cluster_queue=name, held=False) for name in queues]
    flavor = FlavorName("default")
    return Snapshot(
        cluster_queues={queue.name: queue for queue in made},
        cohorts=(),
        local_queues={local.key: local for local in locals},
        flavors={flavor: ResourceFlavor(name=flavor)},
        namespaces={"team": {}},
        part=Part.of(()),
        clusters=_CLUSTERS,
        load={},
    )
