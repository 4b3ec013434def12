"""Picks the worker cluster of a job. A chain stays on the cluster of its first slice until it is evicted.

Room is counted by flavor and resource, over all nodes of a cluster: what the nodes have, less what foreign pods use,
less what our chains there are granted. The cluster reports the first two. The third is the manager's own count; reports
leave our pods out. So nothing is counted twice, and a grant counts before any of its pods can be seen.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum, auto
from typing import Any

import msgspec

from slicebus.slices.quantities import add, format_amount
from slicebus.slices.quota import FlavorResource, Usage
from slicebus.slices.selectors import selects
from slicebus.slices.workload import FlavorName

Manifest = dict[str, Any]
NO_PLACE = "NoPlace"
"""The reason of a slice that fits the quota and no cluster."""
EVERYWHERE: Manifest = {}
"""A label selector that every cluster matches."""
_WHOLE = FlavorName("")
"""Stands for the whole cluster in place of a flavor."""
_UNLIMITED = "unlimited"
_GI = 1024**3
_MOST_NAMED = 5
"""So many clusters are named one by one."""


class Strategy(StrEnum):
    """How a cluster is picked among those with room."""

    SPREAD = auto()
    """The cluster with the fewest chains for its weight."""
    PACK = auto()
    """The cluster that is fullest in what the chain needs; those without a limit come last."""
    ORDERED = auto()
    """The cluster with the highest priority."""


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """A worker cluster as a place for jobs."""

    name: str
    accepted: bool
    cordoned: bool
    connected: bool
    draining: bool = False
    given_up: bool = False
    """Whether it may still have copies of jobs that were moved elsewhere."""
    weight: int = 1
    priority: int = 0
    labels: Mapping[str, str] = {}
    capacity: Mapping[FlavorName, Mapping[str, int]] | None = None
    """What its nodes have, by flavor and resource. None: it reports nothing, or scales without a limit."""
    others: Mapping[FlavorName, Mapping[str, int]] = {}
    """What foreign pods use of that."""
    unlimited: frozenset[FlavorName] = frozenset()
    """The flavors whose nodes it adds on demand."""

    def limit(self, key: FlavorResource) -> int | None:
        """What our chains may use of a flavor's resource; None without a limit, 0 where nothing is reported."""
        flavor, resource = key
        if self.capacity is None or flavor in self.unlimited:
            return None
        used = self.others.get(flavor, {}).get(resource, 0)
        return max(0, self.capacity.get(flavor, {}).get(resource, 0) - used)


class Fleet:
    """What is placed where, while a cycle places slices."""

    def __init__(
        self, clusters: Iterable[Cluster], load: Mapping[str, int], placed: Mapping[str, Mapping[FlavorResource, int]]
    ) -> None:
        """`load` has the number of chains on each cluster, `placed` what they are granted."""
        self._clusters = {cluster.name: cluster for cluster in sorted(clusters, key=lambda cluster: cluster.name)}
        self._load = dict(load)
        self._placed = dict(placed)

    def take(self, cluster: str, more: Mapping[FlavorResource, int], *, chains: int = 0) -> None:
        """Count what was placed on a cluster."""
        self._placed[cluster] = add(self._placed.get(cluster, {}), more)
        self._load[cluster] = self._load.get(cluster, 0) + chains

    def free(self, cluster: str, key: FlavorResource) -> int | None:
        """What is free on a cluster; None without a limit, and for an unknown cluster."""
        found = self._clusters.get(cluster)
        limit = found.limit(key) if found else None
        return None if limit is None else limit - self._placed.get(cluster, {}).get(key, 0)

    def short(self, cluster: str, needs: Usage) -> Usage:
        """What a cluster lacks for these needs; empty when they fit."""
        lacking: Usage = {}
        for key, need in needs.items():
            free = self.free(cluster, key)
            if need > 0 and free is not None and need > free:
                lacking[key] = need - free
        return lacking

    def candidates(
        self, strategy: Strategy, needs: Usage, *, selector: Manifest = EVERYWHERE, first: str | None = None
    ) -> Iterator[str]:
        """The clusters that take new chains, with room or without, the best first. Deterministic.

        `first` comes before the others if it is eligible: the cluster where a chain ran before has its copy.
        """

        def rank(cluster: Cluster) -> tuple[float, str]:
            match strategy:
                case Strategy.SPREAD:
                    return self._load.get(cluster.name, 0) / max(cluster.weight, 1), cluster.name
                case Strategy.PACK:
                    return self._emptiness(cluster, needs), cluster.name
                case Strategy.ORDERED:
                    return -cluster.priority, cluster.name

        eligible = (each for each in self._clusters.values() if not _obstacle(each, selector))
        return (cluster.name for cluster in sorted(eligible, key=lambda each: (each.name != first, rank(each))))

    def place(
        self, strategy: Strategy, needs: Usage, *, selector: Manifest = EVERYWHERE, first: str | None = None
    ) -> str | None:
        """The best cluster that has room; None without one."""
        ranked = self.candidates(strategy, needs, selector=selector, first=first)
        return next((name for name in ranked if not self.short(name, needs)), None)

    def why_not(self, tried: Sequence[Usage], *, selector: Manifest = EVERYWHERE) -> str:
        """Why no cluster takes it, cluster by cluster, first those that only lack room.

        `tried` are the needs in each choice of flavors.
        """
        if not self._clusters:
            return "there is no WorkerCluster"
        obstacles = {name: _obstacle(cluster, selector) for name, cluster in self._clusters.items()}
        ranked = sorted(self._clusters.values(), key=lambda cluster: obstacles[cluster.name] is not None)
        named = [f"{each.name} {obstacles[each.name] or self._lack(each, tried)}" for each in ranked[:_MOST_NAMED]]
        left = len(ranked) - len(named)
        return ", ".join([*named, *([f"and {left} more"] if left else [])])

    def _lack(self, cluster: Cluster, tried: Sequence[Usage]) -> str:
        lacks = [short for needs in tried if (short := self.short(cluster.name, needs))]
        reported = (cluster.capacity or {}).keys()
        unreported = sorted({flavor for short in lacks for flavor, _ in short} - reported)
        amounts = [describe(short) for short in lacks if all(flavor in reported for flavor, _ in short)]
        parts = [f"lacks {' or '.join(amounts)}"] if amounts else []
        return " and ".join([*parts, *(f"has not reported flavor {flavor}" for flavor in unreported)])

    def _emptiness(self, cluster: Cluster, needs: Usage) -> float:
        """The smallest free share of any needed resource; 2 without a limit."""
        shares = [2.0]
        for key in needs:
            free = self.free(cluster.name, key)
            if free is not None:
                flavor, resource = key
                total = (cluster.capacity or {}).get(flavor, {}).get(resource, 0)
                shares.append(free / total if total else 0.0)
        return min(shares)


def describe_room(cluster: Cluster, granted: Mapping[FlavorResource, int]) -> str:
    """The free room of a cluster by flavor: `default 12/40 cpu, 96/160Gi; spot 0/0 cpu`.

    It shows cpu, memory and devices, and `unlimited` where there is no limit. `granted` is what our chains have there.
    """
    if cluster.capacity is None:
        return _UNLIMITED
    flavors = sorted((cluster.capacity.keys() | cluster.unlimited) - {_WHOLE})
    return "; ".join(f"{flavor} {_room_in(cluster, flavor, granted)}" for flavor in flavors)


def _room_in(cluster: Cluster, flavor: FlavorName, granted: Mapping[FlavorResource, int]) -> str:
    if flavor in cluster.unlimited:
        return _UNLIMITED
    total = (cluster.capacity or {}).get(flavor, {})
    left = {name: max(0, (cluster.limit((flavor, name)) or 0) - granted.get((flavor, name), 0)) for name in total}
    devices = sorted(name for name in total if "/" in name and total[name])
    return ", ".join(
        [
            f"{left.get('cpu', 0) // 100 / 10:g}/{total.get('cpu', 0) // 100 / 10:g} cpu",
            *([f"{left['memory'] // _GI}/{total['memory'] // _GI}Gi"] if total.get("memory") else []),
            *(f"{left[name]}/{total[name]} {name}" for name in devices),
        ]
    )


def describe(short: Usage) -> str:
    """`3 more cpu in flavor default`, joined."""
    return " and ".join(
        f"{format_amount(resource, amount)} more {resource} in flavor {flavor}"
        for (flavor, resource), amount in sorted(short.items())
    )


def _obstacle(cluster: Cluster, selector: Manifest) -> str | None:
    if not cluster.accepted:
        return "is not accepted"
    if cluster.draining:
        return "is drained"
    if cluster.cordoned:
        return "is cordoned"
    if not cluster.connected:
        return "is not connected"
    if cluster.given_up:
        return "has still to remove jobs that went elsewhere"
    if not selects(selector, cluster.labels):
        return "is not among the clusters that the job selects"
    return None
