"""How a bus connection behaves. Times in seconds."""

import msgspec


class BusSettings(msgspec.Struct, frozen=True):
    """One connection's settings; the defaults suit a broker in the same region."""

    connect_s: float = 30.0
    """For how long the first connection is tried before it is an error."""
    confirm_s: float = 30.0
    """For how long a publish waits for the broker's confirm, reconnecting included."""
    heartbeat_s: int = 6
    """AMQP heartbeat, unless the URL has one (`?heartbeat=30`). RabbitMQ takes a peer that is silent for two of them to
    be gone, and gives its queues to the standby, which takes no longer for the lease. This side waits for three."""
    reconnect_most_s: float = 15.0
    """The longest pause between two attempts to reconnect."""
    in_flight: int = 500
    """Publishes that wait for a confirm at once. One by one a broker does 1,000 a second, pipelined 4,000."""
