"""An agent whose API server is slow says how far it is behind, on its WorkerCluster."""

from urllib.parse import urlsplit

from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World, embedded_world, fleet
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import JOBS, WORKERCLUSTERS
from slicebus.proto.messages import ClusterName
from support.proxy import Proxy
from support.scenario import NAMESPACE, set_quota
from support.waiting import eventually

EAST = ClusterName("east")
SLOW_S = 1.0
"""What everything takes between the agent and its API server, in each direction. Its Lease is still renewed in time."""


async def test_a_slow_api_server_shows_as_lag_until_it_is_well(broker_name: str) -> None:
    urls = {role: f"memory://{role}@{broker_name}" for role in ("manager", EAST)}
    async with embedded_world([EAST]) as world:
        port = urlsplit(world.workers[EAST].host).port
        assert port is not None
        async with (
            Proxy.before(port) as proxy,
            KubeClient.from_url(f"http://127.0.0.1:{proxy.port}") as slow,
            fleet(World(manager=world.manager, workers={EAST: slow}), urls),
        ):
            await set_quota(world, 20)
            await eventually(lambda: reported(world, lag=(0, 0)), "nothing waits")
            proxy.delay_s = SLOW_S
            await world.manager.create(JOBS, objects.job("sweep"))
            await eventually(lambda: reported(world, lag=(1, 60)), "the order for the job waits")
            proxy.delay_s = 0.0
            await eventually(lambda: reported(world, lag=(0, 0)), "nothing waits any more")
            made = await world.workers[EAST].get(JOBS, "sweep", NAMESPACE)
            assert made["spec"]["parallelism"] == 1


async def reported(world: World, *, lag: tuple[int, int]) -> bool:
    """Whether the WorkerCluster has a lag between these two."""
    cluster = await world.manager.get(WORKERCLUSTERS, EAST, None)
    least, most = lag
    return least <= cluster.get("status", {}).get("lagSeconds", -1) <= most
