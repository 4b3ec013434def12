"""What the manager says to agents."""

from typing import ClassVar

import msgspec
from msgspec import UNSET, UnsetType

from slicebus.proto.messages.base import (
    Count,
    Counts,
    Direction,
    JobMessage,
    JobRef,
    Lane,
    Manifest,
    Message,
    counts_text,
)
from slicebus.proto.messages.up import RequestKey


class PodSetFlavor(msgspec.Struct, frozen=True):
    """Where the pods of one pod set may run: the admission's flavor, spelled out."""

    node_labels: dict[str, str] = msgspec.field(default_factory=dict)
    tolerations: list[Manifest] = msgspec.field(default_factory=list)


class WorkloadSpec(JobMessage, frozen=True, kw_only=True):
    """The admitted slice and its job. Creates both on the worker where they are missing; changes counts in place."""

    type: ClassVar[str] = "workload-spec"
    direction: ClassVar[Direction] = Direction.DOWN

    spec_version: Count
    """Grows with every change of what the worker shall hold for this job, over all its slices."""
    workload: Manifest
    """The manager's Workload, with its status."""
    manifest: Manifest
    """The manager's job, without its status. When its counts are others than the last time, they are taken over: so a
    resize that starts at the manager reaches the worker."""
    granted: Counts
    flavors: dict[str, PodSetFlavor] = msgspec.field(default_factory=dict)
    """By pod set."""
    answers: RequestKey | UnsetType = UNSET
    """The newest request that the manager knew. A later one that asked for less still holds the worker back. Not set
    by a manager that does not say: it is taken to know all."""

    def summary(self) -> str:
        """One line for people."""
        name = self.workload.get("metadata", {}).get("name", "")
        return f"{name}, granted {counts_text(self.granted)}, version {self.spec_version}"


class Relabel(JobMessage, frozen=True, kw_only=True):
    """The job moves from one slice to the next, and its pods may use the new counts."""

    type: ClassVar[str] = "relabel"
    direction: ClassVar[Direction] = Direction.DOWN

    spec_version: Count
    from_workload: str
    to_workload: str
    granted: Counts
    answers: RequestKey | UnsetType = UNSET
    """As in a `workload-spec`."""

    def summary(self) -> str:
        """One line for people."""
        moved = f"{self.from_workload} -> {self.to_workload}"
        return f"{moved}, granted {counts_text(self.granted)}, version {self.spec_version}"


class Suspend(JobMessage, frozen=True, kw_only=True):
    """The job has lost its quota: its pods go, its object stays. `applied` comes when no pod is left."""

    type: ClassVar[str] = "suspend"
    direction: ClassVar[Direction] = Direction.DOWN

    spec_version: Count
    workload: str | UnsetType = UNSET
    """The slice that the job names from now on. Not set by a manager that does not say: the one that it names."""
    reason: str = ""
    message: str = ""

    def summary(self) -> str:
        """One line for people."""
        return f"{self.reason}, version {self.spec_version}"


class Delete(JobMessage, frozen=True, kw_only=True):
    """The worker's objects of this job go. `spec_version` is the tombstone: an older spec never brings them back."""

    type: ClassVar[str] = "delete"
    direction: ClassVar[Direction] = Direction.DOWN

    spec_version: Count
    reason: str = ""

    def summary(self) -> str:
        """One line for people."""
        return f"{self.reason}, version {self.spec_version}"


class Pending(JobMessage, frozen=True, kw_only=True):
    """Why the request that the worker made waits. Shown as an Event on the worker's object."""

    type: ClassVar[str] = "pending"
    direction: ClassVar[Direction] = Direction.DOWN
    lane: ClassVar[Lane] = Lane.STATUS
    not_redriven: ClassVar[str] = "the manager says it when it changes"

    workload: str
    """The pending slice; empty where the request was refused and no slice was made."""
    worker_uid: str
    worker_generation: Count
    wanted: Counts
    reason: str
    """CamelCase: `Pending` (waits for quota), `Inadmissible`, `StructuralChange`."""
    message: str
    since: str
    would_admit: str = ""
    """What would let it in, in words."""

    def summary(self) -> str:
        """One line for people."""
        return f"{counts_text(self.wanted)} waits: {self.message}"


class Resync(Message, frozen=True, kw_only=True):
    """Asks the agent for its inventory, or where it names jobs, for their statuses only, and for the requests on them
    that no order has answered."""

    type: ClassVar[str] = "resync"
    direction: ClassVar[Direction] = Direction.DOWN
    lane: ClassVar[Lane] = Lane.STATUS
    not_redriven: ClassVar[str] = "the manager says it when it starts"

    reason: str = ""
    jobs: list[JobRef] = msgspec.field(default_factory=list)

    def summary(self) -> str:
        """One line for people."""
        return self.reason


class Flavor(msgspec.Struct, frozen=True):
    """A kind of nodes. A node is of the flavor when it has all of the labels, and no taint that would keep the flavor's
    pods away: each that does is among `taints`, or tolerated."""

    name: str
    node_labels: dict[str, str] = msgspec.field(default_factory=dict)
    taints: list[Manifest] = msgspec.field(default_factory=list)
    tolerations: list[Manifest] = msgspec.field(default_factory=list)


class Heard(msgspec.Struct, frozen=True):
    """A heartbeat that has arrived."""

    epoch: int
    said_s: float


class Terms(Message, frozen=True, kw_only=True):
    """What an agent goes by, whole. Sent in answer to a `hello`, to a `heartbeat` that goes by others, and with a fence
    to every `heartbeat`."""

    type: ClassVar[str] = "terms"
    direction: ClassVar[Direction] = Direction.DOWN
    not_redriven: ClassVar[str] = "the manager says it again with the next heartbeat"

    version: str
    """Another one for other terms. Says nothing of which are newer: the last that came are in force."""
    flavors: list[Flavor] = msgspec.field(default_factory=list)
    """What to report capacity and use by, beside the whole cluster."""
    fence_s: float | UnsetType = UNSET
    """Where it is set, the agent lets no pod start once so long has passed since it said the heartbeat that was heard
    last: by then the manager may give its jobs to another cluster. What runs goes on."""
    heard: Heard | UnsetType = UNSET
    """The heartbeat that this answers. Not set in answer to a `hello`, nor while the cluster has still to remove jobs
    that went elsewhere."""

    def summary(self) -> str:
        """One line for people."""
        return f"version {self.version}, {len(self.flavors)} flavors"
