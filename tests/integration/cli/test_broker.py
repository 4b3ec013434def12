"""The printed definitions on a real RabbitMQ: they load, they are the same in every format, and a fleet works with
nothing else."""

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from slicebus.bus.factory import connect
from slicebus.cli.broker.api import BrokerApi
from slicebus.cli.broker.compare import differences
from slicebus.cli.demo.world import embedded_world, fleet
from slicebus.proto.messages import ClusterName
from slicebus.proto.rights import Member, definitions
from support.installation import run_cli
from support.processes import COMMAND_S
from support.rabbitmq import RabbitBroker
from support.rabbitmq_releases import every_rabbitmq
from support.scenario import Scenario, set_quota
from support.waiting import eventually

pytestmark = every_rabbitmq

VHOST = "made/by hand"
CLUSTERS = ("--cluster", "blue", "--cluster", "green", "--manager", "boss", "--vhost", VHOST)
USERS = ("boss", "blue", "green")
GIVEN = definitions([Member(ClusterName(name), name) for name in ("blue", "green")], manager="boss")


@pytest.fixture
def broker(rabbitmq: RabbitBroker) -> Iterator[RabbitBroker]:
    """Without the vhost and the users."""
    yield rabbitmq
    rabbitmq.remove_vhost(VHOST)
    for user in USERS:
        rabbitmq.api("DELETE", f"users/{user}")


def printed(*arguments: str, stdin: str = "") -> str:
    command = ["broker", "definitions", *CLUSTERS, *arguments]
    done = run_cli(*command, env={"AMQP_URL": ""}, stdin=stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout


def load(broker: RabbitBroker, file: Path, text: str) -> None:
    file.write_text(text)
    broker.ctl("import_definitions", str(file))


def found_in(broker: RabbitBroker) -> list[str]:
    found: Any = broker.api("GET", "definitions")
    return differences(GIVEN, VHOST, found)


def with_passwords() -> str:
    return printed("--passwords", "-", stdin="".join(f"{user}={user}\n" for user in USERS))


async def test_a_fleet_works_on_a_broker_that_was_rebuilt_from_its_definitions(
    broker: RabbitBroker, tmp_path: Path
) -> None:
    load(broker, tmp_path / "definitions.json", with_passwords())
    assert found_in(broker) == []
    names = [ClusterName("blue"), ClusterName("green")]
    urls = {"manager": broker.url(VHOST, "boss")} | {str(name): broker.url(VHOST, name) for name in names}
    async with embedded_world(names) as world, fleet(world, urls):
        await set_quota(world, 9)
        scenario = Scenario(world, "RayCluster", "first")
        await scenario.submit()
        await scenario.expect_pods(running=1)
        await scenario.scale(4)
        await scenario.expect_pods(running=4)
    listed = await asyncio.to_thread(broker.api, "GET", f"queues/{quote(VHOST, safe='')}")
    assert {queue["name"] for queue in listed} > {queue.name for queue in GIVEN.topology.queues}, "with UIDs too"

    async def bounded() -> bool:
        found = await asyncio.to_thread(broker.api, "GET", f"queues/{quote(VHOST, safe='')}")
        policies = {queue["name"]: queue.get("policy") for queue in found}
        of_agent = [policy for name, policy in policies.items() if name.startswith("slicebus.agent.blue.")]
        names = ("slicebus.dead", "slicebus.agent-dead", "slicebus.cluster.blue.control", "slicebus.manager.control")
        wanted = ["slicebus-dead-letters", "slicebus-agents-dead-letters", "slicebus-clusters", "slicebus-manager"]
        return (of_agent, [policies.get(name) for name in names]) == (["slicebus-agents"] * 2, wanted)

    await eventually(bounded, "the policies are applied")


def test_the_management_api_takes_them_too_and_again(broker: RabbitBroker) -> None:
    for text in (with_passwords(), printed()):
        broker.api("POST", "definitions", json.loads(text))
        assert found_in(broker) == []


def test_definitions_without_passwords_change_no_password(broker: RabbitBroker, tmp_path: Path) -> None:
    load(broker, tmp_path / "first.json", with_passwords())
    before = {user["name"]: user for user in broker.api("GET", "users")}
    broker.broaden(VHOST, "blue")
    assert found_in(broker) != []
    load(broker, tmp_path / "second.json", printed())
    assert found_in(broker) == []
    assert {user["name"]: user for user in broker.api("GET", "users")} == before


async def test_the_script_runs_and_leaves_the_password_of_a_user_who_is_there(
    broker: RabbitBroker, tmp_path: Path
) -> None:
    script = printed("--format", "rabbitmqctl")
    for user in USERS:
        (tmp_path / user).write_text(f"the password of {user}\n")
    broker.api("PUT", "users/blue", {"password": "another", "tags": ""})
    done = await asyncio.to_thread(
        subprocess.run,
        ["sh"],
        input=script,
        env={**os.environ, **broker.environment(), "PASSWORDS": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=1.8 * COMMAND_S,  # It runs nine commands, each of which starts an Erlang.
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert found_in(broker) == []
    for user in USERS:
        password = "another" if user == "blue" else f"the password of {user}"
        bus = await connect(broker.url(VHOST, user, password), name="test")
        await bus.aclose()


async def test_a_user_with_many_connections_is_removed(rabbitmq: RabbitBroker, vhost: str) -> None:
    for _ in range(3):  # With thirty connections the first request to close them failed in two of five rounds.
        rabbitmq.api("PUT", "users/crowd", {"password": "crowd", "tags": ""})
        rabbitmq.permit(vhost, "crowd", configure="", write="", read="")
        url = rabbitmq.url(vhost, "crowd")
        async with AsyncExitStack() as opened, BrokerApi.connect(rabbitmq.api_url, vhost) as api:
            for _ in range(30):
                bus = await connect(url, name="crowd")
                opened.push_async_callback(bus.aclose)
            await api.remove_user("crowd")
            assert await api.tags_of("crowd") is None
            assert rabbitmq.api("GET", "connections/username/crowd") == []
