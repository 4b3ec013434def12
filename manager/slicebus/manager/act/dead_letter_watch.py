"""Watches the dead-letter queues: keeps their metrics, and warns about dead letters that are too old."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

import structlog
from msgspec import structs
from prometheus_client import CollectorRegistry, Counter, Gauge

from slicebus.bus.contract import Bus, Delivery
from slicebus.bus.dead_letters.browse import browse
from slicebus.bus.dead_letters.letters import DeadLetter, head
from slicebus.bus.sizes import size_of
from slicebus.manager.decide.messages.dead_letters import (
    OTHER,
    DeadLetterQuota,
    LetterUse,
    age_s,
    alerts,
    brief,
    dropped_event,
    labels,
    newly_dead,
)
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import DeadReason, PermanentError, TransientError
from slicebus.proto.topology import DEAD, DEAD_LETTERS, words
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
        self._count = Gauge("slicebus_dead_letters", "Messages in the dead-letter queues.", registry=registry)
        self._oldest = Gauge(
            "slicebus_dead_letter_oldest_seconds", "Age of the oldest dead letter; 0 without one.", registry=registry
        )
        self._quota = DeadLetterQuota()
        self._told: dict[str, int] = {}
        """How many dropped messages of each cluster its last Event said."""
        self._dropped = Counter(
            "slicebus_dead_letters_dropped",
            "Messages that could not be handled, and were not kept: their cluster has its quota of dead letters.",
            ["cluster"],
            registry=registry,
        )
        self._dead = Counter(
            "slicebus_dead_lettered",
            "Messages dead-lettered. Those of agents and the broker count when the manager sees them.",
            ["cluster", "type", "reason"],
            registry=registry,
        )

    def count(self, delivery: Delivery, reason: DeadReason) -> None:
        """Count a message that the manager has dead-lettered."""
        letter = structs.replace(DeadLetter.from_message(delivery.message), reason=reason.value)
        self._dead.labels(*labels(letter, self._clusters())).inc()

    def keeps(self, delivery: Delivery) -> bool:
        """Whether one more dead letter of the message's cluster is kept. Counts it."""
        cluster = words(delivery.message.routing_key)[0]
        keeps = self._quota.take(cluster, size_of(delivery.message), at_s=asyncio.get_running_loop().time())
        if not keeps:
            self._dropped.labels(cluster if cluster in self._clusters() else OTHER).inc()
        return keeps

    async def run(self) -> None:
        """Watch until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await self._watch(began)
            except (TransientError, PermanentError) as error:
                _log.info("dead_letters.unread", error=str(error))
            await asyncio.sleep(max(self._interval_s, _SHARE * (loop.time() - began)))

    async def _watch(self, at: float) -> None:
        depths = [await self._bus.depth(queue) for queue in DEAD_LETTERS]
        if not any(depth.consumers for depth in depths):
            ready = sum(depth.ready for depth in depths)
            self._count.set(ready)
            changed = self._known is None or ready != len(self._known)
            if changed or at - self._browsed_at >= self._alert.total_seconds():
                await self._browse()
                self._browsed_at = at
        await self._warn(self._known or [])

    async def _browse(self) -> None:
        letters: list[DeadLetter] = []
        use: dict[str, LetterUse] = {}

        def counted(message: WireMessage) -> WireMessage:
            cluster = words(message.routing_key)[0]
            use[cluster] = use.get(cluster, LetterUse()).plus(LetterUse(1, size_of(message)))
            return head(message)

        for queue in DEAD_LETTERS:
            async with browse(self._bus, queue, keep=counted if queue == DEAD else head) as deliveries:
                letters += [brief(DeadLetter.from_message(delivery.message)) async for delivery in deliveries]
        for letter in newly_dead(letters, self._known, manager=self._bus.user):
            self._dead.labels(*labels(letter, self._clusters())).inc()
        self._known = letters
        self._quota.survey(use, at_s=asyncio.get_running_loop().time())

    async def _warn(self, letters: list[DeadLetter]) -> None:
        now = self._now()
        self._oldest.set(age_s(letters, now))
        for event in alerts(letters, self._store.clusters.all(), self._warned_at, now=now, alert=self._alert):
            name = event.regarding["metadata"]["name"]
            _log.warning("dead_letters.aged", cluster=name, detail=event.note)
            await self._executor.run([event])
            self._warned_at[name] = now
        await self._tell_dropped()

    async def _tell_dropped(self) -> None:
        """Say on a cluster that messages of it were not kept. Its Events of one reason are one object, which counts."""
        for cluster in self._store.clusters.all():
            name, dropped = cluster["metadata"]["name"], self._quota.dropped
            if (count := dropped.get(name, 0)) > self._told.get(name, 0):
                await self._executor.run([dropped_event(cluster, count)])
                self._told[name] = count

    def _clusters(self) -> set[str]:
        return {cluster["metadata"]["name"] for cluster in self._store.clusters.all()}
