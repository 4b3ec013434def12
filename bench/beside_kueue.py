"""Measures slicebus beside Kueue's MultiKueue, and with a Kueue that admits its jobs.

    python bench/beside_kueue.py [--rounds 3] [--jobs 50] [--resizes 10]

`KUEUE_BINARY` and `KUEUE_CRDS` name a Kueue and its definitions. On real API servers, Job controllers and RabbitMQ.
Each set-up is on servers of its own, one after the other:

- slicebus alone;
- slicebus in its kueue mode, with a Kueue on the manager's cluster (docs/kueue-mode.md);
- MultiKueue: a Kueue on each cluster, with its defaults, where the manager's has kubeconfigs of the workers;
- the same with 1,000 queries a second to the workers, where this version of Kueue has such a setting.

In each round a user creates so many elastic Jobs of one pod at once; the rate counts until the pod of the last one may
run. After the last round jobs are resized from 1 pod to 5, one after the other, until the fifth pod may run: on the
manager, which every set-up can, and on the worker, which MultiKueue cannot. A rate is the median of the rounds, a time
that of the resizes.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import figures
import msgspec
from broker import MANAGER
from figures import Figure, Target
from installation import CPU, WORKERS, Installation, installation
from user import User
from watched import Pods

from slicebus.cli.demo import objects
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.resources import ADMISSIONCHECKS, CLUSTERQUEUES, SECRETS, Resource
from slicebus.manager.state.settings import AdmissionModeName
from slicebus.slices.api import api_names, kueue
from support.kueue import SYSTEM

Manifest = dict[str, Any]
SetUp = Callable[[Installation], AbstractAsyncContextManager[object]]
"""What makes the jobs run."""

_SIZE = 5
_QUIET_S = 1.0
_CHECK = "dispatch"
_MULTIKUEUE_CONFIGS = Resource(kueue.GROUP, "v1beta2", "multikueueconfigs", "MultiKueueConfig", namespaced=False)
_MULTIKUEUE_CLUSTERS = Resource(kueue.GROUP, "v1beta2", "multikueueclusters", "MultiKueueCluster", namespaced=False)
_QUERIES = 1000
_MORE_QUERIES = {"multiKueue": {"clientConnection": {"qps": _QUERIES, "burst": _QUERIES}}}
"""Versions from before Kueue's issue 14973 was solved refuse it."""
_UNKNOWN = "multiKueue.clientConnection"
"""In what such a version says."""


class Measured(msgspec.Struct):
    """Of one set-up; times in seconds."""

    rates: list[float] = []
    """Jobs a second, of each round."""
    on_manager: list[float] = []
    on_worker: list[float] = []

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)


@asynccontextmanager
async def alone(made: Installation) -> AsyncIterator[None]:
    async with made.fleet():
        yield


@asynccontextmanager
async def admitted_by_kueue(made: Installation) -> AsyncIterator[None]:
    """A Kueue has the quota, and asks slicebus by its check."""
    await use_check(made.world.manager, {"controllerName": api_names.CHECK_CONTROLLER})
    async with made.fleet(SLICEBUS_ADMISSION=AdmissionModeName.KUEUE.value):
        yield


@asynccontextmanager
async def multikueue(made: Installation) -> AsyncIterator[None]:
    """Every cluster has the same quota, and the manager's Kueue a kubeconfig of each worker."""
    manager = made.world.manager
    for name, client in made.world.workers.items():
        for resource, manifest in objects.quota(CPU):
            await made.world.ensure(client, resource, manifest)
        kubeconfig = made.plane.clusters[name].kubectl("config", "view", "--flatten", "--raw")
        secret = {"metadata": {"name": name, "namespace": SYSTEM}, "stringData": {"kubeconfig": kubeconfig}}
        await manager.create(SECRETS, {"apiVersion": "v1", "kind": SECRETS.kind} | secret)
        source = {"kubeConfig": {"locationType": "Secret", "location": name}}
        await manager.create(_MULTIKUEUE_CLUSTERS, objects.named(_MULTIKUEUE_CLUSTERS, name, {"clusterSource": source}))
    await manager.create(_MULTIKUEUE_CONFIGS, objects.named(_MULTIKUEUE_CONFIGS, _CHECK, {"clusters": list(WORKERS)}))
    parameters = {"apiGroup": kueue.GROUP, "kind": _MULTIKUEUE_CONFIGS.kind, "name": _CHECK}
    await use_check(manager, {"controllerName": kueue.MANAGED_BY_MULTIKUEUE, "parameters": parameters})
    yield


async def use_check(manager: KubeClient, spec: Manifest) -> None:
    """Make an AdmissionCheck, and let the queue go by it."""
    await manager.create(ADMISSIONCHECKS, objects.named(ADMISSIONCHECKS, _CHECK, spec))
    strategy = {"admissionChecksStrategy": {"admissionChecks": [{"name": _CHECK}]}}
    await manager.patch(CLUSTERQUEUES, objects.CLUSTER_QUEUE, None, MergePatch({"spec": strategy}))


async def measure(
    set_up: SetUp, kueues: dict[str, Manifest], given: argparse.Namespace, *, on_worker: bool = True
) -> Measured:
    """One set-up, on servers of its own."""
    found = Measured()
    async with installation(kueues) as made, Pods.watched(made.world.workers) as pods, set_up(made):
        user = User(made.world, pods)
        # What is done for the first time takes longer, and a queue is active only when its check is.
        await user.create("first")
        await user.resize_on_manager("first", _SIZE)
        await made.clear()
        for number in range(given.rounds):
            began = time.perf_counter()
            await user.create(*(f"burst-{number}-{job:04}" for job in range(given.jobs)))
            found.rates.append(given.jobs / (time.perf_counter() - began))
            await made.clear()
        found.on_manager += await resizes("on-manager", given.resizes, user, user.resize_on_manager)
        if on_worker:
            found.on_worker += await resizes("on-worker", given.resizes, user, user.resize)
        await made.clear()
    return found


async def resizes(name: str, count: int, user: User, resize: Callable[[str, int], Awaitable[float]]) -> list[float]:
    """Of so many jobs, which are all there before; everything comes to rest between them."""
    names, found = [f"{name}-{job:04}" for job in range(count)], list[float]()
    await user.create(*names)
    for each in names:
        await asyncio.sleep(_QUIET_S)
        found.append(await resize(each, _SIZE))
    return found


async def measure_multikueue(settings: Manifest, given: argparse.Namespace) -> Measured:
    """With these settings of the manager's Kueue."""
    kueues: dict[str, Manifest] = {MANAGER: settings} | {name: {} for name in WORKERS}
    return await measure(multikueue, kueues, given, on_worker=False)


async def measure_all(given: argparse.Namespace) -> list[Figure]:
    ours = await measure(alone, {}, given)
    beside = await measure(admitted_by_kueue, {MANAGER: {}}, given)
    peers = {"MultiKueue": await measure_multikueue({}, given)}
    try:
        peers[f"MultiKueue, {_QUERIES:,} queries/s"] = await measure_multikueue(_MORE_QUERIES, given)
    except RuntimeError as error:
        if _UNKNOWN not in str(error):
            raise
        print(f"this Kueue has no setting {_UNKNOWN}", file=sys.stderr)
    found = [figure for peer, theirs in peers.items() for figure in beside_peer(ours, theirs, peer, given.jobs)]
    return [*found, *in_kueue_mode(beside, ours, given.jobs)]


def beside_peer(ours: Measured, theirs: Measured, peer: str, jobs: int) -> list[Figure]:
    on_manager, their_time = statistics.median(ours.on_manager), statistics.median(theirs.on_manager)
    of = partial(Figure.of, beside=peer)
    return [
        of(f"dispatch of {jobs} jobs made at once", ours.rate, "/s", beside_value=theirs.rate),
        of(f"resize from 1 pod to {_SIZE} on the manager, p50", on_manager, "s", beside_value=their_time),
    ]


def in_kueue_mode(beside: Measured, ours: Measured, jobs: int) -> list[Figure]:
    of = partial(Figure.of, beside="slicebus alone")
    p50, own_p50 = statistics.median(beside.on_worker), statistics.median(ours.on_worker)
    rate, most_s = Target(15, is_least=True), Target(0.2)
    name = "with a Kueue that admits"
    return [
        of(f"dispatch of {jobs} jobs {name}", beside.rate, "/s", beside_value=ours.rate, target=rate),
        of(f"resize from 1 pod to {_SIZE} on the worker {name}, p50", p50, "s", beside_value=own_p50, target=most_s),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=50, help="in a burst")
    parser.add_argument("--resizes", type=int, default=10, help="of each sort")
    return figures.run(parser, measure_all)


if __name__ == "__main__":
    sys.exit(main())
