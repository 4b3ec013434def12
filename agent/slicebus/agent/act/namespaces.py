"""Finds out which of the namespaces that jobs may come from accept jobs on this cluster."""

import asyncio
from collections.abc import Callable, Collection

import structlog

from slicebus.agent.decide.order.policy import NAMESPACE, why_lacking
from slicebus.agent.state.store import POLICY, AgentStore
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import NAMESPACES
from slicebus.proto.errors import NotFoundError, NotServedError, SlicebusError
from slicebus.proto.messages import Manifest, Terms

_log = structlog.get_logger()
_ROUND_S = 30.0
"""How soon a namespace that is made here accepts jobs."""
_ROUNDS_BETWEEN = 10
"""Namespaces that accept jobs are read once in so many rounds: until then, orders for one that has gone are refused,
which shows it."""


class Namespaces:
    """Reads each namespace of the terms by its name: an agent lists none. Calls `changed` when there is news."""

    def __init__(
        self, store: AgentStore, client: KubeClient, *, watched: Collection[str], changed: Callable[[], None]
    ) -> None:
        """`watched` are the only namespaces that the agent works in; empty for all."""
        self._store = store
        self._client = client
        self._watched = watched
        self._changed = changed
        self._asked: tuple[str, ...] | None = None
        self._lacking: dict[str, str] | None = None
        self._woken = asyncio.Event()

    def accept(self, terms: Terms) -> None:
        """Read the namespaces of these terms from now on."""
        asked = tuple(terms.namespaces) if isinstance(terms.namespaces, list) else None
        if asked != self._asked:
            self._asked = asked
            self._woken.set()

    def lacking(self) -> dict[str, str] | None:
        """The namespaces that accept no jobs, with the reason; None where nobody asks, and before all were read."""
        return self._lacking

    async def run(self) -> None:
        """Read until cancelled. A namespace that cannot be read counts as it did before, and at first as one that
        accepts jobs."""
        number = 0
        while True:
            self._woken.clear()
            await self._look(all_of_them=number % _ROUNDS_BETWEEN == 0)
            try:
                async with asyncio.timeout(_ROUND_S):
                    await self._woken.wait()
                number = 0
            except TimeoutError:
                number += 1

    async def _look(self, *, all_of_them: bool) -> None:
        asked, before = self._asked, self._lacking
        if asked is None:
            self._lacking = None
            return
        lacking: dict[str, str] = {}
        unread: list[str] = []
        for name in asked:
            reason = (before or {}).get(name)
            if all_of_them or reason is not None:
                try:
                    reason = await self._why(name)
                except SlicebusError as error:
                    unread.append(f"{name}: {error}")
            if reason is not None:
                lacking[name] = reason
        if unread:
            _log.warning("namespaces.unread", number=len(unread), first=unread[0])
        if lacking != before:
            self._lacking = lacking
            _log.info("namespaces.looked", asked=len(asked), lacking=lacking)
            self._changed()

    async def _why(self, name: str) -> str | None:
        """Why a namespace accepts no jobs; None where it does."""
        if self._watched and name not in self._watched:
            return NAMESPACE
        manifest: Manifest | None = None
        try:
            manifest = await self._client.get(NAMESPACES, name)
        except NotServedError:
            raise
        except NotFoundError:
            pass
        return why_lacking(self._store.policy[POLICY], name, manifest)
