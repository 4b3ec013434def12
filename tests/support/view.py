"""A view of a cluster, served in this process."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec

from slicebus.bus.contract import Record
from slicebus.cli.cluster.reading import ListedResource, Reading
from slicebus.cli.doctor.check import Check
from slicebus.cli.jobs.rows import JobRow, in_order, shown_refs
from slicebus.cli.leaders import Leaders
from slicebus.cli.view.fleet_state import FleetState
from slicebus.cli.view.history import History
from slicebus.cli.view.hour import RecordedHour
from slicebus.cli.view.live import LiveFleet
from slicebus.cli.view.past_moments import PastMoments
from slicebus.cli.view.serving import served
from slicebus.cli.view.web import View
from slicebus.journal.entry import Entry
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import WORKLOADS
from slicebus.kube.transport import Answer, Request
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.topology import AGENT_JOURNAL, JOURNAL, manager_topology
from slicebus.sandbox.bus import MemoryBroker


class Served(msgspec.Struct, frozen=True):
    """A view that is served, with what it follows."""

    address: str
    """With the secret, unless it is behind a proxy."""
    live: LiveFleet
    history: History

    @property
    def site(self) -> str:
        """The address without path and secret."""
        return self.address.partition("/?")[0].rstrip("/")


@asynccontextmanager
async def viewing(
    client: KubeClient,
    *,
    amqp_url: str | None = None,
    manager_namespace: str = "slicebus-system",
    public_name: str | None = None,
) -> AsyncIterator[Served]:
    """A view of a cluster, in this process."""
    live, history = LiveFleet(client, manager_namespace=manager_namespace), History(amqp_url)
    view = View(live, history, PastMoments(history.amqp_url), public_name=public_name)
    async with served(view, 0) as address:
        tasks = [asyncio.create_task(live.run()), asyncio.create_task(history.run())]
        try:
            yield Served(address, live, history)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class _Nowhere:
    """A way to a server that has nothing."""

    host = "nowhere"

    async def request(self, request: Request) -> Answer:
        return Answer(404, b"{}")

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        raise NotImplementedError

    async def aclose(self) -> None:
        pass


class StillFleet(LiveFleet):
    """A fleet that does not change, without a server."""

    def __init__(self, state: FleetState) -> None:
        super().__init__(KubeClient(_Nowhere()), manager_namespace="there")
        self._still = state

    @property
    def problem(self) -> None:
        return None

    def state(self) -> FleetState:
        return self._still

    async def rows(self) -> Sequence[JobRow]:
        store, sight = self._still.reading.store, self._still.sight
        return in_order(JobRow.of(store, ref, sight) for ref in shown_refs(store))


class StillHour(History):
    """A journal that does not go on, without a broker."""

    def __init__(self, hour: RecordedHour, *, amqp_url: str | None = None, first: datetime | None = None) -> None:
        super().__init__(amqp_url)
        self._still = hour
        self._first = first

    def hour(self) -> RecordedHour:
        return self._still

    @property
    def first(self) -> datetime | None:
        return self._first


def a_state(store: ManagerStore, **changes: Any) -> FleetState:
    """A state of everything that is in a store."""
    reading = Reading(store=store, parts=(ListedResource(WORKLOADS, None, "1"),), hidden=())
    at = datetime(2026, 1, 31, 12, 30, tzinfo=UTC)
    how: dict[str, Any] = {"reading": reading, "leaders": Leaders(holders=("manager-1",)), "at": at}
    return FleetState(**(how | changes))


def an_hour(*entries: Entry, **changes: Any) -> RecordedHour:
    """An hour with these messages."""
    how: dict[str, Any] = {"events": (), "problem": "", "dead_letters": Check("dead letters", "none")}
    return RecordedHour(entries=entries, **(how | changes))


@asynccontextmanager
async def still_view(
    state: FleetState,
    hour: RecordedHour,
    *,
    amqp_url: str | None = None,
    ledger: str | None = None,
    first: datetime | None = None,
) -> AsyncIterator[Served]:
    """A view of these, served in this process, whose past is in the streams of a broker, and in a ledger. `first` is
    where its slider begins."""
    live, history = StillFleet(state), StillHour(hour, amqp_url=amqp_url, first=first)
    async with live.client, served(View(live, history, PastMoments(amqp_url, ledger=ledger)), 0) as address:
        yield Served(address, live, history)


def fill_journal(broker: str, records: Iterable[Record]) -> str:
    """Let an in-process broker have recorded these, and return its address."""
    made = MemoryBroker.named(broker)
    made.declare(manager_topology())
    for record in records:
        stream = made.streams[JOURNAL if record.message.user_id == "manager" else AGENT_JOURNAL]
        stream.records.append(msgspec.structs.replace(record, offset=stream.next_offset))
        stream.next_offset += 1
    return f"memory://viewer@{broker}"
