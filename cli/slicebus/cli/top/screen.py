"""Draws `slicebus top`: again and again in a terminal, or one frame."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any

from rich.console import RenderableType
from rich.live import Live

from slicebus.ambient.clock import now
from slicebus.cli import screen
from slicebus.cli.cluster.options import JobScope
from slicebus.cli.cluster.reading import Reading, followed, read, settled
from slicebus.cli.cluster.showing import say_first
from slicebus.cli.durations import local_time
from slicebus.cli.jobs.rows import shown_refs
from slicebus.cli.leaders import Leaders, leaders
from slicebus.cli.live.observation import observe, reported_pods, seen_quotas
from slicebus.cli.live.view import ViewRoom, view
from slicebus.cli.screen import SafeConsole, styled
from slicebus.cli.top.messages import LastMessages
from slicebus.kube.client import KubeClient
from slicebus.proto.errors import SlicebusError

_LEAST_S = 0.5
"""The time between two frames, at least."""
_MOST_S = 1.0
"""The time between two frames, at most: messages come without a change of an object."""
_SHARE = 4
"""Drawing a large fleet takes at most one part in so many of the time."""
_LEADERS_EVERY_S = 10.0


class Sources:
    """What is drawn: the objects that the user may see, who leads, and the last messages, where there is a broker."""

    def __init__(self, client: KubeClient, reading: Reading, scope: JobScope, amqp_url: str | None) -> None:
        self.reading = reading
        self.leaders = Leaders()
        self.namespace = scope.only or reading.confined_to
        self.messages = LastMessages(amqp_url, self.namespace) if amqp_url else None
        self._host = client.host

    @classmethod
    async def read(cls, client: KubeClient, scope: JobScope, amqp_url: str | None) -> "Sources":
        """The sources, read once. Raises ForbiddenError where the user may see neither jobs nor queues."""
        return cls(client, await read(client, namespace=scope.only, fallback=client.namespace), scope, amqp_url)

    def frame(self, size: tuple[int, int] | None = None) -> RenderableType:
        """A frame of so many columns and lines, with what a single frame has said before; None for as many as it
        takes."""
        head = [styled(("slicebus top", "bold"), (f"  {self._host}  {local_time(now())}", "dim"))]
        head += [styled(text, style=style) for text, style in self._notes(all=size is not None)]
        store = self.reading.store
        room = ViewRoom()
        if size is not None:
            quotas = len(list(seen_quotas(store, self.namespace)))
            beside = max(len(store.clusters.all()), quotas)
            room = ViewRoom.of(size[1] - len(head), size[0], beside=beside, has_hops=self.messages is not None)
        seen = observe(
            store,
            shown_refs(store),
            reported_pods,
            sight=self.leaders.seen(self.reading.sight),
            is_known=self.leaders.fleet_is_known,
            namespace=self.namespace,
            most_lines=room.jobs,
        )
        return view(head, seen, self.messages.entries if self.messages else None, pods="ready", room=room)

    def _notes(self, *, all: bool) -> Iterator[tuple[str, str]]:
        if all:
            yield from ((f"✗ {problem}", "red") for problem in self.leaders.problems)
            if self.leaders.unknown:
                yield f"whether a manager leads is unknown: {self.leaders.unknown}", "yellow"
            if self.reading.unseen:
                yield self.reading.unseen, "yellow"
        if self.messages is not None and self.messages.problem:
            yield self.messages.problem, "yellow"


async def print_frame(client: KubeClient, scope: JobScope, leaders: Leaders, amqp_url: str | None) -> None:
    """Print everything once."""
    sources = await Sources.read(client, scope, amqp_url)
    sources.leaders = leaders
    say_first(sources.reading)
    if sources.messages is not None:
        await sources.messages.collect(follow=False)
    screen.show_page(sources.frame())


async def show_live(client: KubeClient, scope: JobScope, manager_namespace: str, amqp_url: str | None) -> None:
    """Draw until cancelled. Raises UnavailableError where the API server cannot be reached any more."""
    sources = await Sources.read(client, scope, amqp_url)
    sources.leaders = await leaders(client, manager_namespace)
    console, loop = SafeConsole(soft_wrap=False), asyncio.get_running_loop()
    follow = sources.messages.collect(follow=True) if sources.messages else asyncio.sleep(0)
    async with (
        _beside(_watch_leaders(client, sources, manager_namespace), follow),
        followed(client, sources.reading) as changed,
    ):
        with Live(console=console, auto_refresh=False, screen=True, vertical_overflow="crop") as live:
            while True:
                began_s = loop.time()
                live.update(sources.frame((console.width, console.height)), refresh=True)
                await asyncio.sleep(max(_LEAST_S, (_SHARE - 1) * (loop.time() - began_s)))
                try:
                    async with asyncio.timeout(_MOST_S):
                        await settled(changed)
                except TimeoutError:
                    continue


async def _watch_leaders(client: KubeClient, sources: Sources, manager_namespace: str) -> None:
    while True:
        await asyncio.sleep(_LEADERS_EVERY_S)
        try:
            sources.leaders = await leaders(client, manager_namespace)
        except SlicebusError as error:
            sources.leaders = Leaders(unknown=str(error), fleet_is_known=False)


@asynccontextmanager
async def _beside(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Do work that never fails until the context is left."""
    tasks = [asyncio.create_task(each, name="top") for each in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
