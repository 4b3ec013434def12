"""The API without a transport: maps paths and verbs to the store, and refusals to Status objects."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import orjson

from slicebus.kube.resources import NAMESPACES, SELFSUBJECTACCESSREVIEWS
from slicebus.kube.transport import Answer, Request
from slicebus.sandbox.apiserver import discovery, listing, openapi, tables, watches
from slicebus.sandbox.apiserver.kinds import Served
from slicebus.sandbox.apiserver.objects import Objects, Write
from slicebus.sandbox.apiserver.patches import change_of
from slicebus.sandbox.apiserver.status import ApiError, unserved
from slicebus.sandbox.apiserver.store import ObjectStore

Manifest = dict[str, Any]

_DEFAULT_NAMESPACES = ("default", "kube-system")
_PROTOBUF = "application/vnd.kubernetes.protobuf"
_YES = ("1", "true")
_WATCH_S = 1800.0


class _Target(msgspec.Struct, frozen=True):
    """The resource, namespace, name and subresource of a path."""

    served: Served
    namespace: str | None
    name: str | None
    subresource: str


class Api:
    """One API server: its state, and the handling of requests."""

    def __init__(self, *, history: int = 10_000) -> None:
        self.store = ObjectStore(history=history)
        self.objects = Objects(self.store)
        self.refuses: Callable[[Request], ApiError | None] = lambda _: None
        """Says of each request whether, and how, it is refused before anything is done: what tokens, rights, policies
        and webhooks do on a real server. Tests set it."""
        for name in _DEFAULT_NAMESPACES:
            namespaces = self.store.served(NAMESPACES.group, NAMESPACES.version, NAMESPACES.plural)
            self.objects.create(namespaces, "", {"metadata": {"name": name}}, Write())

    def answer(self, request: Request) -> Answer:
        """The answer to anything but a watch."""
        try:
            self._admit(request)
            return self._answer(request)
        except ApiError as refusal:
            return _json(refusal.to_status(), status=refusal.code)

    def watch(self, request: Request) -> AsyncIterator[bytes]:
        """The lines of a watch, until its time is over. Raises ApiError before the first line."""
        self._admit(request)
        target = self._target(_parts(request), request)
        if target is None:
            raise unserved()
        query = request.query
        asked = query.get("resourceVersion") or ""
        initial = query.get("sendInitialEvents") in _YES or asked in ("", "0")
        version = self.store.version if initial else listing.version_of(asked)
        self.store.since(target.served, version)
        matches = listing.matcher(target.served, target.namespace, query)
        return self._lines(request, target, version, matches, initial=initial)

    def _admit(self, request: Request) -> None:
        if (refusal := self.refuses(request)) is not None:
            raise refusal

    def _answer(self, request: Request) -> Answer:
        parts = _parts(request)
        known = self._discovered(parts)
        if known is not None:
            return known if isinstance(known, Answer) else _json(known)
        target = self._target(parts, request)
        if target is None:
            return _json(_review(request), status=201)
        return self._get(request, target) if request.method == "GET" else self._write(request, target)

    def _discovered(self, parts: list[str]) -> Manifest | Answer | None:
        match parts:
            case ["healthz" | "readyz" | "livez"]:
                return Answer(200, b"ok", "text/plain")
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
            case _:
                return None

    def _target(self, parts: list[str], request: Request) -> _Target | None:
        """The target of a path; None for an access review."""
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

    def _get(self, request: Request, target: _Target) -> Answer:
        include = request.query.get("includeObject", "Metadata")
        if target.name is not None:
            answer = self.store.get(target.served, target.namespace or "", target.name)
            return _json(tables.table(target.served, [answer], include=include) if _as_table(request) else answer)
        answer = listing.listed(self.store, target.served, target.namespace, request.query)
        if _as_table(request):
            answer = tables.table(target.served, answer["items"], answer["metadata"], include=include)
        return _json(answer)

    async def _lines(
        self, request: Request, target: _Target, version: int, matches: watches.Matcher, *, initial: bool
    ) -> AsyncIterator[bytes]:
        query, include, as_table = request.query, request.query.get("includeObject", "Metadata"), _as_table(request)
        bookmarks = query.get("allowWatchBookmarks") in _YES

        def line(event: Manifest) -> bytes:
            if as_table and event["type"] not in ("BOOKMARK", "ERROR"):
                event = event | {"object": tables.table(target.served, [event["object"]], include=include)}
            return orjson.dumps(event) + b"\n"

        if initial:
            for manifest in self.store.of(target.served, target.namespace):
                if matches(manifest):
                    yield line({"type": "ADDED", "object": manifest})
            if bookmarks and query.get("sendInitialEvents"):
                yield line({"type": "BOOKMARK", "object": watches.bookmark(target.served, version, initial=True)})
        timeout_s = float(query.get("timeoutSeconds") or _WATCH_S)
        try:
            async for event in watches.events(
                self.store, target.served, version=version, matches=matches, bookmarks=bookmarks, timeout_s=timeout_s
            ):
                yield line(event)
        except ApiError as refusal:
            yield line({"type": "ERROR", "object": refusal.to_status()})

    def _write(self, request: Request, target: _Target) -> Answer:
        body = _parsed(request)
        namespace = target.namespace or ""
        if request.method == "POST" and target.name is None:
            return _json(self.objects.create(target.served, namespace, body, _write_of(request, target)), status=201)
        if request.method == "DELETE" and target.name is None:
            return _json(self._delete_collection(request, target, body or {}))
        if target.name is None or request.method not in ("PUT", "PATCH", "DELETE"):
            raise ApiError(405, "the server does not allow this method on the requested resource")
        if request.method == "DELETE":
            return _json(self.objects.delete(target.served, namespace, target.name, body or {}))
        custom = target.served.schema is not None
        put = request.method == "PUT"
        change = (lambda old: dict(body)) if put else change_of(request.content_type, body, custom=custom)
        return _json(self.objects.update(target.served, namespace, target.name, change, _write_of(request, target)))

    def _delete_collection(self, request: Request, target: _Target, options: Manifest) -> Manifest:
        matching = listing.listed(self.store, target.served, target.namespace, request.query)
        for item in matching["items"]:
            metadata = item["metadata"]
            self.objects.delete(target.served, metadata.get("namespace", ""), metadata["name"], options)
        return matching


def is_watch(request: Request) -> bool:
    """Whether the answer has no end."""
    return request.method == "GET" and request.query.get("watch") in _YES


def _parts(request: Request) -> list[str]:
    return [part for part in request.path.split("/") if part]


def _as_table(request: Request) -> bool:
    return "as=Table" in request.accept


def _review(request: Request) -> Manifest:
    """Answer an access review: everything is allowed here."""
    body = {} if request.content_type == _PROTOBUF else _parsed(request)
    kind = {"apiVersion": SELFSUBJECTACCESSREVIEWS.api_version, "kind": SELFSUBJECTACCESSREVIEWS.kind}
    return kind | body | {"status": {"allowed": True}}


def _write_of(request: Request, target: _Target) -> Write:
    """The options of a write."""
    query = request.query
    return Write(
        target.subresource,
        is_patch=request.method == "PATCH",
        dry_run=query.get("dryRun") == "All",
        strict=query.get("fieldValidation") == "Strict",
    )


def _parsed(request: Request) -> Any:
    """The body."""
    if request.content_type == _PROTOBUF:
        raise ApiError(415, "this server speaks JSON only")
    if not request.body:
        return None
    try:
        return orjson.loads(request.body)
    except orjson.JSONDecodeError as error:
        raise ApiError(400, f"the object provided is unrecognized: {error}") from error


def _json(body: Manifest, *, status: int = 200) -> Answer:
    return Answer(status, orjson.dumps(body))
