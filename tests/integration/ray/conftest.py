"""One operator for each test: the stand-in on the embedded server and on a real one, and KubeRay where there is one."""

import itertools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import pytest

from integration.ray.contract import Operator
from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World, prepare, running
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import NAMESPACES, RAYCLUSTERS, RAYJOBS, RAYSERVICES
from slicebus.sandbox.apiserver import EmbeddedApiServer
from slicebus.sandbox.controllers.ray import RayClusterController
from slicebus.sandbox.controllers.ray_jobs import RayJobController
from slicebus.sandbox.controllers.ray_services import RayServiceController
from support.controlplane import ControlPlane
from support.kuberay import KubeRay, binary_and_definitions
from support.wiping import wipe_resource

_numbers = itertools.count(1)
_QUIET_S = 0.5
_QUIET_REAL_S = 3.0
"""KubeRay comes back 2 s after an error."""


def stand_ins(client: KubeClient, *, replica_labels: bool) -> list[Coroutine[Any, Any, None]]:
    """Those of the controllers that KubeRay has for the tests here."""
    clusters = RayClusterController(client, replica_labels=replica_labels)
    return [controller.run() for controller in (clusters, RayJobController(client), RayServiceController(client))]


@pytest.fixture
def replica_labels() -> bool:
    """Whether pods are labelled with their replica. Tests of KubeRay 1.4 and 1.5 set it to False."""
    return True


@pytest.fixture(
    params=[
        "stand-in-on-embedded",
        pytest.param("stand-in-on-real", marks=pytest.mark.controlplane),
        pytest.param("kuberay", marks=pytest.mark.controlplane),
    ]
)
async def operator(request: pytest.FixtureRequest, replica_labels: bool) -> AsyncIterator[Operator]:
    """What runs the RayClusters of a namespace, which is empty."""
    namespace = f"ray-{next(_numbers)}"
    if request.param == "stand-in-on-embedded":
        async with EmbeddedApiServer() as server, KubeClient.from_url(server.url) as client:
            await prepare(World(manager=client, workers={}))
            await client.create(NAMESPACES, objects.namespace(namespace))
            async with running(*stand_ins(client, replica_labels=replica_labels)):
                yield Operator(client, namespace, quiet_s=_QUIET_S)
        return
    if request.param == "kuberay":
        namespace = request.getfixturevalue("kuberay")(replica_labels)
    control_plane: ControlPlane = request.getfixturevalue("control_plane")
    async with await KubeClient.from_kubeconfig(control_plane.clusters["manager"].kubeconfig) as client:
        if request.param == "kuberay":
            yield Operator(client, namespace, is_real=True, quiet_s=_QUIET_REAL_S)
            return
        await client.create(NAMESPACES, objects.namespace(namespace))
        async with running(*stand_ins(client, replica_labels=replica_labels)):
            yield Operator(client, namespace, quiet_s=_QUIET_S)
        # A finalizer that nobody takes away any more would keep Ray's definitions from going in other tests.
        for resource in (RAYJOBS, RAYSERVICES, RAYCLUSTERS):
            await wipe_resource(client, resource, namespace)
        await client.delete(NAMESPACES, namespace)


@pytest.fixture(scope="session")
def kuberay(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[bool], str]]:
    """The namespace of an operator with or without the replica labels, started when it is first asked for."""
    started: dict[bool, KubeRay] = {}

    def start(replica_labels: bool) -> str:
        namespace = f"kuberay-{'with' if replica_labels else 'without'}-labels"
        binary_and_definitions()
        if replica_labels not in started:
            control_plane: ControlPlane = request.getfixturevalue("control_plane")
            cluster, folder = control_plane.clusters["manager"], tmp_path_factory.mktemp(namespace)
            kuberay = KubeRay(cluster, folder, namespace=namespace, replica_labels=replica_labels)
            kuberay.start()
            cluster.kubectl("create", "namespace", namespace)
            started[replica_labels] = kuberay
        return namespace

    yield start
    for kuberay in started.values():
        kuberay.stop()
