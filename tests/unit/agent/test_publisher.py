"""What the agent's publisher does while the broker is being rebuilt."""

import pytest

from slicebus.agent.act.publisher import Publisher
from slicebus.ambient.clock import now, random_bytes
from slicebus.bus.factory import connect
from slicebus.decisions.commands import Publish
from slicebus.proto.errors import UnavailableError
from slicebus.proto.issuer import Issuer
from slicebus.proto.messages import ClusterName, ClusterUid, Hello, Lane
from slicebus.proto.topology import UP, Exchange, Topology, manager_queue, manager_topology


@pytest.mark.parametrize(
    "left", [Topology((), (), ()), Topology((Exchange(UP),), (), ())], ids=["no exchange", "no binding"]
)
async def test_what_no_queue_takes_is_published_again_later(left: Topology, broker_name: str) -> None:
    bus = await connect(f"memory://east@{broker_name}", name="east")
    publisher = Publisher(bus, Issuer(epoch=1, user="east", now=now, random=random_bytes), cluster_uid=ClusterUid("u"))
    hello = Publish(
        cluster=ClusterName("east"), message=Hello(agent_version="1", kubernetes_version="v1", schema_version="1.1")
    )
    await bus.declare(left)
    with pytest.raises(UnavailableError):
        await publisher.publish(hello)
    await bus.declare(manager_topology())
    await publisher.publish(hello)
    assert (await bus.depth(manager_queue(Lane.CONTROL))).ready == 1
    await bus.aclose()
