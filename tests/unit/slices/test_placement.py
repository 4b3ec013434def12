"""Which worker cluster a new job goes to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicebus.slices.placement import Cluster, place, why_not


def a_cluster(
    name: str, *, accepted: bool = True, cordoned: bool = False, connected: bool = True, weight: int = 1
) -> Cluster:
    return Cluster(name=name, accepted=accepted, cordoned=cordoned, connected=connected, weight=weight)


A, B = a_cluster("a"), a_cluster("b")


@pytest.mark.parametrize(
    ("clusters", "load", "expected"),
    [
        ([], {}, None),
        ([A, B], {}, "a"),
        ([B, A], {}, "a"),
        ([A, B], {"a": 2, "b": 1}, "b"),
        ([A, a_cluster("b", weight=3)], {"a": 1, "b": 2}, "b"),
        ([A, a_cluster("b", weight=3)], {"a": 1, "b": 3}, "a"),
        ([a_cluster("a", weight=0), B], {"a": 1, "b": 2}, "a"),
        ([A], {"gone": 9}, "a"),
        ([a_cluster("a", accepted=False), B], {"b": 9}, "b"),
        ([a_cluster("a", cordoned=True), B], {"b": 9}, "b"),
        ([a_cluster("a", connected=False), B], {"b": 9}, "b"),
        ([a_cluster("a", connected=False)], {}, None),
    ],
    ids=[
        "no cluster",
        "the first by name",
        "whatever their order",
        "the one with fewer jobs",
        "fewer jobs for its weight",
        "equal for their weights, by name",
        "no weight is a weight of one",
        "load of a cluster that is gone",
        "not accepted",
        "cordoned",
        "not connected",
        "none eligible",
    ],
)
def test_place(clusters: list[Cluster], load: dict[str, int], expected: str | None) -> None:
    assert place(clusters, load) == expected


@given(weights=st.lists(st.integers(1, 4), min_size=1, max_size=4), jobs=st.integers(0, 60))
def test_jobs_spread_by_weight(weights: list[int], jobs: int) -> None:
    clusters = [a_cluster(f"c{index}", weight=weight) for index, weight in enumerate(weights)]
    load: dict[str, int] = {}
    for _ in range(jobs):
        chosen = place(clusters, load)
        assert chosen is not None
        load[chosen] = load.get(chosen, 0) + 1
    for cluster in clusters:
        share = jobs * cluster.weight / sum(weights)
        assert abs(load.get(cluster.name, 0) - share) <= max(weights)


@pytest.mark.parametrize(
    ("clusters", "expected"),
    [
        ([], "there is no WorkerCluster"),
        (
            [a_cluster("c", connected=False), a_cluster("b", cordoned=True), a_cluster("a", accepted=False)],
            "a is not accepted, b is cordoned, c is not connected",
        ),
        ([a_cluster("a", accepted=False, cordoned=True, connected=False)], "a is not accepted"),
    ],
    ids=["none", "each by name", "what comes first"],
)
def test_why_not_names_every_obstacle(clusters: list[Cluster], expected: str) -> None:
    assert why_not(clusters) == expected
