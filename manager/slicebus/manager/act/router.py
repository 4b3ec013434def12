"""Passes messages on to the other shards of the manager. Only the first shard consumes what the agents publish.

A message about a job goes to the shard that has it, and one about a cluster to every shard. It goes before anything is
done with it here, and is acknowledged after: what comes twice has a version. A shard handles whatever it gets, also
about a job that another one has by now: every write is fenced by the object's version.
"""

from slicebus.bus.contract import Bus
from slicebus.bus.dead_letter_headers import passed_on
from slicebus.manager.state.store import Store
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import NotFoundError, UnavailableError
from slicebus.proto.messages import Message, job_of
from slicebus.proto.topology import shard_exchange


class Router:
    """The first shard's."""

    def __init__(self, bus: Bus, store: Store) -> None:
        self._bus = bus
        self._store = store

    async def pass_on(self, wire: WireMessage, message: Message) -> bool:
        """Whether a message concerned other shards alone; every other one that it concerns has it then. Raises
        UnavailableError, also where the queue of a shard is missing: that one makes it when it begins anew."""
        job, own = job_of(message), self._store.shards.own
        concerned = [self._store.shard_of(job)] if job is not None else range(own.count)
        for shard in concerned:
            if shard == own.index:
                continue
            try:
                await self._bus.publish(shard_exchange(shard), passed_on(wire, by=self._bus.user))
            except NotFoundError as error:
                raise UnavailableError(str(error)) from error
        return own.index not in concerned
