"""Browses a queue: reads its messages and leaves them there, in order.

AMQP has no browsing: a consumer has to take messages and put them back. A browse takes all of them, because a broker
puts returned messages before undelivered ones, or behind those returned earlier. Measured on RabbitMQ 3.10, a browse of
some messages changes the order, one of all messages does not. Meanwhile no other consumer gets the messages. So a
browse is short, and starts only when the queue has no consumer.

A browse that takes all messages need not hold all of each: `keep` says what is kept from the arrival on, such as the
head.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager

from slicebus.bus.contract import Bus, Delivery, Subscription
from slicebus.bus.sizes import Keep

MOST = 65_535
"""The most messages in one browse: AMQP 0-9-1 counts a prefetch in 16 bits. Later ones show when these are gone."""
_OTHERS_S = 5.0
"""How long a browse waits for another consumer to finish."""
_STEP_S = 0.05
_IDLE_S = 2.0
"""Without a message for this long, another consumer has the rest."""


@asynccontextmanager
async def browse(bus: Bus, queue: str, *, keep: Keep | None = None) -> AsyncIterator[AsyncIterator[Delivery]]:
    """Browse the messages that are in the queue now, oldest first. `keep` as in `Bus.subscribe`.

    Leaving the context puts unsettled messages back in order. After a broken connection a settled message may come
    again. Raises NotFoundError.
    """
    ready = min(await _ready(bus, queue), MOST)
    if not ready:
        yield _nothing()
        return
    async with (
        bus.subscribe(queue, prefetch=ready, keep=keep) as subscription,
        aclosing(_first(subscription, ready)) as deliveries,
    ):
        yield deliveries


async def _ready(bus: Bus, queue: str) -> int:
    for _ in range(round(_OTHERS_S / _STEP_S)):
        depth = await bus.depth(queue)
        if not depth.consumers:
            return depth.ready
        await asyncio.sleep(_STEP_S)
    return (await bus.depth(queue)).ready


async def _first(subscription: Subscription, count: int) -> AsyncGenerator[Delivery, None]:
    deliveries = aiter(subscription)
    try:
        for _ in range(count):
            async with asyncio.timeout(_IDLE_S):
                delivery = await anext(deliveries)
            yield delivery
    except (TimeoutError, StopAsyncIteration):
        return


async def _nothing() -> AsyncIterator[Delivery]:
    return
    yield
