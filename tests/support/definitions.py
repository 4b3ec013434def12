"""Waits for the definitions of kinds at an API server."""

from slicebus.kube.client import KubeClient
from slicebus.kube.resources import Resource
from support.waiting import eventually


async def until_usable(client: KubeClient, *resources: Resource) -> None:
    """Return when their objects can be created and listed: an API server takes minutes to remove a definition whose
    storage had not begun."""

    async def usable() -> bool:
        if not all([await client.serves(resource, "create") for resource in resources]):
            return False
        for resource in resources:
            await client.list(resource, limit=1)
        return True

    await eventually(usable, f"{', '.join(resource.plural for resource in resources)} are served")
