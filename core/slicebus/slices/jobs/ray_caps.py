"""Caps the worker groups of a cluster whose size Ray's autoscaler owns, so that it ends nodes, and takes the caps off.

A cap is a smaller `maxReplicas`: Ray's autoscaler, v1 and v2, ends the nodes of a group that are more, idle ones first.
A larger `minReplicas` goes down with it: KubeRay does nothing for a group whose bounds contradict each other. What its
user had set stands beside the cap in an annotation of the same object. A `maxReplicas` that is not the cap was edited
since: that stands. Bounds that come from the manager are noted there, until the group has no cap.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from slicebus.proto.messages import Counts
from slicebus.slices.api import api_names
from slicebus.slices.api.annotation_values import read_json
from slicebus.slices.jobs import ray
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
    least: int | None = None
    """The `minReplicas` of its user, alike."""

    @property
    def limits(self) -> Manifest:
        """The bounds of the capped group."""
        return {"maxReplicas": self.cap, "minReplicas": None if self.least is None else min(self.least, self.cap)}

    @property
    def user_limits(self) -> Manifest:
        """Those of its user."""
        return {"maxReplicas": self.most, "minReplicas": self.least}


_CAPS = msgspec.json.Decoder(dict[str, _Cap])


def cap(cluster: Manifest, counts: Counts | None) -> list[Manifest]:
    """The JSON patch by which a RayCluster has no more pods than these; empty where it needs none.

    Only groups that have more are capped. One that is capped already gets the larger size, `replicas` too, and its
    user's bounds back as soon as it has what it had. None takes all caps off.
    """
    spec = cluster["spec"]
    if not autoscales(spec):
        return []
    known, patch, caps = _caps(cluster), list[Manifest](), dict[str, _Cap]()
    for index, group in enumerate(groups(spec)):
        changes = list(_changes(group, known.get(group["groupName"]), counts, caps))
        if changes:
            patch += _guarded(index, group, changes)
    return [*patch, *_noted(cluster, caps)]


def set_bounds(cluster: Manifest, bounds: Manifest) -> list[Manifest]:
    """The JSON patch that gives a RayCluster these bounds, as `ray.set_bounds`. A capped group keeps its cap."""
    wanted, caps = dict(bounds.get("groups", {})), _caps(cluster)
    for name in caps.keys() & wanted.keys():
        caps[name] = replace(caps[name], most=wanted[name].get("maxReplicas"), least=wanted[name].get("minReplicas"))
        limits = {field: value for field, value in caps[name].limits.items() if value is not None}
        wanted[name] = wanted[name] | limits
    patch = ray.set_bounds(cluster["spec"], bounds | {"groups": wanted} if wanted else bounds)
    return [*patch, *_noted(cluster, caps)] if caps else patch


def enforce(cluster: Manifest, names: Mapping[str, Sequence[str]]) -> list[Manifest]:
    """The JSON patch by which capped groups lose these pods, by pod set, and have no more replicas than their cap, as
    Ray's autoscaler would write it. Empty for none, and where it is written."""
    patch: list[Manifest] = []
    known = _caps(cluster)
    for index, group in enumerate(groups(cluster["spec"])):
        if group["groupName"] in known and names.get(pod_set_name(group)):
            limits = known[group["groupName"]].limits
            limits |= {"replicas": desired_replicas(group | limits)}
            if changes := list(_set(group, limits)):
                patch += _guarded(index, group, changes)
    capped = {pod_set_name(group) for group in groups(cluster["spec"]) if group["groupName"] in known}
    patch += name_for_deletion(cluster["spec"], {name: names[name] for name in names if name in capped})
    return [*patch, *_noted(cluster, known)] if patch else []


def is_capped(cluster: Manifest) -> bool:
    """Whether a group of a RayCluster has a cap."""
    return autoscales(cluster["spec"]) and bool(_caps(cluster))


def _guarded(index: int, group: Manifest, changes: Sequence[Manifest]) -> list[Manifest]:
    """Changes of one group, whose paths are within it, as a patch of its cluster that fails for another group."""
    path = f"/spec/workerGroupSpecs/{index}"
    guard = {"op": "test", "path": f"{path}/groupName", "value": group["groupName"]}
    return [guard, *(change | {"path": f"{path}/{change['path']}"} for change in changes)]


def _changes(group: Manifest, known: _Cap | None, counts: Counts | None, caps: dict[str, _Cap]) -> Iterator[Manifest]:
    """The changes of one group, with paths within it; its cap from then on goes into `caps`."""
    replicas = desired_replicas(group)
    wanted = counts.get(pod_set_name(group)) if counts is not None else None
    size = wanted // hosts(group) if wanted is not None else None
    if known is None and (size is None or size >= replicas):
        return
    present = _Cap(cap=replicas, before=replicas, most=group.get("maxReplicas"), least=group.get("minReplicas"))
    user = known or present
    if size is not None and size < user.before:
        caps[group["groupName"]] = cap = replace(user, cap=size)
        yield from _set(group, cap.limits)
    else:
        yield from _set(group, user.user_limits)
    if known is not None and size is not None and size > replicas:
        yield {"op": "add", "path": "replicas", "value": size}


def _set(group: Manifest, limits: Manifest) -> Iterator[Manifest]:
    """The changes that give a group these bounds, with paths within it; None for none."""
    for field, limit in limits.items():
        if limit is None and group.get(field) is not None:
            yield {"op": "remove", "path": field}
        elif limit != group.get(field):
            yield {"op": "add", "path": field, "value": limit}


def _caps(cluster: Manifest) -> dict[str, _Cap]:
    """The caps that stand, by group, with the `minReplicas` that somebody has set since."""
    annotations = cluster["metadata"].get("annotations") or {}
    noted = read_json(annotations.get(api_names.CAPPED_ANNOTATION), _CAPS) or {}
    caps = {}
    for group in groups(cluster["spec"]):
        cap, least = noted.get(group["groupName"]), group.get("minReplicas")
        if cap is not None and group.get("maxReplicas") == cap.cap:
            caps[group["groupName"]] = cap if least == cap.limits["minReplicas"] else replace(cap, least=least)
    return caps


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
