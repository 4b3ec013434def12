"""What the publisher notes of each message, whatever the broker answers and when."""

from typing import Any

import pytest

from slicebus.ambient.clock import now, random_bytes
from slicebus.decisions.commands import Publish
from slicebus.manager.act.publisher import Publisher
from slicebus.manager.state.store import Store
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import UnavailableError
from slicebus.proto.issuer import Issuer
from slicebus.proto.messages import Delete, Message, Relabel
from slicebus.proto.topology import Topology
from unit.manager.objects import EAST, REF
from unit.manager.test_worker_cluster_status import a_cluster


class Bus:
    """Notes what the store has while a message is under way."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.refuses = False
        self.noted: list[int | None] = []
        self.declared: list[str] = []
        self.keys: list[str] = []

    async def declare(self, topology: Topology) -> None:
        self.declared += [queue.name for queue in topology.queues]

    async def publish(self, _: str, message: WireMessage) -> None:
        self.keys.append(message.routing_key)
        self.noted.append(self.store.published.get(REF))
        if self.refuses:
            raise UnavailableError("no confirm")


@pytest.fixture
def bus() -> Bus:
    return Bus(Store())


async def publish(bus: Bus, message: Message) -> None:
    connection: Any = bus
    issuer = Issuer(epoch=1, user="manager", now=now, random=random_bytes)
    await Publisher(connection, issuer, bus.store).publish(Publish(cluster=EAST, message=message), None)


async def test_an_order_is_noted_before_its_answer_can_be_here(bus: Bus) -> None:
    await publish(bus, Delete(job=REF, spec_version=3, reason=""))
    assert bus.noted == [3]
    assert bus.store.published.get(REF) == 3


@pytest.mark.parametrize(
    "message",
    [
        Delete(job=REF, spec_version=3, reason=""),
        Relabel(job=REF, spec_version=3, from_workload="a", to_workload="b", granted={}),
    ],
    ids=["delete", "relabel"],
)
async def test_an_order_that_was_not_confirmed_is_due_again(bus: Bus, message: Message) -> None:
    bus.store.published[REF] = 3
    bus.refuses = True
    with pytest.raises(UnavailableError):
        await publish(bus, message)
    assert bus.store.published.get(REF) is None


async def test_an_order_goes_to_the_queues_of_the_cluster_that_has_the_name(bus: Bus) -> None:
    order = Delete(job=REF, spec_version=3, reason="")
    statuses = ({}, {"clusterUID": "uid-1", "ownQueues": True}, {"clusterUID": "uid-1", "ownQueues": False})
    for version, status in enumerate(statuses):
        cluster = a_cluster(status=status)
        bus.store.clusters.put(cluster | {"metadata": cluster["metadata"] | {"resourceVersion": str(version)}})
        await publish(bus, order)
    assert bus.keys == ["east.delete", "east.delete.uid-1", "east.delete"]
    assert "slicebus.agent.east.uid-1.control" in bus.declared
