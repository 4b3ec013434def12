"""Serves the part of OpenAPI that kubectl reads before it writes: the kinds whose patches validate fields."""

from typing import Any

from slicebus.sandbox.apiserver.kinds import Served
from slicebus.sandbox.apiserver.status import unserved
from slicebus.sandbox.apiserver.store import ObjectStore

Manifest = dict[str, Any]

_INFO = {"title": "Kubernetes", "version": "embedded"}


def index(store: ObjectStore) -> Manifest:
    """The answer to `/openapi/v3`."""
    roots = sorted({served.resource.root.removeprefix("/") for served in store.all_served()})
    return {"paths": {root: {"serverRelativeURL": f"/openapi/v3/{root}"} for root in roots}}


def document(store: ObjectStore, root: str) -> Manifest:
    """The answer to `/openapi/v3/apis/GROUP/VERSION`. It describes no schemas."""
    paths = {
        served.resource.path("{namespace}", "{name}"): {"patch": _patch(served)}
        for served in store.all_served()
        if served.resource.root == root
    }
    if not paths:
        raise unserved()
    return {"openapi": "3.0.0", "info": _INFO, "paths": paths}


def _patch(served: Served) -> Manifest:
    resource = served.resource
    names = ("dryRun", "fieldManager", "fieldValidation")
    return {
        "operationId": f"patch{resource.kind}",
        "parameters": [{"name": name, "in": "query", "schema": {"type": "string"}} for name in names],
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": {
            "group": resource.group,
            "version": resource.version,
            "kind": resource.kind,
        },
    }
