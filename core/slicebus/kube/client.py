"""Reads and writes objects as raw JSON: one method a verb, manifests in and out, slicebus errors.

Reads are retried while the server cannot be reached, for `Timeouts.retry_s`. Writes are not retried: the caller finds
out whether one took effect.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

import msgspec
import orjson
from prometheus_client import CollectorRegistry

from slicebus.ambient.backoff import Backoff
from slicebus.ambient.retries import repeated
from slicebus.kube.failures import error_of
from slicebus.kube.impersonation import Impersonation
from slicebus.kube.kubeconfig import of_kubeconfig, of_pod, of_url
from slicebus.kube.lists import ListPage, decode_list, decoded
from slicebus.kube.metering import MeteredTransport
from slicebus.kube.resources import CRDS, SELFSUBJECTACCESSREVIEWS, Resource
from slicebus.kube.transport import JSON, HttpTransport, Request, Transport
from slicebus.proto.errors import NotFoundError, SlicebusError, TransientError

Manifest = dict[str, Any]
T = TypeVar("T")
_BACKOFF = Backoff(first_s=0.1, most_s=3.0)
DEFAULT_NAMESPACE = "default"
_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
"""Asks for an object's metadata only: a definition of Ray's is a megabyte."""
Propagation = Literal["Background", "Foreground", "Orphan"]


class Timeouts(msgspec.Struct, frozen=True):
    """Bounds how long one request may take, in seconds."""

    connect_s: float = 5.0
    read_s: float = 30.0
    """How long the server may send no byte."""
    retry_s: float = 20.0
    """How long a read is retried while the server cannot be reached."""
    watch_s: float = 20.0
    """The server ends a watch after this time, with a bookmark just before, so it is never silent for longer. Only
    silence shows a dead connection, which may go on acknowledging packets."""
    silence_s: float = 30.0
    """How long a watch may bring no byte: longer than `watch_s`. Clients over HTTP/2 ping, and give up after 45 s."""


class MergePatch(msgspec.Struct, frozen=True):
    """A JSON merge patch (RFC 7396)."""

    body: Manifest
    content_type: str = "application/merge-patch+json"


class JsonPatch(msgspec.Struct, frozen=True):
    """A JSON patch (RFC 6902)."""

    body: list[Manifest]
    content_type: str = "application/json-patch+json"


class WatchEvent(msgspec.Struct, frozen=True):
    """One line of a watch. A BOOKMARK's object has a resourceVersion only. An ERROR is raised and not yielded."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: Manifest


_decode_event = msgspec.json.Decoder(WatchEvent).decode


def _manifest(body: bytes) -> Manifest:
    manifest: Manifest = orjson.loads(body)
    return manifest


class KubeClient:
    """Calls one API server. Close it, or use it as an async context manager."""

    def __init__(
        self,
        transport: Transport,
        *,
        timeouts: Timeouts = Timeouts(),  # noqa: B008 a frozen value
        namespace: str = "",
    ) -> None:
        self._transport = transport
        self._timeouts = timeouts
        self.namespace = namespace or DEFAULT_NAMESPACE
        """The namespace of a user who names none. No method uses it."""

    @classmethod
    def from_url(cls, url: str) -> Self:
        """A client of a server without authentication."""
        return cls(HttpTransport(of_url(url)))

    @classmethod
    async def from_kubeconfig(
        cls,
        path: str | Path | None = None,
        *,
        context: str | None = None,
        timeouts: Timeouts = Timeouts(),  # noqa: B008
    ) -> Self:
        """A client as a context of a kubeconfig says; by default the one that kubectl uses. Raises
        ConfigurationError."""
        server = of_kubeconfig(path, context)
        return cls(HttpTransport(server), timeouts=timeouts, namespace=server.namespace)

    @classmethod
    async def connect(
        cls,
        *,
        kubeconfig: str | Path | None = None,
        context: str | None = None,
        timeouts: Timeouts = Timeouts(),  # noqa: B008
    ) -> Self:
        """A client of the cluster of a kubeconfig, or of those in KUBECONFIG; without any, of the cluster that this
        process runs in; else of the kubeconfig in the home folder."""
        is_named = kubeconfig or context or os.environ.get("KUBECONFIG")
        server = None if is_named else of_pod()
        if server is None:
            return await cls.from_kubeconfig(kubeconfig, context=context, timeouts=timeouts)
        return cls(HttpTransport(server), timeouts=timeouts, namespace=server.namespace)

    def metered(self, registry: CollectorRegistry) -> "KubeClient":
        """A client over the same connections for one role, whose requests are counted. Close the original, not this."""
        metered = MeteredTransport(self._transport, registry)
        return KubeClient(metered, timeouts=self._timeouts, namespace=self.namespace)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close every connection. Idempotent."""
        await self._transport.aclose()

    @property
    def host(self) -> str:
        """The server's URL."""
        return self._transport.host

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Manifest:
        """Read one object. Raises NotFoundError."""
        return await self._read(resource.path(namespace, name))

    async def list(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
        limit: int | None = None,
        continue_token: str | None = None,
        resource_version: str | None = None,
        shape: Callable[[Manifest], Manifest] = lambda item: item,
    ) -> ListPage:
        """Read a page of a collection; items have apiVersion and kind, and are what `shape` makes of them, one after
        the other. Raises ExpiredError for an old continuation."""
        query = {
            "labelSelector": labels,
            "fieldSelector": fields,
            "limit": limit,
            "continue": continue_token,
            "resourceVersion": resource_version,
        }
        answer = await self._read_as(decode_list, resource.path(namespace), query)
        return answer.page({"apiVersion": resource.api_version, "kind": resource.kind}, shape)

    async def pages(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        labels: str | None = None,
        limit: int,
        shape: Callable[[Manifest], Manifest] = lambda item: item,
    ) -> AsyncIterator[ListPage]:
        """Read a collection in pages of `limit` items, as it was at the first page; `shape` as in `list`. Raises
        ExpiredError where the server does not remember that any more."""
        token: str | None = None
        while token != "":
            page = await self.list(
                resource, namespace=namespace, labels=labels, limit=limit, continue_token=token, shape=shape
            )
            token = page.continue_token
            yield page

    async def watch(
        self,
        resource: Resource,
        *,
        resource_version: str,
        namespace: str | None = None,
        labels: str | None = None,
        timeout_s: float | None = None,
    ) -> AsyncIterator[WatchEvent]:
        """Yield changes since a resourceVersion, with bookmarks, until the server ends the watch after `timeout_s`.

        The default is `Timeouts.watch_s`. Raises ExpiredError when the version is older than the server's history,
        UnavailableError when nothing came for `Timeouts.silence_s`.
        """
        timeout_s = self._timeouts.watch_s if timeout_s is None else timeout_s
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "labelSelector": labels,
            "timeoutSeconds": round(timeout_s),
        }
        request = self._request("GET", resource.path(namespace), query=query, read_s=self._timeouts.silence_s)
        async with self._transport.stream(request) as lines:
            async for line in lines:
                yield _watch_event(line)

    async def create(
        self,
        resource: Resource,
        manifest: Manifest,
        *,
        field_manager: str = "slicebus",
        impersonate: Impersonation | None = None,
        dry_run: bool = False,
    ) -> Manifest:
        """Create an object, as this client or as another user, and return it; with `dry_run` as the server would store
        it, which keeps nothing. Raises AlreadyExistsError, InvalidError, ForbiddenError."""
        path, query = resource.path(manifest["metadata"].get("namespace")), {"fieldManager": field_manager}
        query |= {"dryRun": "All"} if dry_run else {}
        headers = impersonate.to_headers() if impersonate is not None else {}
        return await self._answer(self._request("POST", path, query=query, body=manifest, headers=headers))

    async def replace(
        self, resource: Resource, manifest: Manifest, *, subresource: str = "", dry_run: bool = False
    ) -> Manifest:
        """Replace an object, and return it; with `dry_run` as the server would store it, which keeps nothing. Raises
        ConflictError when its resourceVersion is not the newest."""
        metadata, query = manifest["metadata"], {"dryRun": "All"} if dry_run else {}
        path = resource.path(metadata.get("namespace"), metadata["name"], subresource)
        return await self._answer(self._request("PUT", path, query=query, body=manifest))

    async def patch(
        self,
        resource: Resource,
        name: str,
        namespace: str | None,
        patch: MergePatch | JsonPatch,
        *,
        subresource: str = "",
        impersonate: Impersonation | None = None,
    ) -> Manifest:
        """Patch an object, as this client or as another user, and return it. Raises ConflictError where the patch names
        a resourceVersion that is not the newest."""
        path = resource.path(namespace, name, subresource)
        headers = impersonate.to_headers() if impersonate is not None else {}
        return await self._answer(
            self._request("PATCH", path, body=patch.body, content_type=patch.content_type, headers=headers)
        )

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        propagation: Propagation = "Background",
        uid: str | None = None,
        grace_s: int | None = None,
    ) -> None:
        """Mark an object for deletion. Raises NotFoundError; ConflictError when the name has another UID.

        `grace_s`: the grace period of a pod in seconds; None for the pod's own.
        """
        options: Manifest = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        await self._answer(self._request("DELETE", resource.path(namespace, name), body=options))

    async def version(self) -> str:
        """Read the server's version, such as `v1.36.3`."""
        return str((await self._read("/version"))["gitVersion"])

    async def can_i(
        self, verb: str, resource: Resource, *, namespace: str = "", subresource: str = "", name: str = ""
    ) -> bool:
        """Ask whether the server's authorizer allows this client a verb."""
        attributes = {"verb": verb, "group": resource.group, "resource": resource.plural, "namespace": namespace}
        narrowed = {key: value for key, value in (("subresource", subresource), ("name", name)) if value}
        review = {
            "apiVersion": SELFSUBJECTACCESSREVIEWS.api_version,
            "kind": SELFSUBJECTACCESSREVIEWS.kind,
            "metadata": {},
            "spec": {"resourceAttributes": attributes | narrowed},
        }
        answer = await self._answer(self._request("POST", SELFSUBJECTACCESSREVIEWS.path(), body=review))
        return bool(answer["status"]["allowed"])

    async def serves(self, resource: Resource, *verbs: str) -> bool:
        """Ask whether the server serves a resource with these verbs: its definition may be missing, or going."""
        try:
            answer = await self._read(resource.root)
        except NotFoundError:
            return False
        entries = (entry for entry in answer.get("resources") or () if entry["name"] == resource.plural)
        return any(set(verbs) <= set(entry["verbs"]) for entry in entries)

    async def definition(self, resource: Resource) -> Manifest:
        """Read the `metadata` of the CustomResourceDefinition of a resource. Raises NotFoundError."""
        answer = await self._read(CRDS.path(name=resource.definition), accept=_METADATA)
        metadata: Manifest = answer["metadata"]
        return metadata

    async def openapi(self, resource: Resource) -> Manifest:
        """Read the OpenAPI v3 document of a resource's group and version. Raises NotFoundError."""
        return await self._read(f"/openapi/v3{resource.root}")

    async def _read(
        self, path: str, query: Mapping[str, object | None] | None = None, *, accept: str = JSON
    ) -> Manifest:
        return await self._read_as(_manifest, path, query, accept=accept)

    async def _read_as(
        self,
        decode: Callable[[bytes], T],
        path: str,
        query: Mapping[str, object | None] | None = None,
        *,
        accept: str = JSON,
    ) -> T:
        request = self._request("GET", path, query=query, accept=accept)
        ends_at_s = asyncio.get_running_loop().time() + self._timeouts.retry_s
        return await repeated(
            lambda: self._answer_as(decode, request), on=TransientError, wait=_BACKOFF, ends_at_s=ends_at_s
        )

    async def _answer(self, request: Request) -> Manifest:
        return await self._answer_as(_manifest, request)

    async def _answer_as(self, decode: Callable[[bytes], T], request: Request) -> T:
        answer = await self._transport.request(request)
        if not 200 <= answer.status < 300:
            raise error_of(answer.status, answer.body, retry_after=answer.retry_after)
        return decoded(decode, answer.body)

    def _request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object | None] | None = None,
        body: object = None,
        content_type: str = JSON,
        accept: str = JSON,
        headers: Mapping[str, str] = {},
        read_s: float | None = None,
    ) -> Request:
        return Request(
            method=method,
            path=path,
            query={name: str(value) for name, value in (query or {}).items() if value is not None},
            body=orjson.dumps(body) if body is not None else None,
            content_type=content_type,
            accept=accept,
            headers=headers,
            connect_s=self._timeouts.connect_s,
            read_s=read_s or self._timeouts.read_s,
        )


def _watch_event(line: bytes) -> WatchEvent:
    read = decoded(_decode_event, line)
    if read.type == "ERROR":
        raise _watch_error(read.object)
    return read


def _watch_error(status: Manifest) -> SlicebusError:
    return error_of(status.get("code", 500), orjson.dumps(status))
