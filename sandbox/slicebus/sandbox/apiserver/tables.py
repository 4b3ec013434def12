"""Makes tables, as kubectl shows them."""

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

from slicebus.ambient.clock import now
from slicebus.sandbox.apiserver.kinds import Served

Manifest = dict[str, Any]
Cell = Callable[[Manifest], Any]

_STEP = re.compile(r"\.?([A-Za-z0-9_-]+)|\[(\d+|\?\(@\.(?P<field>\w+)==['\"](?P<value>[^'\"]*)['\"]\))\]")


def table(served: Served, items: list[Manifest], metadata: Manifest | None = None, *, include: str) -> Manifest:
    """The `meta.k8s.io/v1` Table of objects. `include`: Object, Metadata or None of each."""
    columns = _columns(served)
    name = {"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata or {},
        "columnDefinitions": [name, *(definition for definition, _ in columns)],
        "rows": [
            {
                "cells": [item["metadata"]["name"], *(cell(item) for _, cell in columns)],
                "object": _included(item, include),
            }
            for item in items
        ],
    }


def _included(item: Manifest, include: str) -> Manifest | None:
    if include == "None":
        return None
    if include == "Object":
        return item
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": item["metadata"]}


def _columns(served: Served) -> list[tuple[Manifest, Cell]]:
    """The columns of a kind beside the name: those of its definition, or built-in ones; every kind has an age."""
    if served.columns:
        return [(_definition(column), _printed(column)) for column in served.columns]
    cells = _BUILTIN.get(served.resource.kind, (("Age", lambda item: _since(at_path(item, _CREATED))),))
    return [(_definition({"name": name, "type": "string"}), cell) for name, cell in cells]


def _definition(column: Manifest) -> Manifest:
    return {
        "name": column["name"],
        "type": column["type"],
        "format": "",
        "description": column.get("description", ""),
        "priority": column.get("priority", 0),
    }


def _printed(column: Manifest) -> Cell:
    """The cell of an `additionalPrinterColumn`."""
    if column["type"] == "date":
        return lambda item: _since(at_path(item, column["jsonPath"]))
    return lambda item: at_path(item, column["jsonPath"])


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


def _at(path: str) -> Cell:
    return lambda item: at_path(item, path)


def _age(path: str) -> Cell:
    return lambda item: _since(at_path(item, path)) or "<unknown>"


def _count(field: str) -> Cell:
    return lambda item: len(item.get(field) or ())


def _since(text: str | None, until: str | None = None) -> str | None:
    """The age, in the one unit that kubectl shows for most ages."""
    if not text:
        return None
    end = _moment(until) if until else now()
    seconds = max(0, int((end - _moment(text)).total_seconds()))
    for unit, size, limit in (("s", 1, 120), ("m", 60, 120), ("h", 3600, 48)):
        if seconds < size * limit:
            return f"{seconds // size}{unit}"
    return f"{seconds // 86400}d"


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def _conditions(item: Manifest) -> set[str]:
    return {c["type"] for c in item.get("status", {}).get("conditions") or () if c["status"] == "True"}


def _job_status(job: Manifest) -> str:
    true = _conditions(job)
    for condition in ("Complete", "Failed"):
        if condition in true:
            return condition
    if "deletionTimestamp" in job["metadata"]:
        return "Terminating"
    return next((c for c in ("Suspended", "FailureTarget", "SuccessCriteriaMet") if c in true), "Running")


def _job_completions(job: Manifest) -> str:
    spec, succeeded = job["spec"], job.get("status", {}).get("succeeded", 0)
    if spec.get("completions") is not None:
        return f"{succeeded}/{spec['completions']}"
    return f"{succeeded}/1 of {spec['parallelism']}" if spec["parallelism"] > 1 else f"{succeeded}/1"


def _job_duration(job: Manifest) -> str | None:
    status = job.get("status", {})
    return _since(status.get("startTime"), status.get("completionTime"))


def _pod_ready(pod: Manifest) -> str:
    """Ready containers: all or none by the condition, where no kubelet reports them one by one."""
    statuses, count = pod["status"].get("containerStatuses"), len(pod["spec"]["containers"])
    if statuses is not None:
        return f"{sum(bool(status.get('ready')) for status in statuses)}/{count}"
    return f"{count if 'Ready' in _conditions(pod) else 0}/{count}"


def _pod_status(pod: Manifest) -> str:
    if "deletionTimestamp" in pod["metadata"]:
        return "Terminating"
    if pod["spec"].get("schedulingGates"):
        return "SchedulingGated"
    shown = pod["status"].get("reason") or pod["status"]["phase"]
    return "Completed" if shown == "Succeeded" else str(shown)


def _pod_restarts(pod: Manifest) -> str:
    return str(sum(status.get("restartCount", 0) for status in pod["status"].get("containerStatuses") or ()))


def _node_status(node: Manifest) -> str:
    ready = "Ready" if "Ready" in _conditions(node) else "NotReady"
    has_ready = any(c["type"] == "Ready" for c in node.get("status", {}).get("conditions") or ())
    return (ready if has_ready else "Unknown") + (
        ",SchedulingDisabled" if node.get("spec", {}).get("unschedulable") else ""
    )


def _node_roles(node: Manifest) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels") or {}
    return ",".join(sorted(label.removeprefix(prefix) for label in labels if label.startswith(prefix))) or "<none>"


def _event_object(event: Manifest) -> str:
    involved = event["involvedObject"]
    return f"{involved.get('kind', '').lower()}/{involved.get('name', '')}"


_CREATED = ".metadata.creationTimestamp"
_AGE = ("Age", _age(_CREATED))
_BUILTIN: dict[str, tuple[tuple[str, Cell], ...]] = {
    "ConfigMap": (("Data", _count("data")), _AGE),
    "CustomResourceDefinition": (("Created At", _at(_CREATED)),),
    "Event": (
        ("Last Seen", _age(".lastTimestamp")),
        ("Type", _at(".type")),
        ("Reason", _at(".reason")),
        ("Object", _event_object),
        ("Message", _at(".message")),
    ),
    "Job": (("Status", _job_status), ("Completions", _job_completions), ("Duration", _job_duration), _AGE),
    "Lease": (("Holder", _at(".spec.holderIdentity")), _AGE),
    "Namespace": (("Status", _at(".status.phase")), _AGE),
    "Node": (
        ("Status", _node_status),
        ("Roles", _node_roles),
        _AGE,
        ("Version", _at(".status.nodeInfo.kubeletVersion")),
    ),
    "Pod": (("Ready", _pod_ready), ("Status", _pod_status), ("Restarts", _pod_restarts), _AGE),
    "Secret": (("Type", _at(".type")), ("Data", _count("data")), _AGE),
}
