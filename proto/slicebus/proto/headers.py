"""The CloudEvents attributes of a message as its AMQP headers.

Every value is a string, as in CloudEvents 1.0 over AMQP in binary mode; numbers are written in decimal.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from slicebus.proto.messages import CLUSTER_NAME, CLUSTER_UID

PREFIX = "cloudEvents_"
"""CloudEvents 1.0, AMQP binding, 3.1.3.1."""
SUBJECT = f"{PREFIX}subject"
"""The header with the key of a message's job, for those who look at nothing else."""
ADDRESSEE = f"{PREFIX}shard"
"""The header with the shard of the manager that an agent addresses, or that has published an order."""
TYPE_PATTERN = r"^dev\.slicebus\.([a-z-]+)\.v([0-9]{1,4})$"

_UUID7 = r"^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"
DECIMAL_PATTERN = r"^(0|[1-9][0-9]{0,14})$"
"""Below `MOST_VERSION`: records have these numbers as a `Version`."""
_TIME = r"^[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?Z$"

Uuid7 = Annotated[str, Meta(pattern=_UUID7)]
Decimal = Annotated[str, Meta(pattern=DECIMAL_PATTERN)]


def _header(name: str) -> str:
    return PREFIX + name


class VersionHeaders(msgspec.Struct, frozen=True, kw_only=True, rename=_header):
    """The headers that every version of the envelope has, so that an unknown version can be named."""

    type: Annotated[str, Meta(extra_json_schema={"pattern": TYPE_PATTERN})]
    """`dev.slicebus.<type>.v<major>`: the message type, and the major version of its schema."""
    schemaversion: Annotated[str, Meta(pattern=r"^[0-9]{1,4}\.[0-9]{1,4}$")]
    """`<major>.<minor>` of the sender's schemas; the major is that of `type`."""


class Headers(VersionHeaders, frozen=True, kw_only=True, rename=_header):
    """CloudEvents 1.0 attributes as AMQP headers, in binary mode. Every value is a string without control characters.

    Attributes that are not named here are extensions: kept, and passed on as they came. Headers without the prefix
    `cloudEvents_` are the broker's, and ignored.
    """

    specversion: Literal["1.0"]
    """The version of CloudEvents."""
    id: Uuid7
    """UUIDv7 in lower case, so that ids sort by time. Unique: a second message of the same id is the same message."""
    source: Annotated[str, Meta(min_length=1)]
    """`/slicebus/clusters/<cluster>` from an agent, `/slicebus/manager` from the manager."""
    time: Annotated[str, Meta(pattern=_TIME, extra_json_schema={"format": "date-time"})]
    """When it was published, RFC 3339 in UTC."""
    cluster: Annotated[str, Meta(pattern=CLUSTER_NAME)]
    """The cluster that the message is from (up) or for (down), a DNS label; the first word of the routing key."""
    clusteruid: Annotated[str, Meta(pattern=CLUSTER_UID)]
    """The UID of that cluster's namespace kube-system. From the manager it is the last word of the routing key too."""
    epoch: Decimal
    """The publisher's lease epoch, in decimal. An agent's epoch fences every lower one of its cluster."""
    sequence: Decimal
    """Counts the publisher's messages within its epoch, in decimal."""
    shard: Decimal | UnsetType = UNSET
    """The shard of the manager that published it, each of which has epochs of its own; or that an agent addresses:
    it is the last word of the routing key then. Absent for the first."""
    subject: str | UnsetType = UNSET
    """The job's key, `Kind/namespace/name`; absent from a message about the cluster. Messages of one subject keep
    their order."""
    datacontenttype: Literal["application/json"] = "application/json"
    """The content type of the body."""
    correlationid: Annotated[str, Meta(min_length=1, max_length=255)] | UnsetType = UNSET
    """The id of the message that began this chain; its own id, or absent, when it began one."""
    causationid: Uuid7 | UnsetType = UNSET
    """The id of the message whose handling published this one; absent when there was none."""
    traceparent: str | UnsetType = UNSET
    """W3C trace context."""


ATTRIBUTES = frozenset(field.encode_name for field in msgspec.structs.fields(Headers))
"""The names of the headers that this version knows."""
