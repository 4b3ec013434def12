"""Finds a place for a slice that has room in the quota: a cluster, and the flavors that it gets there."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial

import msgspec

from slicebus.slices import kueue
from slicebus.slices.flavors import Misfit, Room, assign, assign_part
from slicebus.slices.fleet import NO_PLACE, Fleet, Strategy, describe
from slicebus.slices.kueue import INADMISSIBLE
from slicebus.slices.quantities import add
from slicebus.slices.quota import ClusterQueue, FlavorResource, Usage
from slicebus.slices.selectors import parse_selector
from slicebus.slices.suitability import unsuitable
from slicebus.slices.workload import Admission, Slice


class Placed(msgspec.Struct, frozen=True):
    """Where a slice runs, and what it gets there."""

    admission: Admission
    cluster: str


class Placer:
    """Of one cycle: what it is told to `take` is gone for those after it."""

    def __init__(self, fleet: Fleet, strategy: Strategy) -> None:
        """`strategy` is for queues that do not name one."""
        self._fleet = fleet
        self._strategy = strategy
        self._leaving: dict[str, Usage] = {}
        """What chains that are evicted have on their clusters."""

    def find(
        self, slice: Slice, found: Admission, room: Room, *, own: Usage, replaced: Slice | None
    ) -> Placed | Misfit:
        """A place with room. `own` is what the chain has already."""
        if replaced is not None and replaced.cluster:
            return self._stay(slice, found, room, own=own, replaced=replaced, cluster=replaced.cluster)
        return self._place(slice, found, room)

    def take(self, placed: Placed, usage: Usage, *, own: Usage, is_new: bool) -> None:
        """Note what a slice uses there, in place of what its chain had."""
        more = {key: amount - own.get(key, 0) for key, amount in usage.items()}
        self._fleet.take(placed.cluster, more, chains=int(is_new))

    def leave(self, evicted: Iterable[Slice], *, times: int = 1) -> None:
        """Note who will be gone; `times` -1 for those who stay after all."""
        for slice in evicted:
            if slice.cluster:
                usage = {key: times * amount for key, amount in slice.usage().items()}
                self._leaving[slice.cluster] = add(self._leaving.get(slice.cluster, {}), usage)

    @contextmanager
    def later(self) -> Iterator[None]:
        """As the clusters will be, without those who leave."""
        for cluster, usage in self._leaving.items():
            self._fleet.take(cluster, {key: -amount for key, amount in usage.items()})
        yield
        for cluster, usage in self._leaving.items():
            self._fleet.take(cluster, usage)

    def _stay(
        self, slice: Slice, found: Admission, room: Room, *, own: Usage, replaced: Slice, cluster: str
    ) -> Placed | Misfit:
        """A chain grows where it is. Its quota is not taken for pods that have no room there."""
        more = {key: need - own.get(key, 0) for key, need in usage_of(slice, found).items()}
        short = self._fleet.short(cluster, more)
        if not short:
            return Placed(found, cluster)

        def on_cluster(key: FlavorResource) -> int | None:
            free = self._fleet.free(cluster, key)
            return None if free is None else free + own.get(key, 0)

        there = msgspec.structs.replace(room, victims=None, on_cluster=on_cluster)
        part = assign_part(slice, there, replaced=replaced) if slice.partial else None
        if part is not None:
            return Placed(part, cluster)
        lacking = describe(short)
        message = f"cluster {cluster}, where the job runs, has no room for it: {lacking} needed"
        return Misfit(message, f"{lacking} on cluster {cluster}", NO_PLACE)

    def _place(self, slice: Slice, found: Admission, room: Room) -> Placed | Misfit:
        """A cluster with room in the flavors that the quota would give, else in others that come after them."""
        if wrong := _wrong_placement(slice, room.queue):
            return Misfit(wrong, reason=INADMISSIBLE)
        strategy = Strategy(room.queue.placement or self._strategy)
        selector, needs = parse_selector(slice.cluster_selector), usage_of(slice, found)
        if cluster := self._fleet.place(strategy, needs, selector=selector, first=slice.cluster):
            return Placed(found, cluster)
        others: list[tuple[list[int], str, Admission]] = []
        has_choice = any(len(group.flavors) > 1 for group in room.queue.resource_groups)
        ranked = self._fleet.candidates(strategy, needs, selector=selector, first=slice.cluster)
        for name in ranked if has_choice else ():
            there = msgspec.structs.replace(room, victims=None, on_cluster=partial(self._fleet.free, name))
            fitting = assign(slice, there)
            if isinstance(fitting, Admission):
                others.append((_flavor_ranks(fitting, room.queue), name, fitting))
        if others:
            _, cluster, found = min(others, key=lambda other: other[0])
            return Placed(found, cluster)
        tried, over_quota = [needs], list[Usage]()
        for other in _in_other_flavors(slice, needs, room):
            over = {key: need - room.available(key) for key, need in other.items() if need > room.available(key)}
            if over:
                over_quota.append(over)
            else:
                tried.append(other)
        obstacles = [self._fleet.why_not(tried, selector=selector)]
        obstacles += [f"the quota lacks {describe(over)}" for over in over_quota]
        message = f"no worker cluster can take it: {'; '.join(obstacles)}"
        return Misfit(message, "a worker cluster with room for it", NO_PLACE)


def usage_of(slice: Slice, admission: Admission) -> Usage:
    """What a slice uses with an admission."""
    return msgspec.structs.replace(slice, admission=admission).usage()


def _in_other_flavors(slice: Slice, needs: Usage, room: Room) -> Iterator[Usage]:
    """What a slice would use of each group of resources in each other flavor that all its pods suit."""
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
