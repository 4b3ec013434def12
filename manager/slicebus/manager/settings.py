"""The manager's settings, from the environment."""

import socket
from collections.abc import Mapping
from typing import Self

import msgspec

from slicebus.process.environment import from_environment
from slicebus.process.logs import LogFormat


class ManagerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One manager process. Times in seconds."""

    amqp_url: str
    kubeconfig: str | None = None
    namespace: str = "slicebus-system"
    """Where the leader's Lease is."""
    identity: str = ""
    health_address: str = "0.0.0.0:8080"
    log_format: LogFormat = "json"
    log_level: str = "INFO"
    workers: int = 16
    """Jobs that are looked at at once."""
    prefetch: int = 200
    """Messages of a lane that are under way at once."""
    cluster_lost_s: float = 30.0
    """A cluster that is silent for so long is not connected."""
    lease_duration_s: float = 15.0
    lease_renew_s: float = 3.0

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
    "lease_duration_s": "SLICEBUS_LEASE_SECONDS",
    "lease_renew_s": "SLICEBUS_LEASE_RENEW_SECONDS",
}
"""The environment variable of each field."""
