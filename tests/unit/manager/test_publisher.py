"""What is noted of each order, whatever the broker answers and when, and where it goes."""

import asyncio
from typing import Any

import pytest

from slicebus.ambient.clock import now, random_bytes
from slicebus.decisions.commands import Command, Patch, Publish
from slicebus.manager.act.publisher import ManagerPublisher
from slicebus.manager.decide.order import dispatch
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.envelope import Envelope, WireMessage
from slicebus.proto.errors import NotFoundError, UnavailableError
from slicebus.proto.issuer import Issuer
from slicebus.proto.messages import ClusterUid, Delete, Hello, Lane
from slicebus.proto.topology import Topology, agent_queue
from slicebus.runtime.executor import Executor
from slicebus.sandbox.apiserver.patches import merge_patch
from unit.kube.loop_time import LoopTime
from unit.manager.objects import EAST, REF, a_job, a_view, a_workload, shorts
from unit.manager.test_worker_cluster_status import a_cluster

UID = ClusterUid("uid-1")
ORDERS = [("workload-spec to east", 2), ("relabel to east", 2)]


class Bus:
    """Notes what the store has while a message is under way."""

    def __init__(self, store: ManagerStore) -> None:
        self.store = store
        self.refuses_from: int | None = None
        """The number of the first message without a confirm."""
        self.asks_again = False
        """Whether the worker's agent has the message published again before the confirm."""
        self.is_rebuilt = False
        """Whether it has lost its queues."""
        self.noted: list[int | None] = []
        self.declared: list[str] = []
        self.keys: list[str] = []

    async def declare(self, topology: Topology) -> None:
        self.declared += [queue.name for queue in topology.queues]

    async def publish(self, _: str, message: WireMessage) -> None:
        self.keys.append(message.routing_key)
        self.noted.append(self.store.published.get(REF))
        if self.asks_again:
            self.store.published.pop(REF, None)
        if self.refuses_from is not None and len(self.keys) > self.refuses_from:
            raise UnavailableError("no confirm")
        if self.is_rebuilt:
            raise NotFoundError("no queue")


def pinned(uid: str | None, *, version: str, name: str = "east") -> dict[str, Any]:
    """A cluster whose name the UID has."""
    cluster = a_cluster(name=name, status={"clusterUID": uid})
    return cluster | {"metadata": cluster["metadata"] | {"resourceVersion": version}}


@pytest.fixture
def bus() -> Bus:
    """To two clusters, whose agents have spoken."""
    store = ManagerStore()
    for name in ("east", "west"):
        store.clusters.put(pinned(UID, version="3", name=name))
    return Bus(store)


async def run(bus: Bus, *commands: Command) -> None:
    connection: Any = bus
    no_cluster: Any = None
    issuer = Issuer(epoch=1, user="manager", now=now, random=random_bytes)
    executor = Executor(
        client=no_cluster,
        caches=bus.store.cache_of,
        tables=bus.store.tables(),
        publish=ManagerPublisher(connection, issuer, bus.store).publish,
        requeue=lambda *_: None,
        component="slicebus-test",
        record=lambda *_, **__: None,
    )
    await executor.run(commands)


def orders(bus: Bus) -> list[Command]:
    """What follows for a dispatch that is written already, and replaces another."""
    old, new = a_workload(admitted=1, dispatched=1, applied=1), a_workload("w2", 5, admitted=5, replaces="w1")
    written = a_view(a_job(5), old, new)
    assert written.holder is not None
    write = dispatch.hold(written, written.holder)[0]
    assert isinstance(write, Patch)
    view = a_view(a_job(5), old, merge_patch(new, write.body), published=bus.store.published.get(REF, 0))
    assert view.holder is not None
    return dispatch.hold(view, view.holder)


async def test_an_order_is_noted_before_its_answer_can_be_here(bus: Bus) -> None:
    assert shorts(orders(bus)) == ORDERS
    await run(bus, *orders(bus))
    assert bus.noted == [2, 2]
    assert bus.store.published.get(REF) == 2
    assert orders(bus) == []


@pytest.mark.parametrize("number", [0, 1], ids=["the spec", "its relabel"])
async def test_an_order_that_was_not_confirmed_is_due_again(bus: Bus, number: int) -> None:
    bus.refuses_from = number
    with pytest.raises(UnavailableError):
        await run(bus, *orders(bus))
    assert len(bus.keys) == number + 1
    assert shorts(orders(bus)) == ORDERS


async def test_an_order_that_was_asked_for_again_before_the_confirm_is_due_again(bus: Bus) -> None:
    bus.asks_again = True
    await run(bus, *orders(bus))
    assert shorts(orders(bus)) == ORDERS


async def test_a_copy_left_behind_is_recalled_again_when_its_delete_was_not_confirmed(bus: Bus) -> None:
    view = a_view(a_job(), a_workload(admitted=1), left_copies={"west": 2})
    bus.refuses_from = 0
    with pytest.raises(UnavailableError):
        await run(bus, *dispatch.recall(view))
    assert dict(bus.store.recalled) == {}
    bus.refuses_from = None
    await run(bus, *dispatch.recall(view))
    assert dict(bus.store.recalled) == {("west", REF): 2}


async def test_an_order_goes_to_the_queues_of_the_cluster_that_has_the_name(bus: Bus) -> None:
    order = Publish(cluster=EAST, message=Delete(job=REF, spec_version=3, reason=""))
    bus.store.clusters.put(pinned("uid-2", version="4"))
    await run(bus, order)
    assert bus.keys == ["east.delete.uid-2"]
    assert bus.declared[-2:] == ["slicebus.agent.east.uid-2.control", "slicebus.agent.east.uid-2.status"]


async def test_there_are_no_queues_for_a_cluster_whose_agent_has_never_spoken(bus: Bus) -> None:
    order = Publish(cluster=EAST, message=Delete(job=REF, spec_version=3, reason=""))
    bus.store.clusters.put(pinned(None, version="4"))
    with pytest.raises(UnavailableError, match="no agent of cluster east has spoken yet"):
        await run(bus, order)
    assert (bus.keys, bus.declared) == ([], [])


async def test_the_queues_of_a_cluster_are_made_again_for_a_hello_and_after_a_while(
    bus: Bus, jumping: LoopTime
) -> None:
    order = Publish(cluster=EAST, message=Delete(job=REF, spec_version=3, reason=""))
    queue = agent_queue(EAST, Lane.CONTROL, UID)

    async def made(*commands: Command, caused_by: Envelope | None = None) -> int:
        before = bus.declared.count(queue)
        for command in commands:
            assert isinstance(command, Publish)
            await publisher.publish(command, caused_by)
        return bus.declared.count(queue) - before

    connection: Any = bus
    issuer = Issuer(epoch=1, user="manager", now=now, random=random_bytes)
    publisher = ManagerPublisher(connection, issuer, bus.store)
    hello = issuer.envelope(Hello(agent_version="1", kubernetes_version="v1", schema_version="1.0"), EAST, UID)
    assert await made(order, order) == 1
    assert await made(order, caused_by=hello) == 1
    assert await made(order) == 0
    await asyncio.sleep(601)
    assert await made(order, order) == 1


async def test_the_queues_of_a_cluster_are_made_again_when_no_queue_took_an_order(bus: Bus) -> None:
    order = Publish(cluster=EAST, message=Delete(job=REF, spec_version=3, reason=""))
    connection: Any = bus
    publisher = ManagerPublisher(connection, Issuer(epoch=1, user="manager", now=now, random=random_bytes), bus.store)
    queue = agent_queue(EAST, Lane.CONTROL, UID)
    await publisher.publish(order, None)
    bus.is_rebuilt = True
    with pytest.raises(UnavailableError, match="no queue"):
        await publisher.publish(order, None)
    bus.is_rebuilt = False
    await publisher.publish(order, None)
    assert bus.declared.count(queue) == 2
