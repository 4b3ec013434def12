"""Publishes inventories: one when the agent starts to lead, one for each resync, two after each reconnect, and one from
time to time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import structlog

from slicebus.agent.decide.job.inventory import Entry, is_too_large, item, pages, unanswered
from slicebus.agent.settings import AgentSettings
from slicebus.agent.state.store import AgentStore
from slicebus.agent.state.views import JobKey
from slicebus.ambient.clock import randomness
from slicebus.decisions.guard import guarded
from slicebus.proto.errors import DecisionError, PermanentError, TransientError
from slicebus.proto.messages import Inventory, Message

_log = structlog.get_logger()
_RETRY_S = 5.0
_LOADED_S = 30.0
"""The time after which a broker that is rebuilt has its definitions."""


class InventoryPublisher:
    """The agent's inventories, numbered within its epoch."""

    def __init__(
        self,
        settings: AgentSettings,
        *,
        store: AgentStore,
        publish: Callable[[Message], Awaitable[None]],
        listed: Callable[[JobKey], None],
    ) -> None:
        """`listed` is called with each job of the first inventory: its status needs no report of its own."""
        self._settings = settings
        self._store = store
        self._publish = publish
        self._listed = listed
        self._round = 0
        self._asked = asyncio.Event()
        self._asked_twice = False

    def ask(self) -> None:
        """Have an inventory published soon. Several calls before it starts lead to one inventory."""
        self._asked.set()

    def ask_twice(self) -> None:
        """Have one published soon, and another a while later.

        A broker that is being rebuilt may have the binding of the journal before that of the manager's queue. Meanwhile
        it confirms what only the journal has got.
        """
        self._asked_twice = True
        self._asked.set()

    async def publish(self) -> None:
        """Publish all pages of an inventory. Raises TransientError; the manager then ignores the pages that it has."""
        # A cache that has not listed yet would report jobs as missing (rule 6 of the design).
        for _, cache in self._store.caches():
            await cache.synced.wait()
        self._round += 1
        for page in pages(self._entries(), round=self._round):
            # No await between making a page and numbering its envelope: whatever is published later is newer.
            await self._publish(page)
            self._log(page)

    async def run(self) -> None:
        """Publish on request and about every `inventory_s` seconds, until cancelled."""
        pause_s = self._jittered()
        while True:
            try:
                async with asyncio.timeout(pause_s):
                    await self._asked.wait()
            except TimeoutError:
                pass
            self._asked.clear()
            pause_s = min(self._jittered(), _LOADED_S) if self._asked_twice else self._jittered()
            self._asked_twice = False
            try:
                await self.publish()
            except TransientError as error:
                _log.warning("inventory.failed", error=str(error))
                pause_s = min(pause_s, _RETRY_S)
            except PermanentError as error:
                _log.error("inventory.refused", error=str(error))

    def _entries(self) -> Iterator[Entry]:
        first = self._round == 1
        for key in sorted(set(self._store.keys())):
            try:
                entry = guarded(self._entry, key)
                if entry is not None and is_too_large(entry):
                    _log.error("job.unlisted", job=str(key), error="it has more than a page takes")
                elif entry is not None:
                    if first and entry[0].status_hash:
                        self._listed(key)
                    yield entry
            except DecisionError as error:
                # The manager sends its order again, and nothing is deleted because an inventory lacks it.
                _log.error("job.unlisted", job=str(key), error=str(error))

    def _entry(self, key: JobKey) -> Entry | None:
        view = self._store.view(key)
        listed = item(view, self._settings.cluster)
        return (listed, unanswered(view)) if listed is not None else None

    def _jittered(self) -> float:
        """The pause in seconds, up to a fifth shorter or longer, so that agents do not publish together."""
        return self._settings.inventory_s * randomness().uniform(0.8, 1.2)

    def _log(self, page: Inventory) -> None:
        if page.last:
            _log.info("inventory.published", round=page.round, pages=page.page + 1)
