"""Whose cluster a command is run on, and what it says on a wrong one."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from unittest.mock import patch

import pytest

from slicebus.ambient.clock import now
from slicebus.cli.demo import objects
from slicebus.cli.doctor.checks import place_finding
from slicebus.cli.place import Place
from slicebus.kube.client import KubeClient
from slicebus.kube.crds import custom_resource_definitions
from slicebus.kube.resources import CRDS, JOBS, LEASES, NAMESPACES
from slicebus.kube.times import micro_time_text
from slicebus.sandbox.apiserver import EmbeddedApiServer
from slicebus.sandbox.apiserver.status import ApiError
from slicebus.slices.api.api_names import CLUSTER_ANNOTATION, ORIGIN, ORIGIN_LABEL
from support.kubeconfig import write_kubeconfig
from support.refusing import refusing
from unit.cli.hostile import Called, call


class Site:
    """A cluster with definitions and roles or without."""

    def __init__(self, server: EmbeddedApiServer, client: KubeClient, kubeconfig: Path) -> None:
        self.server = server
        self._client = client
        self._kubeconfig = kubeconfig

    async def define(self) -> None:
        for definition in custom_resource_definitions():
            await self._client.create(CRDS, definition)

    async def led(self, role: str, **annotations: str) -> None:
        """A Lease that a role holds, for longer than a test takes."""
        metadata = {"name": f"slicebus-{role}", "namespace": objects.SYSTEM_NAMESPACE, "annotations": annotations}
        spec = {"holderIdentity": f"{role}-1", "renewTime": micro_time_text(now()), "leaseDurationSeconds": 3600}
        lease = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata, "spec": spec}
        await self._client.create(LEASES, lease)

    async def job(self, **labels: str) -> None:
        metadata = {"name": "sweep", "namespace": objects.SYSTEM_NAMESPACE, "labels": labels}
        template = {"spec": {"containers": [{"name": "a", "image": "a"}], "restartPolicy": "Never"}}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}
        await self._client.create(JOBS, job)

    async def call(self, *command: str) -> Called:
        with patch.dict(os.environ, KUBECONFIG=str(self._kubeconfig), AMQP_URL="", COLUMNS="200"):
            return await asyncio.to_thread(call, *command)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with EmbeddedApiServer() as server, KubeClient.from_url(server.url) as client:
        await client.create(NAMESPACES, objects.namespace(objects.SYSTEM_NAMESPACE))
        yield Site(server, client, write_kubeconfig(tmp_path / "kubeconfig", server.url))


READERS = (
    ("explain", "sweep"),
    ("simulate", "sweep", "--size", "main=2"),
    ("tree", "sweep"),
    ("jobs", "-A"),
    ("queues",),
    ("fleet", "list"),
)
"""Commands that show what a manager has written."""


@pytest.mark.parametrize(
    "command",
    [
        *READERS,
        ("wait", "sweep", "--for", "running"),
        ("queues", "stop", "batch"),
        ("fleet", "get", "east"),
        ("broker", "definitions"),
    ],
    ids=" ".join,
)
async def test_a_worker_is_named(site: Site, command: tuple[str, ...]) -> None:
    await site.define()
    await site.led("agent", **{CLUSTER_ANNOTATION: "east"})
    done = await site.call(*command)
    assert (done.status, done.out) == (2, "")
    assert done.err == "slicebus: this is worker east; run it on the manager's cluster\n"


async def test_a_cluster_without_slicebus_is_named(site: Site) -> None:
    done = await site.call("explain", "sweep")
    told = (
        f"slicebus is not on this cluster, {site.server.url}: it has no WorkerClusters; run it on the manager's cluster"
    )
    assert (done.status, done.out, done.err) == (2, "", f"slicebus: {told}\n")
    definitions = await site.call("broker", "definitions")
    assert definitions.status == 0, "the broker is set up before the charts are installed"


async def test_the_managers_cluster_may_be_a_worker_too(site: Site) -> None:
    await site.define()
    await site.led("agent", **{CLUSTER_ANNOTATION: "east"})
    await site.led("manager")
    done = await site.call("fleet", "list")
    assert (done.status, done.err) == (0, "there is no WorkerCluster\n")


@pytest.mark.parametrize("command", READERS, ids=" ".join)
async def test_that_no_manager_works_is_said_first(site: Site, command: tuple[str, ...]) -> None:
    await site.define()
    await site.job()
    done = await site.call(*command)
    assert done.status == 1
    assert done.err.startswith("✗ no manager has ever led: there is no Lease slicebus-system/slicebus-manager")


@pytest.mark.parametrize("command", [("explain", "sweep"), ("jobs", "-A")], ids=" ".join)
async def test_who_may_not_read_leases_learns_it_from_the_copy(site: Site, command: tuple[str, ...]) -> None:
    await site.define()
    await site.job(**{ORIGIN_LABEL: ORIGIN})
    with refusing(site.server.api, ApiError(403, "leases is forbidden"), verbs="GET", path="/leases"):
        done = await site.call(*command)
    told = "Job/slicebus-system/sweep is an agent's copy: this is a worker; run it on the manager's cluster"
    assert (done.status, done.out) == (2, "")
    assert done.err.splitlines()[-1] == f"slicebus: {told}"


EAST, OLDER, MANAGERS = Place(False, "east"), Place(False, ""), Place(True)


@pytest.mark.parametrize(
    ("place", "cluster", "found"),
    [
        (EAST, None, "this is worker east, not the manager's cluster"),
        (OLDER, None, "this is a worker cluster, not the manager's cluster"),
        (MANAGERS, None, None),
        (Place(True, "east"), None, None),
        (Place(False), None, None),
        (EAST, "east", None),
        (EAST, "west", "this is worker east, not worker west"),
        (OLDER, "west", None),
        (MANAGERS, "west", "this is the manager's cluster, not worker west"),
        (Place(True, "west"), "west", None),
        (Place(False), "west", None),
    ],
)
def test_the_doctor_says_on_whose_cluster_it_looks(place: Place, cluster: str | None, found: str | None) -> None:
    check = place_finding(place, cluster)
    assert (check.found if check else None) == found
    assert check is None or not check.ok


async def test_the_doctor_of_another_cluster_says_no_more_than_that(site: Site) -> None:
    await site.define()
    await site.led("agent", **{CLUSTER_ANNOTATION: "east"})
    done = await site.call("doctor", "--role", "manager")
    assert done.status == 1
    assert done.out.splitlines()[-2:] == [
        "  ✗ cluster      this is worker east, not the manager's cluster",
        "      → run it with the kubeconfig of the manager's cluster, or with --role agent and --cluster",
    ]
