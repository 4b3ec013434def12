"""Evictions of stopped slices: the holder of the chain loses its quota, and only once."""

from typing import Any

import msgspec
import pytest

from slicebus.slices.admission.cycle import Admit, Evict, Wait, cycle
from slicebus.slices.api.kueue import EvictionReason
from slicebus.slices.placement.fleet import Cluster
from slicebus.slices.quota.quota import LocalQueue
from slicebus.slices.workload.workload import Slice
from unit.slices.builders import a_queue, a_slice, admitted, replacement, snapshot

RUNNING = admitted(a_slice("s1", 3))
GROWING = replacement(RUNNING, "s2", 5)
GROWN = admitted(GROWING)


def local(policy: str) -> LocalQueue:
    spec = {"clusterQueue": "cq", "stopPolicy": policy}
    return LocalQueue.from_manifest({"metadata": {"namespace": "team", "name": "lq"}, "spec": spec})


def evicted(*slices: Slice, queue: str = "None", local_queue: str = "None") -> list[tuple[str, str]]:
    world = snapshot(*slices, queues=[a_queue(stopPolicy=queue)], locals=[local(local_queue)])
    return [(found.key.partition("/")[2], found.reason) for found in cycle(world) if isinstance(found, Evict)]


def changed(slice: Slice, **how: Any) -> Slice:
    return msgspec.structs.replace(slice, **how)


CASES: dict[str, tuple[tuple[Slice, ...], dict[str, str], list[tuple[str, str]]]] = {
    "nothing is stopped": ((RUNNING,), {}, []),
    "the ClusterQueue is held": ((RUNNING,), {"queue": "Hold"}, []),
    "the LocalQueue is held": ((RUNNING,), {"local_queue": "Hold"}, []),
    "the ClusterQueue is drained": ((RUNNING,), {"queue": "HoldAndDrain"}, [("s1", "ClusterQueueStopped")]),
    "the LocalQueue is drained": ((RUNNING,), {"local_queue": "HoldAndDrain"}, [("s1", "LocalQueueStopped")]),
    "both are": (
        (RUNNING,),
        {"queue": "HoldAndDrain", "local_queue": "HoldAndDrain"},
        [("s1", "LocalQueueStopped")],
    ),
    "it is deactivated": ((changed(RUNNING, active=False),), {}, [("s1", "Deactivated")]),
    "it holds nothing": ((a_slice("s1"),), {"queue": "HoldAndDrain"}, []),
    "it is evicted already": ((changed(RUNNING, evicted=True, admitted=False),), {"queue": "HoldAndDrain"}, []),
    "it has finished": ((changed(RUNNING, finished=True),), {"queue": "HoldAndDrain"}, []),
    "it is going": ((changed(RUNNING, deleting=True),), {"queue": "HoldAndDrain"}, []),
    "it was growing": ((RUNNING, GROWING), {"queue": "HoldAndDrain"}, [("s1", "ClusterQueueStopped")]),
    "it has just grown": ((RUNNING, GROWN), {"queue": "HoldAndDrain"}, [("s2", "ClusterQueueStopped")]),
    "a slice that is replaced is deactivated": ((changed(RUNNING, active=False), GROWN), {}, []),
}


@pytest.mark.parametrize(("slices", "policies", "expected"), CASES.values(), ids=CASES.keys())
def test_the_holder_of_the_chain_is_evicted(
    slices: tuple[Slice, ...], policies: dict[str, str], expected: list[tuple[str, str]]
) -> None:
    assert evicted(*slices, **policies) == expected


@pytest.mark.parametrize(
    "holder", [changed(RUNNING, active=False), changed(RUNNING, evicted=True, admitted=False)], ids=["now", "before"]
)
def test_what_would_replace_an_evicted_slice_gets_nothing(holder: Slice) -> None:
    [waits] = [found for found in cycle(snapshot(holder, GROWING)) if isinstance(found, Wait)]
    assert waits.message == "the job is evicted, and comes back at its spec's size"


def test_quota_is_charged_until_the_eviction_has_ended() -> None:
    leaving = changed(RUNNING, evicted=True, admitted=False)
    other = a_slice("o1", 8, job_uid="other")
    [waits] = cycle(snapshot(leaving, other))
    assert isinstance(waits, Wait)
    assert cycle(snapshot(changed(leaving, admission=None), other))[-1] != waits


@pytest.mark.parametrize(
    ("cordoned", "expected"), [(False, "west"), (True, "east")], ids=["it takes new jobs", "it does not"]
)
def test_it_comes_back_where_its_copy_is(cordoned: bool, expected: str) -> None:
    east = Cluster(name="east", accepted=True, cordoned=False, connected=True)
    west = Cluster(name="west", accepted=True, cordoned=cordoned, connected=True)
    leaving = changed(a_slice("s1", cluster="west"), evicted=True)
    other = admitted(a_slice("o1", job_uid="other"), cluster="west")
    [admit] = [found for found in cycle(snapshot(leaving, other, clusters=[east, west])) if isinstance(found, Admit)]
    assert admit.cluster == expected


def test_the_reasons_are_those_of_kueue() -> None:
    ours = {EvictionReason.CLUSTER_DRAINED, EvictionReason.CLUSTER_LOST, EvictionReason.NAMESPACE_LACKING}
    ours |= {EvictionReason.SCHEDULER_LACKING, EvictionReason.REFUSED, EvictionReason.SUSPENDED}
    ours |= {EvictionReason.BUDGET_SPENT, EvictionReason.PODS_EDITED}
    kueues = [reason for reason in EvictionReason if reason not in ours]
    assert kueues == [
        "ClusterQueueStopped",
        "LocalQueueStopped",
        "Deactivated",
        "Preempted",
        "PodsReadyTimeout",
        "DeactivatedDueToMaximumExecutionTimeExceeded",
    ]
