"""Watches the dead-letter queue: keeps its metrics, and warns about dead letters that are too old."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

import structlog
from msgspec import structs
from prometheus_client import CollectorRegistry, Counter, Gauge

from slicebus.bus.browse import browse
from slicebus.bus.contract import Bus, Delivery
from slicebus.bus.dead_letters import DeadLetter, head
from slicebus.manager.decide.messages.dead_letters import age_s, alerts, brief, labels, newly_dead
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.errors import DeadReason, NotFoundError, TransientError
from slicebus.proto.topology import DEAD
from slicebus.runtime.executor import Executor

_log = structlog.get_logger()
_INTERVAL_S = 15.0
_SHARE = 10
"""After a browse the watch rests so many times as long as it took: meanwhile nobody else could read the messages."""


class DeadLetterWatch:
    """Asks for the depth, and browses the queue only when that has changed, or once in `alert_s` seconds."""

    def __init__(
        self,
        *,
        bus: Bus,
        store: ManagerStore,
        executor: Executor,
        registry: CollectorRegistry,
        now: Callable[[], datetime],
        alert_s: float,
    ) -> None:
        self._bus = bus
        self._store = store
        self._executor = executor
        self._now = now
        self._alert = timedelta(seconds=alert_s)
        self._interval_s = min(_INTERVAL_S, alert_s / 2)
        self._known: list[DeadLetter] | None = None
        self._browsed_at = 0.0
        self._warned_at: dict[str, datetime] = {}
        self._count = Gauge("slicebus_dead_letters", "Messages in the dead-letter queue.", registry=registry)
        self._oldest = Gauge(
            "slicebus_dead_letter_oldest_seconds", "Age of the oldest dead letter; 0 without one.", registry=registry
        )
        self._dead = Counter(
            "slicebus_dead_lettered", "Messages dead-lettered.", ["cluster", "type", "reason"], registry=registry
        )

    def count(self, delivery: Delivery, reason: DeadReason) -> None:
        """Count a message that the manager has dead-lettered."""
        letter = structs.replace(DeadLetter.from_message(delivery.message), reason=reason.value)
        self._dead.labels(*labels(letter, self._clusters())).inc()

    async def run(self) -> None:
        """Watch until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await self._watch(began)
            except (TransientError, NotFoundError) as error:
                _log.info("dead_letters.unread", error=str(error))
            await asyncio.sleep(max(self._interval_s, _SHARE * (loop.time() - began)))

    async def _watch(self, at: float) -> None:
        depth = await self._bus.depth(DEAD)
        if not depth.consumers:
            self._count.set(depth.ready)
            changed = self._known is None or depth.ready != len(self._known)
            if changed or at - self._browsed_at >= self._alert.total_seconds():
                await self._browse()
                self._browsed_at = at
        await self._warn(self._known or [])

    async def _browse(self) -> None:
        async with browse(self._bus, DEAD, keep=head) as deliveries:
            letters = [brief(DeadLetter.from_message(delivery.message)) async for delivery in deliveries]
        for letter in newly_dead(letters, self._known, manager=self._bus.user):
            self._dead.labels(*labels(letter, self._clusters())).inc()
        self._known = letters

    async def _warn(self, letters: list[DeadLetter]) -> None:
        now = self._now()
        self._oldest.set(age_s(letters, now))
        for event in alerts(letters, self._store.clusters.all(), self._warned_at, now=now, alert=self._alert):
            name = event.regarding["metadata"]["name"]
            _log.warning("dead_letters.aged", cluster=name, detail=event.note)
            await self._executor.run([event])
            self._warned_at[name] = now

    def _clusters(self) -> set[str]:
        return {cluster["metadata"]["name"] for cluster in self._store.clusters.all()}
