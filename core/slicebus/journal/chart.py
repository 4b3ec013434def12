"""Draws a job's size over time: the counts as steps, the time axis, and each wait with its reason.

Places on the time axis are percentages, and heights are pixels, so that a chart is as wide as its page and its texts
keep their size. `chart.html.j2` writes it as SVG; `chart.css` has its colours.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import count, pairwise

import msgspec

from slicebus.journal.traces import Size, Trace, TraceOutcome
from slicebus.proto.messages import Pending, WorkloadSpec

PLOT_HEIGHT = 96.0
"""In pixels, as `chart.css` has it."""
_MARGIN = 4.0
_MOST_TICKS, _MOST_LEVELS = 5, 4
_MOST_ROWS = 200
"""The last numbers that the table below a chart has."""
_EDGE_PERCENT = 10.0
_STEPS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30)
_LONGER_STEPS_S = (60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600, 86_400)


class WaitSpan(msgspec.Struct, frozen=True):
    """A time in which a job waited for quota; without an end it waits still."""

    began: datetime
    ended: datetime | None
    reason: str


class Segment(msgspec.Struct, frozen=True):
    """One straight line of a series, level or upright."""

    series: str
    x1: float
    y1: float
    x2: float
    y2: float


class Tick(msgspec.Struct, frozen=True):
    """A time on the axis."""

    x: float
    text: str
    anchor: str
    """SVG's `text-anchor`: a text at an edge stays inside."""


class CountLevel(msgspec.Struct, frozen=True):
    """A count on the other axis."""

    y: float
    count: int


class WaitBand(msgspec.Struct, frozen=True):
    """A wait as a stretch of the strip."""

    number: int
    x: float
    width: float
    wait: WaitSpan
    took: timedelta


class Mark(msgspec.Struct, frozen=True):
    """Where a change begins, and the anchor of its hops on the page; empty where it has none there."""

    x: float
    title: str
    anchor: str


class SizeRow(msgspec.Struct, frozen=True):
    """The counts from a moment on; None for one that nobody had said."""

    at: datetime
    wanted: int | None
    granted: int | None
    ready: int | None


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """One job's size over time."""

    job: str
    most: int
    began: datetime
    ended: datetime
    segments: tuple[Segment, ...]
    ticks: tuple[Tick, ...]
    levels: tuple[CountLevel, ...]
    bands: tuple[WaitBand, ...]
    marks: tuple[Mark, ...]
    rows: tuple[SizeRow, ...]
    """The numbers, oldest first; only the last ones of very many."""

    @property
    def last(self) -> SizeRow:
        """The counts at the end."""
        return self.rows[-1] if self.rows else SizeRow(self.ended, None, None, None)


SERIES: dict[str, Callable[[SizeRow], int | None]] = {
    "wanted": lambda row: row.wanted,
    "granted": lambda row: row.granted,
    "ready": lambda row: row.ready,
}


def chart(
    job: str,
    sizes: Sequence[Size],
    *,
    began: datetime,
    ended: datetime,
    waits: Iterable[WaitSpan] = (),
    marks: Iterable[tuple[datetime, str, str]] = (),
) -> Chart:
    """The chart of a job from `began` to `ended`. `marks` are the begin, title and anchor of each change."""
    span = max(ended - began, timedelta(milliseconds=1))

    def x(at: datetime) -> float:
        return round(min(max((at - began) / span, 0.0), 1.0) * 100, 3)

    rows = tuple(_rows(sizes))
    most = max((pods for row in rows for pods in (row.wanted, row.granted, row.ready) if pods is not None), default=0)
    return Chart(
        job=job,
        most=most,
        began=began,
        ended=ended,
        segments=tuple(_segments(rows, x, most)),
        ticks=tuple(_ticks(began, span)),
        levels=tuple(CountLevel(_y(pods, most), pods) for pods in _levels(most)),
        bands=tuple(_bands(waits, x, ended)),
        marks=tuple(Mark(x(at), title, anchor) for at, title, anchor in marks),
        rows=rows[-_MOST_ROWS:],
    )


def waits_of(traces: Iterable[Trace]) -> list[WaitSpan]:
    """The waits of a job's changes, oldest first. Where the reason has changed, a new one begins."""
    return [wait for trace in traces for wait in _waits(trace)]


def _waits(trace: Trace) -> Iterator[WaitSpan]:
    if not trace.waited_for:
        return
    ended = _ended(trace)
    told = [(hop.at, _reason(hop.text)) for hop in trace.hops if hop.type == Pending.type]
    starts = [(at, reason) for at, reason in told if ended is None or at < ended]
    # The first reason holds from the request on; the last one is the trace's own.
    reasons = [reason for _, reason in starts[:-1]] + [trace.waited_for]
    moments = [trace.began, *(at for at, _ in starts[1:])]
    for (at, reason), until in zip(zip(moments, reasons, strict=True), [*moments[1:], ended], strict=True):
        yield WaitSpan(at, until, reason)


def _reason(summary: str) -> str:
    """The reason in the summary of a pending message."""
    return summary.partition(" waits: ")[2] or summary


def _ended(trace: Trace) -> datetime | None:
    """When the wait of a trace ended; None while it lasts. Without recorded steps the order shows it."""
    if trace.admitted is not None:
        return trace.admitted
    if trace.outcome is TraceOutcome.WAITS:
        return None
    ordered = [hop.at for hop in trace.hops if hop.type == WorkloadSpec.type]
    return ordered[-1] if ordered else trace.began + trace.took


def _rows(sizes: Sequence[Size]) -> Iterator[SizeRow]:
    wanted = granted = ready = None
    for size in sizes:
        before = (wanted, granted, ready)
        wanted = wanted if size.wanted is None else size.wanted
        granted = granted if size.granted is None else size.granted
        ready = ready if size.ready is None else size.ready
        if (wanted, granted, ready) != before:
            yield SizeRow(size.at, wanted, granted, ready)


def _segments(rows: Sequence[SizeRow], x: Callable[[datetime], float], most: int) -> Iterator[Segment]:
    """Each count keeps its height until the next one; the last one holds to the right edge."""
    for series, value in SERIES.items():
        corners = list[tuple[float, float]]()
        for row in rows:
            if (pods := value(row)) is not None and (y := _y(pods, most)) != (corners[-1][1] if corners else None):
                corners.append((x(row.at), y))
        for (x1, y1), (x2, y2) in pairwise([*corners, *((100.0, y) for _, y in corners[-1:])]):
            if x2 > x1:
                yield Segment(series, x1, y1, x2, y1)
            if y2 != y1:
                yield Segment(series, x2, y1, x2, y2)


def _y(pods: int, most: int) -> float:
    return round(PLOT_HEIGHT - _MARGIN - pods / max(most, 1) * (PLOT_HEIGHT - 2 * _MARGIN), 1)


def _levels(most: int) -> Iterator[int]:
    """Some round counts from 0 to the largest one."""
    steps = (digit * 10**power for power in count() for digit in (1, 2, 5))
    step = next(step for step in steps if most / step <= _MOST_LEVELS)
    yield from range(0, most + 1, step)


def _ticks(began: datetime, span: timedelta) -> Iterator[Tick]:
    """Round times, a few of them."""
    length_s = span.total_seconds()
    steps = (*_STEPS_S, *_LONGER_STEPS_S)
    step_s = next((step for step in steps if length_s / step <= _MOST_TICKS), length_s / _MOST_TICKS)
    midnight = began.replace(hour=0, minute=0, second=0, microsecond=0)
    number = int((began - midnight).total_seconds() / step_s) + 1
    while (at := midnight + timedelta(seconds=number * step_s)) <= began + span:
        share = round((at - began) / span * 100, 3)
        anchor = "start" if share < _EDGE_PERCENT else "end" if share > 100 - _EDGE_PERCENT else "middle"
        yield Tick(share, _clock(at, step_s), anchor)
        number += 1


def _clock(at: datetime, step_s: float) -> str:
    if step_s < 1:
        return f"{at:%H:%M:%S}.{at.microsecond // 1000:03d}"
    return f"{at:%H:%M}" if step_s >= 60 else f"{at:%H:%M:%S}"


def _bands(waits: Iterable[WaitSpan], x: Callable[[datetime], float], ended: datetime) -> Iterator[WaitBand]:
    for number, wait in enumerate(waits, start=1):
        until = wait.ended or ended
        yield WaitBand(number, x(wait.began), round(max(x(until) - x(wait.began), 0.2), 3), wait, until - wait.began)
