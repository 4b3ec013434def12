"""Stories made of recorded messages, and the page that shows them."""

from datetime import timedelta

import msgspec
import pytest

from slicebus.journal.entry import Entry
from slicebus.journal.page import milliseconds, page
from slicebus.journal.traces import Size, Trace, TraceOutcome, sizes, traces
from slicebus.proto.messages import (
    Applied,
    Delete,
    Heartbeat,
    JobPhase,
    Message,
    Pending,
    PodSetStatus,
    Refused,
    Relabel,
    ScaleRequest,
    Status,
    WorkloadSpec,
)
from unit.journal.records import BEGAN, JOB, entry, garbage


class Recording:
    """Messages, one after the other."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def add(self, at_ms: int, message: Message, *, chain: str | None = None) -> str:
        """Record a message `at_ms` after the beginning; the correlation, its own or the given one."""
        recorded = entry(message, offset=len(self.entries), at_s=at_ms / 1000, chain=chain)
        self.entries.append(recorded)
        return recorded.correlation_id


def request(granted: int, wanted: int, *, generation: int = 2) -> ScaleRequest:
    return ScaleRequest(
        job=JOB,
        workload="job-sweep-1",
        worker_uid="carrier",
        worker_generation=generation,
        granted={"main": granted},
        wanted={"main": wanted},
        why="parallelism changed",
    )


def spec(granted: int, *, version: int) -> WorkloadSpec:
    workload = {"metadata": {"name": f"job-sweep-{version}"}}
    return WorkloadSpec(job=JOB, spec_version=version, workload=workload, manifest={}, granted={"main": granted})


def status(ready: int, *, version: int, gated: int = 0) -> Status:
    pods = {"main": PodSetStatus(ready=ready, gated=gated, total=ready + gated)}
    return Status(job=JOB, workload="job-sweep", spec_version=version, phase=JobPhase.RUNNING, pods=pods)


def pending(wanted: int) -> Pending:
    return Pending(
        job=JOB,
        workload="job-sweep-2",
        worker_uid="carrier",
        worker_generation=2,
        wanted={"main": wanted},
        reason="Pending",
        message="3 more needed",
        since="2026-01-31T12:00:00Z",
    )


def only(entries: list[Entry]) -> Trace:
    (trace,) = traces(entries)
    return trace


def test_a_resize_goes_from_the_request_to_the_status_that_shows_it() -> None:
    recording = Recording()
    chain = recording.add(0, request(1, 5))
    recording.add(5, status(1, gated=4, version=1))
    recording.add(18, spec(5, version=2), chain=chain)
    relabel = Relabel(job=JOB, spec_version=2, from_workload="a", to_workload="b", granted={"main": 5})
    recording.add(22, relabel, chain=chain)
    recording.add(41, Applied(job=JOB, workload="b", spec_version=2), chain=chain)
    recording.add(50, status(3, version=2))
    recording.add(70, status(5, version=2))
    recording.add(90, status(5, version=2))
    trace = only(recording.entries)
    assert (trace.job, trace.cluster, trace.title) == (JOB.key, "east", "resize main 1 -> 5")
    assert trace.outcome is TraceOutcome.DONE
    assert [(hop.type, milliseconds(hop.since_start)) for hop in trace.hops] == [
        ("scale-request", "0 ms"),
        ("workload-spec", "18 ms"),
        ("relabel", "22 ms"),
        ("applied", "41 ms"),
        ("status", "70 ms"),
    ]
    assert (trace.began, trace.took, trace.waited_for) == (BEGAN, timedelta(milliseconds=70), "")


def test_a_shrink_is_done_when_the_other_pods_are_gone() -> None:
    recording = Recording()
    chain = recording.add(0, request(5, 3))
    recording.add(10, spec(3, version=3), chain=chain)
    recording.add(15, status(5, version=3))
    assert only(recording.entries).outcome is TraceOutcome.UNDER_WAY
    recording.add(30, status(3, version=3))
    assert only(recording.entries).outcome is TraceOutcome.DONE


def test_a_waiting_request_says_why() -> None:
    recording = Recording()
    chain = recording.add(0, request(1, 5))
    recording.add(9, pending(5), chain=chain)
    trace = only(recording.entries)
    assert (trace.outcome, trace.waited_for) == (TraceOutcome.WAITS, "3 more needed")
    recording.add(5000, spec(5, version=2), chain=chain)
    recording.add(5100, status(5, version=2))
    trace = only(recording.entries)
    assert (trace.outcome, trace.waited_for) == (TraceOutcome.DONE, "3 more needed")


def test_a_request_that_was_published_twice_has_one_trace() -> None:
    recording = Recording()
    recording.add(0, request(1, 5))
    recording.add(3, request(1, 5))
    assert [hop.type for hop in only(recording.entries).hops] == ["scale-request", "scale-request"]
    recording.add(9, request(1, 5, generation=3))
    assert len(traces(recording.entries)) == 2


def test_an_order_that_was_published_twice_has_one_trace() -> None:
    """As after a hello of its agent; what answers the second answers both."""
    recording = Recording()
    recording.add(0, spec(1, version=1))
    again = recording.add(3, spec(1, version=1))
    recording.add(9, Applied(job=JOB, workload="job-sweep-1", spec_version=1), chain=again)
    assert [hop.type for hop in only(recording.entries).hops] == ["workload-spec", "workload-spec", "applied"]
    other = recording.add(20, spec(2, version=2))
    recording.add(29, Applied(job=JOB, workload="job-sweep-1", spec_version=2), chain=other)
    assert [trace.title for trace in traces(recording.entries)] == ["start with main=1", "set to main=2"]


def test_an_order_repeated_for_another_request_belongs_to_that_request() -> None:
    recording = Recording()
    recording.add(0, spec(1, version=1))
    chain = recording.add(5, request(1, 5))
    recording.add(9, spec(1, version=1), chain=chain)
    assert [len(trace.hops) for trace in traces(recording.entries)] == [1, 2]


@pytest.mark.parametrize(
    ("messages", "title", "outcome"),
    [
        pytest.param([spec(1, version=1)], "start with main=1", TraceOutcome.UNDER_WAY, id="start"),
        pytest.param([spec(4, version=7)], "set to main=4", TraceOutcome.UNDER_WAY, id="order"),
        pytest.param([Delete(job=JOB, spec_version=4)], "delete", TraceOutcome.UNDER_WAY, id="delete"),
        pytest.param(
            [Delete(job=JOB, spec_version=4), Applied(job=JOB, workload="", spec_version=4, deleted=True)],
            "delete",
            TraceOutcome.DONE,
            id="deleted",
        ),
        pytest.param(
            [spec(1, version=1), Refused(job=JOB, workload="w", spec_version=1, reason="JobExists", message="there")],
            "start with main=1",
            TraceOutcome.REFUSED,
            id="refused",
        ),
    ],
)
def test_each_kind_of_trace_has_a_title_and_an_outcome(
    messages: list[Message], title: str, outcome: TraceOutcome
) -> None:
    recording = Recording()
    chain = recording.add(0, messages[0])
    for number, message in enumerate(messages[1:], start=1):
        recording.add(number, message, chain=chain)
    trace = only(recording.entries)
    assert (trace.title, trace.outcome) == (title, outcome)


def test_what_is_about_no_job_or_unreadable_belongs_to_no_trace() -> None:
    recording = Recording()
    recording.add(0, Heartbeat())
    recording.entries.append(Entry.from_record(garbage()))
    assert traces(recording.entries) == []
    assert sizes(recording.entries) == {}


def test_any_report_of_the_deletion_ends_a_delete() -> None:
    recording = Recording()
    recording.add(0, Delete(job=JOB, spec_version=4))
    recording.add(900, Applied(job=JOB, workload="", spec_version=4, deleted=True))
    trace = only(recording.entries)
    assert ([hop.type for hop in trace.hops], trace.outcome) == (["delete", "applied"], TraceOutcome.DONE)


def test_a_trace_that_had_not_ended_is_overtaken_by_the_next() -> None:
    recording = Recording()
    chain = recording.add(0, request(1, 5))
    recording.add(9, pending(5), chain=chain)
    recording.add(20, request(1, 3, generation=3))
    first, second = traces(recording.entries)
    assert (first.outcome, first.note) == (TraceOutcome.OVERTAKEN, "waited: 3 more needed")
    assert second.outcome is TraceOutcome.UNDER_WAY


def test_a_redelivered_message_is_one_hop() -> None:
    recording = Recording()
    recording.add(0, request(1, 5))
    again = msgspec.structs.replace(recording.entries[0], offset=1)
    assert len(only([*recording.entries, again]).hops) == 1


def test_one_chain_of_two_jobs_has_two_traces() -> None:
    recording = Recording()
    chain = recording.add(0, spec(1, version=1))
    other = msgspec.structs.replace(JOB, name="other")
    recording.add(1, msgspec.structs.replace(spec(1, version=1), job=other), chain=chain)
    assert [trace.job for trace in traces(recording.entries)] == [JOB.key, other.key]


def test_a_dead_letter_is_shown_until_its_trace_has_ended() -> None:
    recording = Recording()
    chain = recording.add(0, request(1, 5))
    id = recording.entries[0].record.message.message_id or ""
    [trace] = traces(recording.entries, dead={id: "it is dead"})
    assert (trace.outcome, trace.note) == (TraceOutcome.DEAD, "it is dead")
    [trace] = traces(recording.entries, dead={"another": "it is dead"})
    assert trace.outcome is TraceOutcome.UNDER_WAY
    recording.add(9, spec(5, version=2), chain=chain)
    recording.add(20, status(5, version=2))
    [trace] = traces(recording.entries, dead={id: "it is dead"})
    assert trace.outcome is TraceOutcome.DONE


def test_an_unreadable_message_about_a_job_is_a_hop() -> None:
    recording = Recording()
    recording.add(0, request(1, 5))
    wire = recording.entries[0].record.message
    spoiled = msgspec.structs.replace(recording.entries[0].record, message=msgspec.structs.replace(wire, body=b"{"))
    trace = only([Entry.from_record(spoiled)])
    [hop] = trace.hops
    assert (trace.title, hop.direction, hop.text[:9]) == ("scale-request", None, "malformed")


def test_a_trace_shows_that_clocks_differ() -> None:
    recording = Recording()
    chain = recording.add(5000, request(1, 5))
    recording.add(100, spec(5, version=2), chain=chain)
    recording.add(5200, Applied(job=JOB, workload="w", spec_version=2), chain=chain)
    trace = only(recording.entries)
    assert [hop.type for hop in trace.hops] == ["scale-request", "workload-spec", "applied"]
    assert trace.clocks_apart == timedelta(milliseconds=4900)
    assert trace.took == timedelta(milliseconds=200)
    html = page(title="t", note="n", traces=[trace], sizes={})
    assert "differ by at least 4.90 s" in html
    assert "width:-" not in html


def test_sizes_show_wanted_granted_and_ready_pods_over_time() -> None:
    recording = Recording()
    recording.add(0, spec(1, version=1))
    recording.add(1, status(1, version=1))
    recording.add(2, request(1, 5))
    recording.add(3, spec(5, version=2))
    moments = [BEGAN + timedelta(milliseconds=number) for number in range(4)]
    assert sizes(recording.entries) == {
        JOB.key: [
            Size(moments[0], wanted=1, granted=1, ready=0),
            Size(moments[1], ready=1),
            Size(moments[2], wanted=5),
            Size(moments[3], granted=5),
        ]
    }


def test_the_page_shows_every_trace_and_escapes_it() -> None:
    recording = Recording()
    chain = recording.add(0, request(1, 5))
    recording.add(9, structural_refusal(), chain=chain)
    html = page(title="a & b", note="from <here>", traces=traces(recording.entries), sizes=sizes(recording.entries))
    assert "<h1>a &amp; b</h1>" in html
    assert "from &lt;here&gt;" in html
    assert "resize main 1 -&gt; 5" in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "<script>" not in html


def structural_refusal() -> Refused:
    return Refused(job=JOB, workload="w", spec_version=1, reason="Invalid", message="<script>alert(1)</script>")


def test_the_page_of_an_empty_recording_says_so() -> None:
    assert "Nothing was recorded." in page(title="t", note="n", traces=[], sizes={})


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (timedelta(milliseconds=8), "8 ms"),
        (timedelta(seconds=1.25), "1.25 s"),
        (timedelta(minutes=3, seconds=20), "3 min 20 s"),
    ],
)
def test_a_span_is_shown_in_a_fitting_unit(span: timedelta, text: str) -> None:
    assert milliseconds(span) == text
