"""The manager's settings, from the environment."""

from enum import StrEnum
from typing import ClassVar

from slicebus.runtime.environment import Count, Seconds, Share
from slicebus.runtime.settings import RoleSettings
from slicebus.slices.fleet import Strategy
from slicebus.slices.sharing import FairSharing


class Admission(StrEnum):
    """Who gives quota."""

    BUILTIN = "builtin"
    """The manager."""
    KUEUE = "kueue"
    """A Kueue on the manager's cluster; the manager answers its AdmissionCheck."""


class ManagerSettings(RoleSettings, frozen=True, kw_only=True):
    """One manager process. Times in seconds."""

    variables: ClassVar[dict[str, str]] = RoleSettings.variables | {
        "admission": "SLICEBUS_ADMISSION",
        "admission_writers": "SLICEBUS_ADMISSION_WRITERS",
        "cluster_lost_s": "SLICEBUS_CLUSTER_LOST_SECONDS",
        "cluster_lost_requeue_s": "SLICEBUS_CLUSTER_LOST_REQUEUE_SECONDS",
        "drain_at_once": "SLICEBUS_DRAIN_AT_ONCE",
        "placement_strategy": "SLICEBUS_PLACEMENT_STRATEGY",
        "fair_sharing": "SLICEBUS_FAIR_SHARING",
        "queue_status_s": "SLICEBUS_QUEUE_STATUS_SECONDS",
        "breaker_share": "SLICEBUS_BREAKER_SHARE",
        "breaker_count": "SLICEBUS_BREAKER_COUNT",
        "breaker_window_s": "SLICEBUS_BREAKER_WINDOW_SECONDS",
        "slice_history_limit": "SLICEBUS_SLICE_HISTORY_LIMIT",
        "slice_history_s": "SLICEBUS_SLICE_HISTORY_SECONDS",
        "dead_letter_alert_s": "SLICEBUS_DEAD_LETTER_ALERT_SECONDS",
    }

    admission: Admission = Admission.BUILTIN
    admission_writers: Count = 16
    """The builtin admission writes so many decisions at once."""
    cluster_lost_s: Seconds = 30.0
    """A cluster that is silent for so long is not connected."""
    cluster_lost_requeue_s: Seconds | None = None
    """The jobs of a cluster that is silent for so long go elsewhere; None leaves them there."""
    drain_at_once: Count = 10
    """So many jobs of a drained cluster are evicted at a time."""
    placement_strategy: Strategy = Strategy.SPREAD
    """Which cluster with room a new job gets, where its ClusterQueue does not say."""
    fair_sharing: FairSharing = FairSharing.OFF
    """Whether queues of a cohort get and lose what they borrow by their shares of it."""
    queue_status_s: Seconds = 1.0
    """The status of the queues is written at most so often."""
    breaker_share: Share = 0.2
    """When more of a cluster's jobs than this share, and more than `breaker_count`, would be deleted within
    `breaker_window_s`, none is until somebody says so."""
    breaker_count: Count = 20
    breaker_window_s: Seconds = 60.0
    slice_history_limit: Count = 10
    """So many finished slices of a job are kept."""
    slice_history_s: Seconds = 7 * 24 * 3600.0
    """And none that has been finished for longer."""
    dead_letter_alert_s: Seconds = 600.0
    """A cluster with a dead letter that is older gets an Event, at most so often."""

    def __post_init__(self) -> None:
        """A cluster is not connected before its jobs go elsewhere."""
        super().__post_init__()
        if self.cluster_lost_requeue_s is not None and self.cluster_lost_requeue_s < self.cluster_lost_s:
            requeue, lost = self.variables["cluster_lost_requeue_s"], self.variables["cluster_lost_s"]
            raise ValueError(f"{requeue} must not be less than {lost}")
