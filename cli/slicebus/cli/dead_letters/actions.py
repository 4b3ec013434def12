"""Requeues and discards dead letters one after the other: acts on each, then acknowledges it.

A crash or a broken connection between a requeue and its acknowledgement leaves the dead letter in its queue, although
the message was published. Requeued again it is a duplicate, which its version shows.
"""

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from contextlib import aclosing
from datetime import datetime

import msgspec

from slicebus.bus.contract import Bus, Delivery
from slicebus.bus.dead_letters.browse import browse
from slicebus.bus.dead_letters.letters import Choice, DeadLetter, LetterSelection, MessageRequeue, choose, head, requeue
from slicebus.bus.sizes import size_of
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import InvalidError, NotFoundError
from slicebus.proto.topology import DEAD_LETTERS

PAGE_BYTES = 32 * 1024**2
"""The most bytes of dead letters that are held at once. A survey of all letters keeps no bodies."""

Act = Callable[[WireMessage], Awaitable[str]]
"""Acts on a message and returns what it did, in words. Raises InvalidError or NotFoundError where it cannot."""


class LetterResult(msgspec.Struct, frozen=True):
    """The result for one dead letter."""

    letter: DeadLetter
    done: bool
    text: str


async def survey(bus: Bus, wanted: LetterSelection, now: Callable[[], datetime]) -> Choice:
    """The wanted dead letters. They stay in their queues."""
    letters = []
    for queue in DEAD_LETTERS:
        async with browse(bus, queue, keep=head) as deliveries:
            letters += [DeadLetter.from_message(delivery.message) async for delivery in deliveries]
    return choose(letters, wanted, now())


class _Page:
    """Keeps the bodies of chosen letters up to a number of bytes, and only the heads of all others."""

    def __init__(self, left: Counter[DeadLetter], most_bytes: int) -> None:
        self._left = left.copy()
        self._room = most_bytes
        self._whole: dict[int, WireMessage] = {}
        self.is_full = False

    def keep(self, message: WireMessage) -> WireMessage:
        """The next message of the queue, whole or without its body. At least one letter is whole, whatever its size."""
        letter = DeadLetter.from_message(message)
        size = size_of(message)
        if not self._left[letter] or self.is_full:
            return head(message)
        if size > self._room and self._whole:
            self.is_full = True
            return head(message)
        self._left[letter] -= 1
        self._room -= size
        self._whole[id(message)] = message
        return message

    def has(self, delivery: Delivery) -> bool:
        """Whether a delivery is a chosen letter with its body; True once for each letter."""
        return self._whole.pop(id(delivery.message), None) is not None


async def chosen_letters(
    bus: Bus, chosen: Collection[DeadLetter], *, page_bytes: int = PAGE_BYTES
) -> AsyncGenerator[tuple[DeadLetter, Delivery], None]:
    """The chosen dead letters with their bodies, of each queue oldest first, in pages of bounded bytes. Each page is a
    browse of a whole queue. What is not acknowledged stays there."""
    left = Counter(chosen)
    for queue in DEAD_LETTERS:
        async with aclosing(_chosen_of(bus, queue, left, page_bytes)) as deliveries:
            async for found in deliveries:
                yield found


async def _chosen_of(
    bus: Bus, queue: str, left: Counter[DeadLetter], page_bytes: int
) -> AsyncGenerator[tuple[DeadLetter, Delivery], None]:
    """Those of one queue; `left` counts down."""
    goes_on = bool(left.total())
    while goes_on:
        page, goes_on = _Page(left, page_bytes), False
        async with browse(bus, queue, keep=page.keep) as deliveries:
            async for delivery in deliveries:
                if not page.has(delivery):
                    continue
                letter = DeadLetter.from_message(delivery.message)
                left[letter] -= 1
                yield letter, delivery
                if not left.total():
                    return
        goes_on = page.is_full


async def messages(bus: Bus, chosen: Collection[DeadLetter]) -> AsyncGenerator[WireMessage, None]:
    """The chosen dead letters with their bodies. They stay in their queue."""
    async with aclosing(chosen_letters(bus, chosen)) as deliveries:
        async for _, delivery in deliveries:
            yield delivery.message


async def settle(
    bus: Bus, chosen: Collection[DeadLetter], act: Act, *, dry_run: bool, page_bytes: int = PAGE_BYTES
) -> AsyncGenerator[LetterResult, None]:
    """Act on each chosen letter, and acknowledge it.

    A letter stays in its queue where the action fails, and in a dry run. One that has gone meanwhile gets a result too.
    """
    left = Counter(chosen)
    async with aclosing(chosen_letters(bus, chosen, page_bytes=page_bytes)) as deliveries:
        async for letter, delivery in deliveries:
            left[letter] -= 1
            try:
                text = await act(delivery.message)
            except (InvalidError, NotFoundError) as error:
                yield LetterResult(letter, False, str(error))
            else:
                if not dry_run:
                    await delivery.ack()
                yield LetterResult(letter, True, text)
    for letter in left.elements():
        yield LetterResult(letter, False, "it is no longer there")


class Republisher:
    """Publishes messages again, as the user of the bus: the manager's."""

    def __init__(self, bus: Bus, *, dry_run: bool) -> None:
        self._bus = bus
        self._dry_run = dry_run
        self._there: set[str] = set()

    async def __call__(self, back: MessageRequeue) -> str:
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
        self._publish = Republisher(bus, dry_run=dry_run)

    async def __call__(self, message: WireMessage) -> str:
        """Publish, and return when the broker has confirmed it. Raises InvalidError and NotFoundError."""
        return await self._publish(requeue(message, manager=self._bus.user, agents=self._agents))


async def discard(message: WireMessage) -> str:
    """Do nothing: the acknowledgement discards the letter."""
    return "for good"
