"""A viewer's broker user, as `slicebus fleet viewer` makes it: what commands do with its address on a real broker."""

import asyncio
import shlex
import stat
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from slicebus.ambient.clock import now
from slicebus.bus.dead_letters.headers import dead_copy
from slicebus.bus.factory import connect
from slicebus.bus.settings import BusSettings
from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World, embedded_world
from slicebus.cli.doctor.broker_checks import definitions_check
from slicebus.cli.journal.source import STREAM, Span
from slicebus.cli.trace.command import find
from slicebus.kube.resources import WORKERCLUSTERS
from slicebus.proto.errors import DeadReason, ForbiddenError
from slicebus.proto.messages import ClusterName, Lane
from slicebus.proto.topology import DEAD, manager_queue
from support import roles
from support.installation import run_cli
from support.kubeconfig import write_kubeconfig
from support.rabbitmq import RabbitBroker
from support.rabbitmq_releases import every_rabbitmq
from support.scenario import Scenario, set_quota
from support.waiting import eventually

pytestmark = every_rabbitmq

Done = subprocess.CompletedProcess[str]
EAST = ClusterName("east")
JANE = "jane.doe"
NOWHERE = Path("/nowhere")


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with embedded_world([EAST]) as made:
        yield made


@pytest.fixture
def urls(rabbitmq: RabbitBroker, vhost: str) -> dict[str, str]:
    return {user: rabbitmq.url(vhost, user) for user in ("manager", "east")}


class Administrator:
    """Somebody with the broker's administrator, and without a cluster."""

    def __init__(self, folder: Path, broker: RabbitBroker, vhost: str) -> None:
        self.folder = folder
        manager = broker.url(vhost, "manager").replace(":manager@", "@")
        self._env = {"SLICEBUS_BROKER_API": broker.api_url, "AMQP_URL": manager}

    async def call(self, *arguments: str, status: int = 0, kubeconfig: Path = NOWHERE) -> Done:
        env = self._env | {"KUBECONFIG": str(kubeconfig)}
        done = await asyncio.to_thread(run_cli, "fleet", *arguments, env=env, cwd=self.folder)
        assert done.returncode == status, done.stdout + done.stderr
        return done

    def address(self, file: str = f"{JANE}.env") -> str:
        """What the file gives to a shell. Only its owner can read it."""
        path = self.folder / file
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        [export, assignment] = shlex.split(path.read_text())
        name, _, url = assignment.partition("=")
        assert (export, name) == ("export", "AMQP_URL")
        return url


@pytest.fixture
def administrator(rabbitmq: RabbitBroker, vhost: str, tmp_path: Path) -> Iterator[Administrator]:
    """Users belong to the broker, which every test shares: the next test finds no viewer."""
    yield Administrator(tmp_path, rabbitmq, vhost)
    if JANE in [user["name"] for user in rabbitmq.api("GET", "users")]:
        rabbitmq.api("DELETE", f"users/{JANE}")


async def dead_letter_one(url: str, job: str) -> None:
    """Have a dead letter about a job: an empty queue refuses nobody."""
    [request, *_] = [entry for entry in (await find(job, STREAM, Span(), amqp_url=url)).messages if entry.received]
    bus = await connect(url, name="test")
    try:
        queue = manager_queue(Lane.CONTROL)
        wire = request.record.message
        copy = dead_copy(wire, queue=queue, reason=DeadReason.REFUSED, detail="no", at=now(), by=bus.user)
        await bus.publish(DEAD, copy)
    finally:
        await bus.aclose()


async def test_a_viewer_reads_the_journal_with_every_command_for_it(
    world: World, urls: dict[str, str], administrator: Administrator, rabbitmq: RabbitBroker, vhost: str
) -> None:
    """Over 20 s: it calls ten commands, as processes."""
    done = await administrator.call("viewer", JANE)
    assert done.stderr == ""
    url = administrator.address()
    password = urlsplit(url).password or ""
    assert len(password) > 40
    assert password not in done.stdout
    assert done.stdout.splitlines()[2:] == [
        f"  . ./{JANE}.env",
        "  slicebus trace JOB",
        "  slicebus journal tail",
        "  slicebus jobs -A --at 03:00",
    ]
    env = {"AMQP_URL": url, "KUBECONFIG": str(NOWHERE)}

    async def jane(*arguments: str, status: int = 0) -> Done:
        done = await asyncio.to_thread(run_cli, *arguments, env=env, cwd=administrator.folder)
        assert done.returncode == status, done.stdout + done.stderr
        return done

    await world.ensure(world.manager, WORKERCLUSTERS, objects.worker_cluster(EAST))
    async with roles.manager(world, urls), roles.agent(world, urls, EAST):
        await set_quota(world, 4)
        job = Scenario(world, "Job", "seen")
        await job.submit()
        await job.expect_pods(running=1)
        await job.scale(3)
        await job.expect_pods(running=3)

        async def runs() -> bool:
            """Recorded decisions are published a moment later."""
            return " Running " in (await jane("jobs", "--at", "-0s", "--no-headers")).stdout

        await eventually(runs, "the journal shows that it runs")
        shown = (await jane("jobs", "-n", "team-a", "--at", "-0s", "-o", "wide")).stdout.splitlines()
        assert shown[0].startswith("AT 20")
        assert shown[2].split()[:3] == ["seen", "Job", "Running"]
        queues = (await jane("queues", "--at", "-0s", "--no-headers")).stdout.split()
        assert queues[:4] == ["batch", "-", "default", "cpu"]
        refused = await jane("jobs", "--at", "-1d", status=2)
        assert "is before the first record; the journal has records from 20" in refused.stderr
        future = await jane("queues", "--at", "2126-01-01T00:00:00Z", status=2)
        assert "is in the future; the journal has records from 20" in future.stderr

        await dead_letter_one(urls["manager"], "seen")
        traced = await jane("trace", "seen")
        assert "resize main 1 -> 3" in traced.stdout
        assert "ungates 2 pods" in traced.stdout
        assert "dead letters cannot be read" in traced.stderr
        assert " scale-request " in (await jane("journal", "query", "--job", "seen")).stdout
        assert " hello " in (await jane("journal", "tail", "--since", "1h", "--no-follow")).stdout
        await jane("journal", "export", "seen.jsonl")
        assert "none differs" in (await jane("replay", "seen.jsonl")).stdout

        doctor = (await jane("doctor", status=1)).stdout  # There is no cluster here.
        assert f"✓ rights       user {JANE} reads the journal and sends nothing, as a viewer: " in doctor
        assert "topology" not in doctor
        refused = await jane("dead", "list", status=2)
        assert (refused.stderr.count("\n"), "ACCESS_REFUSED" in refused.stderr) == (1, True)
        await job.scale(2)
        await job.expect_pods(running=2)

    [check] = await definitions_check(world.manager, rabbitmq.api_url, urls["manager"], 1)
    assert JANE not in check.found, "the doctor knows a viewer by its rights"
    bus = await connect(url, name="viewer")
    try:
        await administrator.call("viewer", JANE, "--remove")

        async def cut() -> bool:
            return not bus.connected

        await eventually(cut, "its connection is closed")
    finally:
        await bus.aclose()
    with pytest.raises(ForbiddenError):
        await connect(url, name="removed", settings=BusSettings(connect_s=5.0))


async def test_a_viewer_that_is_there_keeps_its_password_and_gets_its_rights_again(
    administrator: Administrator, rabbitmq: RabbitBroker, vhost: str
) -> None:
    await administrator.call("viewer", JANE)
    first = administrator.address()
    rabbitmq.api("DELETE", f"permissions/{vhost}/{JANE}")
    done = await administrator.call("viewer", JANE)
    assert done.stderr == f"the broker user of {JANE} keeps its password: --new-password gives it another\n"
    bus = await connect(first, name="test")
    await bus.aclose()
    assert "File exists" in (await administrator.call("viewer", JANE, "--new-password", status=2)).stderr
    await administrator.call("viewer", JANE, "--new-password", "--out", "again.env")
    with pytest.raises(ForbiddenError):
        await connect(first, name="test", settings=BusSettings(connect_s=5.0))
    bus = await connect(administrator.address("again.env"), name="test")
    await bus.aclose()


async def test_no_agent_gets_the_user_of_a_viewer(
    world: World, administrator: Administrator, rabbitmq: RabbitBroker, tmp_path: Path
) -> None:
    """Its password is somebody's who may only read."""
    await administrator.call("viewer", JANE)
    before = rabbitmq.api("GET", "permissions")
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", world.manager.host)
    done = await administrator.call("join", "blue", "--broker-user", JANE, status=2, kubeconfig=kubeconfig)
    assert f"the broker user {JANE} is a viewer's, whose password others have: give the cluster one of" in done.stderr
    assert rabbitmq.api("GET", "permissions") == before
    assert "blue" not in [found["metadata"]["name"] for found in (await world.manager.list(WORKERCLUSTERS)).items]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("viewer", "manager"), "the broker user manager is no viewer's: it has other rights; name another"),
        (("viewer", "guest"), "the broker user guest is no viewer's"),
        (("viewer", "east"), "the broker user east is no viewer's"),
        (("viewer", "east", "--remove"), "the broker user east is no viewer's"),
        (("viewer", "a/b"), "not a viewer: 'a/b'"),
        (("viewer", "nobody", "--remove"), "there is no viewer nobody"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
async def test_what_is_wrong_is_refused_and_changes_nothing(
    arguments: tuple[str, ...], told: str, administrator: Administrator, rabbitmq: RabbitBroker, vhost: str
) -> None:
    before = [rabbitmq.api("GET", "users"), rabbitmq.api("GET", "permissions")]
    assert told in (await administrator.call(*arguments, status=2)).stderr
    assert [rabbitmq.api("GET", "users"), rabbitmq.api("GET", "permissions")] == before
    assert not list(administrator.folder.glob("*.env"))
