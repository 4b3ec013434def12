"""`slicebus fleet repin`: a cluster has one name only."""

import asyncio
import os
from pathlib import Path
from unittest.mock import patch

from slicebus.cli.demo import objects
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.crds import custom_resource_definitions
from slicebus.kube.resources import CRDS, NAMESPACES, WORKERCLUSTERS
from slicebus.manager.decide.cluster.identity import repinned
from slicebus.proto.messages import ClusterUid
from slicebus.sandbox.apiserver import EmbeddedApiServer
from support.kubeconfig import write_kubeconfig
from unit.cli.hostile import Called, call

ONE = ClusterUid("uid-1")


async def test_a_cluster_that_has_a_name_gets_no_other(tmp_path: Path) -> None:
    async with EmbeddedApiServer() as server, KubeClient.from_url(server.url) as client:
        kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", server.url)

        async def repin(name: str) -> Called:
            with patch.dict(os.environ, KUBECONFIG=str(kubeconfig), COLUMNS="200"):
                return await asyncio.to_thread(call, "fleet", "repin", name, "--uid", ONE, "--yes")

        await client.create(NAMESPACES, objects.namespace(objects.SYSTEM_NAMESPACE))
        for definition in custom_resource_definitions():
            await client.create(CRDS, definition)
        for name in ("east", "west"):
            await client.create(WORKERCLUSTERS, objects.worker_cluster(name))
        await client.patch(WORKERCLUSTERS, "east", None, MergePatch(repinned(ONE)), subresource="status")
        refused = await repin("west")
        told = "uid-1 has the name east: take it away with slicebus fleet revoke east\n"
        assert (refused.status, refused.err) == (1, told)
        assert "clusterUID" not in (await client.get(WORKERCLUSTERS, "west")).get("status", {})
        assert (await repin("east")).status == 0, "it is bound to it already"
