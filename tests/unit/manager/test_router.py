"""What the first shard of the manager passes on, and what the others do with it."""

from slicebus.bus.dead_letter_headers import USER_HEADER, passed_on
from slicebus.kube.resources import CLUSTERQUEUES, JOBS, LOCALQUEUES, WORKERCLUSTERS
from slicebus.proto.codec import decode
from slicebus.proto.envelope import WireMessage
from slicebus.proto.messages import JobRef, Lane
from slicebus.proto.topology import manager_queue, shard_exchange
from slicebus.slices import own_api
from unit.manager.receiving import Manager, of_shard
from unit.manager.test_inbox import HELLO, request, status
from unit.manager.test_quota_trees import an_object


async def job_of_shard(manager: Manager, shard: int) -> JobRef:
    """A job on east whose ClusterQueue that shard has."""
    queue = an_object("ClusterQueue", "cq", {"namespaceSelector": {}, "resourceGroups": []})
    queue["metadata"]["annotations"] = {own_api.SHARD_ANNOTATION: str(shard)}
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
async def test_nothing_of_who_may_not_speak_is_passed_on(manager: Manager) -> None:
    ref = await job_of_shard(manager, 1)
    await manager.receive(status(ref, 1), user="mallory")
    await manager.receive(HELLO, cluster="north")
    assert [of_the_second(manager, lane) for lane in Lane] == [[], []]
    assert manager.dead == ["wrong-user", "unknown-cluster"]


@of_shard("1/2")
async def test_a_shard_takes_what_it_gets_and_answers_for_no_cluster(manager: Manager) -> None:
    ref = await job_of_shard(manager, 1)
    manager.store.published[ref] = 1
    for message in (request(ref), HELLO):
        await manager.again(passed_on(manager.wire(message), by="manager"), exchange=shard_exchange(1))
    job = await manager.client.get(JOBS, "train", "team")
    assert own_api.REQUESTED_ANNOTATION in job["metadata"]["annotations"]
    assert (manager.dead, manager.published) == ([], [])
    assert manager.store.published == {}, "the agent may have missed what was published before"
    assert "status" not in await manager.client.get(WORKERCLUSTERS, "east")
