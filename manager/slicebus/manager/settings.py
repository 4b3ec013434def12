"""The manager's settings, from the environment."""

from enum import StrEnum
from typing import Annotated, ClassVar

import msgspec

from slicebus.proto.topology import JOURNAL_MAX_AGE, JOURNAL_MAX_BYTES, MOST_SHARDS
from slicebus.runtime.environment import Count, Seconds, Share
from slicebus.runtime.settings import RoleSettings
from slicebus.slices.admission.sharing import FairSharing
from slicebus.slices.placement.fleet import Strategy

_JOURNAL_LEAST_BYTES = 1_000_000
"""Less than a megabyte is a slip."""


class Admission(StrEnum):
    """Who admits workloads."""

    BUILTIN = "builtin"
    """The manager."""
    KUEUE = "kueue"
    """A Kueue on the manager's cluster; the manager answers its AdmissionCheck."""


class ManagerSettings(RoleSettings, frozen=True, kw_only=True):
    """One manager process. Times in seconds."""

    variables: ClassVar[dict[str, str]] = RoleSettings.variables | {
        "admission": "SLICEBUS_ADMISSION",
        "admission_writers": "SLICEBUS_ADMISSION_WRITERS",
        "shards": "SLICEBUS_SHARDS",
        "fixed_jobs": "SLICEBUS_FIXED_JOBS",
        "cluster_lost_s": "SLICEBUS_CLUSTER_LOST_SECONDS",
        "cluster_lost_requeue_s": "SLICEBUS_CLUSTER_LOST_REQUEUE_SECONDS",
        "drain_at_once": "SLICEBUS_DRAIN_AT_ONCE",
        "pods_ready_s": "SLICEBUS_PODS_READY_SECONDS",
        "pods_recovery_s": "SLICEBUS_PODS_RECOVERY_SECONDS",
        "scale_up_ready_s": "SLICEBUS_SCALE_UP_READY_SECONDS",
        "epoch_skew_s": "SLICEBUS_EPOCH_SKEW_SECONDS",
        "placement_strategy": "SLICEBUS_PLACEMENT_STRATEGY",
        "fair_sharing": "SLICEBUS_FAIR_SHARING",
        "queue_status_s": "SLICEBUS_QUEUE_STATUS_SECONDS",
        "breaker_share": "SLICEBUS_BREAKER_SHARE",
        "breaker_count": "SLICEBUS_BREAKER_COUNT",
        "breaker_window_s": "SLICEBUS_BREAKER_WINDOW_SECONDS",
        "slice_history_limit": "SLICEBUS_SLICE_HISTORY_LIMIT",
        "slice_history_s": "SLICEBUS_SLICE_HISTORY_SECONDS",
        "dead_letter_alert_s": "SLICEBUS_DEAD_LETTER_ALERT_SECONDS",
        "journal_max_age": "SLICEBUS_JOURNAL_MAX_AGE",
        "journal_max_bytes": "SLICEBUS_JOURNAL_MAX_BYTES",
    }

    admission: Admission = Admission.BUILTIN
    admission_writers: Count = 16
    """How many decisions the builtin admission writes at once."""
    shards: Annotated[int, msgspec.Meta(ge=1, le=MOST_SHARDS)] = 1
    """How many processes share the trees of quota. Each holds a Lease of its own; more processes stand by."""
    fixed_jobs: bool = False
    """Whether jobs without the elastic annotation are run too, each as one Workload whose size is fixed."""
    cluster_lost_s: Seconds = 30.0
    """After this silence a cluster counts as not connected."""
    cluster_lost_requeue_s: Seconds | None = None
    """After this silence the jobs of a cluster are requeued on others; None leaves them there."""
    drain_at_once: Count = 10
    """How many jobs of a drained cluster are evicted at a time."""
    pods_ready_s: Seconds | None = None
    """How long the pods of an admitted job have to get ready before it is evicted; None for ever."""
    pods_recovery_s: Seconds | None = None
    """The same for pods that were ready."""
    scale_up_ready_s: Seconds | None = None
    """How long the pods of a scale-up have to get ready before it alone is taken back; None: as `pods_ready_s`."""
    epoch_skew_s: Seconds = 300.0
    """How far the clock of an agent may be ahead of the manager's: a later epoch is refused."""
    placement_strategy: Strategy = Strategy.SPREAD
    """Which cluster with room a new job gets, unless its ClusterQueue names a strategy."""
    fair_sharing: FairSharing = FairSharing.OFF
    """Whether the queues of a cohort borrow, and are preempted, by their shares of the cohort."""
    queue_status_s: Seconds = 1.0
    """The status of the queues is written at most once in this time."""
    breaker_share: Share = 0.2
    """The breaker holds the deletes of a cluster when they are more than this share of its jobs, and more than
    `breaker_count`, within `breaker_window_s`. Somebody has to release them."""
    breaker_count: Count = 20
    breaker_window_s: Seconds = 60.0
    slice_history_limit: Count = 10
    """How many finished slices of a job are kept."""
    slice_history_s: Seconds = 7 * 24 * 3600.0
    """How long a finished slice is kept."""
    dead_letter_alert_s: Seconds = 600.0
    """A cluster gets an Event when it has a dead letter older than this, and the next one not before this time."""
    journal_max_age: Annotated[str, msgspec.Meta(pattern="^[1-9][0-9]{0,5}[YMDhms]$")] = JOURNAL_MAX_AGE
    """How long the journal keeps a message, in RabbitMQ's notation. An existing journal keeps its own setting."""
    journal_max_bytes: Annotated[int, msgspec.Meta(ge=_JOURNAL_LEAST_BYTES)] = JOURNAL_MAX_BYTES

    def __post_init__(self) -> None:
        """Jobs are requeued only after their cluster counts as not connected. A Kueue waits for pods by its own
        setting, and runs no jobs of a fixed size elsewhere. Raises ValueError otherwise."""
        super().__post_init__()
        if self.cluster_lost_requeue_s is not None and self.cluster_lost_requeue_s < self.cluster_lost_s:
            requeue, lost = self.variables["cluster_lost_requeue_s"], self.variables["cluster_lost_s"]
            raise ValueError(f"{requeue} must not be less than {lost}")
        if self.shards > 1 and self.admission is Admission.KUEUE:
            raise ValueError(f"{self.variables['shards']} is not for admission by a Kueue")
        if self.shards > 1 and self.cluster_lost_requeue_s is not None:
            requeue = self.variables["cluster_lost_requeue_s"]
            raise ValueError(f"{requeue} is not for several shards: only one manager can give a cluster up")
        for name in ("pods_ready_s", "pods_recovery_s", "scale_up_ready_s"):
            if self.admission is Admission.KUEUE and getattr(self, name) is not None:
                raise ValueError(f"{self.variables[name]} is not for admission by a Kueue: set its waitForPodsReady")
        if self.admission is Admission.KUEUE and self.fixed_jobs:
            raise ValueError(f"{self.variables['fixed_jobs']} is not for admission by a Kueue")
