"""Looks at what lies in a queue, and leaves it as it is.

There is no looking in AMQP but taking everything into one's hands and giving it back. Everything, because a broker puts
what it gets back before what it has not delivered yet, or behind what it got back earlier: measured on RabbitMQ 3.10,
a look at some changes the order, a look at all does not. Meanwhile nobody else sees the messages, so a look is short,
and begins when nobody else is looking.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager

from slicebus.bus.contract import Bus, Delivery, Subscription

MOST = 65_535
"""Messages in one look: AMQP 0-9-1 counts a prefetch in 16 bits. What lies behind them is seen when they are gone."""
_OTHERS_S = 5.0
"""For how long somebody else's look is waited for."""
_STEP_S = 0.05
_IDLE_S = 2.0
"""Without a message for so long somebody else has taken the rest."""


@asynccontextmanager
async def browse(bus: Bus, queue: str) -> AsyncIterator[AsyncIterator[Delivery]]:
    """What lies in the queue now, oldest first.

    Leaving the context puts back, in order, what was not settled; of what was, a connection that breaks may show a part
    twice. Raises NotFoundError.
    """
    ready = min(await _ready(bus, queue), MOST)
    if not ready:
        yield _nothing()
        return
    async with bus.subscribe(queue, prefetch=ready) as subscription, aclosing(_first(subscription, ready)) as found:
        yield found


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
