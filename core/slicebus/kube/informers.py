"""Keeps a role's caches in sync with its API server, for the resources that the server serves.

A definition may be missing when a role starts, come later, or be removed while the role runs. It may serve other
versions only. The role may lack the permission to read. Each of these stops what needs the resource, and is reported:

- An *optional* resource is left out until it comes: its cache counts as synced and is empty. The role decides what that
  means for objects of its kind, by `unserved` and `definitions`.
- A resource whose schema lacks what its declaration says is left out too, until it has another definition.
- A role waits for a *required* resource. When it goes while the role works, the role ends, and starts again with it.

Removing a definition removes every object of it, and each object then looks as if a user had deleted it. So before an
object leaves a cache, the informers ask the server whether the definition by which the object was listed still stands.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, MutableMapping, Sequence
from functools import partial
from operator import attrgetter

import structlog

from slicebus.ambient.backoff import Backoff
from slicebus.kube.cache import Cache, Manifest
from slicebus.kube.client import KubeClient
from slicebus.kube.reflector import Reflector, until_one_ends
from slicebus.kube.resources import GONE, Resource
from slicebus.proto.errors import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    NotServedError,
    SlicebusError,
    TransientError,
    UnavailableError,
)

_log = structlog.get_logger()
_BACKOFF = Backoff(first_s=0.5, most_s=45.0)
"""The pauses between checks for a missing definition: the answer is a short 404."""


class Absent(NotFoundError):
    """A resource is not served to this process.

    `is_gone`: the definition has gone, and its objects with it. `successor` is the UID of the definition that has
    replaced it: nobody has listed the objects of that one yet.
    """

    def __init__(self, reason: str, *, is_gone: bool = False, successor: str = GONE) -> None:
        super().__init__(reason)
        self.is_gone = is_gone
        self.successor = successor


class DefinitionLost(SlicebusError):
    """The definition of a required resource has gone."""


async def _anything_fits(resource: Resource) -> str:
    return ""


class Informers:
    """Feeds the caches of one role, each by a `run` for its resource."""

    def __init__(
        self,
        client: KubeClient,
        *,
        optional: Collection[Resource],
        unserved: MutableMapping[str, str],
        definitions: MutableMapping[str, str],
        namespaces: Collection[str] = (),
        named: Callable[[Resource], str] = attrgetter("kind"),
        fits: Callable[[Resource], Awaitable[str]] = _anything_fits,
    ) -> None:
        """`unserved` gets the reason for each optional kind that is left out. `definitions` gets the UID of the
        definition of each optional custom kind, or GONE. Both have resources by the name that `named` gives, and change
        before a cache does. Where there are `namespaces`, only these are listed and watched. `fits` says why a resource
        is left out although it is served; empty for no reason."""
        self._client = client
        self._optional = optional
        self._unserved = unserved
        self._definitions = definitions
        self._namespaces = namespaces
        self._named = named
        self._fits = fits
        self._awaited: dict[Resource, str] = {}
        self._uids: dict[Resource, str] = {}
        self._reflectors: dict[Resource, Sequence[Reflector]] = {}
        self._on_served: list[Callable[[Resource], None]] = []

    @property
    def awaited(self) -> list[str]:
        """The required resources that are not served, with the reasons, for people."""
        return list(self._awaited.values())

    @property
    def left_out(self) -> list[str]:
        """The optional kinds that are left out, with the reasons, for people."""
        return [f"{kind}: {reason}" for kind, reason in sorted(self._unserved.items())]

    def on_served(self, callback: Callable[[Resource], None]) -> None:
        """Call back with each optional resource that was left out and has now been listed."""
        self._on_served.append(callback)

    async def run(
        self,
        resource: Resource,
        cache: Cache,
        *,
        labels: str | None = None,
        shape: Callable[[Manifest], Manifest] = lambda manifest: manifest,
        owners: Collection[Resource] = (),
    ) -> None:
        """Keep one cache in sync until cancelled. Raises DefinitionLost when a required resource goes.

        `owners`: optional resources whose objects may own these. The garbage collector deletes owned objects right
        after their owners, so their deletion counts only once the definitions of their owners are confirmed.
        """
        absences, namespaces = 1, self._namespaces_of(resource)
        cache.expect(namespaces)
        while True:
            failed: SlicebusError | None = None
            try:
                uid = await self._find(resource)
                if problem := await self._fits(resource):
                    raise Absent(problem)
                self._note_definition(resource, uid, cache)
                reflectors = self._reflectors[resource] = [
                    Reflector(
                        self._client,
                        resource,
                        cache,
                        namespace=namespace,
                        labels=labels,
                        shape=shape,
                        confirm=partial(self._check_with, resource, owners),
                        listed=partial(self._listed, resource, cache),
                    )
                    for namespace in namespaces or (None,)
                ]
                await (reflectors[0].run() if len(reflectors) == 1 else until_one_ends(*map(_begun, reflectors)))
            except (TransientError, InvalidError, ConflictError) as error:
                _log.warning("definition.unknown", resource=resource.plural, error=str(error))
                absences, failed = 1, error
            except (NotFoundError, ForbiddenError) as error:
                absences = absences if self._is_out(resource) else 1
                self._leave_out(resource, cache, _absence(resource, error))
            await asyncio.sleep(_BACKOFF.pause_s(absences, failed))
            absences += 1

    async def confirm(self, resource: Resource) -> None:
        """Return where a missing object cannot have gone with its definition. Raises UnavailableError where it may have
        gone so: its absence is then no evidence."""
        try:
            await self._check(resource)
        except Absent as error:
            for reflector in self._reflectors.get(resource, ()):
                reflector.doubt()
            raise UnavailableError(str(error)) from error

    async def _check_with(self, resource: Resource, owners: Collection[Resource], leaving: Sequence[Manifest]) -> None:
        await self._check(resource)
        kinds = {owner["kind"] for manifest in leaving for owner in manifest["metadata"].get("ownerReferences") or ()}
        for owner in owners:
            if owner.kind in kinds and not self._is_out(owner):
                await self.confirm(owner)

    def _is_out(self, resource: Resource) -> bool:
        return resource in self._awaited or (resource in self._optional and self._named(resource) in self._unserved)

    async def _check(self, resource: Resource) -> None:
        known = self._uids.get(resource)
        uid = await self._find(resource)
        if known and uid and known != uid:
            raise _replaced(resource, by=uid)

    async def _find(self, resource: Resource) -> str:
        """The UID of the present definition; empty where it cannot be known. Raises Absent."""
        if not resource.is_custom:
            return ""
        try:
            metadata = await self._client.definition(resource)
        except NotServedError as error:
            raise UnavailableError(f"definitions are not served now: {error}") from error
        except NotFoundError as error:
            raise Absent(f"the definition {resource.definition} is missing", is_gone=True) from error
        except ForbiddenError:
            # A definition that is being removed takes no new objects.
            if await self._client.serves(resource, "create"):
                return ""
            raise Absent(f"the definition {resource.definition} is missing or going", is_gone=True) from None
        if "deletionTimestamp" in metadata:
            raise Absent(f"the definition {resource.definition} is being removed", is_gone=True)
        uid: str = metadata["uid"]
        return uid

    def _note_definition(self, resource: Resource, uid: str, cache: Cache) -> None:
        """Remember the definition that serves a resource now. Raises Absent where it has replaced another."""
        before = self._uids.get(resource)
        if before and uid and before != uid:
            raise _replaced(resource, by=uid)
        if uid:
            self._uids[resource] = uid
        if resource in self._optional:
            if uid:
                self._definitions[self._named(resource)] = uid
            if self._named(resource) in self._unserved:
                # Before the first list its objects are unknown.
                cache.expect(self._namespaces_of(resource))

    def _namespaces_of(self, resource: Resource) -> Collection[str]:
        return self._namespaces if resource.namespaced else ()

    def _listed(self, resource: Resource, cache: Cache) -> None:
        if not cache.synced.is_set():
            return
        self._awaited.pop(resource, None)
        if resource in self._optional and self._unserved.pop(self._named(resource), None) is not None:
            _log.info("resource.served", resource=resource.plural)
            for callback in self._on_served:
                callback(resource)

    def _leave_out(self, resource: Resource, cache: Cache, absent: Absent) -> None:
        reason, known = str(absent), self._awaited.get(resource)
        if absent.is_gone:
            self._uids.pop(resource, None)
        if resource in self._optional:
            known = self._unserved.get(self._named(resource))
            self._unserved[self._named(resource)] = reason
            if absent.is_gone:
                self._definitions[self._named(resource)] = GONE
                cache.clear()
                self._definitions[self._named(resource)] = absent.successor
            cache.synced.set()
        elif absent.is_gone and cache.synced.is_set():
            raise DefinitionLost(reason)
        else:
            self._awaited[resource] = reason
        if known != reason:
            event = "resource.left_out" if resource in self._optional else "resource.awaited"
            _log.warning(event, resource=resource.plural, reason=reason)


def _begun(reflector: Reflector) -> asyncio.Task[None]:
    return asyncio.create_task(reflector.run(), name="reflector")


def _replaced(resource: Resource, *, by: str) -> Absent:
    return Absent(f"the definition {resource.definition} was replaced", is_gone=True, successor=by)


def _absence(resource: Resource, error: SlicebusError) -> Absent:
    if isinstance(error, Absent):
        return error
    if isinstance(error, ForbiddenError):
        return Absent(f"{resource.plural} may not be read: {error}")
    return Absent(f"{resource.plural} are not served as {resource.api_version}")
