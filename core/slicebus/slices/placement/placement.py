"""Places a slice that fits the quota: on a cluster, with the flavors that it gets there."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import msgspec

from slicebus.slices.api import api_names
from slicebus.slices.api.kueue import INADMISSIBLE
from slicebus.slices.api.quantities import add
from slicebus.slices.api.selectors import parse_selector, problem_of_text
from slicebus.slices.placement.flavors import Misfit, Room, assign, assign_part
from slicebus.slices.placement.fleet import Fleet, Strategy, Tenant, describe
from slicebus.slices.placement.suitability import unsuitable
from slicebus.slices.quota.quota import ClusterQueue, FlavorResource, Usage
from slicebus.slices.workload.workload import Admission, Slice


class Placed(msgspec.Struct, frozen=True):
    """The cluster of a slice, and its admission there."""

    admission: Admission
    cluster: str


class Placer:
    """Places the slices of one cycle. What one slice takes, no later one gets."""

    def __init__(
        self, fleet: Fleet, strategy: Strategy, namespaces: Mapping[str, Mapping[str, str]] | None = None
    ) -> None:
        """`strategy` is for queues that name none. `namespaces` has the labels of each."""
        self._fleet = fleet
        self._strategy = strategy
        self._namespaces = namespaces or {}
        self._evicted: dict[str, Usage] = {}
        """What the evicted chains use, by cluster, and the pods that others lose."""

    def find(
        self, slice: Slice, admission: Admission, room: Room, *, own: Usage, replaced: Slice | None
    ) -> Placed | Misfit:
        """Find a place with room, or say why there is none. `own` is what the chain already holds of its queue."""
        if replaced is not None and replaced.cluster:
            return self._grow_in_place(slice, admission, room, own=own, replaced=replaced, cluster=replaced.cluster)
        return self._place(slice, admission, room)

    def take(self, placed: Placed, usage: Usage, *, own: Usage, replaced: Slice | None) -> None:
        """Count what a slice uses there, in place of what its chain was admitted with."""
        is_new = replaced is None or not replaced.cluster
        before = own if replaced is None else _as_admitted(own, replaced)
        more = {key: amount - before.get(key, 0) for key, amount in usage.items()}
        self._fleet.take(placed.cluster, more, chains=int(is_new))

    def evict(self, evicted: Iterable[Slice], *, times: int = 1) -> None:
        """Note evicted slices; `times` -1 takes that back."""
        for slice in evicted:
            if slice.cluster:
                self._note(slice.cluster, self._fleet.held(slice.cluster, slice), times=times)

    def shrink(self, shrunk: Iterable[tuple[Slice, Slice]], *, times: int = 1) -> None:
        """Note slices that lose pods, each with what is left of it; `times` -1 takes that back."""
        for slice, left in shrunk:
            if slice.cluster:
                self._note(slice.cluster, self._fleet.held(slice.cluster, slice), times=times)
                self._note(slice.cluster, self._fleet.held(slice.cluster, left), times=-times)

    def leaves_headroom(self, cluster: str, needs: Usage, headroom: float) -> bool:
        """Whether a cluster has room for these needs, and this part of it stays free."""
        return self._fleet.leaves_headroom(cluster, needs, headroom)

    def count(self, cluster: str, needs: Usage) -> None:
        """Count what a chain on a cluster will use in addition."""
        self._fleet.take(cluster, needs)

    def _note(self, cluster: str, held: Usage, *, times: int) -> None:
        usage = {key: times * amount for key, amount in held.items()}
        self._evicted[cluster] = add(self._evicted.get(cluster, {}), usage)

    @contextmanager
    def projected(self) -> Iterator[None]:
        """Count the clusters without the evicted slices and lost pods, while the context lasts."""
        for cluster, usage in self._evicted.items():
            self._fleet.take(cluster, {key: -amount for key, amount in usage.items()})
        try:
            yield
        finally:
            for cluster, usage in self._evicted.items():
                self._fleet.take(cluster, usage)

    def _grow_in_place(
        self, slice: Slice, admission: Admission, room: Room, *, own: Usage, replaced: Slice, cluster: str
    ) -> Placed | Misfit:
        """Let a chain grow on its cluster. It is charged only for pods that have room there."""
        beyond, before = replaced.beyond_admission, _as_admitted(own, replaced)
        short = self._fleet.short(cluster, self._more(slice, admission, before), beyond=beyond)
        if not short:
            return Placed(admission, cluster)

        def on_cluster(key: FlavorResource) -> int | None:
            free = self._fleet.free(cluster, key, beyond=beyond.get(key, 0))
            return None if free is None else free + before.get(key, 0)

        room_there = msgspec.structs.replace(room, victims=None, on_cluster=on_cluster)
        # A pod set that had no pods may get another flavor.
        fitting: Admission | Misfit | None = assign(slice, room_there, replaced=replaced)
        if isinstance(fitting, Misfit):
            fitting = assign_part(slice, room_there, replaced=replaced) if slice.partial else None
        if fitting is not None and not self._fleet.short(cluster, self._more(slice, fitting, before), beyond=beyond):
            return Placed(fitting, cluster)
        lacking = describe(short)
        message = f"cluster {cluster}, where the job runs, has no room for it: {lacking} needed"
        return Misfit(message, f"{lacking} on cluster {cluster}", api_names.NO_PLACE)

    def as_charged(self, slice: Slice, queue: ClusterQueue, *, cluster: str | None) -> Slice:
        """The slice with what its pods will request: on the cluster of its chain, else on whichever takes it."""
        if not self._fleet.adds_to_pods:
            return slice
        if cluster is not None:
            return self._fleet.charged_on(cluster, slice)
        try:
            return self._fleet.charged_anywhere(slice, self._tenant(slice, queue))
        except ValueError:  # Its cluster selector is none: `_place` says so.
            return slice

    def _charged_there(self, slice: Slice, admission: Admission, room: Room, *, cluster: str) -> Admission | Misfit:
        """The admission with what the pods will request on a cluster, in the flavors that the quota has for it."""
        there = self._fleet.charged_on(cluster, slice)
        return admission if there is slice else assign(there, msgspec.structs.replace(room, victims=None))

    @staticmethod
    def _more(slice: Slice, admission: Admission, own: Usage) -> Usage:
        return {key: need - own.get(key, 0) for key, need in usage_of(slice, admission).items()}

    def _tenant(self, slice: Slice, queue: ClusterQueue) -> Tenant:
        return Tenant(
            selector=parse_selector(slice.cluster_selector),
            namespace=slice.namespace,
            namespace_labels=self._namespaces.get(slice.namespace, {}),
            cluster_queue=queue.name,
            scheduler=slice.scheduler,
            avoids=slice.avoids,
        )

    def _place(self, slice: Slice, admission: Admission, room: Room) -> Placed | Misfit:
        """Find a cluster with room in the nominated flavors, else in later ones."""
        if wrong := _wrong_placement(slice, room.queue):
            return Misfit(wrong, reason=INADMISSIBLE)
        strategy = Strategy(room.queue.placement or self._strategy)
        tenant, needs = self._tenant(slice, room.queue), usage_of(slice, admission)
        added: list[str] = []
        for name in self._fleet.candidates(strategy, needs, tenant=tenant, first=slice.cluster):
            there = self._charged_there(slice, admission, room, cluster=name)
            if isinstance(there, Misfit):
                added.append(f"on {name} its pods request more: {there.message}")
            elif not self._fleet.short(name, usage_of(slice, there)):
                return Placed(there, name)
        alternatives: list[tuple[list[int], str, Admission]] = []
        has_choice = any(len(group.flavors) > 1 for group in room.queue.resource_groups)
        ranked = self._fleet.candidates(strategy, needs, tenant=tenant, first=slice.cluster)
        for name in ranked if has_choice else ():
            room_there = msgspec.structs.replace(room, victims=None, on_cluster=partial(self._fleet.free, name))
            fitting = assign(self._fleet.charged_on(name, slice), room_there)
            if isinstance(fitting, Admission) and not self._fleet.short(name, usage_of(slice, fitting)):
                alternatives.append((_flavor_ranks(fitting, room.queue), name, fitting))
        if alternatives:
            _, cluster, admission = min(alternatives, key=lambda other: other[0])
            return Placed(admission, cluster)
        tried, over_quota = [needs], list[Usage]()
        for other in _in_other_flavors(slice, needs, room):
            over = {key: need - room.available(key) for key, need in other.items() if need > room.available(key)}
            if over:
                over_quota.append(over)
            else:
                tried.append(other)
        obstacles = [self._fleet.why_not(tried, tenant=tenant)]
        obstacles += [f"the quota lacks {describe(over)}" for over in over_quota] + added
        message = f"no worker cluster can take it: {'; '.join(obstacles)}"
        return Misfit(message, "a worker cluster with room for it", api_names.NO_PLACE)


def usage_of(slice: Slice, admission: Admission) -> Usage:
    """What a slice would use with an admission."""
    return msgspec.structs.replace(slice, admission=admission).usage


def _as_admitted(own: Usage, holder: Slice) -> Usage:
    """What a chain holds, as its holder was admitted: so clusters count it."""
    beyond = holder.beyond_admission
    return {key: amount - beyond.get(key, 0) for key, amount in own.items()} if beyond else own


def _in_other_flavors(slice: Slice, needs: Usage, room: Room) -> Iterator[Usage]:
    """What a slice would use in each other flavor that suits all its pods, one resource group at a time."""
    for group in room.queue.resource_groups:
        wanted: dict[str, int] = {}
        for (_, resource), need in needs.items():
            if resource in group.resources:
                wanted[resource] = wanted.get(resource, 0) + need
        for quota in group.flavors:
            used = {(quota.name, resource): amount for resource, amount in wanted.items()}
            if used.keys() <= needs.keys() or (flavor := room.flavors.get(quota.name)) is None:
                continue
            if not any(unsuitable(pods, flavor, group, room.flavors) for pods in slice.pod_sets):
                yield used


def _wrong_placement(slice: Slice, queue: ClusterQueue) -> str | None:
    """The setting that has to be corrected before a cluster can be picked; None where all are valid."""
    if queue.placement and queue.placement not in [*Strategy]:
        return f"ClusterQueue {queue.name} wants placement {queue.placement!r}, and knows only {', '.join(Strategy)}"
    if wrong := problem_of_text(slice.cluster_selector):
        return f"the annotation {api_names.CLUSTER_SELECTOR_ANNOTATION} is no label selector: {wrong}"
    return None


def _flavor_ranks(admission: Admission, queue: ClusterQueue) -> list[int]:
    """The places of an admission's flavors in their groups: the queue prefers lower ones."""
    place = {
        (resource, quota.name): number
        for group in queue.resource_groups
        for resource in group.resources
        for number, quota in enumerate(group.flavors)
    }
    return [place[named] for assignment in admission.pod_sets for named in assignment.flavors.items()]
