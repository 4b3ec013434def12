"""Describes the permissions of a role as data: the charts grant exactly these, and `slicebus doctor` checks them."""

from collections.abc import Iterable

import msgspec

from slicebus.kube.client import KubeClient
from slicebus.kube.resources import CRDS, Resource

READ = ("get", "list", "watch")


class Permission(msgspec.Struct, frozen=True):
    """Allows verbs on one resource."""

    resource: Resource
    verbs: tuple[str, ...]
    subresource: str = ""
    own_namespace: bool = False
    """Only in the namespace that the role runs in."""
    name: str = ""
    """Only on the object of this name."""
    namespaces: tuple[str, ...] = ()
    """Only in these namespaces; empty for all."""

    def __str__(self) -> str:
        name = f"{self.resource.plural}/{self.subresource}" if self.subresource else self.resource.plural
        group = f".{self.resource.group}" if self.resource.group else ""
        return f"{name}{group} {self.name}".rstrip()


def definitions_of(resources: Iterable[Resource]) -> tuple[Permission, ...]:
    """Permissions to read the definitions of custom resources."""
    return tuple(Permission(CRDS, ("get",), name=resource.definition) for resource in resources if resource.is_custom)


def by_name(resource: Resource, *names: str) -> tuple[Permission, ...]:
    """Permissions to keep objects of these names in the role's own namespace. A create cannot be restricted by name."""
    named = (Permission(resource, ("get", "patch"), own_namespace=True, name=name) for name in names)
    return (*named, Permission(resource, ("create",), own_namespace=True))


async def missing(client: KubeClient, wanted: Iterable[Permission], *, namespace: str) -> list[str]:
    """The permissions that the server's authorizer denies, as `verb resource`."""
    return [
        f"{verb} {permission}{f' in {where}' if where else ''}"
        for permission in wanted
        for where in ((namespace,) if permission.own_namespace else permission.namespaces or ("",))
        for verb in permission.verbs
        if not await client.can_i(
            verb, permission.resource, namespace=where, subresource=permission.subresource, name=permission.name
        )
    ]
