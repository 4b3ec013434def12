"""Shows a recording as one self-contained HTML file: each job's size over time, and each trace hop by hop."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import cache
from itertools import accumulate

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from slicebus.journal.printable import printable
from slicebus.journal.traces import STEP, Hop, Size, Trace
from slicebus.proto.messages import Direction

WIDTH, HEIGHT = 1000.0, 90.0
"""The size of a chart in its own units: the browser scales it."""


class Line(msgspec.Struct, frozen=True):
    """One series of a job's chart."""

    name: str
    points: str
    """SVG's `x,y x,y`, as steps."""


class Chart(msgspec.Struct, frozen=True):
    """One job's size over time."""

    job: str
    most: int
    lines: tuple[Line, ...]
    marks: tuple[tuple[float, str], ...]
    """Where its traces begin, and their titles."""


class Bar(msgspec.Struct, frozen=True):
    """One hop: its place and length in the trace, in percent."""

    hop: Hop
    left: float
    width: float


class Row(msgspec.Struct, frozen=True):
    """One trace with its bars."""

    trace: Trace
    bars: tuple[Bar, ...]


def page(*, title: str, note: str, traces: Sequence[Trace], sizes: dict[str, list[Size]]) -> str:
    """Render the HTML page. `note` says where the recording comes from."""
    moments = [size.at for points in sizes.values() for size in points]
    began, ended = (min(moments), max(moments)) if moments else (None, None)
    charts = [] if began is None or ended is None else _charts(traces, sizes, began, ended)
    return _template().render(
        title=title,
        note=note,
        began=began,
        took=ended - began if began and ended else timedelta(),
        charts=charts,
        rows=[_row(trace) for trace in traces],
        width=WIDTH,
        height=HEIGHT,
        milliseconds=milliseconds,
        arrow=_arrow,
    )


def milliseconds(span: timedelta) -> str:
    """A time span for people: `8 ms`, `1.25 s`, `3 min 20 s`."""
    seconds = span.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.2f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"


def _charts(traces: Sequence[Trace], sizes: dict[str, list[Size]], began: datetime, ended: datetime) -> list[Chart]:
    span = max((ended - began).total_seconds(), 0.001)

    def x(at: datetime) -> float:
        return round((at - began).total_seconds() / span * WIDTH, 1)

    charts = []
    for job, points in sizes.items():
        most = max((max(p.wanted or 0, p.granted or 0, p.ready or 0) for p in points), default=0)
        values: dict[str, Callable[[Size], int | None]] = {
            "wanted": lambda size: size.wanted,
            "granted": lambda size: size.granted,
            "ready": lambda size: size.ready,
        }
        lines = tuple(Line(name, _steps(points, value, x, most)) for name, value in values.items())
        marks = tuple((x(trace.began), trace.title) for trace in traces if trace.job == job)
        charts.append(Chart(job=job, most=most, lines=lines, marks=marks))
    return charts


def _steps(
    points: Sequence[Size], value: Callable[[Size], int | None], x: Callable[[datetime], float], most: int
) -> str:
    """The points of a line that keeps its height until the next value, and ends at the right edge."""
    corners, last = [], None
    for point in points:
        count = value(point)
        if count is None:
            continue
        y = round(HEIGHT - count / max(most, 1) * (HEIGHT - 6) - 3, 1)
        if last is not None:
            corners.append(f"{x(point.at)},{last}")
        corners.append(f"{x(point.at)},{y}")
        last = y
    if last is not None:
        corners.append(f"{WIDTH},{last}")
    return " ".join(corners)


def _row(trace: Trace) -> Row:
    whole = max(*(hop.since_start.total_seconds() for hop in trace.hops), 1e-6)
    # Where clocks differ, a hop may seem to lie before the one that it came after.
    starts = list(accumulate((hop.since_start.total_seconds() / whole * 100 for hop in trace.hops), max))
    ends = [*starts[1:], 100.0]
    bars = (
        Bar(hop=hop, left=round(start, 2), width=round(end - start, 2))
        for hop, start, end in zip(trace.hops, starts, ends, strict=True)
    )
    return Row(trace=trace, bars=tuple(bars))


def _arrow(hop: Hop) -> str:
    if hop.direction is None:
        return "·" if hop.type == STEP else "!"
    return "↑" if hop.direction is Direction.UP else "↓"


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("slicebus.journal", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        finalize=_shown,
    )
    return environment.get_template("page.html.j2")


def _shown(value: object) -> object:
    """A value as a page shows it: texts of others lose the characters that a browser acts on."""
    return printable(value) if isinstance(value, str) else value
