"""Carries out commands: the only place where the manager writes to its cluster and to the bus."""

from collections.abc import Callable, Sequence
from contextlib import suppress

from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.events import EventRecorder
from slicebus.kube.resources import Resource
from slicebus.manager.commands import Command, Create, Emit, Patch, Publish, Redeliver, Remove
from slicebus.manager.publisher import Publisher
from slicebus.manager.store import Store
from slicebus.proto.envelope import Envelope
from slicebus.proto.errors import ConflictError, NotFoundError
from slicebus.proto.messages import Delete, JobRef, Manifest, WorkloadSpec

COMPONENT = "slicebus-manager"


class Executor:
    """Carries out the commands of one decision in order.

    Every write goes through to the cache, so that the next decision sees it before the watch does. After a conflict the
    object is read again before the error is raised, so that deciding again is worth it.
    """

    def __init__(
        self,
        *,
        client: KubeClient,
        store: Store,
        publisher: Publisher,
        look_again: Callable[[JobRef, float], None],
    ) -> None:
        self._client = client
        self._store = store
        self._publisher = publisher
        self._events = EventRecorder(client, component=COMPONENT)
        self._look_again = look_again

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
                case Emit(regarding=regarding, reason=reason, note=note, warning=warning):
                    await self._events.record(regarding, reason=reason, note=note, warning=warning)
                case Publish():
                    await self._publish(command, caused_by)
                case Redeliver(job=job, delay_s=delay_s):
                    self._store.published.pop(job, None)
                    self._look_again(job, delay_s)

    async def _create(self, resource: Resource, manifest: Manifest) -> None:
        metadata = manifest["metadata"]
        try:
            created = await self._client.create(resource, manifest, field_manager=COMPONENT)
        except ConflictError:
            await self._refresh(resource, metadata["name"], metadata.get("namespace"))
            raise
        self._store.cache_of(resource).put(created)

    async def _patch(self, patch: Patch) -> None:
        metadata = patch.target["metadata"]
        name, namespace = metadata["name"], metadata.get("namespace")
        fenced = {"resourceVersion": metadata["resourceVersion"], "uid": metadata["uid"]}
        body = patch.body | {"metadata": patch.body.get("metadata", {}) | fenced}
        try:
            patched = await self._client.patch(
                patch.resource, name, namespace, MergePatch(body), subresource=patch.subresource
            )
        except ConflictError:
            await self._refresh(patch.resource, name, namespace)
            raise
        except NotFoundError as error:
            self._store.cache_of(patch.resource).remove(patch.target)
            raise ConflictError(f"{patch.resource.kind} {namespace}/{name} is gone") from error
        self._store.cache_of(patch.resource).put(patched)

    async def _remove(self, resource: Resource, target: Manifest) -> None:
        metadata = target["metadata"]
        with suppress(NotFoundError):
            await self._client.delete(resource, metadata["name"], metadata.get("namespace"), uid=metadata["uid"])

    async def _publish(self, command: Publish, caused_by: Envelope | None) -> None:
        message = command.message
        await self._publisher.publish(command.cluster, message, caused_by=caused_by, correlation=command.correlation)
        if isinstance(message, WorkloadSpec | Delete):
            self._store.published[message.job] = message.spec_version

    async def _refresh(self, resource: Resource, name: str, namespace: str | None) -> None:
        with suppress(NotFoundError):
            self._store.cache_of(resource).put(await self._client.get(resource, name, namespace))
