"""Every message type by name. Routing, decoding, the journal and the dead letters use this table only."""

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
"""Add a new type here, and nowhere else in `proto`."""
