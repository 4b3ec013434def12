"""Watches what this cluster adds to the requests of pods. It needs no rights: what it may not read is not told."""

import asyncio
from collections.abc import Callable, Collection

import structlog
from msgspec import UNSET, UnsetType

from slicebus.agent.decide.cluster.capacity import Quantities
from slicebus.agent.decide.cluster.pod_additions import container_defaults, pod_overheads
from slicebus.kube.cache import Cache, Change
from slicebus.kube.client import KubeClient
from slicebus.kube.informers import Informers
from slicebus.kube.resources import LIMITRANGES, RUNTIMECLASSES, Resource
from slicebus.proto.messages import Terms

_log = structlog.get_logger()
Additions = tuple[Quantities | UnsetType, Quantities | UnsetType]


class PodAdditionsWatch:
    """Follows LimitRanges and RuntimeClasses. Calls `changed` when there is news."""

    def __init__(self, client: KubeClient, *, namespaces: Collection[str], changed: Callable[[], None]) -> None:
        """`namespaces` are the only ones that the agent works in; empty for all."""
        self._caches = {resource: Cache() for resource in (LIMITRANGES, RUNTIMECLASSES)}
        self._unread: dict[str, str] = {}
        self._informers = Informers(
            client, optional=self._caches, unserved=self._unread, definitions={}, namespaces=namespaces
        )
        self._informers.on_served(self._look)
        self._changed = changed
        self._asked: frozenset[str] = frozenset()
        self._told: Additions = UNSET, UNSET
        for cache in self._caches.values():
            cache.subscribe(self._look)

    def accept(self, terms: Terms) -> None:
        """Tell of the namespaces of these terms from now on."""
        self._asked = frozenset(terms.namespaces if isinstance(terms.namespaces, list) else ())

    def start(self, group: asyncio.TaskGroup) -> None:
        """Keep the caches in sync as long as the group lives."""
        for resource, cache in self._caches.items():
            group.create_task(self._informers.run(resource, cache), name=f"watch:{resource.plural}")

    def known(self) -> Additions:
        """What containers request by default, by namespace, and what pods take beside their containers, by
        RuntimeClass; UNSET before it is known, or where it cannot be read."""
        ranges, classes = self._caches[LIMITRANGES], self._caches[RUNTIMECLASSES]
        overheads = pod_overheads(classes.all()) if self._is_read(RUNTIMECLASSES) else UNSET
        try:
            return container_defaults(ranges.all(), self._asked) if self._is_read(LIMITRANGES) else UNSET, overheads
        except ValueError as error:
            _log.warning("limit_ranges.unreadable", error=str(error))
            return UNSET, overheads

    def _is_read(self, resource: Resource) -> bool:
        """Whether a cache has what there is. One whose resource may not be read is empty, and counts as synced."""
        return self._caches[resource].synced.is_set() and resource.kind not in self._unread

    def _look(self, _: Change | Resource) -> None:
        known = self.known()
        if known != self._told:
            self._told = known
            self._changed()
