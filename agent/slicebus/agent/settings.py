"""The agent's settings, from the environment."""

import socket
from collections.abc import Mapping
from typing import Annotated, Self

import msgspec

from slicebus.process.environment import Address, AmqpUrl, Count, Seconds, check_lease, from_environment
from slicebus.process.logs import LogFormat, LogLevel
from slicebus.proto.messages import ClusterName


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One agent process. Times in seconds."""

    cluster: Annotated[ClusterName, msgspec.Meta(pattern="^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
    """The WorkerCluster that it speaks for; a DNS label, as the first word of a routing key."""
    amqp_url: AmqpUrl
    kubeconfig: str | None = None
    namespace: str = "slicebus-system"
    """Where the Lease and the tombstones are."""
    identity: str = ""
    manager_user: str | None = None
    """The broker user that orders must come from; None takes them from whoever the broker lets publish them."""
    health_address: Address = "0.0.0.0:8080"
    log_format: LogFormat = "json"
    log_level: LogLevel = "INFO"
    workers: Count = 16
    """Jobs that are looked at at once."""
    prefetch: Count = 200
    """Messages of a lane that are under way at once."""
    heartbeat_s: Seconds = 10.0
    status_interval_s: Seconds = 0.5
    """Reports on one job are at least so far apart; what happens between goes into the next."""
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
