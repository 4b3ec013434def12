"""`slicebus trace --otlp`: what a receiver of OpenTelemetry's protocol gets of a recording, and what is one line."""

import gzip
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from typer.testing import CliRunner, Result

from slicebus.cli.journal.source import records_of_file
from slicebus.cli.main import app
from slicebus.cli.trace.otlp import address_of, headers_of
from slicebus.cli.trace.protobuf import request
from slicebus.journal.entry import Entry
from slicebus.journal.redaction import Redactor
from slicebus.journal.spans import is_over, spans
from slicebus.journal.traces import traces
from slicebus.proto.errors import (
    ConfigurationError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    SlicebusError,
    UnavailableError,
)
from slicebus.proto.headers import PREFIX
from support.otlp import OtlpStandIn, attributes, otlp_stand_in

LIFE = str(Path(__file__).parents[2] / "replays" / "life-of-a-job.jsonl.gz")


@pytest.fixture
def receiver() -> Iterator[OtlpStandIn]:
    with otlp_stand_in() as kept:
        yield kept


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["trace", *arguments])


def test_a_receiver_gets_one_trace_for_each_change(receiver: OtlpStandIn) -> None:
    done = call("job-a", "--from", LIFE, "--otlp", receiver.url)
    assert (done.exit_code, done.output) == (0, f"{receiver.url}/v1/traces: sent 4 changes\n")
    [(path, headers, _)] = receiver.requests
    assert (path, headers["Content-Type"]) == ("/v1/traces", "application/x-protobuf")
    found = receiver.spans()
    assert len({span.trace_id for _, span in found}) == 4
    wholes = [(of, span) for of, span in found if not span.parent_span_id]
    assert sorted(span.name for _, span in wholes) == ["delete", "resize", "resize", "start"]
    assert {of["service.name"] for of, _ in found} == {"slicebus-manager", "slicebus-agent"}
    [east] = [dict(pairs) for pairs in {(*of.items(),) for of, _ in found if of["service.name"] == "slicebus-agent"}]
    assert (east["k8s.cluster.name"], east["service.namespace"]) == ("east", "slicebus")
    [request] = [
        span for _, span in found if attributes(span.attributes).get("slicebus.text", "").startswith("main=1 ->")
    ]
    assert (request.name, request.kind) == ("scale-request", Span.SPAN_KIND_PRODUCER)
    assert attributes(request.attributes)["messaging.destination.name"] == "slicebus.up:east.scale-request"
    for _, span in found:
        assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano
        assert span.status.code == Status.STATUS_CODE_UNSET


def test_what_is_sent_twice_is_the_same(receiver: OtlpStandIn) -> None:
    for _ in range(2):
        assert call("job-a", "--from", LIFE, "--otlp", receiver.url).exit_code == 0
    [(_, _, first), (_, _, second)] = receiver.requests
    assert first == second


def test_what_is_not_over_is_not_sent(receiver: OtlpStandIn, tmp_path: Path) -> None:
    file = tmp_path / "part.jsonl"
    lines = gzip.decompress(Path(LIFE).read_bytes()).splitlines(keepends=True)
    upto = next(number for number, line in enumerate(lines) if b'"east.pending.' in line)
    file.write_bytes(b"".join(lines[: upto + 1]))
    done = call("job-a", "--from", str(file), "--otlp", receiver.url)
    assert done.exit_code == 0
    assert done.output == f"{receiver.url}/v1/traces: sent 2 changes; 1 change not over yet\n"
    assert {span.name for _, span in receiver.spans() if not span.parent_span_id} == {"start", "resize"}


@pytest.mark.parametrize(
    ("header", "text"),
    [
        ("subject", "job-a"),
        ("subject", "team/job-a"),
        ("time", "0001-01-01T00:00:00Z"),
        ("time", "9999-12-31T23:59:59Z"),
    ],
)
def test_whatever_a_sender_writes_can_be_sent(header: str, text: str) -> None:
    found = list[Entry]()
    for record in records_of_file(LIFE):
        entry = Entry.from_record(record)
        if entry.subject and not entry.is_decisions:
            headers = {**record.message.headers, f"{PREFIX}{header}": text}
            message = msgspec.structs.replace(record.message, headers=headers)
            found.append(Entry.from_record(msgspec.structs.replace(record, message=message)))
    over = [change for change in traces(found, [], dead={}) if is_over(change)]
    assert over
    assert request([span for change in over for span in spans(change, Redactor())])


def test_a_login_goes_into_a_header(receiver: OtlpStandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20hunter2, x-scope = team")
    done = call("job-a", "--from", LIFE, "--otlp", f"{receiver.url}/otlp/")
    [(path, headers, _)] = receiver.requests
    assert path == "/otlp/v1/traces"
    assert (headers["authorization"], headers["x-scope"]) == ("Bearer hunter2", "team")
    assert "hunter2" not in done.output


def test_spans_that_the_receiver_leaves_out_are_told(receiver: OtlpStandIn) -> None:
    partly = ExportTracePartialSuccess(rejected_spans=3, error_message="too old\x1b[2J")
    receiver.answer = ExportTraceServiceResponse(partial_success=partly).SerializeToString()
    told = call("job-a", "--from", LIFE, "--otlp", receiver.url).output.splitlines()
    assert told[0] == f"{receiver.url}/v1/traces did not take 3 spans: too old\N{REPLACEMENT CHARACTER}[2J"
    receiver.answer = b"{}"
    assert call("job-a", "--from", LIFE, "--otlp", receiver.url).exit_code == 0


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, InvalidError),
        (401, ForbiddenError),
        (404, NotFoundError),
        (302, InvalidError),
        (429, UnavailableError),
        (503, UnavailableError),
    ],
)
def test_an_endpoint_that_refuses_is_one_line(receiver: OtlpStandIn, status: int, error: type[SlicebusError]) -> None:
    receiver.status, receiver.answer = status, b"go\n away\x1b"
    done = call("job-a", "--from", LIFE, "--otlp", receiver.url)
    assert type(done.exception) is error
    assert str(done.exception).startswith(f"{receiver.url}/v1/traces answers {status} ")
    assert str(done.exception).endswith(": go away\x1b"), "what shows it takes the rest out"


def test_an_endpoint_where_nobody_answers_is_one_line() -> None:
    with otlp_stand_in() as gone:
        pass
    done = call("job-a", "--from", LIFE, "--otlp", gone.url)
    assert isinstance(done.exception, UnavailableError)
    assert str(done.exception) == f"{gone.url}/v1/traces cannot be reached: Connection refused"


def test_without_the_extra_it_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "slicebus.cli.trace.protobuf", raising=False)
    monkeypatch.setitem(sys.modules, "google.protobuf.message", None)
    done = call("job-a", "--from", LIFE, "--otlp", "http://127.0.0.1:1")
    assert isinstance(done.exception, ConfigurationError)
    assert str(done.exception).startswith("--otlp needs the extra otlp, pip install 'slicebus[otlp]': ")


@pytest.mark.parametrize(
    ("endpoint", "address"),
    [
        ("http://tempo:4318", "http://tempo:4318/v1/traces"),
        ("https://otlp.example/a/", "https://otlp.example/a/v1/traces"),
        ("http://[::1]:4318/v1/traces", "http://[::1]:4318/v1/traces"),
    ],
)
def test_traces_go_below_the_endpoint(endpoint: str, address: str) -> None:
    assert address_of(endpoint) == address


@pytest.mark.parametrize(
    "endpoint", ["tempo:4317", "grpc://tempo:4317", "http://", "http://[::1", "http://u:hunter2@t"]
)
def test_an_endpoint_that_is_none_is_named_without_a_password(endpoint: str) -> None:
    with pytest.raises(ConfigurationError, match="--otlp") as raised:
        address_of(endpoint)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("text", ["hunter2", "=hunter2", "a=hunter2%0Ab:c"])
def test_headers_of_another_form_are_an_error_that_does_not_show_them(text: str) -> None:
    with pytest.raises(ConfigurationError, match="OTEL_EXPORTER_OTLP_HEADERS") as raised:
        headers_of(text)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--follow"],
        ["--follow", "--otlp", "http://t", "--from", LIFE],
        ["--follow", "--otlp", "http://t", "--until", "1m"],
        [],
    ],
)
def test_options_that_do_not_go_together_are_named(arguments: list[str]) -> None:
    done = call(*arguments)
    assert isinstance(done.exception, ConfigurationError)
    assert "--follow" in str(done.exception)
