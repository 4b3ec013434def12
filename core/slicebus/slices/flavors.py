"""Which flavors the pod sets of one slice get, or in Kueue's words why they get none."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from slicebus.slices.cohorts import Node
from slicebus.slices.quantities import format_amount, times
from slicebus.slices.quota import ClusterQueue, FlavorResource, ResourceFlavor, ResourceGroup, Usage
from slicebus.slices.selectors import matches
from slicebus.slices.workload import Admission, FlavorName, PodSet, PodSetAssignment, Slice

Manifest = dict[str, Any]
_PODS = "pods"
_FORBIDDING = ("NoSchedule", "NoExecute")


class Misfit(msgspec.Struct, frozen=True):
    """Why a slice cannot be admitted now. `lacking` is what would let it in."""

    message: str
    lacking: str = ""


class _Full(msgspec.Struct, frozen=True):
    """Why one flavor has no room for one pod set."""

    message: str
    lacking: str


class Room(msgspec.Struct, frozen=True):
    """What a slice may take from: the queue, its flavors, and its place in the tree of quota."""

    queue: ClusterQueue
    flavors: Mapping[str, ResourceFlavor]
    node: Node
    """Of the queue. What a replaced slice holds is not counted in it, so only the difference is charged."""
    on_cluster: Callable[[FlavorResource], int | None] = lambda _: None
    """What the cluster has left where the slice shall run; None without a limit."""

    def available(self, key: FlavorResource) -> int:
        """What the slice may take."""
        quota, there = self.node.available(key), self.on_cluster(key)
        return quota if there is None else min(quota, there)


def assign(slice: Slice, room: Room, *, replaced: Slice | None = None) -> Admission | Misfit:
    """Flavors for every pod set of a slice, all or nothing.

    Pod sets are taken in order, each charged before the next. A replacement keeps the flavors of the slice that it
    replaces, even where another flavor has room.
    """
    taken: Usage = {}
    assignments: list[PodSetAssignment] = []
    for pod_set in slice.pod_sets:
        sticky = replaced.admission.flavors_of(pod_set.name) if replaced and replaced.admission else {}
        assigned = _assign_pod_set(pod_set, room, taken=taken, sticky=sticky)
        if isinstance(assigned, Misfit):
            message = f"couldn't assign flavors to pod set {pod_set.name}: {assigned.message}"
            return Misfit(message, assigned.lacking)
        for resource, flavor in assigned.flavors.items():
            key = flavor, resource
            taken[key] = taken.get(key, 0) + assigned.usage[resource]
        assignments.append(assigned)
    return Admission(cluster_queue=room.queue.name, pod_sets=tuple(assignments))


def assign_part(slice: Slice, room: Room, *, replaced: Slice) -> Admission | None:
    """Flavors for as many more pods than the replaced slice has as there is room for; None where there is none for one.

    All pod sets that grow come as far on their way as each other.
    """
    have, wanted = replaced.granted, slice.counts
    steps = max((wanted.get(name, 0) - count for name, count in have.items()), default=0)
    best, low, high = None, 1, steps - 1
    while low <= high:
        step = (low + high) // 2
        found = assign(_on_the_way(slice, have, step, steps), room, replaced=replaced)
        if isinstance(found, Misfit):
            high = step - 1
        else:
            best, low = found, step + 1
    return best


def _on_the_way(slice: Slice, have: Mapping[str, int], step: int, steps: int) -> Slice:
    """The slice with what its pod sets have after so many steps; one that shrinks has shrunk from the first on."""
    pod_sets = []
    for pod_set in slice.pod_sets:
        now = have.get(pod_set.name, 0)
        more = max(0, pod_set.count - now) * step // steps
        pod_sets.append(msgspec.structs.replace(pod_set, count=min(pod_set.count, now + more)))
    return msgspec.structs.replace(slice, pod_sets=tuple(pod_sets))


def _assign_pod_set(
    pod_set: PodSet, room: Room, *, taken: Usage, sticky: Mapping[str, FlavorName]
) -> PodSetAssignment | Misfit:
    needs = _needs(pod_set, room.queue)
    covered = {resource for group in room.queue.resource_groups for resource in group.resources}
    missing = sorted(resource for resource, value in needs.items() if value and resource not in covered)
    if missing:
        return Misfit(f"resource {missing[0]} unavailable in ClusterQueue", f"{missing[0]} in the ClusterQueue's quota")
    flavors: dict[str, FlavorName] = {}
    for group in room.queue.resource_groups:
        wanted = {resource: needs[resource] for resource in group.resources if resource in needs}
        if not wanted:
            continue
        found = _pick(pod_set, group, wanted, room=room, taken=taken, sticky=sticky)
        if isinstance(found, Misfit):
            return found
        flavors |= dict.fromkeys(wanted, found)
    return PodSetAssignment(name=pod_set.name, flavors=flavors, usage=needs, count=pod_set.count)


def _needs(pod_set: PodSet, queue: ClusterQueue) -> dict[str, int]:
    """What all pods of a pod set request; the pods themselves too where the queue has a quota for them."""
    needs = times(pod_set.requests, pod_set.count)
    counted = any(_PODS in group.resources for group in queue.resource_groups)
    return needs | {_PODS: pod_set.count} if counted else needs


def _pick(
    pod_set: PodSet,
    group: ResourceGroup,
    wanted: Mapping[str, int],
    *,
    room: Room,
    taken: Usage,
    sticky: Mapping[str, FlavorName],
) -> FlavorName | Misfit:
    """The first flavor of a group that suits the pods and has room."""
    kept = next((sticky[resource] for resource in wanted if resource in sticky), None)
    forgone: list[str] = []
    reasons: list[str] = []
    lacking: list[str] = []
    for quota in group.flavors:
        flavor = room.flavors.get(quota.name)
        if flavor is None:
            reasons.append(f"flavor {quota.name} not found")
            continue
        unsuitable = _unsuitable(pod_set, flavor, group, room.flavors)
        full = None if unsuitable else _full(quota.name, wanted, room=room, taken=taken)
        if kept is not None and kept != quota.name:
            if not unsuitable and not full:
                forgone.append(f"couldn't change flavor from: {kept} to: {quota.name}")
        elif unsuitable:
            reasons.append(unsuitable)
        elif full:
            reasons.append(full.message)
            lacking.append(full.lacking)
        else:
            return quota.name
    if not (forgone or reasons):
        unlike = "could not assign {} flavor since the original workload is assigned: {}"
        reasons = [unlike.format(quota.name, kept) for quota in group.flavors]
    return Misfit(", ".join(forgone + reasons), " or ".join(lacking))


def _full(flavor: FlavorName, wanted: Mapping[str, int], *, room: Room, taken: Usage) -> _Full | None:
    """Which resource is short in a flavor, told apart by whether it ever could be there."""
    for resource, request_now in wanted.items():
        if request_now == 0:
            continue
        key = flavor, resource
        need = request_now + taken.get(key, 0)
        short = need - room.available(key)
        if short <= 0:
            continue
        where, more = f"{resource} in flavor {flavor}", format_amount(resource, short)
        if need > (capacity := room.node.capacity(key)):
            request, most = format_amount(resource, need), format_amount(resource, capacity)
            message = f"insufficient quota for {where}, request > maximum capacity ({request} > {most})"
        else:
            message = f"insufficient unused quota for {where}, {more} more needed"
        return _Full(message, f"{more} more {where} of ClusterQueue {room.queue.name}")
    return None


def _unsuitable(
    pod_set: PodSet, flavor: ResourceFlavor, group: ResourceGroup, flavors: Mapping[str, ResourceFlavor]
) -> str | None:
    """Why the pods cannot run on the flavor's nodes; None when they can."""
    spec = pod_set.template.get("spec", {})
    tolerations = [*spec.get("tolerations", ()), *flavor.tolerations]
    for taint in flavor.taints:
        if forbids(taint, tolerations):
            return f"untolerated taint {taint['key']} in flavor {flavor.name}"
    keys = {key for quota in group.flavors if quota.name in flavors for key in flavors[quota.name].node_labels}
    if not _selects(spec, flavor.node_labels, keys):
        return f"flavor {flavor.name} doesn't match node affinity"
    return None


def forbids(taint: Manifest, tolerations: Iterable[Manifest]) -> bool:
    """Whether a taint keeps pods with these tolerations off its node."""
    return taint.get("effect") in _FORBIDDING and not any(_tolerates(taint, entry) for entry in tolerations)


def _tolerates(taint: Manifest, toleration: Manifest) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("key") not in (None, "", taint["key"]):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(toleration.get("key")) and toleration.get("value", "") == taint.get("value", "")


def _selects(spec: Manifest, labels: Mapping[str, str], keys: Iterable[str]) -> bool:
    """Whether node selector and required affinity allow these labels. Only keys that some flavor knows are compared."""
    known = set(keys)
    selector = {key: value for key, value in spec.get("nodeSelector", {}).items() if key in known}
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    affinity = spec.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    terms = (affinity or {}).get("nodeSelectorTerms", ())
    return not terms or any(
        all(matches(entry, labels) for entry in term.get("matchExpressions", ()) if entry["key"] in known)
        for term in terms
    )
