"""What the manager does in its cluster."""

from slicebus.kube.resources import (
    CLUSTERQUEUES,
    COHORTS,
    EVENTS,
    JOB_RESOURCES,
    LEASES,
    LOCALQUEUES,
    NAMESPACES,
    RESOURCEFLAVORS,
    WORKERCLUSTERS,
    WORKLOADPRIORITYCLASSES,
    WORKLOADS,
    Resource,
)
from slicebus.process.permissions import READ, Permission

REQUIRED_CRDS: tuple[Resource, ...] = (
    WORKLOADS,
    CLUSTERQUEUES,
    COHORTS,
    LOCALQUEUES,
    RESOURCEFLAVORS,
    WORKLOADPRIORITYCLASSES,
    WORKERCLUSTERS,
)

PERMISSIONS = (
    *(Permission(resource, (*READ, "patch", "delete")) for resource in JOB_RESOURCES.values()),
    *(Permission(resource, ("patch",), "status") for resource in JOB_RESOURCES.values()),
    # Where OwnerReferencesPermissionEnforcement is on, a Workload that blocks its job's deletion needs this.
    *(Permission(resource, ("update",), "finalizers") for resource in JOB_RESOURCES.values()),
    Permission(WORKLOADS, (*READ, "create", "patch", "delete")),
    Permission(WORKLOADS, ("patch",), "status"),
    Permission(CLUSTERQUEUES, READ),
    Permission(LOCALQUEUES, READ),
    Permission(CLUSTERQUEUES, ("patch",), "status"),
    Permission(LOCALQUEUES, ("patch",), "status"),
    Permission(COHORTS, READ),
    Permission(COHORTS, ("patch",), "status"),
    Permission(RESOURCEFLAVORS, READ),
    Permission(WORKLOADPRIORITYCLASSES, READ),
    Permission(NAMESPACES, READ),
    Permission(WORKERCLUSTERS, READ),
    Permission(WORKERCLUSTERS, ("patch",), "status"),
    Permission(EVENTS, ("create", "patch")),
    Permission(LEASES, ("get", "create", "patch"), own_namespace=True),
)
