"""The schedule of a seed that has every kind of fault and user.

The random choices of one kind of item change nothing in the others.
"""

from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Literal

from simulation.contention import contention_of, cores_of
from simulation.deadlines import with_deadlines
from simulation.definitions import definitions_of
from simulation.fixed_sizes import runs_fixed, with_fixed
from simulation.gangs import has_gangs, with_gangs
from simulation.groups import rebounds_of, with_groups
from simulation.losses import losses_of
from simulation.queues import COHORT_PARENTS, FLAVORS, PRIORITIES, QUEUES, policy_of
from simulation.relocations import moves_of
from simulation.removals import breaker_of, removals_of, with_lifetimes, workers_removals_of
from simulation.schedule import (
    MANY_WRITERS,
    ROLES,
    WORKERS,
    ApiRestart,
    BrokerRestart,
    Cordon,
    Crash,
    Deactivate,
    Delete,
    Edit,
    Forge,
    Impostor,
    Item,
    Join,
    Moment,
    Noise,
    OptOut,
    Policy,
    Prioritize,
    Quota,
    Revalue,
    Scale,
    Schedule,
    Seed,
    Squat,
    Stall,
    Stop,
    StopQueue,
    Submit,
    Trouble,
)
from simulation.services import upgrades_of, with_services
from simulation.stuck import patience_of, sticks_of
from simulation.successes import successes_of, with_completions
from slicebus.slices.admission.sharing import FairSharing

Action = Callable[[Random, float], Moment]
KINDS = ("Job", "RayCluster", "RayJob")
NAMES = ("a", "b")
CPUS = (0, 2, 4, 8)
LIMITS = (None, None, 0, 2, 6)

NEVER_S = 1e6
_ACTIONS = 32
_GAPS_S = (0.01, 0.1, 1.0, 3.0, 10.0)
_MOST_PODS = 6
LEVELS: dict[Trouble, tuple[float, ...]] = {
    "lost": (0.02, 0.1),
    "unanswered": (0.02, 0.1),
    "twice": (0.05, 0.3),
    "late": (0.03, 0.2),
    "slow": (0.2, 0.2, 2.0),
    "cut": (0.005, 0.05),
    "expired": (0.05, 0.5),
}
"""How often each trouble is there, or how long it takes."""
STOPS_S = (2.0, 14.0, 20.0, 40.0)
"""Less and more than a Lease lasts."""
_STOPPED_S = (0.1, 2.0, 10.0, 40.0)
STALL_S, STARTS = 40.0, 12
"""Longer than a Lease; about as many pods as an agent lets start in a run."""
EFFECTS = {role: 500 if role == "manager" else 250 for role in ROLES}
"""About as many as a role has in a run."""


def everything_of(seed: int) -> Schedule:
    """A run with all that may happen: the same for the same seed."""
    random = Random(f"{seed}/schedule")
    happened = list(actions(random, ACTIONS, _ACTIONS))
    run_s = happened[-1].at_s
    moments = [
        *happened,
        *outages(random, run_s),
        *_own(seed, run_s),
        *moves_of(seed, run_s),
        *contention_of(seed, run_s),
    ]
    moments = [*with_lifetimes(seed, moments), *removals_of(seed, run_s)]
    standbys = tuple(role for role in ROLES if random.random() < 0.5)
    inventory_s = random.choice((60.0, NEVER_S))
    if inventory_s < NEVER_S:
        moments += [*losses_of(seed, run_s), *workers_removals_of(seed, run_s)]
    moments += [*definitions_of(seed, run_s, compares=inventory_s < NEVER_S), *opt_outs(seed, run_s)]
    moments = [*with_groups(seed, with_services(seed, moments)), *rebounds_of(seed, run_s), *upgrades_of(seed, run_s)]
    moments = [
        *with_deadlines(seed, with_completions(seed, with_fixed(seed, with_gangs(seed, moments)))),
        *successes_of(seed, run_s),
        *sticks_of(seed, run_s),
    ]
    return Schedule(
        seed=seed,
        standbys=standbys,
        inventory_s=inventory_s,
        fair_sharing=Random(f"{seed}/sharing").choice((FairSharing.OFF, FairSharing.OFF, *FairSharing)),
        cores=cores_of(seed),
        patience=patience_of(seed),
        breaker_count=breaker_of(seed),
        admission_writers=Random(f"{seed}/one writer").choice((1, MANY_WRITERS)),
        fixed_jobs=runs_fixed(seed),
        gangs=has_gangs(seed),
        replica_labels=Random(f"{seed}/replica labels").random() < 0.5,
        items=(*_noise(random), *_crashes(random), *stalls(seed), *sorted(moments, key=lambda item: item.at_s)),
    )


def _noise(random: Random) -> Iterator[Noise]:
    """Two kinds of trouble in five, for each role."""
    for role in ROLES:
        for trouble, choices in LEVELS.items():
            if random.random() < 0.4:
                yield Noise(role=role, trouble=trouble, level=random.choice(choices))


def _crashes(random: Random) -> Iterator[Item]:
    for role in ROLES:
        for _ in range(random.choice((0, 0, 1, 2, 3))):
            yield Crash(role=role, effect=random.randint(1, EFFECTS[role]))
        for _ in range(random.choice((0, 0, 1, 2))):
            yield Stop(role=role, effect=random.randint(1, EFFECTS[role]), for_s=random.choice(STOPS_S))


def stalls(seed: Seed) -> Iterator[Stall]:
    random = Random(f"{seed}/stalls")
    for name in WORKERS:
        if random.random() < 0.5:
            yield Stall(role=f"agent-{name}", pod=random.randint(1, STARTS), for_s=STALL_S)


def outages(random: Random, run_s: float) -> Iterator[Moment]:
    for _ in range(random.choice((0, 1, 2))):
        yield BrokerRestart(at_s=random.uniform(1, run_s), down_s=random.choice((0.0, 1.0, 20.0)))
    for _ in range(random.choice((0, 1, 2))):
        api = random.choice(("manager", *WORKERS))
        yield ApiRestart(at_s=random.uniform(1, run_s), api=api, down_s=random.choice((0.0, 3.0, 25.0)))


def _own(seed: Seed, run_s: float) -> Iterator[Moment]:
    """What has random choices of its own: the rest of the run is as it would be."""
    yield from stops(Random(f"{seed}/stops"), run_s)
    yield from impostors(Random(f"{seed}/impostors"), run_s)
    yield from policies(Random(f"{seed}/preemption"), run_s)


def policies(random: Random, run_s: float) -> Iterator[Moment]:
    """Who may be preempted, on two runs of three."""
    if random.random() < 1 / 3:
        return
    for queue in QUEUES:
        yield Policy(at_s=0.0, queue=queue, spec=policy_of(random))
    for _ in range(random.randint(0, 3)):
        at_s = round(random.uniform(0, run_s), 2)
        yield Policy(at_s=at_s, queue=random.choice(list(QUEUES)), spec=policy_of(random))


def stops(random: Random, run_s: float) -> Iterator[Moment]:
    """What takes quota away, on two runs of three."""
    if random.random() < 1 / 3:
        return
    for _ in range(random.randint(1, 4)):
        at_s, for_s = round(random.uniform(0, run_s), 2), random.choice(_STOPPED_S)
        kind = random.randrange(4)
        if kind < 2:
            of: Literal["ClusterQueue", "LocalQueue"] = random.choice(("ClusterQueue", "LocalQueue"))
            policy: Literal["Hold", "HoldAndDrain"] = random.choice(("Hold", "HoldAndDrain", "HoldAndDrain"))
            queue = random.choice(list(QUEUES))
            yield StopQueue(at_s=at_s, kind=of, queue=queue, policy=policy, for_s=for_s)
        elif kind == 2:
            yield Deactivate(at_s=at_s, pick=random.randrange(12), for_s=for_s)
        else:
            yield Cordon(at_s=at_s, cluster=random.choice(WORKERS), for_s=for_s)


def impostors(random: Random, run_s: float) -> Iterator[Moment]:
    for _ in range(random.choice((0, 0, 1, 2))):
        yield Impostor(
            at_s=round(random.uniform(0, run_s), 2),
            of=random.choice(WORKERS),
            for_s=random.choice((5.0, 20.0, 60.0)),
            restored=random.random() < 0.5,
        )


def actions(random: Random, weights: Mapping[Action, int], count: int) -> Iterator[Moment]:
    """What users do, after two have submitted a job."""
    makers = random.choices(list(weights), list(weights.values()), k=count)
    at_s = 0.0
    for maker in (submit, submit, *makers):
        at_s = round(at_s + random.choice(_GAPS_S), 2)
        yield maker(random, at_s)


def submit(random: Random, at_s: float) -> Moment:
    kind = random.choice(KINDS)
    return Submit(
        at_s=at_s,
        kind=kind,
        name=random.choice(NAMES),
        size=random.choice((1, 1, 2, 4)),
        ends=kind != "RayCluster" and random.random() < 0.3,
        autoscales=random.random() < 0.5,
        queue=random.choice(("batch", "batch", *QUEUES)),
        priority=random.choice(("", "", *PRIORITIES)),
        partial=random.random() < 0.3,
    )


def _scale(random: Random, at_s: float) -> Moment:
    api = random.choice((*WORKERS, *WORKERS, "manager"))
    return Scale(at_s=at_s, api=api, pick=random.randrange(12), counts=(random.randint(0, _MOST_PODS),))


def _flap(random: Random, at_s: float) -> Moment:
    counts = tuple(random.randint(0, _MOST_PODS) for _ in range(random.randint(3, 6)))
    return Scale(at_s=at_s, api=random.choice(WORKERS), pick=random.randrange(12), counts=counts)


def _delete(random: Random, at_s: float) -> Moment:
    api = random.choice(("manager", "manager", *WORKERS))
    again = random.random() < 0.5
    return Delete(at_s=at_s, api=api, kind=random.choice(KINDS), pick=random.randrange(12), again=again)


def _squat(random: Random, at_s: float) -> Moment:
    for_s = random.choice((1.0, 10.0, 60.0))
    return Squat(at_s=at_s, api=random.choice(WORKERS), name=random.choice(NAMES), for_s=for_s)


def _quota(random: Random, at_s: float) -> Moment:
    return Quota(
        at_s=at_s,
        cpu=random.choice(CPUS),
        of=random.choice((*QUEUES, *COHORT_PARENTS)),
        flavor=random.choice(FLAVORS),
        borrowing=random.choice(LIMITS),
        lending=random.choice(LIMITS),
    )


def _join(random: Random, at_s: float) -> Moment:
    who = random.choice((*QUEUES, "team"))
    return Join(at_s=at_s, who=who, cohort=random.choice(("all", "") if who == "team" else ("team", "all", "")))


def _edit(random: Random, at_s: float) -> Moment:
    kind, cpu = random.choice(("RayCluster", "RayJob")), random.choice(("500m", "1", "2"))
    return Edit(at_s=at_s, kind=kind, pick=random.randrange(12), cpu=cpu)


def _priority(random: Random, at_s: float) -> Moment:
    priority = random.choice(list(PRIORITIES))
    if random.random() < 0.3:
        return Revalue(at_s=at_s, priority=priority, value=random.choice((-20, 0, 20)))
    kind, pick = random.choice(KINDS), random.randrange(12)
    return Prioritize(at_s=at_s, kind=kind, pick=pick, priority=random.choice(("", priority)))


def opt_outs(seed: Seed, run_s: float) -> Iterator[Moment]:
    """On one run of four."""
    random = Random(f"{seed}/opt-outs")
    for _ in range(random.choice((0, 0, 0, 3))):
        kind, pick, at_s = random.choice(KINDS), random.randrange(12), random.uniform(0, run_s)
        queue = random.choice((*QUEUES, ""))
        yield OptOut(at_s=at_s, kind=kind, pick=pick, queue=queue, elastic=bool(queue) or random.random() < 0.5)


def _forge(random: Random, at_s: float) -> Moment:
    of, by = random.sample(WORKERS, 2)
    return Forge(at_s=at_s, of=of, by=by, pick=random.randrange(1000))


ACTIONS: dict[Action, int] = {
    submit: 4,
    _scale: 7,
    _flap: 2,
    _delete: 3,
    _squat: 1,
    _quota: 2,
    _join: 1,
    _priority: 1,
    _edit: 1,
    _forge: 1,
}
"""What users do, and how often."""
