"""Measures how soon a role works after a restart, and how fast the manager catches up with what has waited.

    python bench/restart.py [--workloads 50000] [--agent-jobs 5000] [--messages 100000] [--rounds 3]

On a real API server and RabbitMQ. A fleet runs one job; copies of its objects are written straight into etcd, and its
controllers end. A role starts in a process of its own: the time is from its start, by when it is connected, until it
does its work. In the same process everything that the role watches is listed just before: all resources at once as the
role does, in pages of 500. A figure is the median of the rounds. Memory is that of a role that starts without such a
list: what is resident once it works, and the most that was until it had looked at every object once and was quiet.

Then the manager is away, and every job of ten clusters reports its status, which changes nothing: again and again
until so many messages wait. The manager starts; what counts is the time from when it works until its queue is empty.
Meanwhile it looks at every job once, as after each start. Bare aio-pika has consumed a fifth as many of the same
messages before, with the same prefetch, and has only acknowledged them.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import aio_pika
import figures
from aio_pika.abc import AbstractIncomingMessage
from broker import MANAGER, issuer_of, rabbitmq, uid_of
from copies import Copies, template, write_to_etcd
from figures import Figure, Target
from installation import need_servers
from roles import Place, RoleProcess, Start

from slicebus.agent.state.watched import SELECTORS
from slicebus.bus.contract import Bus
from slicebus.bus.rabbitmq.messages import to_message
from slicebus.cli.broker.connection import bus_of
from slicebus.cli.demo import objects
from slicebus.cli.demo.world import fleet, real_world
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import WORKERCLUSTERS, Resource
from slicebus.manager.settings import ManagerSettings
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.codec import encode
from slicebus.proto.envelope import WireMessage
from slicebus.proto.epochs import epoch_at
from slicebus.proto.errors import TransientError
from slicebus.proto.messages import ClusterName, Lane
from slicebus.proto.topology import UP, manager_queue
from support.controlplane import ControlPlane
from support.scenario import set_quota
from support.servers import definitions
from support.tools import tools

EAST = ClusterName("east")
CLUSTERS = [ClusterName(f"worker-{number}") for number in range(10)]
"""The manager's jobs are there. Their agents speak only by the messages that wait."""
QUEUE = manager_queue(Lane.STATUS)
_PAGE = 500
_CPU = 1_000_000
_READY = Target(1.5, of_ratio=True)
_DRAIN = Target(0.7, is_least=True, of_ratio=True)
_LOOKS_S = 0.05
_BARE_SHARE = 5
_PATIENCE_S = 600.0
_QUIET_S, _QUIET_SHARE = 5.0, 0.05
"""A role is quiet that takes so little of a core for so long."""
LIMIT_MB = 1024 * 1024**2 / 1e6
"""The memory limit of the manager's chart."""


def watched(role: str) -> list[tuple[Resource, str | None]]:
    """What a role lists before it works, with the selectors."""
    return [(resource, None) for resource, _ in ManagerStore().caches()] if role == MANAGER else [*SELECTORS.items()]


async def list_all(role: str, client: KubeClient) -> None:
    """Plain lists, all at once as the role lists."""
    await asyncio.gather(*(_list(client, *each) for each in watched(role)))


async def _list(client: KubeClient, resource: Resource, labels: str | None) -> None:
    """A list whose objects are kept until its end, as a cache keeps them."""
    items = []
    async for page in client.pages(resource, labels=labels, limit=_PAGE):
        items += page.items


async def starts(place: Place, rounds: int) -> list[Start]:
    """The seconds of a list and of a start, of each round."""
    found = []
    for _ in range(rounds):
        process = RoleProcess(place, before=list_all)
        found.append(await process.started())
        await process.end()
    return found


async def memory(place: Place) -> tuple[float, float]:
    """The MB that are resident once a role works, and the most until it is quiet."""
    process = RoleProcess(place)
    await process.started()
    resident_mb = process.resident_mb
    while await process.share_of_a_core(_QUIET_S) > _QUIET_SHARE:
        process.check()
    most_mb = process.most_resident_mb
    await process.end()
    return resident_mb, most_mb


async def start_figures(what: str, place: Place, rounds: int, *, limit_mb: float | None = None) -> list[Figure]:
    list_s, ready_s = map(statistics.median, zip(*await starts(place, rounds), strict=True))
    resident_mb, most_mb = await memory(place)
    return [
        Figure.of(f"{what}: until it works", ready_s, "s", beside="plain list", beside_value=list_s, target=_READY),
        Figure.of(f"{what}: resident then", resident_mb, "MB"),
        Figure.of(
            f"{what}: resident until it is quiet, at most", most_mb, "MB", target=Target(limit_mb) if limit_mb else None
        ),
    ]


# --- what waits -----------------------------------------------------------------------------------------------------


def statuses(copies: Copies, workloads: int, count: int) -> Iterator[tuple[ClusterName, WireMessage]]:
    """Reports on all jobs in turn, until there are so many; with the clusters that publish them."""
    epoch = epoch_at(datetime.now(UTC))
    issuers = {cluster: issuer_of(cluster, epoch=epoch) for cluster in CLUSTERS}
    for number in range(count):
        job = 1 + number % workloads
        cluster, message = CLUSTERS[job % len(CLUSTERS)], copies.status(job)
        yield cluster, encode(issuers[cluster].envelope(message, cluster, uid_of(cluster)), message)


async def publish(url: Callable[[str], str], messages: Iterator[tuple[ClusterName, WireMessage]]) -> None:
    """Publish as the clusters' users. The broker confirms nothing: its queue is counted afterwards."""
    async with AsyncExitStack() as stack:
        exchanges = {}
        for cluster in CLUSTERS:
            connection = await stack.enter_async_context(await aio_pika.connect(url(cluster)))
            channel = await connection.channel(publisher_confirms=False)
            exchanges[cluster] = await channel.get_exchange(UP, ensure=False)
        for cluster, message in messages:
            await exchanges[cluster].publish(to_message(message), message.routing_key)


async def consume(url: str, count: int, prefetch: int) -> float:
    """Take so many messages with bare aio-pika and acknowledge them; seconds."""
    done, taken = asyncio.Event(), 0

    async def take(message: AbstractIncomingMessage) -> None:
        nonlocal taken
        if taken < count:
            await message.ack()
        taken += 1
        if taken == count:
            done.set()

    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=prefetch)
        queue = await channel.get_queue(QUEUE, ensure=False)
        began = time.perf_counter()
        await queue.consume(take)
        await done.wait()
        return time.perf_counter() - began


async def until_depth(bus: Bus, wanted: Callable[[int], bool], *, look: Callable[[], None] = lambda: None) -> None:
    """Wait for a number of ready messages; calls `look` meanwhile."""
    while not wanted((await bus.depth(QUEUE)).ready):
        look()
        await asyncio.sleep(_LOOKS_S)


# --- measuring ------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def filled(url: Callable[[str], str], given: argparse.Namespace) -> AsyncIterator[tuple[ControlPlane, Copies]]:
    """API servers with all objects, and no controllers."""
    with TemporaryDirectory() as folder:
        plane = ControlPlane(Path(folder), tools(), (MANAGER, EAST))
        try:
            plane.start()
            for cluster in plane.clusters.values():
                cluster.define(*definitions())
            kubeconfigs = {name: cluster.kubeconfig for name, cluster in plane.clusters.items()}
            urls = {role: url(role) for role in (MANAGER, EAST)}
            async with real_world(kubeconfigs[MANAGER], {EAST: kubeconfigs[EAST]}) as world:
                await set_quota(world, _CPU)
                async with fleet(world, urls), bus_of(url(MANAGER), name="bench") as bus:
                    copies = Copies(await template(world, EAST, bus))
                for name in CLUSTERS:
                    await world.manager.create(WORKERCLUSTERS, objects.worker_cluster(name))
            # An API server that follows tens of thousands of changes takes gigabytes; one that starts lists them.
            for cluster in plane.clusters.values():
                cluster.stop()
            of_manager = (
                manifest
                for number in range(1, given.workloads + 1)
                for manifest in copies.of_manager(number, CLUSTERS[number % len(CLUSTERS)])
            )
            await write_to_etcd(plane.etcd_url, MANAGER, of_manager)
            of_worker = (each for number in range(1, given.agent_jobs + 1) for each in copies.of_worker(number))
            await write_to_etcd(plane.etcd_url, EAST, of_worker)
            for role, cluster in plane.clusters.items():
                cluster.api_server.start()
                await asyncio.to_thread(cluster.wait_ready)
                await until_cached(role, cluster.kubeconfig)
            yield plane, copies
        finally:
            plane.stop()


async def until_cached(role: str, kubeconfig: Path) -> None:
    """Wait until the API server has all objects in its caches. Before that lists go to etcd, and take longer."""
    async with asyncio.timeout(_PATIENCE_S), await KubeClient.from_kubeconfig(kubeconfig) as client:
        for resource, labels in watched(role):
            while not await _answers(client, resource):  # noqa: ASYNC110 another process reads them
                await asyncio.sleep(_LOOKS_S)
            await client.list(resource, labels=labels, limit=1)


async def _answers(client: KubeClient, resource: Resource) -> bool:
    """Whether the API server answers from its cache: only that knows version 0."""
    try:
        await client.list(resource, fields="metadata.name=none", resource_version="0")
    except TransientError:
        return False
    return True


async def drain(place: Place, url: Callable[[str], str], copies: Copies, given: argparse.Namespace) -> list[Figure]:
    """The manager's queue of statuses, after a while without the manager."""
    bare = given.messages // _BARE_SHARE
    prefetch = ManagerSettings(amqp_url=place.url).prefetch_of(len(Lane))
    async with bus_of(place.url, name="bench") as bus:
        before = (await bus.depth(QUEUE)).ready
        await publish(url, statuses(copies, given.workloads, bare + given.messages))
        await until_depth(bus, lambda ready: ready == before + bare + given.messages)
        bare_s = await consume(place.url, before + bare, prefetch)
        process = RoleProcess(place)
        await process.started()

        began = time.perf_counter()
        await until_depth(bus, lambda ready: not ready, look=process.check)
        took, most_mb = time.perf_counter() - began, process.most_resident_mb
        await process.end()
    rate, bare_rate = given.messages / took, (before + bare) / bare_s
    name = f"{given.messages:,} statuses that waited"
    return [
        Figure.of(name, rate, "/s", beside="bare consumption", beside_value=bare_rate, target=_DRAIN),
        Figure.of("resident while they are taken in, at most", most_mb, "MB", target=Target(LIMIT_MB)),
    ]


async def measure(given: argparse.Namespace) -> list[Figure]:
    need_servers()
    with rabbitmq(EAST, *CLUSTERS) as url:
        return await measure_at(url, given)


async def measure_at(url: Callable[[str], str], given: argparse.Namespace) -> list[Figure]:
    async with filled(url, given) as (plane, copies):
        places = {role: Place(role, cluster.kubeconfig, url(role)) for role, cluster in plane.clusters.items()}
        ours, agents = f"manager with {given.workloads:,} workloads", f"agent with {given.agent_jobs:,} jobs"
        return [
            *await start_figures(ours, places[MANAGER], given.rounds, limit_mb=LIMIT_MB),
            *await drain(places[MANAGER], url, copies, given),
            *await start_figures(agents, places[EAST], given.rounds),
        ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--workloads", type=int, default=50_000, help="on the manager's cluster, each with its job")
    parser.add_argument("--agent-jobs", type=int, default=5000, help="on the agent's cluster, each with a pod")
    parser.add_argument("--messages", type=int, default=100_000, help="that wait for the manager")
    parser.add_argument("--rounds", type=int, default=3)
    return figures.run(parser, measure)


if __name__ == "__main__":
    sys.exit(main())
