"""The capacity and use that a cluster reports: which nodes and pods count for which flavor."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicebus.agent.decide.cluster.capacity import CapacityFigures, Granted, PodUse, room, slim, within_grant
from slicebus.agent.state import annotations
from slicebus.kube.cache import Cache
from slicebus.proto.messages import Flavor
from slicebus.slices.api import api_names
from slicebus.slices.workload.workload import FlavorName
from unit.agent.objects import NOW, a_copy, a_job, a_pod, a_view

Manifest = dict[str, Any]
TAINT = {"key": "gpu", "value": "a100", "effect": "NoSchedule"}
WHOLE, GPU = "", Flavor(name="gpu", node_labels={"pool": "gpu"})
CPU = FlavorName("default")


def a_node(
    name: str = "n", *, ready: bool = True, pool: str = "", taints: Any = (), cordoned: bool = False
) -> Manifest:
    return {
        "metadata": {"name": name, "labels": {"pool": pool}},
        "spec": {"taints": [*taints], **({"unschedulable": True} if cordoned else {})},
        "status": {
            "allocatable": {"cpu": "8", "pods": "10", "hugepages-2Mi": "0"},
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


def a_bound_pod(name: str, node: str | None = "n", *, phase: str = "Running", version: int = 1) -> Manifest:
    pod = a_pod(name, phase=phase)
    pod["spec"] = pod["spec"] | ({"nodeName": node} if node else {})
    pod["metadata"]["resourceVersion"] = str(version)
    return pod


def found(*nodes: Manifest, flavors: tuple[Flavor, ...] = (), **given: Any) -> CapacityFigures:
    return room(flavors, nodes=nodes, use=given.get("use", {}), granted=given.get("granted", ()))


def test_whatever_resource_a_node_has_is_room() -> None:
    node = a_node()
    node["status"]["allocatable"] |= {"hugepages-2Mi": "1Gi", "hugepages-1Gi": "0", "example.com/fpga": "2"}
    use = {"n": {"hugepages-2Mi": 2**28, "example.com/fpga": 0}}
    reported = found(node, use=use)
    assert reported.capacity[WHOLE] == {"cpu": "8", "pods": "10", "hugepages-2Mi": "1Gi", "example.com/fpga": "2"}
    assert reported.used[WHOLE] == {"hugepages-2Mi": "256Mi"}


TOLERANT = {"key": "gpu", "operator": "Exists"}
NODES: dict[str, tuple[Manifest, Flavor, bool]] = {
    "no labels asked for": (a_node(), Flavor(name="f"), True),
    "its labels": (a_node(pool="gpu"), GPU, True),
    "another label": (a_node(pool="cpu"), GPU, False),
    "a taint": (a_node(taints=[TAINT]), Flavor(name="f"), False),
    "a taint that keeps nobody off": (a_node(taints=[TAINT | {"effect": "PreferNoSchedule"}]), Flavor(name="f"), True),
    "a taint that is tolerated": (a_node(taints=[TAINT]), Flavor(name="f", tolerations=[TOLERANT]), True),
    "a taint that the flavor names": (a_node(taints=[TAINT]), Flavor(name="f", taints=[TAINT]), True),
    "another than it names": (a_node(taints=[TAINT | {"value": "h100"}]), Flavor(name="f", taints=[TAINT]), False),
    "one of two": (a_node(taints=[TAINT, TAINT | {"key": "x"}]), Flavor(name="f", taints=[TAINT]), False),
    "not ready": (a_node(ready=False), Flavor(name="f"), False),
    "cordoned": (a_node(cordoned=True), Flavor(name="f"), False),
}


@pytest.mark.parametrize(("node", "flavor", "counts"), NODES.values(), ids=NODES.keys())
def test_which_nodes_are_of_a_flavor(node: Manifest, flavor: Flavor, counts: bool) -> None:
    assert found(node, flavors=(flavor,)).capacity[flavor.name] == ({"cpu": "8", "pods": "10"} if counts else {})


def test_the_whole_cluster_and_each_flavor_are_reported() -> None:
    use = {"n": {"cpu": 1500, "pods": 2}, "m": {"cpu": 500, "pods": 1}, "gone": {"cpu": 9000}}
    reported = found(a_node("n", pool="gpu"), a_node("m"), flavors=(GPU,), use=use)
    assert reported.capacity == {WHOLE: {"cpu": "16", "pods": "20"}, "gpu": {"cpu": "8", "pods": "10"}}
    assert reported.used == {WHOLE: {"cpu": "2", "pods": "3"}, "gpu": {"cpu": "1500m", "pods": "2"}}
    assert reported.ours == {WHOLE: {}, "gpu": {}}


def test_ours_counts_in_the_flavor_of_the_admission_only() -> None:
    default, overlapping = Flavor(name="default"), Flavor(name="other")
    granted = [Granted(a_bound_pod("a"), {"cpu": CPU}), Granted(a_bound_pod("b", "elsewhere"), {"cpu": CPU})]
    reported = found(a_node(), flavors=(default, overlapping), granted=granted)
    assert reported.ours == {WHOLE: {"cpu": "1", "pods": "1"}, "default": {"cpu": "1"}, "other": {}}


CHARGES: dict[str, tuple[dict[str, int] | None, dict[str, str]]] = {
    "as much": ({"cpu": 1000}, {"cpu": "1"}),
    "less": ({"cpu": 250}, {"cpu": "250m"}),
    "more": ({"cpu": 4000}, {"cpu": "1"}),
    "nothing of it": ({"memory": 1}, {"cpu": "1"}),
    "nobody knows": (None, {"cpu": "1"}),
}


@pytest.mark.parametrize(("charged", "expected"), CHARGES.values(), ids=CHARGES.keys())
def test_what_a_pod_requests_beyond_its_charge_is_in_use_and_in_no_grant(
    charged: dict[str, int] | None, expected: dict[str, str]
) -> None:
    granted, use = [Granted(a_bound_pod("a"), {"cpu": CPU}, charged)], {"n": {"cpu": 1000, "pods": 1}}
    reported = found(a_node(), flavors=(Flavor(name="default"),), granted=granted, use=use)
    assert reported.used["default"] == {"cpu": "1", "pods": "1"}
    assert reported.ours["default"] == expected


def test_a_charge_is_that_of_the_copy() -> None:
    copy = a_copy()
    copy["metadata"]["annotations"] |= {
        api_names.FLAVORS_ANNOTATION: '{"main":{"cpu":"default"}}',
        api_names.CHARGED_ANNOTATION: '{"main":{"cpu":250}}',
    }
    [granted] = within_grant(a_view(a_job(granted=1), copy, pods=(a_bound_pod("a"),)))
    assert granted.charged == {"cpu": 250}


GOING = a_bound_pod("a0") | {"metadata": a_bound_pod("a0")["metadata"] | {"deletionTimestamp": NOW}}
GRANTS: dict[str, tuple[Manifest | None, list[Manifest], list[str]]] = {
    "bound": (a_job(granted=3), [a_bound_pod("a"), a_bound_pod("b")], ["a", "b"]),
    "not bound": (a_job(granted=3), [a_bound_pod("a", None)], []),
    "over": (a_job(granted=3), [a_bound_pod("a", phase="Succeeded")], []),
    "beyond what is granted": (a_job(granted=1), [a_bound_pod("b"), a_bound_pod("a")], ["a"]),
    "one that goes is beyond it": (a_job(granted=1), [GOING, a_bound_pod("a")], ["a"]),
    "nothing is granted": (a_job(granted=0), [a_bound_pod("a")], []),
    "somebody else's": (a_job(granted=1, ours=False), [a_bound_pod("a")], []),
    "no job": (None, [a_bound_pod("a")], []),
    "no copy of its slice": (a_job(granted=1, workload="w9"), [a_bound_pod("a")], []),
}


@pytest.mark.parametrize(("job", "pods", "expected"), GRANTS.values(), ids=GRANTS.keys())
def test_which_pods_are_within_a_grant(job: Manifest | None, pods: list[Manifest], expected: list[str]) -> None:
    copy = a_copy()
    copy["metadata"]["annotations"][api_names.FLAVORS_ANNOTATION] = '{"main":{"cpu":"default"}}'
    view = a_view(job, copy, pods=tuple(pods))
    within = list(within_grant(view))
    assert [each.pod["metadata"]["name"] for each in within] == expected
    assert all(each.flavors == {"cpu": CPU} for each in within)


PODS = st.builds(
    lambda name, node, phase: (name, node, phase),
    st.sampled_from("abc"),
    st.sampled_from(["n", "m", None]),
    st.sampled_from(["Pending", "Running", "Succeeded"]),
)


@given(steps=st.lists(st.tuples(PODS, st.booleans(), st.booleans()), max_size=20))
def test_use_is_the_sum_over_all_pods(steps: list[Any]) -> None:
    ours, others = Cache(), Cache()
    use = PodUse(ours, others)
    for version, ((name, node, phase), removed, foreign) in enumerate(steps, start=1):
        pod = a_bound_pod(name, node, phase=phase, version=version)
        cache = others if foreign else ours
        if removed:
            cache.remove(pod)
        else:
            cache.put(slim(pod) if foreign else pod)
    expected: dict[str, dict[str, int]] = {}
    for pod in [*ours.all(), *others.all()]:
        node = pod["spec"].get("nodeName")
        if node and pod["status"]["phase"] != "Succeeded":
            before = expected.get(node, {"cpu": 0, "pods": 0})
            expected[node] = {"cpu": before["cpu"] + 1000, "pods": before["pods"] + 1}
    assert use.by_node == expected


def test_a_charge_below_nothing_is_none() -> None:
    """Whoever may write Workload copies could make the cluster's room larger than it is."""
    copy = {"metadata": {"annotations": {api_names.CHARGED_ANNOTATION: '{"main":{"cpu":-64000}}'}}}
    assert annotations.charged(copy) == {}
