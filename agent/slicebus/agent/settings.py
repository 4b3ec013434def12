"""The agent's settings, from the environment."""

import socket
from collections.abc import Mapping
from typing import Self

import msgspec

from slicebus.process.environment import from_environment
from slicebus.process.logs import LogFormat
from slicebus.proto.messages import ClusterName


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One agent process. Times in seconds."""

    cluster: ClusterName
    """The WorkerCluster that it speaks for."""
    amqp_url: str
    kubeconfig: str | None = None
    namespace: str = "slicebus-system"
    """Where the Lease and the tombstones are."""
    identity: str = ""
    manager_user: str | None = None
    """The broker user that orders must come from; None takes them from whoever the broker lets publish them."""
    health_address: str = "0.0.0.0:8080"
    log_format: LogFormat = "json"
    log_level: str = "INFO"
    workers: int = 16
    """Jobs that are looked at at once."""
    prefetch: int = 200
    """Messages of a lane that are under way at once."""
    heartbeat_s: float = 10.0
    status_interval_s: float = 0.5
    """Reports on one job are at least so far apart; what happens between goes into the next."""
    lease_duration_s: float = 15.0
    lease_renew_s: float = 3.0

    @classmethod
    def from_env(cls, environment: Mapping[str, str]) -> Self:
        """Raises ConfigurationError, which names the variable."""
        settings = from_environment(cls, environment, VARIABLES)
        return settings if settings.identity else msgspec.structs.replace(settings, identity=socket.gethostname())


VARIABLES = {
    "cluster": "SLICEBUS_CLUSTER",
    "amqp_url": "AMQP_URL",
    "kubeconfig": "KUBECONFIG",
    "namespace": "SLICEBUS_NAMESPACE",
    "identity": "SLICEBUS_IDENTITY",
    "manager_user": "SLICEBUS_MANAGER_USER",
    "health_address": "SLICEBUS_HEALTH_ADDRESS",
    "log_format": "SLICEBUS_LOG_FORMAT",
    "log_level": "SLICEBUS_LOG_LEVEL",
    "workers": "SLICEBUS_WORKERS",
    "prefetch": "SLICEBUS_PREFETCH",
    "heartbeat_s": "SLICEBUS_HEARTBEAT_SECONDS",
    "status_interval_s": "SLICEBUS_STATUS_INTERVAL_SECONDS",
    "lease_duration_s": "SLICEBUS_LEASE_SECONDS",
    "lease_renew_s": "SLICEBUS_LEASE_RENEW_SECONDS",
}
"""The environment variable of each field."""
