"""The worker cluster of a new job, and the room of each cluster."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicebus.slices.api.selectors import parse_selector
from slicebus.slices.placement.fleet import Cluster, Fleet, Strategy, Tenant, describe_room
from slicebus.slices.quota.quota import Usage
from slicebus.slices.workload.workload import FlavorName

CPU = FlavorName("default"), "cpu"
GPU = FlavorName("gpu"), "nvidia.com/gpu"
ONE: Usage = {CPU: 1000}


def a_cluster(name: str, *, cpu: int | None = None, others: int = 0, **changes: Any) -> Cluster:
    """A cluster that takes jobs, with so many cores in flavor `default` or without a limit."""
    room = (
        {} if cpu is None else {"capacity": {CPU[0]: {"cpu": cpu * 1000}}, "others": {CPU[0]: {"cpu": others * 1000}}}
    )
    return Cluster(**{"name": name, "accepted": True, "cordoned": False, "connected": True} | room | changes)


def a_fleet(*clusters: Cluster, load: Mapping[str, int] | None = None, cpu: Mapping[str, int] | None = None) -> Fleet:
    """Clusters with so many chains, that were granted so many cores."""
    return Fleet(clusters, load or {}, {name: {CPU: cores * 1000} for name, cores in (cpu or {}).items()})


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
        ([a_cluster("a", draining=True), B], {"b": 9}, "b"),
        ([a_cluster("a", connected=False), B], {"b": 9}, "b"),
        ([a_cluster("a", connected=False)], {}, None),
        ([a_cluster("a", cpu=1), a_cluster("b", cpu=1)], {"b": 9}, "a"),
        ([a_cluster("a", cpu=0), a_cluster("b", cpu=1)], {"b": 9}, "b"),
        ([a_cluster("a", cpu=2, others=2), a_cluster("b", cpu=1)], {"b": 9}, "b"),
        ([a_cluster("a", cpu=1, others=2)], {}, None),
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
        "drained",
        "not connected",
        "none eligible",
        "with room",
        "without room",
        "others use it",
        "others use more than there is",
    ],
)
def test_spread(clusters: list[Cluster], load: dict[str, int], expected: str | None) -> None:
    assert a_fleet(*clusters, load=load).place(Strategy.SPREAD, ONE) == expected


@pytest.mark.parametrize(
    ("clusters", "granted", "expected"),
    [
        ([a_cluster("a", cpu=8), a_cluster("b", cpu=8)], {}, ["a", "b"]),
        ([a_cluster("a", cpu=8), a_cluster("b", cpu=8)], {"a": 2, "b": 6}, ["b", "a"]),
        ([a_cluster("a", cpu=8), a_cluster("b", cpu=8, others=6)], {"a": 2}, ["b", "a"]),
        ([a_cluster("a", cpu=40), a_cluster("b", cpu=4)], {"a": 20, "b": 1}, ["a", "b"]),
        ([A, a_cluster("b", cpu=8)], {}, ["b", "a"]),
        ([a_cluster("a", cpu=0), a_cluster("b", cpu=8)], {}, ["a", "b"]),
    ],
    ids=["by name", "most granted", "most used by others", "by share", "without a limit last", "nothing there at all"],
)
def test_pack_fills_the_fullest_first(clusters: list[Cluster], granted: dict[str, int], expected: list[str]) -> None:
    assert [*a_fleet(*clusters, cpu=granted).candidates(Strategy.PACK, ONE)] == expected


def test_pack_goes_on_to_the_next_when_the_fullest_has_no_room() -> None:
    fleet = a_fleet(a_cluster("a", cpu=8), a_cluster("b", cpu=4), cpu={"b": 3})
    placed = []
    for _ in range(3):
        cluster = fleet.place(Strategy.PACK, ONE)
        assert cluster is not None
        fleet.take(cluster, ONE, chains=1)
        placed.append(cluster)
    assert placed == ["b", "a", "a"]


def test_ordered_goes_by_priority_and_then_by_name() -> None:
    fleet = a_fleet(B, A, a_cluster("z", priority=5, cpu=1), a_cluster("y", priority=-1), load={"a": 9})
    assert [*fleet.candidates(Strategy.ORDERED, ONE)] == ["z", "a", "b", "y"]
    fleet.take("z", ONE, chains=1)
    assert fleet.place(Strategy.ORDERED, ONE) == "a"


@pytest.mark.parametrize(
    ("cluster", "needs", "expected"),
    [
        (a_cluster("a", cpu=4), {CPU: 4000}, {}),
        (a_cluster("a", cpu=4), {CPU: 4001}, {CPU: 1}),
        (a_cluster("a", cpu=4), {CPU: 1000, GPU: 1}, {GPU: 1}),
        (a_cluster("a", cpu=4), {CPU: 1000, GPU: 0}, {}),
        (a_cluster("a", cpu=0), {CPU: -1000}, {}),
        (a_cluster("a", cpu=4, unlimited=frozenset({GPU[0]})), {CPU: 5000, GPU: 1}, {CPU: 1000}),
        (A, {CPU: 10**9, GPU: 10**9}, {}),
    ],
    ids=[
        "all of it",
        "one too much",
        "a flavor that is not reported",
        "nothing of it",
        "a size that shrinks",
        "one flavor without a limit",
        "no limit at all",
    ],
)
def test_the_shortage_of_a_cluster(cluster: Cluster, needs: Usage, expected: Usage) -> None:
    assert a_fleet(cluster).short("a", needs) == expected


def test_an_unknown_cluster_has_no_limit() -> None:
    """Its chains stay where they are until somebody moves them."""
    assert a_fleet().short("gone", ONE) == {}


@given(weights=st.lists(st.integers(1, 4), min_size=1, max_size=4), jobs=st.integers(0, 60))
def test_jobs_spread_by_weight(weights: list[int], jobs: int) -> None:
    clusters = [a_cluster(f"c{index}", weight=weight) for index, weight in enumerate(weights)]
    fleet, load = a_fleet(*clusters), dict[str, int]()
    for _ in range(jobs):
        chosen = fleet.place(Strategy.SPREAD, ONE)
        assert chosen is not None
        fleet.take(chosen, ONE, chains=1)
        load[chosen] = load.get(chosen, 0) + 1
    for cluster in clusters:
        share = jobs * cluster.weight / sum(weights)
        assert abs(load.get(cluster.name, 0) - share) <= max(weights)


@given(
    strategy=st.sampled_from(Strategy),
    sizes=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(-2, 2)), max_size=4),
    needs=st.lists(st.integers(1, 5), max_size=20),
)
def test_a_placed_slice_has_room(strategy: Strategy, sizes: list[tuple[int, int, int]], needs: list[int]) -> None:
    clusters = [
        a_cluster(f"c{index}", cpu=cpu, others=others, priority=priority)
        for index, (cpu, others, priority) in enumerate(sizes)
    ]
    fleet, again, placed = a_fleet(*clusters), a_fleet(*reversed(clusters)), dict[str, int]()
    for cores in needs:
        chosen = fleet.place(strategy, {CPU: cores * 1000})
        assert again.place(strategy, {CPU: cores * 1000}) == chosen
        if chosen is None:
            assert all(
                cores > max(0, cpu - others) - placed.get(f"c{i}", 0) for i, (cpu, others, _) in enumerate(sizes)
            )
            continue
        for use in (fleet, again):
            use.take(chosen, {CPU: cores * 1000}, chains=1)
        placed[chosen] = placed.get(chosen, 0) + cores
    for index, (cpu, others, _) in enumerate(sizes):
        assert placed.get(f"c{index}", 0) <= max(0, cpu - others)


OBSTACLES: dict[str, tuple[list[Cluster], str]] = {
    "none": ([], "there is no WorkerCluster"),
    "each by name": (
        [a_cluster("c", connected=False), a_cluster("b", cordoned=True), a_cluster("a", accepted=False)],
        "a is not accepted, b is cordoned, c is not connected",
    ),
    "those first that lack room": (
        [
            a_cluster("a", draining=True),
            a_cluster("b", labels={"region": "us"}),
            a_cluster("c", cpu=2, others=2, labels={"region": "eu"}),
            a_cluster("d", capacity={}, labels={"region": "eu"}),
        ],
        "c lacks 1 more cpu in flavor default, d has not reported flavor default, "
        "a is drained, b is not among the clusters that the job selects",
    ),
    "what comes first": ([a_cluster("a", accepted=False, cordoned=True, connected=False)], "a is not accepted"),
    "not too many": (
        [a_cluster(name, cordoned=True) for name in "abcdefg"],
        "a is cordoned, b is cordoned, c is cordoned, d is cordoned, e is cordoned, and 2 more",
    ),
}


@pytest.mark.parametrize(("clusters", "expected"), OBSTACLES.values(), ids=OBSTACLES.keys())
def test_why_not_names_every_obstacle(clusters: list[Cluster], expected: str) -> None:
    assert a_fleet(*clusters).why_not([ONE], tenant=Tenant(selector=parse_selector("region=eu"))) == expected


TEAM = Tenant(
    selector=parse_selector("region=eu"), namespace="team", namespace_labels={"stage": "test"}, cluster_queue="cq"
)
TAKES: dict[str, tuple[dict[str, Any], str]] = {
    "its namespace": ({"namespace_selector": {"matchLabels": {"stage": "test"}}}, ""),
    "any namespace": ({"namespace_selector": {}}, ""),
    "other namespaces": (
        {"namespace_selector": {"matchLabels": {"stage": "production"}}},
        "a takes no jobs of namespace team",
    ),
    "a namespace that it lacks": ({"lacking": {"team": "NotFound"}}, "a has no namespace team"),
    "a namespace that is going": ({"lacking": {"team": "Terminating"}}, "a is removing its namespace team"),
    "a namespace that it does not allow": (
        {"lacking": {"team": "NamespaceNotAllowed"}},
        "a does not allow jobs in namespace team",
    ),
    "a reason of a later agent": ({"lacking": {"team": "Full"}}, "a takes no jobs of namespace team: Full"),
    "other namespaces that it lacks": ({"lacking": {"other": "NotFound"}}, ""),
    "its queue": ({"cluster_queues": frozenset({"cq", "other"})}, ""),
    "other queues": ({"cluster_queues": frozenset({"other"})}, "a takes no jobs of ClusterQueue cq"),
    "no queue": ({"cluster_queues": frozenset[str]()}, "a takes no jobs of ClusterQueue cq"),
}


@pytest.mark.parametrize(
    ("chosen", "found", "obstacle"),
    [
        ("", (), ""),
        ("", ("kube",), ""),
        ("kai", ("default", "kai"), ""),
        ("kai", ("default", "kube"), "a has no scheduler backend kai, only default, kube"),
        ("kai", (), "a has no scheduler backend kai"),
    ],
    ids=["none is chosen", "whatever is there", "it is there", "others are there", "nothing is reported"],
)
def test_a_cluster_needs_the_scheduler_that_the_job_chooses(chosen: str, found: tuple[str, ...], obstacle: str) -> None:
    fleet, tenant = a_fleet(a_cluster("a", scheduler_backends=found)), Tenant(scheduler=chosen)
    assert fleet.place(Strategy.SPREAD, ONE, tenant=tenant) == (None if obstacle else "a")
    assert not obstacle or fleet.why_not([ONE], tenant=tenant) == obstacle


def test_a_cluster_where_the_pods_did_not_get_ready_comes_later() -> None:
    fleet, tenant = a_fleet(A, B), Tenant(avoids=frozenset({"a"}))
    assert fleet.place(Strategy.SPREAD, ONE, tenant=tenant) == "b"
    assert fleet.place(Strategy.SPREAD, ONE, tenant=tenant, first="a") == "b"
    nowhere = Tenant(avoids=frozenset({"a", "b"}))
    assert fleet.place(Strategy.SPREAD, ONE, tenant=nowhere) is None
    why = "did not get its pods ready in time, and is tried again later"
    assert fleet.why_not([ONE], tenant=nowhere) == f"a {why}, b {why}"


@pytest.mark.parametrize(("rules", "obstacle"), TAKES.values(), ids=TAKES.keys())
def test_a_cluster_takes_the_jobs_of_its_tenants_whatever_they_select(rules: dict[str, Any], obstacle: str) -> None:
    fleet = a_fleet(a_cluster("a", labels={"region": "eu"}, **rules))
    assert fleet.place(Strategy.SPREAD, ONE, tenant=TEAM) == (None if obstacle else "a")
    if obstacle:
        assert fleet.why_not([ONE], tenant=TEAM) == obstacle


LIAR = {"capacity": {CPU[0]: {"cpu": 10**9}, GPU[0]: {"cpu": 10**9}}, "max_room": {"cpu": 4000}}
CAPPED: dict[str, tuple[Cluster, Usage, Usage]] = {
    "it fits under the cap": (a_cluster("a", **LIAR), {CPU: 2000}, {}),
    "it does not": (a_cluster("a", **LIAR), {CPU: 3001}, {(FlavorName("maxRoom"), "cpu"): 1001}),
    "in two flavors together": (
        a_cluster("a", **LIAR),
        {CPU: 1500, (GPU[0], "cpu"): 1500},
        {(FlavorName("maxRoom"), "cpu"): 1000},
    ),
    "another resource": (a_cluster("a", cpu=None, max_room={"memory": 1}), {CPU: 9000}, {}),
    "nodes on demand": (
        a_cluster("a", max_room={"cpu": 4000}),
        {CPU: 9000},
        {(FlavorName("maxRoom"), "cpu"): 7000},
    ),
    "less is reported": (a_cluster("a", cpu=3, max_room={"cpu": 4000}), {CPU: 2000}, {CPU: 1000}),
    "it gives something back": (a_cluster("a", max_room={"cpu": 1000}), {CPU: -1000}, {}),
}


@pytest.mark.parametrize(("cluster", "needs", "short"), CAPPED.values(), ids=CAPPED.keys())
def test_a_cluster_gets_no_more_than_its_cap_whatever_it_reports(cluster: Cluster, needs: Usage, short: Usage) -> None:
    assert a_fleet(cluster, cpu={"a": 2}).short("a", needs) == short


def test_a_capped_cluster_says_so_and_is_full_by_its_cap() -> None:
    liar, honest = a_cluster("a", **LIAR), a_cluster("b", cpu=8)
    assert a_fleet(liar, cpu={"a": 4}).why_not([ONE]) == "a lacks 1 more cpu of its maxRoom"
    assert [*a_fleet(liar, honest, cpu={"a": 3, "b": 4}).candidates(Strategy.PACK, ONE)] == ["a", "b"]
    assert [*a_fleet(liar, honest, cpu={"a": 1, "b": 4}).candidates(Strategy.PACK, ONE)] == ["b", "a"]
    capped = a_cluster("a", cpu=8, max_room={"cpu": 4000})
    assert describe_room(capped, {CPU: 1000}) == "default 7/8 cpu; maxRoom 3/4 cpu"
    assert describe_room(a_cluster("a", max_room={"memory": 2**31}), {}) == "unlimited; maxRoom 2/2Gi"


IN_FLAVORS: dict[str, tuple[Cluster, str]] = {
    "all": (a_cluster("a", capacity={CPU[0]: {"cpu": 0}, GPU[0]: {"cpu": 500}}), "a lacks {cpu} or {gpu}"),
    "one that is not reported": (a_cluster("a", cpu=0), "a lacks {cpu} and has not reported flavor gpu"),
    "one with room does not help": (a_cluster("a", cpu=0, unlimited=frozenset([GPU[0]])), "a lacks {cpu}"),
}


@pytest.mark.parametrize(("cluster", "expected"), IN_FLAVORS.values(), ids=IN_FLAVORS.keys())
def test_why_not_names_what_is_lacking_in_each_flavor(cluster: Cluster, expected: str) -> None:
    lacks = {"cpu": "1 more cpu in flavor default", "gpu": "1500m more cpu in flavor gpu"}
    assert a_fleet(cluster).why_not([ONE, {(GPU[0], "cpu"): 2000}]) == expected.format(**lacks)
