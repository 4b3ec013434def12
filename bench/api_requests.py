"""Counts what a manager and an agent ask of their API servers for each step of a job's life.

    python bench/api_requests.py [--rounds 5] [--details]

A fleet in this process, on the servers of the tests: API servers, Job controller, scheduler and RabbitMQ. One job at a
time is dispatched, resized on its worker from 1 pod to 5 and down to 2, evicted, started again and deleted; another one
ends. A RayCluster, which a stand-in for KubeRay runs, is dispatched and resized likewise. Then a job comes that waits
until another one has shrunk from 5 pods to 2: by hand on the worker, and by preemption. The slice that gives those pods
back belongs to the latter. After each step the fleet comes to rest. Each role counts its requests by verb, resource and
answer. Left out is what it asks whether anything happens or not: watches, lists, its Lease, heartbeats. What the API
servers count beyond that is the controllers' part, and the bench's own.

Requests for the statuses of queues are counted apart: many jobs share one when they come together, and here each comes
alone. No other figure has them in it, and no target, but conflicts are counted wherever they are.

A figure is the median of the rounds, of conflicts the most of any round. Counts do not depend on the machine; but how
many conflicts there are, and whether two changes go into one write, may depend on what comes first.
"""

import argparse
import statistics
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import figures
from broker import MANAGER, rabbitmq
from figures import Figure, Target
from installation import need_servers
from prometheus_client import CollectorRegistry
from server_counts import ServerCounts, at_rest, is_standing

from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World, fleet, real_world
from slicebus.kube.client import MergePatch
from slicebus.kube.kubeconfig import of_kubeconfig
from slicebus.kube.resources import CLUSTERQUEUES, JOBS, PODS, RAYCLUSTERS, WORKLOADPRIORITYCLASSES
from slicebus.kube.transport import HttpTransport
from slicebus.proto.messages import ClusterName
from slicebus.slices.api import api_names, kueue
from slicebus.slices.workload.waiting import shown_on
from support.controlplane import ControlPlane
from support.requests import api_requests
from support.scenario import Scenario, set_quota
from support.servers import definitions
from support.tools import tools
from support.waiting import eventually

EAST = ClusterName("east")
_QUEUES = ("clusterqueues", "localqueues")
TARGETS = {"dispatch": Target(10), "resize from 1 pod to 5": Target(18), "shrink from 5 pods to 2": Target(9)}
NO_CONFLICT = Target(0)
BY_HAND, BY_PREEMPTION = "start after a shrink by hand", "start after a shrink by preemption"
MOST_MORE = 2
"""Requests of a shrink by preemption beyond those of one by hand."""
_HIGH = {
    "apiVersion": WORKLOADPRIORITYCLASSES.api_version,
    "kind": WORKLOADPRIORITYCLASSES.kind,
    "metadata": {"name": "high"},
    "value": 100,
}
_LOOKS_S = 0.2
Counts = Counter[tuple[str, ...]]


class Asked(NamedTuple):
    """The requests of one step: of each role by verb, resource and answer, and those of the controllers."""

    roles: dict[str, Counts]
    others: int
    """Of the controllers, and the bench's own."""

    def ours(self) -> int:
        return sum(map(self.of_role, self.roles))

    def of_role(self, role: str) -> int:
        return _total(self.roles[role], lambda key: not _is_of_queues(key))

    def queue_statuses(self) -> int:
        return self._those(_is_of_queues)

    def events(self) -> int:
        return self._those(lambda key: key[1] == "events")

    def conflicts(self) -> int:
        return self._those(lambda key: key[3] == "409")

    def _those(self, wanted: Callable[[tuple[str, ...]], bool]) -> int:
        return sum(_total(counts, wanted) for counts in self.roles.values())


def _total(counts: Counts, wanted: Callable[[tuple[str, ...]], bool]) -> int:
    return sum(number for key, number in counts.items() if wanted(key))


def _is_of_queues(key: tuple[str, ...]) -> bool:
    _, resource, subresource, _ = key
    return resource in _QUEUES and subresource == "status"


PARTS: dict[str, Callable[[Asked], int]] = {
    "requests of the manager": partial(Asked.of_role, role="manager"),
    "requests of the agent": partial(Asked.of_role, role=EAST),
    "Events of both": Asked.events,
    "requests for the statuses of queues": Asked.queue_statuses,
}
"""Beside all requests of a step."""


class Meter:
    """Reads the roles' counters and the API servers' own."""

    def __init__(self, registries: Mapping[str, CollectorRegistry], servers: ServerCounts) -> None:
        self._registries = registries
        self._servers = servers

    async def roles(self) -> dict[str, Counts]:
        return {role: _counts_of(registry) for role, registry in self._registries.items()}

    async def during(self, step: Awaitable[None]) -> Asked:
        """What was asked until the fleet is at rest again."""
        before = await at_rest(self.roles, looks_s=_LOOKS_S)
        all_before = await self._servers.read()
        await step
        after = await at_rest(self.roles, looks_s=_LOOKS_S)
        all_after = await self._servers.read()
        roles = {role: counts - before[role] for role, counts in after.items()}
        others = (all_after - all_before).total() - sum(counts.total() for counts in roles.values())
        return Asked(roles, others)


def _counts_of(registry: CollectorRegistry) -> Counts:
    return Counts({key: count for key, count in api_requests(registry).items() if not is_standing(*key[:2])})


class Steps:
    """What happens to the jobs of one round."""

    def __init__(self, world: World, number: int) -> None:
        self._world = world
        self._job = Scenario(world, "Job", f"train-{number}")
        self._ray = Scenario(world, "RayCluster", f"ray-{number}")
        self._short = Scenario(world, "Job", f"short-{number}")
        self._low = Scenario(world, "Job", f"low-{number}")
        self._high = Scenario(world, "Job", f"high-{number}")

    async def dispatch(self) -> None:
        await self._world.manager.create(JOBS, objects.job(self._job.name))
        await self._job.expect_pods(running=1)

    async def grow(self) -> None:
        await self._job.scale(5)
        await self._job.expect_pods(running=5)

    async def shrink(self) -> None:
        await self._job.scale(2)
        await self._job.expect_pods(running=2)

    async def evict(self) -> None:
        await self._stop("HoldAndDrain")
        await self._job.expect_pods(running=0)

    async def start_again(self) -> None:
        await self._stop("None")
        # A job that was evicted comes back at its spec's size.
        await self._job.expect_pods(running=1)

    async def delete(self) -> None:
        await self._world.manager.delete(JOBS, self._job.name, objects.NAMESPACE)
        await self._job.expect_nothing_left()

    async def dispatch_ray(self) -> None:
        await self._world.manager.create(RAYCLUSTERS, objects.ray_cluster(self._ray.name))
        await self._ray.expect_pods(running=1)

    async def grow_ray(self) -> None:
        await self._ray.scale(5)
        await self._ray.expect_pods(running=5)

    async def shrink_ray(self) -> None:
        await self._ray.scale(2)
        await self._ray.expect_pods(running=2)

    async def delete_ray(self) -> None:
        await self._world.manager.delete(RAYCLUSTERS, self._ray.name, objects.NAMESPACE)
        await self._ray.expect_nothing_left()

    async def prepare_end(self) -> None:
        manifest = objects.job(self._short.name)
        manifest["spec"]["completions"] = 1
        await self._world.manager.create(JOBS, manifest)
        await self._short.expect_pods(running=1)

    async def end(self) -> None:
        for pod in await self._short.pods():
            body = MergePatch({"status": {"phase": "Succeeded"}})
            await self._world.workers[EAST].patch(
                PODS, pod["metadata"]["name"], objects.NAMESPACE, body, subresource="status"
            )

        async def is_complete() -> bool:
            job = await self._world.manager.get(JOBS, self._short.name, objects.NAMESPACE)
            return any(each["type"] == "Complete" for each in job["status"].get("conditions", ()))

        await eventually(is_complete, f"{self._short.name} is complete")

    async def clear(self) -> None:
        await self._world.manager.delete(JOBS, self._short.name, objects.NAMESPACE)
        await self._short.expect_nothing_left()

    async def prepare_shrink(self, policy: str) -> None:
        """A job has all of the quota."""
        await self._preempt(policy)
        low = objects.job(self._low.name, parallelism=5)
        low["metadata"]["annotations"][api_names.MIN_SIZE_ANNOTATION] = "main=2"
        await set_quota(self._world, 5)
        await self._world.manager.create(JOBS, low)
        await self._low.expect_pods(running=5)

    async def make_room(self) -> None:
        await self._submit_high()

        async def waits() -> bool:
            return shown_on(await self._world.manager.get(JOBS, self._high.name, objects.NAMESPACE)) is not None

        await eventually(waits, f"{self._high.name} shows that it waits")
        await self._low.scale(2)
        await self._high.expect_pods(running=3)

    async def preempt(self) -> None:
        await self._submit_high()
        await self._high.expect_pods(running=3)

    async def _submit_high(self) -> None:
        high = objects.job(self._high.name, parallelism=3)
        high["metadata"]["labels"][kueue.PRIORITY_CLASS_LABEL] = "high"
        await self._world.manager.create(JOBS, high)

    async def clear_both(self) -> None:
        for job in (self._low, self._high):
            await self._world.manager.delete(JOBS, job.name, objects.NAMESPACE)
            await job.expect_nothing_left()
        await set_quota(self._world, 10)

    async def _preempt(self, policy: str) -> None:
        body = MergePatch({"spec": {"preemption": {"withinClusterQueue": policy}}})
        await self._world.manager.patch(CLUSTERQUEUES, objects.CLUSTER_QUEUE, None, body)

    async def _stop(self, policy: str) -> None:
        body = MergePatch({"spec": {"stopPolicy": policy}})
        await self._world.manager.patch(CLUSTERQUEUES, objects.CLUSTER_QUEUE, None, body)


async def one_round(world: World, meter: Meter, number: int) -> dict[str, Asked]:
    steps = Steps(world, number)
    asked = {
        "dispatch": await meter.during(steps.dispatch()),
        "resize from 1 pod to 5": await meter.during(steps.grow()),
        "shrink from 5 pods to 2": await meter.during(steps.shrink()),
        "eviction": await meter.during(steps.evict()),
        "start again with 1 pod": await meter.during(steps.start_again()),
        "delete": await meter.during(steps.delete()),
        "dispatch of a RayCluster": await meter.during(steps.dispatch_ray()),
        "RayCluster from 1 worker to 5": await meter.during(steps.grow_ray()),
        "RayCluster from 5 workers to 2": await meter.during(steps.shrink_ray()),
    }
    await steps.delete_ray()
    await steps.prepare_end()
    asked["end"] = await meter.during(steps.end())
    await steps.clear()
    shrinks = (BY_HAND, "Never", steps.make_room), (BY_PREEMPTION, "LowerPriority", steps.preempt)
    for step, policy, shrink in shrinks:
        await steps.prepare_shrink(policy)
        asked[step] = await meter.during(shrink())
        await steps.clear_both()
    return asked


@asynccontextmanager
async def measured() -> AsyncIterator[tuple[World, Meter]]:
    """A fleet of a manager and one agent on servers of its own."""
    with TemporaryDirectory() as folder, rabbitmq(EAST) as url:
        plane = ControlPlane(Path(folder), tools(), (MANAGER, EAST))
        servers = list[HttpTransport]()
        try:
            plane.start()
            for cluster in plane.clusters.values():
                cluster.define(*definitions())
                servers.append(HttpTransport(of_kubeconfig(cluster.kubeconfig)))
            urls = {role: url(role) for role in (MANAGER, EAST)}
            kubeconfigs = {EAST: plane.clusters[EAST].kubeconfig}
            async with (
                real_world(plane.clusters[MANAGER].kubeconfig, kubeconfigs, ray_stand_in=True) as world,
                fleet(world, urls) as registries,
            ):
                await set_quota(world, 10)
                await world.ensure(world.manager, WORKLOADPRIORITYCLASSES, _HIGH)
                yield world, Meter(registries, ServerCounts(servers))
        finally:
            for server in servers:
                await server.aclose()
            plane.stop()


def figures_of(rounds: list[dict[str, Asked]]) -> list[Figure]:
    """The medians of each step, and the most conflicts."""
    found = []
    for step in rounds[0]:
        each = [asked[step] for asked in rounds]

        def median(of: Callable[[Asked], int], each: list[Asked] = each) -> float:
            return statistics.median(map(of, each))

        ours, others, target = median(Asked.ours), median(lambda asked: asked.others), TARGETS.get(step)
        if step == BY_PREEMPTION:
            target = Target(statistics.median(asked[BY_HAND].ours() for asked in rounds) + MOST_MORE)
        name, beside = f"{step}: requests", "of controllers"
        found.append(Figure.of(name, ours, "requests", beside=beside, beside_value=others, target=target))
        found += [Figure.of(f"{step}: {part}", median(of), "requests") for part, of in PARTS.items()]
        conflicts = max(map(Asked.conflicts, each))
        found.append(Figure.of(f"{step}: conflicts of both", conflicts, "requests", target=NO_CONFLICT))
    return found


def details(asked: dict[str, Asked]) -> list[str]:
    """Every request of one round."""
    return [
        f"{step}: {role} {count} {verb} {resource}{'/' + sub if sub else ''} {code}"
        for step, found in asked.items()
        for role, counts in found.roles.items()
        for (verb, resource, sub, code), count in sorted(counts.items())
    ]


async def measure(given: argparse.Namespace) -> list[Figure]:
    need_servers()
    async with measured() as (world, meter):
        rounds = [await one_round(world, meter, number) for number in range(given.rounds)]
    if given.details:
        print("\n".join(details(rounds[-1])))
    return figures_of(rounds)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--details", action="store_true", help="also show each request of the last round")
    return figures.run(parser, measure)


if __name__ == "__main__":
    sys.exit(main())
