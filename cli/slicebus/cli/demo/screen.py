"""Shows the demo as a live view in a terminal, and as lines elsewhere."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from rich.console import RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from slicebus.cli.journal.entry_lines import line
from slicebus.cli.live.observation import Observation
from slicebus.cli.live.view import ViewRoom, view
from slicebus.cli.screen import SafeConsole
from slicebus.journal.entry import Entry

_REFRESH_PER_S = 8
_LINES_BESIDE_HOPS = 26
"""What the panels above the messages need, so that the view fits into the terminal."""
_FEWEST_HOPS = 5
_QUIET_TYPES = ("heartbeat", "status", "decisions")


class Screen:
    """Shows what `look` sees, and the growing `entries`."""

    def __init__(
        self, console: SafeConsole, *, headline: str, look: Callable[[], Observation], entries: Sequence[Entry]
    ) -> None:
        self._console = console
        self._headline = headline
        self._look = look
        self._entries = entries
        self._step = "The manager and the agents start"
        self._printed = 0

    @asynccontextmanager
    async def showing(self) -> AsyncIterator[None]:
        """Show until the context is left; the last view stays."""
        if not self._console.is_terminal:
            self._console.print(self._headline)
            yield
            self._print_hops()
            return
        with Live(
            get_renderable=self._view,
            console=self._console,
            refresh_per_second=_REFRESH_PER_S,
            vertical_overflow="crop",
            screen=False,
        ):
            yield
            await asyncio.sleep(2 / _REFRESH_PER_S)

    def step(self, text: str) -> None:
        """Announce the next act."""
        self._step = text
        if not self._console.is_terminal:
            self._print_hops()
            self._console.print(f"\n{text}")

    def _print_hops(self) -> None:
        for entry in self._entries[self._printed :]:
            if entry.type not in _QUIET_TYPES:
                self._console.print(line(entry), soft_wrap=True)
        self._printed = len(self._entries)

    def _view(self) -> RenderableType:
        hops = max(_FEWEST_HOPS, self._console.height - _LINES_BESIDE_HOPS)
        head: list[RenderableType] = [
            Text.assemble(("slicebus demo", "bold"), ("  " + self._headline, "dim")),
            Panel(Text(self._step, style="bold cyan"), border_style="cyan"),
        ]
        return view(head, self._look(), self._entries[-200:], pods="running", room=ViewRoom(hops=hops))
