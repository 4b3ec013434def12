"""Two clusters of one name: the first UID has it, the other is reported, and only the one gets orders."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from slicebus.kube.client import MergePatch
from slicebus.kube.resources import WORKERCLUSTERS
from slicebus.manager.decide.cluster import identity, worker_cluster_status
from slicebus.manager.decide.cluster.identity import NAME_CONFLICT
from slicebus.manager.decide.messages.authorization import check as authorize
from slicebus.manager.state.outbox import LOST, Dispatch
from slicebus.manager.state.worker_clusters import Sender, pinned_uid
from slicebus.proto.codec import encode
from slicebus.proto.errors import DeadReason, ProtocolError
from slicebus.proto.issuer import Issuer
from slicebus.proto.messages import Applied, ClusterName, ClusterUid, Heartbeat
from slicebus.proto.topology import UP
from slicebus.sandbox.bus import MemoryBus
from unit.manager.message_router import Manager
from unit.manager.objects import NOW, an_envelope, shorts
from unit.manager.test_inbox import status
from unit.manager.test_resyncer import an_item, inventory, record
from unit.manager.test_worker_cluster_status import BEAT, HELLO, a_cluster, carried_out

Manifest = dict[str, Any]
ONE, OTHER = ClusterUid("uid-1"), ClusterUid("uid-2")
SOON, LATER = "2026-01-31T12:04:59Z", "2026-01-31T12:05:00Z"
PINNED = {"clusterUID": ONE}


@pytest.mark.parametrize(
    ("has", "says", "refused"),
    [
        (None, ONE, None),
        (ONE, ONE, None),
        (ONE, OTHER, DeadReason.WRONG_CLUSTER),
    ],
    ids=["the first", "the same", "another"],
)
@pytest.mark.parametrize("epoch", [4, 5])
def test_who_has_the_name(has: ClusterUid | None, says: ClusterUid, refused: DeadReason | None, epoch: int) -> None:
    sender = Sender(accepted=True, user="east", epoch=5, uid=has)
    envelope = an_envelope(uid=says, epoch=epoch)
    if refused is None and epoch == 5:
        authorize(envelope, sender, newest_epoch=9)
        return
    with pytest.raises(ProtocolError) as raised:
        authorize(envelope, sender, newest_epoch=9)
    # Of another cluster an epoch says nothing.
    assert raised.value.reason is (refused or DeadReason.FENCED_EPOCH)


def test_the_first_uid_is_pinned() -> None:
    cluster = a_cluster()
    assert pinned_uid(cluster) is None
    said = an_envelope(uid=ONE)
    assert pinned_uid(carried_out(cluster, worker_cluster_status.hello(cluster, HELLO, said, now=NOW))) == ONE
    assert pinned_uid(carried_out(cluster, worker_cluster_status.heartbeat(cluster, BEAT, said, now=NOW))) == ONE


def conflict_of(cluster: Manifest) -> str:
    statuses = {entry["type"]: entry["status"] for entry in cluster["status"]["conditions"]}
    return statuses.get(NAME_CONFLICT, "none")


def test_another_cluster_of_the_name_is_reported_once() -> None:
    cluster = a_cluster(True, status=PINNED)
    commands = identity.conflict(cluster, an_envelope(uid=OTHER), now=NOW)
    assert shorts(commands) == [
        ("east", "NameConflict=True OtherCluster", "otherCluster"),
        ("warn WorkerCluster", "NameConflict"),
    ]
    cluster = carried_out(cluster, commands)
    assert identity.other_uid(cluster) == OTHER
    assert pinned_uid(cluster) == ONE
    [again] = identity.conflict(cluster, an_envelope(uid=OTHER), now=LATER)
    assert carried_out(cluster, [again])["status"]["otherCluster"]["lastSeenTime"] == LATER


@pytest.mark.parametrize(
    ("repinned", "says", "now", "status"),
    [(False, ONE, SOON, "True"), (False, ONE, LATER, "False"), (True, OTHER, NOW, "False")],
    ids=["still there", "silent since", "it has the name now"],
)
def test_a_conflict_ends(repinned: bool, says: ClusterUid, now: str, status: str) -> None:
    cluster = a_cluster(True, status=PINNED)
    cluster = carried_out(cluster, identity.conflict(cluster, an_envelope(uid=OTHER), now=NOW))
    if repinned:
        cluster["status"] |= identity.repinned(OTHER)["status"]
    cluster = carried_out(cluster, worker_cluster_status.heartbeat(cluster, BEAT, an_envelope(uid=says), now=now))
    assert conflict_of(cluster) == status
    assert (identity.other_uid(cluster) is None) is (status == "False")


async def test_the_other_cluster_changes_nothing_and_is_reported(manager: Manager) -> None:
    ref = await manager.given_job()
    await manager.receive(HELLO, uid=ONE)
    await manager.receive(HELLO, uid=OTHER, epoch=9)
    await manager.receive(Heartbeat(), uid=OTHER, epoch=9)
    await manager.receive(status(ref, 7), uid=OTHER, epoch=9)
    assert manager.dead == []
    cluster = await manager.client.get(WORKERCLUSTERS, "east")
    assert (cluster["status"]["clusterUID"], cluster["status"]["epoch"], conflict_of(cluster)) == (
        ONE,
        3,
        "True",
    )
    assert await manager.job_status() == {}
    counted = {"cluster": "east", "type": "status"}
    assert manager.registry.get_sample_value("slicebus_manager_of_other_clusters_total", counted) == 1


async def test_a_repinned_cluster_may_speak_whatever_its_epoch(manager: Manager) -> None:
    ref = await manager.given_job()
    await manager.receive(HELLO, uid=ONE, epoch=9)
    await manager.receive(Applied(job=ref, workload="w1", spec_version=1), uid=ONE, epoch=9)
    await manager.receive(inventory(), uid=ONE, epoch=9)
    await manager.receive(status(ref, 7), uid=ONE, epoch=9)
    repin = MergePatch(identity.repinned(OTHER))
    manager.store.clusters.put(await manager.client.patch(WORKERCLUSTERS, "east", None, repin, subresource="status"))
    await manager.receive(HELLO, uid=OTHER)
    await manager.receive(inventory(an_item(ref, 7)), uid=OTHER)
    assert await record(manager) == Dispatch(7, LOST, moved=True)
    await manager.receive(status(ref, 2), uid=OTHER)
    assert (await manager.job_status())["active"] == 2


async def test_a_status_of_another_cluster_supersedes_nothing(manager: Manager) -> None:
    ref = await manager.given_job()
    await manager.receive(HELLO, uid=ONE)
    issuer = Issuer(epoch=3, user="east", now=lambda: datetime.now(UTC), random=lambda count: b"\0" * count)
    for active, uid in ((1, ONE), (2, ONE), (3, OTHER)):
        message = status(ref, active)
        wire = encode(issuer.envelope(message, ClusterName("east"), uid), message)
        await MemoryBus(manager.broker, user="east").publish(UP, msgspec.structs.replace(wire, user_id="east"))
    await manager.receive(Heartbeat(), uid=ONE)
    assert (await manager.job_status())["active"] == 2
