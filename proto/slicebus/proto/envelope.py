"""The envelope: CloudEvents 1.0 attributes, carried as AMQP properties and headers."""

from typing import NewType

import msgspec

from slicebus.proto.messages import ClusterName, ClusterUid

MessageId = NewType("MessageId", str)

SCHEMA_VERSION = "1.0"
"""major.minor of the message schemas. Another major is refused, another minor is understood both ways."""


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a message without its body."""

    id: MessageId
    """UUIDv7, so that ids sort by time."""
    type: str
    cluster: ClusterName
    """The cluster that the message is from (up) or for (down); the first word of the routing key."""
    subject: str
    """The object's key, `Kind/namespace/name`; empty for a message about the cluster. Messages of one subject keep
    their order."""
    time: str
    """When it was published, RFC 3339 in UTC with microseconds."""
    epoch: int
    """The publisher's lease epoch. An agent's epoch fences every lower one of its cluster."""
    sequence: int
    """Counts the publisher's messages within its epoch."""
    shard: int = 0
    """The shard of the manager that published it, each of which has epochs of its own; or that an agent addresses."""
    cluster_uid: ClusterUid
    """The UID of the cluster's namespace kube-system, as names may be used twice. Epochs and sequences of an agent
    belong to it and the name (`agent`)."""
    correlation_id: MessageId
    """The id of the message that began this chain; its own id when it began one."""
    causation_id: MessageId | None = None
    """The id of the message whose handling published this one."""
    traceparent: str | None = None
    """W3C trace context."""
    user_id: str | None = None
    """The publisher's broker user, which the broker verifies."""
    schema_version: str = SCHEMA_VERSION
    extensions: dict[str, str] = {}
    """CloudEvents attributes that this version does not know, kept as they came."""

    @property
    def agent(self) -> str:
        """The name and UID of the cluster: epochs and sequences are in order within both. The UID alone is no key, as
        another cluster may say it."""
        return f"{self.cluster}/{self.cluster_uid}"


class WireMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message as it lies in a queue: AMQP properties and headers, and the body's bytes."""

    routing_key: str
    body: bytes
    headers: dict[str, str]
    """CloudEvents attributes with the prefix `cloudEvents_`, and after a dead-letter `slicebus-dead-reason` and
    `slicebus-dead-detail`."""
    message_id: str | None = None
    correlation_id: str | None = None
    user_id: str | None = None
    content_type: str = "application/json"
    type: str | None = None
    persistent: bool = True
