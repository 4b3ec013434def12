"""Shows a recording as one self-contained HTML file: each job's size over time, and each trace hop by hop."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import cache
from importlib.resources import files
from itertools import accumulate

import msgspec
from jinja2 import BaseLoader, Environment, PackageLoader, StrictUndefined, Template

from slicebus.journal.chart import Chart, chart, waits_of
from slicebus.journal.printable import printable
from slicebus.journal.traces import STEP, Hop, Size, Trace
from slicebus.proto.messages import Direction


class HopBar(msgspec.Struct, frozen=True):
    """One hop: its place and length in the trace, in percent."""

    hop: Hop
    left: float
    width: float


class TraceRow(msgspec.Struct, frozen=True):
    """One trace with its bars."""

    trace: Trace
    bars: tuple[HopBar, ...]


def page(*, title: str, note: str, traces: Sequence[Trace], sizes: dict[str, list[Size]]) -> str:
    """Render the HTML page. `note` says where the recording comes from."""
    moments = [size.at for points in sizes.values() for size in points]
    began, ended = (min(moments), max(moments)) if moments else (None, None)
    charts = [] if began is None or ended is None else list(_charts(traces, sizes, began, ended))
    return _template().render(
        title=title,
        note=note,
        began=began,
        took=ended - began if began and ended else timedelta(),
        charts=charts,
        rows=[trace_row(trace) for trace in traces],
        milliseconds=milliseconds,
        arrow=arrow,
        style=style(),
    )


def milliseconds(span: timedelta) -> str:
    """A time span for people: `8 ms`, `1.25 s`, `3 min 20 s`."""
    seconds = span.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.2f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"


def _charts(traces: Sequence[Trace], sizes: dict[str, list[Size]], began: datetime, ended: datetime) -> Iterator[Chart]:
    anchors = {id(trace): f"change-{number}" for number, trace in enumerate(traces, start=1)}
    for job, points in sizes.items():
        own = [trace for trace in traces if trace.job == job]
        marks = [(trace.began, trace.title, anchors[id(trace)]) for trace in own]
        yield chart(job, points, began=began, ended=ended, waits=waits_of(own), marks=marks)


def trace_row(trace: Trace) -> TraceRow:
    """A trace with a bar for each hop."""
    whole = max(*(hop.since_start.total_seconds() for hop in trace.hops), 1e-6)
    # Where clocks differ, a hop may seem to lie before the one that it came after.
    starts = list(accumulate((hop.since_start.total_seconds() / whole * 100 for hop in trace.hops), max))
    ends = [*starts[1:], 100.0]
    bars = (
        HopBar(hop=hop, left=round(start, 2), width=round(end - start, 2))
        for hop, start, end in zip(trace.hops, starts, ends, strict=True)
    )
    return TraceRow(trace=trace, bars=tuple(bars))


def arrow(hop: Hop) -> str:
    """The symbol of its direction."""
    if hop.direction is None:
        return "·" if hop.type == STEP else "!"
    return "↑" if hop.direction is Direction.UP else "↓"


@cache
def style() -> str:
    """The style of charts and hops, for every page that has them."""
    return (files("slicebus.journal") / "chart.css").read_text(encoding="utf-8")


@cache
def _template() -> Template:
    return environment(PackageLoader("slicebus.journal", ".")).get_template("page.html.j2")


def environment(loader: BaseLoader) -> Environment:
    """Templates whose texts cannot become markup, nor control the browser."""
    return Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_shown
    )


def _shown(value: object) -> object:
    """A value as a page shows it: texts of others lose the characters that a browser acts on. What a macro has written
    has passed here."""
    return printable(value) if isinstance(value, str) and not hasattr(value, "__html__") else value
