"""The settings that both roles have."""

import socket
from collections.abc import Mapping
from typing import Annotated, ClassVar, Self

import msgspec

from slicebus.proto.topology import JOURNAL_MAX_AGE, JOURNAL_MAX_BYTES
from slicebus.runtime.environment import Address, AmqpUrl, Count, Seconds, from_environment
from slicebus.runtime.logs import LogFormat, LogLevel

_JOURNAL_LEAST_BYTES = 1_000_000
"""Less than a megabyte is a slip."""


class RoleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One process. Times in seconds."""

    variables: ClassVar[dict[str, str]] = {
        "amqp_url": "AMQP_URL",
        "kubeconfig": "KUBECONFIG",
        "namespace": "SLICEBUS_NAMESPACE",
        "identity": "SLICEBUS_IDENTITY",
        "health_address": "SLICEBUS_HEALTH_ADDRESS",
        "log_format": "SLICEBUS_LOG_FORMAT",
        "log_level": "SLICEBUS_LOG_LEVEL",
        "workers": "SLICEBUS_WORKERS",
        "prefetch": "SLICEBUS_PREFETCH",
        "lease_duration_s": "SLICEBUS_LEASE_SECONDS",
        "lease_renew_s": "SLICEBUS_LEASE_RENEW_SECONDS",
        "record_decisions": "SLICEBUS_RECORD_DECISIONS",
        "journal_max_age": "SLICEBUS_JOURNAL_MAX_AGE",
        "journal_max_bytes": "SLICEBUS_JOURNAL_MAX_BYTES",
    }
    """The environment variable of each field."""

    amqp_url: AmqpUrl
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
    lease_duration_s: Seconds = 12.0
    lease_renew_s: Seconds = 2.0
    """The pause between renewals. A standby sees the last one up to this much later, and leads one lease duration after
    that: 14 s at most with the defaults."""
    record_decisions: bool = True
    """Whether decisions go into the journal, with their inputs."""
    journal_max_age: Annotated[str, msgspec.Meta(pattern="^[1-9][0-9]{0,5}[YMDhms]$")] = JOURNAL_MAX_AGE
    """How long the journal keeps a message, in RabbitMQ's notation. An existing journal keeps its own setting."""
    journal_max_bytes: Annotated[int, msgspec.Meta(ge=_JOURNAL_LEAST_BYTES)] = JOURNAL_MAX_BYTES

    def __post_init__(self) -> None:
        """Raises ValueError where a lease would expire before its holder has tried twice to renew it."""
        if self.lease_duration_s < 3 * self.lease_renew_s:
            duration, renew = self.variables["lease_duration_s"], self.variables["lease_renew_s"]
            raise ValueError(f"{duration} must be at least three times {renew}")

    @classmethod
    def from_env(cls, environment: Mapping[str, str]) -> Self:
        """The settings from environment variables. Raises ConfigurationError, which names the variable."""
        settings = from_environment(cls, environment, cls.variables)
        return settings if settings.identity else msgspec.structs.replace(settings, identity=socket.gethostname())
