"""Assigns flavors to the pod sets of one slice, or says in Kueue's words why it cannot."""

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any

import msgspec

from slicebus.slices.api.kueue import PENDING
from slicebus.slices.api.quantities import format_amount, times
from slicebus.slices.placement.suitability import unsuitable
from slicebus.slices.quota.cohorts import Node
from slicebus.slices.quota.policies import Fungibility
from slicebus.slices.quota.quota import ClusterQueue, FlavorResource, ResourceFlavor, ResourceGroup, Usage
from slicebus.slices.workload.device_claims import claims_of, why_not_charged
from slicebus.slices.workload.pod_sets import PodSet
from slicebus.slices.workload.workload import Admission, FlavorName, PodSetAssignment, Slice

Manifest = dict[str, Any]
_PODS = "pods"


class Mode(IntEnum):
    """How a flavor could be assigned, the best last."""

    NO_FIT = 0
    """The flavor lacks the quota, or the queue may not use it."""
    NO_CANDIDATES = 1
    """The quota exists and is in use, and there is nobody to preempt."""
    PREEMPT = 2
    """By preemption in the same queue, or victims are not searched for yet."""
    RECLAIM = 3
    """By preemption of borrowers in other queues."""
    AFTER_EVICTION = 4
    """Once the evicted workloads are gone."""
    FIT = 5


class Misfit(msgspec.Struct, frozen=True, gc=False):
    """Says why a slice cannot be admitted now. `lacking` is what would admit it."""

    message: str
    lacking: str = ""
    reason: str = PENDING


class Nomination(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The flavors that a slice could be assigned."""

    admission: Admission
    mode: Mode
    """The worst mode of all pod sets and resources."""
    distance: int = 0
    """How many levels up the tree the quota comes from, at most; 0 is the queue's own."""
    short: frozenset[FlavorResource] = frozenset()
    """What does not fit even after the evictions."""
    misfit: Misfit = Misfit("")
    """Why it cannot be admitted now."""


class Room(msgspec.Struct, frozen=True):
    """What a slice may use: the queue, its flavors, and its node in the tree of quota."""

    queue: ClusterQueue
    flavors: Mapping[str, ResourceFlavor]
    node: Node
    """The queue's node, without what a replaced slice holds: so only the difference is charged."""
    projected: Node | None = None
    """The same node in the projected tree, after the evictions. None: nobody is evicted."""
    victims: Callable[[FlavorResource, int], tuple[Mode, int]] | None = None
    """Assesses preemption for an amount of one resource: mode and distance. None: no preemption."""
    may_preempt_to_borrow: bool = False
    on_cluster: Callable[[FlavorResource], int | None] | None = None
    """What is free on the slice's worker cluster; None without a limit."""

    @property
    def later(self) -> "Room":
        """The room after the evictions, without any preemption."""
        return msgspec.structs.replace(self, node=self.projected or self.node, projected=None, victims=None)

    def available(self, key: FlavorResource) -> int:
        """What the slice may use now, without what is reserved for others."""
        most = self.node.available(key)
        if self.projected is not None:
            most = min(most, self.projected.available(key))
        free = self.on_cluster(key) if self.on_cluster is not None else None
        return most if free is None else min(most, free)


class _Assessment(msgspec.Struct, frozen=True, gc=False):
    """How one flavor could be assigned to one pod set."""

    flavor: FlavorName
    mode: Mode
    distance: int = 0
    short: frozenset[FlavorResource] = frozenset()
    reasons: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()

    def preference(self, rules: Fungibility) -> tuple[int, ...]:
        """The key to compare by: the larger, the better."""
        first = min(self.mode, Mode.PREEMPT)
        own_first = (-self.distance, self.mode) if rules.own_quota_first else (self.mode, -self.distance)
        return first, *own_first

    def ends_search(self, rules: Fungibility) -> bool:
        """Whether the flavors after this one need not be assessed."""
        if self.mode <= Mode.NO_CANDIDATES or (self.mode < Mode.FIT and rules.next_when_preempting):
            return False
        return self.distance == 0 or not rules.next_when_borrowing


def flavors_held(slice: Slice, pod_set: str) -> dict[str, FlavorName]:
    """The flavors that a pod set is charged by, by resource: those that it was admitted with, and those of what only
    its pods request."""
    observed = slice.observed.pod_sets.get(pod_set) if slice.observed is not None else None
    beyond = {resource: FlavorName(name) for resource, name in observed.flavors.items()} if observed is not None else {}
    return beyond | dict(slice.admission.flavors_of(pod_set) if slice.admission is not None else {})


def assign(slice: Slice, room: Room, *, replaced: Slice | None = None) -> Admission | Misfit:
    """Flavors with room now for every pod set of a slice, all or nothing."""
    nomination = nominate(slice, room, replaced=replaced)
    if isinstance(nomination, Misfit):
        return nomination
    return nomination.admission if nomination.mode is Mode.FIT else nomination.misfit


def nominate(slice: Slice, room: Room, *, replaced: Slice | None = None) -> Nomination | Misfit:
    """The best flavors for every pod set of a slice, all or nothing, also where that needs preemption.

    Pod sets are taken in order, each charged before the next. A replacement keeps the flavors of the slice that it
    replaces, even where another flavor has room. A pod set that has had no pods yet has no flavor to keep, and gets one
    only for pods.
    """
    taken: dict[FlavorResource, int] = {}
    assignments: list[PodSetAssignment] = []
    assessments: list[_Assessment] = []
    misfit: Misfit | None = None
    for pod_set in slice.pod_sets:
        sticky = flavors_held(replaced, pod_set.name) if replaced is not None else {}
        if not (pod_set.count or sticky):
            assignments.append(PodSetAssignment(name=pod_set.name, flavors={}, usage={}, count=0))
            continue
        by_resource = _assess_pod_set(pod_set, room, taken=taken, sticky=sticky)
        if isinstance(by_resource, Misfit):
            return _misfit_of(pod_set, by_resource)
        needs = _needs(pod_set, room.queue)
        for resource, assessment in by_resource.items():
            key = assessment.flavor, resource
            taken[key] = taken.get(key, 0) + needs[resource]
            if assessment.mode < Mode.FIT and misfit is None:
                misfit = _misfit_of(pod_set, Misfit(", ".join(assessment.reasons), " or ".join(assessment.lacking)))
        assessments += by_resource.values()
        flavors = {resource: assessment.flavor for resource, assessment in by_resource.items()}
        assignments.append(PodSetAssignment(name=pod_set.name, flavors=flavors, usage=needs, count=pod_set.count))
    return Nomination(
        admission=Admission(cluster_queue=room.queue.name, pod_sets=tuple(assignments)),
        mode=min((assessment.mode for assessment in assessments), default=Mode.FIT),
        distance=max((assessment.distance for assessment in assessments), default=0),
        short=frozenset(key for assessment in assessments for key in assessment.short),
        misfit=misfit or Misfit(""),
    )


def _misfit_of(pod_set: PodSet, misfit: Misfit) -> Misfit:
    return Misfit(f"couldn't assign flavors to pod set {pod_set.name}: {misfit.message}", misfit.lacking)


def assign_part(slice: Slice, room: Room, *, replaced: Slice) -> Admission | None:
    """Flavors for as many additional replicas as there is room for; None where there is no room for one.

    All growing pod sets get the same part of their growth, in whole replicas.
    """
    have = replaced.granted
    steps = max((_more_replicas(slice, pod_set, have) for pod_set in slice.pod_sets), default=0)
    best, low, high = None, 1, steps - 1
    while low <= high:
        step = (low + high) // 2
        part = assign(_grown_by(slice, have, step, steps), room, replaced=replaced)
        if isinstance(part, Misfit):
            high = step - 1
        else:
            best, low = part, step + 1
    return best


def _grown_by(slice: Slice, have: Mapping[str, int], step: int, steps: int) -> Slice:
    """The slice after so many steps of its growth; a pod set that shrinks does so in the first step."""
    pod_sets = []
    for pod_set in slice.pod_sets:
        now, size = have.get(pod_set.name, 0), slice.replica_sizes.get(pod_set.name, 1)
        more = _more_replicas(slice, pod_set, have) * step // steps
        whole = (now // size + more) * size
        pod_sets.append(msgspec.structs.replace(pod_set, count=min(pod_set.count, max(now, whole))))
    return msgspec.structs.replace(slice, pod_sets=tuple(pod_sets))


def _more_replicas(slice: Slice, pod_set: PodSet, have: Mapping[str, int]) -> int:
    """How many whole replicas a pod set is to get, one that has a part of its pods among them."""
    size = slice.replica_sizes.get(pod_set.name, 1)
    return max(0, pod_set.count // size - have.get(pod_set.name, 0) // size)


def _assess_pod_set(
    pod_set: PodSet, room: Room, *, taken: Usage, sticky: Mapping[str, FlavorName]
) -> dict[str, _Assessment] | Misfit:
    """The flavor of each resource."""
    if pod_set.devices is None and (claims := claims_of(pod_set.template.get("spec") or {})):
        return Misfit(f"it {why_not_charged(claims)}", "pods without claims of devices")
    needs = _needs(pod_set, room.queue)
    covered = {resource for group in room.queue.resource_groups for resource in group.resources}
    missing = sorted(resource for resource, value in needs.items() if value and resource not in covered)
    if missing:
        return Misfit(f"resource {missing[0]} unavailable in ClusterQueue", f"{missing[0]} in the ClusterQueue's quota")
    assessments: dict[str, _Assessment] = {}
    for group in room.queue.resource_groups:
        wanted = {resource: needs[resource] for resource in group.resources if resource in needs}
        if not wanted:
            continue
        assessment = _pick(pod_set, group, wanted, room=room, taken=taken, sticky=sticky)
        if isinstance(assessment, Misfit):
            return assessment
        assessments |= dict.fromkeys(wanted, assessment)
    return assessments


def _needs(pod_set: PodSet, queue: ClusterQueue) -> dict[str, int]:
    """What all pods of a pod set request; the pods themselves too where the queue has a quota for them. Without what
    nobody asked for and the queue has no quota for."""
    covered = {resource for group in queue.resource_groups for resource in group.resources}
    charged = {name: value for name, value in pod_set.charged.items() if name in covered or pod_set.is_asked_for(name)}
    needs = times(charged, pod_set.count)
    return needs | {_PODS: pod_set.count} if _PODS in covered else needs


def _pick(
    pod_set: PodSet,
    group: ResourceGroup,
    wanted: Mapping[str, int],
    *,
    room: Room,
    taken: Usage,
    sticky: Mapping[str, FlavorName],
) -> _Assessment | Misfit:
    """The best flavor of a group that suits the pods, as the queue ranks them."""
    kept = next((sticky[resource] for resource in wanted if resource in sticky), None)
    rules, best = room.queue.fungibility, _Assessment(FlavorName(""), Mode.NO_FIT)
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
        assessment = _assess_flavor(quota.name, wanted, room=room, taken=taken)
        reasons += assessment.reasons
        lacking += assessment.lacking
        if assessment.mode > Mode.NO_FIT and (not best.flavor or assessment.preference(rules) > best.preference(rules)):
            best = assessment
        if assessment.ends_search(rules):
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


def _assess_flavor(flavor: FlavorName, wanted: Mapping[str, int], *, room: Room, taken: Usage) -> _Assessment:
    """How a flavor could be assigned: as its worst resource."""
    assessments = [
        _assess_resource((flavor, resource), request + taken.get((flavor, resource), 0), room)
        for resource, request in wanted.items()
        if request
    ]
    if not assessments:
        return _Assessment(flavor, Mode.FIT)
    worst = min(assessments, key=lambda assessment: assessment.preference(room.queue.fungibility))
    return _Assessment(
        flavor,
        worst.mode,
        max(assessment.distance for assessment in assessments),
        frozenset(key for assessment in assessments for key in assessment.short),
        tuple(reason for assessment in assessments for reason in assessment.reasons),
        tuple(lacking for assessment in assessments for lacking in assessment.lacking),
    )


def _assess_resource(key: FlavorResource, need: int, room: Room) -> _Assessment:
    """How one resource of a flavor could be assigned."""
    flavor, resource = key
    lacking = need - room.available(key)
    if lacking <= 0:
        return _Assessment(flavor, Mode.FIT, room.node.distance(key, need)[0])
    where, more = f"{resource} in flavor {flavor}", format_amount(resource, lacking)
    wanting = (f"{more} more {where} of ClusterQueue {room.queue.name}",)
    if need > (capacity := room.node.capacity(key)):
        request, most = format_amount(resource, need), format_amount(resource, capacity)
        reason = f"insufficient quota for {where}, request > maximum capacity ({request} > {most})"
        return _Assessment(flavor, Mode.NO_FIT, reasons=(reason,), lacking=wanting)
    reasons = (f"insufficient unused quota for {where}, {more} more needed",)
    mode, distance = _assess_shortage(key, need, room)
    short = frozenset([key] if mode in (Mode.NO_CANDIDATES, Mode.PREEMPT, Mode.RECLAIM) else ())
    return _Assessment(flavor, mode, distance, short, reasons, wanting)


def _assess_shortage(key: FlavorResource, need: int, room: Room) -> tuple[Mode, int]:
    """How a resource without room now could be assigned, and from what distance."""
    node = room.projected or room.node
    distance, can_reclaim = node.distance(key, need)
    if room.victims is None:
        return Mode.NO_CANDIDATES, distance
    if need <= node.available(key):
        return Mode.AFTER_EVICTION, distance
    has_quota = need <= node.quota.get(key, 0)
    if has_quota or can_reclaim or room.may_preempt_to_borrow:
        return room.victims(key, need)
    return Mode.NO_FIT, distance
