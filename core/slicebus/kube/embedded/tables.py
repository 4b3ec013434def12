"""Tables, as kubectl shows them."""

import re
from datetime import UTC, datetime
from typing import Any

from slicebus.kube.embedded.kinds import Served

Manifest = dict[str, Any]

_STEP = re.compile(r"\.?([A-Za-z0-9_-]+)|\[(\d+|\?\(@\.(?P<field>\w+)==['\"](?P<value>[^'\"]*)['\"]\))\]")
_NAME = {"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}
_BUILTIN: dict[str, tuple[tuple[str, str], ...]] = {
    "Pod": (("Status", ".status.phase"), ("Node", ".spec.nodeName")),
    "Job": (("Parallelism", ".spec.parallelism"), ("Active", ".status.active"), ("Ready", ".status.ready")),
    "Event": (("Type", ".type"), ("Reason", ".reason"), ("Object", ".involvedObject.name"), ("Message", ".message")),
}


def table(served: Served, items: list[Manifest], metadata: Manifest | None = None) -> Manifest:
    """The `meta.k8s.io/v1` Table of objects."""
    columns = _columns(served)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata or {},
        "columnDefinitions": [_NAME, *(_definition(column) for column in columns)],
        "rows": [_row(served, item, columns) for item in items],
    }


def _columns(served: Served) -> list[Manifest]:
    if served.columns:
        return list(served.columns)
    known = _BUILTIN.get(served.resource.kind, ())
    return [
        *({"name": name, "type": "string", "jsonPath": path} for name, path in known),
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]


def _definition(column: Manifest) -> Manifest:
    return {
        "name": column["name"],
        "type": column["type"],
        "format": "",
        "description": column.get("description", ""),
        "priority": column.get("priority", 0),
    }


def _row(served: Served, item: Manifest, columns: list[Manifest]) -> Manifest:
    cells = [item["metadata"]["name"], *(_cell(item, column) for column in columns)]
    partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": item["metadata"]}
    return {"cells": cells, "object": partial}


def _cell(item: Manifest, column: Manifest) -> Any:
    value = at_path(item, column["jsonPath"])
    if column["type"] == "date" and value:
        return _age(str(value))
    return value


def at_path(item: Any, path: str) -> Any:
    """The first value at a printer column's JSONPath: fields, indexes, and `[?(@.type=='X')]`."""
    for step in _STEP.finditer(path):
        if step["field"]:
            entries = item if isinstance(item, list) else []
            item = next((entry for entry in entries if entry.get(step["field"]) == step["value"]), None)
        elif step[2]:
            item = item[int(step[2])] if isinstance(item, list) and len(item) > int(step[2]) else None
        else:
            item = item.get(step[1]) if isinstance(item, dict) else None
    return item


def _age(text: str) -> str:
    """How long ago, with the one or two units that kubectl shows."""
    then = datetime.fromisoformat(text.replace("Z", "+00:00"))
    seconds = max(0, int((datetime.now(UTC) - then).total_seconds()))
    for unit, size, limit in (("s", 1, 120), ("m", 60, 120), ("h", 3600, 48)):
        if seconds < size * limit:
            return f"{seconds // size}{unit}"
    return f"{seconds // 86400}d"
