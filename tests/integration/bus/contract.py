"""Steps that the tests of the bus contract share."""

from collections.abc import Awaitable, Callable

import msgspec

from slicebus.bus.contract import Bus
from slicebus.bus.dead_letters.browse import browse
from slicebus.proto.envelope import WireMessage
from slicebus.proto.messages import ClusterName, ClusterUid, Lane
from slicebus.proto.topology import DEAD, manager_queue

EAST, EAST_UID = ClusterName("east"), ClusterUid("uid-of-east")
CONTROL = manager_queue(Lane.CONTROL)
Connect = Callable[..., Awaitable[Bus]]


def message(key: str = "east.scale-request", body: bytes = b"{}", **changes: object) -> WireMessage:
    plain = WireMessage(routing_key=key, body=body, headers={"cloudEvents_id": "1"}, message_id="1")
    return msgspec.structs.replace(plain, **changes)


async def take(bus: Bus, queue: str, count: int, *, prefetch: int = 10) -> list[bytes]:
    """The bodies of the next messages, acknowledged."""
    bodies = []
    async with bus.subscribe(queue, prefetch=prefetch) as subscription:
        async for delivery in subscription:
            bodies.append(delivery.message.body)
            await delivery.ack()
            if len(bodies) == count:
                break
    return bodies


async def browse_all(bus: Bus, queue: str = DEAD) -> list[WireMessage]:
    """The messages of a queue, which stay there."""
    async with browse(bus, queue) as found:
        return [delivery.message async for delivery in found]
