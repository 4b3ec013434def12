"""In any tree of quota with any jobs, the victims of a preemption are allowed, enough, and none too many."""

from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from slicebus.slices.admission.fair_preemption import fair
from slicebus.slices.admission.preemption import Preemptor, classical, fits, may_preempt
from slicebus.slices.admission.reductions import Victim
from slicebus.slices.admission.sharing import FairStrategy, share
from slicebus.slices.admission.trials import without
from slicebus.slices.admission.usage import QuotaUse
from slicebus.slices.api.kueue import PreemptionReason
from slicebus.slices.quota.cohorts import Forest
from slicebus.slices.quota.holdings import Holdings
from slicebus.slices.quota.policies import Whom
from slicebus.slices.quota.quota import ClusterQueue
from slicebus.slices.workload.workload import FlavorName, Slice
from unit.slices.admission.test_preemption import cohort, holding, queue, waiting
from unit.slices.builders import Quota

COHORTS = (cohort("org", "", 2), cohort("left", "org"), cohort("right", "org", 3))
PLACES = ("org", "left", "left", "right", "")
NEEDED = FlavorName("default"), "cpu"

limits = st.sampled_from([None, None, None, 0, 2, 5])
quotas = st.tuples(st.integers(0, 5).map(str), limits, limits)
policies = st.fixed_dictionaries(
    {
        "withinClusterQueue": st.sampled_from(["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
        "reclaimWithinCohort": st.sampled_from(["Never", "LowerPriority", "Any", "Any"]),
        "borrowWithinCohort": st.fixed_dictionaries(
            {"policy": st.sampled_from(["Never", "LowerPriority"])},
            optional={"maxPriorityThreshold": st.integers(0, 3)},
        ),
    }
)
jobs = st.tuples(st.integers(0, len(PLACES) - 1), st.integers(1, 4), st.integers(0, 3), st.integers(0, 9))
strategies = st.sampled_from([(), (FairStrategy.FINAL_SHARE,), (FairStrategy.INITIAL_SHARE,), tuple(FairStrategy)])


class Case(msgspec.Struct, frozen=True):
    """Queues with jobs in them, and one job that wants more than there is room for."""

    queues: dict[str, ClusterQueue]
    use: QuotaUse
    preemptor: Preemptor
    strategies: tuple[FairStrategy, ...]

    def search(self) -> list[Victim]:
        holders = self.use.holders_of
        return fair(self.preemptor, holders, self.strategies) if self.strategies else classical(self.preemptor, holders)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    weights = draw(st.lists(st.sampled_from([0.0, 1.0, 2.5]), min_size=len(PLACES), max_size=len(PLACES)))
    queues = {}
    for number, place in enumerate(PLACES):
        quota: Quota = draw(quotas) if place else draw(st.integers(3, 8).map(str))
        made = queue(f"q{number}", quota, cohort=place, **draw(policies))
        queues[made.name] = msgspec.structs.replace(made, weight=weights[number])
    use = QuotaUse(queues, COHORTS, Holdings.of(()), ())
    held: list[Slice] = []
    for name, (place_number, cores, priority, since) in enumerate(draw(st.lists(jobs, min_size=12, max_size=24))):
        slice = holding(f"h{name:02}", cores, priority, queue=f"q{place_number}", since=since, created=f"{since}")
        # Nobody has more than there was.
        if cores * 1000 <= use.current.queues[f"q{place_number}"].available(NEEDED):
            use.charge(slice)
            held.append(slice)
    use = QuotaUse(queues, COHORTS, Holdings.of(held), ())
    name = f"q{draw(st.integers(0, len(PLACES) - 1))}"
    node = use.current.queues[name]
    # More than there is room for, up to what it could have.
    room, most = max(0, node.available(NEEDED)) // 1000, node.capacity(NEEDED) // 1000
    assume(room < most)
    cores = draw(st.integers(room + 1, min(most, room + 4)))
    slice = waiting("w", cores, draw(st.integers(1, 4)), queue=name, created=f"{draw(st.integers(0, 9))}")
    needs = {NEEDED: cores * 1000}
    preemptor = Preemptor(slice=slice, queue=queues[name], node=node, needs=needs, short=frozenset(needs))
    return Case(queues, use, preemptor, draw(strategies))


def test_one_that_is_admitted_in_another_queue_is_no_victim_where_it_was() -> None:
    """Its LocalQueue stands for the other one by now."""
    before, other = holding("before", 2, queue="q0"), holding("other", 2, queue="q0")
    queues = {name: queue(name, "8") for name in ("q0", "q1")}
    use = QuotaUse(queues, (), Holdings.of([before, other]), ())
    node = use.current.queues["q0"]
    assert [each.slice.name for each in use.holders_of(node)] == ["before", "other"]
    use.charge(msgspec.structs.replace(holding("after", 2, queue="q1"), job_uid=before.job_uid))
    assert [each.slice.name for each in use.holders_of(node)] == ["other"]


def usage(forest: Forest) -> dict[str, int]:
    return {node.name: node.used(NEEDED) for node in (*forest.queues.values(), *forest.cohorts.values())}


def fits_without(case: Case, victims: list[Victim], *, borrowing: bool) -> bool:
    with without(victims):
        return fits(case.preemptor, borrowing=borrowing)


@given(case=cases())
@settings(max_examples=300, suppress_health_check=[HealthCheck.filter_too_much])
def test_victims_are_enough_and_none_too_many(case: Case) -> None:
    before = usage(case.use.current)
    victims = case.search()
    assert usage(case.use.current) == before, "a search changes nothing"
    assert [v.candidate.slice.key for v in case.search()] == [v.candidate.slice.key for v in victims]
    if not victims:
        return
    assert fits_without(case, victims, borrowing=True)
    spared = [victim for victim in victims if not is_weighed(case, victim, victims)]
    ways = [borrowing for borrowing in (True, False) if fits_without(case, victims, borrowing=borrowing)]
    assert any(
        not any(fits_without(case, [v for v in victims if v is not one], borrowing=borrowing) for one in spared)
        for borrowing in ways
    ), "one of them need not go"


def is_weighed(case: Case, victim: Victim, victims: list[Victim]) -> bool:
    """Whether another one loses by his share only as this one leaves the preemptor's part of the tree."""
    node, own = victim.candidate.node, case.preemptor.node
    others = [other for other in victims if other.reason is PreemptionReason.IN_COHORT_FAIR_SHARING]
    return any(branch(own, other.candidate.node) in (node, *node.path()) for other in others if other is not victim)


@given(case=cases())
@settings(max_examples=300, suppress_health_check=[HealthCheck.filter_too_much])
def test_every_victim_is_allowed(case: Case) -> None:
    policy, own = case.preemptor.queue.preemption, case.preemptor.node
    for victim in case.search():
        node, slice = victim.candidate.node, victim.candidate.slice
        if node is own:
            assert victim.reason is PreemptionReason.IN_CLUSTER_QUEUE
            assert may_preempt(case.preemptor.slice, slice, policy.within_queue)
            continue
        assert may_preempt(case.preemptor.slice, slice, policy.reclaim)
        assert node.root is own.root
        assert node.exceeds([NEEDED]), "a queue within its quota loses nothing"
        assert (victim.reason is PreemptionReason.IN_COHORT_FAIR_SHARING) <= bool(case.strategies)
        if victim.reason is PreemptionReason.IN_COHORT_RECLAIM_WHILE_BORROWING:
            assert policy.borrow is not Whom.NEVER
            assert slice.priority < case.preemptor.slice.priority
            assert policy.borrow_threshold is None or slice.priority <= policy.borrow_threshold


@given(case=cases())
@settings(max_examples=200)
def test_by_shares_nobody_ends_with_more_than_a_victim_had(case: Case) -> None:
    """Else the victim could take it back the next time."""
    victims = case.search()
    if not any(victim.reason is PreemptionReason.IN_COHORT_FAIR_SHARING for victim in victims):
        return
    for victim in victims:
        if victim.reason is not PreemptionReason.IN_COHORT_FAIR_SHARING:
            continue
        before = share(branch(victim.candidate.node, case.preemptor.node)).order
        with without(victims):
            case.preemptor.node.use_all(case.preemptor.needs)
            after = share(branch(case.preemptor.node, victim.candidate.node)).order
            case.preemptor.node.use_all(case.preemptor.needs, times=-1)
        assert after <= before


def branch(node: Any, other: Any) -> Any:
    """The part of the tree with `node` in it, below the smallest that has both."""
    above_other = [*other.path()]
    for below, above in pairwise([node, *node.path()]):
        if above in above_other:
            return below
    raise AssertionError("not in one tree")
