"""Scheduler backends on a test's clusters: their definitions and queues, and what a watch tells of what is made."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.crds import custom_resource_definitions
from slicebus.kube.resources import CRDS, PODS, Resource
from slicebus.proto.errors import NotFoundError
from slicebus.sandbox import schedulers as scheduler_crds
from slicebus.slices.api import kueue
from slicebus.slices.schedulers import Profile, init
from slicebus.slices.schedulers.grove import POD_GANGS
from slicebus.slices.schedulers.kai import POD_GROUPS as KAI_POD_GROUPS
from slicebus.slices.schedulers.kai import QUEUES as KAI_QUEUES
from slicebus.slices.schedulers.volcano import POD_GROUPS as VOLCANO_POD_GROUPS
from slicebus.slices.schedulers.volcano import QUEUES as VOLCANO_QUEUES
from support.definitions import until_usable
from support.scenario import NAMESPACE
from support.waiting import eventually

Manifest = dict[str, Any]
QUEUE = "research"


class Backend(msgspec.Struct, frozen=True):
    """One backend, with the queue of its jobs."""

    name: str
    makes: Resource
    queues: Resource | None = None

    @property
    def needs(self) -> tuple[Resource, ...]:
        """Every definition."""
        return (self.makes, *filter(None, [self.queues]))


KAI = Backend("kai", KAI_POD_GROUPS, KAI_QUEUES)
VOLCANO = Backend("volcano", VOLCANO_POD_GROUPS, VOLCANO_QUEUES)
GROVE = Backend("grove", POD_GANGS)
BACKENDS = (KAI, VOLCANO, GROVE)


def profiles(*backends: Backend) -> str:
    """The setting of an agent. The scheduler is the cluster's own: no other one is there."""
    enabled = [
        {"name": each.name, "schedulerName": "default-scheduler"} | ({"queue": QUEUE} if each.queues else {})
        for each in backends
    ]
    return json.dumps([{"name": "default"}, *enabled])


def definitions(*backends: Backend) -> list[Manifest]:
    """The definitions of slicebus' own writing."""
    needed = {resource.definition for backend in backends for resource in backend.needs}
    return [each for each in custom_resource_definitions(scheduler_crds.__name__) if each["metadata"]["name"] in needed]


async def install(client: KubeClient, *backends: Backend, instead: Iterable[Manifest] = ()) -> None:
    """Bring the definitions, or others `instead`, and wait until they can be used."""
    for definition in instead or definitions(*backends):
        await client.create(CRDS, definition)
    await until_usable(client, *(resource for backend in backends for resource in backend.needs))


async def remove(client: KubeClient, *backends: Backend) -> None:
    """Take the definitions away, and with them every object."""
    for resource in [resource for backend in backends for resource in backend.needs]:
        with suppress(NotFoundError):
            await client.delete(CRDS, resource.definition)

        async def gone(resource: Resource = resource) -> bool:
            return not await client.serves(resource)

        await eventually(gone, f"{resource.plural} are not served")


async def open_queue(client: KubeClient, backend: Backend, *, state: str = "Open") -> None:
    """The queue, made where it is missing, with such a state where the backend has one."""
    if backend.queues is None:
        return
    metadata = {"name": QUEUE}
    if not (await client.list(backend.queues)).items:
        made = {"apiVersion": backend.queues.api_version, "kind": "Queue", "metadata": metadata, "spec": {}}
        await client.create(backend.queues, made)
    if backend == VOLCANO:
        await client.patch(VOLCANO_QUEUES, QUEUE, None, MergePatch({"status": {"state": state}}), subresource="status")


async def made_for(client: KubeClient, backend: Backend, job: str) -> list[Manifest]:
    """What is there for a job."""
    found = (await client.list(backend.makes, namespace=NAMESPACE)).items
    return [each for each in found if each["metadata"]["name"].endswith(f"-{job}")]


class Version(msgspec.Struct, frozen=True):
    """One event of a watch."""

    number: int
    """The resourceVersion: all objects of a cluster share one count."""
    type: str
    object: Manifest

    @property
    def name(self) -> str:
        """Of the object."""
        name: str = self.object["metadata"]["name"]
        return name


class Recording:
    """Every version of objects since a moment, in the order of their writes."""

    def __init__(self) -> None:
        self._versions: dict[Resource, list[Version]] = {}

    def of(self, resource: Resource) -> list[Version]:
        """Those of one resource."""
        return sorted(self._versions.get(resource, ()), key=lambda version: version.number)

    async def removed(self, resource: Resource) -> int:
        """When the only object of a resource went; waits for the watch to tell it."""

        async def look() -> list[int]:
            return [version.number for version in self.of(resource) if version.type == "DELETED"]

        [number] = await eventually(look, f"the watch tells that one of {resource.plural} is removed")
        return number

    async def all_let_go(self, count: int) -> dict[str, int]:
        """The same as `let_go`, once the watch has told it of so many pods."""

        async def look() -> dict[str, int]:
            found = self.let_go()
            return found if len(found) >= count else {}

        return await eventually(look, f"the watch tells that {count} pods are let go")

    def let_go(self) -> dict[str, int]:
        """When each pod first had no gate of ours, by name."""
        found: dict[str, int] = {}
        for version in self.of(PODS):
            gates = [gate["name"] for gate in version.object["spec"].get("schedulingGates", ())]
            if kueue.ELASTIC_GATE not in gates and version.type != "DELETED":
                found.setdefault(version.name, version.number)
        return found

    async def follow(self, client: KubeClient, resource: Resource) -> None:
        """Record until cancelled."""
        page = await client.list(resource, namespace=NAMESPACE)
        kept, version = self._versions.setdefault(resource, []), page.resource_version
        while True:
            async for event in client.watch(resource, namespace=NAMESPACE, resource_version=version):
                version = event.object["metadata"]["resourceVersion"]
                if event.type != "BOOKMARK":
                    kept.append(Version(int(version), event.type, event.object))


@asynccontextmanager
async def recorded(client: KubeClient, *resources: Resource) -> AsyncIterator[Recording]:
    """Record every version of the pods and of these until the context is left."""
    recording = Recording()
    tasks = [
        asyncio.create_task(recording.follow(client, resource), name=f"recording:{resource.plural}")
        for resource in (PODS, *resources)
    ]
    try:
        yield recording
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def chosen(job: Manifest, backend: Backend) -> Manifest:
    """A job that chooses a backend."""
    metadata = job["metadata"]
    return job | {"metadata": metadata | {"labels": metadata["labels"] | {"slicebus.dev/scheduler": backend.name}}}


def prepared(backend: Backend, job: Manifest, pod_set: str) -> Manifest:
    """The labels and annotations that the backend gives the pods of a job."""
    given = init(Profile(backend.name, queue=QUEUE)).prepare(job, pod_set)
    return {"labels": given.labels, "annotations": given.annotations}
