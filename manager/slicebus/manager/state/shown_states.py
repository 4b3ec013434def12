"""The states of a job, for everybody who shows jobs. `shown_state` of the decisions says which one a job is in."""

from enum import StrEnum


class ShownState(StrEnum):
    """Where a job stands. `Unknown` is none of the others: nobody can tell now."""

    UNMANAGED = "Unmanaged"
    """slicebus leaves it alone: something is missing on it."""
    REFUSED = "Refused"
    """It cannot be taken as it is."""
    SUSPENDED = "Suspended"
    """Its user has suspended it."""
    PENDING = "Pending"
    """It has no quota, and waits for some."""
    EVICTING = "Evicting"
    """It has lost its quota, and its pods are ending."""
    ADMITTED = "Admitted"
    """It has quota, and no pod of it is ready yet."""
    RUNNING = "Running"
    """It has quota for the size that it wants, and pods of it are ready."""
    RESIZING = "Resizing"
    """It runs, and waits for another size."""
    UNKNOWN = "Unknown"
    """It has quota, and nobody knows what its pods do: its cluster is silent, or its copy may have ended there."""
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    DELETING = "Deleting"
    """It is deleted, and something of it is left."""

    @property
    def is_over(self) -> bool:
        """Whether nothing else follows."""
        return self in (ShownState.SUCCEEDED, ShownState.FAILED, ShownState.DELETING)

    @property
    def has_quota(self) -> bool:
        """Whether the job holds quota, and nothing takes it away."""
        return self in (ShownState.ADMITTED, ShownState.RUNNING, ShownState.RESIZING, ShownState.UNKNOWN)
