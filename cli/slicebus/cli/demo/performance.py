"""Runs the demo's scenario on the given parts, and writes its timeline."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
from rich.table import Table
from rich.text import Text

from slicebus.bus.contract import Bus
from slicebus.cli.broker.connection import bus_of
from slicebus.cli.demo.keep import keep_embedded, keep_real
from slicebus.cli.demo.observation import Observer
from slicebus.cli.demo.scenario import Images, acts, clean_up, play
from slicebus.cli.demo.screen import Screen
from slicebus.cli.demo.world import World, embedded_world, fleet, real_world
from slicebus.cli.screen import SafeConsole
from slicebus.journal.entry import Entry
from slicebus.journal.page import milliseconds, page
from slicebus.journal.streams import read_journals
from slicebus.journal.traces import Trace, sizes, traces
from slicebus.proto.messages import ClusterName

_MEMORY_BROKER = "demo"
_ALL_REPORTED_S = 1.0
"""How long the timeline waits for the last status: an agent publishes it within its reporting interval."""


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What the demo runs on; None for an embedded part."""

    amqp_url: str | None
    manager_kubeconfig: Path | None
    worker_kubeconfigs: Mapping[ClusterName, Path]
    ray_stand_in: bool | None

    @property
    def headline(self) -> str:
        """The parts, in words."""
        clusters = "the clusters of the kubeconfigs" if self.manager_kubeconfig else "embedded API servers"
        broker = "RabbitMQ" if self.amqp_url else "the in-process bus"
        return f"on {clusters} and {broker}"

    @asynccontextmanager
    async def world(self) -> AsyncIterator[World]:
        """The clusters of the demo, until the context is left."""
        if self.manager_kubeconfig is None:
            async with embedded_world() as world:
                yield world
        else:
            async with real_world(
                self.manager_kubeconfig, self.worker_kubeconfigs, ray_stand_in=self.ray_stand_in
            ) as world:
                yield world

    def url(self, role: str) -> str:
        """A role's broker address."""
        return self.amqp_url or f"memory://{role}@{_MEMORY_BROKER}"


async def perform(parts: Parts, images: Images, *, timeline: Path, pause_s: float, keep: bool) -> None:
    """Run the scenario, write the timeline, and with `keep` go on until cancelled. Raises UnavailableError."""
    entries: list[Entry] = []
    console = SafeConsole(soft_wrap=False)
    async with AsyncExitStack() as stack:
        world = await stack.enter_async_context(parts.world())
        await stack.enter_async_context(fleet(world, {role: parts.url(role) for role in ("manager", *world.workers)}))
        bus = await stack.enter_async_context(bus_of(parts.url("demo"), name="slicebus demo"))
        await stack.enter_async_context(_recording(bus, entries))
        observer = Observer(world)
        await stack.enter_async_context(observer.watching())
        screen = Screen(console, headline=parts.headline, look=observer.look, entries=entries)
        try:
            async with screen.showing():
                for act in acts(images):
                    screen.step(act.text)
                    await play(act, world, observer)
                    await asyncio.sleep(pause_s)
                await asyncio.sleep(_ALL_REPORTED_S)
            played = traces(entries)
            _print_resizes(console, played)
            html = page(title="slicebus demo", note=f"Run {parts.headline}.", traces=played, sizes=sizes(entries))
            await asyncio.to_thread(timeline.write_text, html, encoding="utf-8")
            console.print(Text.assemble("\nTimeline: ", (str(timeline), "bold"), ", open it in a browser."))
            if keep and parts.manager_kubeconfig:
                await keep_real(parts.manager_kubeconfig, parts.worker_kubeconfigs)
            elif keep:
                await keep_embedded(world, timeline.parent)
        finally:
            await clean_up(world, observer)


@asynccontextmanager
async def _recording(bus: Bus, entries: list[Entry]) -> AsyncIterator[None]:
    """Collect what the journal records from now on."""

    async def record() -> None:
        async for stored in read_journals(bus, "next", follow=True):
            entry = Entry.from_record(stored)
            entries.append(entry)

    task = asyncio.create_task(record(), name="record")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _print_resizes(console: SafeConsole, traces: Sequence[Trace]) -> None:
    table = Table(title="\nResizes, from the first message to the last pod's readiness", title_justify="left", box=None)
    for column in ("job", "cluster", "resize", "took"):
        table.add_column(column, justify="right" if column == "took" else "left", header_style="dim", no_wrap=True)
    table.add_column("")
    for trace in traces:
        if trace.title.startswith("resize"):
            note = "it waited for quota" if trace.waited_for else ""
            table.add_row(trace.job, trace.cluster, trace.title.removeprefix("resize "), milliseconds(trace.took), note)
    console.print(table)
