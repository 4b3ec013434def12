"""Handles the deliveries of one queue: in order for one object, concurrently across objects.

Each key has its own line. The first delivery of a key opens the line, later ones wait in it; lines share a bounded
number of workers. What an unsettled delivery holds up is its own key, and of the rest only what the prefetch no longer
covers. Where a delivery in a line says nothing any more once another one is there, it is acknowledged at once: an
object that is stuck, or reports faster than it is handled, keeps two deliveries.

A delivery is acknowledged when its handler returns, so after its effect (rule 4 of the design). A protocol error or a
permanent one dead-letters it with the reason. A transient error or a conflict is tried again in place, with a growing
pause that keeps no worker. After `turn_s` those behind it in its line have a turn, one of which may be what it waits
for. After `retry_s` it is put back, and the queue's delivery limit decides. Any other exception is a programming error
and ends the process with the delivery unsettled. So does a cancellation: the broker delivers again.

A delivery whose connection has broken is not begun again, and nothing counts that waits of that connection: the broker
delivers all of it anew. What comes so joins its line behind what is in hand, so that nothing is done twice at once.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

import structlog
from tenacity import AsyncRetrying, retry_if_exception_type

from slicebus.ambient.backoff import Backoff
from slicebus.bus.contract import Delivery, Subscription
from slicebus.proto.errors import ConflictError, DeadReason, PermanentError, ProtocolError, TransientError

_log = structlog.get_logger()
_RETRY_S = 600.0
"""The delivery limit is for messages that end the process, not for outages: twenty times this is over three hours. Well
below the half hour after which RabbitMQ closes the channel of a consumer that does not acknowledge."""
_TURN_S = 10.0
_BACKOFF = Backoff(first_s=0.02, most_s=5.0)

Handler = Callable[[Delivery], Awaitable[None]]
OnDead = Callable[[Delivery, DeadReason], None]
Superseded = Callable[[Delivery, Delivery], bool]
"""Whether the first delivery says nothing any more once the second is handled; both are of one line."""


class Backlog:
    """The deliveries that have been received and are not settled yet, of one queue or of several."""

    def __init__(self) -> None:
        self._since: dict[int, float] = {}

    @property
    def since_s(self) -> float | None:
        """When the oldest one was received, by the loop's time; None when there is none."""
        return min(self._since.values(), default=None)

    def receive(self, delivery: Delivery) -> None:
        """A delivery is in hand from now on."""
        self._since[id(delivery)] = asyncio.get_running_loop().time()

    def settle(self, delivery: Delivery) -> None:
        """It is settled, or its connection has broken."""
        del self._since[id(delivery)]


async def dispatch(
    subscription: Subscription,
    handler: Handler,
    *,
    key: Callable[[Delivery], str],
    workers: int = 32,
    retry_s: float = _RETRY_S,
    turn_s: float = _TURN_S,
    on_dead: OnDead | None = None,
    superseded: Superseded | None = None,
    backlog: Backlog | None = None,
) -> None:
    """Handle deliveries until the subscription ends. `on_dead` is told what was dead-lettered. `backlog` has those that
    are under way."""
    backlog = backlog or Backlog()
    lines: dict[str, deque[Delivery]] = {}
    free = asyncio.Semaphore(workers)

    async def attempt(delivery: Delivery) -> None:
        async with free:
            if delivery.held:
                await handler(delivery)

    async def drain(name: str) -> None:
        line, patience = lines[name], _Patience(retry_s)
        while line:
            delivery = line[0]
            try:
                reason = await _handle(delivery, attempt, turn_s=turn_s)
            except (TransientError, ConflictError) as error:
                if not patience.is_over(delivery):
                    line.rotate(-1)
                    continue
                _log.warning("delivery.requeued", queue=delivery.queue, error=str(error))
                await delivery.requeue()
                reason = None
            if reason and on_dead:
                on_dead(delivery, reason)
            backlog.settle(line.popleft())
        del lines[name]

    async with asyncio.TaskGroup() as group:
        async for delivery in subscription:
            name = key(delivery)
            backlog.receive(delivery)
            if name in lines:
                await _join(lines[name], delivery, superseded, backlog)
            else:
                lines[name] = deque([delivery])
                group.create_task(drain(name), name=f"{delivery.queue}:{name}")


async def _join(line: deque[Delivery], delivery: Delivery, superseded: Superseded | None, backlog: Backlog) -> None:
    """Take a delivery into its line. The first of a line is in hand, and is left alone."""
    waiting = line[-1] if len(line) > 1 and line[-1].held else None
    if superseded is not None and waiting is not None:
        if superseded(waiting, delivery):
            line[-1] = delivery
            await waiting.ack()
            backlog.settle(waiting)
            return
        if superseded(delivery, waiting):
            await delivery.ack()
            backlog.settle(delivery)
            return
    line.append(delivery)


class _Patience:
    """For how long the deliveries of one line have been tried in vain."""

    def __init__(self, retry_s: float) -> None:
        self._retry_s = retry_s
        self._first: dict[int, float] = {}

    def is_over(self, delivery: Delivery) -> bool:
        """Whether a delivery, whose turn was in vain, has had all its time."""
        now = asyncio.get_running_loop().time()
        return now - self._first.setdefault(id(delivery), now) >= self._retry_s


async def _handle(delivery: Delivery, handler: Handler, *, turn_s: float) -> DeadReason | None:
    """Handle a delivery and settle it; why it was dead-lettered, if it was. Raises what may pass, after `turn_s`."""
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + turn_s
    attempts = AsyncRetrying(
        retry=retry_if_exception_type((TransientError, ConflictError)),
        wait=_BACKOFF,
        # By the loop's time, as everything here.
        stop=lambda _: loop.time() >= ends_at,
        reraise=True,
    )
    try:
        await attempts(handler, delivery)
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
