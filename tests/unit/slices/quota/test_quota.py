"""Queues and flavors as read from manifests, and their usage."""

from typing import Any

import msgspec
import pytest

from slicebus.slices.quota.quota import (
    ClusterQueue,
    LocalQueue,
    ResourceFlavor,
    holders,
    usage_by_chain,
)
from slicebus.slices.workload.workload import Slice
from support.usage import total_by_queue
from unit.slices.builders import a_pod_set, a_slice, admitted, replacement, with_counts

QUEUE = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "ClusterQueue",
    "metadata": {"name": "cq"},
    "spec": {
        "queueingStrategy": "StrictFIFO",
        "resourceGroups": [
            {
                "coveredResources": ["cpu", "memory"],
                "flavors": [
                    {
                        "name": "spot",
                        "resources": [
                            {"name": "cpu", "nominalQuota": "1500m"},
                            {"name": "memory", "nominalQuota": "2Gi"},
                        ],
                    },
                    {
                        "name": "on-demand",
                        "resources": [{"name": "cpu", "nominalQuota": 4}, {"name": "memory", "nominalQuota": "8Gi"}],
                    },
                ],
            },
            {
                "coveredResources": ["nvidia.com/gpu"],
                "flavors": [{"name": "a100", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": "8"}]}],
            },
        ],
    },
}


def test_a_cluster_queue_is_read_with_its_flavors_in_order() -> None:
    queue = ClusterQueue.from_manifest(QUEUE)
    assert (queue.name, queue.strict_fifo, queue.held) == ("cq", True, False)
    assert [[flavor.name for flavor in group.flavors] for group in queue.resource_groups] == [
        ["spot", "on-demand"],
        ["a100"],
    ]
    assert queue.nominal == {
        ("spot", "cpu"): 1500,
        ("spot", "memory"): 2**31,
        ("on-demand", "cpu"): 4000,
        ("on-demand", "memory"): 2**33,
        ("a100", "nvidia.com/gpu"): 8,
    }


def test_a_cluster_queue_without_a_spec_has_no_quota_and_passes_over_those_that_wait() -> None:
    queue = ClusterQueue.from_manifest({"metadata": {"name": "cq"}})
    assert (queue.nominal, queue.strict_fifo, queue.held) == ({}, False, False)


def test_a_quota_that_is_no_quantity_makes_the_queue_unreadable() -> None:
    group = {
        "coveredResources": ["cpu"],
        "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": "x"}]}],
    }
    with pytest.raises(ValueError, match="not a quantity"):
        ClusterQueue.from_manifest({"metadata": {"name": "cq"}, "spec": {"resourceGroups": [group]}})


@pytest.mark.parametrize(
    ("spec", "held"),
    [
        ({}, False),
        ({"stopPolicy": "None"}, False),
        ({"stopPolicy": "Hold"}, True),
        ({"stopPolicy": "HoldAndDrain"}, True),
    ],
    ids=["unset", "None", "Hold", "HoldAndDrain"],
)
def test_a_stopped_queue_is_held(spec: dict[str, Any], held: bool) -> None:
    metadata = {"namespace": "team", "name": "q"}
    assert ClusterQueue.from_manifest({"metadata": metadata, "spec": spec}).held is held
    assert LocalQueue.from_manifest({"metadata": metadata, "spec": spec}).held is held


def test_a_local_queue_names_its_cluster_queue() -> None:
    manifest = {"metadata": {"namespace": "team", "name": "lq"}, "spec": {"clusterQueue": "cq"}}
    assert LocalQueue.from_manifest(manifest) == LocalQueue(namespace="team", name="lq", cluster_queue="cq", held=False)


def test_a_flavor_is_read_with_its_nodes() -> None:
    taint, toleration = {"key": "spot", "effect": "NoSchedule"}, {"key": "spot", "operator": "Exists"}
    spec = {"nodeLabels": {"disk": "ssd"}, "nodeTaints": [taint], "tolerations": [toleration]}
    flavor = ResourceFlavor.from_manifest({"metadata": {"name": "spot"}, "spec": spec})
    assert (flavor.name, flavor.node_labels) == ("spot", {"disk": "ssd"})
    assert (flavor.taints, flavor.tolerations) == ((taint,), (toleration,))


def test_a_flavor_may_be_empty() -> None:
    flavor = ResourceFlavor.from_manifest({"metadata": {"name": "default"}})
    assert (flavor.node_labels, flavor.taints, flavor.tolerations) == ({}, (), ())


OLD = admitted(a_slice("s1", 3))
NEW = admitted(replacement(OLD, "s2", 10))
OTHER = admitted(a_slice("o1", 2, job_uid="other"))
CPU = ("default", "cpu")


def finished(slice: Slice) -> Slice:
    return msgspec.structs.replace(slice, finished=True, admitted=False)


USAGE: dict[str, tuple[list[Slice], dict[str, dict[tuple[str, str], int]]]] = {
    "nothing": ([], {}),
    "a pending slice": ([a_slice("s1", 3)], {}),
    "an admitted slice": ([OLD], {"cq": {CPU: 3000}}),
    "a chain while one slice takes over, counted once": ([OLD, NEW], {"cq": {CPU: 10_000}}),
    "whatever the order": ([NEW, OLD], {"cq": {CPU: 10_000}}),
    "a chain after the old slice has ended": ([finished(OLD), NEW], {"cq": {CPU: 10_000}}),
    "a chain and its pending slice": ([OLD, replacement(OLD, "s2", 10)], {"cq": {CPU: 3000}}),
    "two chains": ([OLD, OTHER], {"cq": {CPU: 5000}}),
    "a chain that has ended": ([finished(NEW), OTHER], {"cq": {CPU: 2000}}),
    "a scale-down frees at once": ([with_counts(NEW, main=4)], {"cq": {CPU: 4000}}),
    "a replacement that is smaller frees when the old slice has ended": (
        [OLD, admitted(replacement(OLD, "s2", 1))],
        {"cq": {CPU: 3000}},
    ),
    "a job that moved to another queue uses both until the old slice has ended": (
        [OLD, admitted(replacement(OLD, "s2", 10), queue="other")],
        {"cq": {CPU: 3000}, "other": {CPU: 10_000}},
    ),
}


@pytest.mark.parametrize(("slices", "expected"), USAGE.values(), ids=USAGE.keys())
def test_usage(slices: list[Slice], expected: dict[str, dict[tuple[str, str], int]]) -> None:
    used = total_without_zeros(slices)
    assert used == expected


def total_without_zeros(slices: list[Slice]) -> dict[str, dict[Any, int]]:
    total = total_by_queue(usage_by_chain(slices))
    return {queue: usage for queue, usage in total.items() if usage}


def test_flavors_and_resources_are_counted_apart() -> None:
    pod_sets = (a_pod_set("a", 2, {"cpu": 1000, "memory": 10}), a_pod_set("b", 1, {"cpu": 500}))
    slice = admitted(a_slice("s1", pod_sets=pod_sets), flavor="spot")
    used = total_by_queue(usage_by_chain([slice, OTHER]))
    assert used == {"cq": {("spot", "cpu"): 2500, ("spot", "memory"): 20, CPU: 2000}}


@pytest.mark.parametrize(
    ("slices", "expected"),
    [
        ([OLD, NEW], "s2"),
        ([NEW, OLD], "s2"),
        ([OLD, replacement(OLD, "s2", 10)], "s1"),
        ([finished(OLD), NEW], "s2"),
        ([finished(OLD)], None),
        ([msgspec.structs.replace(OLD, admitted=False, evicted=True)], "s1"),
    ],
    ids=["the newest", "whatever the order", "only with quota", "not finished", "none", "evicted, with quota yet"],
)
def test_a_chain_is_held_by_its_newest_slice_with_quota(slices: list[Slice], expected: str | None) -> None:
    held = holders(slices)
    assert {chain: slice.name for chain, slice in held.items()} == ({"team/j": expected} if expected else {})


def test_slices_without_a_job_are_chains_of_their_own() -> None:
    one, other = admitted(a_slice("a", job_uid="")), admitted(a_slice("b", job_uid=""))
    assert set(holders([one, other])) == {"team/uid-a", "team/uid-b"}
