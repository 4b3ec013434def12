"""What happens in a simulated day: the schedule of a seed, which can be thinned item by item.

Each item stands for itself. Its dice are its own, so that leaving one out changes nothing in the others.
"""

from collections.abc import Iterator
from random import Random
from typing import Literal

import msgspec

from simulation.queues import COHORT_PARENTS, FLAVORS, PRIORITIES, QUEUES

WORKERS = ("east", "west")
ROLES = ("manager", *(f"agent-{name}" for name in WORKERS))
KINDS = ("Job", "RayCluster", "RayJob")
NAMES = ("a", "b")
CPUS = (0, 2, 4, 8)
LIMITS = (None, None, 0, 2, 6)

_ACTIONS = 32
_GAPS_S = (0.01, 0.1, 1.0, 3.0, 10.0)
_MOST_PODS = 6
_STOPS_S = (2.0, 14.0, 20.0, 40.0)
"""Less and more than a Lease lasts."""
_STOPPED_S = (0.1, 2.0, 10.0, 40.0)
_EFFECTS = {role: 500 if role == "manager" else 250 for role in ROLES}
"""About as many as a role has in a day."""

Trouble = Literal["lost", "unanswered", "twice", "late", "slow", "cut", "expired"]


class Item(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """One thing that happens."""

    def __str__(self) -> str:
        """As a person reads it."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        at_s = fields.pop("at_s", None)
        when = "all day" if at_s is None else f"{at_s:7.2f}"
        return f"{when:>7}  {type(self).__name__.lower()} {' '.join(f'{k}={v}' for k, v in fields.items() if v != '')}"


class Noise(Item):
    """Something goes wrong again and again on the way of one role, with a probability; `slow` is in seconds."""

    role: str
    trouble: Trouble
    level: float


class Crash(Item):
    """A process of a role dies before its nth effect of the day."""

    role: str
    effect: int


class Stop(Item):
    """A process of a role is stopped before its nth effect of the day, and goes on with that effect later."""

    role: str
    effect: int
    for_s: float


class Moment(Item):
    """What happens at one moment, in seconds from the day's beginning."""

    at_s: float


class BrokerRestart(Moment):
    """The broker goes away with every connection; what was not confirmed is lost."""

    down_s: float


class ApiRestart(Moment):
    """An API server refuses connections for a while. Its watches have ended, and it remembers no history."""

    api: str
    down_s: float


class Submit(Moment):
    """A job on the manager. One that ends has pods that succeed after a while."""

    kind: str
    name: str
    size: int = 1
    ends: bool = False
    autoscales: bool = True
    """Whether Ray's autoscaler owns its size: then it is not changed on the manager."""
    queue: str = "batch"
    priority: str = ""
    partial: bool = False
    """Whether it takes a part of a scale-up."""


class Scale(Moment):
    """Some job is given another size, where it runs or on the manager; several sizes are a scaler that flaps."""

    api: str
    pick: int
    counts: tuple[int, ...]


class Delete(Moment):
    """Some job of a kind is deleted; `again`: and created under the same name at once."""

    api: str
    kind: str
    pick: int
    again: bool = False


class Squat(Moment):
    """A user's own Job on a worker, under a name that the manager uses too; it goes again after a while."""

    api: str
    name: str
    for_s: float


class Quota(Moment):
    """Another quota of a queue or a cohort, in one flavor."""

    cpu: int
    of: str = "batch"
    flavor: str = "reserved"
    borrowing: int | None = None
    lending: int | None = None


class Join(Moment):
    """A queue or a cohort belongs to another cohort, or to none."""

    who: str
    cohort: str


class Prioritize(Moment):
    """Some job of a kind gets another priority class, or none."""

    kind: str
    pick: int
    priority: str


class Revalue(Moment):
    """A priority class gets another value."""

    priority: str
    value: int


class StopQueue(Moment):
    """The ClusterQueue or the LocalQueue is stopped for a while."""

    kind: Literal["ClusterQueue", "LocalQueue"]
    queue: str
    policy: Literal["Hold", "HoldAndDrain"]
    for_s: float


class Deactivate(Moment):
    """Some slice is deactivated for a while."""

    pick: int
    for_s: float


class Cordon(Moment):
    """A cluster takes nothing new for a while."""

    cluster: str
    for_s: float


class Forge(Moment):
    """The user of one cluster says again what another cluster has said, in that one's name."""

    of: str
    by: str
    pick: int


class Impostor(Moment):
    """Another cluster has an agent of the name of one for a while; `restored`: and copies of that one's jobs."""

    of: str
    for_s: float
    restored: bool


TROUBLES = (Noise, Crash, Stop, BrokerRestart, ApiRestart, Impostor)
"""What goes wrong, as opposed to what somebody does."""


def other_of(name: str) -> str:
    """The API server of the cluster whose agent has the name of another one."""
    return f"other-{name}"


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A day: what it is played with, and what happens in it."""

    seed: int
    standbys: tuple[str, ...]
    """The roles that have a second process."""
    inventory_s: float
    """How often the agents tell unasked what they hold; practically never on days when nothing shall heal by itself."""
    items: tuple[Item, ...]

    def with_items(self, items: tuple[Item, ...]) -> "Schedule":
        """The same day with other items."""
        return msgspec.structs.replace(self, items=items)

    def __str__(self) -> str:
        """As a person reads it."""
        head = f"standbys: {', '.join(self.standbys) or 'none'}; inventories every {self.inventory_s:g} s"
        return "\n".join([head, *map(str, self.items)])


SHORT = Schedule(
    seed=0,
    standbys=(),
    inventory_s=1e6,
    items=(
        Submit(at_s=0.0, kind="Job", name="a"),
        Scale(at_s=3.0, api="east", pick=0, counts=(3,)),
        Scale(at_s=6.0, api="east", pick=0, counts=(1,)),
        Scale(at_s=9.0, api="manager", pick=0, counts=(2,)),
        Delete(at_s=12.0, api="manager", kind="Job", pick=0, again=True),
    ),
)
"""One job's life, and that of the next with its name."""


def schedule_of(seed: int) -> Schedule:
    """The day of a seed: the same for the same seed."""
    random = Random(f"{seed}/schedule")
    actions = list(_actions(random))
    day_s = actions[-1].at_s
    moments = [*actions, *_outages(random, day_s), *_stops(seed, day_s), *_impostors(seed, day_s)]
    return Schedule(
        seed=seed,
        standbys=tuple(role for role in ROLES if random.random() < 0.5),
        inventory_s=random.choice((60.0, 1e6)),
        items=(*_noise(random), *_crashes(random), *sorted(moments, key=lambda item: item.at_s)),
    )


def _noise(random: Random) -> Iterator[Noise]:
    """One kind of trouble in three, for each role."""
    levels: dict[Trouble, tuple[float, ...]] = {
        "lost": (0.02, 0.1),
        "unanswered": (0.02, 0.1),
        "twice": (0.05, 0.3),
        "late": (0.03, 0.2),
        "slow": (0.2, 0.2, 2.0),
        "cut": (0.005, 0.05),
        "expired": (0.05, 0.5),
    }
    for role in ROLES:
        for trouble, choices in levels.items():
            if random.random() < 0.4:
                yield Noise(role=role, trouble=trouble, level=random.choice(choices))


def _crashes(random: Random) -> Iterator[Item]:
    for role in ROLES:
        for _ in range(random.choice((0, 0, 1, 2, 3))):
            yield Crash(role=role, effect=random.randint(1, _EFFECTS[role]))
        for _ in range(random.choice((0, 0, 1, 2))):
            yield Stop(role=role, effect=random.randint(1, _EFFECTS[role]), for_s=random.choice(_STOPS_S))


def _outages(random: Random, day_s: float) -> Iterator[Moment]:
    for _ in range(random.choice((0, 1, 2))):
        yield BrokerRestart(at_s=random.uniform(1, day_s), down_s=random.choice((0.0, 1.0, 20.0)))
    for _ in range(random.choice((0, 1, 2))):
        api = random.choice(("manager", *WORKERS))
        yield ApiRestart(at_s=random.uniform(1, day_s), api=api, down_s=random.choice((0.0, 3.0, 25.0)))


def _stops(seed: int, day_s: float) -> Iterator[Moment]:
    """What takes quota away, on two days of three. With dice of their own: the rest of the day is as it would be."""
    random = Random(f"{seed}/stops")
    if random.random() < 1 / 3:
        return
    for _ in range(random.randint(1, 4)):
        at_s, for_s = round(random.uniform(0, day_s), 2), random.choice(_STOPPED_S)
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


def _impostors(seed: int, day_s: float) -> Iterator[Moment]:
    random = Random(f"{seed}/impostors")
    for _ in range(random.choice((0, 0, 1, 2))):
        yield Impostor(
            at_s=round(random.uniform(0, day_s), 2),
            of=random.choice(WORKERS),
            for_s=random.choice((5.0, 20.0, 60.0)),
            restored=random.random() < 0.5,
        )


def _actions(random: Random) -> Iterator[Moment]:
    weights = {
        _submit: 4,
        _scale: 7,
        _flap: 2,
        _delete: 3,
        _squat: 1,
        _quota: 2,
        _join: 1,
        _priority: 1,
        _forge: 1,
    }
    makers = random.choices(list(weights), list(weights.values()), k=_ACTIONS)
    at_s = 0.0
    for maker in (_submit, _submit, *makers):
        at_s = round(at_s + random.choice(_GAPS_S), 2)
        yield maker(random, at_s)


def _submit(random: Random, at_s: float) -> Moment:
    kind = random.choice(KINDS)
    return Submit(
        at_s=at_s,
        kind=kind,
        name=random.choice(NAMES),
        size=random.choice((1, 1, 2, 4)),
        ends=kind == "Job" and random.random() < 0.3,
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


def _priority(random: Random, at_s: float) -> Moment:
    priority = random.choice(list(PRIORITIES))
    if random.random() < 0.3:
        return Revalue(at_s=at_s, priority=priority, value=random.choice((-20, 0, 20)))
    kind, pick = random.choice(KINDS), random.randrange(12)
    return Prioritize(at_s=at_s, kind=kind, pick=pick, priority=random.choice(("", priority)))


def _forge(random: Random, at_s: float) -> Moment:
    of, by = random.sample(WORKERS, 2)
    return Forge(at_s=at_s, of=of, by=by, pick=random.randrange(1000))
