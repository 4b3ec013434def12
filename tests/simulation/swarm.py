"""The schedule of a seed that has a few kinds of faults and users only, in a short run: what it has happens often.

With every kind at once each is rare, and some keep others from happening (Groce et al., Swarm Testing, 2012).
"""

import itertools
from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import TypeVar

import msgspec

from simulation.bursts import bursts_of
from simulation.contention import contention_of, cores_of
from simulation.deadlines import with_deadlines
from simulation.definitions import definitions_of
from simulation.fixed_sizes import runs_fixed, with_fixed
from simulation.gangs import has_gangs, with_gangs
from simulation.groups import rebounds_of, with_groups
from simulation.losses import losses_of
from simulation.random_choices import (
    ACTIONS,
    EFFECTS,
    KINDS,
    LEVELS,
    NEVER_S,
    STALL_S,
    STOPS_S,
    actions,
    impostors,
    opt_outs,
    outages,
    policies,
    stalls,
    stops,
    submit,
)
from simulation.relocations import moves_of
from simulation.removals import breaker_of, removals_of, with_lifetimes, workers_removals_of
from simulation.schedule import (
    CONTROLLERS,
    MANY_WRITERS,
    NO_LIMIT,
    ROLES,
    Crash,
    Delete,
    Hold,
    Item,
    Moment,
    Noise,
    OptOut,
    Prioritize,
    Schedule,
    Seed,
    Stop,
    Submit,
)
from simulation.services import has_services, upgrades_of, with_services
from simulation.stuck import patience_of, sticks_of
from simulation.successes import successes_of, with_completions
from slicebus.slices.admission.sharing import FairSharing

Drawn = TypeVar("Drawn")
Happening = Callable[[Seed, float], Iterable[Moment]]

HAPPENINGS: dict[str, Happening] = {
    "stopped queues": lambda seed, run_s: stops(Random(f"{seed}/stops"), run_s),
    "impostors": lambda seed, run_s: impostors(Random(f"{seed}/impostors"), run_s),
    "policies": lambda seed, run_s: policies(Random(f"{seed}/preemption"), run_s),
    "outages": lambda seed, run_s: outages(Random(f"{seed}/outages"), run_s),
    "moves": moves_of,
    "contention": contention_of,
    "bursts": bursts_of,
    "removals": removals_of,
    "opt-outs": opt_outs,
    "bounds": rebounds_of,
    "successes": successes_of,
}
"""What may happen beside the users' ordinary actions."""
COMPARED: dict[str, Happening] = {
    "losses": losses_of,
    "removals on workers": workers_removals_of,
    "definitions": lambda seed, run_s: definitions_of(seed, run_s, compares=True),
}
"""The same, of what only a comparison puts right."""
_CHANGES: dict[str, tuple[Callable[[str], bool], Callable[[str, Iterable[Moment]], Iterator[Moment]]]] = {
    "lifetimes": (bool, with_lifetimes),
    "services": (has_services, with_services),
    "groups": (bool, with_groups),
    "gangs": (has_gangs, with_gangs),
    "fixed sizes": (runs_fixed, with_fixed),
    "completions": (bool, with_completions),
}
"""Whether jobs are like that for a seed, and the moments with such jobs."""
TRAITS = ("services", "gangs", "fixed sizes", "groups", "completions", "lifetimes", "patience")
"""What the jobs of a run are like."""
FAULTS = (*LEVELS, "crashes", "stops", "stalls", "holds", "slow controllers")
"""What goes wrong with messages, requests and processes."""
SHOWN_BY = {"bursts": "slow", "gangs": "slow controllers"}
"""Faults that every second run with such users has: without them they seldom show anything."""
_COUNTS = (6, 12, 24)
"""Of the users' actions."""
_SLOW_S = (0.2, 1.0)
"""How long a request of the controllers takes at most: so pods come one by one."""
_MESSAGES = 6
"""As many orders, or heartbeats, as most runs have."""
_EFFECTS = {role: most // 2 for role, most in EFFECTS.items()}


def swarm_of(seed: int) -> Schedule:
    """A short run with few kinds of everything: the same for the same seed."""
    random = Random(f"{seed}/swarm")
    users = {submit, *random.sample(list(ACTIONS), random.randint(1, 4))}
    happenings = set(random.sample([*HAPPENINGS, *COMPARED], random.choice((0, 1, 1, 2, 3))))
    traits = set(random.sample(TRAITS, random.choice((0, 1, 1, 2))))
    faults = set(random.sample(FAULTS, random.choice((0, 1, 1, 2, 3))))
    kinds = random.sample(KINDS, random.choice((1, 2, 3, 3)))
    faults |= {fault for kind, fault in SHOWN_BY.items() if kind in happenings | traits and random.random() < 0.5}
    weights = {maker: weight for maker, weight in ACTIONS.items() if maker in users}
    moments = list(_of_kinds(random, kinds, actions(random, weights, random.choice(_COUNTS))))
    run_s = moments[-1].at_s + 2
    for name, make in (HAPPENINGS | COMPARED).items():
        if name in happenings:
            moments += _first(f"{seed}/{name}", lambda own, make=make: list(make(own, run_s)))
    compares = bool(happenings & COMPARED.keys()) or random.random() < 0.5
    with_traits = _Traits(seed, traits)
    moments = list(with_deadlines(seed, with_traits.of(moments, run_s)))
    return Schedule(
        seed=seed,
        # Somebody has to take over from one that is held.
        standbys=tuple(role for role in ROLES if random.random() < 0.5 or ("holds" in faults and role == _held(seed))),
        inventory_s=60.0 if compares else NEVER_S,
        fair_sharing=random.choice((FairSharing.OFF, FairSharing.OFF, *FairSharing)),
        cores=cores_of(seed),
        patience=with_traits.patience,
        breaker_count=breaker_of(seed),
        admission_writers=1 if "bursts" in happenings else random.choice((1, MANY_WRITERS)),
        fixed_jobs="fixed sizes" in traits,
        gangs="gangs" in traits,
        replica_labels=random.random() < 0.5,
        items=(*_faults(random, seed, faults), *sorted(moments, key=lambda item: item.at_s)),
    )


def _held(seed: int) -> str:
    """Whose message is held: the manager's in every second run."""
    return Random(f"{seed}/held").choice((*ROLES, "manager"))


def _first(seed: str, draw: Callable[[str], Drawn]) -> Drawn:
    """What is drawn for the first of a seed's own seeds for which anything is."""
    return next(filter(None, map(draw, (f"{seed}/{number}" for number in itertools.count()))))


def _of_kinds(random: Random, kinds: list[str], moments: Iterable[Moment]) -> Iterator[Moment]:
    """The same of these kinds of jobs."""
    for item in moments:
        match item:
            case Submit() | Delete() | Prioritize() | OptOut() if item.kind not in kinds:
                yield msgspec.structs.replace(item, kind=random.choice(kinds))
            case _:
                yield item


class _Traits:
    """What the jobs of a run are like."""

    def __init__(self, seed: int, names: set[str]) -> None:
        self._seed = seed
        self._names = names
        patience = self._own("patience", lambda own: patience_of(own) != NO_LIMIT)
        self.patience = patience_of(patience) if patience else NO_LIMIT

    def of(self, moments: Iterable[Moment], run_s: float) -> list[Moment]:
        """The same moments with such jobs, and what happens to these."""
        for name, (has, change) in _CHANGES.items():
            if own := self._own(name, has):
                moments = change(own, moments)
        services = self._own("services", has_services)
        patience = self._own("patience", lambda own: patience_of(own) != NO_LIMIT)
        return [
            *moments,
            *(upgrades_of(services, run_s) if services else ()),
            *(sticks_of(patience, run_s) if patience else ()),
        ]

    def _own(self, name: str, has: Callable[[str], bool]) -> str | None:
        """The first of the seed's own seeds whose jobs are like that, if any shall be."""
        return _first(f"{self._seed}/{name}", lambda own: own if has(own) else None) if name in self._names else None


def _faults(random: Random, seed: int, names: set[str]) -> Iterator[Item]:
    for trouble, levels in LEVELS.items():
        if trouble in names:
            for role in random.sample(ROLES, random.randint(1, len(ROLES))):
                yield Noise(role=role, trouble=trouble, level=random.choice(levels))
    roles = random.choices(ROLES, k=4)
    for role in roles[: random.randint(1, 4)] if "crashes" in names else ():
        yield Crash(role=role, effect=random.randint(1, _EFFECTS[role]))
    for role in roles[: random.randint(1, 3)] if "stops" in names else ():
        yield Stop(role=role, effect=random.randint(1, _EFFECTS[role]), for_s=random.choice(STOPS_S))
    if "slow controllers" in names:
        yield Noise(role=CONTROLLERS, trouble="slow", level=random.choice(_SLOW_S))
    if "holds" in names:
        yield Hold(role=_held(seed), message=random.randint(1, _MESSAGES), for_s=STALL_S)
    if "stalls" in names:
        yield from _first(f"{seed}/stalls", lambda own: list(stalls(own)))
