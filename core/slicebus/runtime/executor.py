"""Carries out commands: only here does a role write to its cluster and to the bus."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import structlog

from slicebus.ambient.backoff import Backoff
from slicebus.ambient.cancellation import TaskGroup
from slicebus.ambient.retries import repeated
from slicebus.decisions.commands import (
    Command,
    Create,
    Emit,
    Forget,
    Patch,
    PatchEach,
    Publish,
    Remember,
    Remove,
    Requeue,
)
from slicebus.decisions.table import Table
from slicebus.kube.cache import Cache
from slicebus.kube.client import JsonPatch, KubeClient, MergePatch, Propagation
from slicebus.kube.resources import Resource
from slicebus.proto.envelope import Envelope
from slicebus.proto.errors import (
    AlreadyExistsError,
    ConflictError,
    InvalidError,
    NotFoundError,
    NotServedError,
    PermanentError,
    SlicebusError,
    TransientError,
    UnavailableError,
    WebhookError,
)
from slicebus.proto.messages import JobRef, Manifest

_log = structlog.get_logger()
_BACKOFF = Backoff(first_s=0.1, most_s=10.0)
_SHOWN = 500
"""The most characters of a refusal in the log: it may quote the write."""
NOT_SHOWN = "NotShown"
"""The Event on an object whose patch that only shows something was refused. Nothing else would tell of it."""
_CONCURRENT_PATCHES = 16

Publisher = Callable[[Publish, Envelope | None], Awaitable[None]]


async def _accept_absence(_: Resource) -> None:
    """Take an object that is not found as gone."""


class Executor:
    """Carries out the commands of one decision in order.

    The answer of every write goes into the cache, so that the next decision sees it before the watch does. After a
    conflict, and after a patch without an answer, the object is read again before the error is raised, so that the next
    decision is made from its new state.
    """

    def __init__(
        self,
        *,
        client: KubeClient,
        caches: Callable[[Resource], Cache | None],
        tables: Mapping[str, Table[Any, Any]],
        publish: Publisher,
        requeue: Callable[[JobRef, float], None],
        component: str,
        record: Callable[..., None],
        check: Callable[[], None] = lambda: None,
        is_fenced: Callable[[], bool] = lambda: False,
        is_watched: Callable[[Manifest], bool] = lambda _: False,
        confirm: Callable[[Resource], Awaitable[None]] = _accept_absence,
        unshown: Callable[[Manifest], None] = lambda _: None,
    ) -> None:
        """`record` is `EventRecorder.record`. `check` raises where this process may no longer lead: it may have stood
        still between decision and write. `is_fenced` says whether no pod may start here now. `confirm` raises where a
        missing object may have gone with its definition (`Informers.confirm`). `unshown` is called with an object whose
        patch that only shows something was refused.

        An object that `is_watched` stays in its cache until the watch reports its deletion: only the watch has its last
        state.
        """
        self._client = client
        self._caches = caches
        self._tables = tables
        self._publish = publish
        self._requeue = requeue
        self._component = component
        self._check = check
        self._is_fenced = is_fenced
        self._is_watched = is_watched
        self._confirm = confirm
        self._record = record
        self._unshown = unshown

    async def run(self, commands: Sequence[Command], *, caused_by: Envelope | None = None) -> bool:
        """Carry out all commands. False where the API server has refused one that only shows something. Raises the
        first other error, or LeaseLost. The commands before it keep their effect."""
        is_shown = True
        for command in commands:
            self._check()
            match command:
                case Remember():
                    self._remember(command)
                case Forget():
                    self._forget(command)
                case Create():
                    await self._create(command)
                case Patch():
                    is_shown = await self._patch(command) and is_shown
                case PatchEach(patches=patches, lets_start=lets_start):
                    await self._patch_each(patches, unless=self._is_fenced if lets_start else lambda: False)
                case Remove(resource=resource, target=target, foreground=foreground):
                    await self._remove(resource, target, "Foreground" if foreground else "Background")
                case Emit(regarding=regarding, reason=reason, note=note, warning=warning):
                    self._record(regarding, reason=reason, note=note, warning=warning)
                case Publish():
                    await self._publish_or_forget(command, caused_by)
                case Requeue(job=job, delay_s=delay_s):
                    self._requeue(job, delay_s)
        return is_shown

    async def refresh(self, resource: Resource, target: Manifest) -> Manifest | None:
        """Read a cached object again. If it is gone it leaves the cache, unless the watch will report that.

        Raises UnavailableError where its resource is not served: then nobody knows whether it is gone.
        """
        metadata = target["metadata"]
        try:
            present = await self._client.get(resource, metadata["name"], metadata.get("namespace"))
        except NotServedError as error:
            await self._confirm(resource)
            raise UnavailableError(f"{resource.plural} are not served now: {error}") from error
        except NotFoundError:
            await self._drop(resource, target)
            return None
        await self._take(resource, target, present)
        return present

    def _remember(self, command: Remember) -> None:
        self._tables[command.table][command.key] = command.value

    def _forget(self, command: Forget) -> None:
        self._tables[command.table].pop(command.key, None)

    def _note_refusal(self, note: Remember | None, error: SlicebusError) -> None:
        """Remember why the API server refused a write; raise the error where the command has no note for it."""
        if note is None:
            raise error
        value = msgspec.structs.replace(note.value, message=str(error))
        self._remember(msgspec.structs.replace(note, value=value))

    async def _publish_or_forget(self, command: Publish, caused_by: Envelope | None) -> None:
        try:
            await self._publish(command, caused_by)
        except BaseException:
            if command.unless_confirmed is not None:
                self._forget(command.unless_confirmed)
            raise

    async def _has_changed(self, command: Patch) -> bool:
        before, present = command.target, await self.refresh(command.resource, command.target)
        return present is None or present["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]

    async def _create(self, command: Create) -> None:
        resource, metadata = command.resource, command.manifest["metadata"]
        try:
            created = await self._client.create(
                resource, command.manifest, field_manager=self._component, impersonate=command.impersonate
            )
        except (PermanentError, WebhookError) as error:
            self._note_refusal(command.if_refused, error)
            return
        except (ConflictError, TransientError) as error:
            # Without an answer it may exist all the same: the next decision must not create another.
            with suppress(NotFoundError, TransientError):
                present = await self._client.get(resource, metadata["name"], metadata.get("namespace"))
                if isinstance(error, AlreadyExistsError) and command.if_refused and not self._is_watched(present):
                    # In the cache it would stay for ever: nobody watches it.
                    self._note_refusal(command.if_refused, error)
                    return
                self._keep(resource, present)
            raise
        self._keep(resource, created, is_own=True)

    async def _patch(self, command: Patch) -> bool:
        """False where the API server has refused what only shows something."""
        resource, metadata = command.resource, command.target["metadata"]
        name, namespace = metadata["name"], metadata.get("namespace")
        try:
            patched = await self._client.patch(
                resource,
                name,
                namespace,
                _fenced(command),
                subresource=command.subresource,
                impersonate=command.impersonate,
            )
        except ConflictError:
            await self.refresh(resource, command.target)
            raise
        except NotFoundError as error:
            # While a definition is upgraded, a subresource may be missing although its object is there.
            if await self.refresh(resource, command.target) is not None:
                raise _unserved(f"{resource.kind} {namespace}/{name} is there, but not its path") from error
            raise ConflictError(f"{resource.kind} {namespace}/{name} is gone") from error
        except (PermanentError, WebhookError) as error:
            # A test of a JSON patch may fail because the object has changed: the server checks it before the version.
            is_tested = isinstance(error, InvalidError) and isinstance(command.body, list)
            if is_tested and await self._has_changed(command):
                raise ConflictError(f"{resource.kind} {namespace}/{name} has changed") from error
            if command.only_shows:
                _log.warning("unshown", kind=resource.kind, namespace=namespace, name=name, error=str(error)[:_SHOWN])
                self._record(command.target, reason=NOT_SHOWN, note=str(error), warning=True)
                self._unshown(command.target)
                return False
            self._note_refusal(command.if_refused, error)
            return True
        except UnavailableError:
            # Before the object is read: other decisions may be made meanwhile.
            if command.unless_answered is not None:
                self._remember(command.unless_answered)
            await self._read_until_answered(resource, command.target)
            raise
        self._keep(resource, patched, is_own=True)
        return True

    async def _read_until_answered(self, resource: Resource, target: Manifest) -> None:
        """Read the object of an unanswered patch, as long as it takes.

        Nothing may be decided from the state before it: an agent would let pods start that are no longer granted.
        """
        if self._caches(resource) is None:
            return
        name, namespace = target["metadata"]["name"], target["metadata"].get("namespace")
        with suppress(NotFoundError):
            present = await repeated(
                lambda: self._client.get(resource, name, namespace), on=TransientError, wait=_BACKOFF
            )
            await self._take(resource, target, present)

    async def _patch_each(self, patches: Sequence[Patch], *, unless: Callable[[], bool]) -> None:
        """Try every patch, then raise the first error; a conflict only where there is no other error."""
        free = asyncio.Semaphore(_CONCURRENT_PATCHES)
        errors: list[SlicebusError] = []

        async def apply(patch: Patch) -> None:
            async with free:
                if unless():
                    return
                try:
                    self._check()
                    await self._patch(patch)
                except SlicebusError as error:
                    errors.append(error)

        async with TaskGroup() as group:
            for patch in patches:
                group.create_task(apply(patch), name=f"patch:{patch.resource.plural}")
        if errors:
            raise min(errors, key=lambda error: isinstance(error, ConflictError))

    async def _remove(self, resource: Resource, target: Manifest, propagation: Propagation) -> None:
        metadata, cache = target["metadata"], self._caches(resource)
        uid = metadata["uid"]
        if cache is not None:
            # Before the request: the watch may be faster than the answer.
            cache.expect_removal(uid)
        try:
            await self._client.delete(
                resource, metadata["name"], metadata.get("namespace"), uid=uid, propagation=propagation
            )
        except (PermanentError, ConflictError) as error:
            if cache is not None:
                cache.forget_removal(uid)
            if not isinstance(error, NotFoundError):
                raise

    def _keep(self, resource: Resource, manifest: Manifest, *, is_own: bool = False) -> None:
        cache = self._caches(resource)
        if cache is not None:
            cache.put(manifest, is_own=is_own)

    async def _take(self, resource: Resource, target: Manifest, present: Manifest) -> None:
        """Keep the object that was read under the name of a target. If it is another one, the target has gone."""
        if present["metadata"]["uid"] != target["metadata"]["uid"]:
            await self._drop(resource, target)
            if self._is_watched(target):
                return
        self._keep(resource, present)

    async def _drop(self, resource: Resource, manifest: Manifest) -> None:
        cache = self._caches(resource)
        if cache is not None and not self._is_watched(manifest):
            await self._confirm(resource)
            cache.remove(manifest)


def _unserved(text: str) -> UnavailableError:
    """The error for a path of an object that is not served: a definition may lack it for ever."""
    error = UnavailableError(text)
    error.is_answer = True
    return error


def _fenced(command: Patch) -> MergePatch | JsonPatch:
    """The patch with the resourceVersion that was decided on; the server refuses it when the object has a newer one."""
    version = command.target["metadata"]["resourceVersion"]
    if isinstance(command.body, list):
        fence = {"op": "replace", "path": "/metadata/resourceVersion", "value": version}
        return JsonPatch([fence, *command.body])
    metadata = command.body.get("metadata", {}) | {"resourceVersion": version}
    return MergePatch(command.body | {"metadata": metadata})
