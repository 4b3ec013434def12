"""Records of a journal, as the bus gives them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from slicebus.bus.contract import Record
from slicebus.journal.entry import Entry
from slicebus.proto.codec import encode
from slicebus.proto.envelope import WireMessage
from slicebus.proto.issuer import Issuer
from slicebus.proto.messages import ClusterName, ClusterUid, JobRef, Message

EAST, EAST_UID = ClusterName("east"), ClusterUid("uid-1")
JOB = JobRef("batch/v1", "Job", "team", "train", "uid-1")
BEGAN = datetime(2026, 1, 31, 12, tzinfo=UTC)


def record(
    message: Message,
    *,
    offset: int = 0,
    at_s: float = 0.0,
    chain: str | None = None,
    cluster: ClusterName = EAST,
    epoch: int = 1,
    **changes: Any,
) -> Record:
    """A message as it was recorded."""
    at = BEGAN + timedelta(seconds=at_s)
    issuer = Issuer(epoch=epoch, user="east", now=lambda: at, random=lambda count: offset.to_bytes(count))
    wire = encode(issuer.envelope(message, cluster, EAST_UID, correlation=chain), message)
    return Record(offset=offset, message=msgspec.structs.replace(wire, **changes), timestamp=at)


def entry(message: Message, **how: Any) -> Entry:
    """The same, read."""
    return Entry.from_record(record(message, **how))


def garbage(body: bytes = b"\x00\xff", **changes: Any) -> Record:
    """A message that nobody can read."""
    wire = WireMessage(routing_key="east.status", body=body, headers={})
    return Record(offset=7, message=msgspec.structs.replace(wire, **changes), timestamp=None)
