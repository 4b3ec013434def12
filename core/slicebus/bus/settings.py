"""Defines the settings of a bus connection. Times are in seconds."""

import msgspec

from slicebus.bus.sizes import MESSAGE_BYTES


class BusSettings(msgspec.Struct, frozen=True):
    """Holds the settings of one connection. The defaults suit a broker in the same region."""

    connect_s: float = 30.0
    """How long the first connection is retried before it is an error."""
    confirm_s: float = 30.0
    """How long a publish waits for the broker's confirm, including reconnects."""
    heartbeat_s: int = 6
    """AMQP heartbeat, unless the URL has one (`?heartbeat=30`). RabbitMQ closes the connection of a peer that is silent
    for two heartbeats and delivers to the standby, which gets the Lease within that time. This side waits for three."""
    reconnect_most_s: float = 15.0
    """The longest pause between two attempts to reconnect."""
    files_s: float = 5.0
    """How often the files of the login are checked, while there is a connection."""
    in_flight: int = 500
    """The most publishes that wait for a confirm at once. A broker confirms 1,000 a second one by one, 4,000
    pipelined."""
    in_flight_bytes: int = 16 * 1024**2
    """The most bytes of those publishes. A larger message is published alone."""
    message_bytes: int = MESSAGE_BYTES
    """The limit of a message. A larger one is not published, and of a received one only the headers are kept."""
