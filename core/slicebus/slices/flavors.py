"""Which flavors the pod sets of one slice get, or in Kueue's words why they get none."""

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any

import msgspec

from slicebus.slices.cohorts import Node
from slicebus.slices.kueue import PENDING
from slicebus.slices.policies import Fungibility
from slicebus.slices.quantities import format_amount, times
from slicebus.slices.quota import ClusterQueue, FlavorResource, ResourceFlavor, ResourceGroup, Usage
from slicebus.slices.suitability import unsuitable
from slicebus.slices.workload import Admission, FlavorName, PodSet, PodSetAssignment, Slice

Manifest = dict[str, Any]
_PODS = "pods"


class Mode(IntEnum):
    """How a flavor could be given, the best last."""

    NO_FIT = 0
    """It has not that much, or not for this queue."""
    NO_CANDIDATES = 1
    """There is quota for it, and nobody who may be preempted."""
    PREEMPT = 2
    """Somebody of the same queue would lose it, or nobody has looked yet who."""
    RECLAIM = 3
    """Others would lose it who borrow."""
    LATER = 4
    """When those are gone who are evicted already."""
    FIT = 5


class Misfit(msgspec.Struct, frozen=True, gc=False):
    """Why a slice cannot be admitted now. `lacking` is what would let it in."""

    message: str
    lacking: str = ""
    reason: str = PENDING


class Nomination(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The flavors that a slice could have."""

    admission: Admission
    mode: Mode
    """The worst of all pod sets and resources."""
    distance: int = 0
    """How far up in the tree of quota the farthest comes from: 0 is the own quota."""
    short: frozenset[FlavorResource] = frozenset()
    """What there is no room for, even when those are gone who are evicted already."""
    misfit: Misfit = Misfit("")
    """Why not now."""


class Room(msgspec.Struct, frozen=True):
    """What a slice may take from: the queue, its flavors, and its place in the tree of quota."""

    queue: ClusterQueue
    flavors: Mapping[str, ResourceFlavor]
    node: Node
    """Of the queue. What a replaced slice holds is not counted in it, so only the difference is charged."""
    later: Node | None = None
    """The same without those who are evicted, and with those for whom they are. None: nobody is."""
    victims: Callable[[FlavorResource, int], tuple[Mode, int]] | None = None
    """How so much of one resource could be had by preemption, and from what distance then. None: not at all."""
    may_preempt_to_borrow: bool = False
    on_cluster: Callable[[FlavorResource], int | None] | None = None
    """What the cluster has left where the slice shall run; None without a limit."""

    def available(self, key: FlavorResource) -> int:
        """What the slice may take now, without what is kept for others."""
        most = self.node.available(key)
        if self.later is not None:
            most = min(most, self.later.available(key))
        there = self.on_cluster(key) if self.on_cluster is not None else None
        return most if there is None else min(most, there)


class _Look(msgspec.Struct, frozen=True, gc=False):
    """How one flavor could be given to one pod set."""

    flavor: FlavorName
    mode: Mode
    distance: int = 0
    short: frozenset[FlavorResource] = frozenset()
    reasons: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()

    def preference(self, rules: Fungibility) -> tuple[int, ...]:
        """The larger, the better."""
        first = min(self.mode, Mode.PREEMPT)
        own_first = (-self.distance, self.mode) if rules.own_quota_first else (self.mode, -self.distance)
        return first, *own_first

    def ends_the_search(self, rules: Fungibility) -> bool:
        """Whether flavors after this one need no look."""
        if self.mode <= Mode.NO_CANDIDATES or (self.mode < Mode.FIT and rules.next_when_preempting):
            return False
        return self.distance == 0 or not rules.next_when_borrowing


def assign(slice: Slice, room: Room, *, replaced: Slice | None = None) -> Admission | Misfit:
    """Flavors for every pod set of a slice that there is room for now, all or nothing."""
    found = nominate(slice, room, replaced=replaced)
    if isinstance(found, Misfit):
        return found
    return found.admission if found.mode is Mode.FIT else found.misfit


def nominate(slice: Slice, room: Room, *, replaced: Slice | None = None) -> Nomination | Misfit:
    """The best flavors for every pod set of a slice, all or nothing, also where somebody would have to be preempted.

    Pod sets are taken in order, each charged before the next. A replacement keeps the flavors of the slice that it
    replaces, even where another flavor has room.
    """
    taken: Usage = {}
    assignments: list[PodSetAssignment] = []
    looks: list[_Look] = []
    misfit: Misfit | None = None
    for pod_set in slice.pod_sets:
        sticky = replaced.admission.flavors_of(pod_set.name) if replaced and replaced.admission else {}
        found = _look_at_pod_set(pod_set, room, taken=taken, sticky=sticky)
        if isinstance(found, Misfit):
            return _of_pod_set(pod_set, found)
        needs = _needs(pod_set, room.queue)
        for resource, look in found.items():
            key = look.flavor, resource
            taken[key] = taken.get(key, 0) + needs[resource]
            if look.mode < Mode.FIT and misfit is None:
                misfit = _of_pod_set(pod_set, Misfit(", ".join(look.reasons), " or ".join(look.lacking)))
        looks += found.values()
        flavors = {resource: look.flavor for resource, look in found.items()}
        assignments.append(PodSetAssignment(name=pod_set.name, flavors=flavors, usage=needs, count=pod_set.count))
    return Nomination(
        admission=Admission(cluster_queue=room.queue.name, pod_sets=tuple(assignments)),
        mode=min((look.mode for look in looks), default=Mode.FIT),
        distance=max((look.distance for look in looks), default=0),
        short=frozenset(key for look in looks for key in look.short),
        misfit=misfit or Misfit(""),
    )


def _of_pod_set(pod_set: PodSet, misfit: Misfit) -> Misfit:
    return Misfit(f"couldn't assign flavors to pod set {pod_set.name}: {misfit.message}", misfit.lacking)


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


def _look_at_pod_set(
    pod_set: PodSet, room: Room, *, taken: Usage, sticky: Mapping[str, FlavorName]
) -> dict[str, _Look] | Misfit:
    """The flavor of each resource."""
    needs = _needs(pod_set, room.queue)
    covered = {resource for group in room.queue.resource_groups for resource in group.resources}
    missing = sorted(resource for resource, value in needs.items() if value and resource not in covered)
    if missing:
        return Misfit(f"resource {missing[0]} unavailable in ClusterQueue", f"{missing[0]} in the ClusterQueue's quota")
    looks: dict[str, _Look] = {}
    for group in room.queue.resource_groups:
        wanted = {resource: needs[resource] for resource in group.resources if resource in needs}
        if not wanted:
            continue
        found = _pick(pod_set, group, wanted, room=room, taken=taken, sticky=sticky)
        if isinstance(found, Misfit):
            return found
        looks |= dict.fromkeys(wanted, found)
    return looks


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
) -> _Look | Misfit:
    """The flavor of a group that suits the pods and is the best to have, as the queue ranks them."""
    kept = next((sticky[resource] for resource in wanted if resource in sticky), None)
    rules, best = room.queue.fungibility, _Look(FlavorName(""), Mode.NO_FIT)
    forgone: list[str] = []
    reasons: list[str] = []
    lacking: list[str] = []
    for quota in group.flavors:
        flavor = room.flavors.get(quota.name)
        if flavor is None:
            reasons.append(f"flavor {quota.name} not found")
            continue
        obstacle = unsuitable(pod_set, flavor, group, room.flavors)
        if kept is not None and kept != quota.name:
            if not obstacle and _has_room(quota.name, wanted, room=room, taken=taken):
                forgone.append(f"couldn't change flavor from: {kept} to: {quota.name}")
            continue
        if obstacle:
            reasons.append(obstacle)
            continue
        look = _look(quota.name, wanted, room=room, taken=taken)
        reasons += look.reasons
        lacking += look.lacking
        if look.mode > Mode.NO_FIT and (not best.flavor or look.preference(rules) > best.preference(rules)):
            best = look
        if look.ends_the_search(rules):
            break
    if best.mode is Mode.FIT:
        return best
    if not (forgone or reasons):
        unlike = "could not assign {} flavor since the original workload is assigned: {}"
        reasons = [unlike.format(quota.name, kept) for quota in group.flavors]
    if best.flavor:
        return msgspec.structs.replace(best, reasons=(*forgone, *reasons), lacking=tuple(lacking))
    return Misfit(", ".join(forgone + reasons), " or ".join(lacking))


def _has_room(flavor: FlavorName, wanted: Mapping[str, int], *, room: Room, taken: Usage) -> bool:
    return all(
        request == 0 or request + taken.get((flavor, resource), 0) <= room.available((flavor, resource))
        for resource, request in wanted.items()
    )


def _look(flavor: FlavorName, wanted: Mapping[str, int], *, room: Room, taken: Usage) -> _Look:
    """How a flavor could be given: as its resource that is the worst to have."""
    looks = [
        _look_at((flavor, resource), request + taken.get((flavor, resource), 0), room)
        for resource, request in wanted.items()
        if request
    ]
    if not looks:
        return _Look(flavor, Mode.FIT)
    worst = min(looks, key=lambda look: look.preference(room.queue.fungibility))
    return _Look(
        flavor,
        worst.mode,
        max(look.distance for look in looks),
        frozenset(key for look in looks for key in look.short),
        tuple(reason for look in looks for reason in look.reasons),
        tuple(lacking for look in looks for lacking in look.lacking),
    )


def _look_at(key: FlavorResource, need: int, room: Room) -> _Look:
    """How one resource could be had in a flavor; where not now, told apart by whether it ever could be there."""
    flavor, resource = key
    lacking = need - room.available(key)
    if lacking <= 0:
        return _Look(flavor, Mode.FIT, room.node.distance(key, need)[0])
    where, more = f"{resource} in flavor {flavor}", format_amount(resource, lacking)
    wanting = (f"{more} more {where} of ClusterQueue {room.queue.name}",)
    if need > (capacity := room.node.capacity(key)):
        request, most = format_amount(resource, need), format_amount(resource, capacity)
        reason = f"insufficient quota for {where}, request > maximum capacity ({request} > {most})"
        return _Look(flavor, Mode.NO_FIT, reasons=(reason,), lacking=wanting)
    reasons = (f"insufficient unused quota for {where}, {more} more needed",)
    mode, distance = _otherwise(key, need, room)
    short = frozenset([key] if mode in (Mode.NO_CANDIDATES, Mode.PREEMPT, Mode.RECLAIM) else ())
    return _Look(flavor, mode, distance, short, reasons, wanting)


def _otherwise(key: FlavorResource, need: int, room: Room) -> tuple[Mode, int]:
    """How a resource could be had that there is no room for now, and from what distance."""
    node = room.later or room.node
    distance, can_reclaim = node.distance(key, need)
    if room.victims is None:
        return Mode.NO_CANDIDATES, distance
    if need <= node.available(key):
        return Mode.LATER, distance
    has_quota = need <= node.quota.get(key, 0)
    if has_quota or can_reclaim or room.may_preempt_to_borrow:
        return room.victims(key, need)
    return Mode.NO_FIT, distance
