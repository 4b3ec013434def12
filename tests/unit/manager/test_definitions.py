"""What the manager does with missing jobs while the definition of their kind is missing too."""

import asyncio

import pytest

from slicebus.decisions.commands import Publish
from slicebus.kube.resources import CRDS, JOBS, RAYCLUSTERS, WORKERCLUSTERS, WORKLOADS
from slicebus.manager.decide import catalog
from slicebus.proto.errors import UnavailableError
from slicebus.proto.messages import Delete, JobRef
from slicebus.slices.api.api_names import HELD_CONDITION
from unit.manager.message_router import Manager
from unit.manager.objects import a_workload
from unit.manager.test_resyncer import an_item, inventory

NOW = "2026-05-01T10:00:00Z"


async def test_a_job_whose_kind_is_not_served_was_not_deleted(manager: Manager) -> None:
    ref = await lose_job(manager)
    store = manager.store
    assert catalog.reconcile_job(store, job=ref, deletes_held=False, now=NOW) == []
    del store.unserved["Job"]
    commands = catalog.reconcile_job(store, job=ref, deletes_held=False, now=NOW)
    assert [command.message.type for command in commands if isinstance(command, Publish)] == ["delete"]


async def lose_job(manager: Manager) -> JobRef:
    """A job that runs on east and went with its definition."""
    ref = await manager.given_job()
    manager.guard.watch()
    manager.store.unserved["Job"] = "the definition is missing"
    cache = manager.store.cache_of(JOBS)
    assert cache is not None
    cache.clear()
    return ref


async def test_what_is_missing_when_a_kind_is_served_again_is_held_however_little_it_is(manager: Manager) -> None:
    ref = await lose_job(manager)
    assert await manager.guard.holds(ref)
    del manager.store.unserved["Job"]
    manager.guard.hold_missing("Job")
    assert await manager.guard.holds(ref)
    cluster = manager.store.clusters.get(None, "east")
    assert cluster is not None
    await manager.guard._show(cluster)
    written = await manager.client.get(WORKERCLUSTERS, "east")
    assert written["status"]["heldDeletes"]["jobs"] == 1
    [held] = [entry for entry in written["status"]["conditions"] if entry["type"] == "DeletesHeld"]
    assert (held["status"], held["reason"]) == ("True", "KindNotServed")
    assert held["message"] == (
        "1 jobs would be deleted, some because Job was not served for a while: look, then `slicebus fleet release east`"
    )


async def test_a_workload_says_that_its_kind_was_not_served_and_what_releases_it(manager: Manager) -> None:
    ref = await lose_job(manager)
    await manager.reconcile_job(ref)
    reason, message = await held_for(manager)
    assert (reason, message) == (
        "KindNotServed",
        "Its job is missing, and its kind is not served: the definition is missing. It runs on. "
        "Once that is mended, look, then `slicebus fleet release east`",
    )
    del manager.store.unserved["Job"]
    manager.guard.hold_missing("Job")
    await manager.reconcile_job(ref)
    reason, message = await held_for(manager)
    assert (reason, message) == (
        "KindNotServed",
        "Its job is missing since its kind was not served: it went with the definition, or unseen. "
        "It runs on until somebody decides: look, then `slicebus fleet release east`",
    )


async def held_for(manager: Manager) -> tuple[str, str]:
    """What the job's Workload says about its held delete."""
    [workload] = (await manager.client.list(WORKLOADS)).items
    [held] = [entry for entry in workload["status"]["conditions"] if entry["type"] == HELD_CONDITION]
    return held["reason"], held["message"]


async def test_nothing_else_is_held_while_a_kind_is_not_served(manager: Manager) -> None:
    await lose_job(manager)
    cluster = manager.store.clusters.get(None, "east")
    assert cluster is not None
    await manager.guard._show(cluster)
    assert not manager.guard._breaker("east").held  # type: ignore[arg-type]


async def test_what_is_there_when_a_kind_is_served_again_is_not_held(manager: Manager) -> None:
    ref = await manager.given_job()
    manager.guard.hold_missing("Job")
    assert not await manager.guard.holds(ref)
    assert not manager.guard._breaker("east").held  # type: ignore[arg-type]


async def test_every_job_is_reconciled_when_its_kind_is_served_again(manager: Manager) -> None:
    """A Workload that has no cluster yet would wait for ever for a job that went with the definition."""
    await manager.given(WORKLOADS, a_workload())
    [ref] = dict.fromkeys(manager.store.refs())
    manager.requeued.clear()
    manager.guard.hold_missing("Job")
    assert manager.requeued == [ref]
    manager.requeued.clear()
    manager.guard.hold_missing("RayJob")
    assert manager.requeued == []


async def test_a_stray_stays_while_its_kind_is_not_served(manager: Manager) -> None:
    stray = JobRef("ray.io/v1", "RayCluster", "team", "stray", "uid-1")
    await manager.receive(inventory(an_item(stray, 5)))
    await manager.client.delete(CRDS, RAYCLUSTERS.definition)
    with pytest.raises(UnavailableError, match="is missing"):
        await manager.resyncer.delete_strays(stray)
    manager.store.unserved["RayCluster"] = "the definition is missing"
    await manager.resyncer.delete_strays(stray)
    await asyncio.sleep(0)
    assert not [message for message in manager.published if isinstance(message, Delete)]
