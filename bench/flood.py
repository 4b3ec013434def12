"""Measures what other clusters' resizes and statuses take while the user of one cluster floods the manager.

    python bench/flood.py [--clusters 4] [--workloads 200] [--rate 4] [--seconds 30]

RabbitMQ is real, with the rights and bounds of `slicebus broker definitions`. The manager is real, in a process of its
own, and its API server embedded in another one; the agents are light ones in this process. The thief has the broker's
user of one cluster more, in a process of its own, and publishes without end, some of each kind at once: messages that
nobody can read, of many jobs, so that its quota of dead letters is soon full; heartbeats that are too large; and the
largest that are read: heartbeats, pages of an inventory that never ends, and statuses of jobs that it has not. A thief
has processors of its own, so that process gives way to all others here.

The latency of a resize is from the publish of its request until its spec is received; that of a status from its publish
until the manager's job shows it. The same number of each goes before the flood, and beside it.
"""

import argparse
import asyncio
import itertools
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime
from multiprocessing import get_context
from typing import NamedTuple

import figures
from broker import MANAGER, issuer_of, rabbitmq, uid_of
from copies import Copies, Template
from figures import Figure, Target, percentile
from fleet import HEARTBEAT_S, Filled, api_server, at_rest, jobs_of, one_job, resize, role
from light_agents import LightAgent, light_agents
from msgspec.structs import replace
from roles import Place

from slicebus.bus.contract import Bus
from slicebus.bus.factory import connect
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import JOBS
from slicebus.proto.codec import encode
from slicebus.proto.epochs import epoch_at
from slicebus.proto.errors import SlicebusError
from slicebus.proto.messages import (
    ClusterName,
    Heartbeat,
    Inventory,
    InventoryItem,
    JobPhase,
    JobRef,
    Message,
    Status,
)
from slicebus.proto.topology import UP
from slicebus.runtime.logs import configure_logging

THIEF = ClusterName("thief")
_AT_ONCE = 8
"""Messages of each kind that wait for their confirm."""
_LOOKS_S = 0.02
_PATIENCE_S = 900.0
_MOST = Target(2.0, of_ratio=True)


class Times(NamedTuple):
    """Latencies, in seconds."""

    resizes: list[float]
    statuses: list[float]


# --- the thief ------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def flooding(url: str) -> AsyncIterator[None]:
    """Flood from another process while the context lasts."""
    process = get_context("spawn").Process(target=_flood, args=(url,), daemon=True)
    process.start()
    try:
        yield
    finally:
        process.terminate()
        await asyncio.to_thread(process.join)


def _flood(url: str) -> None:
    os.nice(19)
    configure_logging(format="console", level="CRITICAL")
    issuer = issuer_of(THIEF, epoch=epoch_at(datetime.now(UTC)))

    async def publish(bus: Bus, numbers: Iterator[int], make: Callable[[int], Message], *, readable: bool) -> None:
        for number in numbers:
            message = make(number)
            wire = encode(issuer.envelope(message, THIEF, uid_of(THIEF)), message)
            # The broker refuses some, where a lane is full.
            with suppress(SlicebusError):
                await bus.publish(UP, wire if readable else replace(wire, body=b"{"))

    async def flood() -> None:
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
            floods = ((status, False), (too_large, True), (heartbeat, True), (page, True), (status, True))
            for make, readable in floods:
                bus = await connect(url, name="thief")
                stack.push_async_callback(bus.aclose)
                numbers = itertools.count()
                for _ in range(_AT_ONCE):
                    group.create_task(publish(bus, numbers, make, readable=readable))

    asyncio.run(flood())


def too_large(number: int) -> Heartbeat:
    """One of 750 KB."""
    return Heartbeat(capacity={f"flavor-{number}-{each}": {"cpu": "1"} for each in range(22_000)})


def heartbeat(number: int) -> Heartbeat:
    """One of 250 KB, the largest that is read."""
    return Heartbeat(capacity={f"flavor-{number}-{each}": {"cpu": "1"} for each in range(7_000)})


def page(number: int) -> Inventory:
    """A page of 60 KB, twice that of an agent, that is not the last one."""
    items = [
        InventoryItem("Job", "team-a", f"other-{number}-{each}", f"{number}-{each}", 1, "a" * 40, "b" * 40)
        for each in range(440)
    ]
    return Inventory(round=1, page=number, last=False, items=items)


def status(number: int) -> Status:
    """A status of 60 KB, twice that of an agent, of another job each time."""
    conditions = [{"type": f"Condition-{each}", "status": "True", "reason": "Odd"} for each in range(1_000)]
    job = JobRef("batch/v1", "Job", "team-a", f"other-{number}", f"uid-{number}")
    return Status(job=job, workload="w", spec_version=1, phase=JobPhase.RUNNING, job_status={"conditions": conditions})


# --- the others -----------------------------------------------------------------------------------------------------


async def report(
    agents: Sequence[LightAgent], reports: Sequence[Status], server: str, *, rate: float, seconds: float
) -> list[float]:
    """Report statuses of one job of each agent in turn, so many a second; the latencies."""
    latencies: list[float] = []
    async with KubeClient.from_url(server) as client:
        for number in range(round(rate * seconds)):
            agent, last = agents[number % len(agents)], reports[number % len(agents)]
            ref, shown = last.job, 2 + number
            began = time.perf_counter()
            await agent.publish(replace(last, job_status=last.job_status | {"active": shown}))

            async def is_shown(ref: JobRef = ref, shown: int = shown) -> bool:
                job = await client.get(JOBS, ref.name, ref.namespace)
                return bool(job.get("status", {}).get("active") == shown)

            while not await is_shown():  # noqa: ASYNC110 the manager shows it
                await asyncio.sleep(_LOOKS_S)
            latencies.append(time.perf_counter() - began)
            await asyncio.sleep(max(0.0, 1 / rate - latencies[-1]))
    return latencies


async def measure_flood(of: Template, given: argparse.Namespace) -> tuple[Times, Times]:
    names, copies = [ClusterName(f"cluster-{number:04}") for number in range(given.clusters)], Copies(of)
    jobs = jobs_of(copies, given.workloads, names)
    # One job of each cluster has its status reported, and is not resized.
    reports = [copies.status(number) for number in range(1, given.clusters + 1)]
    kept = {each.job for each in reports}
    jobs = {cluster: [job for job in those if job.ref not in kept] for cluster, those in jobs.items()}
    reporting = [names[number % len(names)] for number in range(1, given.clusters + 1)]
    with rabbitmq(*names, THIEF) as url:
        async with (
            asyncio.timeout(_PATIENCE_S),
            api_server(Filled(of, given.workloads, names, more=(THIEF,))) as server,
            role(Place(MANAGER, server, url(MANAGER))),
            light_agents(url, jobs, heartbeat_s=HEARTBEAT_S) as agents,
            at_rest(given.settle),
        ):
            by_name = dict(zip(names, agents, strict=True))

            async def both() -> Times:
                async with asyncio.TaskGroup() as group:
                    resizes = group.create_task(resize(agents, rate=given.rate, seconds=given.seconds))
                    speakers = [by_name[name] for name in reporting]
                    statuses = group.create_task(
                        report(speakers, reports, server, rate=given.rate, seconds=given.seconds)
                    )
                return Times(resizes.result(), statuses.result())

            await resize(agents, rate=given.rate, seconds=given.seconds / 10)
            calm = await both()
            async with flooding(url(THIEF)):
                await asyncio.sleep(given.before)
                beside = await both()
            return calm, beside


async def measure(given: argparse.Namespace) -> list[Figure]:
    calm, beside = await measure_flood(await one_job(), given)
    pairs = (("resize", beside.resizes, calm.resizes), ("status", beside.statuses, calm.statuses))
    return [
        Figure.of(
            f"{what} beside a flood of another cluster: latency, p{rank}",
            1e3 * percentile(some, rank),
            "ms",
            beside="without it",
            beside_value=1e3 * percentile(others, rank),
            target=_MOST if rank == 99 else None,
        )
        for what, some, others in pairs
        for rank in (50, 99)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--clusters", type=int, default=4, help="beside the thief's")
    parser.add_argument("--workloads", type=int, default=200, help="on these clusters")
    parser.add_argument("--rate", type=float, default=4.0, help="resizes, and statuses, a second")
    parser.add_argument("--seconds", type=float, default=30.0, help="of both, without the flood and beside it")
    parser.add_argument("--settle", type=float, default=10.0, help="seconds before anything is measured")
    parser.add_argument("--before", type=float, default=15.0, help="seconds of the flood before that")
    return figures.run(parser, measure)


if __name__ == "__main__":
    sys.exit(main())
