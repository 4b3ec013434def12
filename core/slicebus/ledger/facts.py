"""Defines the facts of the ledger: what a journal says of use. Times are Unix time in milliseconds.

Each fact has a key. A fact that comes again under its key is the same one, told anew: a grant that begins comes without
an end, and once more with it.
"""

import msgspec


class LedgerAccount(msgspec.Struct, frozen=True):
    """What use is counted under."""

    queue: str = ""
    """The ClusterQueue."""
    namespace: str = ""
    cluster: str = ""
    flavor: str = ""
    """The flavors of one pod, joined by `+` where its resources have several; empty while nothing is granted."""
    priority: str = ""
    """The priority class, or the number where there is none."""
    user: str = ""
    """Of the job's label that names its user; empty without one."""
    requests: str = "{}"
    """JSON: what one pod was admitted with, in cores, bytes or pieces by resource."""


class JobFact(msgspec.Struct, frozen=True, kw_only=True):
    """A job that has slices. Its key is the UID."""

    uid: str
    kind: str
    namespace: str
    name: str
    user: str


class SliceFact(msgspec.Struct, frozen=True, kw_only=True):
    """One slice of a job. Its key is the UID."""

    uid: str
    job_uid: str
    namespace: str
    name: str
    gone_ms: int | None = None
    """When it was deleted; None while it is there."""


class GrantFact(msgspec.Struct, frozen=True, kw_only=True):
    """So many pods of one pod set held quota, and so many of them were ready, for one interval. Its key is the slice,
    the pod set and the beginning."""

    slice_uid: str
    pod_set: str
    since_ms: int
    until_ms: int | None = None
    """None while it goes on."""
    pods: int
    ready: int
    """As the worker has last reported."""
    account: LedgerAccount


class WaitFact(msgspec.Struct, frozen=True, kw_only=True):
    """A slice waited for quota for one reason. Its key is the slice and the beginning."""

    slice_uid: str
    since_ms: int
    until_ms: int | None = None
    reason: str
    """Of the condition `QuotaReserved`: `Pending`, `Inadmissible`."""
    message: str
    """The last message of that condition."""
    admitted: bool = False
    """Whether it ended with quota."""
    account: LedgerAccount


class KillFact(msgspec.Struct, frozen=True, kw_only=True):
    """Pods of one pod set lost their quota before their job had ended. Its key is the slice, the pod set and the
    time."""

    slice_uid: str
    pod_set: str
    at_ms: int
    pods: int
    reason: str
    """Of the eviction, such as `Preempted`; `Reclaimed` where the job keeps other pods."""
    message: str
    for_uid: str = ""
    """The UID of the Workload that got the quota, in a preemption."""
    account: LedgerAccount


class ResizeFact(msgspec.Struct, frozen=True, kw_only=True):
    """A job that runs was given another size. Its key is the slice, the pod set and the time."""

    slice_uid: str
    """The slice that has the new size."""
    pod_set: str
    at_ms: int
    before: int
    after: int


class UnknownSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A span of which the journal does not say everything. Its key is the span and the reason."""

    since_ms: int
    until_ms: int
    reason: str
    pod_ms: int
    """The most that is missing in the grants: pods times milliseconds."""


class SpecFact(msgspec.Struct, frozen=True, kw_only=True):
    """What a slice asks for from a moment on. Its key is the slice and the moment."""

    slice_uid: str
    at_ms: int
    document: str
    """JSON, by `specs.spec_text`."""
    templates: str
    """JSON, by `specs.templates_text`."""


class PolicyFact(msgspec.Struct, frozen=True, kw_only=True):
    """A queue, a flavor, a cluster, or a setting of the manager, as it is from a moment on. Its key is the object and
    the moment."""

    resource: str
    """As a recording names it: `clusterqueues.kueue.x-k8s.io`."""
    namespace: str
    name: str
    at_ms: int
    document: str
    """JSON, by `specs.policy_text`; empty where it is there no longer."""


Fact = JobFact | SliceFact | GrantFact | WaitFact | KillFact | ResizeFact | UnknownSpan | SpecFact | PolicyFact
