"""The permissions that the manager needs in its cluster."""

from slicebus.kube.resources import (
    ADMISSIONCHECKS,
    CLUSTERQUEUES,
    COHORTS,
    EVENTS,
    JOB_RESOURCES,
    LEASES,
    LOCALQUEUES,
    NAMESPACES,
    RESOURCECLAIMTEMPLATES,
    RESOURCEFLAVORS,
    WORKERCLUSTERS,
    WORKLOADPRIORITYCLASSES,
    WORKLOADS,
    Resource,
)
from slicebus.manager.state.settings import AdmissionModeName
from slicebus.proto.topology import MOST_SHARDS
from slicebus.runtime.permissions import READ, Permission, by_name, definitions_of

COMPONENT = "slicebus-manager"
"""The name of its Lease, and of the reporter of its Events."""


def lease_of(shard: int) -> str:
    """The name of the Lease of a shard of the manager."""
    return f"{COMPONENT}-{shard}" if shard else COMPONENT


_CRDS: tuple[Resource, ...] = (WORKLOADS, RESOURCEFLAVORS, WORKERCLUSTERS)
_BUILTIN_CRDS: tuple[Resource, ...] = (CLUSTERQUEUES, COHORTS, LOCALQUEUES, WORKLOADPRIORITYCLASSES)

_PERMISSIONS = (
    *(Permission(resource, (*READ, "patch", "delete")) for resource in JOB_RESOURCES.values()),
    *(Permission(resource, ("patch",), "status") for resource in JOB_RESOURCES.values()),
    Permission(WORKLOADS, (*READ, "patch")),
    Permission(WORKLOADS, ("patch",), "status"),
    Permission(RESOURCEFLAVORS, READ),
    Permission(NAMESPACES, READ),
    Permission(WORKERCLUSTERS, READ),
    Permission(WORKERCLUSTERS, ("patch",), "status"),
    Permission(EVENTS, ("create", "patch")),
    *by_name(LEASES, *map(lease_of, range(MOST_SHARDS))),
)
_BUILTIN_PERMISSIONS = (
    # Where OwnerReferencesPermissionEnforcement is on, a Workload that blocks its job's deletion needs this.
    *(Permission(resource, ("update",), "finalizers") for resource in JOB_RESOURCES.values()),
    Permission(WORKLOADS, ("create", "delete")),
    Permission(CLUSTERQUEUES, READ),
    Permission(LOCALQUEUES, READ),
    Permission(CLUSTERQUEUES, ("patch",), "status"),
    Permission(LOCALQUEUES, ("patch",), "status"),
    Permission(COHORTS, READ),
    Permission(COHORTS, ("patch",), "status"),
    Permission(RESOURCEFLAVORS, ("patch",), "status"),
    Permission(WORKLOADPRIORITYCLASSES, READ),
)
_PERMISSIONS_OF_SHARDS = (Permission(CLUSTERQUEUES, ("patch",)),)
"""Each ClusterQueue names the shard that has it."""
_PERMISSIONS_OF_DEVICES = (Permission(RESOURCECLAIMTEMPLATES, READ),)
_KUEUE_PERMISSIONS = (
    Permission(ADMISSIONCHECKS, READ),
    Permission(ADMISSIONCHECKS, ("patch",), "status"),
)


def required_crds(admission: AdmissionModeName) -> tuple[Resource, ...]:
    """The definitions without which the manager cannot work: what decides about quota and places. A job kind whose
    definition is missing is left out."""
    return (*_CRDS, *(_BUILTIN_CRDS if admission is AdmissionModeName.BUILTIN else (ADMISSIONCHECKS,)))


def permissions(
    admission: AdmissionModeName, *, shards: int = 1, counts_devices: bool = False
) -> tuple[Permission, ...]:
    """Everything that the manager does. That includes the Lease of every shard that may ever have existed.
    `counts_devices`: whether DeviceClasses are mapped to resources."""
    of_mode = _BUILTIN_PERMISSIONS if admission is AdmissionModeName.BUILTIN else _KUEUE_PERMISSIONS
    of_shards = _PERMISSIONS_OF_SHARDS if shards > 1 else ()
    of_devices = _PERMISSIONS_OF_DEVICES if counts_devices else ()
    definitions = definitions_of((*JOB_RESOURCES.values(), *required_crds(admission)))
    return (*_PERMISSIONS, *of_mode, *of_shards, *of_devices, *definitions)
