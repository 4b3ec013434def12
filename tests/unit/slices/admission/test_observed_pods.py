"""A chain whose pods request more than it was admitted with grows into what its cluster has.

The cluster reports the rest as used by others, some time after the pods have come.
"""

import msgspec
import pytest

from slicebus.slices.admission.cycle import Admit, Wait, cycle
from slicebus.slices.placement.fleet import Cluster
from slicebus.slices.workload.observed import Observed, ObservedPods
from slicebus.slices.workload.workload import FlavorName, Slice
from unit.slices.builders import WORKER, a_queue, a_slice, admits, admitted, replacement, snapshot

DEFAULT = FlavorName("default")
TWO_CORES = Observed(cluster="worker", pod_sets={"main": ObservedPods(requests={"cpu": 2000})})
"""Each pod requests two cores, and one by its template."""
HOLDER = admitted(a_slice("s1", 2)).with_observed(TWO_CORES)
"""Admitted with two cores, and uses four."""
WIDE = a_queue(quotas={"default": {"cpu": "100"}})


def worker(cores: int, *, others: int = 0, cap: int | None = None) -> Cluster:
    """A cluster that reports that much, in cores."""
    return msgspec.structs.replace(
        WORKER,
        capacity={DEFAULT: {"cpu": cores * 1000}},
        others={DEFAULT: {"cpu": others * 1000}},
        max_room={} if cap is None else {"cpu": cap * 1000},
    )


def grown(count: int, *, partial: bool = False) -> Slice:
    return replacement(HOLDER, "s2", count, partial=partial).with_observed(TWO_CORES)


@pytest.mark.parametrize(
    ("cluster", "cores"),
    [
        (worker(6), 6),
        (worker(6, others=2), 6),
        (worker(9, others=5), 6),
        (worker(5), None),
        (worker(5, others=2), None),
        (worker(8, others=5), None),
        (worker(6, cap=6), 6),
        (worker(6, others=2, cap=5), None),
    ],
    ids=[
        "not reported yet",
        "reported",
        "reported, beside foreign pods",
        "not reported yet, and there is too little",
        "reported, and there is too little",
        "beside foreign pods, and there is too little",
        "as much as its cap",
        "past its cap",
    ],
)
def test_a_chain_grows_into_what_its_cluster_has(cluster: Cluster, cores: int | None) -> None:
    """By a third pod, to six cores in all."""
    [decision] = cycle(snapshot(HOLDER, grown(3), clusters=[cluster]))
    if cores is None:
        assert isinstance(decision, Wait)
        assert "cluster worker, where the job runs, has no room for it" in decision.message
    else:
        assert isinstance(decision, Admit)
        assert decision.admission.pod_sets[0].usage == {"cpu": cores * 1000}


@pytest.mark.parametrize("others", [0, 2], ids=["not reported yet", "reported"])
def test_it_gets_the_part_that_its_cluster_has(others: int) -> None:
    [admit] = admits(snapshot(HOLDER, grown(9, partial=True), clusters=[worker(7, others=others)], queues=[WIDE]))
    assert admit.admission.counts == {"main": 3}


@pytest.mark.parametrize(("others", "left"), [(0, 4), (2, 2)], ids=["not reported yet", "reported"])
@pytest.mark.parametrize("more", [0, 1], ids=["all that is left", "more"])
def test_another_job_gets_what_is_left(others: int, left: int, more: int) -> None:
    """The chain takes six of ten cores. What was reported of its pods is gone with the next report only."""
    other = a_slice("s3", left + more, job_uid="k")
    world = snapshot(HOLDER, grown(3), other, clusters=[worker(10, others=others)], queues=[WIDE])
    assert [admit.key for admit in admits(world)] == ["team/s2", "team/s3"][: 2 - more]
