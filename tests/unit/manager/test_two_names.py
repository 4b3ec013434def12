"""One cluster under two names: the WorkerCluster that its UID is pinned to has it, and no message of another counts.

A cluster that was restored from another's etcd has that one's UID, and whoever has a cluster's broker user may say it.
"""

from collections.abc import Callable
from typing import Any

import pytest

from slicebus.bus.dead_letters.headers import passed_on
from slicebus.kube.client import MergePatch
from slicebus.kube.resources import JOBS, WORKERCLUSTERS
from slicebus.manager.decide.cluster import identity
from slicebus.manager.state.annotations import job_ref
from slicebus.manager.state.outbox import LOST, Dispatch
from slicebus.manager.state.worker_clusters import pinned_uid
from slicebus.proto.messages import ClusterName, ClusterUid, Heartbeat, Message, Terms
from slicebus.proto.topology import shard_exchange
from slicebus.slices.api.conditions import conditions_of
from unit.manager.message_router import Manager, of_shard
from unit.manager.objects import a_job
from unit.manager.test_inbox import HELLO, status
from unit.manager.test_resyncer import an_item, inventory, record
from unit.manager.test_router import job_of_shard

Manifest = dict[str, Any]
ONE, OTHER = ClusterUid("uid-1"), ClusterUid("uid-2")
AHEAD = 9
"""An epoch above that of everybody else."""


async def cluster_of(manager: Manager, name: str) -> Manifest:
    return await manager.client.get(WORKERCLUSTERS, name)


async def conflict_of(manager: Manager, name: str) -> tuple[str, str, str]:
    """The status, reason and message of the WorkerCluster's condition."""
    found = conditions_of(await cluster_of(manager, name))
    [shown] = [entry for entry in found if entry["type"] == identity.NAME_CONFLICT]
    return shown["status"], shown["reason"], shown["message"]


async def pin(manager: Manager, name: str, uid: ClusterUid) -> None:
    await written(manager, name, identity.repinned(uid))


async def written(manager: Manager, name: str, body: Manifest) -> None:
    """A status that somebody writes beside the manager."""
    patched = await manager.client.patch(WORKERCLUSTERS, name, None, MergePatch(body), subresource="status")
    manager.store.clusters.put(patched)


async def removed(manager: Manager, name: str) -> None:
    cluster = await cluster_of(manager, name)
    await manager.client.delete(WORKERCLUSTERS, name)
    manager.store.clusters.remove(cluster)


def terms(manager: Manager) -> int:
    return sum(isinstance(message, Terms) for message in manager.published)


async def test_a_cluster_that_is_not_pinned_silences_no_other(manager: Manager) -> None:
    await manager.receive(HELLO, uid=ONE)
    for message in (HELLO, Heartbeat(), Heartbeat()):
        await manager.receive(message, cluster="west", uid=ONE, epoch=AHEAD)
    assert pinned_uid(await cluster_of(manager, "west")) is None
    answered = terms(manager)
    await manager.receive(Heartbeat(jobs=4), uid=ONE)
    assert (await cluster_of(manager, "east"))["status"]["jobs"] == 4
    assert terms(manager) == answered + 1


async def test_it_is_told_once_who_has_the_uid_and_what_to_do(manager: Manager) -> None:
    await manager.receive(HELLO, uid=ONE)
    for message in (HELLO, Heartbeat(), Heartbeat()):
        await manager.receive(message, cluster="west", uid=ONE, epoch=AHEAD)
    assert await conflict_of(manager, "west") == (
        "True",
        "OtherName",
        "A cluster speaks as west whose UID, uid-1, WorkerCluster east is bound to. A cluster that was restored from "
        "east's backup has that UID too: if it replaces east, give its agent that name, or take the UID away: "
        "slicebus fleet revoke east",
    )
    assert [reason for reason, _ in manager.events].count(identity.NAME_CONFLICT) == 1
    assert manager.dead == []
    counted = {"cluster": "west", "type": "heartbeat"}
    assert manager.registry.get_sample_value("slicebus_manager_of_other_clusters_total", counted) == 2


async def test_one_with_a_uid_of_its_own_before_has_to_be_bound_to_the_new_one(manager: Manager) -> None:
    await manager.receive(HELLO, uid=ONE)
    await manager.receive(HELLO, cluster="west", uid=OTHER)
    await manager.receive(HELLO, cluster="west", uid=ONE)
    _, reason, message = await conflict_of(manager, "west")
    assert reason == "OtherName"
    assert message.endswith(": slicebus fleet revoke east, and then slicebus fleet repin west")


async def test_of_two_that_are_not_pinned_the_first_has_the_uid(manager: Manager) -> None:
    await manager.receive(HELLO, cluster="west", uid=ONE)
    await manager.receive(HELLO, uid=ONE, epoch=AHEAD)
    pins = {name: pinned_uid(await cluster_of(manager, name)) for name in ("east", "west")}
    assert pins == {"east": None, "west": ONE}
    assert "slicebus fleet revoke west" in (await conflict_of(manager, "east"))[2]


async def unpin(manager: Manager, name: str) -> None:
    await written(manager, name, identity.unpinned())


async def pin_to_another(manager: Manager, name: str) -> None:
    await pin(manager, name, OTHER)


WAYS: dict[str, Callable[[Manager, str], Any]] = {
    "revoked": unpin,
    "bound to another": pin_to_another,
    "deleted": removed,
}


@pytest.mark.parametrize("release", WAYS.values(), ids=WAYS.keys())
async def test_who_loses_the_pin_lets_the_other_in(manager: Manager, release: Callable[[Manager, str], Any]) -> None:
    await manager.receive(HELLO, uid=ONE)
    await manager.receive(HELLO, cluster="west", uid=ONE)
    await release(manager, "east")
    await manager.receive(Heartbeat(), cluster="west", uid=ONE)
    assert pinned_uid(await cluster_of(manager, "west")) == ONE
    assert (await conflict_of(manager, "west"))[:2] == ("False", "OneCluster")


async def test_of_two_that_are_pinned_in_one_moment_one_is_heard(manager: Manager) -> None:
    for name in ("east", "west"):
        await pin(manager, name, ONE)
    await manager.receive(Heartbeat(jobs=1), cluster="west", uid=ONE, epoch=AHEAD)
    await manager.receive(Heartbeat(jobs=2), uid=ONE)
    jobs = {name: (await cluster_of(manager, name))["status"].get("jobs") for name in ("east", "west")}
    assert jobs == {"east": 2, "west": None}
    told = await conflict_of(manager, "west")
    assert told[:2] == ("True", "OtherName")
    assert told[2].endswith(": slicebus fleet revoke east"), "it is bound to the UID already"
    await unpin(manager, "east")
    await manager.receive(Heartbeat(jobs=3), cluster="west", uid=ONE, epoch=AHEAD)
    assert (await cluster_of(manager, "west"))["status"]["jobs"] == 3
    assert (await conflict_of(manager, "west"))[:2] == ("False", "OneCluster")


EARLIER, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"
BOUND: dict[str, tuple[dict[str, str], str, str | None]] = {
    "nobody": ({}, "east", None),
    "itself": ({"east": EARLIER}, "east", None),
    "another": ({"west": LATER}, "east", "west"),
    "the older of both": ({"east": EARLIER, "west": LATER}, "east", None),
    "the younger of both": ({"east": LATER, "west": EARLIER}, "east", "west"),
    "both of one second": ({"east": LATER, "west": LATER}, "west", "east"),
    "two others": ({"north": LATER, "west": EARLIER}, "east", "west"),
}


@pytest.mark.parametrize(("bound", "name", "other"), BOUND.values(), ids=BOUND.keys())
def test_the_oldest_that_is_bound_to_a_uid_has_it(bound: dict[str, str], name: str, other: str | None) -> None:
    clusters = [{"metadata": {"name": one, "creationTimestamp": at}} for one, at in bound.items()]
    assert identity.other_name(ClusterName(name), clusters) == other


async def test_one_that_is_not_accepted_silences_no_other_that_is_bound(manager: Manager) -> None:
    for name in ("north", "west"):
        await pin(manager, name, ONE)
    await manager.receive(Heartbeat(jobs=1), cluster="west", uid=ONE)
    assert (await cluster_of(manager, "west"))["status"]["jobs"] == 1


async def test_one_that_is_not_accepted_keeps_its_uid_from_those_that_are_not_bound(manager: Manager) -> None:
    await pin(manager, "north", ONE)
    await manager.receive(Heartbeat(jobs=1), cluster="west", uid=ONE)
    assert (await conflict_of(manager, "west"))[2].endswith(": slicebus fleet revoke north")
    assert pinned_uid(await cluster_of(manager, "west")) is None


@of_shard("1/2")
@pytest.mark.parametrize("message", [HELLO, Heartbeat()], ids=["hello", "heartbeat"])
@pytest.mark.parametrize("is_pinned", [True, False], ids=["pinned", "not yet"])
async def test_on_another_shard_it_fences_nobody(manager: Manager, message: Message, is_pinned: bool) -> None:
    """The first shard passes on what comes before it has written a pin, and this one may have it already."""
    ref = await job_of_shard(manager, 1)
    if is_pinned:
        await pin(manager, "east", ONE)
    wire = manager.wire(message, cluster="west", uid=ONE, epoch=AHEAD)
    await manager.again(passed_on(wire, by="manager", shard=0), exchange=shard_exchange(1))
    await manager.receive(status(ref, 2), uid=ONE, to_shard=1)
    assert (await manager.job_status())["active"] == 2


async def test_a_status_before_the_pin_overtakes_none_of_another(manager: Manager) -> None:
    """Of a job that runs nowhere yet each cluster may say something; it has no effect."""
    ref = job_ref(await manager.given(JOBS, a_job()))
    await manager.receive(status(ref, 7), cluster="west", uid=ONE, epoch=AHEAD)
    assert await manager.job_status() == {}
    await manager.receive(status(ref, 2), uid=ONE)
    assert {key: at[0] for key, at in manager.store.last_status.items()} == {
        ("east/uid-1", ref.uid): 3,
        ("west/uid-1", ref.uid): AHEAD,
    }


async def test_an_inventory_before_the_pin_overtakes_none_of_another(manager: Manager) -> None:
    ref = await manager.given_job()
    await manager.receive(inventory(), cluster="west", uid=ONE, epoch=AHEAD)
    await manager.receive(inventory(an_item(ref, 7)), uid=ONE)
    assert await record(manager) == Dispatch(7, LOST, moved=True)
