"""The metrics of worker clusters, and of specs on their way there."""

import asyncio
from typing import Any

from prometheus_client import CollectorRegistry

from slicebus.kube.cache import Cache
from slicebus.manager.metrics.clusters import ClusterMetrics
from slicebus.manager.metrics.specs import SpecMetrics
from slicebus.manager.state.outbox import Dispatch
from slicebus.manager.state.settings import LeaderSettings, Shard
from slicebus.manager.state.store import ManagerStore
from slicebus.slices.api import api_names
from unit.kube.loop_time import LoopTime
from unit.manager.objects import Manifest
from unit.manager.test_slice_metrics import ADMISSION, a_workload, counted

HEARD = "2026-01-01T00:00:00Z"


def a_cluster(name: str, *, accepted: bool = True, connected: str = "True", **status: Any) -> Manifest:
    condition = {"type": "Connected", "status": connected, "reason": "r", "lastTransitionTime": HEARD}
    return {
        "metadata": {"name": name, "uid": name, "resourceVersion": "1"},
        "spec": {"accepted": accepted},
        "status": status | {"conditions": [condition]},
    }


def of_fleet(settings: LeaderSettings = LeaderSettings()) -> dict[str, float | None]:  # noqa: B008 a frozen value
    registry, store = CollectorRegistry(), ManagerStore()
    store.configure(settings)
    registry.register(ClusterMetrics(store))
    store.clusters.put(a_cluster("east", lastHeartbeatTime=HEARD, lagSeconds=4, outOfSync=2, jobs=7))
    store.clusters.put(a_cluster("west", connected="False", lastHeartbeatTime=HEARD, lagSeconds=0, outOfSync=0, jobs=0))
    store.clusters.put(a_cluster("new", connected="Unknown"))
    store.clusters.put(a_cluster("stranger", accepted=False))
    return {
        f"{sample.name.removeprefix('slicebus_cluster_')} {sample.labels['cluster']}": sample.value
        for family in registry.collect()
        for sample in family.samples
    }


def test_each_accepted_cluster_has_what_its_agent_reported() -> None:
    at = 1767225600.0
    assert of_fleet() == {
        "connected east": 1,
        "connected west": 0,
        "connected new": 0,
        "last_heartbeat_timestamp_seconds east": at,
        "last_heartbeat_timestamp_seconds west": at,
        "lag_seconds east": 4,
        "lag_seconds west": 0,
        "out_of_sync east": 2,
        "out_of_sync west": 0,
        "jobs east": 7,
        "jobs west": 0,
    }


def test_only_the_first_shard_shows_the_fleet() -> None:
    assert of_fleet(LeaderSettings(shard=Shard(1, 2))) == {}


def dispatched(version: int, *, to: int, applied: int = 0, suspended: bool = False) -> Manifest:
    """A workload that has quota, and an order of this version."""
    workload = a_workload(version, admission=ADMISSION)
    order = Dispatch(to, "hash", cluster="east", suspended=suspended)
    workload["metadata"]["annotations"] = {
        api_names.DISPATCHED_ANNOTATION: order.to_annotation(),
        api_names.APPLIED_ANNOTATION: str(applied),
    }
    return workload


async def test_a_spec_counts_from_its_admission_until_its_worker_has_it(jumping: LoopTime) -> None:
    registry, workloads = CollectorRegistry(), Cache()
    SpecMetrics(registry).follow(workloads)

    def shown() -> dict[str, float]:
        return {name: round(value, 3) for name, value in counted(registry, "slicebus_").items()}

    workloads.put(a_workload(1))
    await asyncio.sleep(100)
    workloads.put(a_workload(2, admission=ADMISSION))
    await asyncio.sleep(1)
    workloads.put(dispatched(3, to=2, applied=1, suspended=True))
    workloads.put(dispatched(4, to=2, applied=2, suspended=True))
    workloads.put(dispatched(5, to=3, applied=2))
    await asyncio.sleep(2)
    assert shown() == {}, "the worker has not reported it"
    workloads.put(dispatched(6, to=3, applied=3))
    once = {
        "slicebus_spec_propagation_seconds_count['east']": 1,
        "slicebus_spec_propagation_seconds_sum['east']": 3,
    }
    assert shown() == once
    workloads.put(dispatched(7, to=4, applied=3))
    workloads.put(dispatched(8, to=4, applied=4))
    assert shown() == once, "a later order of it follows from no admission"


async def test_an_admission_that_was_not_seen_or_was_taken_back_does_not_count(jumping: LoopTime) -> None:
    registry, workloads = CollectorRegistry(), Cache()
    SpecMetrics(registry).follow(workloads)
    workloads.put(dispatched(1, to=2))
    workloads.put(dispatched(2, to=2, applied=2))
    workloads.put(a_workload(3))
    workloads.put(a_workload(4, admission=ADMISSION))
    workloads.put(a_workload(5))
    workloads.remove(a_workload(6))
    assert counted(registry, "slicebus_") == {}
