"""The settings that both roles have."""

import math
import socket
from collections.abc import Mapping
from typing import Annotated, ClassVar, Self

import msgspec

from slicebus.bus.settings import BusSettings
from slicebus.bus.sizes import LEAST_MESSAGE_BYTES, MESSAGE_BYTES
from slicebus.runtime.broker_settings import BrokerSettings
from slicebus.runtime.environment import Address, Count, Seconds
from slicebus.runtime.logs import LogFormat, LogLevel


class RoleSettings(BrokerSettings, frozen=True, kw_only=True):
    """One process. Times in seconds."""

    variables: ClassVar[dict[str, str]] = BrokerSettings.variables | {
        "kubeconfig": "KUBECONFIG",
        "namespace": "SLICEBUS_NAMESPACE",
        "identity": "SLICEBUS_IDENTITY",
        "health_address": "SLICEBUS_HEALTH_ADDRESS",
        "log_format": "SLICEBUS_LOG_FORMAT",
        "log_level": "SLICEBUS_LOG_LEVEL",
        "workers": "SLICEBUS_WORKERS",
        "prefetch": "SLICEBUS_PREFETCH",
        "message_bytes": "SLICEBUS_MESSAGE_BYTES",
        "held_bytes": "SLICEBUS_HELD_BYTES",
        "lease_duration_s": "SLICEBUS_LEASE_SECONDS",
        "lease_renew_s": "SLICEBUS_LEASE_RENEW_SECONDS",
        "record_decisions": "SLICEBUS_RECORD_DECISIONS",
    }

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
    """Bytes of unacknowledged messages, at most. Of messages as large as the limit allows, no more are taken."""
    lease_duration_s: Seconds = 12.0
    lease_renew_s: Seconds = 2.0
    """The pause between renewals. A standby sees the last one up to this much later, and leads one lease duration after
    that: 14 s at most with the defaults."""
    record_decisions: bool = True
    """Whether decisions go into the journal, with their inputs."""

    def __post_init__(self) -> None:
        """Raises ValueError where a lease would expire before its holder has tried twice to renew it, and
        ConfigurationError for an address of the broker that cannot or must not work."""
        super().__post_init__()
        if self.lease_duration_s < 3 * self.lease_renew_s:
            duration, renew = self.variables["lease_duration_s"], self.variables["lease_renew_s"]
            raise ValueError(f"{duration} must be at least three times {renew}")

    @property
    def bus(self) -> BusSettings:
        """The settings of its connection. A role waits for a broker that cannot be reached."""
        return BusSettings(connect_s=math.inf, message_bytes=self.message_bytes)

    def prefetch_of(self, queues: int) -> int:
        """The prefetch of each of so many queues: fewer than `prefetch` where that many of the largest messages would
        be more than `held_bytes`. AMQP 0-9-1 can bound the messages that a broker sends ahead, and not their bytes."""
        return max(1, min(self.prefetch, self.held_bytes // (queues * self.message_bytes)))

    @classmethod
    def from_env(cls, environment: Mapping[str, str]) -> Self:
        """The settings from environment variables. Raises ConfigurationError, which names the variable."""
        settings = super().from_env(environment)
        return settings if settings.identity else msgspec.structs.replace(settings, identity=socket.gethostname())
