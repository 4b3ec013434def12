"""Measures how the work of one manager is divided where several share the cohorts.

    python bench/shards.py [--clusters 10] [--workloads 2000] [--rate 3] [--seconds 40] [--idle 20] [--rounds 3]

As bench/fleet.py, with the workloads in two cohorts of which each shard has one, and agents that have had an order for
each job since they began. The same resizes go through one manager, and through two shards. What counts is the processor
time of the shard that takes more: two shards on cores of their own can take as many times more work as it is less than
that of the only manager. The rate is low, so that it can be measured on two cores: where API server, broker, agents and
managers wait for each other's cores, every piece of work takes more processor time, and most where there are more
processes.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from typing import NamedTuple

import figures
from broker import MANAGER, rabbitmq
from copies import Copies, Template
from figures import Figure, Target
from fleet import HEARTBEAT_S, SHOWN_S, Filled, api_server, at_rest, jobs_of, one_job, resize, role
from light_agents import LightAgent, light_agents
from roles import Place, RoleProcess

from slicebus.kube.client import KubeClient
from slicebus.kube.resources import CLUSTERQUEUES, JOBS
from slicebus.manager.state.shards import claim_of
from slicebus.proto.messages import ClusterName
from slicebus.slices.api import kueue

COHORTS = {"all": 0, "team": 1}
"""With the shard of two that each belongs to."""
_LOOKS_S = 0.2
_PATIENCE_S = 600.0
_MOST_CPU = Target(1 / 1.7, of_ratio=True)
"""Two do 1.7 times the work of one."""


class Run(NamedTuple):
    """What was measured of one manager, or of two shards. Times in seconds."""

    latencies: list[float]
    cpu_s: list[float]
    """Of a resize, by each process: of all resizes, whoever has the job."""
    idle_share: float
    """Of one core, by all processes while nothing is resized."""


async def measure_shards(of: Template, shards: int, given: argparse.Namespace) -> Run:
    names = [ClusterName(f"cluster-{number:04}") for number in range(given.clusters)]
    filled = Filled(of, given.workloads, names, tuple(COHORTS))
    jobs = jobs_of(Copies(of), given.workloads, names)
    with rabbitmq(*names, shards=shards) as url:
        async with asyncio.timeout(_PATIENCE_S), AsyncExitStack() as stack:
            server = await stack.enter_async_context(api_server(filled))
            place = Place(MANAGER, server, url(MANAGER), shards)
            managers = [await stack.enter_async_context(role(place)) for _ in range(shards)]
            agents = await stack.enter_async_context(light_agents(url, jobs, heartbeat_s=HEARTBEAT_S))
            await _divided(server, shards)
            if shards > 1:
                await _have_orders(server, agents)
            async with at_rest(given.settle):
                idle = await asyncio.gather(*(manager.share_of_a_core(given.idle) for manager in managers))
                await resize(agents, rate=given.rate, seconds=given.seconds / 10)
                began, before = time.perf_counter(), _cpu_s(managers)
                latencies = await resize(agents, rate=given.rate, seconds=given.seconds)
                took = time.perf_counter() - began
                spent = zip(_cpu_s(managers), before, idle, strict=True)
                cpu_s = [(now - then - share * took) / len(latencies) for now, then, share in spent]
                return Run(latencies, cpu_s, sum(idle))


async def _divided(server: str, shards: int) -> None:
    """Wait until each shard has its cohort."""

    def is_right(name: str, claim: int) -> bool:
        return name not in COHORTS or claim == (COHORTS[name] if shards > 1 else 0)

    async with KubeClient.from_url(server) as client:
        while True:
            queues = (await client.list(CLUSTERQUEUES)).items
            if all(is_right(queue["metadata"]["name"], claim_of(queue)) for queue in queues):
                return
            await asyncio.sleep(_LOOKS_S)


async def _have_orders(server: str, agents: Iterable[LightAgent]) -> None:
    """Let the agents know the shard of each job, as they do once they have had an order for it."""
    async with KubeClient.from_url(server) as client:
        jobs = (await client.list(JOBS)).items
    cohorts = {job["metadata"]["uid"]: job["metadata"]["labels"][kueue.QUEUE_NAME_LABEL] for job in jobs}
    for agent in agents:
        for ref in agent.jobs:
            agent.addressees.note(ref, COHORTS[cohorts[ref.uid]])


def _cpu_s(processes: Sequence[RoleProcess]) -> list[float]:
    return [process.cpu_s for process in processes]


async def measure(given: argparse.Namespace) -> list[Figure]:
    of = await one_job()
    rounds = [[await measure_shards(of, shards, given) for shards in (1, 2)] for _ in range(given.rounds)]
    at = f"{given.workloads:,} workloads, {given.rate:g} resizes a second"

    def median(which: int, of_run: Callable[[Run], float]) -> float:
        return statistics.median(of_run(each[which]) for each in rounds)

    return [
        Figure.of(
            f"{at}: processor time of one, by the busier of two shards",
            median(1, lambda run: 1e3 * max(run.cpu_s)),
            "ms",
            beside="one manager",
            beside_value=median(0, lambda run: 1e3 * max(run.cpu_s)),
            target=_MOST_CPU,
        ),
        *(
            Figure.of(
                f"{at}: {name} with two shards",
                median(1, of_run),
                unit,
                beside="one manager",
                beside_value=median(0, of_run),
            )
            for name, unit, of_run in (
                ("processor time of one, by all", "ms", lambda run: 1e3 * sum(run.cpu_s)),
                ("latency, p50", "ms", lambda run: 1e3 * statistics.median(run.latencies)),
                ("all managers without resizes", "millicores", lambda run: 1e3 * run.idle_share),
            )
        ),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--clusters", type=int, default=10)
    parser.add_argument("--workloads", type=int, default=2_000, help="in two cohorts, on all clusters")
    parser.add_argument("--rate", type=float, default=3.0, help="resizes a second")
    parser.add_argument("--seconds", type=float, default=40.0, help="of resizes; a tenth before is not counted")
    parser.add_argument("--rounds", type=int, default=3, help="of one manager and two shards in turn")
    parser.add_argument("--settle", type=float, default=SHOWN_S, help="seconds before anything is measured")
    parser.add_argument("--idle", type=float, default=20.0, help="seconds without resizes")
    return figures.run(parser, measure)


if __name__ == "__main__":
    sys.exit(main())
