"""Reads a record of the stream, when somebody asks and as far as it can be read."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Self

import msgspec
from propcache.api import cached_property

from slicebus.bus.contract import Record
from slicebus.journal.redaction import Redactor
from slicebus.proto.codec import Decoded, decode
from slicebus.proto.errors import ProtocolError
from slicebus.proto.headers import PREFIX, SUBJECT
from slicebus.proto.messages import Direction, Order, Report
from slicebus.proto.topology import DECISIONS_TYPE, words


class Entry(msgspec.Struct, frozen=True, dict=True):
    """One record: a message, or a batch of recorded decisions, which `recording.decode_batch` reads.

    An unreadable message is an entry too, and `problem` says why.
    """

    offset: int
    recorded: datetime | None
    record: Record
    unreadable: str = ""
    """Why its message cannot be read, where that was found out before its secrets were taken out."""

    @classmethod
    def from_record(cls, record: Record) -> Self:
        """The entry of a record. Never raises."""
        return cls(record.offset, record.timestamp, record)

    def shown(self, redactor: Redactor) -> Self:
        """The entry as people see it: without secrets, also where whoever recorded it has left them in."""
        message = self.record.message
        clean = msgspec.structs.replace(
            message, headers=redactor.headers(message.headers), body=redactor.encoded(message.body)
        )
        record = msgspec.structs.replace(self.record, message=clean)
        return msgspec.structs.replace(self, record=record, unreadable=redactor.value(self.problem))

    @property
    def received(self) -> Decoded[Order | Report] | None:
        """The message; None where it cannot be read, and for recorded decisions."""
        return self._read[0]

    @property
    def problem(self) -> str:
        """Why the message cannot be read; empty where it can, and for recorded decisions."""
        return self._read[1]

    @cached_property
    def _read(self) -> tuple[Decoded[Order | Report] | None, str]:
        if self.is_decisions or self.unreadable:
            return None, self.unreadable
        try:
            return decode(self.record.message), ""
        except ProtocolError as error:
            return None, f"{error.reason}: {error.detail}"

    @property
    def is_decisions(self) -> bool:
        """Whether it is a batch of recorded decisions."""
        return self.record.message.type == DECISIONS_TYPE

    @property
    def cluster(self) -> str:
        """The cluster that the routing key names."""
        return words(self.record.message.routing_key)[0]

    @property
    def type(self) -> str:
        """The message type that the routing key names."""
        return words(self.record.message.routing_key)[1]

    @property
    def subject(self) -> str:
        """`Kind/namespace/name` of the job; empty for a message about the cluster."""
        return self.record.message.headers.get(SUBJECT, "")

    @property
    def correlation_id(self) -> str:
        """The chain of messages that it belongs to."""
        return self.record.message.correlation_id or ""

    @property
    def published(self) -> datetime | None:
        """The publisher's time, also where it names no zone in UTC; the recorded one where it is none."""
        try:
            published = datetime.fromisoformat(self.record.message.headers.get(f"{PREFIX}time", ""))
            return published.astimezone(UTC) if published.tzinfo else published.replace(tzinfo=UTC)
        except (ValueError, OverflowError):
            return self.recorded

    @property
    def direction(self) -> Direction | None:
        """Its direction; None for an entry that cannot be read."""
        return self.received.message.direction if self.received else None


Filter = Callable[[Entry], bool]


def matching(
    *,
    cluster: str | None = None,
    job: str | None = None,
    type: str | None = None,
    correlation: str | None = None,
    until: datetime | None = None,
    decisions: bool = False,
) -> Filter:
    """Build a filter of entries. `job` is `Kind/namespace/name`, `namespace/name` or `name`.

    A batch of decisions is about many jobs, so only `decisions` and `until` select it.
    """

    def matches(entry: Entry) -> bool:
        if until is not None and entry.published is not None and entry.published > until:
            return False
        if entry.is_decisions:
            return decisions
        return (
            cluster in (None, entry.cluster)
            and (job is None or entry.subject == job or entry.subject.endswith(f"/{job}"))
            and type in (None, entry.type)
            and correlation in (None, entry.correlation_id)
        )

    return matches
