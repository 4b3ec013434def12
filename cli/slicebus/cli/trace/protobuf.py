"""Spans as the protobuf of OTLP. Needs the extra `otlp`: only `otlp` imports this, when it is asked for."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from importlib.metadata import version

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1 import trace_pb2

from slicebus.journal.spans import Service, TraceSpan

_EPOCH = datetime.fromtimestamp(0, UTC)
_LAST_NS = 2**64 - 1
_SAMPLED = 1
_SCOPE = "slicebus.journal"


def request(spans: Iterable[TraceSpan]) -> bytes:
    """The body of one export: the spans by the service that they are of."""
    by_service: dict[Service, list[TraceSpan]] = {}
    for span in spans:
        by_service.setdefault(span.service, []).append(span)
    scope = InstrumentationScope(name=_SCOPE, version=version("slicebus"))
    resources = [
        trace_pb2.ResourceSpans(
            resource=Resource(attributes=_attributes(_of_service(service))),
            scope_spans=[trace_pb2.ScopeSpans(scope=scope, spans=map(_span, of_it))],
        )
        for service, of_it in by_service.items()
    ]
    encoded: bytes = ExportTraceServiceRequest(resource_spans=resources).SerializeToString()
    return encoded


def refused(response: bytes) -> tuple[int, str]:
    """How many spans the receiver did not take of an export that succeeded, and what it says; nothing where it answers
    with something of its own."""
    try:
        partial = ExportTraceServiceResponse.FromString(response).partial_success
    except DecodeError:
        return 0, ""
    return partial.rejected_spans, partial.error_message


def _of_service(service: Service) -> dict[str, str | float]:
    found: dict[str, str | float] = {"service.name": f"slicebus-{service.role}", "service.namespace": "slicebus"}
    return found | ({"k8s.cluster.name": service.cluster} if service.cluster else {})


def _span(span: TraceSpan) -> trace_pb2.Span:
    kind = trace_pb2.Span.SPAN_KIND_PRODUCER if span.publishes else trace_pb2.Span.SPAN_KIND_INTERNAL
    return trace_pb2.Span(
        trace_id=span.trace_id,
        span_id=span.span_id,
        parent_span_id=span.parent_id,
        flags=_SAMPLED,
        name=span.name,
        kind=kind,
        start_time_unix_nano=_nanoseconds(span.began),
        end_time_unix_nano=_nanoseconds(span.ended),
        attributes=_attributes(span.attributes),
        status=trace_pb2.Status(code=trace_pb2.Status.STATUS_CODE_ERROR, message=span.error) if span.error else None,
    )


def _attributes(values: dict[str, str | float]) -> list[KeyValue]:
    return [
        KeyValue(
            key=name, value=AnyValue(string_value=value) if isinstance(value, str) else AnyValue(double_value=value)
        )
        for name, value in values.items()
    ]


def _nanoseconds(at: datetime) -> int:
    """A time as the protocol has it, between 1970 and 2554: the sender of a message chooses it."""
    return min(max((at - _EPOCH) // timedelta(microseconds=1) * 1000, 0), _LAST_NS)
