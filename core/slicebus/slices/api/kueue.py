"""Names the exact strings of Kueue's API that slicebus shares. Its own are in `api_names`.

Source: Kueue v0.19.2, API version kueue.x-k8s.io/v1beta2.
"""

from enum import StrEnum
from typing import Final

GROUP: Final = "kueue.x-k8s.io"
API_VERSION: Final = f"{GROUP}/v1beta2"

QUEUE_NAME_LABEL: Final = "kueue.x-k8s.io/queue-name"
PRIORITY_CLASS_LABEL: Final = "kueue.x-k8s.io/priority-class"
DEFAULT_PRIORITY_CLASS: Final = "default"
"""The WorkloadPriorityClass of jobs that name none, where it exists (KEP-10765, on since Kueue 0.20)."""
MAX_EXECUTION_TIME_LABEL: Final = "kueue.x-k8s.io/max-exec-time-seconds"
ELASTIC_ANNOTATION: Final = "kueue.x-k8s.io/elastic-job"
ELASTIC_GATE: Final = "kueue.x-k8s.io/elastic-job"
"""The pod scheduling gate has the annotation's name."""
MIN_PARALLELISM_ANNOTATION: Final = "kueue.x-k8s.io/job-min-parallelism"
PARTIAL_PREEMPTION_ANNOTATION: Final = "kueue.x-k8s.io/partial-preemption"
SYNC_COMPLETIONS_ANNOTATION: Final = "kueue.x-k8s.io/job-completions-equal-parallelism"
"""With `true` a job loses pods before all of them, down to what its own spec says is the least (KEP-975, a design)."""
REPLACEMENT_FOR_ANNOTATION: Final = "kueue.x-k8s.io/workload-slice-replacement-for"
SLICE_NAME_ANNOTATION: Final = "kueue.x-k8s.io/workload-slice-name"
PREBUILT_NAME: Final = "kueue.x-k8s.io/prebuilt-workload-name"
"""A label and an annotation. Since Kueue 0.18 the annotation is read first: both are always written."""
JOB_UID_LABEL: Final = "kueue.x-k8s.io/job-uid"
POD_SET_LABEL: Final = "kueue.x-k8s.io/podset"
REPLICA_SIZES_ANNOTATION: Final = "kueue.x-k8s.io/raycluster-podset-replica-sizes"
RAYCLUSTER_GENERATION_ANNOTATION: Final = "kueue.x-k8s.io/raycluster-generation"
"""Kueue writes both onto an elastic RayJob of its own cluster."""
RESOURCE_IN_USE_FINALIZER: Final = "kueue.x-k8s.io/resource-in-use"
MANAGED_BY_MULTIKUEUE: Final = "kueue.x-k8s.io/multikueue"

WAIT_FOR_START: Final = "WaitForStart"
"""The reason of pods that have not been ready since their admission."""
WAIT_FOR_RECOVERY: Final = "WaitForRecovery"
"""The reason of pods that were."""
PENDING: Final = "Pending"
"""The reason of a slice that has no quota yet."""
WAITING_FOR_PREEMPTED: Final = "WaitingForPreemptedWorkloads"
"""The reason of a slice that waits for the workloads that were preempted for it."""
INADMISSIBLE: Final = "Inadmissible"
"""The reason of a slice that gets no quota before a user corrects something."""


class Condition(StrEnum):
    """The condition types of a Workload."""

    QUOTA_RESERVED = "QuotaReserved"
    ADMITTED = "Admitted"
    FINISHED = "Finished"
    EVICTED = "Evicted"
    REQUEUED = "Requeued"
    PREEMPTED = "Preempted"
    PODS_READY = "PodsReady"


class EvictionReason(StrEnum):
    """Why a Workload loses its quota."""

    CLUSTER_QUEUE_STOPPED = "ClusterQueueStopped"
    LOCAL_QUEUE_STOPPED = "LocalQueueStopped"
    DEACTIVATED = "Deactivated"
    PREEMPTED = "Preempted"
    CLUSTER_DRAINED = "WorkerClusterDrained"
    """Not Kueue's: the cluster is being drained."""
    CLUSTER_LOST = "WorkerClusterLost"
    """Not Kueue's: the cluster has been silent for too long."""
    NAMESPACE_LACKING = "WorkerClusterLacksNamespace"
    SCHEDULER_LACKING = "WorkerClusterLacksScheduler"
    """Not Kueue's: the cluster has refused the job, and takes none from its namespace."""
    REFUSED = "RefusedOnWorkerCluster"
    """Not Kueue's: the controller of its kind has refused the job there for too long."""
    PODS_EDITED = "PodsEdited"
    """Not Kueue's: somebody has edited its pods after it was admitted, and before its worker had any."""
    PODS_READY_TIMEOUT = "PodsReadyTimeout"
    EXECUTION_TIME = "DeactivatedDueToMaximumExecutionTimeExceeded"
    SUSPENDED = "SuspendedByUser"
    """Not Kueue's: somebody has set the job's `spec.suspend`."""
    BUDGET_SPENT = "BudgetSpent"
    """Not Kueue's: a budget is drained of which it spends."""


class PreemptionReason(StrEnum):
    """The rule that allowed a preemption."""

    IN_CLUSTER_QUEUE = "InClusterQueue"
    IN_COHORT_RECLAMATION = "InCohortReclamation"
    IN_COHORT_RECLAIM_WHILE_BORROWING = "InCohortReclaimWhileBorrowing"
    IN_COHORT_FAIR_SHARING = "InCohortFairSharing"
    OPPORTUNISTIC = "Opportunistic"
    """Ours: only pods go that nobody had asked for, whatever the policies."""


class CheckState(StrEnum):
    """The states of an admission check on a Workload."""

    PENDING = "Pending"
    READY = "Ready"
    RETRY = "Retry"
    REJECTED = "Rejected"


class FinishedReason(StrEnum):
    """Why a Workload is finished."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    OUT_OF_SYNC = "OutOfSync"
    SLICE_REPLACED = "WorkloadSliceReplaced"
