"""The traces of a job for the terminal."""

from collections.abc import Iterable, Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from slicebus.cli import screen
from slicebus.cli.durations import local_time
from slicebus.cli.screen import styled
from slicebus.journal.page import milliseconds
from slicebus.journal.traces import STEP, Hop, Trace, TraceOutcome
from slicebus.proto.messages import Direction

_STYLES = {
    TraceOutcome.DONE: "green",
    TraceOutcome.WAITS: "yellow",
    TraceOutcome.UNDER_WAY: "yellow",
    TraceOutcome.OVERTAKEN: "dim",
    TraceOutcome.REFUSED: "bold red",
    TraceOutcome.DEAD: "bold red",
}
_ARROWS = {Direction.UP: ("↑", "cyan"), Direction.DOWN: ("↓", "green")}
_STEP, _UNREADABLE = ("·", "magenta"), ("!", "red")


def print_traces(traces: Iterable[Trace]) -> None:
    """Print traces as wide as the terminal; into a file or a pipe a hop stays one line."""
    for trace in traces:
        screen.show_wrapped(rendered(trace))


def rendered(trace: Trace) -> RenderableType:
    """A trace: title, outcome, and each hop with its time since the start."""
    head = styled(
        (trace.title, "bold"),
        f"  {trace.job}",
        (f" on {trace.cluster}" if trace.cluster else "", "dim"),
        (f"  {local_time(trace.began)}  ", "dim"),
        (trace.outcome, _STYLES[trace.outcome]),
        f" after {milliseconds(trace.took)}" if trace.outcome is TraceOutcome.DONE else "",
        f", {milliseconds(trace.waited)} of it in the queue" if trace.waited else "",
    )
    return Group(head, *_notes(trace), _hops(trace), "")


def _notes(trace: Trace) -> Iterator[Text]:
    if trace.note:
        yield styled(f"  {trace.note}", style=_STYLES[trace.outcome])
    if trace.clocks_apart:
        text = f"  the clocks of its machines differ by at least {milliseconds(trace.clocks_apart)}"
        yield Text(text, style="yellow")


def _hops(trace: Trace) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column(justify="right", style="dim", no_wrap=True, min_width=10)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for hop in trace.hops:
        mark, colour = _ARROWS[hop.direction] if hop.direction else _STEP if hop.type == STEP else _UNREADABLE
        table.add_row(
            f"+{milliseconds(hop.since_start)}",
            Text(mark, style=colour),
            styled(hop.by),
            styled(_type(hop), style=colour),
            styled(hop.text),
        )
    return table


def _type(hop: Hop) -> str:
    """The type of a message; empty for a step."""
    return "" if hop.type == STEP else hop.type
