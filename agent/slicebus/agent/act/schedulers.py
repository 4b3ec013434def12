"""Watches what the scheduler backends need, and checks whether the agent has its rights for each."""

import asyncio
from collections.abc import Callable, Iterator

import structlog

from slicebus.agent.permissions import permissions_of_scheduler
from slicebus.agent.state.schedulers import name_of
from slicebus.agent.state.store import AgentStore
from slicebus.agent.state.views import JobKey
from slicebus.agent.state.watched import SCHEDULING_SELECTORS
from slicebus.ambient.backoff import Backoff
from slicebus.kube.cache import Cache
from slicebus.kube.client import KubeClient
from slicebus.kube.informers import Informers
from slicebus.proto.errors import SlicebusError
from slicebus.runtime.permissions import missing
from slicebus.slices.schedulers import every_version

_log = structlog.get_logger()
_ROUND_S = 300.0
_LACKING = Backoff(first_s=2.0, most_s=30.0)
"""A right that is missing is asked for again soon: an upgrade takes a role away for a moment."""


class SchedulerBackends:
    """Keeps the caches of the enabled backends. Passes every job to `requeue`, and calls `changed`, where another
    backend can be used."""

    def __init__(
        self,
        store: AgentStore,
        client: KubeClient,
        *,
        own_namespace: str,
        namespaces: tuple[str, ...],
        requeue: Callable[[JobKey], None],
        changed: Callable[[], None],
    ) -> None:
        """`namespaces` are the only ones that the agent works in; empty for all."""
        self._store = store
        self._client = client
        self._own_namespace = own_namespace
        self._namespaces = namespaces
        self._requeue = requeue
        self._changed = changed
        resources = {
            resource
            for profile in store.settings.profiles
            for backend in every_version(profile)
            for resource in (*backend.makes, *backend.reads)
        }
        known = ((resource, store.cache_of(resource)) for resource in sorted(resources, key=name_of))
        self._caches = {resource: cache for resource, cache in known if cache is not None}
        self._informers = Informers(
            client,
            optional=self._caches,
            unserved=store.unserved_objects,
            definitions={},
            namespaces=namespaces,
            named=name_of,
        )
        self._usable: list[str] | None = None

    def caches(self) -> Iterator[Cache]:
        """The caches that have to be synced before anything is decided."""
        return iter(self._caches.values())

    def start(self, group: asyncio.TaskGroup) -> None:
        """Keep the caches in sync as long as the group lives."""
        for resource, cache in self._caches.items():
            kept = self._informers.run(resource, cache, labels=SCHEDULING_SELECTORS[resource])
            group.create_task(kept, name=f"watch:{name_of(resource)}")

    async def look(self) -> None:
        """Check what the agent may do. Where that is not answered, it counts as it did before."""
        for profile in self._store.settings.profiles:
            try:
                lacks = await missing(
                    self._client,
                    permissions_of_scheduler(profile.name, self._namespaces),
                    namespace=self._own_namespace,
                )
            except SlicebusError as error:
                _log.warning("scheduler.unread", scheduler=profile.name, error=str(error))
                continue
            if lacks:
                self._store.forbidden_schedulers[profile.name] = f"its agent may not {', '.join(lacks)}"
            else:
                self._store.forbidden_schedulers.pop(profile.name, None)

    async def run(self) -> None:
        """Check again and again until cancelled, and call back when something has changed."""
        woken = asyncio.Event()

        def wake(*_: object) -> None:
            woken.set()

        self._store.unserved_objects.observe(wake)
        looks = 0
        while True:
            self._tell()
            woken.clear()
            looks = looks + 1 if self._store.forbidden_schedulers else 0
            try:
                async with asyncio.timeout(_LACKING.pause_s(looks) if looks else _ROUND_S):
                    await woken.wait()
            except TimeoutError:
                await self.look()

    def _tell(self) -> None:
        usable = self._store.schedulers.usable
        if usable == self._usable:
            return
        _log.info("schedulers.usable", schedulers=usable)
        self._usable = usable
        self._changed()
        for key in self._store.our_jobs():
            self._requeue(key)
