"""The messages from the manager to agents."""

from typing import Annotated, ClassVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from slicebus.proto.messages.base import (
    Counts,
    Direction,
    JobMessage,
    JobRef,
    Lane,
    Manifest,
    Message,
    OptionalReason,
    PodSetName,
    Reason,
    Seconds,
    Time,
    Version,
    counts_text,
)
from slicebus.proto.messages.up import RequestKey


class PodSetFlavor(msgspec.Struct, frozen=True):
    """Where the pods of one pod set may run: the nodes of the admitted flavor."""

    node_labels: dict[str, str] = msgspec.field(default_factory=dict)
    tolerations: list[Manifest] = msgspec.field(default_factory=list)


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """The time between the word that a job loses pods and the deed."""

    id: str
    """Another one for each word to the job."""
    notice_s: Seconds
    """From the moment on at which the agent has it: no clock of the manager counts on the worker."""
    why: str = ""
    beneficiaries: list[str] = msgspec.field(default_factory=list)
    """The slices that get the quota, as `namespace/name`, as far as they are known."""


class WorkloadSpec(JobMessage, frozen=True, kw_only=True):
    """The admitted slice and its job. Creates both on the worker where they are missing; changes counts in place."""

    type: ClassVar[str] = "workload-spec"
    direction: ClassVar[Direction] = Direction.DOWN

    spec_version: Version
    """Grows with every change of what the worker has to hold for this job, across its slices."""
    workload: Manifest
    """The manager's Workload, with its status."""
    manifest: Manifest
    """The manager's job, without its status. The worker applies its counts when they have changed since the last spec,
    so a resize that starts at the manager reaches the worker."""
    granted: Counts
    flavors: dict[PodSetName, PodSetFlavor] = msgspec.field(default_factory=dict)
    """Where the pods may run, by pod set."""
    answers: RequestKey = RequestKey()
    """The newest size request that the manager knew. A later request for less still limits the worker."""
    resized_because: str | UnsetType = UNSET
    """Why the manager has set the counts of the manifest itself, where no user has: an Event where they are applied."""
    taken_back: str | UnsetType = UNSET
    """Identifies the scale-up that the manager has taken back with these counts, or its word that others take pods. The
    worker applies the counts once for each, also where they are those of the last spec: it may have grown from
    these."""
    resized_reason: Annotated[str, Meta(max_length=64)] | UnsetType = UNSET
    """The reason of that Event where pods were taken back for others, or are given back: `Reclaimed`, `Restored`. The
    size is then only ever lowered for another `taken_back`. For the same one it is applied where nobody has resized the
    job on the worker since, and the worker's requests name it (`follows`). `Grown`: the job is given more than somebody
    asked for; for another `taken_back` the size stays as it is."""
    notice: Notice | UnsetType = UNSET
    """Set where the job is told of its smaller size before it gets it. An order without one withdraws it."""
    waits_for: Counts | UnsetType = UNSET
    """The size that a job waits to have again which loses pods to others; it shows that it waits."""

    def summary(self) -> str:
        """One line for people."""
        name = self.workload.get("metadata", {}).get("name", "")
        return f"{name}, granted {counts_text(self.granted)}, version {self.spec_version}"


class Relabel(JobMessage, frozen=True, kw_only=True):
    """Moves the job from one slice to the next. Its pods may use the new counts."""

    type: ClassVar[str] = "relabel"
    direction: ClassVar[Direction] = Direction.DOWN

    spec_version: Version
    from_workload: str
    to_workload: str
    granted: Counts
    answers: RequestKey = RequestKey()
    """As in a `workload-spec`."""

    def summary(self) -> str:
        """One line for people."""
        moved = f"{self.from_workload} -> {self.to_workload}"
        return f"{moved}, granted {counts_text(self.granted)}, version {self.spec_version}"


class Suspend(JobMessage, frozen=True, kw_only=True):
    """Suspends a job that lost its quota: its pods go, its object stays. `applied` follows when no pod is left. Of a
    kind that cannot be suspended it follows when its notice is over: the manager deletes it then."""

    type: ClassVar[str] = "suspend"
    direction: ClassVar[Direction] = Direction.DOWN

    spec_version: Version
    workload: str
    """The slice that the job names from now on."""
    reason: OptionalReason = ""
    message: str = ""
    notice: Notice | UnsetType = UNSET
    """Set where the job is told before it is suspended."""
    deleted_after: bool | UnsetType = UNSET
    """Set where the kind cannot be suspended, as far as the manager knows: it waits for the delete after this order."""

    def summary(self) -> str:
        """One line for people."""
        return f"{self.reason}, version {self.spec_version}"


class Delete(JobMessage, frozen=True, kw_only=True):
    """Deletes the worker's objects of this job. `spec_version` is the tombstone: no older spec creates them again."""

    type: ClassVar[str] = "delete"
    direction: ClassVar[Direction] = Direction.DOWN

    spec_version: Version
    reason: str = ""

    def summary(self) -> str:
        """One line for people."""
        return f"{self.reason}, version {self.spec_version}"


class Pending(JobMessage, frozen=True, kw_only=True):
    """Why the worker's size request waits. The agent shows it as an Event on the worker's object."""

    type: ClassVar[str] = "pending"
    direction: ClassVar[Direction] = Direction.DOWN
    lane: ClassVar[Lane] = Lane.STATUS
    not_redriven: ClassVar[str] = "the manager says it when it changes"

    workload: str
    """The pending slice; empty where the request was refused and no slice was made."""
    worker_uid: str
    worker_generation: Version
    wanted: Counts
    reason: Reason
    """CamelCase: `Pending` (waits for quota), `Inadmissible`, `StructuralChange`."""
    message: str
    since: Time
    would_admit: str = ""
    """What would admit it, in words."""

    def summary(self) -> str:
        """One line for people."""
        return f"{counts_text(self.wanted)} waits: {self.message}"


class Resync(Message, frozen=True, kw_only=True):
    """Asks the agent for its inventory; where it names jobs, only for their statuses and their unanswered size
    requests."""

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
    """A kind of nodes. A node belongs to the flavor when it has all of its labels, and each of its taints that keeps
    pods away is among `taints` or tolerated."""

    name: str
    node_labels: dict[str, str] = msgspec.field(default_factory=dict)
    taints: list[Manifest] = msgspec.field(default_factory=list)
    tolerations: list[Manifest] = msgspec.field(default_factory=list)


class Heard(msgspec.Struct, frozen=True):
    """A heartbeat that the manager received."""

    epoch: Version
    said_s: Seconds


class Terms(Message, frozen=True, kw_only=True):
    """The complete terms of an agent. The manager sends them in answer to a `hello`, to a `heartbeat` with other terms,
    and, with a fence, to every `heartbeat`."""

    type: ClassVar[str] = "terms"
    direction: ClassVar[Direction] = Direction.DOWN
    not_redriven: ClassVar[str] = "the manager says it again with the next heartbeat"

    version: str
    """Identifies the terms, and does not order them: the last ones received are in force."""
    flavors: list[Flavor] = msgspec.field(default_factory=list)
    """The flavors to report capacity and use for, beside the whole cluster."""
    fence_s: Seconds | UnsetType = UNSET
    """If set, the agent starts no pod when its last heard heartbeat is older than this: the manager may have moved its
    jobs to another cluster by then. Running pods run on."""
    namespaces: list[str] | UnsetType = UNSET
    """The namespaces that jobs may come from. The agent says in its heartbeats which of them take no jobs on its
    cluster. Not set where a Kueue admits."""
    heard: Heard | UnsetType = UNSET
    """The heartbeat that this answers. Not set in answer to a `hello`, nor while the cluster still has to remove jobs
    that were moved elsewhere."""

    def summary(self) -> str:
        """One line for people."""
        return f"version {self.version}, {len(self.flavors)} flavors"
