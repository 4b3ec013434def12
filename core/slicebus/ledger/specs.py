"""Reads what a play of the past needs beside the books: what each slice asked for, and what was decided by."""

from collections.abc import Mapping
from sys import intern
from typing import Any

import orjson

from slicebus.decisions.recorded_cache import resource_name
from slicebus.kube.resources import (
    CLUSTERQUEUES,
    COHORTS,
    LOCALQUEUES,
    NAMESPACES,
    RESOURCEFLAVORS,
    WORKERCLUSTERS,
    WORKLOADPRIORITYCLASSES,
)
from slicebus.proto.messages import Manifest
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.kueue import Condition
from slicebus.slices.workload.pod_requests import as_admitted

POLICY_RESOURCES = frozenset(
    map(
        resource_name,
        (
            NAMESPACES,
            WORKLOADPRIORITYCLASSES,
            RESOURCEFLAVORS,
            COHORTS,
            CLUSTERQUEUES,
            LOCALQUEUES,
            WORKERCLUSTERS,
        ),
    )
)
"""What the manager decides by beside the Workloads."""
SETTINGS = "settings"
"""The table of the manager with its settings: it stands among the policies."""
TEMPLATES = "templates"
"""Where the spec of a slice has its pod templates, as text, once they are taken out."""
_PREFIXES = ("slicebus.dev/", "kueue.x-k8s.io/")
_ANNOTATIONS = (
    api_names.AVOIDED_CLUSTERS_ANNOTATION,
    api_names.CLUSTER_SELECTOR_ANNOTATION,
    api_names.DEVICES_ANNOTATION,
    api_names.GANG_ANNOTATION,
    api_names.GROWN_AT_ANNOTATION,
    api_names.MAX_SIZE_ANNOTATION,
    api_names.MIN_SIZE_ANNOTATION,
    api_names.NOTICE_ANNOTATION,
    api_names.PARTIAL_SCALE_UP_ANNOTATION,
    api_names.QUEUED_SINCE_ANNOTATION,
    api_names.RECLAIMED_ANNOTATION,
    api_names.REPLICA_SIZES_ANNOTATION,
    api_names.REQUESTED_ANNOTATION,
    api_names.SCHEDULER_LABEL,
    api_names.SIZED_TOGETHER_ANNOTATION,
    kueue.ELASTIC_ANNOTATION,
    kueue.REPLACEMENT_FOR_ANNOTATION,
    kueue.SLICE_NAME_ANNOTATION,
)
"""Those of a Workload that a play reads."""
_OF_CLUSTERS = (
    "capacity",
    "used",
    "ours",
    "lackingNamespaces",
    "schedulerBackends",
    "containerDefaults",
    "podOverheads",
    "fenceSeconds",
)
"""The fields of a WorkerCluster's status that decide something."""


def spec_text(workload: Manifest) -> str:
    """What a slice asks for, as JSON: its sizes, rank, queue and the annotations that count, without pod templates; and
    whether it is evicted."""
    metadata, spec, status = workload["metadata"], workload.get("spec", {}), workload.get("status", {})
    found = {
        "created": metadata.get("creationTimestamp"),
        "counts": {pod_set.get("name", "main"): pod_set.get("count", 1) for pod_set in spec.get("podSets", ())},
        "queue": spec.get("queueName"),
        "priority": spec.get("priority"),
        "priorityClass": (spec.get("priorityClassRef") or {}).get("name"),
        "active": spec.get("active"),
        "reclaimable": status.get("reclaimablePods"),
        "evicted": _evicted(status),
        "annotations": noted(workload),
    }
    return _text({name: value for name, value in found.items() if value is not None and value != {}})


def _evicted(status: Manifest) -> str | None:
    """Why a slice loses its quota; None where it does not. A kill has that too, in whole seconds."""
    for condition in status.get("conditions", ()):
        if condition.get("type") == Condition.EVICTED and condition.get("status") == "True":
            return str(condition.get("reason", ""))
    return None


def noted(workload: Manifest) -> dict[str, str]:
    """The annotations of a Workload that a play reads."""
    annotations = workload["metadata"].get("annotations") or {}
    return {name: annotations[name] for name in _ANNOTATIONS if name in annotations}


def templates_text(pod_sets: list[Manifest]) -> str:
    """The pod templates of a slice as JSON, as far as its admission reads them: many jobs have the same."""
    found = {one.get("name", "main"): as_admitted(one.get("template", {}).get("spec", {})) for one in pod_sets}
    return intern(_text(found))


def policy_text(of: str, manifest: Manifest) -> str:
    """What a queue, a flavor or a cluster is decided by, as JSON."""
    metadata = manifest["metadata"]
    annotations = {
        name: value for name, value in (metadata.get("annotations") or {}).items() if name.startswith(_PREFIXES)
    }
    kept: dict[str, Any] = {name: metadata[name] for name in ("name", "namespace", "labels") if metadata.get(name)}
    if annotations:
        kept["annotations"] = annotations
    found = {"metadata": kept} | {name: manifest[name] for name in ("spec", "value") if name in manifest}
    if of == resource_name(WORKERCLUSTERS):
        found["status"] = _status_of_cluster(manifest.get("status") or {})
    return _text(found)


def _status_of_cluster(status: Mapping[str, Any]) -> Manifest:
    conditions = [{"type": one.get("type"), "status": one.get("status")} for one in status.get("conditions", ())]
    return {name: status[name] for name in _OF_CLUSTERS if name in status} | {"conditions": conditions}


def _text(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
