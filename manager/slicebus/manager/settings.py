"""The manager's settings, from the environment."""

from typing import Annotated

import msgspec

from slicebus.manager.state.settings import AdmissionModeName, LeaderSettings, ManagerDecisionSettings, Shard
from slicebus.proto.topology import JOURNAL_MAX_AGE, JOURNAL_MAX_BYTES, MOST_SHARDS
from slicebus.runtime.environment import Count, Seconds, Share, variable_of
from slicebus.runtime.settings import RoleSettings
from slicebus.slices.workload.device_claims import resources_of

_JOURNAL_LEAST_BYTES = 1_000_000
"""A limit below a megabyte is a slip."""


class ManagerSettings(RoleSettings, frozen=True, kw_only=True):
    """One manager process. Times in seconds."""

    decisions: ManagerDecisionSettings = ManagerDecisionSettings()
    admission_writers: Count = 16
    """How many decisions the builtin admission writes at once."""
    shards: Annotated[int, msgspec.Meta(ge=1, le=MOST_SHARDS)] = 1
    """How many processes share the trees of quota. Each holds a Lease of its own; more processes stand by."""
    cluster_lost_s: Seconds = 30.0
    """After this silence a cluster counts as not connected."""
    queue_status_s: Seconds = 1.0
    """The status of the queues is written at most once in this time."""
    breaker_share: Share = 0.2
    """The breaker holds the deletes of a cluster when they are more than this share of its jobs, and more than
    `breaker_count`, within `breaker_window_s`. Somebody has to release them."""
    breaker_count: Count = 20
    breaker_window_s: Seconds = 60.0
    dead_letter_alert_s: Seconds = 600.0
    """A cluster gets an Event when it has a dead letter older than this, and the next one not before this time."""
    journal_max_age: Annotated[str, msgspec.Meta(pattern="^[1-9][0-9]{0,5}[YMDhms]$")] = JOURNAL_MAX_AGE
    """How long the journal keeps a message, in RabbitMQ's notation. An existing journal keeps its own setting."""
    journal_max_bytes: Annotated[int, msgspec.Meta(ge=_JOURNAL_LEAST_BYTES)] = JOURNAL_MAX_BYTES

    def leading(self, shard: Shard, *, since: str) -> LeaderSettings:
        """The settings of decisions, for the process that is this shard and leads since then, RFC 3339."""
        return self.decisions.leading(message_bytes=self.message_bytes, shard=shard, leads_since=since)

    def __post_init__(self) -> None:
        """Jobs are requeued only after their cluster counts as not connected. A Kueue waits for pods by its own
        setting, and runs no jobs of a fixed size elsewhere. Raises ValueError otherwise."""
        super().__post_init__()
        beside_kueue = self.decisions.admission is AdmissionModeName.KUEUE
        requeue_s, requeue = self.decisions.cluster_lost_requeue_s, variable_of("cluster_lost_requeue_s")
        if requeue_s is not None and requeue_s < self.cluster_lost_s:
            raise ValueError(f"{requeue} must not be less than {variable_of('cluster_lost_s')}")
        if self.shards > 1 and beside_kueue:
            raise ValueError(f"{variable_of('shards')} is not for admission by a Kueue")
        if self.shards > 1 and requeue_s is not None:
            raise ValueError(f"{requeue} is not for several shards: only one manager can give a cluster up")
        for name in ("pods_ready_s", "pods_recovery_s", "scale_up_ready_s"):
            if beside_kueue and getattr(self.decisions, name) is not None:
                raise ValueError(f"{variable_of(name)} is not for admission by a Kueue: set its waitForPodsReady")
        if beside_kueue and self.decisions.device_class_mappings:
            raise ValueError(f"{variable_of('device_class_mappings')} is not for admission by a Kueue: it has its own")
        try:
            resources_of(self.decisions.device_class_mappings)
        except ValueError as error:
            raise ValueError(f"{variable_of('device_class_mappings')}: {error}") from error
        if beside_kueue and self.decisions.fixed_jobs:
            raise ValueError(f"{variable_of('fixed_jobs')} is not for admission by a Kueue")
