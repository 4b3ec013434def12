"""Gives quota that nobody waits for to running jobs that take more than somebody asked for.

It comes after everybody who waits has been decided: by the shares of queues, then by priority and age, in whole
replicas, and leaves a headroom of each queue's quota and of each cluster. What a job gets by this is free for whoever
comes later (`opportunistic`).
"""

from collections.abc import Callable, Collection, Iterator

import msgspec

from slicebus.slices.admission.sharing import share
from slicebus.slices.admission.snapshot import Snapshot
from slicebus.slices.admission.usage import QuotaUse
from slicebus.slices.api.kueue import Condition
from slicebus.slices.placement.placement import Placer
from slicebus.slices.quota.cohorts import Node
from slicebus.slices.quota.quota import ClusterQueue, FlavorResource, Usage
from slicebus.slices.workload.workload import Counts, Slice, SliceKey

_TURNS = 8
"""A job gets this part of what it may have at a time, and others get theirs in between."""


class Grow(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A chain may have more than somebody asked for; `key` is the slice that holds its quota.

    It asks for that by a slice of its own, which is admitted within the quota. Where `to` is what it holds, it asks for
    no more.
    """

    key: SliceKey
    to: Counts
    """Its pods by pod set."""
    asked: Counts
    """Those that somebody asked for."""


class _Taker:
    """A job that may grow, and what it gets."""

    def __init__(self, holder: Slice, nodes: tuple[Node, Node], wanted: Counts) -> None:
        """`nodes` are those of its queue in both trees; `wanted` the replicas that it may have in addition."""
        self.holder = holder
        self.nodes = nodes
        self.left = dict(wanted)
        self.given: Counts = {}

    @property
    def order(self) -> tuple[object, ...]:
        """The key to sort by, the first one first."""
        holder = self.holder
        return share(self.nodes[0]).order, -holder.priority, holder.ranked_since, holder.uid

    def needs(self, pod_set: str, replicas: int) -> Usage:
        """What so many replicas of a pod set use."""
        holder = self.holder
        assert holder.admission is not None
        assigned = next(each for each in holder.admission.pod_sets if each.name == pod_set)
        pods = replicas * holder.replica_sizes.get(pod_set, 1)
        return {
            (assigned.flavors[resource], resource): pods * amount
            for resource, amount in assigned.of_one.items()
            if resource in assigned.flavors
        }

    def decision(self) -> Grow:
        holder, held = self.holder, self.holder.held_counts
        to = {name: n + self.given.get(name, 0) * holder.replica_sizes.get(name, 1) for name, n in held.items()}
        asked = holder.reclaimed.asked if holder.reclaimed is not None else {}
        return Grow(key=holder.key, to=to, asked=asked or held)


class IdleQuota:
    """Gives idle quota away at the end of one cycle. The trees count opportunistic pods meanwhile."""

    def __init__(self, snapshot: Snapshot, use: QuotaUse, placer: Placer) -> None:
        self._snapshot = snapshot
        self._use = use
        self._placer = placer

    def grown(self) -> Iterator[Grow]:
        """The jobs that get more; none where the snapshot does not ask for it."""
        takers = [*self._takers()]
        got: list[_Taker] = []
        while takers:
            taker = min(takers, key=lambda each: each.order)
            if self._give(taker) and taker not in got:
                got.append(taker)
            if not taker.left:
                takers.remove(taker)
        return (taker.decision() for taker in got)

    def _takers(self) -> Iterator[_Taker]:
        rule, snapshot = self._snapshot.idle_growth, self._snapshot
        if rule is None:
            return
        waiting = {slice.chain_id for slice in snapshot.part.waiting}
        open_clusters = {each.name for each in snapshot.clusters if each.takes_more}
        for name, queue in snapshot.cluster_queues.items():
            if queue.held or not queue.opportunistic or self._use.current.problem(name) is not None:
                continue
            nodes = self._use.current.queues[name], self._use.projected.queues[name]
            for holder in snapshot.part.holdings.holders_in(name):
                is_here = holder.cluster in open_clusters and holder.chain_id not in waiting
                useful = rule.useful.get(holder.key, {})
                if is_here and self._may_grow(holder, rule.since) and (wanted := _wanted(holder, useful)):
                    yield _Taker(holder, nodes, wanted)

    def _may_grow(self, holder: Slice, since: str) -> bool:
        local = self._snapshot.local_queues.get(holder.local_queue)
        is_calm = _changed(holder) <= since and not (holder.reclaimable or holder.waits_for_pods)
        is_stable = holder.keeps_quota and not (self._use.is_evicted(holder) or self._use.is_shrinking(holder))
        has_budget = not self._snapshot.spent_budgets.stops_growth(holder)
        takes = is_calm and is_stable and has_budget and holder.active and holder.elastic
        return takes and local is not None and not local.held

    def _give(self, taker: _Taker) -> bool:
        """Give a job its next part of the first pod set that it may have more of; whether it got any."""
        pod_set, wanted = next(iter(taker.left.items()))
        possible = _most(wanted, lambda count: self._has_room(taker, taker.needs(pod_set, count)))
        replicas = -(-possible // _TURNS)
        taker.left[pod_set] -= replicas
        if replicas == possible:
            del taker.left[pod_set]
        if not replicas:
            return False
        taker.given[pod_set] = taker.given.get(pod_set, 0) + replicas
        needs = taker.needs(pod_set, replicas)
        for node in _distinct(taker.nodes):
            node.give(needs)
        self._placer.count(taker.holder.cluster or "", needs)
        return True

    def _has_room(self, taker: _Taker, needs: Usage) -> bool:
        rule = self._snapshot.idle_growth
        headroom = rule.headroom if rule is not None else 0.0

        def fits(node: Node, key: FlavorResource, need: int) -> bool:
            return node.available(key) - need >= headroom * node.capacity(key)

        has_quota = all(fits(node, key, need) for node in taker.nodes for key, need in needs.items())
        return has_quota and self._placer.leaves_headroom(taker.holder.cluster or "", needs, headroom)


def may_grow(slice: Slice, holder: Slice, queue: ClusterQueue) -> bool:
    """Whether the slice by which a job asks for more than somebody did may have that, as its job and its queue say by
    now: one of them may have been edited since."""
    held, most = holder.held_counts, holder.elasticity.most
    return queue.opportunistic and all(
        count <= max(held.get(name, 0), most.get(name, 0)) for name, count in slice.unfinished_counts.items()
    )


def _wanted(holder: Slice, useful: Counts) -> Counts:
    """How many replicas of each pod set a job takes in addition to those that it holds; `useful` as in `IdleGrowth`."""
    assert holder.admission is not None
    placed = {each.name for each in holder.admission.pod_sets if each.count and each.usage}
    wanted = {}
    for name, held in holder.held_counts.items():
        step, most = holder.replica_sizes.get(name, 1), holder.elasticity.most.get(name, held)
        if name in placed and (more := (min(most, useful.get(name, most)) - held) // step) > 0:
            wanted[name] = more
    return wanted


def _changed(holder: Slice) -> str:
    """When a job got quota, lost pods or was given more last, RFC 3339."""
    reserved: str = holder.conditions.get(Condition.QUOTA_RESERVED, {}).get("lastTransitionTime", "")
    return max(reserved, holder.grown_at, holder.reclaimed.at if holder.reclaimed is not None else "")


def _most(limit: int, holds: Callable[[int], bool]) -> int:
    """The largest number up to a limit for which it holds, if it holds for all smaller ones."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def _distinct(nodes: Collection[Node]) -> list[Node]:
    return list({id(node): node for node in nodes}.values())
