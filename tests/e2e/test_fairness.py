"""One cluster's user floods the manager, and no other cluster waits for it."""

from slicebus.bus.factory import connect
from slicebus.cli.demo.world import embedded_world, fleet
from slicebus.proto.envelope import WireMessage
from slicebus.proto.messages import ClusterName, Lane, Status
from slicebus.proto.topology import DEAD, UP, cluster_queue, routing_key
from slicebus.sandbox.bus import MemoryBroker
from support.scenario import Scenario, set_quota
from support.waiting import eventually

FLOOD = 10_000
"""So many take the manager some seconds."""
QUOTA = 500


async def test_a_flood_of_one_cluster_delays_no_other(broker_name: str) -> None:
    """It sends what nobody can use. A resize elsewhere is done before the manager is through with that."""
    urls = {role: f"memory://{role}@{broker_name}" for role in ("manager", "east", "west")}
    async with embedded_world() as world, fleet(world, urls):
        await set_quota(world, 8)
        scenario = Scenario(world, "Job", "calm")
        await scenario.submit()
        await scenario.expect_pods(running=1)
        thief = ClusterName("west" if await scenario.cluster() == "east" else "east")
        broker, bus = MemoryBroker.named(broker_name), await connect(urls[thief], name="thief")

        def queued() -> int:
            return sum(len(broker.queues[cluster_queue(thief, lane)].ready) for lane in Lane)

        for number in range(FLOOD):
            headers = {"cloudEvents_subject": f"Job/team/j-{number}"}
            key = routing_key(thief, Status.type)
            broker.publish(UP, WireMessage(routing_key=key, body=b"{", headers=headers, user_id=thief))
        await scenario.scale(4)
        await scenario.expect_pods(running=4)
        assert queued() > 0, "the resize came before the flood"

        async def through() -> bool:
            return not queued()

        await eventually(through, "the flood is taken in", within_s=300.0)
        assert len(broker.queues[DEAD].ready) == QUOTA
        await bus.aclose()
