"""WorkerClusters as values: who may speak for one, whether it is connected, and what room it has."""

from typing import Self

import msgspec
from propcache.api import cached_property

from slicebus.proto.messages import ClusterUid, Manifest
from slicebus.slices.api.conditions import conditions_of
from slicebus.slices.api.quantities import amounts
from slicebus.slices.api.selectors import readable
from slicebus.slices.placement.fleet import NO_ADDITIONS, Cluster
from slicebus.slices.workload.pod_additions import PodAdditions
from slicebus.slices.workload.workload import FlavorName

CONNECTED = "Connected"
GIVEN_UP = "GivenUp"
"""True while the jobs of a lost cluster go elsewhere, and until it has no copy left of them."""
BY_UID = "uid"
"""The index of the WorkerClusters by `pinned_uids`."""
_UNLIMITED = "Unlimited"
"""The value of `spec.capacity`, or of a flavor in `spec.flavorCapacity`, for nodes that come as needed."""


class Sender(msgspec.Struct, frozen=True, kw_only=True):
    """Who may speak for a cluster."""

    accepted: bool
    user: str
    """The broker user that may speak for it."""
    epoch: int
    uid: ClusterUid | None = None
    """The UID of the cluster that has the name; None until one was reported."""

    @classmethod
    def from_manifest(cls, cluster: Manifest) -> Self:
        """The sender that a WorkerCluster accepts."""
        spec, status = cluster.get("spec", {}), cluster.get("status", {})
        return cls(
            accepted=spec.get("accepted", False),
            user=spec.get("brokerUser") or cluster["metadata"]["name"],
            epoch=status.get("epoch", 0),
            uid=pinned_uid(cluster),
        )


class WorkerCluster(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A WorkerCluster object (slicebus.dev/v1alpha1) as the manager uses it."""

    name: str
    accepted: bool
    cordoned: bool
    weight: int
    user: str
    epoch: int
    uid: ClusterUid | None
    connected: bool
    draining: bool = False
    given_up: bool = False
    fence_s: float | None = None
    """Its agent lets no pod start after so many seconds without an answer; None where it keeps no fence."""
    priority: int = 0
    labels: dict[str, str] = {}
    capacity: dict[FlavorName, dict[str, int]] | None = None
    others: dict[FlavorName, dict[str, int]] = {}
    unlimited: frozenset[FlavorName] = frozenset()
    namespace_selector: Manifest = {}
    cluster_queues: frozenset[str] | None = None
    lacking: dict[str, str] = {}
    scheduler_backends: tuple[str, ...] = ()
    additions: PodAdditions = NO_ADDITIONS
    max_room: dict[str, int] = {}

    @classmethod
    def from_manifest(cls, manifest: Manifest) -> Self:
        """The cluster of an object that its schema has validated. Raises ValueError for what is not a quantity."""
        name, spec, status = manifest["metadata"]["name"], manifest.get("spec", {}), manifest.get("status", {})
        return cls(
            name=name,
            accepted=spec.get("accepted", False),
            cordoned=spec.get("cordoned", False),
            weight=spec.get("weight", 1),
            user=spec.get("brokerUser") or name,
            epoch=status.get("epoch", 0),
            uid=pinned_uid(manifest),
            connected=is_true(manifest, CONNECTED),
            draining=spec.get("drain", False),
            given_up=is_true(manifest, GIVEN_UP),
            fence_s=status.get("fenceSeconds"),
            priority=spec.get("priority", 0),
            labels=(manifest["metadata"].get("labels") or {}) | spec.get("labels", {}),
            capacity=None if spec.get("capacity") == _UNLIMITED else _reported(status),
            others=_others(status),
            unlimited=frozenset(
                FlavorName(flavor)
                for flavor, reported in spec.get("flavorCapacity", {}).items()
                if reported == _UNLIMITED
            ),
            namespace_selector=readable(spec.get("namespaceSelector") or {}),
            cluster_queues=frozenset(spec["clusterQueues"]) if "clusterQueues" in spec else None,
            lacking=status.get("lackingNamespaces") or {},
            scheduler_backends=tuple(status.get("schedulerBackends") or ()),
            additions=PodAdditions(
                container_defaults=_by_name(status, "containerDefaults"), overheads=_by_name(status, "podOverheads")
            ),
            max_room=amounts(spec.get("maxRoom", {})),
        )

    def without_room(self) -> Self:
        """The same cluster without its capacity and use."""
        return msgspec.structs.replace(self, capacity=None, others={})

    def has_more_room_than(self, before: Self) -> bool:
        """Whether something fits that did not fit before."""
        if self.capacity is None or before.capacity is None:
            return self.capacity is None and before.capacity is not None
        room, room_before = self.place, before.place
        keys = [(flavor, resource) for flavor, resources in self.capacity.items() for resource in resources]
        return any((room.limit(key) or 0) > (room_before.limit(key) or 0) for key in keys)

    @cached_property
    def place(self) -> Cluster:
        """The cluster as the placement reads it."""
        return Cluster(
            name=self.name,
            accepted=self.accepted,
            cordoned=self.cordoned,
            connected=self.connected,
            draining=self.draining,
            given_up=self.given_up,
            weight=self.weight,
            priority=self.priority,
            labels=self.labels,
            capacity=self.capacity,
            others=self.others,
            unlimited=self.unlimited,
            namespace_selector=self.namespace_selector,
            cluster_queues=self.cluster_queues,
            lacking=self.lacking,
            scheduler_backends=self.scheduler_backends,
            additions=self.additions,
            max_room=self.max_room,
        )


def _by_name(status: Manifest, field: str) -> dict[str, dict[str, int]]:
    return {name: amounts(reported) for name, reported in (status.get(field) or {}).items()}


def _reported(status: Manifest) -> dict[FlavorName, dict[str, int]]:
    """The capacity by flavor, none before the first heartbeat."""
    return {FlavorName(flavor): amounts(reported) for flavor, reported in status.get("capacity", {}).items()}


def _others(status: Manifest) -> dict[FlavorName, dict[str, int]]:
    """The use by pods that are not ours, by flavor and resource."""
    used, ours = ({f: amounts(reported) for f, reported in status.get(name, {}).items()} for name in ("used", "ours"))
    return {
        FlavorName(flavor): {
            name: max(0, value - ours.get(flavor, {}).get(name, 0)) for name, value in reported.items()
        }
        for flavor, reported in used.items()
    }


def pinned_uid(cluster: Manifest) -> ClusterUid | None:
    """The UID of the cluster that has the name; None until one was reported (docs/decisions/0014)."""
    uid: ClusterUid | None = cluster.get("status", {}).get("clusterUID")
    return uid


def pinned_uids(cluster: Manifest) -> list[str]:
    """The same for an index."""
    uid = pinned_uid(cluster)
    return [uid] if uid else []


def connected_since(cluster: Manifest) -> str | None:
    """When a cluster connected, RFC 3339; None for one that is not connected."""
    connected = (
        condition
        for condition in conditions_of(cluster)
        if condition["type"] == CONNECTED and condition["status"] == "True"
    )
    return next((condition["lastTransitionTime"] for condition in connected), None)


def is_true(cluster: Manifest, condition: str) -> bool:
    """Whether a condition of a WorkerCluster is True."""
    conditions = cluster.get("status", {}).get("conditions", ())
    return any(entry["type"] == condition and entry["status"] == "True" for entry in conditions)
