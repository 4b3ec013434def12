"""Answers list requests: selectors, and pages that all show the state of the first page."""

import base64
import json
from collections.abc import Mapping
from typing import Any

from slicebus.sandbox.apiserver.kinds import Served
from slicebus.sandbox.apiserver.selectors import Matcher, field_matcher, label_matcher
from slicebus.sandbox.apiserver.status import ApiError
from slicebus.sandbox.apiserver.store import ObjectStore

Manifest = dict[str, Any]


def listed(store: ObjectStore, served: Served, namespace: str | None, query: Mapping[str, str]) -> Manifest:
    """The list of a query, or a page of it. Raises ApiError 410 for a page of a forgotten version."""
    matches, version, start = matcher(served, namespace, query), store.version, ""
    version_of(query.get("resourceVersion") or "0")
    if query.get("continue"):
        version, start = _continuation(query["continue"])
    matching = [manifest for manifest in store.of(served, namespace, version=version) if matches(manifest)]
    rest = [manifest for manifest in matching if _position(manifest) > start]
    limit = int(query.get("limit") or 0)
    metadata: Manifest = {"resourceVersion": str(version)}
    if limit and len(rest) > limit:
        token = json.dumps([version, _position(rest[limit - 1])])
        metadata["continue"] = base64.urlsafe_b64encode(token.encode()).decode()
        metadata["remainingItemCount"] = len(rest) - limit
        rest = rest[:limit]
    resource = served.resource
    return {
        "apiVersion": resource.api_version,
        "kind": f"{resource.kind}List",
        "metadata": metadata,
        "items": rest,
    }


def matcher(served: Served, namespace: str | None, query: Mapping[str, str]) -> Matcher:
    """A function that tells whether an object matches a query."""
    labels = label_matcher(query.get("labelSelector"))
    fields = field_matcher(query.get("fieldSelector"), served.fields)

    def matches(manifest: Manifest) -> bool:
        inside = namespace in (None, manifest["metadata"].get("namespace"))
        return inside and labels(manifest) and fields(manifest)

    return matches


def version_of(text: str) -> int:
    """A resourceVersion as this server counts them. Raises ApiError 400."""
    if not text.isdigit():
        raise ApiError(400, f'invalid resource version: resourceVersion: Invalid value: "{text}": invalid syntax')
    return int(text)


def _position(manifest: Manifest) -> str:
    metadata = manifest["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}"


def _continuation(token: str) -> tuple[int, str]:
    try:
        version, start = json.loads(base64.urlsafe_b64decode(token))
        return int(version), str(start)
    except (ValueError, TypeError) as error:
        raise ApiError(400, "continue key is not valid") from error
