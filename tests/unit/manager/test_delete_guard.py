"""What the guard of deletes reads before it lets one go."""

import pytest
from prometheus_client import CollectorRegistry

from slicebus.decisions.decider import Decider
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import NAMESPACES
from slicebus.manager.act.delete_guard import DeleteGuard
from slicebus.manager.decide.cluster.delete_breaker import DeleteLimits
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.errors import UnavailableError
from slicebus.sandbox.apiserver import EmbeddedApiServer
from support.refusing import UNSERVED, refusing


async def test_a_namespace_whose_path_is_not_served_for_a_moment_is_still_there() -> None:
    """Without it no job of the namespace would be admitted, until somebody edits it: its version counts as gone."""
    store = ManagerStore()
    async with EmbeddedApiServer() as server, KubeClient.from_url(server.url) as client:
        store.namespaces.put(await client.create(NAMESPACES, {"metadata": {"name": "team"}}))
        guard = DeleteGuard(
            DeleteLimits(share=1.0, count=1, window_s=1.0),
            client=client,
            decide=Decider(store),
            executor=None,  # type: ignore[arg-type]
            requeue=lambda _: None,
            registry=CollectorRegistry(),
        )
        with refusing(server.api, UNSERVED, verbs="GET"), pytest.raises(UnavailableError, match="not served now"):
            await guard._read_namespace("team")
        await store.namespaces.replace((await client.list(NAMESPACES)).items, "9")
    assert store.namespaces.get(None, "team") is not None
