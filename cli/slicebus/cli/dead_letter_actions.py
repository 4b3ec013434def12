"""Requeues and discards dead letters one after the other: acts on each, then acknowledges it.

A crash or a broken connection between a requeue and its acknowledgement leaves the dead letter in its queue, although
the message was published. Requeued again it is a duplicate, which its version shows.
"""

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from datetime import datetime

import msgspec

from slicebus.bus.browse import browse
from slicebus.bus.contract import Bus
from slicebus.bus.dead_letters import Choice, DeadLetter, Requeue, Wanted, choose, requeue
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import InvalidError, NotFoundError
from slicebus.proto.topology import DEAD

Act = Callable[[WireMessage], Awaitable[str]]
"""Acts on a message and returns what it did, in words. Raises InvalidError or NotFoundError where it cannot."""


class Outcome(msgspec.Struct, frozen=True):
    """The result for one dead letter."""

    letter: DeadLetter
    done: bool
    text: str


async def survey(bus: Bus, wanted: Wanted, now: Callable[[], datetime]) -> Choice:
    """The wanted dead letters. They stay in their queue."""
    async with browse(bus, DEAD) as found:
        letters = [DeadLetter.from_message(delivery.message) async for delivery in found]
    return choose(letters, wanted, now())


async def messages(bus: Bus, chosen: Collection[DeadLetter]) -> list[WireMessage]:
    """The chosen dead letters with their bodies. They stay in their queue."""
    wanted = set(chosen)
    async with browse(bus, DEAD) as found:
        return [delivery.message async for delivery in found if DeadLetter.from_message(delivery.message) in wanted]


async def settle(bus: Bus, chosen: Collection[DeadLetter], act: Act, *, dry_run: bool) -> AsyncGenerator[Outcome, None]:
    """Act on each chosen letter, and acknowledge it.

    A letter stays in its queue where the action fails, and in a dry run. One that is gone meanwhile is an outcome too.
    """
    left = Counter(chosen)
    if left:
        async with browse(bus, DEAD) as found:
            async for delivery in found:
                letter = DeadLetter.from_message(delivery.message)
                if not left[letter]:
                    continue
                left[letter] -= 1
                try:
                    text = await act(delivery.message)
                except (InvalidError, NotFoundError) as error:
                    yield Outcome(letter, False, str(error))
                else:
                    if not dry_run:
                        await delivery.ack()
                    yield Outcome(letter, True, text)
                if not left.total():
                    break
    for letter in left.elements():
        yield Outcome(letter, False, "it is no longer there")


class Publisher:
    """Publishes messages again, as the user of the bus: the manager's."""

    def __init__(self, bus: Bus, *, dry_run: bool) -> None:
        self._bus = bus
        self._dry_run = dry_run
        self._there: set[str] = set()

    async def __call__(self, back: Requeue) -> str:
        """Publish, and return when the broker has confirmed it.

        Raises NotFoundError when the queue is gone: the broker would confirm a message that only the journal gets.
        """
        if back.queue not in self._there:
            await self._bus.depth(back.queue)
            self._there.add(back.queue)
        if not self._dry_run:
            await self._bus.publish(back.exchange, back.message)
        return f"to {back.queue}"


class Requeuer:
    """Publishes dead letters to the queues they came from."""

    def __init__(self, bus: Bus, *, agents: Mapping[str, str], dry_run: bool) -> None:
        self._bus = bus
        self._agents = agents
        self._publish = Publisher(bus, dry_run=dry_run)

    async def __call__(self, message: WireMessage) -> str:
        """Publish, and return when the broker has confirmed it. Raises InvalidError and NotFoundError."""
        return await self._publish(requeue(message, manager=self._bus.user, agents=self._agents))


async def discard(message: WireMessage) -> str:
    """Do nothing: the acknowledgement discards the letter."""
    return "for good"
