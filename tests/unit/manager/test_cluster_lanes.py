"""Each accepted cluster has queues of its own, whatever becomes of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from slicebus.bus.contract import Delivery
from slicebus.bus.lanes import consume
from slicebus.bus.sizes import MESSAGE_BYTES, Keep
from slicebus.manager.act.cluster_lanes import KEPT_BYTES, ClusterLanes
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import ForbiddenError, InvalidError, NotFoundError, UnavailableError
from slicebus.proto.messages import MESSAGES, ClusterName, Direction, Heartbeat, Lane
from slicebus.proto.topology import UP, Topology, cluster_queue, manager_queue, manager_topology
from slicebus.sandbox.bus import MemoryBroker, MemoryBus
from slicebus.sandbox.queues import MemorySubscription
from unit.kube.loop_time import LoopTime

EAST, WEST = ClusterName("east"), ClusterName("west")


class World:
    """A broker, WorkerClusters, and an inbox that only takes."""

    def __init__(self) -> None:
        self.broker = MemoryBroker()
        self.broker.declare(manager_topology())
        self.store = ManagerStore()
        self.bus = Bus(self.broker, user="manager")
        self.taken: list[str] = []
        self.asked: list[str] = []
        self.version = 0
        self.most_prefetch = 2
        self.prefetch: dict[str, int] = {}

    def put(self, name: str, *, accepted: bool = True) -> None:
        self.version += 1
        self.store.clusters.put(self._cluster(name, accepted))

    def remove(self, name: str) -> None:
        self.version += 1
        self.store.clusters.remove(self._cluster(name, True))

    def say(self, key: str) -> None:
        self.broker.publish(UP, WireMessage(routing_key=key, body=b"", headers={}))

    def strangers(self) -> int:
        return sum(len(self.broker.queues[manager_queue(lane)].ready) for lane in Lane)

    async def run_cluster(self, cluster: ClusterName, *, prefetch: int) -> None:
        """As the inbox."""
        self.prefetch[cluster] = prefetch
        queues = [cluster_queue(cluster, lane) for lane in Lane]
        async with self.bus.subscribe(*queues, prefetch=prefetch) as subscription:
            await consume(subscription, self._take, key=lambda delivery: delivery.message.routing_key)

    async def _take(self, delivery: Delivery) -> None:
        self.taken.append(delivery.message.routing_key)

    def forget(self, cluster: ClusterName) -> None:
        """As the resyncer."""
        self.asked.append(cluster)

    @asynccontextmanager
    async def served(self) -> AsyncIterator[None]:
        most, held_bytes = self.most_prefetch, 128 * 1024**2
        lanes = ClusterLanes(self.bus, self.store, self, self, most_prefetch=most, held_bytes=held_bytes)  # type: ignore[arg-type]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(lanes.run(group))]
            await asyncio.sleep(1)
            yield
            tasks += [task for task in asyncio.all_tasks() if task.get_name().startswith("cluster:")]
            for task in tasks:
                task.cancel()

    def _cluster(self, name: str, accepted: bool) -> dict[str, Any]:
        metadata = {"name": name, "uid": name, "resourceVersion": str(self.version)}
        return {"kind": "WorkerCluster", "metadata": metadata, "spec": {"accepted": accepted}}


class Bus(MemoryBus):
    """Refuses declarations as long as a test wants it to, and ends subscriptions."""

    refuses: Exception | None = None
    ends: Exception | None = None
    """Ends a subscription with its next delivery."""

    @asynccontextmanager
    async def subscribe(self, *queues: str, prefetch: int, keep: Keep | None = None) -> AsyncIterator[Any]:
        async def deliveries(subscription: MemorySubscription) -> AsyncIterator[Delivery]:
            async for delivery in subscription:
                if error := self.ends:
                    self.ends = None
                    raise error
                yield delivery

        async with super().subscribe(*queues, prefetch=prefetch, keep=keep) as subscription:
            yield deliveries(subscription)

    async def declare(self, topology: Topology) -> None:
        if self.refuses is not None:
            raise self.refuses
        await super().declare(topology)


@pytest.fixture
def world(jumping: LoopTime) -> World:
    return World()


async def test_what_a_cluster_says_comes_by_its_own_queues(world: World) -> None:
    world.put("east")
    async with world.served():
        world.say("east.status")
        world.put("west")
        await asyncio.sleep(1)
        world.say("west.hello")
        world.say("north.hello")
        await asyncio.sleep(1)
        assert world.taken == ["east.status", "west.hello"]
        assert world.strangers() == 1


async def test_one_that_is_no_longer_accepted_is_a_stranger_until_it_is_again(world: World) -> None:
    world.put("east")
    async with world.served():
        for accepted in (False, True, False):
            world.put("east", accepted=accepted)
            await asyncio.sleep(1)
            world.say("east.status")
            await asyncio.sleep(1)
        world.remove("east")
        await asyncio.sleep(1)
        world.say("east.hello")
        assert world.taken == ["east.status"]
        assert world.strangers() == 3


async def test_one_that_is_no_longer_accepted_has_no_consumer_when_its_queues_are_empty(world: World) -> None:
    """They may be deleted then. What lies in them is taken first."""
    queues = [cluster_queue(EAST, lane) for lane in Lane]

    async def consumers() -> list[int]:
        return [(await world.bus.depth(queue)).consumers for queue in queues]

    world.put("east")
    async with world.served():
        assert await consumers() == [1, 1]
        for _ in range(50):
            world.say("east.status")
        world.put("east", accepted=False)
        await asyncio.sleep(5)
        assert len(world.taken) == 50
        assert await consumers() == [0, 0]
        for queue in queues:
            del world.broker.queues[queue]
        await asyncio.sleep(60)
        world.put("east")
        await asyncio.sleep(5)
        world.say("east.hello")
        await asyncio.sleep(1)
        assert world.taken[-1] == "east.hello"


async def test_one_that_is_accepted_later_gets_queues_then(world: World) -> None:
    world.put("east", accepted=False)
    async with world.served():
        world.say("east.hello")
        assert world.strangers() == 1
        world.put("east")
        await asyncio.sleep(1)
        world.say("east.status")
        await asyncio.sleep(1)
        assert world.taken == ["east.status"]


@pytest.mark.parametrize(
    "error", [UnavailableError("none"), ForbiddenError("no right"), InvalidError("other arguments")], ids=str
)
async def test_what_a_broker_refuses_is_tried_again_and_stops_no_other_cluster(world: World, error: Exception) -> None:
    world.put("east")
    world.bus.refuses = error
    async with world.served():
        world.bus.refuses = None
        world.put("west")
        await asyncio.sleep(0.01)
        world.say("west.hello")
        await asyncio.sleep(60)
        world.say("east.hello")
        await asyncio.sleep(1)
        assert world.taken == ["west.hello", "east.hello"]
        assert set(world.asked) == {"east"}, "what may have been lost is asked for"


@pytest.mark.parametrize("error", [NotFoundError("gone"), ForbiddenError("no right")], ids=str)
async def test_queues_that_are_lost_while_they_are_consumed_are_consumed_again(world: World, error: Exception) -> None:
    world.put("east")
    async with world.served():
        world.bus.ends = error
        world.say("east.status")
        await asyncio.sleep(60)
        assert world.taken == ["east.status"]
        assert world.asked == ["east"], "what may have been lost is asked for"


@pytest.mark.parametrize(
    ("clusters", "prefetch"), [(1, 32), (32, 32), (64, 16), (128, 8), (400, 8)], ids=lambda count: f"{count}"
)
async def test_the_lanes_of_all_clusters_share_the_bytes_that_are_held(
    world: World, clusters: int, prefetch: int
) -> None:
    world.most_prefetch = 200
    for number in range(clusters):
        world.put(f"c-{number}")
    async with world.served():
        assert set(world.prefetch.values()) == {prefetch}
        assert len(world.prefetch) == clusters


async def test_a_cluster_that_comes_later_gets_the_share_of_a_larger_fleet(world: World) -> None:
    world.most_prefetch = 200
    for number in range(32):
        world.put(f"c-{number}")
    async with world.served():
        world.put("late")
        await asyncio.sleep(1)
        assert (world.prefetch["c-0"], world.prefetch["late"]) == (32, 31)


def test_no_message_of_an_agent_but_a_heartbeat_is_larger_than_what_is_counted() -> None:
    sizes = {
        message.most_bytes or MESSAGE_BYTES
        for message in MESSAGES.values()
        if message.direction is Direction.UP and message is not Heartbeat
    }
    assert max(sizes) == KEPT_BYTES
