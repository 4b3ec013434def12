"""Passes messages on to the other shards of the manager.

An agent addresses what is about a job to the shard of that job's last order, and everything else to the first one. So a
message about a job that has moved since comes to a shard that does not have it, and goes on to the one that has; one
about a cluster goes on to every shard, but for heartbeats, which the first one alone answers and shows. It is passed on
before it is handled here, and acknowledged after: a message that comes twice has a version.

A message that was passed on is not passed on again, even when yet another shard has the job by now: two shards that
disagree would send it to and fro. Every write is fenced by the object's version.
"""

from slicebus.bus.contract import Bus
from slicebus.bus.dead_letters.headers import passed_on
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import NotFoundError, UnavailableError
from slicebus.proto.messages import Message, job_of
from slicebus.proto.topology import Topology, addressed, shard_exchange


class Router:
    """Passes the messages of one of several shards on."""

    def __init__(self, bus: Bus, store: ManagerStore) -> None:
        self._bus = bus
        self._store = store

    async def pass_on(self, wire: WireMessage, message: Message) -> bool:
        """Pass a message on to every other shard that it concerns, and return whether it concerns them alone. Raises
        UnavailableError, also where the queue of a shard is missing: that shard makes it when it begins anew."""
        job, own = job_of(message), self._store.shards.own
        concerned = [self._store.shard_of(job)] if job is not None else range(own.count)
        for shard in concerned:
            if shard == own.index:
                continue
            try:
                await self._bus.publish(shard_exchange(shard), passed_on(wire, by=self._bus.user, shard=own.index))
            except NotFoundError as error:
                raise UnavailableError(str(error)) from error
        return own.index not in concerned


async def take_addressed(bus: Bus, shard: int, *, by: int) -> None:
    """Route what agents address to a shard to it, or to the first shard once that shard no longer exists. During the
    change it comes to both, and never to none."""
    await bus.declare(Topology((), (), addressed(shard, taken_by=by)))
    await bus.unbind(addressed(shard, taken_by=0 if by else shard))
