"""Workloads read as slices: granted counts, usage, and the order of a chain."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicebus.slices.api.kueue import Condition
from slicebus.slices.workload.chain import oldest_first
from slicebus.slices.workload.pod_requests import as_admitted
from slicebus.slices.workload.pod_sets import PodSet
from slicebus.slices.workload.workload import Admission, FlavorName, Slice
from unit.slices.builders import a_pod_set, a_slice, admitted, replacement, with_counts

TEMPLATE = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}}}]}}
STATUS = {
    "admission": {
        "clusterQueue": "cq",
        "podSetAssignments": [
            {
                "name": "main",
                "flavors": {"cpu": "spot", "memory": "default"},
                "resourceUsage": {"cpu": "4500m", "memory": "3Gi"},
                "count": 3,
            }
        ],
    },
    "clusterName": "worker-1",
    "conditions": [
        {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved"},
        {"type": "Admitted", "status": "True", "reason": "Admitted"},
    ],
}


def a_workload(**changes: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "namespace": "team",
            "name": "job-demo-2",
            "uid": "u2",
            "creationTimestamp": "2026-01-01T00:00:02Z",
            "labels": {"kueue.x-k8s.io/job-uid": "job-1"},
            "annotations": {
                "kueue.x-k8s.io/workload-slice-name": "job-demo-1",
                "kueue.x-k8s.io/workload-slice-replacement-for": "team/job-demo-1",
            },
        },
        "spec": {
            "queueName": "lq",
            "priority": 7,
            "podSets": [{"name": "main", "count": 3, "template": TEMPLATE}],
        },
        "status": STATUS,
    } | changes


def with_conditions(*types: str) -> dict[str, Any]:
    conditions = [{"type": type, "status": "True"} for type in types]
    return a_workload(status=STATUS | {"conditions": conditions})


def test_reclaimable_pods_use_no_quota() -> None:
    slice = Slice.from_manifest(a_workload(status=STATUS | {"reclaimablePods": [{"name": "main", "count": 2}]}))
    assert (slice.counts, slice.unfinished_counts, slice.granted) == ({"main": 3}, {"main": 1}, {"main": 1})
    assert slice.usage == {("spot", "cpu"): 1500, ("default", "memory"): 2**30}


def test_a_slice_is_read_from_its_workload() -> None:
    slice = Slice.from_manifest(a_workload())
    assert slice.key == "team/job-demo-2"
    assert (slice.job_uid, slice.chain_id, slice.chain) == ("job-1", "team/job-1", "job-demo-1")
    assert slice.replaces == "team/job-demo-1"
    assert (slice.queue, slice.priority, slice.active, slice.cluster) == ("lq", 7, True, "worker-1")
    template = {"spec": as_admitted(TEMPLATE["spec"])}
    assert slice.pod_sets == (PodSet(name="main", count=3, requests={"cpu": 1500, "memory": 2**30}, template=template),)
    assert slice.admission is not None
    assert slice.admission.flavors_of("main") == {"cpu": "spot", "memory": "default"}
    assert slice.usage == {("spot", "cpu"): 4500, ("default", "memory"): 3 * 2**30}


def test_a_workload_with_nothing_but_a_name_is_the_first_slice_of_its_own_chain() -> None:
    slice = Slice.from_manifest({"metadata": {"namespace": "team", "name": "w", "uid": "u"}})
    assert (slice.chain, slice.chain_id, slice.replaces) == ("w", "team/u", None)
    assert (slice.active, slice.priority, slice.admission, slice.cluster) == (True, 0, None, None)
    assert (slice.counts, slice.granted, slice.usage) == ({}, {}, {})


def test_a_pod_set_has_the_defaults_of_the_api() -> None:
    pod_set = PodSet.from_manifest({"template": {"spec": {"containers": []}}})
    assert (pod_set.name, pod_set.count) == ("main", 1)


def test_a_request_that_is_no_quantity_makes_the_workload_unreadable() -> None:
    bad = {"template": {"spec": {"containers": [{"resources": {"requests": {"cpu": "lots"}}}]}}}
    with pytest.raises(ValueError, match="not a quantity"):
        Slice.from_manifest(a_workload(spec={"podSets": [bad]}))


@pytest.mark.parametrize(
    ("conditions", "is_admitted"),
    [
        ((), False),
        (("QuotaReserved",), True),
        (("Admitted",), False),
        (("QuotaReserved", "Admitted"), True),
        (("QuotaReserved", "Admitted", "PodsReady"), True),
        (("QuotaReserved", "Admitted", "Evicted"), False),
        (("QuotaReserved", "Admitted", "Finished"), False),
    ],
    ids=lambda value: "+".join(value) or "none" if isinstance(value, tuple) else "",
)
def test_only_quota_without_an_end_counts_as_admitted(conditions: tuple[str, ...], is_admitted: bool) -> None:
    slice = Slice.from_manifest(with_conditions(*conditions))
    assert slice.admitted is is_admitted
    assert slice.granted == ({"main": 3} if is_admitted else {})
    assert slice.evicted is ("Evicted" in conditions)
    assert slice.finished is ("Finished" in conditions)


def test_a_condition_that_is_false_or_unknown_does_not_hold() -> None:
    conditions = [{"type": "Evicted", "status": "False"}, {"type": "Finished", "status": "Unknown"}]
    slice = Slice.from_manifest(a_workload(status={"conditions": conditions}))
    assert not slice.condition(Condition.EVICTED)
    assert not slice.condition(Condition.FINISHED)
    assert not slice.condition(Condition.ADMITTED)
    assert (slice.evicted, slice.finished) == (False, False)


def test_a_deleted_workload_is_known_as_such() -> None:
    metadata = a_workload()["metadata"] | {"deletionTimestamp": "2026-01-01T00:00:09Z"}
    assert Slice.from_manifest(a_workload(metadata=metadata)).deleting


def test_an_evicted_slice_uses_its_quota_until_its_admission_is_taken_away() -> None:
    evicted = Slice.from_manifest(with_conditions("QuotaReserved", "Evicted"))
    assert evicted.usage[FlavorName("spot"), "cpu"] == 4500


def test_a_finished_slice_uses_nothing() -> None:
    assert Slice.from_manifest(with_conditions("QuotaReserved", "Admitted", "Finished")).usage == {}


@pytest.mark.parametrize(
    ("spec_count", "granted", "used"),
    [(3, 3, 3000), (1, 1, 1000), (0, 0, 0), (5, 3, 3000)],
    ids=["as admitted", "scaled down", "scaled to nothing", "more than admitted"],
)
def test_granted_and_used_are_the_smaller_of_admitted_and_spec(spec_count: int, granted: int, used: int) -> None:
    slice = with_counts(admitted(a_slice("s1", 3)), main=spec_count)
    assert slice.granted == {"main": granted}
    assert slice.usage == {("default", "cpu"): used}


def test_a_slice_that_was_admitted_with_no_pods_uses_nothing() -> None:
    assert admitted(a_slice("s1", 0)).usage == {("default", "cpu"): 0}


def test_pod_sets_of_one_flavor_add_up() -> None:
    pod_sets = (a_pod_set("head", 1), a_pod_set("small", 4))
    assert admitted(a_slice("s1", pod_sets=pod_sets)).usage == {("default", "cpu"): 5000}


def test_a_pod_set_that_was_not_admitted_has_no_flavors() -> None:
    given = Admission.from_manifest({"clusterQueue": "cq"})
    assert given.flavors_of("main") == {}
    assert given.counts == {}


class TestOrder:
    def test_slices_are_in_the_order_of_their_creation(self) -> None:
        late, early = a_slice("a", created="2026-01-01T00:00:02Z"), a_slice("b", created="2026-01-01T00:00:01Z")
        assert oldest_first([late, early]) == [early, late]

    def test_within_a_second_a_slice_comes_after_the_one_that_it_replaces(self) -> None:
        first = a_slice("c", uid="9")
        second = replacement(first, "b", 2, uid="5")
        third = replacement(second, "a", 3, uid="1")
        assert oldest_first([third, second, first]) == [first, second, third]

    def test_slices_that_claim_to_replace_each_other_still_have_an_order(self) -> None:
        one, other = a_slice("a"), a_slice("b")
        one = msgspec.structs.replace(one, replaces=other.key)
        other = msgspec.structs.replace(other, replaces=one.key)
        assert oldest_first([other, one]) == [one, other]

    def test_a_slice_comes_after_the_one_that_it_replaces_whatever_the_clocks_show(self) -> None:
        first = a_slice("a", created="2026-01-01T00:00:30Z")
        second = a_slice("b", created="2026-01-01T00:00:10Z", replaces=first.key)
        third = a_slice("c", created="2026-01-01T00:00:20Z", replaces=second.key)
        assert oldest_first([third, second, first]) == [first, second, third]

    @given(order=st.permutations(range(5)))
    def test_the_order_does_not_depend_on_the_input(self, order: list[int]) -> None:
        chain = [a_slice("s0")]
        for index in range(1, 5):
            chain.append(replacement(chain[-1], f"s{index}", index, uid=str(9 - index)))
        assert oldest_first(chain[index] for index in order) == chain
