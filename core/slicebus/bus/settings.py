"""How a bus connection behaves. Times in seconds."""

import msgspec


class BusSettings(msgspec.Struct, frozen=True):
    """One connection's settings; the defaults suit a broker in the same region."""

    connect_s: float = 30.0
    """For how long the first connection is tried before it is an error."""
    confirm_s: float = 30.0
    """For how long a publish waits for the broker's confirm, reconnecting included."""
    heartbeat_s: int = 15
    """AMQP heartbeat: a peer that is silent for two of them is gone."""
    reconnect_most_s: float = 15.0
    """The longest pause between two attempts to reconnect."""
    in_flight: int = 500
    """Publishes that wait for a confirm at once. One by one a broker does 1,000 a second, pipelined 4,000."""
    retry_s: float = 10.0
    """For how long the handling of a delivery is tried again in place before it is put back."""
