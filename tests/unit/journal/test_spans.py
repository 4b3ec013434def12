"""The spans of recorded changes: one trace each, its hops one after the other, the same however often they are made."""

from collections import Counter
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from slicebus.cli.journal.source import records_of_file
from slicebus.journal.entry import Entry
from slicebus.journal.redaction import MARK, Redactor
from slicebus.journal.spans import Service, TraceSpan, is_over, spans
from slicebus.journal.traces import Hop, Trace, TraceOutcome, traces

RECORDINGS = sorted((Path(__file__).parents[2] / "replays").glob("*.jsonl*"))
MANAGER, EAST = Service("manager", ""), Service("agent", "east")


def changes(recording: Path) -> list[Trace]:
    return traces([Entry.from_record(record) for record in records_of_file(str(recording))])


def spans_of(trace: Trace) -> list[TraceSpan]:
    return list(spans(trace, Redactor()))


def change(title: str, *, recording: str = "life-of-a-job") -> Trace:
    [path] = [path for path in RECORDINGS if path.name.startswith(recording)]
    return next(trace for trace in changes(path) if trace.title == title)


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.name)
def test_every_change_is_one_trace_of_spans_that_follow_each_other(recording: Path) -> None:
    over = [trace for trace in changes(recording) if is_over(trace)]
    assert over
    found = [spans_of(trace) for trace in over]
    assert found == [spans_of(trace) for trace in changes(recording) if is_over(trace)], "sent again, they are the same"
    for trace, (whole, *hops) in zip(over, found, strict=True):
        assert {span.trace_id for span in hops} == {whole.trace_id}
        assert {span.parent_id for span in hops} == {whole.span_id}
        assert len(hops) == len(trace.hops)
        assert all(span.began <= span.ended for span in (whole, *hops))
        assert [span.ended for span in hops] == [hop.at for hop in trace.hops]
        assert whole.ended - whole.began == trace.took
        assert (len(whole.trace_id), len(whole.span_id)) == (16, 8)
    ids = Counter(span.span_id for each in found for span in each)
    assert not {id for id, times in ids.items() if times > 1}


def test_a_resize_has_a_span_for_each_hop_in_the_words_of_the_field() -> None:
    trace = change("resize main 1 -> 3")
    whole, *hops = spans_of(trace)
    assert whole.name == "resize"
    assert whole.trace_id == UUID(trace.correlation_id).bytes, "it is found by the correlation id"
    names = [span.name for span in hops]
    expected = ["request", "scale-request", "slice created", "admission", "workload-spec", "applied", "status"]
    assert [name for name in dict.fromkeys(names) if name in expected] == expected
    by_name = {span.name: span for span in reversed(hops)}
    assert by_name["admission"].service == MANAGER
    assert by_name["applied"].service == by_name["scale-request"].service == EAST
    assert {span.name for span in hops if span.publishes} >= {"scale-request", "workload-spec", "applied", "status"}


def test_attributes_are_those_of_the_conventions() -> None:
    trace = change("resize main 1 -> 3")
    whole, *hops = spans_of(trace)
    assert whole.attributes == {
        "k8s.namespace.name": "team-a",
        "k8s.job.name": "job-a",
        "k8s.cluster.name": "east",
        "messaging.message.conversation_id": trace.correlation_id,
        "slicebus.job": "Job/team-a/job-a",
        "slicebus.change": "resize main 1 -> 3",
        "slicebus.outcome": "done",
        "slicebus.waited_s": 0.0,
    }
    request = next(span for span in hops if span.name == "scale-request")
    assert request.attributes == {
        "messaging.system": "rabbitmq",
        "messaging.operation.name": "publish",
        "messaging.operation.type": "send",
        "messaging.destination.name": "slicebus.up:east.scale-request",
        "messaging.rabbitmq.destination.routing_key": "east.scale-request",
        "messaging.message.id": trace.correlation_id,
        "slicebus.text": "main=1 -> main=3 (parallelism changed)",
    }
    order = next(span for span in hops if span.name == "workload-spec")
    assert str(order.attributes["messaging.destination.name"]).startswith("slicebus.down:east.workload-spec.")


def test_the_names_of_spans_are_few() -> None:
    """A job or a number in a name would make each span one of its own for whoever groups by name."""
    names = {span.name for path in RECORDINGS for trace in changes(path) if is_over(trace) for span in spans_of(trace)}
    assert {"start", "resize", "delete", "eviction", "slice waits", "pods ungated", "quota freed"} <= names
    assert not {name for name in names if not name.replace(" ", "").replace("-", "").isalpha()}


def test_a_wait_is_the_time_until_the_admission() -> None:
    trace = change("start again with main=4", recording="eviction")
    whole, *hops = spans_of(trace)
    admission = next(span for span in hops if span.name == "admission")
    assert whole.attributes["slicebus.waited_s"] == trace.waited.total_seconds() > 30
    assert (whole.began + trace.waited, admission.ended) == (trace.admitted, trace.admitted)


def saying(trace: Trace, text: str, **how: object) -> Trace:
    """The change with another text of its last hop."""
    *hops, last = trace.hops
    return msgspec.structs.replace(trace, hops=(*hops, msgspec.structs.replace(last, text=text)), **how)


@pytest.mark.parametrize("outcome", [TraceOutcome.WAITS, TraceOutcome.UNDER_WAY])
def test_a_change_that_goes_on_has_no_spans_yet(outcome: TraceOutcome) -> None:
    assert not is_over(msgspec.structs.replace(change("delete"), outcome=outcome))


def test_what_failed_says_why() -> None:
    hop = change("resize main 1 -> 3").hops[-1]
    refusal = msgspec.structs.replace(hop, type="refused", text="no such class")
    trace = msgspec.structs.replace(change("resize main 1 -> 3"), hops=(refusal,), outcome=TraceOutcome.REFUSED)
    assert [span.error for span in spans_of(trace)] == ["no such class", "no such class"]
    dead = msgspec.structs.replace(trace, outcome=TraceOutcome.DEAD, dead="undecodable: no JSON")
    assert spans_of(dead)[0].error == "undecodable: no JSON"


def test_a_secret_in_a_text_stays_here() -> None:
    secret = "the webhook says password=hunter2 for https://u:hunter3@host/"
    trace = saying(change("resize main 1 -> 3"), secret, outcome=TraceOutcome.DEAD, dead=secret)
    found = spans_of(trace)
    assert "hunter" not in str(found)
    assert MARK in found[0].error


def test_a_text_that_utf_8_has_not_and_one_that_moves_the_cursor_are_shown_with_marks() -> None:
    found = spans_of(saying(change("resize main 1 -> 3"), "half \ud800 and \x1b[2J"))
    text = found[-1].attributes["slicebus.text"]
    assert isinstance(text, str)
    assert text.encode()
    assert text.isprintable()


def test_a_change_without_a_message_has_an_id_too() -> None:
    """A slice that is evicted before any order was sent."""
    trace = change("eviction", recording="eviction")
    nameless = msgspec.structs.replace(trace, correlation_id="")
    [one, other] = (spans_of(nameless)[0].trace_id for _ in range(2))
    assert one == other != spans_of(trace)[0].trace_id
    forged = msgspec.structs.replace(trace, correlation_id=str(UUID(int=0)))
    assert any(spans_of(forged)[0].trace_id)


def test_a_hop_before_the_one_that_caused_it_has_no_negative_length() -> None:
    """The clocks of two machines differ."""
    first, *rest = change("resize main 1 -> 3").hops
    early = [msgspec.structs.replace(hop, at=hop.at - timedelta(seconds=9)) for hop in rest[:1]]
    trace = msgspec.structs.replace(change("resize main 1 -> 3"), hops=(first, *early, *rest[1:]))
    assert all(span.began <= span.ended for span in spans_of(trace))


def test_a_hop_of_a_recorded_step_has_its_name() -> None:
    steps: list[Hop] = [hop for path in RECORDINGS for trace in changes(path) for hop in trace.hops if hop.offset < 0]
    assert steps
    assert all(hop.name for hop in steps)
