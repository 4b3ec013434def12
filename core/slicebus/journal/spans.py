"""Turns traces into spans, as OpenTelemetry has them: one trace a change, a span for the whole, and one for each hop.

A hop's span begins with the hop before it and ends with the hop: it says how long it took to come that far. So a span
never changes once its change is over, and its ids are derived from what was recorded: spans that are sent again are the
same spans. The trace's id is the correlation id without its dashes.

No text of a span has a secret that redaction finds.
"""

import hashlib
from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import msgspec

from slicebus.journal.printable import printable
from slicebus.journal.redaction import Redactor
from slicebus.journal.traces import STEP, Hop, Trace, TraceOutcome
from slicebus.proto.messages import ClusterName, Direction, Refused
from slicebus.proto.topology import DOWN, UP

_MANAGER = "manager"
_DEAD = "dead letter"
_ONE_NAME = {"set": "resize", "wants": "request", "waits": "request"}
"""A span's name has few values. These first words of titles mean the same change as another word, or are no name."""
_KEY_PARTS = 3
"""Of `Kind/namespace/name`. The sender of a message writes its subject, and may write any other."""
_FAILED = (TraceOutcome.REFUSED, TraceOutcome.DEAD)
_NOT_OVER = (TraceOutcome.WAITS, TraceOutcome.UNDER_WAY)


class Service(NamedTuple):
    """Who did what a span shows."""

    role: str
    """`manager` or `agent`."""
    cluster: ClusterName
    """The agent's; empty for the manager."""


class TraceSpan(msgspec.Struct, frozen=True, kw_only=True):
    """One span."""

    trace_id: bytes
    """16 bytes."""
    span_id: bytes
    """8 bytes."""
    parent_id: bytes = b""
    """Empty for the span of the whole change."""
    service: Service
    name: str
    """One of few."""
    publishes: bool = False
    """Whether it ends with a publish."""
    began: datetime
    ended: datetime
    attributes: dict[str, str | float]
    """By OpenTelemetry's conventions, and ours with the prefix `slicebus.`."""
    error: str = ""
    """Why it failed; empty where it did not."""


def is_over(trace: Trace) -> bool:
    """Whether nothing more is expected of a change: only then it has spans."""
    return trace.outcome not in _NOT_OVER


def spans(trace: Trace, redactor: Redactor) -> Iterator[TraceSpan]:
    """The spans of a change that is over, that of the whole first."""
    trace_id = _trace_id(trace)
    root = _whole(trace, trace_id, redactor)
    yield root
    before = trace.began
    for hop in trace.hops:
        yield _of_hop(hop, min(before, hop.at), root, redactor)
        before = max(before, hop.at)


def _whole(trace: Trace, trace_id: bytes, redactor: Redactor) -> TraceSpan:
    parts = trace.job.split("/", 2)
    kind, namespace, name = parts if len(parts) == _KEY_PARTS else ("", "", "")
    attributes: dict[str, str | float] = {
        "k8s.namespace.name": namespace,
        "slicebus.job": trace.job,
        "slicebus.change": trace.title,
        "slicebus.outcome": trace.outcome.value,
        "slicebus.waited_s": trace.waited.total_seconds(),
    }
    optional = {
        "k8s.cluster.name": trace.cluster,
        "k8s.job.name": name if kind == "Job" else "",
        "messaging.message.conversation_id": trace.correlation_id,
        "slicebus.note": trace.note,
    }
    first = trace.title.partition(" ")[0]
    return TraceSpan(
        trace_id=trace_id,
        span_id=_span_id(trace_id, trace.job),
        service=_service(trace.hops[0]),
        name=_ONE_NAME.get(first, first),
        began=trace.began,
        ended=trace.began + trace.took,
        attributes=_clean(attributes | {key: text for key, text in optional.items() if text}, redactor),
        error=_shown(trace.note or trace.outcome, redactor) if trace.outcome in _FAILED else "",
    )


def _of_hop(hop: Hop, began: datetime, whole: TraceSpan, redactor: Redactor) -> TraceSpan:
    is_step = hop.type == STEP
    failed = hop.name == _DEAD if is_step else hop.type == Refused.type
    said: dict[str, str | float] = {"slicebus.text": hop.text}
    return TraceSpan(
        trace_id=whole.trace_id,
        span_id=_span_id(whole.trace_id, hop.message_id or f"{hop.by} {hop.at.isoformat()} {hop.text}"),
        parent_id=whole.span_id,
        service=_service(hop),
        name=hop.name if is_step else hop.type,
        publishes=not is_step,
        began=began,
        ended=hop.at,
        attributes=_clean(said if is_step else said | _messaging(hop), redactor),
        error=_shown(hop.text, redactor) if failed else "",
    )


def _messaging(hop: Hop) -> dict[str, str | float]:
    """The attributes of a message, by the conventions for RabbitMQ."""
    exchange = DOWN if hop.direction is Direction.DOWN else UP
    return {
        "messaging.system": "rabbitmq",
        "messaging.operation.name": "publish",
        "messaging.operation.type": "send",
        "messaging.destination.name": f"{exchange}:{hop.routing_key}",
        "messaging.rabbitmq.destination.routing_key": hop.routing_key,
        "messaging.message.id": hop.message_id,
    }


def _service(hop: Hop) -> Service:
    is_manager = hop.by == _MANAGER if hop.type == STEP else hop.direction is Direction.DOWN
    return Service(_MANAGER, ClusterName("")) if is_manager else Service("agent", ClusterName(hop.by))


def _trace_id(trace: Trace) -> bytes:
    """The correlation id; derived from the change where it has none, or one that is no UUID."""
    try:
        found = UUID(trace.correlation_id)
    except ValueError:
        return _hash(trace.correlation_id or f"{trace.job} {trace.began.isoformat()}", 16)
    return found.bytes if found.int else _hash(trace.job, 16)


def _span_id(trace_id: bytes, of: str) -> bytes:
    return _hash(of, 8, key=trace_id)


def _hash(text: str, size: int, *, key: bytes = b"") -> bytes:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=size, key=key).digest()


def _clean(attributes: dict[str, str | float], redactor: Redactor) -> dict[str, str | float]:
    return {name: _shown(value, redactor) if isinstance(value, str) else value for name, value in attributes.items()}


def _shown(text: str, redactor: Redactor) -> str:
    """The text without secrets, and without characters that UTF-8 or a terminal cannot take."""
    return printable(str(redactor.value(text)))
