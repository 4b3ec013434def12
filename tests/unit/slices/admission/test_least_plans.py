"""On small fleets an exhaustive search, which knows nothing of the real one, agrees that no smaller plan would do.

A plan says of each job how many of its pods stay. The real search is told apart from it only by the decisions of a
cycle.
"""

import random
from collections.abc import Iterator, Mapping
from itertools import product

import msgspec
import pytest

from slicebus.slices.admission.cycle import Evict, Shrink, cycle
from slicebus.slices.admission.sharing import FairSharing
from slicebus.slices.api.kueue import PreemptionReason
from slicebus.slices.quota.quota import ClusterQueue
from slicebus.slices.workload.workload import Slice
from unit.slices.admission.test_preemption import cohort, holding, name_of, waiting, world
from unit.slices.admission.test_shrinks import giving
from unit.slices.builders import a_pod_set, a_queue

WORLDS = 150
"""Of each sort."""
Plan = dict[str, int]
"""How many pods each job keeps; none for one that is evicted."""
Amounts = dict[str, int]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job with quota, as the exhaustive search sees it."""

    name: str
    queue: str
    priority: int
    age: int
    pods: int
    least: int | None
    step: int
    of_one: Amounts

    def sizes(self) -> list[int]:
        """The sizes that it may shrink to."""
        if self.least is None:
            return []
        return [size for size in range(self.least, self.pods) if size % self.step == 0]

    def slice(self) -> Slice:
        slice = holding(
            self.name,
            0,
            self.priority,
            queue=self.queue,
            since=self.age,
            created=f"2026-01-01T00:{self.age:02}:00Z",
            pod_sets=(a_pod_set("main", self.pods, self.of_one),),
            replica_sizes={"main": self.step} if self.step > 1 else {},
        )
        return giving(slice, main=self.least) if self.least is not None else slice


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that hold quota, and one that has no room."""

    jobs: tuple[Job, ...]
    quota: Mapping[str, Amounts]
    """By queue. They are all of one cohort where there are several."""
    wants: Amounts
    policy: Mapping[str, str]
    pods_first: bool = False
    sharing: FairSharing = FairSharing.OFF

    def decided(self, jobs: tuple[Job, ...] | None = None) -> tuple[Plan, set[str]]:
        """What the real search takes of whom, and by which rules."""
        slice = waiting("w", 0, 5, pod_sets=(a_pod_set(requests=self.wants),), created="2026-01-01T00:30:00Z")
        held = [job.slice() for job in self.jobs if jobs is None] + [job.slice() for job in jobs or ()]
        made = world(slice, *held, queues=[*self._queues()], cohorts=[cohort("org")] if len(self.quota) > 1 else [])
        plan: Plan = {}
        why: set[str] = set()
        for each in cycle(msgspec.structs.replace(made, fair_sharing=self.sharing)):
            if isinstance(each, Evict | Shrink):
                plan[name_of(each.key)] = each.to["main"] if isinstance(each, Shrink) else 0
                why.add(each.preemption)
        return plan, why

    def _queues(self) -> Iterator[ClusterQueue]:
        for name, amounts in self.quota.items():
            cores = {"default": {what: f"{n}m" if what == "cpu" else f"{n}" for what, n in amounts.items()}}
            policy = self.policy if name == "cq" else {}
            made = a_queue(name, cores, cohortName="org" if len(self.quota) > 1 else "", preemption=policy)
            yield msgspec.structs.replace(made, pods_first=self.pods_first)

    def used(self, plan: Plan, queue: str | None = None) -> Amounts:
        """What jobs hold after a plan."""
        return {
            resource: sum(
                plan.get(job.name, job.pods) * job.of_one.get(resource, 0)
                for job in self.jobs
                if queue in (None, job.queue)
            )
            for resource in self.quota["cq"]
        }

    def total(self) -> Amounts:
        return {resource: sum(amounts[resource] for amounts in self.quota.values()) for resource in self.quota["cq"]}

    def fits(self, plan: Plan) -> bool:
        used, total = self.used(plan), self.total()
        return all(used[resource] + amount <= total[resource] for resource, amount in self.wants.items())

    def fits_own_quota(self, plan: Plan) -> bool:
        used, own = self.used(plan, "cq"), self.quota["cq"]
        return self.fits(plan) and all(
            used[resource] + amount <= own[resource] for resource, amount in self.wants.items()
        )

    def short(self) -> set[str]:
        used, total = self.used({}), self.total()
        return {resource for resource, amount in self.wants.items() if used[resource] + amount > total[resource]}

    def may_lose(self, job: Job) -> bool:
        """Whether a policy and the resources allow to take anything from a job."""
        rule = self.policy.get("withinClusterQueue" if job.queue == "cq" else "reclaimWithinCohort", "Never")
        is_allowed = rule == "Any" or (rule != "Never" and job.priority < 5)
        # Nobody is newer than the one that waits.
        return is_allowed and any(job.of_one.get(resource) for resource in self.short())

    def smaller(self, plan: Plan) -> Iterator[Plan]:
        """Every plan that leaves everybody as many pods as this one, and somebody more."""
        choices = []
        for job in self.jobs:
            kept = plan.get(job.name, job.pods)
            choices.append([(job.name, size) for size in {kept, job.pods, *job.sizes()} if size >= kept])
        for sizes in product(*choices):
            other = dict(sizes)
            if any(other[job.name] > plan.get(job.name, job.pods) for job in self.jobs):
                yield other


def a_fleet(rng: random.Random, *, queues: int, sharing: FairSharing = FairSharing.OFF) -> Fleet:
    """Up to four jobs that fill the quota so far that there is no room for what one more wants."""
    while True:
        has_memory = rng.random() < 0.3
        quota = {
            name: {"cpu": rng.randint(0 if name != "cq" else 2, 6) * 1000} | ({"memory": 8} if has_memory else {})
            for name in ("cq", "guest", "third")[:queues]
        }
        jobs = [a_job(rng, number, [*quota], has_memory=has_memory) for number in range(rng.randint(1, 4))]
        wants = {"cpu": rng.randint(1, 6) * 1000} | ({"memory": rng.randint(0, 4)} if has_memory else {})
        rules = ["LowerPriority", "LowerOrNewerEqualPriority"]
        policy = {"withinClusterQueue": rng.choice([*rules, "Never"] if queues > 1 else rules)}
        policy |= {"reclaimWithinCohort": rng.choice(["LowerPriority", "Any"])} if queues > 1 else {}
        fleet = Fleet(
            jobs=tuple(jobs),
            quota=quota,
            wants=wants,
            policy=policy,
            pods_first=rng.random() < 0.4,
            sharing=sharing,
        )
        used, total = fleet.used({}), fleet.total()
        if all(used[resource] <= total[resource] for resource in total) and not fleet.fits({}):
            return fleet


def a_job(rng: random.Random, number: int, queues: list[str], *, has_memory: bool) -> Job:
    step = rng.choice([1, 1, 1, 2])
    pods = step * rng.randint(1, 4 // step)
    return Job(
        name=f"j{number}",
        queue=rng.choice(queues),
        priority=rng.choice([0, 1, 1, 2, 7]),
        age=number,
        pods=pods,
        least=rng.choice([None, 0, 1, pods // 2]),
        step=step,
        of_one={"cpu": 1000} | ({"memory": rng.randint(0, 2)} if has_memory else {}),
    )


def by_order(fleet: Fleet) -> Plan | None:
    """The best plan of a single queue, among all there are; None where none makes room.

    The deeds have an order: at each priority first pods, then jobs, the newest first. The best plan does the least of
    the last deed that any plan needs, then the least of the one before it, and so on.
    """
    losers = [job for job in fleet.jobs if fleet.may_lose(job)]
    newest_first = sorted(losers, key=lambda job: (job.priority, -job.age))
    shrinks = [(job.priority if not fleet.pods_first else -1, 0, job) for job in newest_first]
    evictions = [(job.priority, 1, job) for job in newest_first]
    deeds = sorted([*shrinks, *evictions], key=lambda deed: deed[:2])
    best: tuple[list[int], Plan] | None = None
    for sizes in product(*([job.pods, *job.sizes(), -1] for job in losers)):
        chosen = {job.name: size for job, size in zip(losers, sizes, strict=True)}
        plan = {name: max(0, size) for name, size in chosen.items()}
        if not fleet.fits(plan):
            continue
        price = [
            int(chosen[job.name] < 0) if is_eviction else job.pods - chosen[job.name] if chosen[job.name] >= 0 else 0
            for _, is_eviction, job in reversed(deeds)
        ]
        if best is None or price < best[0]:
            best = price, {job.name: plan[job.name] for job in losers if chosen[job.name] < job.pods}
    return best[1] if best is not None else None


def test_in_one_queue_the_plan_is_the_best_of_all() -> None:
    rng, found = random.Random(37), 0
    for _ in range(3 * WORLDS):
        fleet = a_fleet(rng, queues=1)
        plan, _ = fleet.decided()
        assert plan == (by_order(fleet) or {}), fleet
        found += len(plan)
    assert found > WORLDS, "the worlds show nothing"


@pytest.mark.parametrize("sharing", [FairSharing.OFF, FairSharing.FINAL_SHARE, FairSharing.BOTH])
def test_in_a_cohort_no_smaller_plan_would_do(sharing: FairSharing) -> None:
    rng, found = random.Random(38), 0
    for _ in range(WORLDS):
        fleet = a_fleet(rng, queues=3, sharing=sharing)
        plan, why = fleet.decided()
        check_allowed(fleet, plan)
        assert not plan or fleet.fits(plan), fleet
        if plan and PreemptionReason.IN_COHORT_FAIR_SHARING not in why:
            # It may have been found without borrowing: then no smaller one does without.
            ways = [way for way in (fleet.fits, fleet.fits_own_quota) if way(plan)]
            assert any(not any(way(other) for other in fleet.smaller(plan)) for way in ways), fleet
            takes = any(job.queue != "cq" and job.name in plan for job in fleet.jobs)
            assert not takes or fleet.fits_own_quota(plan), fleet
        found += len(plan)
        rigid = tuple(msgspec.structs.replace(job, least=None) for job in fleet.jobs)
        assert plan or not fleet.decided(rigid)[0], f"nobody waits because others can shrink: {fleet}"
    assert found > WORLDS // 4, "the worlds show nothing"


def check_allowed(fleet: Fleet, plan: Plan) -> None:
    for job in fleet.jobs:
        kept = plan.get(job.name, job.pods)
        if job.name in plan:
            assert fleet.may_lose(job), fleet
            assert kept == 0 or kept in job.sizes(), fleet
            if job.queue != "cq":
                used = fleet.used({}, job.queue)
                assert any(used[resource] > fleet.quota[job.queue][resource] for resource in fleet.short()), fleet


def test_by_shares_no_pod_less_would_do() -> None:
    """Queues of one weight in one cohort: a share is what a queue uses beyond its quota."""
    rng, found = random.Random(39), 0
    for _ in range(3 * WORLDS):
        fleet = a_fleet(rng, queues=3, sharing=FairSharing.FINAL_SHARE)
        plan, why = fleet.decided()
        if why != {PreemptionReason.IN_COHORT_FAIR_SHARING}:
            continue
        found += 1
        assert is_fair(fleet, plan), fleet
        for other in fleet.smaller(plan):
            assert not (fleet.fits(other) and is_fair(fleet, other)), (fleet, other)
    assert found > WORLDS // 10, "the worlds show nothing"


def is_fair(fleet: Fleet, plan: Plan) -> bool:
    """Whether no queue that loses anything ends with a smaller share than the one that gets it."""

    def share(queue: str, more: Amounts) -> float:
        used, lendable = fleet.used(plan, queue), fleet.total()
        return max(
            max(0, used[resource] + more.get(resource, 0) - fleet.quota[queue][resource]) / lendable[resource]
            for resource in lendable
            if lendable[resource]
        )

    losing = {job.queue for job in fleet.jobs if plan.get(job.name, job.pods) < job.pods}
    return all(share("cq", fleet.wants) <= share(queue, {}) for queue in losing)
