"""The permissions that the agent needs in its cluster."""

from collections.abc import Iterable

from msgspec.structs import replace

from slicebus.agent.act.fence import NAME as FENCE
from slicebus.agent.act.identity import KUBE_SYSTEM
from slicebus.agent.act.tombstones import NAME as TOMBSTONES
from slicebus.kube.resources import (
    CONFIGMAPS,
    EVENTS,
    JOB_RESOURCES,
    LEASES,
    LIMITRANGES,
    NAMESPACES,
    NODES,
    PODS,
    RUNTIMECLASSES,
    SERVICEACCOUNTS,
    USEREXTRAS,
    WORKLOADS,
    Resource,
)
from slicebus.runtime.permissions import READ, Permission, by_name, definitions_of
from slicebus.slices.api import api_names
from slicebus.slices.schedulers import Profile, init

COMPONENT = "slicebus-agent"
"""The name of its Lease, and of the reporter of its Events."""

REQUIRED_CRDS: tuple[Resource, ...] = (WORKLOADS,)
"""The definitions without which the agent cannot work. A job kind whose definition is missing is left out."""

_IN_NAMESPACES = (
    *(Permission(resource, (*READ, "create", "patch", "delete")) for resource in JOB_RESOURCES.values()),
    Permission(WORKLOADS, (*READ, "create", "patch", "delete")),
    Permission(PODS, (*READ, "patch")),
    Permission(EVENTS, ("list", "create", "patch")),
    Permission(LIMITRANGES, READ),
    Permission(NAMESPACES, ("get",)),
)
_OTHERS = (
    Permission(NODES, READ),
    Permission(RUNTIMECLASSES, READ),
    Permission(NAMESPACES, ("get",), name=KUBE_SYSTEM),
    *by_name(LEASES, COMPONENT),
    *by_name(CONFIGMAPS, FENCE, TOMBSTONES),
    *definitions_of((*JOB_RESOURCES.values(), *REQUIRED_CRDS)),
)


def permissions(namespaces: tuple[str, ...] = (), schedulers: Iterable[str] = ()) -> tuple[Permission, ...]:
    """Everything that the agent does, in these namespaces or in all, with these scheduler backends."""
    own = (*(replace(permission, namespaces=namespaces) for permission in _IN_NAMESPACES), *_OTHERS)
    return (*own, *(permission for name in schedulers for permission in permissions_of_scheduler(name, namespaces)))


def permissions_of_scheduler(name: str, namespaces: tuple[str, ...] = ()) -> tuple[Permission, ...]:
    """What the agent does for a scheduler backend."""
    backend = init(Profile(name))
    of_objects = [
        permission
        for resource in backend.makes
        for permission in (
            Permission(resource, (*READ, "create", "patch", "delete"), namespaces=namespaces),
            *([Permission(resource, ("patch",), "status", namespaces=namespaces)] if backend.writes_status else []),
        )
    ]
    return (
        *of_objects,
        *(Permission(resource, READ) for resource in backend.reads),
        *definitions_of((*backend.makes, *backend.reads)),
    )


def permissions_to_create_as(
    account: str, *, own_namespace: str, namespaces: tuple[str, ...] = ()
) -> tuple[Permission, ...]:
    """What the agent needs besides to create jobs as the service accounts of this name (docs/decisions/0042)."""
    return (
        Permission(SERVICEACCOUNTS, ("impersonate",), name=account, namespaces=namespaces),
        Permission(USEREXTRAS, ("impersonate",), api_names.AGENT_EXTRA, name=own_namespace),
    )
