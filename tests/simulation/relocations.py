"""What makes jobs go to another cluster: a cluster is drained, loses nodes, or cannot be reached for a while."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from random import Random

from simulation.jobs import is_sized_where_it_runs, scale
from simulation.schedule import WORKERS, Cut, Drain, Moment, Nodes, Seed
from slicebus.cli.demo import objects
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import JOB_RESOURCES, NODES, PODS
from slicebus.proto.errors import SlicebusError
from slicebus.slices.workload.ungate import is_gated

REQUEUE_S = 200.0
"""Of the manager. A quarter of it is longer than a process is stopped."""
_CUTS_S = (20.0, 60.0, 260.0)
_FAILS_S = 30.0
_CROWD = 8


def moves_of(seed: Seed, run_s: float) -> Iterator[Moment]:
    """Those of a seed's run. Their random choices are their own."""
    random = Random(f"{seed}/moves")
    if random.random() < 0.3:
        yield Drain(at_s=random.uniform(1, run_s), cluster=random.choice(WORKERS), for_s=random.choice((5.0, 40.0)))
    if random.random() < 0.3:
        cpu, for_s = random.choice((0, 2, 4)), random.choice((10.0, 40.0))
        yield Nodes(at_s=random.uniform(0, run_s), cluster=random.choice(WORKERS), cpu=cpu, for_s=for_s)
    if random.random() < 0.3:
        yield Cut(at_s=random.uniform(1, run_s), cluster=random.choice(WORKERS), for_s=random.choice(_CUTS_S))


async def shrink_nodes(client: KubeClient, item: Nodes, *, cores: int) -> None:
    """Play it. `cores` is what they have before and after."""
    await resize_nodes(client, min(item.cpu, cores))
    await asyncio.sleep(item.for_s)
    await resize_nodes(client, cores)


async def resize_nodes(client: KubeClient, cores: int) -> None:
    """All nodes of a cluster have so many cores from now on."""
    for node in (await client.list(NODES)).items:
        status = objects.node(node["metadata"]["name"], cpu=cores)["status"]
        await client.replace(NODES, node | {"status": status}, subresource="status")


async def crowd(client: KubeClient) -> None:
    """Let every job of a cluster want more pods than there were: of those that wait others come first by name."""
    for kind in JOB_RESOURCES.values():
        for scale_target in filter(is_sized_where_it_runs, (await client.list(kind)).items):
            with suppress(SlicebusError):
                await scale(client, scale_target, _CROWD)


async def fail_pods(client: KubeClient, for_s: float) -> None:
    """Let one running pod after the other fail, as pods do. Whoever made it makes another one."""
    ends_at = asyncio.get_running_loop().time() + for_s
    while asyncio.get_running_loop().time() < ends_at:
        await asyncio.sleep(_FAILS_S)
        running = [pod for pod in (await client.list(PODS)).items if not is_gated(pod)]
        for pod in running[:1]:
            try:
                await client.delete(PODS, pod["metadata"]["name"], pod["metadata"]["namespace"])
            except SlicebusError:
                continue
