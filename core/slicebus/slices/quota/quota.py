"""Reads queues, cohorts and flavors, and adds up the usage of their quota."""

from collections.abc import Iterable, Mapping
from typing import Any, Self

import msgspec

from slicebus.slices.api import api_names
from slicebus.slices.api.budget_values import Budget
from slicebus.slices.api.durations import seconds
from slicebus.slices.api.quantities import amount, larger, parse_quantity
from slicebus.slices.api.selectors import readable, selects
from slicebus.slices.quota.policies import Fungibility, Preemption
from slicebus.slices.workload.chain import oldest_first
from slicebus.slices.workload.workload import FlavorName, LocalQueueKey, Slice

Manifest = dict[str, Any]
FlavorResource = tuple[FlavorName, str]
Usage = Mapping[FlavorResource, int]
"""Amounts by flavor and resource."""
ChainInQueue = tuple[str, str]
"""A ClusterQueue's name and a chain id."""
_USAGE_BASED = "UsageBasedAdmissionFairSharing"
_CHOICES = {"true": True, "false": False}


class Limits(msgspec.Struct, frozen=True):
    """Quota of one resource in one flavor. None is no limit."""

    nominal: int = 0
    borrowing: int | None = None
    lending: int | None = None

    @classmethod
    def from_manifest(cls, quota: Manifest) -> Self:
        """An entry of `resourceGroups[].flavors[].resources`. Raises ValueError for what is not a quantity."""

        def limit(name: str) -> int | None:
            return amount(quota["name"], quota[name]) if quota.get(name) is not None else None

        nominal = amount(quota["name"], quota["nominalQuota"])
        return cls(nominal=nominal, borrowing=limit("borrowingLimit"), lending=limit("lendingLimit"))


class FlavorQuota(msgspec.Struct, frozen=True):
    """A flavor in a ClusterQueue or a Cohort, with its quota by resource."""

    name: FlavorName
    limits: dict[str, Limits]


class ResourceGroup(msgspec.Struct, frozen=True):
    """Resources that come from one flavor, and the flavors in the order of trial."""

    resources: tuple[str, ...]
    flavors: tuple[FlavorQuota, ...]

    @classmethod
    def from_manifest(cls, group: Manifest) -> Self:
        """An entry of `spec.resourceGroups`. Raises ValueError for a quota that is not a quantity."""
        return cls(
            resources=tuple(group["coveredResources"]),
            flavors=tuple(
                FlavorQuota(
                    name=FlavorName(flavor["name"]),
                    limits={resource["name"]: Limits.from_manifest(resource) for resource in flavor["resources"]},
                )
                for flavor in group["flavors"]
            ),
        )


class ClusterQueue(msgspec.Struct, frozen=True, kw_only=True):
    """Quota, and the policies of its admission."""

    name: str
    strict_fifo: bool
    held: bool
    """A stopPolicy other than None is set: nothing is admitted."""
    drained: bool = False
    """The stopPolicy HoldAndDrain is set: quota holders are evicted too."""
    resource_groups: tuple[ResourceGroup, ...]
    namespace_selector: Manifest | None = None
    """Selects the namespaces whose workloads it takes; None, and one that is no selector, selects none."""
    cohort: str = ""
    """The name of the Cohort that it borrows from and lends to; empty without one."""
    weight: float = 1.0
    """For fair sharing."""
    placement: str = ""
    """The strategy that picks a cluster for its chains; empty for the manager's."""
    preemption: Preemption = Preemption()
    fungibility: Fungibility = Fungibility()
    pods_first: bool = False
    """Its slices take pods of every priority before they preempt a whole job of any."""
    opportunistic: bool = True
    """Its jobs may grow into quota that nobody waits for."""
    pods_before_jobs: bool | None = None
    """Its jobs may lose some pods before all, down to their least size; None where the manager's setting counts."""
    notice_cap_s: float | None = None
    """The longest notice of its jobs; None where only the manager's setting counts."""
    budget: Budget | None = None
    """What its jobs may spend."""
    usage_based: bool = False
    """Its slices come by what their LocalQueues have used."""

    @property
    def preempts_by_age_and_flavor(self) -> bool:
        """Whether the age of a slice may decide in which of several flavors it finds victims."""
        return self.preemption.by_age and any(len(group.flavors) > 1 for group in self.resource_groups)

    def gives_pods(self, by_default: bool) -> bool:
        """Whether its jobs may lose some pods before all, where the manager says this by default."""
        return by_default if self.pods_before_jobs is None else self.pods_before_jobs

    def longest_notice_s(self, most: float) -> float:
        """The longest notice of its jobs where the manager allows so much."""
        return most if self.notice_cap_s is None else min(self.notice_cap_s, most)

    @property
    def limits(self) -> dict[FlavorResource, Limits]:
        """The whole quota, with its limits."""
        return limits_of(self.resource_groups)

    @property
    def nominal(self) -> Usage:
        """The whole quota."""
        return {key: limits.nominal for key, limits in self.limits.items()}

    @classmethod
    def from_manifest(cls, manifest: Manifest) -> Self:
        """A Kueue v1beta2 ClusterQueue. Raises ValueError for a quota that is not a quantity."""
        spec, annotations = manifest.get("spec", {}), manifest["metadata"].get("annotations", {})
        selector = spec.get("namespaceSelector")
        return cls(
            name=manifest["metadata"]["name"],
            strict_fifo=spec.get("queueingStrategy") == "StrictFIFO",
            held=_stop_policy(spec) != "None",
            drained=_stop_policy(spec) == "HoldAndDrain",
            resource_groups=tuple(ResourceGroup.from_manifest(group) for group in spec.get("resourceGroups", ())),
            namespace_selector=readable(selector) if selector is not None else None,
            cohort=spec.get("cohortName", ""),
            weight=_weight(spec),
            placement=annotations.get(api_names.PLACEMENT_ANNOTATION, ""),
            preemption=Preemption.from_manifest(spec.get("preemption") or {}),
            fungibility=Fungibility.from_manifest(spec.get("flavorFungibility") or {}),
            pods_first=annotations.get(api_names.SPARE_ANNOTATION) == "pods",
            opportunistic=annotations.get(api_names.OPPORTUNISTIC_ANNOTATION) != "false",
            pods_before_jobs=_CHOICES.get(annotations.get(api_names.PODS_BEFORE_JOBS_ANNOTATION, "")),
            notice_cap_s=seconds(annotations.get(api_names.NOTICE_ANNOTATION, "")),
            budget=Budget.from_annotations(annotations),
            usage_based=(spec.get("admissionScope") or {}).get("admissionMode") == _USAGE_BASED,
        )


class Cohort(msgspec.Struct, frozen=True, kw_only=True):
    """Queues and cohorts that lend each other quota, and quota that they share."""

    name: str
    parent: str = ""
    """The cohort that it belongs to; empty for a root."""
    resource_groups: tuple[ResourceGroup, ...] = ()
    weight: float = 1.0
    """For fair sharing."""
    budget: Budget | None = None
    """What the jobs of all queues below it may spend together."""

    @property
    def limits(self) -> dict[FlavorResource, Limits]:
        """The quota of its own, with its limits."""
        return limits_of(self.resource_groups)

    @classmethod
    def from_manifest(cls, manifest: Manifest) -> Self:
        """A Kueue v1beta2 Cohort. Raises ValueError for a quota that is not a quantity."""
        spec = manifest.get("spec", {})
        return cls(
            name=manifest["metadata"]["name"],
            parent=spec.get("parentName", ""),
            resource_groups=tuple(ResourceGroup.from_manifest(group) for group in spec.get("resourceGroups", ())),
            weight=_weight(spec),
            budget=Budget.from_annotations(manifest["metadata"].get("annotations") or {}),
        )


def limits_of(groups: Iterable[ResourceGroup]) -> dict[FlavorResource, Limits]:
    """The limits of all groups, by flavor and resource."""
    return {
        (flavor.name, resource): limits
        for group in groups
        for flavor in group.flavors
        for resource, limits in flavor.limits.items()
    }


def _stop_policy(spec: Manifest) -> str:
    return spec.get("stopPolicy") or "None"


def _weight(spec: Manifest) -> float:
    return max(0.0, float(parse_quantity((spec.get("fairSharing") or {}).get("weight", 1))))


def _weight_of_tenant(spec: Manifest) -> float:
    """The weight of a LocalQueue; 1 for one that is none: it stops no job."""
    try:
        return _weight(spec)
    except (ValueError, AttributeError):
        return 1.0


class LocalQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A namespace's name for a ClusterQueue."""

    namespace: str
    name: str
    cluster_queue: str
    held: bool
    """As for a ClusterQueue."""
    drained: bool = False
    budget: Budget | None = None
    """What its jobs may spend."""
    weight: float = 1.0
    """For the order of a ClusterQueue that goes by what was used."""

    @property
    def key(self) -> LocalQueueKey:
        """Namespace and name."""
        return self.namespace, self.name

    @classmethod
    def from_manifest(cls, manifest: Manifest) -> Self:
        """A Kueue v1beta2 LocalQueue."""
        metadata, spec = manifest["metadata"], manifest.get("spec", {})
        return cls(
            namespace=metadata["namespace"],
            name=metadata["name"],
            cluster_queue=spec.get("clusterQueue", ""),
            held=_stop_policy(spec) != "None",
            drained=_stop_policy(spec) == "HoldAndDrain",
            budget=Budget.from_annotations(metadata.get("annotations") or {}),
            weight=_weight_of_tenant(spec),
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


def usable_queue(
    slice: Slice,
    queues: Mapping[str, ClusterQueue],
    local_queues: Mapping[tuple[str, str], LocalQueue],
    namespaces: Mapping[str, Mapping[str, str]],
) -> ClusterQueue | str:
    """The ClusterQueue that a slice waits in, or why that cannot be used. `namespaces` has the labels of each."""
    local = local_queues.get(slice.local_queue)
    if local is None:
        return f"LocalQueue {slice.queue} doesn't exist"
    queue = queues.get(local.cluster_queue)
    if queue is None:
        return f"ClusterQueue {local.cluster_queue} doesn't exist"
    if local.held:
        return f"LocalQueue {slice.queue} is stopped"
    if queue.held:
        return f"ClusterQueue {queue.name} is stopped"
    labels = namespaces.get(slice.namespace, {})
    if queue.namespace_selector is None or not selects(queue.namespace_selector, labels):
        return "Workload namespace doesn't match ClusterQueue selector"
    return queue


def keys_by_cluster_queue(local_queues: Iterable[LocalQueue]) -> dict[str, list[LocalQueueKey]]:
    """The LocalQueues of each ClusterQueue, which may not exist."""
    keys: dict[str, list[LocalQueueKey]] = {}
    for local in local_queues:
        keys.setdefault(local.cluster_queue, []).append(local.key)
    return keys


def holders(slices: Iterable[Slice]) -> dict[str, Slice]:
    """The newest slice of each chain that holds quota, by chain id."""
    newest: dict[str, Slice] = {}
    several: dict[str, list[Slice]] = {}
    for slice in slices:
        if slice.admission is not None and not slice.finished:
            first = newest.setdefault(slice.chain_id, slice)
            if first is not slice:
                several.setdefault(slice.chain_id, [first]).append(slice)
    for chain, members in several.items():
        newest[chain] = oldest_first(members)[-1]
    return newest


def usage_by_chain(slices: Iterable[Slice]) -> dict[ChainInQueue, Usage]:
    """What each chain uses of each ClusterQueue.

    While one slice replaces another, both have an admission. The chain counts once, with the larger amount. What the
    new slice gives back is free once the old one has finished.
    """
    used: dict[ChainInQueue, Usage] = {}
    for slice in slices:
        if slice.admission is not None:
            key, usage = (slice.admission.cluster_queue, slice.chain_id), slice.usage
            used[key] = larger(used[key], usage) if key in used else usage
    return used


def by_resource(usage: Usage) -> dict[str, int]:
    """Usage in all flavors together."""
    total: dict[str, int] = {}
    for (_, resource), value in usage.items():
        total[resource] = total.get(resource, 0) + value
    return total


def needs_by_resource(slice: Slice) -> dict[str, int]:
    """What a slice would use with all its pods that have not ended."""
    needs: dict[str, int] = {}
    for pod_set in slice.pod_sets:
        count = slice.unfinished_counts.get(pod_set.name, 0)
        for resource, each in pod_set.charged.items():
            needs[resource] = needs.get(resource, 0) + each * count
    return needs
