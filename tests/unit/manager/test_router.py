"""What the shards of the manager pass on, and what they do with what is passed on and addressed to them."""

import pytest

from slicebus.bus.dead_letters.headers import USER_HEADER, passed_on
from slicebus.bus.factory import connect
from slicebus.kube.resources import CLUSTERQUEUES, LOCALQUEUES, WORKERCLUSTERS, WORKLOADS
from slicebus.manager.act.router import take_addressed
from slicebus.manager.state.worker_clusters import CONNECTED, is_true
from slicebus.proto.codec import decode
from slicebus.proto.envelope import WireMessage
from slicebus.proto.messages import Heartbeat, JobRef, Lane
from slicebus.proto.topology import UP, cluster_topology, manager_queue, manager_topology, shard_exchange
from slicebus.slices.api import api_names
from unit.manager.message_router import Manager, of_shard
from unit.manager.test_inbox import HELLO, request, status
from unit.manager.test_quota_trees import an_object


async def job_of_shard(manager: Manager, shard: int) -> JobRef:
    """A job on east whose ClusterQueue that shard has."""
    queue = an_object("ClusterQueue", "cq", {"namespaceSelector": {}, "resourceGroups": []})
    queue["metadata"]["annotations"] = {api_names.SHARD_ANNOTATION: str(shard)}
    await manager.given(CLUSTERQUEUES, queue)
    await manager.given(LOCALQUEUES, an_object("LocalQueue", "queue", {"clusterQueue": "cq"}, "team"))
    return await manager.given_job()


def of_the_second(manager: Manager, lane: Lane) -> list[WireMessage]:
    return [entry.message for entry in manager.broker.queues[manager_queue(lane, 1)].ready]


@of_shard("0/2")
async def test_what_is_about_a_job_goes_to_its_shard_as_it_came(manager: Manager) -> None:
    ref = await job_of_shard(manager, 1)
    sent = await manager.receive(status(ref, 1))
    [got] = of_the_second(manager, Lane.STATUS)
    assert (got.body, got.routing_key, got.message_id) == (sent.body, sent.routing_key, sent.message_id)
    assert (got.user_id, got.headers[USER_HEADER]) == ("manager", "east")
    assert await manager.job_status() == {}, "it is not handled here"
    assert "east" in manager.inbox.last_message_at


@of_shard("0/2")
async def test_its_own_stays(manager: Manager) -> None:
    ref = await job_of_shard(manager, 0)
    await manager.receive(status(ref, 1))
    assert of_the_second(manager, Lane.STATUS) == []
    assert await manager.job_status() == {"active": 1}


@of_shard("0/2")
async def test_what_is_about_a_cluster_goes_to_all(manager: Manager) -> None:
    await manager.receive(HELLO)
    [got] = of_the_second(manager, Lane.CONTROL)
    assert decode(got).message == HELLO
    assert (await manager.client.get(WORKERCLUSTERS, "east"))["status"]["epoch"] == 3


@of_shard("0/2")
async def test_a_heartbeat_goes_to_the_first_shard_alone(manager: Manager) -> None:
    await manager.receive(Heartbeat())
    assert [of_the_second(manager, lane) for lane in Lane] == [[], []]
    assert is_true(await manager.client.get(WORKERCLUSTERS, "east"), CONNECTED)
    assert "east" in manager.inbox.last_message_at


@of_shard("0/2")
async def test_nothing_of_who_may_not_speak_is_passed_on(manager: Manager) -> None:
    ref = await job_of_shard(manager, 1)
    await manager.receive(status(ref, 1), user="mallory")
    await manager.receive(HELLO, cluster="north")
    assert [of_the_second(manager, lane) for lane in Lane] == [[], []]
    assert manager.dead == ["wrong-user", "unknown-cluster"]


@of_shard("1/2")
async def test_a_shard_takes_what_is_passed_on_to_it_and_answers_for_no_cluster(manager: Manager) -> None:
    ref = await job_of_shard(manager, 1)
    manager.store.published[ref] = 1
    for message in (request(ref), HELLO):
        await manager.again(passed_on(manager.wire(message), by="manager", shard=0), exchange=shard_exchange(1))
    workload = await manager.client.get(WORKLOADS, "w1", "team")
    assert api_names.REQUESTED_ANNOTATION in workload["metadata"]["annotations"]
    assert (manager.dead, manager.published) == ([], [])
    assert manager.store.published == {}, "the agent may have missed what was published before"
    assert "status" not in await manager.client.get(WORKERCLUSTERS, "east")


@of_shard("1/2")
async def test_a_shard_takes_what_is_addressed_to_it(manager: Manager) -> None:
    ref = await job_of_shard(manager, 1)
    await manager.receive(status(ref, 1), to_shard=1)
    assert await manager.job_status() == {"active": 1}


@of_shard("1/2")
async def test_a_job_that_has_moved_since_is_told_to_whoever_has_it(manager: Manager) -> None:
    manager.broker.declare(cluster_topology("east"))
    ref = await job_of_shard(manager, 0)
    sent = await manager.receive(status(ref, 1), to_shard=1)
    [got] = (entry.message for entry in manager.broker.queues[manager_queue(Lane.STATUS)].ready)
    assert (got.body, got.routing_key, got.headers[USER_HEADER]) == (sent.body, "east.status.1", "east")
    assert await manager.job_status() == {}
    journal = [record.message.user_id for record in manager.broker.journal]
    assert journal == ["east"], "it is there once, as it was sent"


@of_shard("0/2")
async def test_what_was_passed_on_goes_no_further(manager: Manager) -> None:
    """Two shards that differ about who has a job would send it to and fro."""
    ref = await job_of_shard(manager, 1)
    wire = passed_on(manager.wire(status(ref, 1), to_shard=1), by="manager", shard=1)
    await manager.again(wire, exchange=shard_exchange(0))
    assert of_the_second(manager, Lane.STATUS) == []
    assert await manager.job_status() == {"active": 1}


@of_shard("0/2")
async def test_only_a_manager_passes_on(manager: Manager) -> None:
    ref = await job_of_shard(manager, 0)
    wire = passed_on(manager.wire(status(ref, 1)), by="mallory", shard=1)
    await manager.again(wire)
    assert manager.dead == ["wrong-user"]


@of_shard("1/2")
@pytest.mark.parametrize(
    ("how", "reason"),
    [({"user": "mallory"}, "wrong-user"), ({"cluster": "north"}, "unknown-cluster")],
    ids=["another's user", "a cluster that is not accepted"],
)
async def test_a_shard_looks_at_the_sender_of_what_is_addressed_to_it(
    manager: Manager, how: dict[str, str], reason: str
) -> None:
    ref = await job_of_shard(manager, 1)
    await manager.receive(status(ref, 1), to_shard=1, **how)
    assert manager.dead == [reason]
    assert await manager.job_status() == {}


@of_shard("1/2")
async def test_a_shard_fences_an_older_epoch_before_the_cluster_shows_the_newer_one(manager: Manager) -> None:
    ref = await job_of_shard(manager, 1)
    for number, epoch in enumerate((3, 4, 3), start=1):
        await manager.receive(status(ref, number), to_shard=1, epoch=epoch)
    assert "status" not in await manager.client.get(WORKERCLUSTERS, "east")
    assert await manager.job_status() == {"active": 2}
    labels = {"cluster": "east", "type": "status"}
    assert manager.registry.get_sample_value("slicebus_manager_fenced_total", labels) == 1


async def test_what_is_addressed_to_a_shard_that_is_over_comes_to_the_first(broker_name: str) -> None:
    bus, key = await connect(f"memory://manager@{broker_name}", name="manager"), "east.status.1"
    await bus.declare(manager_topology(2))
    message = WireMessage(routing_key=key, body=b"{}", headers={}, user_id="manager")
    depths = []
    for taken_by in (1, 0, 1):
        await take_addressed(bus, 1, by=taken_by)
        await bus.publish(UP, message)
        depths.append([(await bus.depth(manager_queue(Lane.STATUS, shard))).ready for shard in range(2)])
    await bus.aclose()
    assert depths == [[0, 1], [1, 1], [1, 2]]
