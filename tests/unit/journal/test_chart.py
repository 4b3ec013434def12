"""The chart of a job's size: where its lines, times and waits stand."""

from datetime import UTC, datetime, timedelta

import pytest

from slicebus.journal.chart import WaitSpan, chart, waits_of
from slicebus.journal.traces import Hop, Size, Trace, TraceOutcome
from slicebus.proto.messages import ClusterName, Direction

BEGAN = datetime(2026, 5, 1, 10, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


def hop(seconds: float, type: str, text: str = "") -> Hop:
    return Hop(
        offset=0,
        at=at(seconds),
        since_start=timedelta(seconds=seconds),
        direction=Direction.DOWN,
        by="manager",
        type=type,
        text=text,
    )


def trace(*hops: Hop, outcome: TraceOutcome = TraceOutcome.DONE, waited_for: str = "", **more: datetime) -> Trace:
    return Trace(
        correlation_id="c",
        job="Job/team/train",
        cluster=ClusterName("east"),
        title="resize main 1 -> 5",
        hops=hops,
        outcome=outcome,
        waited_for=waited_for,
        **more,  # type: ignore[arg-type]
    )


def test_counts_are_steps_that_hold_to_the_end() -> None:
    sizes = [Size(at(0), wanted=1, granted=1, ready=0), Size(at(50), wanted=4), Size(at(50), wanted=4)]
    drawn = chart("Job/team/train", sizes, began=at(0), ended=at(100))
    wanted = [(s.x1, s.y1, s.x2, s.y2) for s in drawn.segments if s.series == "wanted"]
    assert wanted == [(0.0, 70.0, 50.0, 70.0), (50.0, 70.0, 50.0, 4.0), (50.0, 4.0, 100.0, 4.0)]
    assert [(s.x1, s.x2) for s in drawn.segments if s.series == "granted"] == [(0.0, 100.0)]
    assert [(row.wanted, row.granted, row.ready) for row in drawn.rows] == [(1, 1, 0), (4, 1, 0)]
    assert (drawn.most, drawn.last.wanted) == (4, 4)


def test_a_chart_without_sizes_has_axes() -> None:
    drawn = chart("Job/team/train", [], began=at(0), ended=at(0))
    assert (drawn.segments, [level.count for level in drawn.levels], drawn.last.ready) == ((), [0], None)


@pytest.mark.parametrize(
    ("seconds", "texts"),
    [
        (0.004, ["10:00:00.001", "10:00:00.002", "10:00:00.003", "10:00:00.004"]),
        (10, ["10:00:02", "10:00:04", "10:00:06", "10:00:08", "10:00:10"]),
        (3600, ["10:15", "10:30", "10:45", "11:00"]),
    ],
)
def test_times_are_round_and_few(seconds: float, texts: list[str]) -> None:
    drawn = chart("Job/team/train", [], began=at(0), ended=at(seconds))
    assert [tick.text for tick in drawn.ticks] == texts
    assert (drawn.ticks[-1].x, drawn.ticks[-1].anchor) == (100.0, "end")


@pytest.mark.parametrize(
    ("most", "counts"),
    [(0, [0]), (1, [0, 1]), (4, [0, 1, 2, 3, 4]), (7, [0, 2, 4, 6]), (5000, [0, 2000, 4000])],
)
def test_levels_are_round_and_few(most: int, counts: list[int]) -> None:
    drawn = chart("Job/team/train", [Size(at(0), wanted=most)], began=at(0), ended=at(1))
    assert [level.count for level in drawn.levels] == counts


def test_a_wait_that_lasts_goes_to_the_end() -> None:
    waits = [WaitSpan(at(10), at(30), "no quota"), WaitSpan(at(50), None, "still none")]
    drawn = chart("Job/team/train", [], began=at(0), ended=at(100), waits=waits)
    assert [(band.number, band.x, band.width) for band in drawn.bands] == [(1, 10.0, 20.0), (2, 50.0, 50.0)]
    assert [band.took for band in drawn.bands] == [timedelta(seconds=20), timedelta(seconds=50)]


WAITS = {
    "it never waited": (trace(hop(0, "scale-request"), hop(1, "workload-spec")), []),
    "it waits still": (
        trace(
            hop(0, "scale-request"),
            hop(1, "pending", "main=5 waits: no quota"),
            outcome=TraceOutcome.WAITS,
            waited_for="no quota",
        ),
        [WaitSpan(at(0), None, "no quota")],
    ),
    "the reason has changed": (
        trace(
            hop(0, "scale-request"),
            hop(1, "pending", "main=5 waits: no quota"),
            hop(9, "pending", "main=5 waits: 1 more needed"),
            hop(20, "workload-spec"),
            waited_for="1 more needed",
        ),
        [WaitSpan(at(0), at(9), "no quota"), WaitSpan(at(9), at(20), "1 more needed")],
    ),
    "the recorded step says when it ended": (
        trace(hop(0, "scale-request"), hop(20, "workload-spec"), waited_for="no quota", admitted=at(19)),
        [WaitSpan(at(0), at(19), "no quota")],
    ),
    "it was overtaken": (
        trace(
            hop(0, "scale-request"),
            hop(7, "pending", "main=5 waits: no quota"),
            outcome=TraceOutcome.OVERTAKEN,
            waited_for="no quota",
        ),
        [WaitSpan(at(0), at(7), "no quota")],
    ),
}


@pytest.mark.parametrize(("found", "waits"), WAITS.values(), ids=WAITS.keys())
def test_a_change_has_its_waits(found: Trace, waits: list[WaitSpan]) -> None:
    assert waits_of([found]) == waits
