"""Which flavor a slice gets, and Kueue's words for why it gets none."""

from typing import Any

import msgspec
import pytest

from slicebus.slices.placement.flavors import Misfit, Room, assign
from slicebus.slices.quota.cohorts import grow
from slicebus.slices.quota.quota import ClusterQueue, ResourceFlavor
from slicebus.slices.workload.observed import Observed, ObservedPods
from slicebus.slices.workload.workload import Admission, FlavorName, Slice
from unit.slices.builders import a_flavor, a_pod_set, a_queue, a_slice, admitted, replacement, with_counts

SPOT, DEMAND = FlavorName("spot"), FlavorName("on-demand")
TWO = {"spot": {"cpu": "4"}, "on-demand": {"cpu": "10"}}


def a_room(
    queue: ClusterQueue | None = None, *flavors: ResourceFlavor, used: dict[tuple[str, str], int] | None = None
) -> Room:
    """A queue's quota, its flavors (plain ones unless given), and what others use."""
    queue = queue or a_queue(quotas=TWO)
    known = flavors or tuple(a_flavor(name) for name in dict.fromkeys(name for name, _ in queue.nominal))
    node = grow([queue], []).queues[queue.name]
    node.use_all({(FlavorName(flavor), resource): value for (flavor, resource), value in (used or {}).items()})
    return Room(queue=queue, flavors={flavor.name: flavor for flavor in known}, node=node)


def given_to(slice: Slice, room: Room, replaced: Slice | None = None) -> Admission:
    found = assign(slice, room, replaced=replaced)
    assert isinstance(found, Admission), found.message
    return found


def refused_to(slice: Slice, room: Room, replaced: Slice | None = None) -> Misfit:
    found = assign(slice, room, replaced=replaced)
    assert isinstance(found, Misfit)
    return found


class TestOrder:
    @pytest.mark.parametrize(
        ("count", "used", "expected"),
        [
            (4, {}, "spot"),
            (5, {}, "on-demand"),
            (1, {("spot", "cpu"): 4000}, "on-demand"),
            (1, {("spot", "cpu"): 3000}, "spot"),
            (1, {("spot", "cpu"): 3001}, "on-demand"),
        ],
        ids=["fits the first", "too large for the first", "the first is used", "just fits", "short by a thousandth"],
    )
    def test_the_first_flavor_with_room_is_taken(
        self, count: int, used: dict[tuple[str, str], int], expected: str
    ) -> None:
        found = given_to(a_slice("s1", count), a_room(used=used))
        assert found.flavors_of("main") == {"cpu": expected}

    def test_the_admission_says_what_all_pods_use(self) -> None:
        found = given_to(a_slice("s1", 3), a_room())
        assert found.cluster_queue == "cq"
        assert [(a.name, a.count, a.usage) for a in found.pod_sets] == [("main", 3, {"cpu": 3000})]

    def test_pod_sets_may_get_different_flavors_each_charged_before_the_next(self) -> None:
        slice = a_slice("s1", pod_sets=(a_pod_set("a", 3), a_pod_set("b", 3), a_pod_set("c", 1)))
        found = given_to(slice, a_room())
        assert [found.flavors_of(name)["cpu"] for name in "abc"] == ["spot", "on-demand", "spot"]

    def test_pod_sets_get_all_or_nothing(self) -> None:
        slice = a_slice("s1", pod_sets=(a_pod_set("a", 1), a_pod_set("b", 11)))
        assert refused_to(slice, a_room()).message.startswith("couldn't assign flavors to pod set b: ")

    def test_all_resources_of_a_group_come_from_one_flavor(self) -> None:
        quotas = {"spot": {"cpu": "4", "memory": "1Gi"}, "on-demand": {"cpu": "4", "memory": "4Gi"}}
        slice = a_slice("s1", pod_sets=(a_pod_set(requests={"cpu": 1000, "memory": 2 * 2**30}),))
        assert given_to(slice, a_room(a_queue(quotas=quotas))).flavors_of("main") == {
            "cpu": "on-demand",
            "memory": "on-demand",
        }

    def test_each_group_chooses_for_itself(self) -> None:
        def group(flavor: str, resource: str) -> dict[str, Any]:
            nominal = [{"name": resource, "nominalQuota": "4"}]
            return {"coveredResources": [resource], "flavors": [{"name": flavor, "resources": nominal}]}

        queue = a_queue(resourceGroups=[group("plain", "cpu"), group("a100", "nvidia.com/gpu")])
        slice = a_slice("s1", pod_sets=(a_pod_set(requests={"cpu": 1000, "nvidia.com/gpu": 1}),))
        assert given_to(slice, a_room(queue)).flavors_of("main") == {"cpu": "plain", "nvidia.com/gpu": "a100"}

    def test_pods_are_charged_where_the_queue_counts_them(self) -> None:
        queue = a_queue(quotas={"default": {"cpu": "10", "pods": "3"}})
        found = given_to(a_slice("s1", 3), a_room(queue))
        assert found.pod_sets[0].usage == {"cpu": 3000, "pods": 3}
        assert "insufficient quota for pods in flavor default" in refused_to(a_slice("s2", 4), a_room(queue)).message

    def test_a_pod_set_of_no_pods_fits_a_full_queue(self) -> None:
        full = {("spot", "cpu"): 4000, ("on-demand", "cpu"): 10_000}
        assert given_to(a_slice("s1", 0), a_room(used=full)).counts == {"main": 0}

    def test_a_pod_set_that_requests_nothing_gets_no_flavor(self) -> None:
        found = given_to(a_slice("s1", pod_sets=(a_pod_set(requests={}),)), a_room())
        assert found.flavors_of("main") == {}


ONE = a_queue(quotas={"default": {"cpu": "1"}})

REASONS: dict[str, tuple[Slice, Room, str, str]] = {
    "more than there ever is": (
        a_slice("s1", 11, pod_sets=(a_pod_set(count=11, requests={"cpu": 100}),)),
        a_room(ONE),
        "insufficient quota for cpu in flavor default, request > maximum capacity (1100m > 1)",
        "100m more cpu in flavor default of ClusterQueue cq",
    ),
    "more than is free": (
        a_slice("s1", 1),
        a_room(ONE, used={("default", "cpu"): 250}),
        "insufficient unused quota for cpu in flavor default, 250m more needed",
        "250m more cpu in flavor default of ClusterQueue cq",
    ),
    "every flavor says why, in order": (
        a_slice("s1", 5),
        a_room(used={("on-demand", "cpu"): 8000}),
        "insufficient quota for cpu in flavor spot, request > maximum capacity (5 > 4), "
        "insufficient unused quota for cpu in flavor on-demand, 3 more needed",
        "1 more cpu in flavor spot of ClusterQueue cq or 3 more cpu in flavor on-demand of ClusterQueue cq",
    ),
    "memory in binary units": (
        a_slice("s1", pod_sets=(a_pod_set(requests={"memory": 3 * 2**30}),)),
        a_room(a_queue(quotas={"default": {"memory": "2Gi"}})),
        "insufficient quota for memory in flavor default, request > maximum capacity (3Gi > 2Gi)",
        "1Gi more memory in flavor default of ClusterQueue cq",
    ),
    "a flavor that is not there": (
        a_slice("s1"),
        a_room(ONE, a_flavor("another")),
        "flavor default not found",
        "",
    ),
    "a resource without quota": (
        a_slice("s1", pod_sets=(a_pod_set(requests={"cpu": 1000, "nvidia.com/gpu": 1}),)),
        a_room(),
        "resource nvidia.com/gpu unavailable in ClusterQueue",
        "nvidia.com/gpu in the ClusterQueue's quota",
    ),
    "a claim of devices": (
        a_slice("s1", pod_sets=(a_pod_set(resourceClaims=[{"name": "gpu"}]),)),
        a_room(),
        "it claims devices that no quota covers: gpu. Request them as resources, as device plugins and DeviceClasses "
        "with an extendedResourceName offer them, or map their DeviceClasses (deviceClassMappings)",
        "pods without claims of devices",
    ),
    "a taint": (
        a_slice("s1"),
        a_room(ONE, a_flavor(taints=({"key": "spot", "value": "true", "effect": "NoSchedule"},))),
        "untolerated taint spot in flavor default",
        "",
    ),
    "other nodes wanted": (
        a_slice("s1", pod_sets=(a_pod_set(nodeSelector={"disk": "ssd"}),)),
        a_room(ONE, a_flavor(node_labels={"disk": "hdd"})),
        "flavor default doesn't match node affinity",
        "",
    ),
}


@pytest.mark.parametrize(("slice", "room", "message", "lacking"), REASONS.values(), ids=REASONS.keys())
def test_a_pending_slice_has_a_reason_in_kueues_words(slice: Slice, room: Room, message: str, lacking: str) -> None:
    assert refused_to(slice, room) == Misfit(f"couldn't assign flavors to pod set main: {message}", lacking)


def test_an_uncovered_resource_of_which_nothing_is_requested_is_no_obstacle() -> None:
    slice = a_slice("s1", pod_sets=(a_pod_set(requests={"cpu": 1000, "nvidia.com/gpu": 0}),))
    assert given_to(slice, a_room()).flavors_of("main") == {"cpu": "spot"}


def test_what_nobody_asked_for_is_charged_where_the_quota_covers_it() -> None:
    added = msgspec.structs.replace(
        a_pod_set(requests={"cpu": 1000, "memory": 2**28}, count=2), unasked=frozenset({"memory"})
    )
    slice = a_slice("s1", pod_sets=(added,))
    assert given_to(slice, a_room()).pod_sets[0].usage == {"cpu": 2000}
    covered = a_room(a_queue(quotas={"default": {"cpu": "4", "memory": "1Gi"}}))
    assert given_to(slice, covered).pod_sets[0].usage == {"cpu": 2000, "memory": 2**29}


class TestSticky:
    """A chain keeps its flavor: pods that run cannot move."""

    old = admitted(a_slice("s1", 1), flavor="on-demand")

    def test_a_replacement_keeps_the_flavor_even_where_an_earlier_one_has_room(self) -> None:
        found = given_to(replacement(self.old, "s2", 2), a_room(), self.old)
        assert found.flavors_of("main") == {"cpu": "on-demand"}

    def test_it_keeps_the_flavor_of_what_only_the_pods_request(self) -> None:
        seen = Observed("worker", {"main": ObservedPods(requests={"cpu": 1000}, flavors={"cpu": "on-demand"})})
        silent = admitted(a_slice("s1", 1, pod_sets=(a_pod_set(count=1, requests={}),))).with_observed(seen)
        found = given_to(replacement(silent, "s2", 2), a_room(), silent)
        assert found.flavors_of("main") == {"cpu": DEMAND}

    def test_it_waits_rather_than_change_its_flavor(self) -> None:
        quotas = {"smaller-flavor": {"cpu": "1"}, "larger-flavor": {"cpu": "2"}}
        tenth = {"requests": {"cpu": 100}}
        old = admitted(a_slice("s1", pod_sets=(a_pod_set(count=5, **tenth),)), flavor="smaller-flavor")
        new = replacement(old, "s2", 11, pod_sets=(a_pod_set(count=11, **tenth),))
        assert refused_to(new, a_room(a_queue(quotas=quotas)), old).message == (
            "couldn't assign flavors to pod set main: couldn't change flavor from: smaller-flavor to: larger-flavor, "
            "insufficient quota for cpu in flavor smaller-flavor, request > maximum capacity (1100m > 1)"
        )

    def test_every_flavor_that_it_may_not_change_to_is_named_in_order(self) -> None:
        queue = a_queue(quotas={"on-demand": {"cpu": "1"}, "b": {"cpu": "9"}, "c": {"cpu": "9"}})
        message = refused_to(replacement(self.old, "s2", 2), a_room(queue), self.old).message
        assert message.partition(": ")[2] == (
            "couldn't change flavor from: on-demand to: b, couldn't change flavor from: on-demand to: c, "
            "insufficient quota for cpu in flavor on-demand, request > maximum capacity (2 > 1)"
        )

    def test_a_flavor_without_room_is_no_alternative_to_be_named(self) -> None:
        full = {("spot", "cpu"): 4000, ("on-demand", "cpu"): 10_000}
        message = refused_to(replacement(self.old, "s2", 2), a_room(used=full), self.old).message
        assert message.partition(": ")[2] == "insufficient unused quota for cpu in flavor on-demand, 2 more needed"

    def test_a_flavor_that_the_queue_has_lost_is_named_as_the_reason(self) -> None:
        queue = a_queue(quotas={"spot": {"cpu": "1"}})
        message = refused_to(replacement(self.old, "s2", 2), a_room(queue), self.old).message
        assert message.partition(": ")[2] == (
            "could not assign spot flavor since the original workload is assigned: on-demand"
        )

    def test_a_pod_set_that_the_old_slice_did_not_have_is_free(self) -> None:
        new = replacement(self.old, "s2", 1, pod_sets=(a_pod_set("main"), a_pod_set("more")))
        found = given_to(new, a_room(), self.old)
        assert (found.flavors_of("main"), found.flavors_of("more")) == ({"cpu": "on-demand"}, {"cpu": "spot"})


TAINT = {"key": "spot", "value": "true", "effect": "NoSchedule"}

TAINTS: dict[str, tuple[dict[str, Any], list[dict[str, Any]], bool]] = {
    "not tolerated": (TAINT, [], False),
    "by equal value": (TAINT, [{"key": "spot", "value": "true", "effect": "NoSchedule"}], True),
    "equal, said": (TAINT, [{"key": "spot", "operator": "Equal", "value": "true"}], True),
    "another value": (TAINT, [{"key": "spot", "value": "false"}], False),
    "by its key": (TAINT, [{"key": "spot", "operator": "Exists"}], True),
    "another key": (TAINT, [{"key": "gpu", "operator": "Exists"}], False),
    "every taint": (TAINT, [{"operator": "Exists"}], True),
    "every effect": (TAINT, [{"key": "spot", "operator": "Exists", "effect": ""}], True),
    "another effect": (TAINT, [{"key": "spot", "operator": "Exists", "effect": "NoExecute"}], False),
    "one of several": (TAINT, [{"key": "gpu", "operator": "Exists"}, {"key": "spot", "operator": "Exists"}], True),
    "no value on either side": ({"key": "spot", "effect": "NoExecute"}, [{"key": "spot"}], True),
    "no value but null": ({"key": "spot", "effect": "NoExecute"}, [{"key": "spot", "value": None}], True),
    "equal without a key": (TAINT, [{"value": "true"}], False),
    "a preference forbids nothing": (TAINT | {"effect": "PreferNoSchedule"}, [], True),
}


@pytest.mark.parametrize(("taint", "tolerations", "fits"), TAINTS.values(), ids=TAINTS.keys())
@pytest.mark.parametrize("whose", ["pod", "flavor"])
def test_a_taint_needs_a_toleration_of_the_pod_or_of_the_flavor(
    taint: dict[str, Any], tolerations: list[dict[str, Any]], fits: bool, whose: str
) -> None:
    slice = a_slice("s1", pod_sets=(a_pod_set(tolerations=tolerations if whose == "pod" else []),))
    flavor = a_flavor(taints=(taint,), tolerations=tuple(tolerations) if whose == "flavor" else ())
    assert isinstance(assign(slice, a_room(ONE, flavor)), Admission) is fits


def an_affinity(*terms: list[dict[str, Any]]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def where(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator} | ({"values": list(values)} if values else {})


NODES: dict[str, tuple[dict[str, Any], bool]] = {
    "nothing wanted": ({}, True),
    "the label": ({"nodeSelector": {"disk": "ssd"}}, True),
    "another value": ({"nodeSelector": {"disk": "hdd"}}, False),
    "a key that no flavor knows": ({"nodeSelector": {"zone": "b"}}, True),
    "a key that only another flavor knows": ({"nodeSelector": {"gpu": "a100"}}, False),
    "in": (an_affinity([where("disk", "In", "hdd", "ssd")]), True),
    "not in the list": (an_affinity([where("disk", "In", "hdd")]), False),
    "out of the list": (an_affinity([where("disk", "NotIn", "hdd")]), True),
    "excluded": (an_affinity([where("disk", "NotIn", "ssd")]), False),
    "exists": (an_affinity([where("disk", "Exists")]), True),
    "exists elsewhere": (an_affinity([where("gpu", "Exists")]), False),
    "absent": (an_affinity([where("gpu", "DoesNotExist")]), True),
    "not absent": (an_affinity([where("disk", "DoesNotExist")]), False),
    "greater": (an_affinity([where("cores", "Gt", "8")]), True),
    "not greater": (an_affinity([where("cores", "Gt", "16")]), False),
    "less": (an_affinity([where("cores", "Lt", "32")]), True),
    "not less": (an_affinity([where("cores", "Lt", "16")]), False),
    "a label that is no number": (an_affinity([where("disk", "Gt", "8")]), False),
    "a bound that is no number": (an_affinity([where("cores", "Gt", "few")]), False),
    "no bound": (an_affinity([where("cores", "Gt")]), False),
    "two bounds": (an_affinity([where("cores", "Lt", "32", "64")]), False),
    "a bound on a missing label": (an_affinity([where("gpu", "Lt", "9")]), False),
    "an operator of another time": (an_affinity([where("disk", "Like", "ssd")]), False),
    "every expression of a term": (an_affinity([where("disk", "Exists"), where("cores", "Gt", "99")]), False),
    "any term": (an_affinity([where("cores", "Gt", "99")], [where("disk", "Exists")]), True),
    "a term about what no flavor knows": (an_affinity([where("zone", "In", "b")]), True),
    "no terms": (an_affinity(), True),
}


@pytest.mark.parametrize(("spec", "fits"), NODES.values(), ids=NODES.keys())
def test_selector_and_required_affinity_choose_among_flavors(spec: dict[str, Any], fits: bool) -> None:
    queue = a_queue(quotas={"default": {"cpu": "1"}, "other": {"cpu": "0"}})
    flavors = (a_flavor(node_labels={"disk": "ssd", "cores": "16"}), a_flavor("other", node_labels={"gpu": "none"}))
    slice = a_slice("s1", pod_sets=(a_pod_set(**spec),))
    assert isinstance(assign(slice, a_room(queue, *flavors)), Admission) is fits


class TestZeroPods:
    """A pod set without pods has no flavor until it gets some."""

    def test_no_pods_get_no_flavor(self) -> None:
        found = given_to(a_slice("s1", 0), a_room())
        assert found.flavors_of("main") == {}
        assert found.to_manifest()["podSetAssignments"] == [
            {"name": "main", "flavors": {}, "resourceUsage": {}, "count": 0}
        ]
        assert not found.is_placed("main")

    def test_the_first_pods_get_the_flavor_with_room(self) -> None:
        room = a_room(used={("spot", "cpu"): 2000})
        old = a_slice("s1", 0)
        old = msgspec.structs.replace(old, admission=given_to(old, a_room()), admitted=True)
        assert given_to(replacement(old, "s2", 2), room, old).flavors_of("main") == {"cpu": "spot"}
        assert given_to(replacement(old, "s2", 4), room, old).flavors_of("main") == {"cpu": "on-demand"}

    def test_other_pod_sets_keep_theirs(self) -> None:
        old = a_slice("s1", pod_sets=(a_pod_set("head", 1), a_pod_set("gpu", 0)))
        old = msgspec.structs.replace(old, admission=given_to(old, a_room()), admitted=True)
        new = msgspec.structs.replace(
            replacement(old, "s2", 0), pod_sets=(a_pod_set("head", 1), a_pod_set("gpu", 4, {"cpu": 1000}))
        )
        found = given_to(new, a_room(), old)
        assert [found.flavors_of(name) for name in ("head", "gpu")] == [{"cpu": "spot"}, {"cpu": "on-demand"}]

    def test_a_pod_set_that_has_shrunk_to_zero_keeps_its_flavor(self) -> None:
        old = with_counts(admitted(a_slice("s1", 4), flavor="spot"), main=0)
        none = replacement(old, "s2", 0)
        kept = given_to(none, a_room(), old)
        assert kept.flavors_of("main") == {"cpu": "spot"}
        assert kept.is_placed("main")
        none = msgspec.structs.replace(none, admission=kept, admitted=True)
        full = a_room(used={("spot", "cpu"): 4000})
        assert "couldn't change flavor" in refused_to(replacement(none, "s3", 1), full, none).message

    def test_a_flavor_that_does_not_suit_holds_up_no_slice_without_such_pods(self) -> None:
        gpu = a_pod_set("gpu", 0, nodeSelector={"pool": "gpu"})
        room = a_room(
            None, a_flavor("spot", node_labels={"pool": "spot"}), a_flavor("on-demand", node_labels={"pool": "x"})
        )
        assert given_to(a_slice("s1", pod_sets=(a_pod_set("head", 1), gpu)), room).is_placed("head")
