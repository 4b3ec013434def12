"""What goes in numbers: jobs that users delete together, and jobs that have a time to live. An admin looks after what
is held, and lets it go."""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from simulation.jobs import job_of
from simulation.queues import QUEUES, at_first
from simulation.schedule import (
    MANY_DELETES,
    WORKERS,
    ApiRestart,
    CleanUp,
    Cut,
    DeleteMany,
    Moment,
    NamespaceGoes,
    Seed,
    Submit,
)
from slicebus.agent.state import annotations
from slicebus.cli.demo import objects
from slicebus.kube.client import KubeClient, MergePatch, Propagation
from slicebus.kube.resources import JOB_RESOURCES, LOCALQUEUES, NAMESPACES, WORKERCLUSTERS, Resource
from slicebus.manager.decide.cluster.worker_cluster_status import release_of
from slicebus.proto.errors import AlreadyExistsError, ConflictError, NotFoundError
from slicebus.proto.messages import JobPhase
from slicebus.slices.api import api_names, kueue
from slicebus.slices.jobs import KINDS

if TYPE_CHECKING:
    from simulation.fleet import Fleet

Manifest = dict[str, Any]

_TTLS_S = (None, None, 0, 0, 5, 30)
_PROPAGATIONS: tuple[Propagation, ...] = ("Background", "Background", "Foreground", "Orphan")
_OUTAGE_S = 15.0
_CLEANED_S = 60.0
_TERMINATING_S = 200.0
"""Nothing that is held waits so long for an admin."""
_SWEEP_S = 0.1
_LOOK_S = 20.0
"""How often an admin looks whether anything is held."""
_AGAIN_S, _TRIES = 0.3, 10


def with_lifetimes(seed: Seed, moments: Iterable[Moment]) -> Iterator[Moment]:
    """The same, but that some Jobs which end are deleted some time later by the TTL controller."""
    random = Random(f"{seed}/times to live")
    for item in moments:
        is_mortal = isinstance(item, Submit) and item.kind == "Job" and item.ends
        yield msgspec.structs.replace(item, ttl_s=random.choice(_TTLS_S)) if is_mortal else item


def removals_of(seed: Seed, run_s: float) -> Iterator[Moment]:
    """Those of a seed's run. The random choices of each kind are its own."""
    yield from _deletes(Random(f"{seed}/many deletes"), run_s)
    yield from _namespaces(Random(f"{seed}/namespaces"), run_s)
    random = Random(f"{seed}/clean-ups")
    if random.random() < 0.4:
        yield CleanUp(at_s=random.uniform(0, run_s / 2), cluster=random.choice(WORKERS), for_s=_CLEANED_S)


def workers_removals_of(seed: Seed, run_s: float) -> Iterator[Moment]:
    """What only a comparison corrects: on one run of four the namespace goes on a worker, with copies and all.

    It comes back: without it the worker has no place for jobs.
    """
    random = Random(f"{seed}/namespaces of workers")
    if random.random() < 0.25:
        at_s, back_s = random.uniform(2, run_s), random.choice((0.0, 10.0, 30.0))
        yield NamespaceGoes(at_s=at_s, api=random.choice(WORKERS), back_s=back_s)


def breaker_of(seed: Seed) -> int:
    """How many inferred deletes of a cluster pass in a minute: on every second run fewer than there are jobs."""
    return Random(f"{seed}/breaker").choice((2, MANY_DELETES))


def _deletes(random: Random, run_s: float) -> Iterator[Moment]:
    """On two runs of five, every second time while an agent hears nothing, or its API server is away."""
    if random.random() < 0.6:
        return
    at_s = round(random.uniform(2, run_s), 2)
    api = random.choice(("manager", "manager", *WORKERS))
    yield DeleteMany(
        at_s=at_s,
        api=api,
        queue=random.choice(("", "", *QUEUES)),
        # Pods that outlive a worker's job keep its quota for as long as they run.
        propagation=random.choice(_PROPAGATIONS if api == "manager" else _PROPAGATIONS[:-1]),
        again=random.random() < 0.3,
    )
    worker, outage = random.choice(WORKERS), random.random()
    if outage < 0.25:
        yield Cut(at_s=at_s - 1, cluster=worker, for_s=_OUTAGE_S)
    elif outage < 0.5:
        yield ApiRestart(at_s=at_s - 1, api=worker, down_s=_OUTAGE_S)


def _namespaces(random: Random, run_s: float) -> Iterator[Moment]:
    """On one run of eight, on the manager."""
    if random.random() < 0.875:
        return
    at_s, back_s = random.uniform(2, run_s), random.choice((0.0, 10.0, 30.0, None))
    yield NamespaceGoes(at_s=at_s, api="manager", back_s=back_s)


async def remove_namespace(fleet: "Fleet", item: NamespaceGoes) -> None:
    """Play it. Whoever makes it again waits until the old one has gone."""
    client = fleet.client(item.api)
    await client.delete(NAMESPACES, objects.NAMESPACE)
    if item.back_s is None:
        return
    await asyncio.sleep(item.back_s)
    ends_at = asyncio.get_running_loop().time() + _TERMINATING_S
    while not (is_back := await _made(client, NAMESPACES, objects.namespace(objects.NAMESPACE))):
        if asyncio.get_running_loop().time() > ends_at:
            break
        await asyncio.sleep(1.0)
    for resource, manifest in at_first() if is_back and item.api == "manager" else ():
        if resource == LOCALQUEUES:
            await client.create(resource, manifest)


async def _made(client: KubeClient, resource: Resource, manifest: Manifest) -> bool:
    try:
        await client.create(resource, manifest)
    except AlreadyExistsError:
        return False
    return True


async def delete_many(fleet: "Fleet", item: DeleteMany) -> None:
    """Play it."""
    client, is_manager = fleet.client(item.api), item.api == "manager"
    for kind, resource in JOB_RESOURCES.items():
        for job in (await client.list(resource, namespace=objects.NAMESPACE)).items:
            metadata = job["metadata"]
            if not is_manager and not annotations.is_ours(job):
                continue
            if is_manager and item.queue and (metadata.get("labels") or {}).get(kueue.QUEUE_NAME_LABEL) != item.queue:
                continue
            fleet.note(f"{item.api}: delete {kind} {metadata['name']}")
            fleet.rules.user_deletes(job)
            with suppress(NotFoundError, ConflictError):
                await client.delete(
                    resource,
                    metadata["name"],
                    metadata["namespace"],
                    propagation=item.propagation,
                    uid=metadata["uid"],
                )
            if item.again and is_manager:
                await create_again(client, kind, metadata["name"])


async def clean_up(fleet: "Fleet", item: CleanUp) -> None:
    """Play it. Whoever cleans up sees an end as soon as an agent does."""
    client, store = fleet.client(item.cluster), fleet.servers[item.cluster].api.store
    ends_at = asyncio.get_running_loop().time() + item.for_s
    while asyncio.get_running_loop().time() < ends_at:
        for found in [found for found in store.objects.values() if _has_ended(found)]:
            metadata = found["metadata"]
            fleet.note(f"{item.cluster}: {metadata['name']} has ended, and is cleaned up")
            fleet.rules.user_deletes(found)
            with suppress(NotFoundError, ConflictError):
                resource = JOB_RESOURCES[found["kind"]]
                await client.delete(resource, metadata["name"], metadata["namespace"], uid=metadata["uid"])
        await asyncio.sleep(_SWEEP_S)


def _has_ended(found: Manifest) -> bool:
    kind = KINDS.get(found["kind"]) if annotations.is_ours(found) else None
    is_going = "deletionTimestamp" in found["metadata"]
    return kind is not None and not is_going and kind.outcome(found).phase is not JobPhase.RUNNING


async def create_again(manager: KubeClient, kind: str, name: str) -> None:
    """Create a job under a name as soon as the one before it has gone."""
    job = job_of(Submit(at_s=0.0, kind=kind, name=name.removeprefix(f"{kind.lower()}-")))
    for _ in range(_TRIES):
        if await _made(manager, JOB_RESOURCES[kind], job):
            return
        await asyncio.sleep(_AGAIN_S)


async def release_held(manager: KubeClient) -> None:
    """Let everything go that is held, some time after it was: until cancelled."""
    while True:
        await asyncio.sleep(_LOOK_S)
        for cluster in (await manager.list(WORKERCLUSTERS)).items:
            release = release_of(cluster.get("status", {}))
            if release and (cluster["metadata"].get("annotations") or {}).get(api_names.RELEASE_ANNOTATION) != release:
                body = {"metadata": {"annotations": {api_names.RELEASE_ANNOTATION: release}}}
                await manager.patch(WORKERCLUSTERS, cluster["metadata"]["name"], None, MergePatch(body))
