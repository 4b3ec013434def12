"""What commands read of a cluster: as much as the user may see, and for as long as the server answers."""

import asyncio

import pytest

from simulation.kueue import definition
from slicebus.cli.cluster.reading import followed, read, settled, unseen_text
from slicebus.kube.client import KubeClient
from slicebus.kube.crds import custom_resource_definitions
from slicebus.kube.resources import (
    ADMISSIONCHECKS,
    CLUSTERQUEUES,
    CRDS,
    LOCALQUEUES,
    NAMESPACES,
    RESOURCEFLAVORS,
    WORKERCLUSTERS,
    WORKLOADS,
    Resource,
)
from slicebus.manager.decide.problems import Sight
from slicebus.proto.errors import ForbiddenError, UnavailableError
from slicebus.sandbox.apiserver import EmbeddedApiServer
from slicebus.slices.api import api_names
from support.refusing import FORBIDDEN, refusing


@pytest.mark.parametrize(
    ("hidden", "confined_to", "told"),
    [
        ((), None, ""),
        ((RESOURCEFLAVORS,), None, "you may not see resourceflavors"),
        ((WORKERCLUSTERS,), None, "you may not see workerclusters; so this leaves out whether a cluster is connected"),
        (
            (WORKERCLUSTERS, CLUSTERQUEUES),
            "team-a",
            "you may not see clusterqueues, workerclusters; you see jobs of namespace team-a only; so this leaves out "
            "quota, and places in a queue and whether a cluster is connected",
        ),
    ],
)
def test_what_is_left_out_is_one_line(hidden: tuple[Resource, ...], confined_to: str | None, told: str) -> None:
    assert unseen_text(hidden, confined_to) == told


async def prepare(client: KubeClient) -> None:
    for manifest in custom_resource_definitions():
        await client.create(CRDS, manifest)
    for name in ("team-a", "team-b"):
        await client.create(NAMESPACES, {"metadata": {"name": name}})
        queue = {"metadata": {"name": "main", "namespace": name}, "spec": {"clusterQueue": "batch"}}
        await client.create(LOCALQUEUES, {"apiVersion": LOCALQUEUES.api_version, "kind": "LocalQueue"} | queue)


async def test_what_is_refused_for_all_is_read_of_one_namespace() -> None:
    async with EmbeddedApiServer() as server, KubeClient.from_url(server.url) as client:
        await prepare(client)
        whole = await read(client, fallback="team-a")
        assert (len(whole.store.local_queues), whole.sight, whole.unseen) == (2, Sight(), "")
        elsewhere = r"^/(api/v1|apis/[^/]+/[^/]+)/(?!namespaces/team-a/)."
        with refusing(server.api, FORBIDDEN, verbs="GET", path=elsewhere):
            part = await read(client, fallback="team-a")
            assert [*part.store.quotas.local_queues] == [("team-a", "main")]
            assert (part.confined_to, part.sight) == ("team-a", Sight(quota=False, clusters=False))
            with pytest.raises(ForbiddenError):
                await read(client)
            with pytest.raises(ForbiddenError):
                await read(client, only=[WORKERCLUSTERS])


async def test_a_namespace_that_was_asked_for_hides_nothing() -> None:
    async with EmbeddedApiServer() as server, KubeClient.from_url(server.url) as client:
        await prepare(client)
        part = await read(client, namespace="team-b")
        assert [*part.store.quotas.local_queues] == [("team-b", "main")]
        assert (part.confined_to, part.unseen, part.sight.quota) == (None, "", False)


async def test_beside_a_kueue_nothing_is_decided_again() -> None:
    async with EmbeddedApiServer() as server, KubeClient.from_url(server.url) as client:
        await prepare(client)
        await client.create(CRDS, definition())
        check = {"apiVersion": ADMISSIONCHECKS.api_version, "kind": "AdmissionCheck", "metadata": {"name": "slicebus"}}
        await client.create(ADMISSIONCHECKS, check | {"spec": {"controllerName": api_names.CHECK_CONTROLLER}})
        whole = await read(client)
        assert (whole.store.beside_kueue, whole.sight, whole.unseen) == (True, Sight(quota=False), "")
        assert len(whole.store.local_queues) == 2


async def test_it_is_followed_until_the_server_is_gone() -> None:
    async with EmbeddedApiServer() as server, KubeClient.from_url(server.url) as client:
        await prepare(client)
        reading = await read(client, only=[LOCALQUEUES, WORKLOADS])

        async def follow() -> None:
            async with followed(client, reading) as changed:
                await client.delete(LOCALQUEUES, "main", "team-b")
                await settled(changed)
                assert [*reading.store.quotas.local_queues] == [("team-a", "main")]
                await server.__aexit__(None, None, None)
                await settled(changed)

        with pytest.raises(UnavailableError):
            await asyncio.wait_for(follow(), timeout=60)
