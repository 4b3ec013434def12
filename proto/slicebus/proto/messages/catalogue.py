"""Every message type by its name. Routing, decoding, the journal and the dead letters go by this table alone."""

from slicebus.proto.messages.base import Message
from slicebus.proto.messages.down import Delete, Pending, Relabel, Resync, Suspend, Terms, WorkloadSpec
from slicebus.proto.messages.up import Applied, Heartbeat, Hello, Inventory, Refused, ScaleRequest, Status

MESSAGES: dict[str, type[Message]] = {
    message.type: message
    for message in (
        Hello,
        Heartbeat,
        ScaleRequest,
        Status,
        Applied,
        Refused,
        Inventory,
        WorkloadSpec,
        Relabel,
        Suspend,
        Delete,
        Pending,
        Resync,
        Terms,
    )
}
"""A new type is added here, and nowhere else in `proto`."""
