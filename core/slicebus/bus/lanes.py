"""Handles the deliveries of one queue: in order for one object, concurrently across objects.

Each key has its own queue in memory. The first delivery of a key creates the queue, later ones wait in it; the queues
share a bounded number of workers (`turns`), and so may several consumers: whoever owns a delivery waits for itself. One
whose handler takes long, as where a webhook hangs, gives its turn back before it has ended. An unsettled delivery
delays its own key, and other keys only when the prefetch is used up. A delivery that another one of its key supersedes
is acknowledged at once: an object that is stuck, or reports faster than it is handled, keeps two deliveries.

A delivery is acknowledged when its handler returns, so after its effect (rule 4 of the design). A protocol error or a
permanent one dead-letters it with the reason. A transient error or a conflict is retried in place, with a growing pause
that keeps no worker. After `slot_s` the next delivery of the key gets the slot: it may be what this one waits for.
After `retry_s` the delivery is put back, and the broker's delivery limit decides. So it goes where the broker does not
take the dead letter: a right to them may be away. A decision that raises dead-letters the delivery too. Any other
exception is an error of this program and ends the process with the delivery unsettled. So does a cancellation: the
broker delivers again.

A message that is larger than the limit has lost its body on arrival, and is dead-lettered without a look at the rest.
The handlers of a queue have a bounded number of bytes at once, which usual messages never reach.

A delivery whose connection has broken is not handled again: the broker delivers it anew. The redelivery joins its key's
queue behind the one that is being handled, so that no two run at once.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Awaitable, Callable

import structlog
from structlog.contextvars import bound_contextvars

from slicebus.ambient.backoff import Backoff
from slicebus.ambient.cancellation import TaskGroup, ungrouped
from slicebus.ambient.long_calls import LongCalls
from slicebus.ambient.retries import repeated
from slicebus.bus.contract import Delivery, Subscription
from slicebus.bus.metering import OnSettled, Settled
from slicebus.bus.sizes import check_whole, size_of
from slicebus.bus.turns import Pace, Turns
from slicebus.proto.errors import (
    ConflictError,
    DeadReason,
    DecisionError,
    PermanentError,
    ProtocolError,
    TransientError,
)

_log = structlog.get_logger()
_WORKERS = 32
_RETRY_S = 600.0
"""The delivery limit is for messages that end the process, not for outages: twenty times this is over three hours. It
is well below the half hour after which RabbitMQ closes the channel of a consumer that does not acknowledge."""
_SLOT_S = 10.0
_HANDLED_BYTES = 2 * 1024**2
"""Most bytes of one queue at once. A decoded message may take thirty times its size, and a usual one has some
kilobytes."""
_BACKOFF = Backoff(first_s=0.02, most_s=5.0)
_UNBURIED = Backoff(first_s=1.0, most_s=30.0)
"""RabbitMQ closes the channel of every publish that it refuses, and others wait for the next one."""

_NOBODY = ""

Handler = Callable[[Delivery], Awaitable[None]]
OnDead = Callable[[Delivery, DeadReason], None]
Keeps = Callable[[Delivery], bool]
"""Whether there is room for a delivery among the dead letters. One without room is acknowledged, and logged."""
Superseded = Callable[[Delivery, Delivery], bool]
"""Whether the first delivery has no effect once the second is handled; both have the same key."""


def turns_of(workers: int = _WORKERS, *, most_each: int | None = None) -> Turns:
    """Turns for the handlers of one or several consumers, `most_each` of them for one owner."""
    return Turns(workers, most_each=most_each or workers, most_bytes=_HANDLED_BYTES)


class Backlog:
    """Knows the received deliveries that are not settled yet, of one or several queues of the broker."""

    def __init__(self) -> None:
        self._since: dict[int, float] = {}

    @property
    def since_s(self) -> float | None:
        """When the oldest delivery was received, by the loop's time; None when there is none."""
        return min(self._since.values(), default=None)

    def receive(self, delivery: Delivery) -> None:
        """Add a delivery."""
        self._since[id(delivery)] = asyncio.get_running_loop().time()

    def settle(self, delivery: Delivery) -> float:
        """Remove a delivery that is settled, or whose connection has broken. Returns the seconds since its receipt."""
        return asyncio.get_running_loop().time() - self._since.pop(id(delivery))


async def consume(
    subscription: Subscription,
    handler: Handler,
    *,
    key: Callable[[Delivery], str],
    turns: Turns | None = None,
    pace: Pace | None = None,
    owner: Callable[[Delivery], str] = lambda _: _NOBODY,
    rest_s: Callable[[Delivery], float] = lambda _: 0.0,
    retry_s: float = _RETRY_S,
    slot_s: float = _SLOT_S,
    on_dead: OnDead | None = None,
    keeps_dead: Keeps = lambda _: True,
    superseded: Superseded | None = None,
    backlog: Backlog | None = None,
    on_settled: OnSettled | None = None,
) -> None:
    """Handle deliveries until the subscription ends, and raise the error that it ends with. `on_dead` is called for
    each that is dead-lettered, and `on_settled` for each, whatever became of it. `backlog` gets all that are unsettled.
    `pace` is kept before a turn is taken; None for none. `rest_s` says how long the next delivery of a key waits after
    one."""
    backlog, turns = backlog or Backlog(), turns or turns_of()
    queues: dict[str, deque[Delivery]] = {}
    long_calls = LongCalls()

    def settle(delivery: Delivery, result: Settled) -> None:
        took_s = backlog.settle(delivery)
        if on_settled is not None:
            on_settled(delivery, result, took_s)

    async def attempt(delivery: Delivery) -> None:
        check_whole(delivery.message)
        size = size_of(delivery.message)
        if pace is not None:
            await pace.keep(owner(delivery), size)
        async with turns.take(owner(delivery), size) as give_back:
            if delivery.held:
                with long_calls.noticed(give_back):
                    await handler(delivery)

    async def drain(name: str) -> None:
        queue, retry_time = queues[name], _RetryTime(retry_s)
        while queue:
            delivery = queue[0]
            with bound_contextvars(correlation=delivery.message.correlation_id or delivery.message.message_id):
                try:
                    reason = await _handle(delivery, attempt, slot_s=slot_s, keeps_dead=keeps_dead)
                    result = Settled.DEAD_LETTERED if reason else Settled.HANDLED
                except (TransientError, ConflictError, PermanentError) as error:
                    if not retry_time.is_over(delivery):
                        queue.rotate(-1)
                        continue
                    _log.warning("delivery.requeued", queue=delivery.queue, error=str(error))
                    await delivery.requeue()
                    reason, result = None, Settled.REQUEUED
            if reason and on_dead:
                on_dead(delivery, reason)
            settle(queue.popleft(), result)
            if pause_s := rest_s(delivery):
                await asyncio.sleep(pause_s)
        del queues[name]

    try:
        with ungrouped():
            async with TaskGroup() as group:
                async for delivery in subscription:
                    name = key(delivery)
                    backlog.receive(delivery)
                    if name in queues:
                        await _enqueue(queues[name], delivery, superseded, settle)
                    else:
                        queues[name] = deque([delivery])
                        group.create_task(drain(name), name=f"{delivery.queue}:{name}")
    finally:
        for delivery in itertools.chain.from_iterable(queues.values()):
            backlog.settle(delivery)  # The broker delivers it again.


async def _enqueue(
    queue: deque[Delivery],
    delivery: Delivery,
    superseded: Superseded | None,
    settle: Callable[[Delivery, Settled], None],
) -> None:
    """Append a delivery to its key's queue. The first one there is being handled, and is never superseded."""
    waiting = queue[-1] if len(queue) > 1 and queue[-1].held else None
    if superseded is not None and waiting is not None:
        if superseded(waiting, delivery):
            queue[-1] = delivery
            await waiting.ack()
            settle(waiting, Settled.SUPERSEDED)
            return
        if superseded(delivery, waiting):
            await delivery.ack()
            settle(delivery, Settled.SUPERSEDED)
            return
    queue.append(delivery)


class _RetryTime:
    """Knows how long the deliveries of one key have been failing."""

    def __init__(self, retry_s: float) -> None:
        self._retry_s = retry_s
        self._first: dict[int, float] = {}

    def is_over(self, delivery: Delivery) -> bool:
        """Whether a delivery that has just failed again has used up its time."""
        now = asyncio.get_running_loop().time()
        return now - self._first.setdefault(id(delivery), now) >= self._retry_s


async def _handle(delivery: Delivery, handler: Handler, *, slot_s: float, keeps_dead: Keeps) -> DeadReason | None:
    """Handle and settle a delivery; return the reason where it was dead-lettered. Raises the transient error or
    conflict that lasts for `slot_s`, and what keeps it from being dead-lettered for so long."""
    ends_at_s = asyncio.get_running_loop().time() + slot_s
    try:
        await repeated(
            lambda: handler(delivery), on=(TransientError, ConflictError), wait=_BACKOFF, ends_at_s=ends_at_s
        )
    except ProtocolError as error:
        return await _bury(delivery, error.reason, error.detail, keeps_dead, ends_at_s)
    except PermanentError as error:
        return await _bury(delivery, DeadReason.REFUSED, str(error), keeps_dead, ends_at_s)
    except DecisionError as error:
        _log.error("delivery.failed", queue=delivery.queue, detail=str(error), exc_info=error)
        return await _bury(delivery, DeadReason.FAILED, str(error), keeps_dead, ends_at_s)
    else:
        await delivery.ack()
    return None


async def _bury(delivery: Delivery, reason: DeadReason, detail: str, keeps_dead: Keeps, ends_at_s: float) -> DeadReason:
    """Dead-letter a delivery. Raises the error that lasts until `ends_at_s`: the broker is away, or takes no copy."""
    if keeps_dead(delivery):
        _log.warning("delivery.dead", queue=delivery.queue, reason=reason, detail=detail)
        await repeated(
            lambda: delivery.dead_letter(reason, detail),
            on=(TransientError, PermanentError),
            wait=_UNBURIED,
            ends_at_s=ends_at_s,
        )
    else:
        # Each line of many would say the same: the role counts them.
        _log.info("delivery.dropped", queue=delivery.queue, reason=reason)
        await delivery.ack()
    return reason
