"""The HTTP side: paths and verbs to the store, refusals to Status objects."""

import asyncio
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import orjson
import yaml
from aiohttp import web

from slicebus.kube.embedded import discovery, listing, openapi, tables, watches
from slicebus.kube.embedded.apply import Writer, applied
from slicebus.kube.embedded.kinds import Served
from slicebus.kube.embedded.objects import Objects, Write
from slicebus.kube.embedded.patches import change_of
from slicebus.kube.embedded.status import Refusal, unserved
from slicebus.kube.embedded.store import Store, key_of
from slicebus.kube.resources import NAMESPACES, SELFSUBJECTACCESSREVIEWS

Manifest = dict[str, Any]

_DEFAULT_NAMESPACES = ("default", "kube-system")
_MAX_BODY = 3 * 1024**2
"""As the real server's."""
_APPLY = "application/apply-patch+yaml"
_PROTOBUF = "application/vnd.kubernetes.protobuf"


class _Target(msgspec.Struct, frozen=True):
    """What a path names."""

    served: Served
    namespace: str | None
    name: str | None
    subresource: str


class EmbeddedApiServer:
    """One API server on a loopback port. An async context manager."""

    def __init__(self, *, history: int = 10_000) -> None:
        self.store = Store(history=history)
        self.objects = Objects(self.store)
        self.url = ""
        self._stopping = asyncio.Event()
        for name in _DEFAULT_NAMESPACES:
            namespaces = self.store.served(NAMESPACES.group, NAMESPACES.version, NAMESPACES.plural)
            self.objects.create(namespaces, "", {"metadata": {"name": name}}, Write(Writer("kube-apiserver")))

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=_MAX_BODY, middlewares=[_answer_refusals])
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopping.set()
        await self._runner.cleanup()

    def kubeconfig(self) -> Manifest:
        """A kubeconfig for this server."""
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "embedded",
            "clusters": [{"name": "embedded", "cluster": {"server": self.url}}],
            "contexts": [{"name": "embedded", "context": {"cluster": "embedded", "user": "embedded"}}],
            "users": [{"name": "embedded", "user": {}}],
        }

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        parts = [part for part in request.path.split("/") if part]
        known = self._discovered(parts)
        if known is not None:
            return known if isinstance(known, web.Response) else _json(known)
        target = self._target(parts, request)
        if target is None:
            return _json(await _review(request), status=201)
        if request.method == "GET":
            return await self._get(request, target)
        return await self._write(request, target)

    def _discovered(self, parts: list[str]) -> Manifest | web.Response | None:
        match parts:
            case ["healthz" | "readyz" | "livez"]:
                return web.Response(text="ok")
            case ["version"]:
                return discovery.VERSION
            case ["api"]:
                return discovery.api_versions()
            case ["apis"]:
                return discovery.api_groups(self.store)
            case ["api", version]:
                return discovery.api_resources(self.store, "", version)
            case ["apis", group, version]:
                return discovery.api_resources(self.store, group, version)
            case ["openapi", "v3"]:
                return openapi.index(self.store)
            case ["openapi", "v3", *root]:
                return openapi.document(self.store, f"/{'/'.join(root)}")
        return None

    def _target(self, parts: list[str], request: web.Request) -> _Target | None:
        """What a path names; None for an access review."""
        match parts:
            case ["apis", SELFSUBJECTACCESSREVIEWS.group, _, plural] if plural == SELFSUBJECTACCESSREVIEWS.plural:
                return None
            case ["api", version, *rest]:
                group = ""
            case ["apis", group, version, *rest]:
                pass
            case _:
                raise unserved()
        namespace: str | None = None
        if len(rest) > 2 and rest[0] == "namespaces" and rest[2] not in ("status", "finalize"):
            namespace, rest = rest[1], rest[2:]
        served = self.store.served(group, version, rest[0])
        name = rest[1] if len(rest) > 1 else None
        subresource = rest[2] if len(rest) > 2 else ""
        if subresource and not (subresource == "status" and served.has_status):
            raise unserved()
        return _Target(served, namespace, name, subresource)

    async def _get(self, request: web.Request, target: _Target) -> web.StreamResponse:
        as_table = "as=Table" in request.headers.get("Accept", "")
        include = request.query.get("includeObject", "Metadata")
        if target.name is not None and "watch" not in request.query:
            found = self.store.get(target.served, target.namespace or "", target.name)
            return _json(tables.table(target.served, [found], include=include) if as_table else found)
        if request.query.get("watch") in ("1", "true"):
            return await self._watch(request, target, as_table=as_table)
        found = listing.listed(self.store, target.served, target.namespace, request.query)
        if as_table:
            found = tables.table(target.served, found["items"], found["metadata"], include=include)
        return _json(found)

    async def _watch(self, request: web.Request, target: _Target, *, as_table: bool) -> web.StreamResponse:
        query, include = request.query, request.query.get("includeObject", "Metadata")
        matches = listing.matcher(target.served, target.namespace, query)
        bookmarks = query.get("allowWatchBookmarks") in ("1", "true")
        asked = query.get("resourceVersion") or ""
        initial = query.get("sendInitialEvents") in ("1", "true") or asked in ("", "0")
        version = self.store.version if initial else listing.version_of(asked)
        self.store.since(version)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)

        async def send(event: Manifest) -> None:
            if as_table and event["type"] != "BOOKMARK":
                event = event | {"object": tables.table(target.served, [event["object"]], include=include)}
            await response.write(orjson.dumps(event) + b"\n")

        if initial:
            for manifest in self.store.of(target.served, target.namespace):
                if matches(manifest):
                    await send({"type": "ADDED", "object": manifest})
            if bookmarks and query.get("sendInitialEvents"):
                await send({"type": "BOOKMARK", "object": watches.bookmark(target.served, version, initial=True)})
        await self._stream(target.served, send, version, matches, bookmarks, float(query.get("timeoutSeconds") or 1800))
        return response

    async def _stream(
        self, served: Served, send: Any, version: int, matches: watches.Matcher, bookmarks: bool, timeout_s: float
    ) -> None:
        """Events until the time is over, the client goes, or the server stops."""

        async def run() -> None:
            try:
                async for event in watches.events(
                    self.store, served, version=version, matches=matches, bookmarks=bookmarks, timeout_s=timeout_s
                ):
                    await send(event)
            except Refusal as refusal:
                await send({"type": "ERROR", "object": refusal.to_status()})
            except ConnectionError:
                return

        streaming = asyncio.ensure_future(run())
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((streaming, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            streaming.cancel()
            stopping.cancel()
            await asyncio.gather(streaming, stopping, return_exceptions=True)

    async def _write(self, request: web.Request, target: _Target) -> web.StreamResponse:
        body = _parsed(await request.read(), request.content_type)
        namespace = target.namespace or ""
        if request.method == "POST" and target.name is None:
            return _json(self.objects.create(target.served, namespace, body, _write_of(request, target)), status=201)
        if request.method == "DELETE" and target.name is None:
            return _json(self._delete_collection(request, target, body or {}))
        if target.name is None or request.method not in ("PUT", "PATCH", "DELETE"):
            raise Refusal(405, "the server does not allow this method on the requested resource")
        if request.method == "DELETE":
            return _json(self.objects.delete(target.served, namespace, target.name, body or {}))
        if request.content_type == _APPLY:
            return self._apply(request, target, target.name, body)
        custom = target.served.schema is not None
        put = request.method == "PUT"
        change = (lambda old: dict(body)) if put else change_of(request.content_type, body, custom=custom)
        return _json(self.objects.update(target.served, namespace, target.name, change, _write_of(request, target)))

    def _apply(self, request: web.Request, target: _Target, name: str, body: Manifest) -> web.StreamResponse:
        if not request.query.get("fieldManager"):
            raise Refusal(400, "PatchOptions.meta.k8s.io is invalid: fieldManager: Required value")
        served, namespace, write = target.served, target.namespace or "", _write_of(request, target)
        force = request.query.get("force") == "true"
        if key_of(served, namespace, name) not in self.store.objects:
            first = applied(served, None, body, write.writer, force=True)
            return _json(self.objects.create(served, namespace, first, write), status=201)

        def change(old: Manifest) -> Manifest:
            return applied(served, old, body, write.writer, force=force)

        return _json(self.objects.update(served, namespace, name, change, write))

    def _delete_collection(self, request: web.Request, target: _Target, options: Manifest) -> Manifest:
        found = listing.listed(self.store, target.served, target.namespace, request.query)
        for item in found["items"]:
            metadata = item["metadata"]
            self.objects.delete(target.served, metadata.get("namespace", ""), metadata["name"], options)
        return found

    def write_kubeconfig(self, path: Path) -> None:
        """Write a kubeconfig for kubectl."""
        path.write_text(yaml.safe_dump(self.kubeconfig()))


@web.middleware
async def _answer_refusals(request: web.Request, handler: Any) -> web.StreamResponse:
    try:
        response: web.StreamResponse = await handler(request)
    except Refusal as refusal:
        return _json(refusal.to_status(), status=refusal.code)
    return response


async def _review(request: web.Request) -> Manifest:
    """Everything is allowed here, whatever the review asks for."""
    body = {} if request.content_type == _PROTOBUF else _parsed(await request.read(), request.content_type)
    kind = {"apiVersion": SELFSUBJECTACCESSREVIEWS.api_version, "kind": SELFSUBJECTACCESSREVIEWS.kind}
    return kind | body | {"status": {"allowed": True}}


def _write_of(request: web.Request, target: _Target) -> Write:
    """How a request writes, and in whose name: without a field manager the client's."""
    query, apply = request.query, request.content_type == _APPLY
    agent = request.headers.get("User-Agent", "unknown").partition("/")[0]
    operation = "Apply" if apply else "Update"
    return Write(
        Writer(query.get("fieldManager") or agent, operation, target.subresource),
        is_patch=request.method == "PATCH",
        dry_run=query.get("dryRun") == "All",
        strict=query.get("fieldValidation") == "Strict",
    )


def _parsed(data: bytes, content_type: str) -> Any:
    """JSON, or YAML as apply may send it."""
    if content_type == _PROTOBUF:
        raise Refusal(415, "this server speaks JSON and YAML only")
    if not data:
        return None
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        try:
            return yaml.safe_load(data)
        except yaml.YAMLError as error:
            raise Refusal(400, f"the object provided is unrecognized: {error}") from error


def _json(body: Manifest, *, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")
