"""Measures how fast jobs are dispatched and resized, beside a bare client that makes only the writes it cannot save.

    python bench/dispatch.py [--jobs 100] [--resizes 50] [--pods 1000] [--rounds 3]

On real API servers, etcd, Job controllers and RabbitMQ; the manager and two agents are processes of their own. The
user, the bare client and the watches that see what has come through are in this one.

Dispatch: so many elastic Jobs of one pod are made at once, each round anew; the time is until the last pod lost its
gate. The bare client makes seven writes a job, for as many jobs at once as the user: on the manager's cluster it
creates the Workload, writes its admission, its order and the report; on the worker's it creates the Job and the
Workload, and takes the gate off the pod that the Job controller has made. What it needs not know it does not read.

From admission to the spec: from when a watch shows the admission to this process until the time that the order has of
its manager, both on one machine.

Resize: one job at a time grows on its worker from 1 pod to 5; the time is until the fifth pod has lost its gate. The
bare client makes, one after the other, the writes on that way: the job on the worker, the request on the manager's, the
next Workload and its admission, the Workload there, the grant, and the gates of four pods at once.

Large: one job grows from 1 pod to so many, and another one from 1 to 5 as soon as the first has begun.

The processor time of a dispatch is that of a burst, and of the second after it: by then the last statuses are reported.
Beside a Kueue nothing is measured here.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import figures
from broker import MANAGER, rabbitmq, vhost
from figures import Figure, Target
from roles import Place, RoleProcess
from watches import Watches

from slicebus.cli.broker_connection import bus_of
from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World, real_world, running
from slicebus.kube.client import JsonPatch, KubeClient, MergePatch
from slicebus.kube.resources import JOBS, NAMESPACES, PODS, WORKERCLUSTERS, WORKLOADS
from slicebus.proto.messages import ClusterName
from slicebus.runtime.logs import configure_logging
from slicebus.slices import kueue
from support.controlplane import ControlPlane
from support.scenario import set_quota
from support.servers import definitions, tools

Manifest = dict[str, Any]
EAST, WEST = ClusterName("east"), ClusterName("west")
WORKERS = (EAST, WEST)
BARE = "bare"
"""A namespace without a queue: slicebus has nothing to do there."""
_AT_ONCE = 16
"""Requests of the user, and jobs of the bare client."""
_SETTLE_S = 5.0
_REST_S = 1.0
_GROWN = 5


class Processes(NamedTuple):
    """The roles."""

    manager: RoleProcess
    agents: tuple[RoleProcess, ...]

    @property
    def cpu_s(self) -> tuple[float, float]:
        """Of the manager, and of the agents together."""
        return self.manager.cpu_s, sum(agent.cpu_s for agent in self.agents)


class Bench:
    """The user and the bare client."""

    def __init__(self, world: World, watches: Watches) -> None:
        self._world = world
        self._watches = watches
        self._number = 0

    def names(self, count: int) -> list[str]:
        """Names that no job has had."""
        self._number += 1
        return [f"run-{self._number}-{each}" for each in range(count)]

    async def burst(self, names: Sequence[str]) -> float:
        """Make jobs at once; seconds until each has a pod without a gate."""
        began = time.perf_counter()
        await at_once(self._create(name) for name in names)
        return await self._watches.pods.all_of(f"{name} 1" for name in names) - began

    async def delete(self, names: Sequence[str]) -> None:
        """Delete jobs, and return when nothing holds quota for them."""
        client = self._world.manager
        await at_once(client.delete(JOBS, name, objects.NAMESPACE) for name in names)
        await self._watches.gone.all_of(names)

    async def resize(self, name: str, count: int) -> float:
        """Resize a job where it runs; seconds until so many pods have no gate."""
        began = time.perf_counter()
        await self._scale(name, objects.NAMESPACE, count)
        return await self._watches.pods.all_of([f"{name} {count}"]) - began

    async def bare_burst(self, names: Sequence[str]) -> float:
        """The same by the bare client."""
        began = time.perf_counter()
        await at_once(self._bare_dispatch(name) for name in names)
        return time.perf_counter() - began

    async def bare_resize(self, name: str) -> float:
        """The same by the bare client, of a job that it has dispatched."""
        manager, worker = self._world.manager, self._worker(name)
        await manager.create(JOBS, objects.job(name) | {"metadata": {"name": name, "namespace": BARE}})
        began = time.perf_counter()
        await self._scale(name, BARE, _GROWN)
        await manager.patch(JOBS, name, BARE, _annotations(requested='{"main":5}'))
        grown = await manager.create(WORKLOADS, _workload(f"{name}-2", _GROWN))
        await self._admit(grown, _GROWN)
        await worker.create(WORKLOADS, _workload(f"{name}-2", _GROWN))
        await worker.patch(JOBS, name, BARE, _annotations(granted='{"main":5}'))
        await self._watches.pods.all_of([f"gated {name} {_GROWN - 1}"])
        await asyncio.gather(*(_ungate(worker, pod) for pod in self._watches.gated[name].values()))
        return time.perf_counter() - began

    async def bare_clear(self) -> None:
        """Delete what the bare client has made."""
        for client in (self._world.manager, *self._world.workers.values()):
            for resource in (JOBS, WORKLOADS):
                found = (await client.list(resource, namespace=BARE)).items
                await at_once(client.delete(resource, each["metadata"]["name"], BARE) for each in found)

    def _worker(self, name: str) -> KubeClient:
        return self._world.workers[WORKERS[int(name.rpartition("-")[2]) % len(WORKERS)]]

    async def _create(self, name: str) -> None:
        await self._world.manager.create(JOBS, objects.job(name))

    async def _scale(self, name: str, namespace: str, count: int) -> None:
        await self._watches.where[name].patch(JOBS, name, namespace, MergePatch({"spec": {"parallelism": count}}))

    async def _bare_dispatch(self, name: str) -> None:
        manager, worker = self._world.manager, self._worker(name)
        workload = await manager.create(WORKLOADS, _workload(name, 1))
        await self._admit(workload, 1)
        await manager.patch(WORKLOADS, name, BARE, _annotations(dispatched='{"version":1}'))
        await worker.create(JOBS, _gated_job(name))
        await worker.create(WORKLOADS, _workload(name, 1))
        await self._watches.pods.all_of([f"gated {name} 1"])
        await asyncio.gather(*(_ungate(worker, pod) for pod in list(self._watches.gated[name].values())))
        await manager.patch(WORKLOADS, name, BARE, _annotations(applied="1"))

    async def _admit(self, workload: Manifest, count: int) -> None:
        assignment = {"name": "main", "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "1"}, "count": count}
        admitted = [
            {
                "type": type,
                "status": "True",
                "reason": type,
                "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
            for type in ("QuotaReserved", "Admitted")
        ]
        status = {
            "admission": {"clusterQueue": objects.CLUSTER_QUEUE, "podSetAssignments": [assignment]},
            "conditions": admitted,
        }
        name = workload["metadata"]["name"]
        await self._world.manager.patch(WORKLOADS, name, BARE, MergePatch({"status": status}), subresource="status")


async def at_once(requests: Iterable[Awaitable[Any]]) -> None:
    """All of them, some at a time."""
    free = asyncio.Semaphore(_AT_ONCE)

    async def one(request: Awaitable[Any]) -> None:
        async with free:
            await request

    async with asyncio.TaskGroup() as group:
        for request in requests:
            group.create_task(one(request))


async def _ungate(worker: KubeClient, pod: Manifest) -> None:
    metadata = pod["metadata"]
    await worker.patch(
        PODS, metadata["name"], metadata["namespace"], JsonPatch([{"op": "remove", "path": "/spec/schedulingGates/0"}])
    )


def _annotations(**texts: str) -> MergePatch:
    return MergePatch({"metadata": {"annotations": {f"example.com/{name}": text for name, text in texts.items()}}})


def _gated_job(name: str) -> Manifest:
    job = objects.job(name)
    spec = {name: value for name, value in job["spec"].items() if name != "managedBy"}
    pod = spec["template"]["spec"] | {"schedulingGates": [{"name": kueue.ELASTIC_GATE}]}
    labels = {kueue.POD_SET_LABEL: "main"}
    spec |= {"template": {"metadata": {"labels": labels}, "spec": pod}}
    return job | {"metadata": {"name": name, "namespace": BARE}, "spec": spec}


def _workload(name: str, count: int) -> Manifest:
    template = {"spec": objects.job(name)["spec"]["template"]["spec"]}
    return {
        "apiVersion": kueue.API_VERSION,
        "kind": WORKLOADS.kind,
        "metadata": {"name": name, "namespace": BARE},
        "spec": {"podSets": [{"name": "main", "count": count, "template": template}]},
    }


@asynccontextmanager
async def prepared() -> AsyncIterator[tuple[World, Processes, Watches]]:
    """Servers, roles and watches."""
    with TemporaryDirectory() as folder, rabbitmq() as broker, vhost(broker, *WORKERS) as url:
        plane = ControlPlane(Path(folder), tools(), (MANAGER, *WORKERS))
        try:
            plane.start()
            for cluster in plane.clusters.values():
                cluster.define(*definitions())
            at = {name: cluster.kubeconfig for name, cluster in plane.clusters.items()}
            async with AsyncExitStack() as stack:
                world = await stack.enter_async_context(real_world(at[MANAGER], {name: at[name] for name in WORKERS}))
                await set_quota(world, 1_000_000)
                for name in WORKERS:
                    await world.ensure(world.manager, WORKERCLUSTERS, objects.worker_cluster(name))
                for client in (world.manager, *world.workers.values()):
                    await world.ensure(client, NAMESPACES, objects.namespace(BARE))
                roles = [RoleProcess(Place(name, at[name], url(name))) for name in (MANAGER, *WORKERS)]
                for role in roles:
                    await role.started()
                    stack.push_async_callback(role.end)
                bus = await stack.enter_async_context(bus_of(url(MANAGER), name="bench"))
                watches = Watches(world)
                await stack.enter_async_context(running(*watches.running(bus)))
                await asyncio.sleep(_SETTLE_S)
                yield world, Processes(roles[0], tuple(roles[1:])), watches
        finally:
            plane.stop()


class Dispatched(NamedTuple):
    """One round of bursts. Times in seconds."""

    took: float
    bare: float
    specs: list[float]
    """From admission to the spec."""
    cpu: tuple[float, float]
    """Of the manager and the agents, a job."""


async def dispatch_round(bench: Bench, watches: Watches, roles: Processes, jobs: int) -> Dispatched:
    names = bench.names(jobs)
    bare = await bench.bare_burst(names)
    await bench.bare_clear()
    names, before = bench.names(jobs), roles.cpu_s
    took = await bench.burst(names)
    await watches.ordered.all_of(names)
    specs = [max(0.0, watches.ordered.at[name] - watches.admitted.at[name]) for name in names]
    await asyncio.sleep(_REST_S)
    cpu = tuple((after - earlier) / jobs for after, earlier in zip(roles.cpu_s, before, strict=True))
    await bench.delete(names)
    return Dispatched(took, bare, specs, (cpu[0], cpu[1]))


async def resizes(bench: Bench, count: int) -> tuple[list[float], list[float]]:
    """Seconds of resizes one at a time, and of those of the bare client."""
    ours, bare = bench.names(count), bench.names(count)
    await bench.burst(ours)
    await bench.bare_burst(bare)
    found = [await bench.resize(name, _GROWN) for name in ours]
    beside = [await bench.bare_resize(name) for name in bare]
    await bench.delete(ours)
    await bench.bare_clear()
    return found, beside


async def large(bench: Bench, pods: int) -> tuple[float, float]:
    """Seconds of a job that grows to so many pods, and of another one that grows meanwhile."""
    names = bench.names(2)
    await bench.burst(names)
    growing = asyncio.create_task(bench.resize(names[0], pods))
    await asyncio.sleep(0.2)
    other = await bench.resize(names[1], _GROWN)
    took = await growing
    await bench.delete(names)
    return took, other


def _times(rounds: Sequence[Dispatched]) -> tuple[list[float], list[float]]:
    return [each.took for each in rounds], [each.bare for each in rounds]


def figures_of_bursts(rounds: Sequence[Dispatched], jobs: int) -> Iterator[Figure]:
    """Medians over the rounds."""
    ours, bare = (statistics.median(jobs / each for each in times) for times in _times(rounds))
    at_least = Target(0.6, is_least=True, of_ratio=True)
    name = f"dispatch of {jobs} jobs at once"
    yield Figure.of(name, ours, "/s", beside="bare client", beside_value=bare, target=at_least)
    specs = [spec for each in rounds for spec in each.specs]
    yield Figure.of("from admission to the spec, p50", statistics.median(specs), "s", target=Target(0.3))
    yield Figure.of("from admission to the spec, most", max(specs), "s")
    for role, number, limit in (("manager", 0, 8.0), ("agents", 1, 7.0)):
        cost = 1e3 * statistics.median(each.cpu[number] for each in rounds)
        yield Figure.of(f"processor time of a dispatch, {role}", cost, "ms", target=Target(limit))


async def measure(given: argparse.Namespace) -> list[Figure]:
    async with prepared() as (world, roles, watches):
        bench = Bench(world, watches)
        rest = [process.resident_mb for process in (roles.manager, *roles.agents)]
        found = [Figure.of("memory at rest, manager", rest[0], "MB", target=Target(90.0))]
        found.append(Figure.of("memory at rest, agent", statistics.mean(rest[1:]), "MB", target=Target(60.0)))
        await dispatch_round(bench, watches, roles, given.jobs)
        rounds = [await dispatch_round(bench, watches, roles, given.jobs) for _ in range(given.rounds)]
        found += figures_of_bursts(rounds, given.jobs)
        ours, bare = await resizes(bench, given.resizes)
        p50, p99 = statistics.median(ours), statistics.quantiles(ours, n=100)[98]
        floor = statistics.median(bare)
        times = Target(1.5, of_ratio=True)
        found += [
            Figure.of("resize, p50", 1e3 * p50, "ms", beside="bare client", beside_value=1e3 * floor, target=times),
            Figure.of(
                "resize, p99", 1e3 * p99, "ms", beside="p50", beside_value=1e3 * p50, target=Target(4.0, of_ratio=True)
            ),
        ]
        took, other = await large(bench, given.pods)
        found += [
            Figure.of(f"one job to {given.pods:,} pods", took, "s"),
            Figure.of("resize of another meanwhile", 1e3 * other, "ms", beside="p50 alone", beside_value=1e3 * p50),
        ]
        return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=100, help="of a burst")
    parser.add_argument("--resizes", type=int, default=50, help="one at a time")
    parser.add_argument("--pods", type=int, default=1000, help="of the large job")
    parser.add_argument("--rounds", type=int, default=3, help="of bursts, after one that is not counted")
    figures.add_argument(parser)
    given = parser.parse_args()
    configure_logging(format="console", level="ERROR")
    return figures.report(asyncio.run(measure(given)), json=given.json)


if __name__ == "__main__":
    sys.exit(main())
