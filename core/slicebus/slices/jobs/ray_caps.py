"""Caps the worker groups of a cluster whose size Ray's autoscaler owns, so that it ends nodes, and takes the caps off.

A cap is a smaller `maxReplicas`: Ray's autoscaler, v1 and v2, ends the nodes of a group that are more, idle ones first.
What its user had set stands beside it in an annotation of the same object. Where the present value is not the cap,
somebody has edited it since: that stands.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from slicebus.proto.messages import Counts
from slicebus.slices.api import api_names
from slicebus.slices.api.annotation_values import read_json
from slicebus.slices.jobs.ray import autoscales, desired_replicas, groups, hosts, name_for_deletion, pod_set_name

Manifest = dict[str, Any]

_PATH = "/metadata/annotations/" + api_names.CAPPED_ANNOTATION.replace("/", "~1")


class _Cap(msgspec.Struct, frozen=True):
    """The cap of one group, in replicas."""

    cap: int
    before: int
    """How many it had when it was capped first: with as many again it needs no cap."""
    most: int | None = None
    """The `maxReplicas` of its user; None where there was none."""


_CAPS = msgspec.json.Decoder(dict[str, _Cap])


def cap(cluster: Manifest, counts: Counts | None) -> list[Manifest]:
    """The JSON patch by which a RayCluster has no more pods than these; empty where it needs none.

    Only groups that have more are capped, never below their `minReplicas`. One that is capped already gets the larger
    size, `replicas` too, and its user's `maxReplicas` back as soon as it has what it had. None takes all caps off.
    """
    spec = cluster["spec"]
    if not autoscales(spec):
        return []
    known, patch, caps = _caps(cluster), list[Manifest](), dict[str, _Cap]()
    for index, group in enumerate(groups(spec)):
        changes = list(_changes(group, known.get(group["groupName"]), counts, caps))
        if changes:
            path = f"/spec/workerGroupSpecs/{index}"
            patch.append({"op": "test", "path": f"{path}/groupName", "value": group["groupName"]})
            patch += [change | {"path": f"{path}/{change['path']}"} for change in changes]
    return [*patch, *_noted(cluster, caps)]


def enforce(cluster: Manifest, names: Mapping[str, Sequence[str]]) -> list[Manifest]:
    """The JSON patch by which capped groups lose these pods, by pod set, and have no more replicas than their cap, as
    Ray's autoscaler would write it. Empty for none."""
    patch: list[Manifest] = []
    known = _caps(cluster)
    for index, group in enumerate(groups(cluster["spec"])):
        if group["groupName"] in known and names.get(pod_set_name(group)):
            path = f"/spec/workerGroupSpecs/{index}"
            patch.append({"op": "test", "path": f"{path}/groupName", "value": group["groupName"]})
            patch.append({"op": "add", "path": f"{path}/replicas", "value": desired_replicas(group)})
    capped = {pod_set_name(group) for group in groups(cluster["spec"]) if group["groupName"] in known}
    return [*patch, *name_for_deletion(cluster["spec"], {name: names[name] for name in names if name in capped})]


def is_capped(cluster: Manifest) -> bool:
    """Whether a group of a RayCluster has a cap."""
    return autoscales(cluster["spec"]) and bool(_caps(cluster))


def _changes(group: Manifest, known: _Cap | None, counts: Counts | None, caps: dict[str, _Cap]) -> Iterator[Manifest]:
    """The changes of one group, with paths within it; its cap from then on goes into `caps`."""
    present, replicas = group.get("maxReplicas"), desired_replicas(group)
    wanted = counts.get(pod_set_name(group)) if counts is not None else None
    if known is None and (wanted is None or wanted // hosts(group) >= replicas):
        return
    before, most = (known.before, known.most) if known is not None else (replicas, present)
    size = max(wanted // hosts(group), group.get("minReplicas") or 0) if wanted is not None else None
    if size is not None and size < before:
        caps[group["groupName"]], limit = _Cap(cap=size, before=before, most=most), size
    else:
        limit = most
    if limit is None and present is not None:
        yield {"op": "remove", "path": "maxReplicas"}
    elif limit != present:
        yield {"op": "add", "path": "maxReplicas", "value": limit}
    if known is not None and size is not None and size > replicas:
        yield {"op": "add", "path": "replicas", "value": size}


def _caps(cluster: Manifest) -> dict[str, _Cap]:
    """The caps that stand, by group."""
    annotations = cluster["metadata"].get("annotations") or {}
    noted = read_json(annotations.get(api_names.CAPPED_ANNOTATION), _CAPS) or {}
    present = {group["groupName"]: group.get("maxReplicas") for group in groups(cluster["spec"])}
    return {name: cap for name, cap in noted.items() if present.get(name) == cap.cap}


def _noted(cluster: Manifest, caps: dict[str, _Cap]) -> list[Manifest]:
    """The operations that note the caps on the cluster."""
    annotations = cluster["metadata"].get("annotations")
    present = (annotations or {}).get(api_names.CAPPED_ANNOTATION)
    wanted = msgspec.json.encode(caps, order="sorted").decode() if caps else None
    if wanted == present:
        return []
    if wanted is None:
        return [{"op": "remove", "path": _PATH}]
    made = [{"op": "add", "path": "/metadata/annotations", "value": {}}] if annotations is None else []
    return [*made, {"op": "add", "path": _PATH, "value": wanted}]
