"""What the agent does in its cluster."""

from slicebus.agent.act.identity import KUBE_SYSTEM
from slicebus.kube.resources import (
    CONFIGMAPS,
    EVENTS,
    JOB_RESOURCES,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    WORKLOADS,
    Resource,
)
from slicebus.runtime.permissions import READ, Permission, definitions_of

REQUIRED_CRDS: tuple[Resource, ...] = (WORKLOADS,)
"""A job kind whose definition is missing is left out."""

PERMISSIONS = (
    *(Permission(resource, (*READ, "create", "patch", "delete")) for resource in JOB_RESOURCES.values()),
    Permission(WORKLOADS, (*READ, "create", "patch", "delete")),
    Permission(WORKLOADS, ("patch",), "status"),
    Permission(PODS, (*READ, "patch")),
    Permission(NODES, READ),
    Permission(NAMESPACES, ("get",), name=KUBE_SYSTEM),
    Permission(EVENTS, ("create", "patch")),
    Permission(LEASES, ("get", "create", "patch"), own_namespace=True),
    Permission(CONFIGMAPS, ("get", "create", "patch"), own_namespace=True),
    *definitions_of((*JOB_RESOURCES.values(), *REQUIRED_CRDS)),
)
