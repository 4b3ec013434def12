"""Says whose cluster a client talks to, by the Leases of the roles.

A command for the manager's cluster may be run on a worker by mistake. The copies of the jobs there look like jobs that
nobody manages.
"""

import msgspec

from slicebus.agent.permissions import COMPONENT as AGENT
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import LEASES, WORKERCLUSTERS
from slicebus.manager.permissions import COMPONENT as MANAGER
from slicebus.proto.errors import ConfigurationError, ForbiddenError, NotFoundError
from slicebus.proto.messages import Manifest
from slicebus.slices.api.api_names import CLUSTER_ANNOTATION

_NAMESPACE = "slicebus-system"
"""Where the roles run, for people who may not look everywhere."""
_ADVICE = "run it on the manager's cluster"


class Place(msgspec.Struct, frozen=True):
    """The roles that have led on a cluster. It may be the manager's and a worker at the same time."""

    is_managers: bool
    worker: str | None = None
    """The name of the worker cluster; empty where its agent does not say it, None where no agent has led."""

    @property
    def shown(self) -> str:
        """The cluster, for people: `worker east`."""
        return f"worker {self.worker}" if self.worker else "a worker cluster"


async def place_of(client: KubeClient) -> Place:
    """The place. Who may not read Leases learns nothing of it: neither role."""
    agent = await _lease(client, AGENT)
    name = None if agent is None else (agent["metadata"].get("annotations") or {}).get(CLUSTER_ANNOTATION, "")
    return Place(is_managers=await _lease(client, MANAGER) is not None, worker=name)


async def require_managers(client: KubeClient, *, may_be_bare: bool = False) -> None:
    """Raise ConfigurationError on a worker, and on a cluster without slicebus unless it `may_be_bare`."""
    place = await place_of(client)
    if place.is_managers:
        return
    if place.worker is not None:
        raise ConfigurationError(f"this is {place.shown}; {_ADVICE}")
    if not may_be_bare and not await client.serves(WORKERCLUSTERS):
        raise ConfigurationError(f"slicebus is not on this cluster, {client.host}: it has no WorkerClusters; {_ADVICE}")


async def _lease(client: KubeClient, name: str) -> Manifest | None:
    try:
        found = (await client.list(LEASES, fields=f"metadata.name={name}")).items
        return found[0] if found else None
    except ForbiddenError:
        pass
    try:
        return await client.get(LEASES, name, _NAMESPACE)
    except (ForbiddenError, NotFoundError):
        return None
