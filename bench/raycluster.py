"""Measures how a RayCluster is resized where it runs: by KubeRay alone, by slicebus, and by a Kueue in one cluster.

    python bench/raycluster.py [--resizes 10] [--clusters 12]

`KUBERAY_BINARY` and `KUBERAY_CRDS` name a KubeRay and its definitions; without them a stand-in plays it. `KUEUE_BINARY`
and `KUEUE_CRDS` name a Kueue; without them there is none. Each set-up is on servers of its own, one after the other:

- KubeRay alone: the cluster is made on the worker, without quota;
- slicebus: it is made on the manager, and the roles are processes of their own;
- a Kueue on the worker, with the same quota: no other cluster takes part.

A user sets the replicas of one cluster at a time from 1 to 5 and, when everything has come to rest, back to 1. A resize
counts until the fifth worker may run; a shrink until the job's Workloads are charged for one worker. The requests are
those of everybody at all API servers, but for watches, lists, Leases and heartbeats. Then so many clusters are made at
once, and resized from 2 workers to 6 at once. Times are medians, requests and conflicts means.
"""

import argparse
import asyncio
import os
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import figures
import msgspec
from figures import Figure, Target
from installation import CPU, Installation, installation
from server_counts import CONFLICT, ServerCounts
from watched import PATIENCE_S, Pods

from slicebus.cli.demo import objects
from slicebus.cli.demo.world import running
from slicebus.kube.cache import Cache
from slicebus.kube.client import JsonPatch, KubeClient
from slicebus.kube.kubeconfig import of_kubeconfig
from slicebus.kube.reflector import Reflector
from slicebus.kube.resources import RAYCLUSTERS, WORKLOADS
from slicebus.kube.transport import HttpTransport
from slicebus.proto.messages import ClusterName
from slicebus.slices.jobs.raycluster import CLUSTER_LABEL
from slicebus.slices.workload.workload import Slice
from support.kuberay import BINARY as KUBERAY
from support.kueue import VARIABLES as KUEUE

Manifest = dict[str, Any]
EAST = ClusterName("east")
_FEW, _MANY, _HEADS = 1, 5, 1
_AT_ONCE_FEW, _AT_ONCE_MANY = 2, 6
_WARM_UPS = 2
"""What is done for the first time takes longer."""


class Measured(msgspec.Struct):
    """Of one set-up. Times in seconds."""

    resizes: list[float] = []
    shrinks: list[float] = []
    requests: list[Counter[str]] = []
    """Of each resize, by the code of the answer."""
    made_at_once: float = 0.0
    resized_at_once: float = 0.0

    @property
    def conflicts(self) -> float:
        return statistics.mean(counts[CONFLICT] for counts in self.requests)

    @property
    def asked(self) -> float:
        return statistics.mean(counts.total() for counts in self.requests)


class Charges:
    """The pods that each job's Workloads are charged for, by the job's name."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._changed = asyncio.Event()
        cache.subscribe(lambda _: self._changed.set())

    @classmethod
    @asynccontextmanager
    async def watched(cls, client: KubeClient) -> AsyncIterator["Charges"]:
        """Watch until the context is left."""
        cache = Cache()
        charges = cls(cache)
        async with running(
            Reflector(client, WORKLOADS, cache, namespace=objects.NAMESPACE).run(), started=[cache.synced]
        ):
            yield charges

    async def until(self, job: str, pods: int) -> float:
        """When it is charged for so many, by `time.perf_counter`."""
        async with asyncio.timeout(PATIENCE_S):
            while self._charged()[job] != pods:
                self._changed.clear()
                await self._changed.wait()
        return time.perf_counter()

    def _charged(self) -> dict[str, int]:
        """While one slice replaces another, both are admitted: the job is charged once, for the larger one."""
        charged: dict[str, int] = defaultdict(int)
        for manifest in self._cache.all():
            if not (slice := Slice.from_manifest(manifest)).finished:
                owner = manifest["metadata"]["ownerReferences"][0]["name"]
                charged[owner] = max(charged[owner], sum(slice.held_counts.values()))
        return charged


class User:
    """Makes RayClusters at one API server, and resizes them on the worker."""

    def __init__(self, made: Installation, home: KubeClient, pods: Pods, shown: Callable[[Manifest], Manifest]) -> None:
        self._home = home
        self._worker = made.world.workers[EAST]
        self._pods = pods
        self._shown = shown

    async def create(self, *names: str, workers: int) -> float:
        """At once: the seconds until the pods of each may run."""
        began = time.perf_counter()
        manifests = (self._shown(objects.ray_cluster(name, replicas=workers)) for name in names)
        await asyncio.gather(*(self._home.create(RAYCLUSTERS, manifest) for manifest in manifests))
        return max([await self._pods.until_free(name, _HEADS + workers) for name in names]) - began

    async def resize(self, *names: str, workers: int) -> float:
        """At once: the seconds until so many workers of each may run."""
        began = time.perf_counter()
        body = {"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": workers}
        await asyncio.gather(
            *(self._worker.patch(RAYCLUSTERS, name, objects.NAMESPACE, JsonPatch([body])) for name in names)
        )
        return max([await self._pods.until_free(name, _HEADS + workers) for name in names]) - began


async def measure(user: User, counts: ServerCounts, charges: Charges | None, given: argparse.Namespace) -> Measured:
    """One set-up whose servers, operator and roles are there."""
    found = Measured()
    await user.create("one", workers=_FEW)
    for number in range(_WARM_UPS + given.resizes):
        took_s, asked = await counts.during(user.resize("one", workers=_MANY))
        shrunk_s = await shrink(user, charges)
        if number >= _WARM_UPS:
            found.resizes.append(took_s)
            found.requests.append(asked)
            found.shrinks.append(shrunk_s)
    names = [f"burst-{number:02}" for number in range(given.clusters)]
    found.made_at_once = await user.create(*names, workers=_AT_ONCE_FEW)
    await counts.at_rest()
    found.resized_at_once = await user.resize(*names, workers=_AT_ONCE_MANY)
    return found


async def shrink(user: User, charges: Charges | None) -> float:
    """The seconds until the job is charged for less; where nothing is charged, until the pods have gone."""
    began = time.perf_counter()
    gone_s = await user.resize("one", workers=_FEW)
    return await charges.until("one", _HEADS + _FEW) - began if charges is not None else gone_s


def without_autoscaler(manifest: Manifest) -> Manifest:
    """A cluster whose replicas its user sets."""
    return manifest | {"spec": manifest["spec"] | {"enableInTreeAutoscaling": False}}


def on_worker(manifest: Manifest) -> Manifest:
    """A cluster that the operator of its own API server runs."""
    manifest = without_autoscaler(manifest)
    return manifest | {"spec": {key: value for key, value in manifest["spec"].items() if key != "managedBy"}}


def without_quota(manifest: Manifest) -> Manifest:
    """A cluster that only the operator looks at."""
    named = {key: manifest["metadata"][key] for key in ("name", "namespace")}
    return on_worker(manifest) | {"metadata": named}


@asynccontextmanager
async def servers(kueues: dict[str, Manifest]) -> AsyncIterator[tuple[Installation, Pods, ServerCounts]]:
    """Those of one set-up."""
    kuberay = bool(os.environ.get(KUBERAY))
    async with (
        installation(kueues, workers=[EAST], kuberay=kuberay) as made,
        Pods.watched(made.world.workers, label=CLUSTER_LABEL) as pods,
    ):
        transports = [HttpTransport(of_kubeconfig(cluster.kubeconfig)) for cluster in made.plane.clusters.values()]
        try:
            yield made, pods, ServerCounts(transports)
        finally:
            await asyncio.gather(*(transport.aclose() for transport in transports))


async def alone(given: argparse.Namespace) -> Measured:
    async with servers({}) as (made, pods, counts):
        return await measure(User(made, made.world.workers[EAST], pods, without_quota), counts, None, given)


async def by_slicebus(given: argparse.Namespace) -> Measured:
    async with (
        servers({}) as (made, pods, counts),
        made.fleet(),
        Charges.watched(made.world.manager) as charges,
    ):
        return await measure(User(made, made.world.manager, pods, without_autoscaler), counts, charges, given)


async def by_kueue(given: argparse.Namespace) -> Measured:
    async with servers({EAST: {}}) as (made, pods, counts):
        worker = made.world.workers[EAST]
        for resource, manifest in objects.quota(CPU):
            await made.world.ensure(worker, resource, manifest)
        async with Charges.watched(worker) as charges:
            return await measure(User(made, worker, pods, on_worker), counts, charges, given)


async def measure_all(given: argparse.Namespace) -> list[Figure]:
    bare, ours = await alone(given), await by_slicebus(given)
    theirs = await by_kueue(given) if all(map(os.environ.get, KUEUE)) else None
    return figures_of(ours, bare, theirs, given.clusters, operator="KubeRay" if os.environ.get(KUBERAY) else "stand-in")


def figures_of(
    ours: Measured, bare: Measured, theirs: Measured | None, clusters: int, *, operator: str
) -> list[Figure]:
    """Ours beside the operator alone, and beside a Kueue where there is one."""
    found = beside(ours, bare, f"{operator} alone", clusters, {"p50": Target(2, of_ratio=True)})
    if theirs is None:
        return found
    wanted = {"requests": Target(40), "conflicts": Target(0), "shrink": Target(1, of_ratio=True)}
    return [*found, *beside(ours, theirs, "Kueue in one cluster", clusters, wanted)]


def beside(ours: Measured, peer: Measured, name: str, clusters: int, wanted: dict[str, Target]) -> list[Figure]:
    of = partial(Figure.of, beside=name)
    sizes = f"from {_FEW} worker to {_MANY}"
    median, p95 = statistics.median, partial(figures.percentile, rank=95)
    return [
        of(f"{sizes}, p50", median(ours.resizes), "s", beside_value=median(peer.resizes), target=wanted.get("p50")),
        of(f"{sizes}, p95", p95(ours.resizes), "s", beside_value=p95(peer.resizes)),
        of(f"{sizes}: requests", ours.asked, "requests", beside_value=peer.asked, target=wanted.get("requests")),
        of(f"{sizes}: conflicts", ours.conflicts, "", beside_value=peer.conflicts, target=wanted.get("conflicts")),
        of(
            f"shrink from {_MANY} workers to {_FEW}, until charged, p50",
            median(ours.shrinks),
            "s",
            beside_value=median(peer.shrinks),
            target=wanted.get("shrink"),
        ),
        of(f"{clusters} made at once", ours.made_at_once, "s", beside_value=peer.made_at_once),
        of(
            f"{clusters} from {_AT_ONCE_FEW} workers to {_AT_ONCE_MANY} at once",
            ours.resized_at_once,
            "s",
            beside_value=peer.resized_at_once,
        ),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--resizes", type=int, default=10)
    parser.add_argument("--clusters", type=int, default=12, help="made and resized at once")
    return figures.run(parser, measure_all)


if __name__ == "__main__":
    sys.exit(main())
