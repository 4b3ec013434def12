"""Inventories at the manager, over an in-process API server: what is requested, written and deleted."""

import asyncio
from typing import Any

import msgspec
import pytest

from slicebus.bus.dead_letters.headers import passed_on
from slicebus.kube.client import MergePatch
from slicebus.kube.resources import JOBS, WORKERCLUSTERS, WORKLOADS
from slicebus.manager.act import resyncer
from slicebus.manager.decide import catalog
from slicebus.manager.decide.cluster.delete_breaker import DeleteLimits
from slicebus.manager.decide.messages.inventory import Listed, Stamp
from slicebus.manager.state.outbox import LOST, Dispatch, applied_version
from slicebus.proto.errors import NotFoundError, SlicebusError, ThrottledError
from slicebus.proto.messages import (
    Applied,
    ClusterName,
    Delete,
    Heartbeat,
    Inventory,
    InventoryItem,
    JobPhase,
    JobRef,
    Message,
    RequestKey,
    Resync,
    ScaleRequest,
    Status,
)
from slicebus.proto.topology import shard_exchange
from slicebus.slices.api.fingerprints import status_hash
from unit.manager.message_router import Manager, of_shard
from unit.manager.objects import CONTENT, an_envelope, condition
from unit.manager.test_inbox import HELLO

NO_STATUS = status_hash({}, JobPhase.RUNNING, None)


def an_item(ref: JobRef, version: int = 1, hash: str = CONTENT, status: str = NO_STATUS) -> InventoryItem:
    return InventoryItem(ref.kind, ref.namespace, ref.name, ref.uid, version, hash, status)


def inventory(*items: InventoryItem, round: int = 1) -> Inventory:
    return Inventory(round=round, page=0, last=True, items=list(items))


def strays(count: int) -> list[JobRef]:
    return [JobRef("batch/v1", "Job", "team", f"stray-{number}", f"uid-{number}") for number in range(count)]


async def applied(manager: Manager, ref: JobRef) -> None:
    await manager.receive(Applied(job=ref, workload="w1", spec_version=1))


async def record(manager: Manager) -> Any:
    return Dispatch.from_manifest(await manager.client.get(WORKLOADS, "w1", "team"))


async def shown(manager: Manager) -> Any:
    """The WorkerCluster after what is held was written onto it."""
    cluster = manager.store.clusters.get(None, "east")
    assert cluster is not None
    await manager.guard._show(cluster)
    return await manager.client.get(WORKERCLUSTERS, "east")


def release(manager: Manager, cluster: Any, id: str) -> None:
    """Annotate the WorkerCluster that `shown` returned with the id of a hold."""
    newer = str(int(manager.store.clusters.get(None, "east")["metadata"]["resourceVersion"]) + 1)  # type: ignore[index]
    annotated = cluster["metadata"] | {"annotations": {"slicebus.dev/release-deletes": id}, "resourceVersion": newer}
    manager.store.clusters.put(cluster | {"metadata": annotated})


async def delete_strays(manager: Manager, *refs: JobRef) -> None:
    for ref in refs:
        await manager.resyncer.delete_strays(ref)


# --- asking ---------------------------------------------------------------------------------------------------------


async def test_a_cluster_without_an_inventory_is_asked_once_an_epoch(manager: Manager) -> None:
    for _ in range(3):
        await manager.receive(Heartbeat())
    assert manager.answers == [Resync(reason="NoInventory")]
    await manager.receive(Heartbeat(), epoch=4)
    assert len(manager.answers) == 2


async def test_a_cluster_counts_as_asked_once_the_broker_has_the_request(manager: Manager) -> None:
    failures = [ThrottledError("blocked")]

    def before_publish(message: Message) -> None:
        if isinstance(message, Resync) and failures:
            raise failures.pop()

    manager.before_publish = before_publish
    await manager.receive(Heartbeat())
    assert not failures
    assert manager.answers == [Resync(reason="NoInventory")]


@pytest.mark.parametrize("message", [HELLO, inventory()], ids=["hello", "inventory"])
async def test_a_cluster_that_sends_an_inventory_is_not_asked(manager: Manager, message: Any) -> None:
    await manager.receive(message)
    await manager.receive(Heartbeat())
    assert manager.answers == []


async def test_a_cluster_that_was_silent_is_asked_again(manager: Manager) -> None:
    await manager.receive(HELLO)
    manager.resyncer.forget("east")
    await manager.receive(Heartbeat())
    assert manager.answers == [Resync(reason="NoInventory")]


async def show_connected(manager: Manager, connected: bool, *, accepted: bool = True) -> None:
    """As the first shard shows a cluster, of which another one hears no heartbeats."""
    bodies = {
        "": {"spec": {"accepted": accepted}},
        "status": {"status": {"conditions": [condition("Connected", connected)]}},
    }
    for subresource, body in bodies.items():
        patch = MergePatch(body)
        made = await manager.client.patch(WORKERCLUSTERS, "east", None, patch, subresource=subresource)
        manager.store.clusters.put(made)


@of_shard("1/2")
async def test_another_shard_asks_the_clusters_that_are_connected_once(manager: Manager) -> None:
    asked = []
    for connected, accepted in ((False, True), (True, False), (True, True), (True, True)):
        await show_connected(manager, connected, accepted=accepted)
        await manager.resyncer.ask_connected()
        asked.append(len(manager.answers))
    assert (asked, manager.answers) == ([0, 0, 1, 1], [Resync(reason="NoInventory")])

    manager.resyncer.forget("east")
    await manager.resyncer.ask_connected()
    assert len(manager.answers) == 2, "its place has changed, or it was refused something"


@of_shard("1/2")
@pytest.mark.parametrize("error", [ThrottledError("429"), NotFoundError("no queue")], ids=["throttled", "no queue"])
async def test_what_could_not_be_asked_is_asked_later(manager: Manager, error: SlicebusError) -> None:
    failures = [error]

    def before_publish(_: Message) -> None:
        if failures:
            raise failures.pop()

    manager.before_publish = before_publish
    await show_connected(manager, True)
    await manager.resyncer.ask_connected()
    assert (failures, manager.answers) == ([], [])
    await manager.resyncer.ask_connected()
    assert manager.answers == [Resync(reason="NoInventory")]


@of_shard("1/2")
async def test_who_says_hello_to_another_shard_is_not_asked(manager: Manager) -> None:
    await manager.again(passed_on(manager.wire(HELLO), by="manager", shard=0), exchange=shard_exchange(1))
    await show_connected(manager, True)
    await manager.resyncer.ask_connected()
    assert manager.answers == []


# --- comparing ------------------------------------------------------------------------------------------------------


async def test_equal_jobs_need_nothing(manager: Manager) -> None:
    ref = await manager.given_job()
    await applied(manager, ref)
    before = await manager.client.get(WORKLOADS, "w1", "team")
    await manager.receive(inventory(an_item(ref)))
    assert (manager.published, manager.requeued) == ([], [])
    assert await manager.client.get(WORKLOADS, "w1", "team") == before


async def test_what_is_not_reported_is_published_again(manager: Manager) -> None:
    ref = await manager.given_job()
    manager.store.published[ref] = 1
    await manager.receive(inventory())
    assert manager.store.published == {}
    assert manager.requeued == [ref]


async def test_what_is_lost_is_dispatched_anew_above_what_was_seen(manager: Manager) -> None:
    ref = await manager.given_job()
    await applied(manager, ref)
    await manager.receive(inventory())
    assert await record(manager) == Dispatch(1, LOST, lost_version=1)
    await manager.receive(inventory(an_item(ref, 7), round=2))
    assert await record(manager) == Dispatch(7, LOST, moved=True)


async def test_what_is_lost_is_dispatched_anew_although_its_workload_has_just_changed(manager: Manager) -> None:
    ref = await manager.given_job()
    await applied(manager, ref)
    changed = MergePatch({"metadata": {"annotations": {"of": "somebody"}}})
    await manager.client.patch(WORKLOADS, "w1", "team", changed)
    await manager.receive(inventory())
    assert await record(manager) == Dispatch(1, LOST, lost_version=1)


async def test_what_was_reported_since_counts_more_than_the_inventory(manager: Manager) -> None:
    ref = await manager.given_job()
    first = Inventory(round=1, page=0, last=False, items=[])
    await manager.receive(first)
    await applied(manager, ref)
    await manager.receive(Inventory(round=1, page=1, last=True, items=[]))
    assert await record(manager) == Dispatch(1, CONTENT)
    await manager.receive(inventory(round=2))
    assert await record(manager) == Dispatch(1, LOST, lost_version=1)


async def test_statuses_that_differ_are_asked_for(manager: Manager) -> None:
    ref = await manager.given_job()
    await applied(manager, ref)
    await manager.receive(inventory(an_item(ref, status="other")))
    assert manager.published == [Resync(reason="StatusDiffers", jobs=[ref])]


async def test_a_status_is_asked_for_whatever_else_differs(manager: Manager) -> None:
    """The agent counts its first inventory as reported."""
    ref = await manager.given_job()
    await manager.receive(inventory(an_item(ref, 0, status="other")))
    assert manager.requeued == [ref]
    assert manager.published == [Resync(reason="StatusDiffers", jobs=[ref])]


async def test_what_is_held_counts_as_reported(manager: Manager) -> None:
    ref = await manager.given_job()
    await manager.receive(inventory(an_item(ref)))
    assert applied_version(await manager.client.get(WORKLOADS, "w1", "team")) == 1
    assert (manager.published, manager.requeued) == ([], [])


@pytest.mark.parametrize("reported", [False, True], ids=["applied", "status"])
async def test_only_a_status_makes_up_for_the_inventorys(manager: Manager, reported: bool) -> None:
    ref = await manager.given_job()
    await manager.receive(Inventory(round=1, page=0, last=False, items=[an_item(ref, status="other")]))
    await applied(manager, ref)
    if reported:
        await manager.receive(Status(job=ref, workload="w0", spec_version=1, phase=JobPhase.RUNNING))
    await manager.receive(Inventory(round=1, page=1, last=True, items=[]))
    assert manager.published == ([] if reported else [Resync(reason="StatusDiffers", jobs=[ref])])


async def test_a_status_that_was_mirrored_is_the_same(manager: Manager) -> None:
    ref = await manager.given_job()
    await applied(manager, ref)
    report = Status(job=ref, workload="w0", spec_version=1, phase=JobPhase.RUNNING, job_status={"active": 1})
    await manager.receive(report)
    await manager.receive(inventory(an_item(ref, status=status_hash({"active": 1}, JobPhase.RUNNING, None))))
    assert manager.published == []


@pytest.mark.parametrize("reported", [False, True], ids=["nothing since", "applied since"])
async def test_a_request_that_is_not_known_is_asked_for_once_an_inventory(manager: Manager, reported: bool) -> None:
    ref = await manager.given_job()
    await applied(manager, ref)
    requests = {ref.uid: RequestKey("worker-uid", 2)}
    await manager.receive(Inventory(round=1, page=0, last=False, items=[an_item(ref)], unanswered=requests))
    if reported:
        await applied(manager, ref)
    await manager.receive(Inventory(round=1, page=1, last=True, items=[]))
    assert manager.published == [Resync(reason="RequestUnknown", jobs=[ref])]
    assert manager.registry.get_sample_value(
        "slicebus_manager_differences_total", {"cluster": "east", "difference": "request"}
    )
    asked = ScaleRequest(
        job=ref, workload="w1", worker_uid="worker-uid", worker_generation=2, granted={"main": 1}, wanted={"main": 5}
    )
    await manager.receive(asked)
    await manager.receive(msgspec.structs.replace(inventory(an_item(ref), round=2), unanswered=requests))
    assert len(manager.published) == 1


async def test_an_inventory_concerns_only_its_cluster(manager: Manager) -> None:
    ref = await manager.given_job()
    await applied(manager, ref)
    await manager.receive(inventory(), cluster="west")
    assert await record(manager) == Dispatch(1, CONTENT)


# --- strays ---------------------------------------------------------------------------------------------------------


async def test_a_stray_is_deleted_with_a_tombstone_above_its_version(manager: Manager) -> None:
    [stray] = strays(1)
    await manager.receive(inventory(an_item(stray, 5)))
    assert manager.requeued == [stray]
    await delete_strays(manager, stray)
    assert manager.published == [Delete(job=stray, spec_version=6, reason="UnknownJob")]
    await delete_strays(manager, stray)
    assert len(manager.published) == 1


async def test_a_job_that_the_cache_does_not_have_and_the_server_has_is_no_stray(manager: Manager) -> None:
    ref = await manager.given_job()
    for resource, name in ((JOBS, "train"), (WORKLOADS, "w1")):
        cache = manager.store.cache_of(resource)
        assert cache is not None
        found = cache.get("team", name)
        assert found is not None
        await cache.replace([], found["metadata"]["resourceVersion"])
    await manager.receive(inventory(an_item(ref)))
    await delete_strays(manager, ref)
    assert manager.published == []


async def test_a_job_that_runs_elsewhere_is_deleted_here(manager: Manager) -> None:
    ref = await manager.given_job()
    await manager.receive(inventory(an_item(ref)), cluster="west")
    await delete_strays(manager, ref)
    assert manager.published == [Delete(job=ref, spec_version=2, reason="UnknownJob")]


async def test_too_many_strays_are_held_and_reported(manager: Manager) -> None:
    found = strays(3)
    await manager.receive(inventory(*map(an_item, found)))
    await delete_strays(manager, *found)
    assert manager.published == []
    assert (await shown(manager))["status"]["heldDeletes"]["jobs"] == 3
    assert manager.registry.get_sample_value("slicebus_deletes_held", {"cluster": "east"}) == 3


async def test_strays_that_are_gone_are_no_longer_held(manager: Manager) -> None:
    found = strays(3)
    await manager.receive(inventory(*map(an_item, found)))
    await delete_strays(manager, *found)
    await manager.receive(inventory(round=2))
    await shown(manager)
    assert manager.registry.get_sample_value("slicebus_deletes_held", {"cluster": "east"}) == 0


async def test_a_release_lets_the_held_ones_go(manager: Manager) -> None:
    found = strays(3)
    manager.guard.watch()
    await manager.receive(inventory(*map(an_item, found)))
    await delete_strays(manager, *found)
    written = await shown(manager)
    for id, count in (("another", 0), (written["status"]["heldDeletes"]["id"], 3)):
        release(manager, written, id)
        await delete_strays(manager, *found)
        assert len(manager.published) == count
    assert {msgspec.structs.asdict(message)["job"] for message in manager.published} == set(found)


async def test_released_ones_are_not_held_again_by_an_inventory_that_was_on_its_way(manager: Manager) -> None:
    found = strays(3)
    manager.guard.watch()
    await manager.receive(inventory(*map(an_item, found)))
    await delete_strays(manager, *found)
    written = await shown(manager)
    release(manager, written, written["status"]["heldDeletes"]["id"])
    for round in (2, 3):
        await delete_strays(manager, *found)
        assert len(manager.published) == 3 * (round - 1), "the tombstone makes a second delete a no-op"
        await manager.receive(inventory(*map(an_item, found), round=round))
    await manager.receive(inventory(round=4))
    await manager.receive(inventory(*map(an_item, found), round=5))
    await delete_strays(manager, *found)
    assert len(manager.published) == 6, "they had gone and came again: that is nothing that anybody released"


# --- more strays than are looked at ---------------------------------------------------------------------------------


@pytest.fixture
def two_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resyncer, "_MOST_STRAYS", 2)


async def test_others_run_while_the_strays_of_an_inventory_are_looked_at(manager: Manager) -> None:
    items = {ref: an_item(ref) for ref in strays(3000)}
    listed = Listed(ClusterName("east"), "uid-of-east", "east/uid-of-east", Stamp((3, 1)), items)
    comparing = asyncio.create_task(manager.resyncer._compare(listed))
    turns = 0
    while not comparing.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 30
    assert len(manager.requeued) == 1000


async def test_others_run_while_a_complete_inventory_is_decoded(manager: Manager) -> None:
    envelope = an_envelope(sequence=1)
    for number in range(40):
        await manager.resyncer.take(envelope, Inventory(round=1, page=number, last=False, items=[]))
    taking = asyncio.create_task(manager.resyncer.take(envelope, Inventory(round=1, page=40, last=True, items=[])))
    turns = 0
    while not taking.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 40


async def test_strays_beyond_those_that_are_looked_at_are_told_and_come_with_the_next_inventory(
    manager: Manager, two_at_a_time: None
) -> None:
    manager.guard._limits = DeleteLimits(share=1.0, count=100, window_s=60.0)
    left, rounds = strays(5), 0
    while left:
        rounds += 1
        manager.requeued.clear()
        await manager.receive(inventory(*map(an_item, left), round=rounds))
        await delete_strays(manager, *manager.requeued)
        deleted = [message.job for message in manager.published if isinstance(message, Delete)]
        left = [ref for ref in left if ref not in deleted]
        await manager.receive(Heartbeat())
    assert rounds == 3
    assert [reason for reason, _ in manager.events].count("ManyStrays") == 2
    assert manager.answers.count(Resync(reason="NoInventory")) == 2, "the next one is asked for at once"


async def test_those_that_nobody_has_looked_at_count_as_deletes_that_wait(
    manager: Manager, two_at_a_time: None
) -> None:
    found = strays(3)
    await manager.receive(inventory(*map(an_item, found)))
    await delete_strays(manager, *found)
    assert manager.published == []
    first = (await shown(manager))["status"]["heldDeletes"]
    assert (first["jobs"], first["unseen"]) == (2, 1)
    assert "2 jobs would be deleted at once, and 1 more are looked at after these: look, then" in manager.events[-1][1]
    await manager.receive(inventory(*map(an_item, reversed(found)), round=2))
    await delete_strays(manager, *found)
    assert (await shown(manager))["status"]["heldDeletes"] == first, "the same jobs wait"


async def test_a_stray_that_does_not_go_keeps_no_other_from_its_turn(manager: Manager, two_at_a_time: None) -> None:
    manager.guard._limits = DeleteLimits(share=1.0, count=100, window_s=60.0)
    found = strays(5)
    for round in range(1, 4):
        await manager.receive(inventory(*map(an_item, found), round=round))
        await delete_strays(manager, *found)
    assert {message.job for message in manager.published if isinstance(message, Delete)} == set(found)
    await manager.receive(Heartbeat())
    assert manager.answers == manager.published[:6], "each was looked at: no inventory is asked for"


@pytest.mark.decisions_fail
async def test_a_job_that_cannot_be_compared_affects_no_other(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = await manager.given_job()
    manager.store.published[ref] = 1

    def stumble(*_: object, **__: object) -> None:
        raise KeyError("main")

    monkeypatch.setattr(catalog.inventory, "difference", stumble)
    stray = strays(1)[0]
    await manager.receive(inventory(an_item(ref), an_item(stray)))
    assert manager.dead == []
    assert manager.requeued == [stray]
