"""Defines the settings that both roles have."""

import math
import socket
from collections.abc import Mapping
from typing import Annotated, Self

import msgspec

from slicebus.bus.settings import BusSettings
from slicebus.bus.sizes import LEAST_MESSAGE_BYTES, MESSAGE_BYTES
from slicebus.runtime.broker_settings import BrokerSettings
from slicebus.runtime.environment import Address, Count, Seconds, variable_of
from slicebus.runtime.logs import LogFormat, LogLevel


class RoleSettings(BrokerSettings, frozen=True, kw_only=True):
    """Hold the settings of one process. Times are in seconds."""

    kubeconfig: str | None = None
    namespace: str = "slicebus-system"
    """The namespace of the Lease, and on a worker of the tombstones."""
    identity: str = ""
    health_address: Address = "0.0.0.0:8080"
    log_format: LogFormat = "json"
    log_level: LogLevel = "INFO"
    workers: Count = 16
    """Jobs that are reconciled at once."""
    prefetch: Count = 200
    """Unacknowledged messages of a queue, at most."""
    message_bytes: Annotated[int, msgspec.Meta(ge=LEAST_MESSAGE_BYTES)] = MESSAGE_BYTES
    """The limit of a message. Every role of a fleet has the same."""
    held_bytes: Annotated[int, msgspec.Meta(ge=1)] = 128 * 1024**2
    """Bytes of unacknowledged messages, at most, where each is as large as the limit allows."""
    lease_s: Seconds = 12.0
    lease_renew_s: Seconds = 2.0
    """The pause between renewals. A standby sees the last one up to this much later, and leads one lease duration after
    that: 14 s at most with the defaults."""
    reconcile_s: Seconds = 600.0
    """Every job is reconciled at least once in this time, whatever has happened."""
    record_decisions: bool = True
    """Whether decisions go into the journal, with their inputs."""

    def __post_init__(self) -> None:
        """Raises ValueError where a lease would expire before its holder has tried twice to renew it, and
        ConfigurationError for an address of the broker that cannot or must not work."""
        super().__post_init__()
        if self.lease_s < 3 * self.lease_renew_s:
            raise ValueError(f"{variable_of('lease_s')} must be at least three times {variable_of('lease_renew_s')}")

    @property
    def bus(self) -> BusSettings:
        """The settings of its connection to the broker. A role waits without end for one that cannot be reached."""
        return BusSettings(connect_s=math.inf, message_bytes=self.message_bytes)

    def prefetch_of(self, queues: int) -> int:
        """The prefetch of each of `queues` queues: less than `prefetch` where so many of the largest messages would be
        more than `held_bytes`. AMQP 0-9-1 can bound the messages that a broker sends ahead, and not their bytes."""
        return max(1, min(self.prefetch, self.held_bytes // (queues * self.message_bytes)))

    @classmethod
    def from_env(cls, environment: Mapping[str, str]) -> Self:
        """Read the settings from environment variables. Raises ConfigurationError, which names the variable."""
        settings = super().from_env(environment)
        return settings if settings.identity else msgspec.structs.replace(settings, identity=socket.gethostname())
