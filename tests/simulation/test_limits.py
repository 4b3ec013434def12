"""What fits, counted by the simulation, is what the product admits."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from simulation.limits import excess, fitting
from slicebus.slices.quota.quota import ClusterQueue, Cohort, usage_by_chain
from slicebus.slices.workload.workload import Slice
from support.usage import total_by_queue
from unit.slices.builders import Quota, a_pod_set, a_queue, a_slice, admits, admitted, snapshot

FLAVORS = ("reserved", "spot")
PARENTS = {"all": "", "team": "all", "unit": "team"}
NEXT, MAY_STOP = "TryNextFlavor", "MayStopSearch"


def a_member(name: str, cohort: str, *quotas: Quota, when_can_borrow: str = NEXT) -> ClusterQueue:
    """A queue with so much CPU of each flavor."""
    by_flavor = {flavor: {"cpu": quota} for flavor, quota in zip(FLAVORS, quotas, strict=True)}
    return a_queue(name, by_flavor, cohortName=cohort, flavorFungibility={"whenCanBorrow": when_can_borrow})


def a_cohort(name: str, *quotas: Quota) -> Cohort:
    """The same for a cohort."""
    return Cohort(name=name, parent=PARENTS[name], resource_groups=a_member("", "", *quotas).resource_groups)


def a_job(*counts: int) -> Slice:
    """Of the queue `lq`, with so many pods of each pod set."""
    pod_sets = tuple(a_pod_set(f"pods-{number}", count) for number, count in enumerate(counts))
    return a_slice("job", pod_sets=pod_sets, queue="lq", job_uid="job")


def counted(slice: Slice, others: list[Slice], queues: list[ClusterQueue], cohorts: list[Cohort]) -> list[str]:
    """The flavor of each pod set, by the simulation: "" for no pods. Nothing where the slice waits."""
    return [flavor for _, _, flavor in fitting(slice, [slice, *others], queues, cohorts) or ()]


def given_by_cycle(slice: Slice, others: list[Slice], queues: list[ClusterQueue], cohorts: list[Cohort]) -> list[str]:
    """The same by the product."""
    found = admits(snapshot(slice, *others, queues=queues, cohorts=cohorts))
    return [assignment.flavors.get("cpu", "") for admit in found for assignment in admit.admission.pod_sets]


@pytest.mark.parametrize(("when_can_borrow", "flavors"), [(MAY_STOP, ["reserved", "spot"]), (NEXT, [])])
def test_a_flavor_that_is_borrowed_less_far_up_goes_to_the_first_pod_set_although_the_next_one_needs_it(
    when_can_borrow: str, flavors: list[str]
) -> None:
    queues = [a_member("lq", "team", "0", "0", when_can_borrow=when_can_borrow)]
    cohorts = [a_cohort("all", "1", "0"), a_cohort("team", "0", "2")]
    assert counted(a_job(1, 2), [], queues, cohorts) == flavors
    assert given_by_cycle(a_job(1, 2), [], queues, cohorts) == flavors


amount = st.integers(0, 5).map(str)
limit = st.one_of(st.none(), amount)
quotas = st.tuples(*[st.tuples(amount, limit, limit)] * 2)
cohort_names = st.sampled_from(list(PARENTS))


@given(
    own=st.tuples(cohort_names, quotas, st.sampled_from([NEXT, MAY_STOP])),
    other=st.tuples(cohort_names, quotas),
    inner=st.tuples(*[quotas] * 3),
    counts=st.lists(st.integers(0, 4), min_size=1, max_size=3),
    used=st.lists(st.tuples(st.sampled_from(["lq", "other"]), st.sampled_from(FLAVORS), st.integers(1, 4)), max_size=3),
)
def test_what_fits_is_admitted_with_the_same_flavors(
    own: tuple[str, tuple[Quota, Quota], str],
    other: tuple[str, tuple[Quota, Quota]],
    inner: tuple[tuple[Quota, Quota], ...],
    counts: list[int],
    used: list[tuple[str, str, int]],
) -> None:
    cohorts = [a_cohort(name, *found) for name, found in zip(PARENTS, inner, strict=True)]
    queues = [a_member("lq", own[0], *own[1], when_can_borrow=own[2]), a_member("other", other[0], *other[1])]
    others = [
        admitted(a_slice(f"other-{number}", count, job_uid=f"other-{number}"), flavor=flavor, queue=queue)
        for number, (queue, flavor, count) in enumerate(used)
    ]
    assume(not excess(queues, cohorts, total_by_queue(usage_by_chain(others))))
    slice = a_job(*counts)
    assert counted(slice, others, queues, cohorts) == given_by_cycle(slice, others, queues, cohorts)
