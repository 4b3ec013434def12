"""A cluster joins with what `slicebus fleet join` makes and prints, works, is revoked, and joins again."""

import asyncio
import shlex
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import trustme

from integration.bus.contract import browse_all
from slicebus.bus.dead_letters.letters import DeadLetter
from slicebus.bus.factory import connect
from slicebus.bus.settings import BusSettings
from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.kube.resources import WORKERCLUSTERS
from slicebus.proto.errors import DeadReason, ForbiddenError
from slicebus.proto.messages import ClusterName
from support import roles
from support.installation import run_cli
from support.rabbitmq import RabbitBroker
from support.scenario import Scenario, set_quota
from support.waiting import eventually

pytestmark = [pytest.mark.rabbitmq]

BLUE = ClusterName("blue")
SOON = BusSettings(connect_s=5.0)


class Operator:
    """Somebody with the manager's kubeconfig and the broker's administrator."""

    def __init__(
        self, folder: Path, broker: RabbitBroker, vhost: str, kubeconfig: Path, *, administrator: str | None = None
    ) -> None:
        self.folder = folder
        # The manager's address needs no password for these commands.
        manager = broker.url(vhost, "manager").replace(":manager@", "@")
        api = broker.api_url
        if administrator is not None:
            api = f"http://{administrator}:{administrator}@{api.rpartition('@')[2]}"
        self._env = {"KUBECONFIG": str(kubeconfig), "SLICEBUS_BROKER_API": api, "AMQP_URL": manager}

    async def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(run_cli, "fleet", *arguments, env=self._env, cwd=self.folder)

    async def doctor(self) -> str:
        """What is said of the definitions."""
        done = await asyncio.to_thread(run_cli, "doctor", env=self._env)
        return next(line for line in done.stdout.splitlines() if " definitions " in line)

    async def differences(self) -> list[str]:
        """What the broker has otherwise. The users that every test has are no members of this fleet."""
        _, _, found = (await self.doctor()).partition(" definitions  ")
        if found.startswith("the broker has the rights and bounds of "):
            return []
        return [text for text in found.split("; ") if not text.endswith(" belongs to no accepted cluster")]

    def address(self, file: str = "blue.env") -> str:
        """The content of a file that only its owner can read."""
        path = self.folder / file
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        [line] = path.read_text().splitlines()
        return line.removeprefix("url=")


@pytest.fixture
def world(bare_east: World) -> World:
    """One worker, which joins as blue."""
    return World(bare_east.manager, {BLUE: bare_east.workers[ClusterName("east")]})


@pytest.fixture
def operator(kubeconfig: Path, rabbitmq: RabbitBroker, vhost: str, tmp_path: Path) -> Iterator[Operator]:
    """Users belong to the broker, which every test shares: the next test finds no user of the cluster that joined."""
    yield Operator(tmp_path, rabbitmq, vhost, kubeconfig)
    if BLUE in [user["name"] for user in rabbitmq.api("GET", "users")]:
        rabbitmq.api("DELETE", f"users/{BLUE}")


@pytest.fixture
def urls(rabbitmq: RabbitBroker, vhost: str) -> dict[str, str]:
    return {"manager": rabbitmq.url(vhost, "manager")}


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    """The file of a certificate authority."""
    path = tmp_path / "ca.pem"
    path.write_bytes(trustme.CA().cert_pem.bytes())
    return path


async def blue(world: World) -> dict[str, Any]:
    found: dict[str, Any] = await world.manager.get(WORKERCLUSTERS, BLUE)
    return found


async def test_an_administrator_without_rights_in_the_vhost_is_told_what_it_lacks(
    kubeconfig: Path, rabbitmq: RabbitBroker, vhost: str, tmp_path: Path
) -> None:
    rabbitmq.api("PUT", "users/boss", {"password": "boss", "tags": "administrator"})
    try:
        boss = Operator(tmp_path, rabbitmq, vhost, kubeconfig, administrator="boss")
        done = await boss.call("join", BLUE)
        assert done.returncode == 2, done
        assert f"rabbitmqctl set_permissions -p {vhost} boss '.*' '.*' '.*'" in done.stderr
        rabbitmq.permit(vhost, "boss", configure=".*", write=".*", read=".*")
        done = await boss.call("join", BLUE, "--new-password", "--out", "again.env")
        assert done.returncode == 0, done
        done = await boss.call("revoke", BLUE, "--yes")
        assert done.returncode == 0, done
    finally:
        rabbitmq.api("DELETE", "users/boss")


@pytest.mark.real
async def test_a_cluster_joins_works_is_revoked_and_joins_again(
    world: World, operator: Operator, urls: dict[str, str], authority: Path
) -> None:
    await set_quota(world, 9)
    async with roles.manager(world, urls) as manager:
        done = await operator.call("join", BLUE, "--image", "registry.example/agent")
        assert (done.returncode, done.stderr) == (0, ""), done
        first = operator.address()
        password = urlsplit(first).password or ""
        assert len(password) > 40
        assert password not in done.stdout + done.stderr
        commands = [shlex.split(line) for line in done.stdout.replace("\\\n", " ").splitlines()[2:]]
        assert [words[:3] for words in commands] == [
            ["kubectl", "create", "namespace"],
            ["kubectl", "create", "secret"],
            ["helm", "install", "slicebus-agent"],
        ]
        assert "--from-env-file=blue.env" in commands[1]
        assert {"cluster=blue", "managerUser=manager", "image.repository=registry.example/agent"} <= set(commands[2])
        assert (await blue(world))["spec"]["accepted"] is True
        assert await operator.differences() == []

        scenario = Scenario(world, "Job", "first")
        async with roles.agent(world, urls | {BLUE: first}, BLUE, manager_user="manager") as agent:
            await scenario.submit()
            await scenario.expect_pods(running=1)
            await scenario.scale(4)
            await scenario.expect_pods(running=4)
            uid = (await blue(world))["status"]["clusterUID"]
            assert await operator.differences() == [], "also after the agent has said its UID"

            done = await operator.call("revoke", BLUE)
            assert done.returncode == 2, done
            assert "cuts the agent of blue off: --yes says that you mean it" in done.stderr
            done = await operator.call("revoke", BLUE, "--dry-run")
            assert (done.returncode, len(done.stdout.splitlines())) == (0, 5), done
            assert (await blue(world))["spec"]["accepted"] is True
            done = await operator.call("revoke", BLUE, "--yes")
            assert (done.returncode, done.stderr) == (0, ""), done
            assert done.stdout.startswith("blue is out: it is not accepted, its broker user and 4 queues are gone")

            async def cut() -> bool:
                return not agent.bus.connected

            await eventually(cut, "the agent's connection is closed")
        with pytest.raises(ForbiddenError):
            await connect(first, name="revoked", settings=SOON)
        revoked = await blue(world)
        assert revoked["spec"]["accepted"] is False
        assert (revoked["status"].get("clusterUID"), revoked["status"]["epoch"]) == (None, 0)

        done = await operator.call("join", BLUE)
        assert done.returncode == 2, "the file is there"
        assert "blue.env is there, with an address of the broker user blue: --force overwrites it" in done.stderr
        assert (operator.address(), (await blue(world))["spec"]["accepted"]) == (first, False)
        done = await operator.call("join", BLUE, "--force", "--ca-file", str(authority))
        assert done.returncode == 0, done.stderr
        assert f"slicebus-amqp-ca -n slicebus-system --from-file=ca.crt={authority}" not in done.stdout, "plain amqp://"
        again = operator.address()
        assert urlsplit(again).password != password
        async with roles.agent(world, urls | {BLUE: again}, BLUE, manager_user="manager"):
            await scenario.scale(2)
            await scenario.expect_pods(running=2)

            async def is_known_again() -> bool:
                return (await blue(world))["status"].get("clusterUID") == uid

            await eventually(is_known_again, "the cluster has its name again")
        # What the agent said between the end of its acceptance and that of its user is refused as a stranger's.
        letters = map(DeadLetter.from_message, await browse_all(manager.bus))
        assert {letter.reason for letter in letters} <= {DeadReason.UNKNOWN_CLUSTER}


async def test_joining_again_sets_rights_and_keeps_the_password(
    world: World, operator: Operator, rabbitmq: RabbitBroker, vhost: str
) -> None:
    await operator.call("join", BLUE, "--broker-user", "agent of blue")
    first = operator.address()
    assert (await blue(world))["spec"]["brokerUser"] == "agent of blue"
    rabbitmq.broaden(vhost, "agent of blue")
    assert "permission of agent of blue: configure is '.*', not '^$'" in await operator.doctor()
    done = await operator.call("join", BLUE)
    assert done.returncode == 0
    assert "keeps its password: --new-password gives it another" in done.stderr
    found = await operator.doctor()
    assert found.endswith("the broker has the rights and bounds of 2 users, and nobody else has any") or (
        "user east has rights and belongs to no accepted cluster" in found and "of blue" not in found
    )
    bus = await connect(first, name="test", settings=SOON)
    await bus.aclose()
    done = await operator.call("join", BLUE, "--new-password", "--out", "new.env")
    assert done.returncode == 0
    with pytest.raises(ForbiddenError):
        await connect(first, name="test", settings=SOON)
    bus = await connect(operator.address("new.env"), name="test", settings=SOON)
    await bus.aclose()
    assert (await operator.call("revoke", BLUE, "--yes")).returncode == 0
    assert "agent of blue" not in [user["name"] for user in rabbitmq.api("GET", "users")]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("join", "blue", "--broker-user", "manager"), "the broker user manager is the manager's"),
        (("join", "blue", "--broker-user", "guest"), "the broker user guest is that of a broker's administrator"),
        (("join", "blue", "--broker-user", "east"), "a name and a broker user of its own"),
        (("join", "Blue"), "'Blue' is no name of a cluster: use 1 to 63 of a-z, 0-9 and -"),
        (("join", "blue", "--ca-file", "nowhere"), "--ca-file nowhere: No such file or directory"),
        (("revoke", "nobody"), "there is no broker user nobody, and there is no WorkerCluster nobody, only east"),
        (("revoke", "eats"), "there is no broker user eats, and there is no WorkerCluster eats; did you mean east?"),
    ],
)
async def test_what_is_wrong_is_refused_and_changes_nothing(
    arguments: tuple[str, ...], told: str, world: World, operator: Operator, rabbitmq: RabbitBroker, vhost: str
) -> None:
    await world.ensure(world.manager, WORKERCLUSTERS, objects.worker_cluster("east"))
    before = [rabbitmq.api("GET", "users"), rabbitmq.api("GET", "permissions")]
    done = await operator.call(*arguments)
    assert (done.returncode, told in done.stderr) == (2, True), done
    assert [rabbitmq.api("GET", "users"), rabbitmq.api("GET", "permissions")] == before
    assert not list(operator.folder.glob("*.env"))
