"""An in-process API server, with the definitions and namespaces that both roles need."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from slicebus.kube.client import KubeClient
from slicebus.kube.crds import custom_resource_definitions
from slicebus.kube.resources import CRDS, NAMESPACES
from slicebus.sandbox.apiserver import EmbeddedApiServer
from slicebus.sandbox.controllers import crds as ray_crds

DEFINITIONS = (*custom_resource_definitions(), *custom_resource_definitions(ray_crds.__name__))
NAMESPACE = "team"
SYSTEM = "slicebus-system"


@pytest.fixture
async def api() -> AsyncIterator[KubeClient]:
    """A client of a fresh server that has the namespaces and the definitions."""
    async with EmbeddedApiServer() as server, KubeClient.from_url(server.url) as client:
        for definition in DEFINITIONS:
            await client.create(CRDS, definition)
        for name in (NAMESPACE, SYSTEM):
            await client.create(NAMESPACES, {"metadata": {"name": name}})
        yield client


def config_map(name: str = "one", **data: str) -> dict[str, Any]:
    """The simplest object there is."""
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
