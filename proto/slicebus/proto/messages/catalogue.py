"""Every message type: two closed unions by direction, and the table of both by name.

Handlers match a union, so that a type without a case is an error of mypy. Routing, decoding, the journal and the dead
letters use the table.
"""

from typing import get_args

from slicebus.proto.messages.down import Delete, Pending, Relabel, Resync, Suspend, Terms, WorkloadSpec
from slicebus.proto.messages.up import Applied, Heartbeat, Hello, Inventory, Refused, ScaleRequest, Status

Report = Hello | Heartbeat | ScaleRequest | Status | Applied | Refused | Inventory
"""What agents publish to the manager. Add a new type that goes up here."""

JobOrder = WorkloadSpec | Relabel | Suspend | Delete | Pending
"""What the manager publishes to an agent about one job."""

Order = JobOrder | Resync | Terms
"""What the manager publishes to agents. Add a new type that goes down here or to `JobOrder`."""

MESSAGES: dict[str, type[Report | Order]] = {message.type: message for message in get_args(Report | Order)}
"""Every message type by name."""
