"""A record of the stream, decoded as far as it can be."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Self

import msgspec

from slicebus.bus.contract import Record
from slicebus.proto.codec import Received, decode
from slicebus.proto.errors import ProtocolError
from slicebus.proto.messages import Direction

_PREFIX = "cloudEvents_"


class Entry(msgspec.Struct, frozen=True):
    """One recorded message. A message that nobody could read is an entry too: `problem` says why."""

    offset: int
    recorded: datetime | None
    record: Record
    received: Received | None
    problem: str = ""

    @classmethod
    def from_record(cls, record: Record) -> Self:
        """Never raises."""
        try:
            return cls(record.offset, record.timestamp, record, decode(record.message))
        except ProtocolError as error:
            return cls(record.offset, record.timestamp, record, None, f"{error.reason}: {error.detail}")

    @property
    def cluster(self) -> str:
        """The cluster, from the routing key where nothing else can be read."""
        return self.record.message.routing_key.partition(".")[0]

    @property
    def type(self) -> str:
        """The message type, from the routing key where nothing else can be read."""
        return self.record.message.routing_key.partition(".")[2]

    @property
    def subject(self) -> str:
        """`Kind/namespace/name` of the job; empty for a message about the cluster."""
        return self.record.message.headers.get(f"{_PREFIX}subject", "")

    @property
    def correlation_id(self) -> str:
        """The chain of messages that it belongs to."""
        return self.record.message.correlation_id or ""

    @property
    def published(self) -> datetime | None:
        """When its publisher says it was published; without a zone that is UTC."""
        try:
            said = datetime.fromisoformat(self.record.message.headers.get(f"{_PREFIX}time", ""))
        except ValueError:
            return self.recorded
        return said if said.tzinfo else said.replace(tzinfo=UTC)

    @property
    def direction(self) -> Direction | None:
        """Which way it went; None for a message that cannot be read."""
        return self.received.message.direction if self.received else None


Filter = Callable[[Entry], bool]


def matching(
    *,
    cluster: str | None = None,
    job: str | None = None,
    type: str | None = None,
    correlation: str | None = None,
    until: datetime | None = None,
) -> Filter:
    """Whether an entry is asked for. `job` is `Kind/namespace/name`, `namespace/name` or `name`."""

    def matches(entry: Entry) -> bool:
        return (
            cluster in (None, entry.cluster)
            and (job is None or entry.subject == job or entry.subject.endswith(f"/{job}"))
            and type in (None, entry.type)
            and correlation in (None, entry.correlation_id)
            and (until is None or entry.recorded is None or entry.recorded <= until)
        )

    return matches
