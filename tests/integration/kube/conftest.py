"""One API for each test: once the embedded server, once a real kube-apiserver."""

import itertools
import shutil
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from integration.kube.contract import WIDGETS, Api, widget_definition
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import CRDS, NAMESPACES
from slicebus.proto.errors import AlreadyExistsError
from slicebus.sandbox.apiserver import EmbeddedApiServer
from support.controlplane import ControlPlane
from support.kubeconfig import write_kubeconfig
from support.missing import skip_or_fail
from support.waiting import eventually

_numbers = itertools.count(1)


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.controlplane)])
async def api(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Api]:
    """A server with the test's kinds and an empty namespace."""
    namespace = f"contract-{next(_numbers)}"
    if request.param == "real":
        control_plane: ControlPlane = request.getfixturevalue("control_plane")
        source = control_plane.clusters["manager"].kubeconfig
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(source.read_text())
        async with await KubeClient.from_kubeconfig(kubeconfig) as client:
            yield await prepared(Api(client, kubeconfig, namespace))
            await client.delete(NAMESPACES, namespace)
        return
    async with EmbeddedApiServer() as server, KubeClient.from_url(server.url) as client:
        yield await prepared(Api(client, write_kubeconfig(tmp_path / "kubeconfig", server.url), namespace))


@pytest.fixture
def kubectl_api(api: Api) -> Api:
    """The same, for tests that need kubectl."""
    if shutil.which("kubectl") is None:
        skip_or_fail("no kubectl: Debian's package kubernetes-client is not installed")
    return api


async def prepared(api: Api) -> Api:
    with suppress(AlreadyExistsError):
        await api.client.create(CRDS, widget_definition())

    async def served() -> bool:
        return await api.client.serves(WIDGETS)

    await eventually(served, "widgets are served")
    await api.client.create(NAMESPACES, {"metadata": {"name": api.namespace}, "apiVersion": "v1", "kind": "Namespace"})
    return api
