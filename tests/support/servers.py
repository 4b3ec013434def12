"""Fixtures of the real servers: started when the first test asks for one, ended with the session."""

import fcntl
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

import pytest

from slicebus.sandbox.controllers import crds as ray_crds
from support.controlplane import ControlPlane
from support.image import NoIndexError, install_image
from support.missing import skip_or_fail
from support.postgresql import PostgresServer, programs
from support.rabbitmq import RabbitBroker
from support.rabbitmq_releases import Release, releases, told
from support.tools import tools

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


def pytest_report_header() -> str:
    """Say which RabbitMQ the tests run on."""
    return told()


Brokers = Callable[[Release | None], RabbitBroker]


@pytest.fixture(scope="session")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """The broker of a release, started when it is first asked for."""
    started: dict[Release, RabbitBroker] = {}

    def broker_of(release: Release | None) -> RabbitBroker:
        if release is None:
            skip_or_fail("no RabbitMQ: Debian's package rabbitmq-server is not installed")
        if release not in started:
            started[release] = RabbitBroker(tmp_path_factory.mktemp(f"rabbitmq-{release.version}"), release)
            started[release].start()
        return started[release]

    yield broker_of
    for broker in started.values():
        broker.stop()


@pytest.fixture
def rabbitmq_release(request: pytest.FixtureRequest) -> Release | None:
    """The newest RabbitMQ, unless the test runs on each of them."""
    release: Release | None = getattr(request, "param", next(iter(releases()), None))
    return release


@pytest.fixture
def rabbitmq(brokers: Brokers, rabbitmq_release: Release | None) -> RabbitBroker:
    """A broker."""
    return brokers(rabbitmq_release)


@pytest.fixture
def vhost(rabbitmq: RabbitBroker) -> Iterator[str]:
    """A vhost of the test's own, for a manager and the clusters east and west, and the administrator."""
    with vhost_of(rabbitmq) as name:
        yield name


@contextmanager
def vhost_of(broker: RabbitBroker) -> Iterator[str]:
    """The same, while the context lasts."""
    name = f"test-{next(_numbers)}"
    broker.add_vhost(name, "east", "west")
    yield name
    broker.remove_vhost(name)


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A manager's cluster and two workers."""
    needed = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
    missing = [name for name in needed if not (tools() / name).exists()]
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


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresServer]:
    """A PostgreSQL server."""
    found = programs()
    if found is None:
        skip_or_fail("no PostgreSQL: Debian's package postgresql is not installed")
    server = PostgresServer(found)
    try:
        server.start()
        yield server
    finally:
        server.stop()


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
def promtool() -> Path:
    """Prometheus' promtool binary."""
    return _of_prometheus("promtool")


@pytest.fixture(scope="session")
def prometheus() -> Path:
    """The binary of a Prometheus server."""
    return _of_prometheus("prometheus")


def _of_prometheus(name: str) -> Path:
    binary = tools() / name
    if not binary.exists():
        skip_or_fail(f"no {name}: Debian's package prometheus cannot be had")
    return binary


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The `slicebus` command of an environment that has what an image has. It takes a minute of processor time, so all
    testers of a run share one."""
    alone = worker_id == "master"
    folder = tmp_path_factory.getbasetemp() if alone else tmp_path_factory.getbasetemp().parent
    found = folder / "image.path"
    with (folder / "image.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.exists():
            try:
                found.write_text(str(install_image(tmp_path_factory.mktemp("image"))))
            except NoIndexError:
                skip_or_fail("no package index can be reached")
    return Path(found.read_text())
