"""Which worker cluster a job runs on. A chain stays where its first slice went."""

from collections.abc import Mapping, Sequence

import msgspec


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """A worker cluster as a place for jobs."""

    name: str
    accepted: bool
    cordoned: bool
    connected: bool
    weight: int = 1


def place(clusters: Sequence[Cluster], load: Mapping[str, int]) -> str | None:
    """The eligible cluster with the fewest jobs for its weight, the first by name among equals; None without one."""
    eligible = [cluster for cluster in clusters if not _obstacle(cluster)]
    if not eligible:
        return None
    return min(eligible, key=lambda cluster: (load.get(cluster.name, 0) / max(cluster.weight, 1), cluster.name)).name


def why_not(clusters: Sequence[Cluster]) -> str:
    """Why no cluster is eligible, one by one."""
    if not clusters:
        return "there is no WorkerCluster"
    return ", ".join(f"{cluster.name} is {_obstacle(cluster)}" for cluster in sorted(clusters, key=lambda c: c.name))


def _obstacle(cluster: Cluster) -> str | None:
    if not cluster.accepted:
        return "not accepted"
    if cluster.cordoned:
        return "cordoned"
    if not cluster.connected:
        return "not connected"
    return None
