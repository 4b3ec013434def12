"""The builtin admission: which pending slices get quota and a cluster now, why the others wait, and who loses quota.

`cycle` is one pass over everything that is pending. Each admission is charged before the next slice is looked at, so a
cycle never gives more than there is, whichever of its decisions get written; a slice that replaces another is charged
the difference.
"""

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any

import msgspec

from slicebus.slices import kueue
from slicebus.slices.cohorts import grow
from slicebus.slices.flavors import Misfit, Room, assign, assign_part
from slicebus.slices.kueue import EvictionReason
from slicebus.slices.placement import NO_PLACE, Cluster, Fleet, Strategy, describe
from slicebus.slices.quantities import format_amount, larger
from slicebus.slices.quota import (
    ChainInQueue,
    ClusterQueue,
    Cohort,
    FlavorResource,
    LocalQueue,
    ResourceFlavor,
    Usage,
    holders,
    total_by_queue,
    usage_by_chain,
)
from slicebus.slices.selectors import parse_selector, selects
from slicebus.slices.workload import Admission, Slice, SliceKey

Manifest = dict[str, Any]

PENDING = "Pending"
INADMISSIBLE = "Inadmissible"


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a cycle decides by."""

    cluster_queues: Mapping[str, ClusterQueue]
    cohorts: tuple[Cohort, ...]
    local_queues: Mapping[tuple[str, str], LocalQueue]
    """By namespace and name."""
    flavors: Mapping[str, ResourceFlavor]
    namespaces: Mapping[str, Mapping[str, str]]
    """Labels by namespace."""
    slices: tuple[Slice, ...]
    clusters: tuple[Cluster, ...]
    load: Mapping[str, int]
    """Chains by worker cluster, also of jobs that are not among the slices."""
    granted: Mapping[str, Mapping[FlavorResource, int]] = {}
    """What these chains together were granted, by worker cluster."""
    strategy: Strategy = Strategy.SPREAD
    """For queues that do not name another."""


class Admit(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A slice gets quota and a cluster."""

    key: SliceKey
    admission: Admission
    cluster: str


class Wait(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A slice waits."""

    key: SliceKey
    reason: str
    message: str
    would_admit: str = ""


class Evict(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The slice that holds a chain's quota is to give it back, and the whole chain with it.

    The quota stays charged until the worker has no pod of it left: `Slice.evicting`.
    """

    key: SliceKey
    reason: EvictionReason
    message: str
    preemption: str = ""
    """The `PreemptionReason`, where it is a preemption."""


Decision = Admit | Wait | Evict


class _Cycle:
    """The running account of one pass."""

    def __init__(self, snapshot: Snapshot, evicted: Collection[SliceKey]) -> None:
        self.snapshot = snapshot
        self.evicted = evicted
        self.held = holders(snapshot.slices)
        self.charged = usage_by_chain(snapshot.slices)
        self.forest = grow(snapshot.cluster_queues.values(), snapshot.cohorts, total_by_queue(self.charged))
        self.blocked: set[str] = set()
        self.fleet = Fleet(snapshot.clusters, snapshot.load, snapshot.granted)

    def decide(self, slice: Slice) -> Decision:
        queue = self._queue_of(slice)
        if isinstance(queue, str):
            return Wait(key=slice.key, reason=INADMISSIBLE, message=queue)
        if queue.name in self.blocked:
            message = f"waits behind the head of the StrictFIFO ClusterQueue {queue.name}"
            return Wait(key=slice.key, reason=PENDING, message=message, would_admit="the workloads before it")
        decision = self._fit(slice, queue)
        if isinstance(decision, Wait) and queue.strict_fifo:
            self.blocked.add(queue.name)
        return decision

    def _queue_of(self, slice: Slice) -> ClusterQueue | str:
        """The queue of a slice, or why it cannot be used."""
        local = self.snapshot.local_queues.get((slice.namespace, slice.queue))
        if local is None:
            return f"LocalQueue {slice.queue} doesn't exist"
        queue = self.snapshot.cluster_queues.get(local.cluster_queue)
        if queue is None:
            return f"ClusterQueue {local.cluster_queue} doesn't exist"
        if local.held:
            return f"LocalQueue {slice.queue} is stopped"
        if queue.held:
            return f"ClusterQueue {queue.name} is stopped"
        labels = self.snapshot.namespaces.get(slice.namespace, {})
        if queue.namespace_selector is None or not selects(queue.namespace_selector, labels):
            return "Workload namespace doesn't match ClusterQueue selector"
        if circle := self.forest.circles.get(queue.name):
            return f"the cohorts {' and '.join(circle)} are each other's parent"
        return queue

    def _fit(self, slice: Slice, queue: ClusterQueue) -> Decision:
        replaced = self.held.get(slice.chain_id)
        if replaced is not None and replaced.key != slice.replaces:
            message = "the slice that it replaces is not the one that holds the job's quota"
            return Wait(key=slice.key, reason=PENDING, message=message)
        if replaced is not None and (replaced.evicted or replaced.key in self.evicted):
            return Wait(key=slice.key, reason=PENDING, message="the job is evicted, and comes back at its spec's size")
        node, own = self.forest.queues[queue.name], _replaced(self.charged, (queue.name, slice.chain_id))
        node.use_all(own, times=-1)
        room = Room(queue, self.snapshot.flavors, node)
        found = assign(slice, room, replaced=replaced)
        if isinstance(found, Misfit) and slice.partial and replaced is not None:
            found = assign_part(slice, room, replaced=replaced) or found
        if isinstance(found, Misfit):
            decision: Decision = Wait(key=slice.key, reason=PENDING, message=found.message, would_admit=found.lacking)
        elif replaced is not None and replaced.cluster:
            decision = self._stay(slice, found, room, replaced=replaced, cluster=replaced.cluster)
        else:
            decision = self._place(slice, found, room)
        node.use_all(own)
        if isinstance(decision, Admit):
            self._charge(slice, decision, first=replaced is None or not replaced.cluster)
        return decision

    def _stay(self, slice: Slice, found: Admission, room: Room, *, replaced: Slice, cluster: str) -> Decision:
        """A chain grows where it is. Its quota is not taken for pods that have no room there."""
        own = _replaced(self.charged, (room.queue.name, slice.chain_id))
        more = {key: need - own.get(key, 0) for key, need in usage_of(slice, found).items()}
        short = self.fleet.short(cluster, more)
        if not short:
            return Admit(key=slice.key, admission=found, cluster=cluster)

        def on_cluster(key: FlavorResource) -> int | None:
            free = self.fleet.free(cluster, key)
            return None if free is None else free + own.get(key, 0)

        there = msgspec.structs.replace(room, on_cluster=on_cluster)
        part = assign_part(slice, there, replaced=replaced) if slice.partial else None
        if part is not None:
            return Admit(key=slice.key, admission=part, cluster=cluster)
        lacking = describe(short)
        message = f"cluster {cluster}, where the job runs, has no room for it: {lacking} needed"
        return Wait(key=slice.key, reason=NO_PLACE, message=message, would_admit=f"{lacking} on cluster {cluster}")

    def _place(self, slice: Slice, found: Admission, room: Room) -> Decision:
        """A cluster with room in the flavors that the quota would give, else in others that come after them."""
        if wrong := _wrong_placement(slice, room.queue):
            return Wait(key=slice.key, reason=INADMISSIBLE, message=wrong)
        strategy = Strategy(room.queue.placement or self.snapshot.strategy)
        selector, needs = parse_selector(slice.cluster_selector), usage_of(slice, found)
        if cluster := self.fleet.place(strategy, needs, selector=selector):
            return Admit(key=slice.key, admission=found, cluster=cluster)
        others: list[tuple[list[int], str, Admission]] = []
        has_choice = any(len(group.flavors) > 1 for group in room.queue.resource_groups)
        for name in self.fleet.candidates(strategy, needs, selector=selector) if has_choice else ():
            there = msgspec.structs.replace(room, on_cluster=partial(self.fleet.free, name))
            fitting = assign(slice, there)
            if isinstance(fitting, Admission):
                others.append((_flavor_ranks(fitting, room.queue), name, fitting))
        if others:
            _, cluster, found = min(others, key=lambda other: other[0])
            return Admit(key=slice.key, admission=found, cluster=cluster)
        obstacles = self.fleet.why_not(needs, selector=selector)
        message = f"no worker cluster can take it: {obstacles}"
        return Wait(key=slice.key, reason=NO_PLACE, message=message, would_admit="a worker cluster with room for it")

    def _charge(self, slice: Slice, given: Admit, *, first: bool) -> None:
        admission = given.admission
        admitted = msgspec.structs.replace(slice, admission=admission, cluster=given.cluster)
        self.held[slice.chain_id] = admitted
        key = admission.cluster_queue, slice.chain_id
        node, before = self.forest.queues[admission.cluster_queue], self.charged.get(key, {})
        self.charged[key] = larger(before, admitted.usage())
        node.use_all(before, times=-1)
        node.use_all(self.charged[key])
        more = {name: amount - before.get(name, 0) for name, amount in self.charged[key].items()}
        self.fleet.take(given.cluster, more, chains=int(first))


def cycle(snapshot: Snapshot) -> list[Decision]:
    """Who loses its quota, then a decision for every pending slice, by priority, then age.

    BestEffortFIFO lets later slices pass one that waits, StrictFIFO does not. The same snapshot gives the same answer.
    """
    evictions, pending = stopped(snapshot), in_order(snapshot.slices)
    if not pending:
        return [*evictions]
    account = _Cycle(snapshot, {eviction.key for eviction in evictions})
    return [*evictions, *(account.decide(slice) for slice in pending)]


def stopped(snapshot: Snapshot) -> list[Evict]:
    """The holders of quota that somebody has stopped: deactivated, or in a queue that is drained."""
    queues = {name for name, queue in snapshot.cluster_queues.items() if queue.drained}
    locals = {key for key, queue in snapshot.local_queues.items() if queue.drained}

    def reason(slice: Slice) -> tuple[EvictionReason, str] | None:
        if slice.admission is None or slice.finished or slice.evicted or slice.deleting:
            return None
        if not slice.active:
            return EvictionReason.DEACTIVATED, "The workload is deactivated"
        if (slice.namespace, slice.queue) in locals:
            return EvictionReason.LOCAL_QUEUE_STOPPED, "The LocalQueue is stopped"
        if slice.admission.cluster_queue in queues:
            return EvictionReason.CLUSTER_QUEUE_STOPPED, "The ClusterQueue is stopped"
        return None

    found = [(slice, why) for slice in snapshot.slices if (why := reason(slice))]
    standing = holders(snapshot.slices) if found else {}
    return [
        Evict(key=slice.key, reason=why[0], message=why[1]) for slice, why in found if standing[slice.chain_id] is slice
    ]


def in_order(slices: Iterable[Slice]) -> list[Slice]:
    """Those that are to be looked at, in the order in which they are."""
    return sorted(filter(is_pending, slices), key=_order)


def is_pending(slice: Slice) -> bool:
    """Whether a slice is to be looked at: it wants quota and has none. One that was evicted comes back."""
    return slice.active and slice.admission is None and not (slice.finished or slice.deleting)


def admission_manifest(admission: Admission) -> Manifest:
    """A Workload's `status.admission`."""
    return {
        "clusterQueue": admission.cluster_queue,
        "podSetAssignments": [
            {
                "name": assignment.name,
                "flavors": dict(assignment.flavors),
                "resourceUsage": {
                    resource: format_amount(resource, value) for resource, value in assignment.usage.items()
                },
                "count": assignment.count,
            }
            for assignment in admission.pod_sets
        ],
    }


def _order(slice: Slice) -> tuple[int, str, str]:
    return -slice.priority, slice.created, slice.uid


def usage_of(slice: Slice, admission: Admission) -> Usage:
    """What a slice uses with an admission."""
    return msgspec.structs.replace(slice, admission=admission).usage()


def _wrong_placement(slice: Slice, queue: ClusterQueue) -> str | None:
    """What somebody has to correct before a cluster can be picked."""
    if queue.placement and queue.placement not in [*Strategy]:
        return f"ClusterQueue {queue.name} wants placement {queue.placement!r}, and knows only {', '.join(Strategy)}"
    try:
        parse_selector(slice.cluster_selector)
    except ValueError as error:
        return f"the annotation {kueue.CLUSTER_SELECTOR_ANNOTATION} is no label selector: {error}"
    return None


def _flavor_ranks(admission: Admission, queue: ClusterQueue) -> list[int]:
    """Where the flavors of an admission stand in their groups: the lower, the sooner the queue gives them."""
    place = {
        (resource, quota.name): number
        for group in queue.resource_groups
        for resource in group.resources
        for number, quota in enumerate(group.flavors)
    }
    return [place[named] for assignment in admission.pod_sets for named in assignment.flavors.items()]


def _replaced(charged: Mapping[ChainInQueue, Usage], chain: ChainInQueue) -> Usage:
    """What a chain holds already: of its next slice only the difference is charged."""
    return charged.get(chain, {})
