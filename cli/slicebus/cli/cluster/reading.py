"""Reads the manager's objects as far as a user may see them, once or for as long as somebody watches.

Who has the rights of one namespace gets its jobs, Workloads and LocalQueues, and one line about what is missing.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager

import msgspec

from slicebus.kube.cache import Cache
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import (
    ADMISSIONCHECKS,
    CLUSTERQUEUES,
    COHORTS,
    NAMESPACES,
    WORKERCLUSTERS,
    WORKLOADS,
    Resource,
)
from slicebus.manager.decide.problems import Sight
from slicebus.manager.state.requirements import is_our_check
from slicebus.manager.state.settings import AdmissionModeName
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.errors import ExpiredError, ForbiddenError, SlicebusError
from slicebus.proto.messages import ClusterName
from slicebus.slices.quota.quota import Usage

_SETTLE_S = 0.1
"""What changes together is shown together."""
_QUOTA = (CLUSTERQUEUES, COHORTS, NAMESPACES)
"""What decides about quota, beside the Workloads of all namespaces."""


class ListedResource(msgspec.Struct, frozen=True):
    """A resource that was listed."""

    resource: Resource
    namespace: str | None
    """None for all of them."""
    version: str
    """The resourceVersion of the list."""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """The manager's objects, as far as they could be read."""

    store: ManagerStore
    parts: tuple[ListedResource, ...]
    hidden: tuple[Resource, ...]
    """What the user may not see at all."""
    confined_to: str | None = None
    """The namespace that was read because the user may not read all."""

    @property
    def sight(self) -> Sight:
        """What an explanation may rely on."""
        decides = not self.store.beside_kueue  # A Kueue says itself why a workload waits.
        return Sight(
            quota=decides and self._sees_all_workloads and not set(self.hidden) & set(_QUOTA),
            clusters=WORKERCLUSTERS not in self.hidden,
        )

    def granted_on(self, cluster: str) -> Usage | None:
        """What our jobs are granted on a cluster; None for who does not see all Workloads."""
        return self.store.quotas.ledger.granted.get(ClusterName(cluster), {}) if self._sees_all_workloads else None

    @property
    def _sees_all_workloads(self) -> bool:
        return any(part.resource == WORKLOADS and part.namespace is None for part in self.parts)

    @property
    def unseen(self) -> str:
        """What the user may not see, in one line; empty where that is nothing."""
        return unseen_text(self.hidden, self.confined_to)


def unseen_text(hidden: Sequence[Resource], confined_to: str | None = None) -> str:
    """What a user may not see, and what is not shown for that: one line, or nothing."""
    plurals = ", ".join(sorted(resource.plural for resource in hidden))
    clauses = [
        *([f"you may not see {plurals}"] if hidden else []),
        *([f"you see jobs of namespace {confined_to} only"] if confined_to else []),
    ]
    missing = [
        *(["quota, and places in a queue"] if confined_to or set(hidden) & set(_QUOTA) else []),
        *(["whether a cluster is connected"] if WORKERCLUSTERS in hidden else []),
    ]
    return "; ".join([*clauses, *([f"so this leaves out {' and '.join(missing)}"] if missing else [])])


async def read(
    client: KubeClient,
    *,
    namespace: str | None = None,
    fallback: str | None = None,
    only: Collection[Resource] | None = None,
) -> Reading:
    """Read the objects of a namespace, or of all for None, and those that have none; `only` some resources.

    `fallback` is the namespace to read where the user may not read all. Raises ForbiddenError where no job and no
    queue can be read.
    """
    store = ManagerStore()
    caches = {resource: cache for resource, cache in _caches(store) if only is None or resource in only}
    parts, refused = list[ListedResource](), dict[Resource, ForbiddenError]()

    async def one(resource: Resource, cache: Cache) -> None:
        try:
            parts.append(await _listed(client, resource, cache, namespace if resource.namespaced else None, fallback))
        except _NotServed:
            pass
        except ForbiddenError as error:
            refused[resource] = error

    await asyncio.gather(*(one(resource, cache) for resource, cache in caches.items()))
    namespaced = [resource for resource in caches if resource.namespaced]
    if refused and not any(part.resource in namespaced for part in parts):
        raise min(refused.items(), key=lambda item: item[0] not in namespaced)[1]
    configure(store)
    hidden = tuple(resource for resource in caches if resource in refused and resource != ADMISSIONCHECKS)
    fell_back = namespace is None and any(part.namespace is not None for part in parts)
    return Reading(store=store, parts=tuple(parts), hidden=hidden, confined_to=fallback if fell_back else None)


def configure(store: ManagerStore) -> None:
    """Let a store that has its objects show them by the mode of admission that they give away."""
    if any(map(is_our_check, store.admission_checks.all())):
        store.configure(msgspec.structs.replace(store.settings, admission=AdmissionModeName.KUEUE))


def _caches(store: ManagerStore) -> Iterator[tuple[Resource, Cache]]:
    """What a command reads in either mode of admission."""
    yield from store.caches()
    yield ADMISSIONCHECKS, store.admission_checks


class _NotServed(Exception):
    pass


async def _listed(
    client: KubeClient, resource: Resource, cache: Cache, namespace: str | None, fallback: str | None
) -> ListedResource:
    if not await client.serves(resource):
        raise _NotServed
    try:
        page = await client.list(resource, namespace=namespace)
    except ForbiddenError:
        if not resource.namespaced or namespace is not None or fallback is None:
            raise
        namespace = fallback
        page = await client.list(resource, namespace=namespace)
    for manifest in page.items:
        cache.put(manifest)
    return ListedResource(resource, namespace, page.resource_version)


@asynccontextmanager
async def followed(client: KubeClient, reading: Reading) -> AsyncIterator[asyncio.Event]:
    """Keep the objects of a reading up to date until the context is left. The event is set at each change.

    Raises UnavailableError where the server cannot be reached any more: who watches never sees an old state as new.
    """
    changed = asyncio.Event()
    caches = dict(reading.store.decides_by())
    failures: list[BaseException] = []
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_follow(client, part, caches[part.resource], changed)) for part in reading.parts]
            yield changed
            for task in tasks:
                task.cancel()
    except* SlicebusError as errors:
        failures += errors.exceptions  # What is raised here would be a group again.
    if failures:
        raise failures[0]


async def settled(changed: asyncio.Event) -> None:
    """Wait for a change, and for those that come with it."""
    await changed.wait()
    await asyncio.sleep(_SETTLE_S)
    changed.clear()


async def _follow(client: KubeClient, part: ListedResource, cache: Cache, changed: asyncio.Event) -> None:
    version = part.version
    while True:
        try:
            async for event in client.watch(part.resource, resource_version=version, namespace=part.namespace):
                version = event.object["metadata"]["resourceVersion"]
                if event.type == "BOOKMARK":
                    continue
                if event.type == "DELETED":
                    cache.remove(event.object)
                else:
                    cache.put(event.object)
                changed.set()
        except ExpiredError:
            page = await client.list(part.resource, namespace=part.namespace)
            await cache.replace(page.items, page.resource_version, namespace=part.namespace)
            version = page.resource_version
            changed.set()
