"""Carries out commands: the only place where the manager writes to its cluster and to the bus."""

from collections.abc import Sequence

import structlog

from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.events import EventRecorder
from slicebus.kube.resources import Resource
from slicebus.manager.commands import Command, Create, Emit, Patch, Publish, Redeliver, Remove
from slicebus.manager.publisher import Publisher
from slicebus.manager.store import Store
from slicebus.proto.envelope import Envelope
from slicebus.proto.errors import AlreadyExistsError, ConflictError, NotFoundError
from slicebus.proto.messages import Delete, JobRef, Manifest, WorkloadSpec

_log = structlog.get_logger()
FIELD_MANAGER = "slicebus-manager"


class Executor:
    """Carries out the commands of one decision in order.

    Every write goes through to the cache, so that the next decision sees it before the watch does. A conflict reads the
    object again before it is raised, so that deciding again is worth it.
    """

    def __init__(self, *, client: KubeClient, store: Store, publisher: Publisher, events: EventRecorder) -> None:
        self._client = client
        self._store = store
        self._publisher = publisher
        self._events = events
        self.redeliver_after: "Redelivery" = _ignore_redelivery

    async def run(self, commands: Sequence[Command], *, caused_by: Envelope | None = None) -> None:
        """Carry out all of them. Raises the first error; what was done before stays done."""
        for command in commands:
            match command:
                case Create(resource=resource, manifest=manifest):
                    await self._create(resource, manifest)
                case Patch():
                    await self._patch(command)
                case Remove(resource=resource, target=target):
                    await self._remove(resource, target)
                case Emit():
                    await self._emit(command)
                case Publish():
                    await self._publish(command, caused_by)
                case Redeliver(job=job, delay_s=delay_s):
                    self._store.published.pop(job, None)
                    self.redeliver_after(job, delay_s)
