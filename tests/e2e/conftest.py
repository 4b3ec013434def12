"""A fleet for each test: all in this process, and on real servers as well where these are the test's point.

A test that is marked `real` runs on both. Embedded it says on any machine whether the roles are right, and beside a
failure on real servers, whether a stand-in differs from what it stands for. With `only=True` it needs what no stand-in
has. `pytest --real` runs every test with a fleet on real servers, and nothing else.
"""

import shutil
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World, embedded_world, fleet, real_world
from slicebus.kube.resources import WORKERCLUSTERS
from slicebus.proto.messages import ClusterName
from support.controlplane import ControlPlane
from support.fleet import Fleet
from support.kubeconfig import write_kubeconfig
from support.missing import skip_or_fail
from support.rabbitmq import RabbitBroker
from support.wiping import wipe

REAL = [pytest.mark.rabbitmq, pytest.mark.controlplane]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the parts that a test is not for."""
    only_real = bool(config.getoption("--real"))
    items[:] = [item for item in items if is_for(item, only_real=only_real)]


def is_for(item: pytest.Item, *, only_real: bool) -> bool:
    """Whether a test is for the parts that this item has. Without any it is left out by `only_real` alone."""
    callspec, mark = getattr(item, "callspec", None), item.get_closest_marker("real")
    parts = callspec.params.get("parts") if callspec else None
    if only_real:
        return parts == "real"
    if parts == "real":
        return mark is not None
    return parts is None or mark is None or not mark.kwargs.get("only")


@pytest.fixture(params=["embedded", pytest.param("real", marks=REAL)])
def parts(request: pytest.FixtureRequest) -> str:
    """What the fleet runs on."""
    name: str = request.param
    return name


@pytest.fixture
def urls(parts: str, request: pytest.FixtureRequest) -> dict[str, str]:
    """Each role's broker address."""
    roles = ("manager", "east", "west")
    if parts == "embedded":
        name = request.getfixturevalue("broker_name")
        return {role: f"memory://{role}@{name}" for role in roles}
    broker: RabbitBroker = request.getfixturevalue("rabbitmq")
    vhost: str = request.getfixturevalue("vhost")
    return {role: broker.url(vhost, role) for role in roles}


@pytest.fixture
def broad_urls(parts: str, urls: dict[str, str], request: pytest.FixtureRequest) -> dict[str, str]:
    """The same, for agents that may publish whatever they like: with the rights of slicebus the broker refuses it."""
    if parts == "real":
        for cluster in urls.keys() - {"manager"}:
            request.getfixturevalue("rabbitmq").broaden(request.getfixturevalue("vhost"), cluster)
    return urls


@pytest.fixture
async def world(parts: str, urls: dict[str, str], request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """A manager and two agents, started."""
    async with clusters_of(parts, request) as world, fleet(world, urls):
        yield world


@pytest.fixture
async def bare(parts: str, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """Clusters without roles: a test starts and stops them."""
    async with clusters_of(parts, request) as world:
        yield world


@pytest.fixture
async def bare_east(parts: str, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """The same, for tests that need one worker."""
    async with clusters_of(parts, request, ("east",)) as world:
        yield world


def clusters_of(
    parts: str, request: pytest.FixtureRequest, embedded: Sequence[str] = ("east", "west")
) -> AbstractAsyncContextManager[World]:
    """The clusters of `parts`. The real ones are always all of them."""
    if parts == "embedded":
        return embedded_world(embedded)
    return wiped_world(request.getfixturevalue("control_plane"))


@pytest.fixture
def kubectl() -> None:
    """What examples and documents use."""
    if shutil.which("kubectl") is None:
        skip_or_fail("no kubectl: Debian's package kubernetes-client is not installed")


@pytest.fixture
def kubeconfig(world: World, parts: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """Of the manager's cluster."""
    if parts != "embedded":
        yield request.getfixturevalue("control_plane").clusters["manager"].kubeconfig
        return
    yield write_kubeconfig(tmp_path / "kubeconfig", world.manager.host)


@pytest.fixture
async def clusters(control_plane: ControlPlane, vhost: str) -> AsyncIterator[World]:
    """Real clusters that are accepted, without roles."""
    async with wiped_world(control_plane) as made:
        for name in made.workers:
            await made.manager.create(WORKERCLUSTERS, objects.worker_cluster(name))
        yield made


@asynccontextmanager
async def wiped_world(control_plane: ControlPlane, *, ray_stand_in: bool = True) -> AsyncIterator[World]:
    """Real API servers, schedulers and Job controllers, nodes by KWOK, and a stand-in for KubeRay."""
    kubeconfigs = {ClusterName(name): cluster.kubeconfig for name, cluster in control_plane.clusters.items()}
    manager = kubeconfigs.pop(ClusterName("manager"))
    async with real_world(manager, kubeconfigs, ray_stand_in=ray_stand_in) as world:
        try:
            yield world
        finally:
            await wipe(world.manager, *world.workers.values())


@pytest.fixture(name="fleet")
async def fleet_of_processes(
    clusters: World, control_plane: ControlPlane, rabbitmq: RabbitBroker, vhost: str, tmp_path: Path
) -> AsyncIterator[Fleet]:
    """A manager and two agents, as processes on the real servers."""
    made = Fleet(tmp_path)
    made.add_all(control_plane, lambda name: rabbitmq.url(vhost, name))
    async with made.kept():
        await made.ready()
        yield made
