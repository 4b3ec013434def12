"""What a trial changes in the tree, the fleet and the searches is put back, also where something raises meanwhile."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from slicebus.slices.admission.preemption import Preemptor
from slicebus.slices.admission.reductions import Candidate, Victim
from slicebus.slices.admission.reservations import Reservations
from slicebus.slices.admission.trials import without
from slicebus.slices.admission.usage import QuotaUse
from slicebus.slices.admission.victims import Search
from slicebus.slices.api.kueue import PreemptionReason
from slicebus.slices.placement.fleet import Cluster, Fleet, Strategy
from slicebus.slices.placement.placement import Placer
from slicebus.slices.quota.holdings import Holdings
from slicebus.slices.workload.workload import Admission, FlavorName, Slice
from unit.slices.admission.test_preemption import OWN, holding, waiting
from unit.slices.builders import a_queue, admitted

FAST, SPARE = (FlavorName("fast"), "cpu"), (FlavorName("spare"), "cpu")
CLUSTER = Cluster(
    name="worker", accepted=True, cordoned=False, connected=True, capacity={FlavorName("fast"): {"cpu": 8000}}
)


class World:
    """A queue of two flavors: one job holds most of the first, another waits with the second."""

    def __init__(self) -> None:
        self.queue = a_queue(quotas={"fast": {"cpu": "4"}, "spare": {"cpu": "4"}}, preemption=OWN)
        self.held = self._fast(holding("held", 3, 5))
        self.use = QuotaUse({"cq": self.queue}, (), Holdings.of([self.held]), ())
        self.search = Search(self.use, ())
        self.fleet = Fleet([CLUSTER], {}, {})
        self.placer = Placer(self.fleet, Strategy.SPREAD)
        self.placer.evict([self.held])
        self.reservations = Reservations(self.use)
        self.reservations.keep(waiting("patient", 2), self._admission("patient", 2, SPARE[0]), self.queue)
        self.node = self.use.projected.queues["cq"]
        self.preemptor = Preemptor(
            slice=waiting("preemptor", 2), queue=self.queue, node=self.node, needs={FAST: 2000}, short=frozenset({FAST})
        )
        candidate = Candidate(slice=self.held, node=self.node, usage=self.held.usage)
        reason = PreemptionReason.IN_CLUSTER_QUEUE
        self.victims = [Victim(candidate=candidate, reason=reason, freed=candidate.usage)]
        to = {"main": 1}
        self.losers = [Victim(candidate=candidate, reason=reason, freed=candidate.freed(to), to=to)]
        assert self.search.victims(self.preemptor) == []

    def _fast(self, slice: Slice) -> Slice:
        return admitted(slice, flavor=FAST[0])

    def _admission(self, name: str, cores: int, flavor: FlavorName) -> Admission:
        found = admitted(waiting(name, cores), flavor=flavor).admission
        assert found is not None
        return found

    def choose_first(self, slice: Slice) -> Admission:
        return self._admission(slice.name, 2, FAST[0])

    def seen(self) -> tuple[object, ...]:
        """Everything that a context changes, as others see it."""
        urgent = Preemptor(
            slice=waiting("urgent", 2, 9), queue=self.queue, node=self.node, needs={FAST: 2000}, short=frozenset({FAST})
        )
        return (
            {key: self.node.available(key) for key in (FAST, SPARE)},
            self.fleet.free("worker", FAST),
            [(candidate.slice.name, candidate.usage) for candidate in self.use.holders_of(self.node)],
            self.use.own("cq", self.held),
            # The search that has failed is remembered: one for as much is not made.
            [victim.candidate.slice.name for victim in self.search.victims(urgent)],
        )


Context = Callable[[World], AbstractContextManager[object]]
CONTEXTS: dict[str, Context] = {
    "without victims": lambda world: without(world.victims),
    "without a chain": lambda world: world.use.without(world.held, "cq"),
    "as if preempted": lambda world: world.use.as_if(world.preemptor, world.victims),
    "without lost pods": lambda world: without(world.losers),
    "as if pods were lost": lambda world: world.use.as_if(world.preemptor, world.losers),
    "chosen again": lambda world: world.reservations.chosen_again(world.victims, world.choose_first),
    "apart": lambda world: world.search.apart(),
    "projected": lambda world: world.placer.projected(),
}


@pytest.mark.parametrize("context", CONTEXTS.values(), ids=CONTEXTS.keys())
def test_what_a_context_changes_is_put_back_where_it_raises(context: Context) -> None:
    world = World()
    before = world.seen()

    def raise_within() -> None:
        with context(world):
            assert world.seen() != before
            raise LookupError

    with pytest.raises(LookupError):
        raise_within()
    assert world.seen() == before


def test_reservations_are_put_back_where_choosing_again_raises() -> None:
    world = World()
    before = world.seen()

    def choose(slice: Slice) -> Admission:
        raise LookupError(slice.name)

    with pytest.raises(LookupError, match="patient"), world.reservations.chosen_again(world.victims, choose):
        pass
    assert world.seen() == before


def test_a_chain_that_would_lose_pods_counts_with_what_is_left_of_it() -> None:
    world = World()
    with world.use.as_if(world.preemptor, world.losers):
        left = next(each for each in world.use.holders_of(world.node) if each.slice.name == "held")
        assert left.slice.held_counts == {"main": 1}
        assert left.usage == world.use.own("cq", world.held) == {FAST: 1000}
