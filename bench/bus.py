"""Measures the bus over RabbitMQ, beside bare aio-pika that does the same.

    python bench/bus.py [--messages 4000] [--single 300] [--rounds 6] [--bytes 1024] [--in-flight 500]

Both publish the same scale requests with publisher confirms, one after the other, to the same exchange and quorum
queue, as an agent does. A consumer of another connection takes them with the same prefetch, hands each to one of as
many workers, and acknowledges it after its effect. The bus does that by `consume`, so it keeps the order of each
object; bare aio-pika keeps none. Encoding and decoding are left out. Publisher and consumer are in this process.

In a round each goes once, and the first is the other one every time. With many in flight, what counts is the time from
the first publish until every message has had its effect; one at a time, the time from a publish to its effect. A figure
is the median of the rounds, and a ratio that of the medians.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

import aio_pika
import figures
from aio_pika.abc import AbstractIncomingMessage
from broker import MANAGER, issuer_of, rabbitmq, subject_of, uid_of
from figures import Figure, Target

from slicebus.bus.contract import Delivery
from slicebus.bus.factory import connect
from slicebus.bus.lanes import consume, turns_of
from slicebus.bus.rabbitmq.messages import to_message
from slicebus.cli.demo.world import running
from slicebus.proto.codec import encode
from slicebus.proto.envelope import WireMessage
from slicebus.proto.messages import ClusterName, JobRef, Lane, ScaleRequest
from slicebus.proto.topology import UP, manager_queue, manager_topology

EAST = ClusterName("east")
QUEUE = manager_queue(Lane.CONTROL)
PREFETCH = 200
WORKERS = 32
_OBJECTS = 1000
_LEAST = Target(0.7, is_least=True, of_ratio=True)
_MOST = Target(1 / 0.7, of_ratio=True)
_PATIENCE_S = 120.0

Publish = Callable[[WireMessage], Coroutine[Any, Any, None]]
Effect = Callable[[], None]
Way = Callable[[Callable[[str], str], Effect], AbstractAsyncContextManager[Publish]]
"""Publisher and consumer of one run, on connections to the addresses of roles."""


def scale_requests(count: int, size: int) -> list[WireMessage]:
    """Messages of about so many bytes of body, about a thousand jobs in turn."""
    issuer, requests = issuer_of(EAST), []
    for number in range(count):
        name = f"sweep-{number % _OBJECTS:04}"
        request = ScaleRequest(
            job=JobRef("batch/v1", "Job", "team-a", name, f"5f5ed85f-b2ea-4765-aa57-{number % _OBJECTS:012}"),
            workload=f"job-{name}-1a2b3",
            worker_uid=f"1c6a3b1e-0000-4000-8000-{number % _OBJECTS:012}",
            worker_generation=number,
            granted={"main": 1},
            wanted={"main": 5},
        )
        plain = encode(issuer.envelope(request, EAST, uid_of(EAST)), request)
        padded = {"why": "x" * max(0, size - len(plain.body))}
        requests.append(encode(issuer.envelope(request, EAST, uid_of(EAST)), request, unknown=padded))
    return requests


@asynccontextmanager
async def by_slicebus(url: Callable[[str], str], effect: Effect) -> AsyncIterator[Publish]:
    """The bus, as the roles use it."""

    async def handle(delivery: Delivery) -> None:
        effect()

    async with AsyncExitStack() as stack:
        buses = [await connect(url(role), name=f"bench {role}") for role in (EAST, MANAGER)]
        for bus in buses:
            stack.push_async_callback(bus.aclose)
        subscription = await stack.enter_async_context(buses[1].subscribe(QUEUE, prefetch=PREFETCH))
        await stack.enter_async_context(running(consume(subscription, handle, key=subject_of, turns=turns_of(WORKERS))))

        async def publish(message: WireMessage) -> None:
            await buses[0].publish(UP, message)

        yield publish


@asynccontextmanager
async def by_aio_pika(url: Callable[[str], str], effect: Effect) -> AsyncIterator[Publish]:
    """Bare aio-pika."""
    free = asyncio.Semaphore(WORKERS)

    async def handle(message: AbstractIncomingMessage) -> None:
        async with free:
            effect()
            await message.ack()

    async with await aio_pika.connect(url(EAST)) as sender, await aio_pika.connect(url(MANAGER)) as receiver:
        sending = await sender.channel(publisher_confirms=True, on_return_raises=True)
        receiving = await receiver.channel()
        await receiving.set_qos(prefetch_count=PREFETCH)
        exchange = await sending.get_exchange(UP, ensure=False)
        await (await receiving.get_queue(QUEUE, ensure=False)).consume(handle)

        async def publish(message: WireMessage) -> None:
            await exchange.publish(to_message(message), message.routing_key, mandatory=True)

        yield publish


WAYS: Mapping[str, Way] = {"slicebus": by_slicebus, "aio-pika": by_aio_pika}


class Effects:
    """Counts the messages that have had their effect."""

    def __init__(self) -> None:
        self._count = 0
        self._awaited: tuple[int, asyncio.Event] = 0, asyncio.Event()

    def add(self) -> None:
        """One more."""
        self._count += 1
        if self._count == self._awaited[0]:
            self._awaited[1].set()

    def after(self, count: int) -> asyncio.Event:
        """Set after so many more. One at a time is awaited."""
        self._awaited = self._count + count, asyncio.Event()
        return self._awaited[1]


class Run(NamedTuple):
    """What one way took: with many messages in flight, and one message at a time. Times in seconds, of one message."""

    many_s: float
    many_cpu_s: float
    single_s: float
    single_p99_s: float


async def run(way: Way, url: Callable[[str], str], given: argparse.Namespace) -> Run:
    effects = Effects()
    async with asyncio.timeout(_PATIENCE_S), way(url, effects.add) as publish:
        messages = scale_requests(given.messages, given.bytes)
        # The first message waits for channels and the consumer.
        await one_at_a_time(publish, effects, scale_requests(3, given.bytes))
        began, began_cpu = time.perf_counter(), time.process_time()
        await many_in_flight(publish, effects, messages, given.in_flight)
        took, took_cpu = time.perf_counter() - began, time.process_time() - began_cpu
        times = await one_at_a_time(publish, effects, scale_requests(given.single, given.bytes))
    p99 = statistics.quantiles(times, n=100)[98]
    return Run(took / given.messages, took_cpu / given.messages, statistics.median(times), p99)


async def many_in_flight(publish: Publish, effects: Effects, messages: list[WireMessage], in_flight: int) -> None:
    """Publish all, so many at once, and return when all have had their effect."""
    waiting, done = iter(messages), effects.after(len(messages))

    async def publish_next() -> None:
        for message in waiting:
            await publish(message)

    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(publish_next())
    await done.wait()


async def one_at_a_time(publish: Publish, effects: Effects, messages: Iterable[WireMessage]) -> list[float]:
    """Publish each after the effect of the last one; seconds from a publish to its effect."""
    times = []
    for message in messages:
        done, began = effects.after(1), time.perf_counter()
        async with asyncio.TaskGroup() as group:
            # The effect may come before the confirm.
            group.create_task(publish(message))
            await done.wait()
            times.append(time.perf_counter() - began)
    return times


async def measure(given: argparse.Namespace) -> list[Figure]:
    with rabbitmq(EAST) as url:
        return await measure_at(url, given)


async def measure_at(url: Callable[[str], str], given: argparse.Namespace) -> list[Figure]:
    bus = await connect(url(MANAGER), name="bench")
    await bus.declare(manager_topology())
    await bus.aclose()
    runs: dict[str, list[Run]] = {name: [] for name in WAYS}
    for number in range(given.rounds):
        for name in list(WAYS)[:: 1 if number % 2 else -1]:
            runs[name].append(await run(WAYS[name], url, given))
    ours, bare = (Run(*map(statistics.median, zip(*runs[name], strict=True))) for name in WAYS)
    size = f"messages of {given.bytes} bytes"

    def figure(name: str, unit: str, value: float, beside: float, target: Target | None = None) -> Figure:
        return Figure.of(name, value, unit, beside="aio-pika", beside_value=beside, target=target)

    return [
        figure(f"{size}, {given.in_flight} in flight", "/s", 1 / ours.many_s, 1 / bare.many_s, _LEAST),
        figure("processor time of one of them", "us", 1e6 * ours.many_cpu_s, 1e6 * bare.many_cpu_s),
        figure(f"{size}, one at a time", "/s", 1 / ours.single_s, 1 / bare.single_s, _LEAST),
        figure("from publish to effect, p50", "ms", 1e3 * ours.single_s, 1e3 * bare.single_s, _MOST),
        figure("from publish to effect, p99", "ms", 1e3 * ours.single_p99_s, 1e3 * bare.single_p99_s),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--messages", type=int, default=4000, help="of a round with many in flight")
    parser.add_argument("--single", type=int, default=300, help="messages of a round, one at a time")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--bytes", type=int, default=1024, help="of a body")
    parser.add_argument("--in-flight", type=int, default=500, help="publishes that wait for their confirm at once")
    return figures.run(parser, measure)


if __name__ == "__main__":
    sys.exit(main())
