"""Queues, flavors, and what is used of their quota."""

from collections.abc import Iterable, Mapping
from typing import Any, Self

import msgspec

from slicebus.slices.quantities import amount, larger
from slicebus.slices.workload import FlavorName, Slice, oldest_first

Manifest = dict[str, Any]
Usage = dict[tuple[FlavorName, str], int]
"""Amounts by flavor and resource."""
ChainInQueue = tuple[str, str]
"""A ClusterQueue's name and a chain id."""


class FlavorQuota(msgspec.Struct, frozen=True):
    """A flavor in a ClusterQueue, with its nominal quota by resource."""

    name: FlavorName
    nominal: dict[str, int]


class ResourceGroup(msgspec.Struct, frozen=True):
    """Resources that are given by the same flavor, and the flavors in the order in which they are tried."""

    resources: tuple[str, ...]
    flavors: tuple[FlavorQuota, ...]

    @classmethod
    def from_manifest(cls, group: Manifest) -> Self:
        """An entry of a ClusterQueue's `spec.resourceGroups`."""
        return cls(
            resources=tuple(group["coveredResources"]),
            flavors=tuple(
                FlavorQuota(
                    name=FlavorName(flavor["name"]),
                    nominal={
                        resource["name"]: amount(resource["name"], resource["nominalQuota"])
                        for resource in flavor["resources"]
                    },
                )
                for flavor in group["flavors"]
            ),
        )


class ClusterQueue(msgspec.Struct, frozen=True, kw_only=True):
    """Quota, and how it is given."""

    name: str
    strict_fifo: bool
    held: bool
    """A stopPolicy other than None: nothing is admitted."""
    resource_groups: tuple[ResourceGroup, ...]

    @property
    def nominal(self) -> Usage:
        """The whole quota."""
        return {
            (flavor.name, resource): value
            for group in self.resource_groups
            for flavor in group.flavors
            for resource, value in flavor.nominal.items()
        }

    @classmethod
    def from_manifest(cls, manifest: Manifest) -> Self:
        """A Kueue v1beta2 ClusterQueue. Raises ValueError for a quota that is not a quantity."""
        spec = manifest.get("spec", {})
        return cls(
            name=manifest["metadata"]["name"],
            strict_fifo=spec.get("queueingStrategy") == "StrictFIFO",
            held=spec.get("stopPolicy", "None") != "None",
            resource_groups=tuple(ResourceGroup.from_manifest(group) for group in spec.get("resourceGroups", ())),
        )


class LocalQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A namespace's name for a ClusterQueue."""

    namespace: str
    name: str
    cluster_queue: str
    held: bool

    @classmethod
    def from_manifest(cls, manifest: Manifest) -> Self:
        """A Kueue v1beta2 LocalQueue."""
        metadata, spec = manifest["metadata"], manifest.get("spec", {})
        return cls(
            namespace=metadata["namespace"],
            name=metadata["name"],
            cluster_queue=spec.get("clusterQueue", ""),
            held=spec.get("stopPolicy", "None") != "None",
        )


class ResourceFlavor(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of nodes."""

    name: FlavorName
    node_labels: dict[str, str] = {}
    taints: tuple[Manifest, ...] = ()
    tolerations: tuple[Manifest, ...] = ()

    @classmethod
    def from_manifest(cls, manifest: Manifest) -> Self:
        """A Kueue v1beta2 ResourceFlavor."""
        spec = manifest.get("spec", {})
        return cls(
            name=FlavorName(manifest["metadata"]["name"]),
            node_labels=spec.get("nodeLabels", {}),
            taints=tuple(spec.get("nodeTaints", ())),
            tolerations=tuple(spec.get("tolerations", ())),
        )


def holders(slices: Iterable[Slice]) -> dict[str, Slice]:
    """The slice that stands for each chain, by chain id: the newest that holds quota."""
    chains: dict[str, list[Slice]] = {}
    for slice in slices:
        if slice.admission is not None and not slice.finished:
            chains.setdefault(slice.chain_id, []).append(slice)
    return {chain: oldest_first(members)[-1] for chain, members in chains.items()}


def usage_by_chain(slices: Iterable[Slice]) -> dict[ChainInQueue, Usage]:
    """What each chain uses of a ClusterQueue.

    While one slice takes over from another both have an admission. The chain is counted once, by the larger of both
    amounts: what the new one gives back is free when the old one has ended.
    """
    used: dict[ChainInQueue, Usage] = {}
    for slice in slices:
        if slice.admission is not None:
            key = slice.admission.cluster_queue, slice.chain_id
            used[key] = larger(used.get(key, {}), slice.usage())
    return used


def total_by_queue(chains: Mapping[ChainInQueue, Usage]) -> dict[str, Usage]:
    """The sum over all chains, by ClusterQueue."""
    used: dict[str, Usage] = {}
    for (queue, _), usage in chains.items():
        total = used.setdefault(queue, {})
        for key, value in usage.items():
            total[key] = total.get(key, 0) + value
    return used
