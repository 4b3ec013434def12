"""`slicebus dead` as a user calls it, on RabbitMQ."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator

import pytest

from slicebus.bus.contract import Bus
from slicebus.bus.factory import connect
from slicebus.proto.errors import DeadReason
from slicebus.proto.messages import Lane
from slicebus.proto.topology import DEAD, UP, manager_queue, manager_topology
from support.installation import run_cli
from support.rabbitmq import RabbitBroker
from support.rabbitmq_releases import every_rabbitmq
from support.waiting import eventually
from unit.bus.letters import wire

pytestmark = every_rabbitmq
CONTROL = manager_queue(Lane.CONTROL)
IDS = [f"0190a000-0000-7000-8000-00000000000{number}" for number in range(3)]


@pytest.fixture
async def bus(rabbitmq: RabbitBroker, vhost: str) -> AsyncIterator[Bus]:
    """Three dead letters."""
    made = await connect(rabbitmq.url(vhost, "manager"), name="test")
    await made.declare(manager_topology())
    east = await connect(rabbitmq.url(vhost, "east"), name="test")
    for id in IDS:
        await east.publish(UP, wire(id=id))
    await east.aclose()
    async with made.subscribe(CONTROL, prefetch=3) as subscription:
        deliveries = aiter(subscription)
        for number in range(3):
            delivery = await anext(deliveries)
            await delivery.dead_letter([DeadReason.REFUSED, DeadReason.MALFORMED][number % 2], f"number {number}")
    yield made
    await made.aclose()


@pytest.fixture
def url(rabbitmq: RabbitBroker, vhost: str) -> str:
    return rabbitmq.url(vhost, "manager")


async def call(url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(run_cli, "dead", *arguments, env={"AMQP_URL": url})


async def depths(bus: Bus, dead: int, control: int) -> None:
    async def look() -> bool:
        return ((await bus.depth(DEAD)).ready, (await bus.depth(CONTROL)).ready) == (dead, control)

    await eventually(look, f"{dead} dead letters and {control} messages in the manager's queue")


async def test_list_and_show_leave_everything_where_it_is(bus: Bus, url: str) -> None:
    listed = await call(url, "list")
    assert listed.returncode == 0, listed.stderr
    lines = listed.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["ID", *(id[-12:] for id in IDS)]
    assert "number 1" in lines[2]
    filtered = await call(url, "list", "--json", "--reason", "refused", "--limit", "1")
    assert [json.loads(line)["id"] for line in filtered.stdout.splitlines()] == IDS[:1]
    assert (await call(url, "list", "--older-than", "1h")).stdout == ""
    shown = await call(url, "show", IDS[1][-4:])
    assert shown.returncode == 0
    assert '{\n  "a": 1\n}' in shown.stdout
    assert (await call(url, "show", "nothing")).returncode == 1
    await depths(bus, 3, 0)


async def test_requeue_publishes_them_and_discard_removes_them(bus: Bus, url: str) -> None:
    dry = await call(url, "requeue", "--all", "--dry-run")
    assert dry.stdout.count("would requeue") == 3
    await depths(bus, 3, 0)
    unasked = await call(url, "requeue", IDS[0])
    assert unasked.returncode == 2, "nobody has said yes"
    assert "this requeues 1 dead letters: --yes says that you mean it, --dry-run only shows it" in unasked.stderr
    await depths(bus, 3, 0)
    done = await call(url, "requeue", IDS[0], "nothing", "--yes")
    assert done.returncode == 1
    assert "nothing: not found" in done.stderr
    assert done.stdout == f"requeue {IDS[0][-12:]} east.scale-request: to {CONTROL}\n"
    await depths(bus, 2, 1)
    again = await call(url, "requeue", IDS[0], "--yes")
    assert again.returncode == 1
    await depths(bus, 2, 1)
    assert (await call(url, "discard", "--yes")).returncode == 2, "what, it has to be told"
    ended = await call(url, "discard", "--reason", "malformed", "--yes")
    assert (ended.returncode, ended.stdout.count("discard")) == (0, 1)
    await depths(bus, 1, 1)


async def test_another_user_does_not_even_see_them(bus: Bus, rabbitmq: RabbitBroker, vhost: str) -> None:
    done = await call(rabbitmq.url(vhost, "west"), "list")
    assert (done.returncode, "ACCESS_REFUSED" in done.stderr) == (2, True), done
    await depths(bus, 3, 0)


async def test_another_user_cannot_requeue_whatever_the_broker_lets_it_do(
    bus: Bus, rabbitmq: RabbitBroker, vhost: str
) -> None:
    rabbitmq.broaden(vhost, "west")
    done = await call(rabbitmq.url(vhost, "west"), "requeue", "--all", "--yes")
    assert done.returncode == 1
    assert done.stdout.count("left ") == 3
    await depths(bus, 3, 0)
