"""Which chains leave a drained or lost cluster, and when a silent cluster is given up."""

from typing import Any

import msgspec
import pytest

from slicebus.manager.decide.cluster.relocation import (
    assess,
    evictions,
    fence_s,
    is_outage,
    is_refused,
    leaves_for_want,
)
from slicebus.manager.state.worker_clusters import WorkerCluster
from slicebus.proto.messages import Manifest
from slicebus.slices.api.api_names import DISPATCHED_CONDITION
from slicebus.slices.workload.workload import Slice
from unit.manager.objects import a_workload, condition
from unit.slices.builders import a_slice, admitted

REQUEUE_S = 100.0


def a_cluster(name: str = "east", *, fence_s: float | None = 75.0, **spec: Any) -> WorkerCluster:
    manifest = {"metadata": {"name": name}, "spec": {"accepted": True} | spec}
    return msgspec.structs.replace(WorkerCluster.from_manifest(manifest), fence_s=fence_s)


STANDINGS: dict[str, tuple[WorkerCluster, float, bool, str | None]] = {
    "not for long": (a_cluster(), 99.0, False, None),
    "for too long": (a_cluster(), 100.0, False, "ClusterLost"),
    "an agent without a fence": (a_cluster(fence_s=None), 1000.0, False, "NoFence"),
    "an agent that keeps a longer fence": (a_cluster(fence_s=150.0), 199.0, False, None),
    "which is over too": (a_cluster(fence_s=150.0), 200.0, False, "ClusterLost"),
    "with many others": (a_cluster(), 1000.0, True, "TooManySilent"),
    "with many others, not for long": (a_cluster(), 99.0, True, None),
}


@pytest.mark.parametrize(("cluster", "silent_s", "outage", "expected"), STANDINGS.values(), ids=STANDINGS.keys())
def test_when_a_silent_cluster_is_given_up(
    cluster: WorkerCluster, silent_s: float, outage: bool, expected: str | None
) -> None:
    finding = assess(cluster, silent_s=silent_s, requeue_s=REQUEUE_S, outage=outage)
    assert (finding.reason if finding else None) == expected
    assert finding is None or finding.status == (expected == "ClusterLost")


def test_a_fence_closes_before_the_jobs_go_elsewhere() -> None:
    assert fence_s(None) is None
    assert fence_s(REQUEUE_S) == 75.0


@pytest.mark.parametrize(
    ("silent", "of", "expected"),
    [
        ("", "a", False),
        ("a", "a", True),
        ("a", "ab", False),
        ("ab", "ab", True),
        ("a", "abc", False),
        ("ab", "abc", True),
    ],
)
def test_more_than_half_at_once_is_an_outage(silent: str, of: str, expected: bool) -> None:
    clusters = [*map(a_cluster, of), a_cluster("z", accepted=False)]
    assert is_outage(clusters, [*silent, "z"]) is expected


def on(cluster: str, name: str, **changes: Any) -> Slice:
    return msgspec.structs.replace(admitted(a_slice(name, job_uid=name), cluster=cluster), **changes)


MOVES: dict[str, tuple[list[Slice], list[str]]] = {
    "nobody elsewhere": ([on("west", "a")], []),
    "so many at once, by name": ([on("east", name) for name in "cba"], ["a", "b"]),
    "those under way count": ([on("east", "a", evicted=True), on("east", "b"), on("east", "c")], ["b"]),
    "what waits stays": ([a_slice("a", job_uid="a")], []),
    "what is deleted goes anyway": ([on("east", "a", deleting=True)], []),
    "of a lost cluster all": ([on("north", name) for name in "abc"], ["a", "b", "c"]),
    "of a chain its holder": (
        [on("east", "a"), msgspec.structs.replace(on("east", "b"), job_uid="a", replaces="team/a")],
        ["b"],
    ),
}


@pytest.mark.parametrize(("slices", "expected"), MOVES.values(), ids=MOVES.keys())
def test_which_chains_leave(slices: list[Slice], expected: list[str]) -> None:
    decided = evictions(slices, drained={"east"}, given_up={"north"}, at_once=2)
    assert [eviction.key.partition("/")[2] for eviction in decided] == expected


def refused(reason: str = "NotFound", *, applied: int = 0, dispatched: int = 2) -> Manifest:
    shown = condition(DISPATCHED_CONDITION, False, reason)
    return a_workload(admitted=1, dispatched=dispatched, applied=applied, conditions=(shown,))


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        (refused(), True),
        (refused(applied=1), True),
        (refused(applied=2), False),
        (refused(dispatched=0), False),
        (refused("Suspending"), False),
        (refused("TooLarge"), False),
        (a_workload(admitted=1, dispatched=2), False),
    ],
    ids=["refused", "it ran before", "applied since", "never sent", "it is leaving", "its own size", "on its way"],
)
def test_what_its_cluster_has_refused(workload: Manifest, expected: bool) -> None:
    assert is_refused(workload) is expected


def test_a_refused_chain_leaves_a_cluster_without_its_namespace() -> None:
    stays, goes = on("west", "a"), on("west", "b")
    west = msgspec.structs.replace(a_cluster("west"), lacking={"team": "NotFound"})
    leaves = leaves_for_want(goes, west)
    assert leaves is not None
    [eviction] = evictions([stays, goes], drained=set(), given_up=set(), refused={goes.key: leaves}, at_once=1)
    assert (eviction.key, eviction.reason) == (goes.key, "WorkerClusterLacksNamespace")
    assert eviction.message == "The cluster west takes no jobs of the namespace team"


@pytest.mark.parametrize(
    ("chosen", "found", "expected"),
    [
        ("", (), None),
        ("", ("kai",), None),
        ("kai", ("default", "kai"), None),
        ("kai", ("default",), "The cluster west has no scheduler backend kai"),
        ("kai", (), "The cluster west has no scheduler backend kai"),
    ],
    ids=["none chosen", "none chosen, whatever is there", "it is there", "others are there", "nothing is reported"],
)
def test_a_refused_chain_leaves_a_cluster_without_its_scheduler(
    chosen: str, found: tuple[str, ...], expected: str | None
) -> None:
    told = {DISPATCHED_CONDITION: condition(DISPATCHED_CONDITION, False, "SchedulerNotEnabled")}
    slice = msgspec.structs.replace(on("west", "a"), scheduler=chosen, conditions=told)
    leaves = leaves_for_want(slice, msgspec.structs.replace(a_cluster("west"), scheduler_backends=found))
    assert (leaves.message if leaves else None) == expected
    assert leaves is None or leaves.reason == "WorkerClusterLacksScheduler"


@pytest.mark.parametrize("reason", ["Invalid", "Forbidden", "PodSecurity", "NamespaceNotAllowed"])
def test_what_runs_stays_where_its_order_is_refused_for_another_reason(reason: str) -> None:
    """Somebody has given it the label of a scheduler since, which no copy that is there gets."""
    told = {DISPATCHED_CONDITION: condition(DISPATCHED_CONDITION, False, reason)}
    slice = msgspec.structs.replace(on("west", "a"), scheduler="kai", conditions=told)
    assert leaves_for_want(slice, a_cluster("west")) is None


def test_the_eviction_names_its_reason() -> None:
    [drained, lost] = evictions([on("east", "a"), on("north", "b")], drained={"east"}, given_up={"north"}, at_once=9)
    assert (drained.reason, drained.message) == ("WorkerClusterDrained", "The cluster east is drained")
    assert (lost.reason, lost.message) == ("WorkerClusterLost", "The cluster north is lost")
