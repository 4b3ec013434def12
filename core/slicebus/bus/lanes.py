"""Handles the deliveries of one queue: in order for one object, concurrently across objects.

Each key has its own line. The first delivery of a key opens the line, later ones wait in it; lines share a bounded
number of workers. What an unsettled delivery holds up is its own key, and of the rest only what the prefetch no longer
covers. Where a delivery in a line says nothing any more once another one is there, it is acknowledged at once: an
object that is stuck, or reports faster than it is handled, keeps two deliveries.

A delivery is acknowledged when its handler returns, so after its effect (rule 4 of the design). A protocol error or a
permanent one dead-letters it with the reason. A transient error or a conflict is tried again in place, with a growing
pause, for `retry_s`; then the delivery is put back, and the queue's delivery limit decides. Any other exception is a
programming error and ends the process with the delivery unsettled. So does a cancellation: the broker delivers again.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

import structlog
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from slicebus.bus.contract import Delivery, Subscription
from slicebus.proto.errors import ConflictError, DeadReason, PermanentError, ProtocolError, TransientError

_log = structlog.get_logger()

Handler = Callable[[Delivery], Awaitable[None]]
OnDead = Callable[[Delivery, DeadReason], None]
Superseded = Callable[[Delivery, Delivery], bool]
"""Whether the first delivery says nothing any more once the second is handled; both are of one line."""


async def dispatch(
    subscription: Subscription,
    handler: Handler,
    *,
    key: Callable[[Delivery], str],
    workers: int = 32,
    retry_s: float = 10.0,
    on_dead: OnDead | None = None,
    superseded: Superseded | None = None,
) -> None:
    """Handle deliveries until the subscription ends. `on_dead` is told what was dead-lettered."""
    lines: dict[str, deque[Delivery]] = {}
    free = asyncio.Semaphore(workers)

    async def drain(name: str) -> None:
        line = lines[name]
        while line:
            async with free:
                reason = await _handle(line[0], handler, retry_s=retry_s)
            if reason and on_dead:
                on_dead(line[0], reason)
            line.popleft()
        del lines[name]

    async with asyncio.TaskGroup() as group:
        async for delivery in subscription:
            name = key(delivery)
            if name in lines:
                await _join(lines[name], delivery, superseded)
            else:
                lines[name] = deque([delivery])
                group.create_task(drain(name), name=f"{delivery.queue}:{name}")


async def _join(line: deque[Delivery], delivery: Delivery, superseded: Superseded | None) -> None:
    """Take a delivery into its line. The first of a line is in hand, and is left alone."""
    waiting = line[-1] if len(line) > 1 else None
    if superseded is not None and waiting is not None:
        if superseded(waiting, delivery):
            line[-1] = delivery
            await waiting.ack()
            return
        if superseded(delivery, waiting):
            await delivery.ack()
            return
    line.append(delivery)


async def _handle(delivery: Delivery, handler: Handler, *, retry_s: float) -> DeadReason | None:
    """Handle a delivery and settle it; why it was dead-lettered, if it was."""
    attempts = AsyncRetrying(
        retry=retry_if_exception_type((TransientError, ConflictError)),
        wait=wait_random_exponential(multiplier=0.02, max=2),
        stop=stop_after_delay(retry_s),
        reraise=True,
    )
    try:
        await attempts(handler, delivery)
    except (TransientError, ConflictError) as error:
        _log.warning("delivery.requeued", queue=delivery.queue, error=str(error), redelivered=delivery.redelivered)
        await delivery.requeue()
    except ProtocolError as error:
        _log.warning("delivery.dead", queue=delivery.queue, reason=error.reason, detail=error.detail)
        await delivery.dead_letter(error.reason, error.detail)
        return error.reason
    except PermanentError as error:
        _log.warning("delivery.dead", queue=delivery.queue, reason=DeadReason.REFUSED, detail=str(error))
        await delivery.dead_letter(DeadReason.REFUSED, str(error))
        return DeadReason.REFUSED
    else:
        await delivery.ack()
    return None
