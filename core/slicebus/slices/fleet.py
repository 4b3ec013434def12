"""Which worker cluster a job runs on. A chain stays where its first slice went, until it is evicted.

Room is counted by flavor and resource, over all nodes of a cluster together: what the nodes have, less what is used
there by others, less what our chains there have been granted. The cluster reports the first two. The third is our own
account, and only that: what a report says of our pods is left out of it, so nothing is counted twice, and what was
granted a moment ago counts before any pod of it can be seen.
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
"""The reason of a slice that has room in the quota, and none on a cluster."""
EVERYWHERE: Manifest = {}
"""A label selector that every cluster matches."""
_WHOLE = FlavorName("")
"""In place of a flavor: a cluster as a whole."""
_UNLIMITED = "unlimited"
_GI = 1024**3
_TOLD = 5
"""So many clusters are told of one by one."""


class Strategy(StrEnum):
    """Which of the clusters that have room gets a chain."""

    SPREAD = auto()
    """The one with the fewest chains for its weight."""
    PACK = auto()
    """The one that is fullest in what the chain needs; those without a limit come last."""
    ORDERED = auto()
    """The one with the highest priority."""


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """A worker cluster as a place for jobs."""

    name: str
    accepted: bool
    cordoned: bool
    connected: bool
    draining: bool = False
    given_up: bool = False
    """Whether it may have copies left of jobs that went elsewhere."""
    weight: int = 1
    priority: int = 0
    labels: Mapping[str, str] = {}
    capacity: Mapping[FlavorName, Mapping[str, int]] | None = None
    """What its nodes have, by flavor and resource. None: it does not say, or grows as it has to."""
    others: Mapping[FlavorName, Mapping[str, int]] = {}
    """What is used of that by what is not ours."""
    unlimited: frozenset[FlavorName] = frozenset()
    """The flavors that it makes nodes of as it has to."""

    def limit(self, key: FlavorResource) -> int | None:
        """What our chains may use of a resource in a flavor; None without a limit, 0 where nothing is reported."""
        flavor, resource = key
        if self.capacity is None or flavor in self.unlimited:
            return None
        used = self.others.get(flavor, {}).get(resource, 0)
        return max(0, self.capacity.get(flavor, {}).get(resource, 0) - used)


class Fleet:
    """The running account of what is where, while places are given."""

    def __init__(
        self, clusters: Iterable[Cluster], load: Mapping[str, int], placed: Mapping[str, Mapping[FlavorResource, int]]
    ) -> None:
        """`load` are chains by cluster, `placed` what they were granted there."""
        self._clusters = {cluster.name: cluster for cluster in sorted(clusters, key=lambda cluster: cluster.name)}
        self._load = dict(load)
        self._placed = dict(placed)

    def take(self, cluster: str, more: Mapping[FlavorResource, int], *, chains: int = 0) -> None:
        """Note what was given on a cluster."""
        self._placed[cluster] = add(self._placed.get(cluster, {}), more)
        self._load[cluster] = self._load.get(cluster, 0) + chains

    def free(self, cluster: str, key: FlavorResource) -> int | None:
        """What is left for us on a cluster; None without a limit, or of a cluster that is not there."""
        found = self._clusters.get(cluster)
        limit = found.limit(key) if found else None
        return None if limit is None else limit - self._placed.get(cluster, {}).get(key, 0)

    def short(self, cluster: str, needs: Usage) -> Usage:
        """How much more of what a cluster would need to have, for this to fit as well; empty when it fits."""
        lacking: Usage = {}
        for key, need in needs.items():
            free = self.free(cluster, key)
            if need > 0 and free is not None and need > free:
                lacking[key] = need - free
        return lacking

    def candidates(
        self, strategy: Strategy, needs: Usage, *, selector: Manifest = EVERYWHERE, first: str | None = None
    ) -> Iterator[str]:
        """The clusters that take new chains, with room or without, the best first. The same every time.

        `first` comes before the others if it is eligible: where a chain has run before, its copy is.
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
        """Why no cluster takes it, one by one, those first that would with more room.

        `tried` is what was to be placed, in each choice of flavors.
        """
        if not self._clusters:
            return "there is no WorkerCluster"
        obstacles = {name: _obstacle(cluster, selector) for name, cluster in self._clusters.items()}
        ranked = sorted(self._clusters.values(), key=lambda cluster: obstacles[cluster.name] is not None)
        told = [f"{each.name} {obstacles[each.name] or self._lack(each, tried)}" for each in ranked[:_TOLD]]
        left = len(ranked) - len(told)
        return ", ".join([*told, *([f"and {left} more"] if left else [])])

    def _lack(self, cluster: Cluster, tried: Sequence[Usage]) -> str:
        lacks = [short for needs in tried if (short := self.short(cluster.name, needs))]
        reported = (cluster.capacity or {}).keys()
        unsaid = sorted({flavor for short in lacks for flavor, _ in short} - reported)
        amounts = [describe(short) for short in lacks if all(flavor in reported for flavor, _ in short)]
        said = [f"lacks {' or '.join(amounts)}"] if amounts else []
        return " and ".join([*said, *(f"has not reported flavor {flavor}" for flavor in unsaid)])

    def _emptiness(self, cluster: Cluster, needs: Usage) -> float:
        """The share that is left of what is needed, of the resource that there is least of; 2 without a limit."""
        shares = [2.0]
        for key in needs:
            free = self.free(cluster.name, key)
            if free is not None:
                flavor, resource = key
                total = (cluster.capacity or {}).get(flavor, {}).get(resource, 0)
                shares.append(free / total if total else 0.0)
        return min(shares)


def describe_room(cluster: Cluster, granted: Mapping[FlavorResource, int]) -> str:
    """What is left of what its nodes have, by flavor: `default 12/40 cpu, 96/160Gi; spot 0/0 cpu`.

    Shown are cpu, memory, and devices. `granted` is what our chains have there; `unlimited` where nothing limits them.
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
