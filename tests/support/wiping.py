"""Leaves clusters that many tests share as they were."""

import asyncio
from contextlib import suppress
from typing import Any

from slicebus.cli.demo import objects
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.resources import (
    CLUSTERQUEUES,
    COHORTS,
    CONFIGMAPS,
    EVENTS,
    JOBS,
    LEASES,
    LOCALQUEUES,
    PODS,
    RAYCLUSTERS,
    RAYJOBS,
    RAYSERVICES,
    WORKERCLUSTERS,
    WORKLOADPRIORITYCLASSES,
    WORKLOADS,
    Resource,
)
from slicebus.proto.errors import NotFoundError
from support.waiting import eventually


async def wipe(*clients: KubeClient) -> None:
    """Take away what a test has left of the demo's objects: the next one uses the same names."""
    await asyncio.gather(*map(_wipe, clients))


async def _wipe(client: KubeClient) -> None:
    """What makes others comes before them."""
    for resource in (RAYJOBS, RAYSERVICES, RAYCLUSTERS, JOBS, WORKLOADS, PODS, EVENTS, LOCALQUEUES):
        await wipe_resource(client, resource, None)
    for resource in (LEASES, CONFIGMAPS):
        await wipe_resource(client, resource, objects.SYSTEM_NAMESPACE)
    for resource in (CLUSTERQUEUES, COHORTS, WORKLOADPRIORITYCLASSES, WORKERCLUSTERS):
        await wipe_resource(client, resource, None)


async def wipe_resource(client: KubeClient, resource: Resource, namespace: str | None) -> None:
    """Take away every object of a resource, in a namespace or wherever it is, if there is such a resource. Without a
    namespace that of slicebus is spared: a chart may have pods there, which are made again."""
    if not await client.serves(resource):
        return

    async def empty() -> bool:
        found = [item["metadata"] for item in (await client.list(resource, namespace=namespace)).items]
        left = [one for one in found if namespace or one.get("namespace") != objects.SYSTEM_NAMESPACE]
        await asyncio.gather(*map(remove, left))
        return not left

    async def remove(metadata: dict[str, Any]) -> None:
        namespace = metadata.get("namespace")
        with suppress(NotFoundError):
            if metadata.get("finalizers"):
                free = MergePatch({"metadata": {"finalizers": None}})
                await client.patch(resource, metadata["name"], namespace, free)
            await client.delete(resource, metadata["name"], namespace)

    await eventually(empty, f"no {resource.plural} left")
