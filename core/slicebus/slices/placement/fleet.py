"""Picks the worker cluster of a job. A chain stays on the cluster of its first slice until it is evicted.

Room is counted by flavor and resource, over all nodes of a cluster: what the nodes have, less what foreign pods use,
less what our chains there are granted. The cluster reports the first two and leaves our pods out. The manager counts
the third itself. So nothing is counted twice, and a grant counts before any of its pods can be seen.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum, auto
from typing import Any

import msgspec

from slicebus.slices.api.quantities import add, format_amount
from slicebus.slices.api.selectors import selects
from slicebus.slices.quota.quota import FlavorResource, Usage
from slicebus.slices.workload.pod_additions import PodAdditions, least
from slicebus.slices.workload.workload import FlavorName, Slice

Manifest = dict[str, Any]
EVERYWHERE: Manifest = {}
"""A label selector that everything matches."""
NO_ADDITIONS = PodAdditions()
NOTHING: Usage = {}
_WHOLE = FlavorName("")
"""Stands for the whole cluster in place of a flavor."""
_UNLIMITED = "unlimited"
_GI = 1024**3
_CAP = FlavorName("maxRoom")
"""Stands for a cluster's cap in place of a flavor. No flavor has capital letters."""
_MOST_NAMED = 5
"""Most clusters that are named one by one."""
_LACKS = {
    "NotFound": "has no namespace {}",
    "Terminating": "is removing its namespace {}",
    "NamespaceNotAllowed": "does not allow jobs in namespace {}",
}
"""By the reason that an agent reports."""


class Strategy(StrEnum):
    """How a cluster is picked among those with room."""

    SPREAD = auto()
    """The cluster with the fewest chains for its weight."""
    PACK = auto()
    """The cluster that is fullest in what the chain needs; those without a limit come last."""
    ORDERED = auto()
    """The cluster with the highest priority."""


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    """Describes whose job wants a place: what a cluster's rules ask, beside its room."""

    selector: Manifest = EVERYWHERE
    """The clusters that the job selects."""
    namespace: str = ""
    namespace_labels: Mapping[str, str] = {}
    cluster_queue: str = ""
    scheduler: str = ""
    """The scheduler backend that the job chooses; empty for that of the cluster."""
    avoids: Collection[str] = ()
    """The clusters that it does not go to now."""


ANYBODY = Tenant()


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
    """What its nodes have, by flavor and resource; None where it scales without a limit."""
    others: Mapping[FlavorName, Mapping[str, int]] = {}
    """What foreign pods use of that."""
    unlimited: frozenset[FlavorName] = frozenset()
    """The flavors whose nodes it adds on demand."""
    namespace_selector: Manifest = EVERYWHERE
    """The namespaces whose jobs it takes."""
    cluster_queues: frozenset[str] | None = None
    """The ClusterQueues whose jobs it takes; None for all."""
    lacking: Mapping[str, str] = {}
    """The namespaces of which it takes no jobs, by its agent's report, with the reason."""
    scheduler_backends: tuple[str, ...] = ()
    """The scheduler backends that jobs can choose there, by its agent's report."""
    additions: PodAdditions = NO_ADDITIONS
    """What it adds to the requests of pods, by its agent's report."""
    max_room: Mapping[str, int] = {}
    """The most that our chains are granted there, by resource over all flavors, whatever its agent reports."""

    @property
    def takes_more(self) -> bool:
        """Whether it takes pods of new chains, as far as itself is concerned."""
        return self.accepted and self.connected and not (self.cordoned or self.draining or self.given_up)

    def limit(self, key: FlavorResource, *, but: int = 0) -> int | None:
        """What our chains may use of a flavor's resource; None without a limit, 0 where nothing is reported. `but`: so
        much of what others use is left out, if it is that much."""
        flavor, resource = key
        if self.capacity is None or flavor in self.unlimited:
            return None
        used = max(0, self.others.get(flavor, {}).get(resource, 0) - but)
        return max(0, self.capacity.get(flavor, {}).get(resource, 0) - used)

    def total(self, key: FlavorResource) -> int:
        """The whole of a flavor's resource on the cluster, at most the cap; 0 where neither is known."""
        flavor, resource = key
        reported = None if self.limit(key) is None else (self.capacity or {}).get(flavor, {}).get(resource, 0)
        return min((amount for amount in (reported, self.max_room.get(resource)) if amount is not None), default=0)


class Fleet:
    """Counts what is placed where, while a cycle places slices."""

    def __init__(
        self, clusters: Iterable[Cluster], load: Mapping[str, int], placed: Mapping[str, Mapping[FlavorResource, int]]
    ) -> None:
        """`load` has the number of chains on each cluster, `placed` what they are granted."""
        self._clusters = {cluster.name: cluster for cluster in sorted(clusters, key=lambda cluster: cluster.name)}
        self._load = dict(load)
        self._placed = dict(placed)

    def is_connected(self, name: str) -> bool:
        """Whether a cluster is in the fleet and its agent is connected."""
        cluster = self._clusters.get(name)
        return cluster is not None and cluster.connected

    def take(self, cluster: str, more: Mapping[FlavorResource, int], *, chains: int = 0) -> None:
        """Count what was placed on a cluster."""
        self._placed[cluster] = add(self._placed.get(cluster, {}), more)
        self._load[cluster] = self._load.get(cluster, 0) + chains

    def free(self, name: str, key: FlavorResource, *, beyond: int = 0) -> int | None:
        """What is free on a cluster; None without a limit, and for an unknown cluster.

        `beyond` is what the pods of the chain that asks request beyond its admission. The cluster reports that as used
        by others, some time after the pods have come: only what it reports counts as the chain's.
        """
        cluster, (_, resource) = self._clusters.get(name), key
        limit = cluster.limit(key, but=beyond) if cluster else None
        free = None if limit is None else limit - self._placed.get(name, {}).get(key, 0)
        left = self._left_of_cap(name, resource)
        return min((amount for amount in (free, left) if amount is not None), default=None)

    def held(self, name: str, slice: Slice) -> Usage:
        """What comes free on a cluster when a slice gives its place back: what it was admitted with, and what its pods
        request beyond that, as far as the cluster reports so much as used by others."""
        cluster, beyond = self._clusters.get(name), slice.beyond_admission
        others = cluster.others if cluster is not None else {}
        return {
            (flavor, resource): amount
            - max(0, beyond.get((flavor, resource), 0) - others.get(flavor, {}).get(resource, 0))
            for (flavor, resource), amount in slice.usage.items()
        }

    def _left_of_cap(self, name: str, resource: str) -> int | None:
        """What our chains may still be granted of a resource; None without a cap."""
        cluster = self._clusters.get(name)
        cap = cluster.max_room.get(resource) if cluster else None
        placed = self._placed.get(name, {})
        return None if cap is None else cap - sum(amount for (_, other), amount in placed.items() if other == resource)

    def short(self, cluster: str, needs: Usage, *, beyond: Usage = NOTHING) -> Usage:
        """What a cluster lacks for these needs; empty when they fit. What its cap lacks has `maxRoom` as flavor.
        `beyond` as for `free`."""
        if over := self._over_cap(cluster, needs):
            return over
        lacking: dict[FlavorResource, int] = {}
        for key, need in needs.items():
            free = self.free(cluster, key, beyond=beyond.get(key, 0))
            if need > 0 and free is not None and need > free:
                lacking[key] = need - free
        return lacking

    def leaves_headroom(self, name: str, needs: Usage, headroom: float) -> bool:
        """Whether a cluster has room for these needs, and this part of the whole stays free."""
        cluster = self._clusters.get(name)
        if cluster is None or self.short(name, needs):
            return False
        free = {key: self.free(name, key) for key in needs}
        return all(left is None or left - needs[key] >= headroom * cluster.total(key) for key, left in free.items())

    def _over_cap(self, name: str, needs: Usage) -> Usage:
        cluster = self._clusters.get(name)
        over: dict[FlavorResource, int] = {}
        for resource in cluster.max_room if cluster else ():
            need = sum(amount for (_, other), amount in needs.items() if other == resource)
            left = self._left_of_cap(name, resource) or 0
            if need > max(left, 0):
                over[_CAP, resource] = need - left
        return over

    def candidates(
        self, strategy: Strategy, needs: Usage, *, tenant: Tenant = ANYBODY, first: str | None = None
    ) -> Iterator[str]:
        """The clusters that take new chains, with room or without, the best first; always in the same order.

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

        eligible = (cluster for cluster in self._clusters.values() if not _obstacle(cluster, tenant))
        return (
            cluster.name for cluster in sorted(eligible, key=lambda cluster: (cluster.name != first, rank(cluster)))
        )

    def charged_on(self, name: str, slice: Slice) -> Slice:
        """The slice with what its pods will request on a cluster."""
        cluster = self._clusters.get(name)
        return cluster.additions.charged(slice) if cluster is not None else slice

    def charged_anywhere(self, slice: Slice, tenant: Tenant) -> Slice:
        """The slice with what its pods will request on whichever cluster takes it: the least of all. So no cluster
        makes a job wait that another one has a place for."""
        eligible = (cluster for cluster in self._clusters.values() if not _obstacle(cluster, tenant))
        versions = [cluster.additions.charged(slice) for cluster in eligible]
        return least(versions) if versions else slice

    @property
    def adds_to_pods(self) -> bool:
        """Whether any cluster adds to what pods request."""
        return any(cluster.additions != NO_ADDITIONS for cluster in self._clusters.values())

    def place(
        self, strategy: Strategy, needs: Usage, *, tenant: Tenant = ANYBODY, first: str | None = None
    ) -> str | None:
        """The best cluster that has room; None without one."""
        ranked = self.candidates(strategy, needs, tenant=tenant, first=first)
        return next((name for name in ranked if not self.short(name, needs)), None)

    def why_not(self, tried: Sequence[Usage], *, tenant: Tenant = ANYBODY) -> str:
        """Why no cluster takes the job, cluster by cluster, first those that only lack room.

        `tried` are the needs in each choice of flavors.
        """
        if not self._clusters:
            return "there is no WorkerCluster"
        obstacles = {name: _obstacle(cluster, tenant) for name, cluster in self._clusters.items()}
        ranked = sorted(self._clusters.values(), key=lambda cluster: obstacles[cluster.name] is not None)
        named = [
            f"{cluster.name} {obstacles[cluster.name] or self._lack(cluster, tried)}"
            for cluster in ranked[:_MOST_NAMED]
        ]
        left = len(ranked) - len(named)
        return ", ".join([*named, *([f"and {left} more"] if left else [])])

    def _lack(self, cluster: Cluster, tried: Sequence[Usage]) -> str:
        lacks = [short for needs in tried if (short := self.short(cluster.name, needs))]
        reported = {*(cluster.capacity or {}), _CAP}
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
                total = cluster.total(key)
                shares.append(free / total if total else 0.0)
        return min(shares)


def describe_room(cluster: Cluster, granted: Mapping[FlavorResource, int]) -> str:
    """The free room of a cluster by flavor: `default 12/40 cpu, 96/160Gi; spot 0/0 cpu`.

    It shows cpu, memory and devices, and `unlimited` where there is no limit. A cap stands behind the flavors:
    `maxRoom 4/16 cpu`. `granted` is what our chains have there.
    """
    capped = [f"{_CAP} {_room_under_cap(cluster, granted)}"] if cluster.max_room else []
    if cluster.capacity is None:
        return "; ".join([_UNLIMITED, *capped])
    flavors = sorted((cluster.capacity.keys() | cluster.unlimited) - {_WHOLE})
    return "; ".join([*(f"{flavor} {_room_in(cluster, flavor, granted)}" for flavor in flavors), *capped])


def _room_under_cap(cluster: Cluster, granted: Mapping[FlavorResource, int]) -> str:
    used: dict[str, int] = {}
    for (_, name), amount in granted.items():
        used[name] = used.get(name, 0) + amount
    return _amounts({name: max(0, cap - used.get(name, 0)) for name, cap in cluster.max_room.items()}, cluster.max_room)


def _room_in(cluster: Cluster, flavor: FlavorName, granted: Mapping[FlavorResource, int]) -> str:
    if flavor in cluster.unlimited:
        return _UNLIMITED
    total = (cluster.capacity or {}).get(flavor, {})
    left = {name: max(0, (cluster.limit((flavor, name)) or 0) - granted.get((flavor, name), 0)) for name in total}
    return _amounts({"cpu": 0} | left, {"cpu": 0} | dict(total))


def _amounts(left: Mapping[str, int], total: Mapping[str, int]) -> str:
    """`12/40 cpu, 96/160Gi, 1/2 example.com/device`."""
    devices = sorted(name for name in total if "/" in name and total[name])
    return ", ".join(
        [
            *([f"{left['cpu'] // 100 / 10:g}/{total['cpu'] // 100 / 10:g} cpu"] if "cpu" in total else []),
            *([f"{left['memory'] // _GI}/{total['memory'] // _GI}Gi"] if total.get("memory") else []),
            *(f"{left[name]}/{total[name]} {name}" for name in devices),
        ]
    )


def describe(short: Usage) -> str:
    """Say what is short, as `3 more cpu in flavor default`, joined by `and`."""
    return " and ".join(
        f"{format_amount(resource, amount)} more {resource} {'of its' if flavor == _CAP else 'in flavor'} {flavor}"
        for (flavor, resource), amount in sorted(short.items())
    )


def _obstacle(cluster: Cluster, tenant: Tenant) -> str | None:
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
    if cluster.cluster_queues is not None and tenant.cluster_queue not in cluster.cluster_queues:
        return f"takes no jobs of ClusterQueue {tenant.cluster_queue}"
    if not selects(cluster.namespace_selector, tenant.namespace_labels):
        return f"takes no jobs of namespace {tenant.namespace}"
    if (reason := cluster.lacking.get(tenant.namespace)) is not None:
        return _LACKS.get(reason, "takes no jobs of namespace {}: " + reason).format(tenant.namespace)
    if tenant.scheduler and tenant.scheduler not in cluster.scheduler_backends:
        offered = ", ".join(cluster.scheduler_backends)
        return f"has no scheduler backend {tenant.scheduler}" + (f", only {offered}" if offered else "")
    if not selects(tenant.selector, cluster.labels):
        return "is not among the clusters that the job selects"
    if cluster.name in tenant.avoids:
        return "did not get its pods ready in time, and is tried again later"
    return None
