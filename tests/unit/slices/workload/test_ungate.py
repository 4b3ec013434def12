"""Which pods may start. Never more than granted; multi-host replicas together or not at all."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicebus.slices.jobs import ray
from slicebus.slices.workload.ungate import Pod, PodSets, by_pod_set, could_start, is_gated, pod_set_of, to_ungate

GATE = "kueue.x-k8s.io/elastic-job"
POD_SET = "kueue.x-k8s.io/podset"
REPLICA = "ray.io/worker-group-replica-name"


def a_pod(
    name: str,
    *,
    gated: bool = True,
    pod_set: str = "main",
    replica: str = "",
    phase: str = "Pending",
    deleting: bool = False,
    gates: tuple[str, ...] = (),
) -> dict[str, Any]:
    labels = {POD_SET: pod_set} | ({REPLICA: replica} if replica else {})
    all_gates = [*gates, GATE] if gated else list(gates)
    return {
        "metadata": {"name": name, "labels": labels} | ({"deletionTimestamp": "now"} if deleting else {}),
        "spec": {"schedulingGates": [{"name": gate} for gate in all_gates]} if all_gates else {},
        "status": {"phase": phase},
    }


def running(name: str, **fields: Any) -> dict[str, Any]:
    return a_pod(name, gated=False, **({"phase": "Running"} | fields))


def in_sets(pods: Iterable[dict[str, Any]]) -> PodSets:
    return by_pod_set(map(Pod.from_manifest, pods))


def names(pods: list[dict[str, Any]]) -> list[str]:
    return [pod["metadata"]["name"] for pod in pods]


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (a_pod("p"), True),
        (running("p"), False),
        (a_pod("p", gates=("example.com/other",)), True),
        (running("p", gates=("example.com/other",)), False),
        ({"metadata": {"name": "p"}, "spec": {"schedulingGates": None}}, False),
    ],
    ids=["ours", "none", "ours among others", "only another's", "null"],
)
def test_only_our_gate_counts(pod: dict[str, Any], expected: bool) -> None:
    assert is_gated(pod) is expected


READY = {"type": "Ready", "status": "True"}
RUNS = running("p", phase="Pending")
STANDS: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "scheduled": (RUNS, {"spec": {"nodeName": "n1"}}, True),
    "not ready": (RUNS, {"status": {"phase": "Running", "conditions": [READY | {"status": "False"}]}}, True),
    "ready": (RUNS, {"status": {"phase": "Running", "conditions": [READY]}}, False),
    "over": (RUNS, {"status": {"phase": "Failed"}}, False),
    "going": (RUNS, {"metadata": running("p", deleting=True)["metadata"]}, False),
    "goes as before": (running("p", deleting=True), {"spec": {"nodeName": "n1"}}, True),
    "in another pod set": (RUNS, {"metadata": running("p", pod_set="other")["metadata"]}, False),
    "of another job": (RUNS, {"metadata": {"name": "p", "labels": {POD_SET: "main", "job-name": "other"}}}, False),
    "started": (a_pod("p"), {"spec": {}}, False),
    "waits as before": (a_pod("p"), {"status": {"phase": "Pending", "qosClass": "Burstable"}}, False),
    "waits and is going": (a_pod("p"), {"metadata": a_pod("p", deleting=True)["metadata"]}, False),
}


@pytest.mark.parametrize(("before", "change", "expected"), STANDS.values(), ids=STANDS.keys())
def test_a_change_that_no_decision_uses_leaves_a_pod_as_it_was(
    before: dict[str, Any], change: dict[str, Any], expected: bool
) -> None:
    assert Pod.from_manifest(before | change).stands_as(Pod.from_manifest(before)) is expected


def test_the_pod_set_is_the_label_of_the_template() -> None:
    assert pod_set_of(a_pod("p", pod_set="small")) == "small"
    assert pod_set_of({"metadata": {"name": "p"}}) == ""


CASES: dict[str, tuple[list[dict[str, Any]], dict[str, int], list[str]]] = {
    "nothing granted": ([a_pod("a")], {}, []),
    "all that is granted, lowest name first": ([a_pod("c"), a_pod("a"), a_pod("b")], {"main": 2}, ["a", "b"]),
    "less there than granted": ([a_pod("a")], {"main": 5}, ["a"]),
    "what runs is taken off": ([running("a"), a_pod("b"), a_pod("c")], {"main": 2}, ["b"]),
    "full": ([running("a"), a_pod("b")], {"main": 1}, []),
    "more run than is granted": ([running("a"), running("b"), a_pod("c")], {"main": 1}, []),
    "a recreated pod comes by the same rule": ([running("b"), running("c"), a_pod("a")], {"main": 3}, ["a"]),
    "a terminating pod still runs": ([running("a", deleting=True), a_pod("b")], {"main": 1}, []),
    "a succeeded pod does not": ([running("a", phase="Succeeded"), a_pod("b")], {"main": 1}, ["b"]),
    "a failed pod does not": ([running("a", phase="Failed"), a_pod("b")], {"main": 1}, ["b"]),
    "a gated pod that failed is not started": ([a_pod("a", phase="Failed"), a_pod("b")], {"main": 1}, ["b"]),
    "a gated pod that goes is not started": ([a_pod("a", deleting=True), a_pod("b")], {"main": 1}, ["b"]),
    "pod sets apart": (
        [a_pod("w1", pod_set="small"), a_pod("w2", pod_set="small"), a_pod("h", pod_set="head")],
        {"head": 1, "small": 1},
        ["h", "w1"],
    ),
    "one pod set's room is not another's": ([a_pod("a", pod_set="large")], {"small": 5}, []),
    "a pod of no pod set": (
        [{"metadata": {"name": "a"}, "spec": {"schedulingGates": [{"name": GATE}]}}],
        {"main": 1},
        [],
    ),
}


@pytest.mark.parametrize(("pods", "granted", "expected"), CASES.values(), ids=CASES.keys())
def test_to_ungate(pods: list[dict[str, Any]], granted: dict[str, int], expected: list[str]) -> None:
    assert names(to_ungate(in_sets(pods), granted)) == expected


MULTI_HOST: dict[str, tuple[list[dict[str, Any]], int, list[str]]] = {
    "a whole replica": ([a_pod("a", replica="r1"), a_pod("b", replica="r1")], 2, ["a", "b"]),
    "no room for a whole replica": ([a_pod("a", replica="r1"), a_pod("b", replica="r1")], 1, []),
    "a replica that is not complete yet": ([a_pod("a", replica="r1")], 4, []),
    "one of two fits": (
        [a_pod(f"{replica}-{host}", replica=replica) for replica in ("r2", "r1") for host in (0, 1)],
        3,
        ["r1-0", "r1-1"],
    ),
    "a recreated host joins its replica": ([running("a", replica="r1"), a_pod("b", replica="r1")], 2, ["b"]),
    "without names a whole replica": ([a_pod("a"), a_pod("b"), a_pod("c")], 4, ["a", "b"]),
    "without names no room for a whole one": ([a_pod("a"), a_pod("b")], 1, []),
    "without names what is granted beyond whole ones stays": ([a_pod(name) for name in "abcd"], 3, ["a", "b"]),
    "without names one host is none": ([a_pod("a")], 4, []),
    "without names a recreated host": ([running("a"), a_pod("b")], 2, ["b"]),
    "without names a recreated host, then a whole one": ([running("a"), *map(a_pod, "bcde")], 9, ["b", "c", "d"]),
    "without names a host beside one that goes": (
        [running("a", deleting=True), running("b"), a_pod("c"), a_pod("d")],
        3,
        ["c"],
    ),
    "a replica with a name, and others without": (
        [a_pod("a", replica="r1"), a_pod("b", replica="r1"), running("c"), running("d"), a_pod("e")],
        6,
        ["a", "b"],
    ),
    "a replica that is going is not complete": (
        [a_pod("a", replica="r1", deleting=True), a_pod("b", replica="r1")],
        4,
        [],
    ),
    "a host that goes while its successor waits for room": (
        [running("a", replica="r1", deleting=True), running("b", replica="r1"), a_pod("c", replica="r1")],
        2,
        [],
    ),
    "a host that is gone and its successor": (
        [running("a", replica="r1", phase="Failed"), running("b", replica="r1"), a_pod("c", replica="r1")],
        2,
        ["c"],
    ),
}


@pytest.mark.parametrize(("pods", "granted", "expected"), MULTI_HOST.values(), ids=MULTI_HOST.keys())
def test_hosts_of_a_replica_start_together(pods: list[dict[str, Any]], granted: int, expected: list[str]) -> None:
    assert (
        names(to_ungate(in_sets(pods), {"main": granted}, replica=ray.replica, replica_size=lambda _set, _owner: 2))
        == expected
    )


def of(cluster: str, pod: dict[str, Any]) -> dict[str, Any]:
    """The same of a cluster, whose UID is its name."""
    owner = {"kind": "RayCluster", "name": cluster, "uid": cluster, "controller": True}
    return pod | {"metadata": pod["metadata"] | {"ownerReferences": [owner]}}


def clusters(*found: str) -> list[dict[str, Any]]:
    return [{"kind": "RayCluster", "metadata": {"name": name, "uid": name}} for name in found]


def test_pods_of_the_owner_that_comes_first_start_first() -> None:
    pods = in_sets([of("next", a_pod("a")), of("serves", a_pod("b")), of("next", a_pod("c"))])
    assert names(to_ungate(pods, {"main": 2}, owners=clusters("serves", "next"))) == ["b", "a"]
    assert names(to_ungate(pods, {"main": 2}, owners=clusters("next", "serves"))) == ["a", "c"]


def test_hosts_of_two_owners_make_no_replica() -> None:
    sizes = {"serves": 2, "next": 3}
    pods = [of("serves", a_pod("a")), *(of("next", a_pod(name)) for name in "bcd"), of("serves", running("e"))]
    chosen = to_ungate(
        in_sets(pods),
        {"main": 9},
        owners=clusters("serves", "next"),
        replica_size=lambda _set, owner: sizes[owner],
    )
    assert names(chosen) == ["a", "b", "c", "d"]
    few = to_ungate(in_sets(pods[:3]), {"main": 9}, replica_size=lambda _set, owner: sizes[owner])
    assert few == []


pods = st.lists(
    st.builds(
        a_pod,
        name=st.integers(0, 99).map(lambda index: f"p{index:02}"),
        gated=st.booleans(),
        pod_set=st.sampled_from(["head", "small", "large", ""]),
        replica=st.sampled_from(["", "r1", "r2", "r3"]),
        phase=st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
        deleting=st.booleans(),
    ),
    unique_by=lambda pod: pod["metadata"]["name"],
    max_size=30,
)
granted_counts = st.dictionaries(st.sampled_from(["head", "small", "large"]), st.integers(0, 12))


def started(members: list[dict[str, Any]], pod_set: str) -> int:
    return sum(
        not is_gated(pod) and pod_set_of(pod) == pod_set and pod["status"]["phase"] not in ("Succeeded", "Failed")
        for pod in members
    )


@given(members=pods, granted=granted_counts, size=st.sampled_from([1, 2, 3]))
def test_ungating_never_passes_the_granted_counts(
    members: list[dict[str, Any]], granted: dict[str, int], size: int
) -> None:
    chosen = to_ungate(
        in_sets(members), granted, replica_size=lambda pod_set, _owner: size if pod_set == "large" else 1
    )
    assert all(is_gated(pod) for pod in chosen)
    for pod_set in ("head", "small", "large", ""):
        before = started(members, pod_set)
        more = sum(pod_set_of(pod) == pod_set for pod in chosen)
        assert more == 0 or before + more <= granted.get(pod_set, 0)


@given(members=pods, granted=granted_counts)
def test_ungating_again_after_it_was_done_finds_nothing(members: list[dict[str, Any]], granted: dict[str, int]) -> None:
    chosen = set(names(to_ungate(in_sets(members), granted)))
    after = [pod | {"spec": {}} if pod["metadata"]["name"] in chosen else pod for pod in members]
    assert to_ungate(in_sets(after), granted) == []


@given(members=pods, granted=granted_counts)
def test_no_pod_waits_while_its_pod_set_has_room(members: list[dict[str, Any]], granted: dict[str, int]) -> None:
    chosen = set(names(to_ungate(in_sets(members), granted)))
    for pod in members:
        waits = is_gated(pod) and pod["metadata"]["name"] not in chosen
        startable = pod["status"]["phase"] not in ("Succeeded", "Failed") and "deletionTimestamp" not in pod["metadata"]
        if waits and startable:
            mine = pod_set_of(pod)
            taken = started(members, mine) + sum(
                pod_set_of(p) == mine and p["metadata"]["name"] in chosen for p in members
            )
            assert taken >= granted.get(mine, 0)


# --- which may be about to start ------------------------------------------------------------------------------------

OTHERS = (running("r1", pod_set="other"), a_pod("g3", pod_set="other"))
COULD_START: dict[str, tuple[tuple[dict[str, Any], ...], list[str]]] = {
    "none waits": ((running("r1"), running("r2")), []),
    "there is room for one of two": ((running("r1"), a_pod("g1"), a_pod("g2")), ["g1", "g2"]),
    "there is none": ((running("r1"), running("r2"), a_pod("g1")), []),
    "what is over takes none": ((running("r1"), running("r2", phase="Failed"), a_pod("g1")), ["g1"]),
    "what is terminating does": ((running("r1"), running("r2", deleting=True), a_pod("g1")), []),
    "each pod set for itself": ((running("r1"), a_pod("g1"), *OTHERS), ["g1"]),
    "a replica that is not complete": ((running("r1"), a_pod("g1", replica="a")), ["g1"]),
}


@pytest.mark.parametrize(("pods", "expected"), COULD_START.values(), ids=COULD_START.keys())
def test_while_there_is_room_any_pod_may_be_the_next(pods: tuple[dict[str, Any], ...], expected: list[str]) -> None:
    assert names(could_start(in_sets(pods), {"main": 2, "other": 1})) == expected


@given(
    st.lists(st.tuples(st.sampled_from(["main", "other"]), st.booleans()), max_size=8),
    st.dictionaries(st.sampled_from(["main", "other"]), st.integers(0, 4)),
    st.data(),
)
def test_whatever_was_picked_before_could_still_start_when_the_rest_has_started(
    made: list[tuple[str, bool]], granted: dict[str, int], data: st.DataObject
) -> None:
    pods = [a_pod(f"p{number}", pod_set=pod_set, gated=gated) for number, (pod_set, gated) in enumerate(made)]
    picked = names(to_ungate(in_sets(pods), granted))
    started = data.draw(st.sets(st.sampled_from(picked))) if picked else set()
    now = [
        running(pod["metadata"]["name"], pod_set=pod_set_of(pod)) if name in started else pod
        for pod in pods
        for name in [pod["metadata"]["name"]]
    ]
    assert set(picked) - started <= set(names(could_start(in_sets(now), granted)))
