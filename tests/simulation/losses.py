"""What a broker loses without anybody noticing: a queue is deleted, with what lies in it, and declared anew later.

Whatever is published to it meanwhile is confirmed all the same: the journal has it.
"""

import asyncio
from collections.abc import Iterator
from random import Random

from simulation.schedule import WORKERS, Lose, Moment, Scale, Seed
from slicebus.proto.messages import Lane
from slicebus.proto.topology import cluster_queue
from slicebus.sandbox.bus import MemoryBroker

_MOST_PODS = 6


def losses_of(seed: Seed, run_s: float) -> Iterator[Moment]:
    """Those of a seed's run. Their random choices are their own."""
    random, of = Random(f"{seed}/losses"), Random(f"{seed}/losses/clusters")
    for _ in range(random.choice((0, 1, 2))):
        at_s, lane, for_s = random.uniform(0, run_s), random.choice(list(Lane)), random.choice((0.0, 1.0, 5.0))
        yield Lose(at_s=at_s, queue=cluster_queue(of.choice(WORKERS), lane), for_s=for_s)
    if random.random() < 0.5:
        yield from _lost_request(random, random.uniform(run_s / 2, run_s))


def _lost_request(random: Random, at_s: float) -> Iterator[Moment]:
    """A worker's job is resized while the queue of its request is away: late, so that little else happens."""
    for_s, counts = random.choice((1.0, 5.0)), (random.randint(0, _MOST_PODS),)
    worker = random.choice(WORKERS)
    yield Lose(at_s=at_s, queue=cluster_queue(worker, Lane.CONTROL), for_s=for_s)
    yield Scale(at_s=at_s, api=worker, pick=random.randrange(12), counts=counts)


async def lose(broker: MemoryBroker, item: Lose) -> None:
    """Play it."""
    bound = [binding for binding in broker.bindings if binding.queue == item.queue]
    for binding in bound:
        del broker.bindings[binding]
    broker.queues[item.queue].ready.clear()
    await asyncio.sleep(item.for_s)
    broker.bindings |= dict.fromkeys(bound)
