"""Says every few seconds that the agent is alive, and what room its cluster has."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog
from msgspec import UNSET

from slicebus.agent.capacity import Room, Use, room, within_grant
from slicebus.agent.store import Store
from slicebus.proto.errors import TransientError
from slicebus.proto.messages import Heartbeat, Message, Terms

_log = structlog.get_logger()


class Heart:
    """The agent's heartbeats. `say` publishes."""

    def __init__(self, store: Store, say: Callable[[Message], Awaitable[None]], *, interval_s: float) -> None:
        self._store = store
        self._say = say
        self._interval_s = interval_s
        self._use = Use(store.pods, store.strangers)
        self._terms: Terms | None = None
        self._changed = asyncio.Event()

    def take(self, terms: Terms) -> None:
        """Go by these from now on, and say so at once."""
        if self._terms is None or self._terms.version != terms.version:
            _log.info("terms.taken", version=terms.version, flavors=[flavor.name for flavor in terms.flavors])
            self._terms = terms
            self._changed.set()

    async def run(self) -> None:
        """Beat until cancelled. A beat that cannot be said is left out."""
        while True:
            self._changed.clear()
            try:
                await self._say(self._beat())
            except TransientError as error:
                _log.warning("heartbeat.failed", error=str(error))
            try:
                async with asyncio.timeout(self._interval_s):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _beat(self) -> Heartbeat:
        found = self._room()
        return Heartbeat(
            capacity=found.capacity,
            used=found.used,
            ours=found.ours,
            terms=self._terms.version if self._terms else UNSET,
            jobs=sum(1 for _ in self._store.our_jobs()),
            out_of_sync=self._store.behind(),
        )

    def _room(self) -> Room:
        store = self._store
        return room(
            self._terms.flavors if self._terms else (),
            nodes=store.nodes(),
            use=self._use.by_node,
            granted=(each for key in store.our_jobs() for each in within_grant(store.view(key))),
        )
