"""What the agent does in its cluster."""

from slicebus.kube.resources import CONFIGMAPS, EVENTS, JOB_RESOURCES, LEASES, NODES, PODS, WORKLOADS, Resource
from slicebus.process.permissions import READ, Permission

REQUIRED_CRDS: tuple[Resource, ...] = (WORKLOADS,)

PERMISSIONS = (
    *(Permission(resource, (*READ, "create", "patch", "delete")) for resource in JOB_RESOURCES.values()),
    Permission(WORKLOADS, (*READ, "create", "patch", "delete")),
    Permission(WORKLOADS, ("patch",), "status"),
    Permission(PODS, (*READ, "patch")),
    Permission(NODES, READ),
    Permission(EVENTS, ("create", "patch")),
    Permission(LEASES, ("get", "create", "patch"), own_namespace=True),
    Permission(CONFIGMAPS, ("get", "create", "patch"), own_namespace=True),
)
