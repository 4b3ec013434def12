"""Measures resizes in fleets of 1 to 1,000 clusters: latency, and what the manager takes.

    python bench/fleet.py [--clusters 1 10 100 1000] [--workloads 10000] [--rate 8] [--seconds 20] [--idle 20]

RabbitMQ is real, a new one for each fleet. The manager is real, in a process of its own; its API server is the embedded
one, in another process, and begins with all workloads. The agents are light ones in this process: each has its own
connection, user and queues, sends a heartbeat every ten seconds, asks for other sizes, and answers orders; it has no
API server. So many jobs a second, in turn, go from 1 pod to 2, and later back. The rate does not depend on the answers:
where it is too much for the machine, the latencies grow from second to second. Two cores do not do 200 a second.

The latency is from the publish of a request until its spec is received. The processor time is that of the manager; what
it takes while nothing is resized, for heartbeats mostly, is subtracted. The memory of a workload, with its job, is what
a manager with all of them has more than one with none; that of a cluster is by the fleets with most and with fewest.

The idle agent is a real one on an embedded API server, with jobs to which nothing happens.
"""

import argparse
import asyncio
import gc
import statistics
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import figures
from broker import MANAGER, rabbitmq
from copies import Copies, Template, resource_of, template
from figures import Figure, Target
from light_agents import LightAgent, LightJob, light_agents
from roles import Place, RoleProcess

from slicebus.cli.broker.connection import bus_of
from slicebus.cli.demo import objects
from slicebus.cli.demo import world as demo
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import CLUSTERQUEUES, LOCALQUEUES, RESOURCEFLAVORS, WORKERCLUSTERS, WORKLOADS, Resource
from slicebus.proto.messages import ClusterName
from slicebus.runtime.logs import configure_logging
from slicebus.sandbox.apiserver import EmbeddedApiServer
from slicebus.sandbox.apiserver.store import key_of
from slicebus.slices.api import kueue

Manifest = dict[str, Any]
EAST = ClusterName("east")
HEARTBEAT_S = 10.0
_CPU = 1_000_000
_SETTLE_S = 3.0
"""The manager looks at every job once after its start, and the first heartbeats come."""
SHOWN_S = 45.0
"""By then every WorkerCluster shows what its first heartbeats said of its use, which waits for half a minute."""
_PATIENCE_S = 900.0
_MOST_LATENCY = {100: (1, Target(2.0, of_ratio=True))}
"""For a fleet of so many clusters: the fleet beside it, and the target."""
_MOST_CPU = {1000: (10, Target(1.3, of_ratio=True))}
_MOST_IDLE = Target(10.0)


class Filled(NamedTuple):
    """What an API server begins with: copies of a job, on the clusters in turn; a worker's where there are none."""

    of: Template
    workloads: int
    clusters: list[ClusterName]
    cohorts: tuple[str, ...] = ()
    """In which the copies are in turn, each in a queue of its name; all in one queue without a cohort for none."""
    more: tuple[ClusterName, ...] = ()
    """Clusters without copies."""


class Fleet(NamedTuple):
    """What was measured of one fleet. Times in seconds."""

    clusters: int
    resident_mb: float
    idle_share: float
    """Of one core, by the manager while nothing is resized."""
    latencies: list[float]
    cpu_s: float
    """Of a resize, by the manager."""
    rate: float
    """Resizes a second, from the first request to the last answer."""

    @property
    def p99_s(self) -> float:
        return statistics.quantiles(self.latencies, n=100)[98]


# --- the processes --------------------------------------------------------------------------------------------------


@asynccontextmanager
async def api_server(filled: Filled) -> AsyncIterator[str]:
    """An embedded API server in a process of its own; its URL."""
    spawn = get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=_serve, args=(filled, there), daemon=True)
    process.start()
    there.close()
    try:
        yield await asyncio.to_thread(here.recv)
    finally:
        process.terminate()
        await asyncio.to_thread(process.join)


def _serve(filled: Filled, pipe: Connection) -> None:
    configure_logging(format="console", level="ERROR")

    async def serve() -> None:
        async with EmbeddedApiServer() as server, KubeClient.from_url(server.url) as client:
            await demo.prepare(demo.World(manager=client, workers={}))
            for resource, manifest in objects.quota(_CPU) if filled.clusters else ():
                await client.create(resource, manifest)
            for cluster in (*filled.clusters, *filled.more):
                await client.create(WORKERCLUSTERS, objects.worker_cluster(cluster))
            for cohort in filled.cohorts:
                for resource, manifest in queue_of(cohort):
                    await client.create(resource, manifest)
            copies, store = Copies(filled.of), server.api.store
            for number in range(1, filled.workloads + 1):
                place = filled.clusters[number % len(filled.clusters)] if filled.clusters else None
                for manifest in copies.of_manager(number, place) if place else copies.of_worker(number):
                    if filled.cohorts:
                        put_into(manifest, filled.cohorts[number // len(filled.clusters) % len(filled.cohorts)])
                    resource, metadata = resource_of(manifest), manifest["metadata"]
                    served = store.served(resource.group, resource.version, resource.plural)
                    store.put(key_of(served, metadata["namespace"], metadata["name"]), manifest)
            # A collection of all copies takes more than a second, in which nobody is answered.
            gc.freeze()
            pipe.send(server.url)
            await asyncio.to_thread(pipe.recv)

    asyncio.run(serve())


def queue_of(cohort: str) -> list[tuple[Resource, Manifest]]:
    """A ClusterQueue and a LocalQueue of the cohort's name."""
    given = {resource: manifest for resource, manifest in objects.quota(_CPU) if resource != RESOURCEFLAVORS}
    given[CLUSTERQUEUES]["spec"]["cohortName"] = cohort
    given[LOCALQUEUES]["spec"]["clusterQueue"] = cohort
    for manifest in given.values():
        manifest["metadata"]["name"] = cohort
    return list(given.items())


def put_into(manifest: Manifest, queue: str) -> None:
    """Let a job or its Workload be in another queue than it was made in."""
    if manifest["kind"] == WORKLOADS.kind:
        manifest["spec"]["queueName"] = manifest["status"]["admission"]["clusterQueue"] = queue
    else:
        manifest["metadata"]["labels"][kueue.QUEUE_NAME_LABEL] = queue


@asynccontextmanager
async def role(place: Place) -> AsyncIterator[RoleProcess]:
    """A role that works."""
    process = RoleProcess(place)
    await process.started()
    yield process
    await process.end()


# --- resizes --------------------------------------------------------------------------------------------------------


def jobs_of(copies: Copies, workloads: int, clusters: list[ClusterName]) -> dict[ClusterName, list[LightJob]]:
    """The jobs of each cluster, as its agent knows them."""
    jobs: dict[ClusterName, list[LightJob]] = {cluster: [] for cluster in clusters}
    for number in range(1, workloads + 1):
        status = copies.status(number)
        job = LightJob(status.job, slice=status.workload, worker_uid=copies.worker_uid(number))
        jobs[clusters[number % len(clusters)]].append(job)
    return jobs


async def resize(agents: Iterable[LightAgent], *, rate: float, seconds: float) -> list[float]:
    """Resize so many jobs a second, cluster after cluster, and return when all are answered; the latencies."""
    queues = [deque(agent.jobs.values()) for agent in agents]
    turns = deque(zip(agents, queues, strict=True))
    latencies: list[float] = []

    async def resize_next(agent: LightAgent, jobs: deque[LightJob]) -> None:
        job = jobs.popleft()
        latencies.append(await agent.resize(job))
        jobs.append(job)

    began, count = time.perf_counter(), round(rate * seconds)
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
            # Where every job of a cluster is being resized, the next cluster has its turn.
            free = next((turn for turn in turns if turn[1]), None)
            if free is None:
                continue
            turns.remove(free)
            turns.append(free)
            group.create_task(resize_next(*free))
    return latencies


async def measure_fleet(of: Template, clusters: int, given: argparse.Namespace) -> Fleet:
    names, copies = [ClusterName(f"cluster-{number:04}") for number in range(clusters)], Copies(of)
    jobs = jobs_of(copies, given.workloads, names)
    with rabbitmq(*names) as url:
        async with (
            asyncio.timeout(_PATIENCE_S),
            api_server(Filled(of, given.workloads, names)) as server,
            role(Place(MANAGER, server, url(MANAGER))) as manager,
            light_agents(url, jobs, heartbeat_s=HEARTBEAT_S) as agents,
            at_rest(given.settle),
        ):
            resident_mb, idle_share = manager.resident_mb, await manager.share_of_a_core(given.idle)
            await resize(agents, rate=given.rate, seconds=given.seconds / 10)
            began, began_cpu = time.perf_counter(), manager.cpu_s
            latencies = await resize(agents, rate=given.rate, seconds=given.seconds)
            took = time.perf_counter() - began
            cpu_s = (manager.cpu_s - began_cpu - idle_share * took) / len(latencies)
            return Fleet(clusters, resident_mb, idle_share, latencies, cpu_s, len(latencies) / took)


@asynccontextmanager
async def at_rest(settle_s: float) -> AsyncIterator[None]:
    """Wait until a fleet does nothing by itself, and leave what its agents keep to no garbage collection: the agents of
    1,000 clusters are so many objects that one stops all of them for 1.7 s."""
    await asyncio.sleep(settle_s)
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


# --- the other figures ----------------------------------------------------------------------------------------------


async def resident_without(of: Template) -> float:
    """MB of a manager without workloads."""
    with rabbitmq(EAST) as url:
        async with api_server(Filled(of, 0, [EAST])) as server, role(Place(MANAGER, server, url(MANAGER))) as manager:
            await asyncio.sleep(_SETTLE_S)
            return manager.resident_mb


async def idle_agent(of: Template, given: argparse.Namespace) -> Figure:
    with rabbitmq(EAST) as url:
        async with (
            asyncio.timeout(_PATIENCE_S),
            api_server(Filled(of, given.idle_jobs, [EAST])) as managers,
            api_server(Filled(of, given.idle_jobs, [])) as workers,
            role(Place(MANAGER, managers, url(MANAGER))),
            role(Place(EAST, workers, url(EAST))) as agent,
        ):
            await asyncio.sleep(_SETTLE_S)
            share = await agent.share_of_a_core(given.idle)
    return Figure.of(f"idle agent with {given.idle_jobs:,} jobs", 1e3 * share, "millicores", target=_MOST_IDLE)


async def one_job() -> Template:
    """What comes of a job in a fleet in this process."""

    def url(name: str) -> str:
        return f"memory://{name}@bench"

    async with demo.embedded_world([EAST]) as world:
        for resource, manifest in objects.quota(_CPU):
            await world.ensure(world.manager, resource, manifest)
        async with (
            demo.fleet(world, {each: url(each) for each in (MANAGER, EAST)}),
            bus_of(url(MANAGER), name="b") as bus,
        ):
            return await template(world, EAST, bus)


def figures_of(fleets: Mapping[int, Fleet]) -> Iterator[Figure]:
    """The figures of each fleet, by its number of clusters."""
    for clusters, fleet in fleets.items():
        what = f"fleet of {clusters:,}"
        at = f"{what}, {fleet.rate:.1f} resizes a second"
        yield Figure.of(f"{at}: latency, p50", 1e3 * statistics.median(fleet.latencies), "ms")
        yield _beside(fleets, clusters, f"{at}: latency, p99", lambda of: 1e3 * of.p99_s, _MOST_LATENCY)
        yield _beside(fleets, clusters, f"{at}: processor time of one", lambda of: 1e3 * of.cpu_s, _MOST_CPU)
        yield Figure.of(f"{what}: manager without resizes", 1e3 * fleet.idle_share, "millicores")


def _beside(
    fleets: Mapping[int, Fleet],
    clusters: int,
    name: str,
    of: Callable[[Fleet], float],
    targets: Mapping[int, tuple[int, Target]],
) -> Figure:
    """A figure in milliseconds, beside that of the fleet which its target names, where both were measured."""
    other, target = targets.get(clusters, (0, None))
    if other not in fleets:
        return Figure.of(name, of(fleets[clusters]), "ms")
    return Figure.of(
        name, of(fleets[clusters]), "ms", beside=f"fleet of {other}", beside_value=of(fleets[other]), target=target
    )


async def measure(given: argparse.Namespace) -> list[Figure]:
    of = await one_job()
    without = await resident_without(of)
    fleets = {clusters: await measure_fleet(of, clusters, given) for clusters in sorted(given.clusters)}
    fewest, most = fleets[min(fleets)], fleets[max(fleets)]
    found = [*figures_of(fleets)]
    of_workload = (fewest.resident_mb - without) / given.workloads
    found.append(Figure.of(f"memory of one of {given.workloads:,} workloads", 1e3 * of_workload, "KB"))
    if most.clusters > fewest.clusters:
        of_cluster = (most.resident_mb - fewest.resident_mb) / (most.clusters - fewest.clusters)
        found.append(Figure.of(f"memory of one of {most.clusters:,} clusters", 1e3 * of_cluster, "KB"))
    return [*found, await idle_agent(of, given)]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--clusters", type=int, nargs="+", default=[1, 10, 100, 1000], help="of each fleet")
    parser.add_argument("--workloads", type=int, default=10_000, help="of each fleet, on all its clusters")
    parser.add_argument("--rate", type=float, default=8.0, help="resizes a second")
    parser.add_argument("--seconds", type=float, default=20.0, help="of resizes; a tenth before is not counted")
    parser.add_argument("--settle", type=float, default=SHOWN_S, help="seconds before anything is measured")
    parser.add_argument("--idle", type=float, default=20.0, help="seconds without resizes")
    parser.add_argument("--idle-jobs", type=int, default=100, help="of the idle agent")
    return figures.run(parser, measure)


if __name__ == "__main__":
    sys.exit(main())
