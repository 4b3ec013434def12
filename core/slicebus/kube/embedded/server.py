"""The HTTP side: paths and verbs to the store, refusals to Status objects."""

import asyncio
import base64
import json
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import orjson
import yaml
from aiohttp import web

from slicebus.kube.embedded import discovery, tables, watches
from slicebus.kube.embedded.apply import applied
from slicebus.kube.embedded.kinds import Served
from slicebus.kube.embedded.objects import Objects
from slicebus.kube.embedded.patches import json_patch, merge_patch, strategic_patch
from slicebus.kube.embedded.selectors import field_matcher, label_matcher
from slicebus.kube.embedded.status import Refusal
from slicebus.kube.embedded.store import Store
from slicebus.kube.resources import NAMESPACES

Manifest = dict[str, Any]

_REVIEWS = "selfsubjectaccessreviews"
_DEFAULT_NAMESPACES = ("default", "kube-system")
_MAX_BODY = 3 * 1024**2
"""As the real server's."""


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
            self.objects.create(self.store.served("", "v1", NAMESPACES.plural), "", {"metadata": {"name": name}})

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
        return None

    def _target(self, parts: list[str], request: web.Request) -> _Target | None:
        """What a path names; None for an access review."""
        match parts:
            case ["apis", "authorization.k8s.io", _, plural] if plural == _REVIEWS:
                return None
            case ["api", version, *rest]:
                group = ""
            case ["apis", group, version, *rest]:
                pass
            case _:
                raise Refusal(404, "the server could not find the requested resource")
        namespace: str | None = None
        if len(rest) > 2 and rest[0] == "namespaces" and rest[2] not in ("status", "finalize"):
            namespace, rest = rest[1], rest[2:]
        served = self.store.served(group, version, rest[0])
        name = rest[1] if len(rest) > 1 else None
        subresource = rest[2] if len(rest) > 2 else ""
        if subresource and not (subresource == "status" and served.has_status):
            raise Refusal(404, "the server could not find the requested resource")
        return _Target(served, namespace, name, subresource)

    async def _get(self, request: web.Request, target: _Target) -> web.StreamResponse:
        as_table = "as=Table" in request.headers.get("Accept", "")
        if target.name is not None and "watch" not in request.query:
            found = self.store.get(target.served, target.namespace or "", target.name)
            return _json(tables.table(target.served, [found]) if as_table else found)
        if request.query.get("watch") in ("1", "true"):
            return await self._watch(request, target, as_table=as_table)
        listed = self._list(request, target)
        return _json(tables.table(target.served, listed["items"], listed["metadata"]) if as_table else listed)

    def _list(self, request: web.Request, target: _Target) -> Manifest:
        labels, fields = label_matcher(request.query.get("labelSelector")), field_matcher(_fields(request))
        version, start = str(self.store.version), ""
        if request.query.get("continue"):
            version, start = _continuation(request.query["continue"])
        found = [m for m in self.store.of(target.served, target.namespace) if labels(m) and fields(m)]
        rest = [manifest for manifest in found if _position(manifest) > start]
        limit = int(request.query.get("limit") or 0)
        metadata: Manifest = {"resourceVersion": version}
        if limit and len(rest) > limit:
            token = json.dumps([version, _position(rest[limit - 1])])
            metadata |= {"continue": base64.urlsafe_b64encode(token.encode()).decode()}
            metadata["remainingItemCount"] = len(rest) - limit
            rest = rest[:limit]
        resource = target.served.resource
        return {
            "apiVersion": resource.api_version,
            "kind": f"{resource.kind}List",
            "metadata": metadata,
            "items": rest,
        }

    async def _watch(self, request: web.Request, target: _Target, *, as_table: bool) -> web.StreamResponse:
        query = request.query
        labels, fields = label_matcher(query.get("labelSelector")), field_matcher(_fields(request))

        def matches(manifest: Manifest) -> bool:
            inside = target.namespace in (None, manifest["metadata"].get("namespace"))
            return inside and labels(manifest) and fields(manifest)

        bookmarks = query.get("allowWatchBookmarks") in ("1", "true")
        asked = query.get("resourceVersion") or ""
        initial = query.get("sendInitialEvents") in ("1", "true") or asked in ("", "0")
        version = self.store.version if initial else int(asked)
        self.store.since(version)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)

        async def send(event: Manifest) -> None:
            if as_table and event["type"] != "BOOKMARK":
                event = event | {"object": tables.table(target.served, [event["object"]])}
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
        body = _parsed(await request.read())
        dry_run = request.query.get("dryRun") == "All"
        namespace = target.namespace or ""
        if request.method == "POST" and target.name is None:
            return _json(self.objects.create(target.served, namespace, body, dry_run=dry_run), status=201)
        if request.method == "DELETE" and target.name is None:
            return _json(self._delete_collection(request, target, body or {}))
        if target.name is None:
            raise Refusal(405, "the server does not allow this method on the requested resource")
        if request.method == "DELETE":
            return _json(self.objects.delete(target.served, namespace, target.name, body or {}))
        return self._change(request, target, body, dry_run=dry_run)

    def _change(self, request: web.Request, target: _Target, body: Any, *, dry_run: bool) -> web.StreamResponse:
        assert target.name is not None
        namespace, custom = target.namespace or "", target.served.schema is not None
        if request.method == "PUT":

            def change(old: Manifest) -> Manifest:
                return dict(body)

        elif request.content_type == "application/apply-patch+yaml":
            return self._apply(request, target, body, dry_run=dry_run)
        elif request.content_type == "application/json-patch+json":

            def change(old: Manifest) -> Manifest:
                return json_patch(old, body)

        elif request.content_type == "application/merge-patch+json":

            def change(old: Manifest) -> Manifest:
                merged: Manifest = merge_patch(old, body)
                return merged

        elif request.content_type == "application/strategic-merge-patch+json" and not custom:

            def change(old: Manifest) -> Manifest:
                merged: Manifest = strategic_patch(old, body)
                return merged

        else:
            raise Refusal(415, f"the body of the request was in an unknown format: {request.content_type}")
        done = self.objects.update(
            target.served, namespace, target.name, change, subresource=target.subresource, dry_run=dry_run
        )
        return _json(done)

    def _apply(self, request: web.Request, target: _Target, body: Manifest, *, dry_run: bool) -> web.StreamResponse:
        assert target.name is not None
        manager = request.query.get("fieldManager")
        if not manager:
            raise Refusal(400, "PatchOptions.meta.k8s.io is invalid: fieldManager: Required value")
        force, namespace = request.query.get("force") == "true", target.namespace or ""

        def change(old: Manifest) -> Manifest:
            return applied(old, body, manager=manager, subresource=target.subresource, force=force)

        key = (target.served.resource.group, target.served.resource.plural, namespace, target.name)
        if key not in self.store.objects:
            first = applied({"metadata": {}}, body, manager=manager, subresource="", force=True)
            return _json(self.objects.create(target.served, namespace, first, dry_run=dry_run), status=201)
        done = self.objects.update(
            target.served, namespace, target.name, change, subresource=target.subresource, dry_run=dry_run
        )
        return _json(done)

    def _delete_collection(self, request: web.Request, target: _Target, options: Manifest) -> Manifest:
        listed = self._list(request, target)
        for item in listed["items"]:
            metadata = item["metadata"]
            self.objects.delete(target.served, metadata.get("namespace", ""), metadata["name"], options)
        return listed

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
    """Everything is allowed here."""
    body: Manifest = _parsed(await request.read())
    return body | {"status": {"allowed": True}}


def _parsed(data: bytes) -> Any:
    """JSON, or YAML as apply may send it."""
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


def _fields(request: web.Request) -> str | None:
    return request.query.get("fieldSelector")


def _position(manifest: Manifest) -> str:
    metadata = manifest["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}"


def _continuation(token: str) -> tuple[str, str]:
    try:
        version, start = json.loads(base64.urlsafe_b64decode(token))
    except ValueError as error:
        raise Refusal(400, "continue key is not valid") from error
    return str(version), str(start)
