"""Fixtures of the real servers: started when the first test asks for one, ended with the session."""

import itertools
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path

import pytest

from slicebus.sandbox.controllers import crds as ray_crds
from support.controlplane import ControlPlane
from support.image import NoIndexError, install_image
from support.missing import skip_or_fail
from support.rabbitmq import SERVER, RabbitBroker

_numbers = itertools.count(1)
SHARED_CRDS = Path(__file__).parents[3] / "shared" / "crds"
"""Kueue's and KubeRay's own definitions, where they lie beside the checkout; else the project's subset is used."""
NEEDED_CRDS = (
    "ray.io_rayservices",
    "kueue.x-k8s.io_workloads",
    "kueue.x-k8s.io_clusterqueues",
    "kueue.x-k8s.io_cohorts",
    "kueue.x-k8s.io_localqueues",
    "kueue.x-k8s.io_resourceflavors",
    "kueue.x-k8s.io_workloadpriorityclasses",
    "ray.io_rayclusters",
    "ray.io_rayjobs",
)


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitBroker]:
    """A broker."""
    if not SERVER.exists():
        skip_or_fail("no RabbitMQ: Debian's package rabbitmq-server is not installed")
    broker = RabbitBroker(tmp_path_factory.mktemp("rabbitmq"))
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def vhost(rabbitmq: RabbitBroker) -> Iterator[str]:
    """A vhost of the test's own, for a manager and the clusters east and west, and the administrator."""
    name = f"test-{next(_numbers)}"
    rabbitmq.add_vhost(name, "east", "west")
    yield name
    rabbitmq.remove_vhost(name)


def tools() -> Path:
    """Where tests/tools/build.sh links the binaries."""
    cache = os.environ.get("TOOLS_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / (
        "slicebus/tools"
    )
    return Path(cache) / "bin"


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A manager's cluster and two workers."""
    missing = [name for name in ("etcd", "kube-apiserver", "kube-controller-manager") if not (tools() / name).exists()]
    if missing:
        skip_or_fail(f"no Kubernetes control plane: {', '.join(missing)} not built, which needs Go")
    plane = ControlPlane(tmp_path_factory.mktemp("control-plane"), tools())
    try:
        plane.start()
        files = definitions()
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda cluster: cluster.define(*files), plane.clusters.values()))
        yield plane
    finally:
        plane.stop()


def definitions() -> list[str]:
    """Files of what has to be there before slicebus is: its own subset of Kueue's comes with its charts."""
    real = [str(path) for kind in NEEDED_CRDS for path in SHARED_CRDS.glob(f"*/{kind}.yaml")]
    return real or [str(path) for path in resources.files(ray_crds).iterdir() if path.name.endswith(".yaml")]


@pytest.fixture(scope="session")
def helm() -> Path:
    """The helm binary."""
    binary = tools() / "helm"
    if not binary.exists():
        skip_or_fail("no helm: it is built with Go")
    return binary


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `slicebus` command of an environment that has what an image has."""
    try:
        return install_image(tmp_path_factory.mktemp("image"))
    except NoIndexError:
        skip_or_fail("no package index can be reached")
