"""What a broker loses without anybody noticing: a queue is deleted, with what lies in it, and declared anew later.

Whatever is published to it meanwhile is confirmed all the same: the journal has it.
"""

import asyncio
from collections.abc import Iterator
from random import Random

from simulation.schedule import WORKERS, Lose, Moment, Scale, Seed
from slicebus.proto.messages import Lane
from slicebus.proto.topology import manager_queue
from slicebus.sandbox.bus import MemoryBroker

_QUEUES = [manager_queue(lane) for lane in Lane]
_MOST_PODS = 6


def losses_of(seed: Seed, run_s: float) -> Iterator[Moment]:
    """Those of a seed's run. Their random choices are their own."""
    random = Random(f"{seed}/losses")
    for _ in range(random.choice((0, 1, 2))):
        yield Lose(at_s=random.uniform(0, run_s), queue=random.choice(_QUEUES), for_s=random.choice((0.0, 1.0, 5.0)))
    if random.random() < 0.5:
        yield from _lost_request(random, random.uniform(run_s / 2, run_s))


def _lost_request(random: Random, at_s: float) -> Iterator[Moment]:
    """A worker's job is resized while the queue of its request is away: late, so that little else happens."""
    yield Lose(at_s=at_s, queue=manager_queue(Lane.CONTROL), for_s=random.choice((1.0, 5.0)))
    counts = (random.randint(0, _MOST_PODS),)
    yield Scale(at_s=at_s, api=random.choice(WORKERS), pick=random.randrange(12), counts=counts)


async def lose(broker: MemoryBroker, item: Lose) -> None:
    """Play it."""
    bound = [binding for binding in broker.bindings if binding.queue == item.queue]
    for binding in bound:
        del broker.bindings[binding]
    broker.queues[item.queue].ready.clear()
    await asyncio.sleep(item.for_s)
    broker.bindings |= dict.fromkeys(bound)
