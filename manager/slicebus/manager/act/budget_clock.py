"""Looks at the queues again when time alone has changed what is left of a budget."""

import asyncio
from collections.abc import Callable

from slicebus.ambient.clock import now
from slicebus.manager.state.store import ManagerStore

_PAUSE_S = 1.0
"""Times are whole seconds."""


class BudgetClock:
    """Waits until a budget is nearly spent, spent or back. Where nobody has a budget, nothing is looked at."""

    def __init__(self, store: ManagerStore, *due: Callable[[], None]) -> None:
        """Each of `due` is called at that time, and not more than once a second."""
        self._store = store
        self._due = due
        self._changed = asyncio.Event()
        for cache in (store.cluster_queues, store.cohorts, store.local_queues):
            cache.subscribe(lambda _: self._note_change())

    async def run(self) -> None:
        """Wait until cancelled. The status of a queue that uses more or less changes, and the time with it."""
        while True:
            self._changed.clear()
            try:
                async with asyncio.timeout(self._left_s()):
                    await self._changed.wait()
            except TimeoutError:
                for call in self._due:
                    call()
            await asyncio.sleep(_PAUSE_S)

    def _left_s(self) -> float | None:
        if not self._store.quotas.has_budgets:
            return None
        moment = now()
        times = [balance.changes_at for balance in self._store.quotas.budgets.balances(moment)]
        first = min((each for each in times if each is not None), default=None)
        return max(0.0, first - moment.timestamp()) if first is not None else None

    def _note_change(self) -> None:
        if self._store.quotas.has_budgets:
            self._changed.set()
