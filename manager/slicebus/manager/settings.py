"""The manager's settings, from the environment."""

import socket
from collections.abc import Mapping
from typing import Self

import msgspec

from slicebus.process.environment import Address, AmqpUrl, Count, Seconds, check_lease, from_environment
from slicebus.process.logs import LogFormat, LogLevel


class ManagerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One manager process. Times in seconds."""

    amqp_url: AmqpUrl
    kubeconfig: str | None = None
    namespace: str = "slicebus-system"
    """Where the leader's Lease is."""
    identity: str = ""
    health_address: Address = "0.0.0.0:8080"
    log_format: LogFormat = "json"
    log_level: LogLevel = "INFO"
    workers: Count = 16
    """Jobs that are looked at at once."""
    prefetch: Count = 200
    """Messages of a lane that are under way at once."""
    cluster_lost_s: Seconds = 30.0
    """A cluster that is silent for so long is not connected."""
    queue_status_s: Seconds = 1.0
    """The status of the queues is written at most so often."""
    lease_duration_s: Seconds = 15.0
    lease_renew_s: Seconds = 3.0

    def __post_init__(self) -> None:
        check_lease(duration_s=self.lease_duration_s, renew_s=self.lease_renew_s, names=VARIABLES)

    @classmethod
    def from_env(cls, environment: Mapping[str, str]) -> Self:
        """Raises ConfigurationError, which names the variable."""
        settings = from_environment(cls, environment, VARIABLES)
        return settings if settings.identity else msgspec.structs.replace(settings, identity=socket.gethostname())


VARIABLES = {
    "amqp_url": "AMQP_URL",
    "kubeconfig": "KUBECONFIG",
    "namespace": "SLICEBUS_NAMESPACE",
    "identity": "SLICEBUS_IDENTITY",
    "health_address": "SLICEBUS_HEALTH_ADDRESS",
    "log_format": "SLICEBUS_LOG_FORMAT",
    "log_level": "SLICEBUS_LOG_LEVEL",
    "workers": "SLICEBUS_WORKERS",
    "prefetch": "SLICEBUS_PREFETCH",
    "cluster_lost_s": "SLICEBUS_CLUSTER_LOST_SECONDS",
    "queue_status_s": "SLICEBUS_QUEUE_STATUS_SECONDS",
    "lease_duration_s": "SLICEBUS_LEASE_SECONDS",
    "lease_renew_s": "SLICEBUS_LEASE_RENEW_SECONDS",
}
"""The environment variable of each field."""
