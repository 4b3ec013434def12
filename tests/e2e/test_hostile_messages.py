"""A manager gets messages that somebody has made to exhaust it: it keeps its memory, and works on."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import cycle, islice
from pathlib import Path

import aio_pika
import pytest
import yaml

from slicebus.bus.contract import Bus
from slicebus.bus.factory import connect
from slicebus.bus.sizes import MESSAGE_BYTES
from slicebus.cli.demo.world import World, embedded_world
from slicebus.proto.codec import encode
from slicebus.proto.envelope import WireMessage
from slicebus.proto.issuer import Issuer
from slicebus.proto.messages import ClusterName, ClusterUid, JobPhase, JobRef, Status
from slicebus.proto.topology import DEAD, UP, manager_topology
from slicebus.slices.api.quantities import parse_quantity
from support.installation import Role, run_cli
from support.kubeconfig import write_kubeconfig
from support.rabbitmq import RabbitBroker
from support.roles import agent
from support.scenario import Scenario, set_quota
from support.waiting import eventually

pytestmark = [pytest.mark.rabbitmq]
COUNTS = [300, pytest.param(1000, marks=pytest.mark.soak)]
"""Together the fewer are already three times what a role may hold at once."""
LARGE = MESSAGE_BYTES - 20_000
"""What a body may have beside the attributes."""
CHART = Path(__file__).parents[2] / "charts" / "slicebus-manager" / "values.yaml"


def memory_limit() -> int:
    """What the manager's chart allows, in bytes."""
    limit: str = yaml.safe_load(CHART.read_text())["resources"]["limits"]["memory"]
    return int(parse_quantity(limit))


def repeated(size: int, part: bytes, *, within: tuple[bytes, bytes] = (b"", b"")) -> bytes:
    return within[0] + part * ((size - len(within[0]) - len(within[1])) // len(part)) + within[1]


def bodies(size: int) -> dict[str, bytes]:
    """Each kind of body, of so many bytes."""
    return {
        "many small values": repeated(size, b"[],", within=(b'{"a":[', b"0]}")),
        "many objects": repeated(size, b'{"":0},', within=(b'{"a":[', b"0]}")),
        "many keys": b'{"a":{' + b",".join(b'"%06x":0' % number for number in range(size // 11)) + b"}}",
        "nested deep": b"[" * (size // 2) + b"]" * (size // 2),
        "nested without an end": b'{"a":' * (size // 5),
        "no UTF-8": b"\xff\xfe" * (size // 2),
        "one long text": b'{"a":"' + b"x" * (size - 10) + b'"}',
        "escapes": repeated(size, b"\\u0000", within=(b'{"a":"', b'"}')),
        "compressed": gzip.compress(b"0" * 200 * size, 9),
        "far too large": b"0" * 8 * size,
    }


READ = ("many small values", "many objects", "many keys", "one long text")
"""Those that are JSON objects: as the status of a job they are read to the end."""
SIZES = (LARGE, LARGE // 8, LARGE // 8)
"""In turn: a gigabyte of the largest would say no more, and take the broker minutes."""


def hostile() -> Iterator[tuple[str, aio_pika.Message]]:
    """Routing keys and messages, without end. Some have every attribute right, and so are read to the end."""
    issuer = Issuer(epoch=2**30, user="east", now=lambda: datetime.now(UTC), random=lambda count: b"\7" * count)
    found = [each for size in SIZES for each in bodies(size).items()]
    for number, (name, body) in enumerate(cycle(found)):
        ref = JobRef("batch/v1", "Job", "team-a", f"job-{number}", "uid")
        status = Status(job=ref, workload="w", spec_version=1, phase=JobPhase.RUNNING)
        wire: WireMessage = encode(issuer.envelope(status, ClusterName("east"), ClusterUid("uid")), status)
        headers: dict[str, str] = dict(wire.headers)
        if number % 4 == 1:
            headers = {f"header-{index:04}": "x" * 110 for index in range(1000)}
        if number % 4 == 2 and name in READ:
            body = wire.body.replace(b'"job_status":{}', b'"job_status":' + body[:-1] + b"}")
        encoding = "gzip" if name == "compressed" else None
        message = aio_pika.Message(
            body, headers=headers, message_id=wire.message_id, user_id="east", type=wire.type, content_encoding=encoding
        )
        yield wire.routing_key if number % 3 else "east.scale-request", message


@asynccontextmanager
async def publisher(url: str) -> AsyncIterator[Callable[[str, aio_pika.Message], asyncio.Future[None]]]:
    """Publishes as somebody who has an agent's password, past every check of ours."""
    connection = await aio_pika.connect(url)
    try:
        exchange = await (await connection.channel()).get_exchange(UP, ensure=False)

        async def publish(key: str, message: aio_pika.Message) -> None:
            await exchange.publish(message, key, mandatory=True)

        yield publish  # type: ignore[misc]
    finally:
        await connection.close()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with embedded_world(["east"]) as made:
        yield made


@pytest.fixture
async def bus(rabbitmq: RabbitBroker, vhost: str) -> AsyncIterator[Bus]:
    made = await connect(rabbitmq.url(vhost, "manager", "manager"), name="test")
    await made.declare(manager_topology())
    yield made
    await made.aclose()


@pytest.mark.parametrize("count", COUNTS)
async def test_hostile_messages_exhaust_nothing(
    world: World, bus: Bus, rabbitmq: RabbitBroker, vhost: str, tmp_path: Path, count: int
) -> None:
    """Over 20 s, as the broker and the manager have to read what is made to take long."""
    await set_quota(world, 8)
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", world.manager.host)
    url = rabbitmq.url(vhost, "manager", "manager")
    manager = Role("manager", "manager", {"AMQP_URL": url, "KUBECONFIG": str(kubeconfig)}, log=tmp_path / "log")
    manager.launch()
    urls = {"manager": url, "east": rabbitmq.url(vhost, "east", "east")}
    try:
        await eventually(lambda: asyncio.to_thread(manager.is_ready), "the manager works")
        async with agent(world, urls, "east"):
            scenario = Scenario(world, "Job", "steady")
            await scenario.submit()
            await scenario.expect_pods(running=1)
            assert await asyncio.to_thread(manager.terminate) == 0
            async with publisher(urls["east"]) as publish:
                for key, message in islice(hostile(), count):
                    await publish(key, message)
            # All of them are there when it comes back, and it gets as many at once as it takes.
            manager.launch()

            async def all_dead() -> bool:
                return (await bus.depth(DEAD)).ready >= count * 9 // 10

            await eventually(all_dead, "they are dead letters", within_s=300)
            await scenario.scale(3)
            await scenario.expect_pods(running=3)
        listed = await asyncio.to_thread(run_cli, "dead", "list", "--json", env={"AMQP_URL": url})
        reasons = [json.loads(line)["reason"] for line in listed.stdout.splitlines()]
        assert set(reasons) >= {"malformed", "too-large"}
        peak, limit = manager.process.peak_bytes(), memory_limit()
        print(f"peak {peak / 2**20:.0f} MiB of {limit / 2**20:.0f}")  # noqa: T201
        assert peak < limit
    finally:
        manager.kill()
