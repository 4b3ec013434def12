"""Ray's definitions are missing at first, or are removed and come back, on the manager's cluster or on a worker.

With a definition goes every object of its kind. Nobody has asked for that, and nothing else may go because of it.
"""

import asyncio
from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING

from simulation.schedule import WORKERS, DefinitionComes, DefinitionGoes, Moment, Seed
from simulation.violations import Violation
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.crds import custom_resource_definitions
from slicebus.kube.resources import CRDS, JOB_RESOURCES, Resource
from slicebus.proto.errors import AlreadyExistsError
from slicebus.sandbox.controllers import crds as ray_crds

if TYPE_CHECKING:
    from simulation.fleet import Fleet

_REMOVED_S, _LOOKED_AT_S = 300, 60
_KINDS = ("RayCluster", "RayJob")


def definitions_of(seed: Seed, run_s: float, *, compares: bool) -> Iterator[Moment]:
    """On one run of eight. What went with a definition only a comparison shows: without `compares` one is missing at
    first at most."""
    random = Random(f"{seed}/definitions")
    if random.random() < 0.875:
        return
    api, kind = random.choice(("manager", *WORKERS)), random.choice(_KINDS)
    at_s, goes, back_s = random.uniform(2, run_s), random.random() < 0.7, random.choice((2.0, 10.0, 40.0))
    if goes and compares:
        yield DefinitionGoes(at_s=at_s, api=api, kind=kind, back_s=back_s)
    else:
        yield DefinitionComes(at_s=at_s, api=api, kind=kind)


async def remove_at_first(fleet: "Fleet") -> None:
    """Take away what comes later, before any role has started."""
    for item in fleet.schedule.items:
        if isinstance(item, DefinitionComes):
            await _remove(fleet.client(item.api), item.kind)


async def remove_definition(fleet: "Fleet", item: DefinitionGoes) -> None:
    """Play it."""
    client = fleet.client(item.api)
    await _remove(client, item.kind)
    await asyncio.sleep(item.back_s)
    await bring_definition(client, item.kind)


async def bring_definition(client: KubeClient, kind: str) -> None:
    """Bring the definition of a kind, as soon as the one before has gone: it waits for its objects.

    What a user deleted in the foreground, and the manager had not let go before it left the kind out, never goes by
    itself. After a minute somebody looks, and removes its finalizers (docs/operations.md).
    """
    name = JOB_RESOURCES[kind].definition
    definition = next(one for one in custom_resource_definitions(ray_crds.__name__) if one["metadata"]["name"] == name)
    for seconds in range(_REMOVED_S):
        try:
            await client.create(CRDS, definition)
        except AlreadyExistsError:
            await asyncio.sleep(1.0)
        else:
            return
        if seconds == _LOOKED_AT_S:
            await _let_go(client, JOB_RESOURCES[kind])
    raise Violation(f"the definition {name} is not removed within {_REMOVED_S} s")


async def _let_go(client: KubeClient, resource: Resource) -> None:
    for found in (await client.list(resource)).items:
        metadata = found["metadata"]
        if metadata.get("finalizers"):
            free = MergePatch({"metadata": {"finalizers": None}})
            await client.patch(resource, metadata["name"], metadata["namespace"], free)


async def _remove(client: KubeClient, kind: str) -> None:
    await client.delete(CRDS, JOB_RESOURCES[kind].definition)
