"""Where the agent's publisher sends what, and what it does while the broker is being rebuilt."""

import msgspec
import pytest

from slicebus.agent.act.addressees import Addressees
from slicebus.agent.act.publisher import AgentPublisher
from slicebus.ambient.clock import now, random_bytes
from slicebus.bus.contract import Bus
from slicebus.bus.factory import connect
from slicebus.decisions.commands import Publish
from slicebus.journal.streams import read_journals
from slicebus.proto.errors import ForbiddenError, UnavailableError
from slicebus.proto.issuer import Issuer
from slicebus.proto.messages import ClusterUid, Heartbeat, Hello, JobPhase, Lane, ScaleRequest, Status
from slicebus.proto.topology import (
    STRANGERS,
    UP,
    Exchange,
    Topology,
    addressed,
    cluster_queue,
    cluster_topology,
    manager_queue,
    manager_topology,
)
from unit.agent.objects import EAST, REF

STATUS = Status(job=REF, workload="w1", spec_version=1, phase=JobPhase.RUNNING)


def publisher_of(bus: Bus, addressees: Addressees) -> AgentPublisher:
    issuer = Issuer(epoch=1, user="east", now=now, random=random_bytes)
    return AgentPublisher(bus, issuer, cluster_uid=ClusterUid("u"), addressees=addressees)


async def test_what_is_about_a_job_goes_to_the_shard_of_its_last_order(broker_name: str) -> None:
    bus, addressees = await connect(f"memory://east@{broker_name}", name="east"), Addressees()
    publisher = publisher_of(bus, addressees)
    await bus.declare(manager_topology(2) + cluster_topology(EAST) + Topology((), (), addressed(1, taken_by=1)))
    addressees.note(REF, 1)
    await publisher.publish(Publish(cluster=EAST, message=STATUS))
    await publisher.publish(Publish(cluster=EAST, message=Heartbeat()))
    addressees.note(REF, 0)
    await publisher.publish(Publish(cluster=EAST, message=STATUS))
    queues = [*(cluster_queue(EAST, lane) for lane in Lane), *(manager_queue(lane, 1) for lane in Lane)]
    depths = [(await bus.depth(queue)).ready for queue in queues]
    keys = [record.message.routing_key async for record in read_journals(bus, "first", follow=False)]
    await bus.aclose()
    assert keys == ["east.status.1", "east.heartbeat", "east.status"]
    assert depths == [1, 1, 0, 1]


def test_the_jobs_with_the_newest_orders_are_remembered() -> None:
    addressees = Addressees()
    jobs = [msgspec.structs.replace(REF, uid=f"u-{number}") for number in range(10_001)]
    addressees.note(jobs[0], 2)
    for job in jobs:
        addressees.note(job, 1)
    shards = [addressees.of(msgspec.structs.replace(STATUS, job=job)) for job in jobs]
    assert (shards[0], set(shards[1:])) == (0, {1})


def test_a_shard_that_was_asked_for_a_size_owes_an_answer_until_an_order_comes() -> None:
    addressees, other = Addressees(), msgspec.structs.replace(REF, uid="other")
    request = ScaleRequest(
        job=REF, workload="w1", worker_uid="u", worker_generation=2, granted={"main": 1}, wanted={"main": 2}
    )
    addressees.of(request)
    assert not addressees.asked, "the first shard is known of by itself"
    for job in (REF, other):
        addressees.note(job, 2)
    addressees.of(msgspec.structs.replace(STATUS, job=other))
    assert not addressees.asked
    addressees.of(request)
    assert (addressees.asked, addressees.of_job(REF.uid)) == ({2}, 2)
    addressees.note(other, 2)
    assert addressees.asked == {2}
    addressees.note(REF, 1)
    assert not addressees.asked


@pytest.mark.parametrize(
    "left",
    [Topology((), (), ()), Topology((Exchange(UP, alternate=STRANGERS),), (), ())],
    ids=["no exchange", "no binding"],
)
async def test_what_no_queue_takes_is_published_again_later(left: Topology, broker_name: str) -> None:
    bus = await connect(f"memory://east@{broker_name}", name="east")
    publisher = publisher_of(bus, Addressees())
    hello = Publish(cluster=EAST, message=Hello(agent_version="1", kubernetes_version="v1", schema_version="1.0"))
    await bus.declare(left)
    with pytest.raises(UnavailableError):
        await publisher.publish(hello)
    await bus.declare(manager_topology())
    await publisher.publish(hello)
    assert (await bus.depth(manager_queue(Lane.CONTROL))).ready == 1
    await bus.aclose()


async def test_what_the_broker_refuses_is_tried_again_and_told_until_it_is_allowed(
    broker_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rights may be taken away while an agent leads: it waits for them, as at its start."""
    bus = await connect(f"memory://east@{broker_name}", name="east")
    await bus.declare(manager_topology(1) + cluster_topology(EAST))
    publisher = publisher_of(bus, Addressees())

    async def refuse(*_: object) -> None:
        raise ForbiddenError("publish east.heartbeat to slicebus.up: access refused")

    with monkeypatch.context() as patched:
        patched.setattr(bus, "publish", refuse)
        with pytest.raises(UnavailableError, match="access refused"):
            await publisher.publish(Publish(cluster=EAST, message=Heartbeat()))
    assert publisher.refused == "publish east.heartbeat to slicebus.up: access refused"
    await publisher.publish(Publish(cluster=EAST, message=Heartbeat()))
    assert publisher.refused == ""
    await bus.aclose()
