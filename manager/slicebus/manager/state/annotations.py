"""What the manager remembers on its own objects, as annotations: the wish of a worker, and the outbox of each slice."""

from typing import Any, Literal, Self

import msgspec

from slicebus.proto.envelope import Envelope, MessageId
from slicebus.proto.messages import Counts, JobRef, Manifest, RequestKey
from slicebus.slices import kueue
from slicebus.slices.annotations import read_json, read_number
from slicebus.slices.jobs import JobKind

LOST = "lost"
"""The hash of a dispatch that the worker does not hold as it has reported: what shall be there is dispatched anew."""

NO_REQUEST = RequestKey()


def job_ref(job: Manifest) -> JobRef:
    """The reference of a manager's job."""
    metadata = job["metadata"]
    return JobRef(
        api_version=job["apiVersion"],
        kind=job["kind"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
    )


def annotation(manifest: Manifest, name: str) -> str | None:
    """An annotation's value."""
    value: str | None = manifest["metadata"].get("annotations", {}).get(name)
    return value


def reported_status(job: Manifest) -> Manifest:
    """The status that the worker has reported: what the manager's job shows, but for what it cannot show."""
    unshown = read_json(annotation(job, kueue.UNSHOWN_ANNOTATION), _UNSHOWN) or {}
    return {name: value for name, value in (job.get("status", {}) | unshown).items() if value is not None}


class SizeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The size that a worker asked for last, on the manager's job."""

    counts: Counts
    worker_uid: str
    worker_generation: int
    baseline: Counts
    """The counts of the manager's own spec at that time. When somebody edits them, that edit is the newer wish."""
    correlation: MessageId
    speaker: str = ""
    epoch: int = 0
    sequence: int = 0
    """With the epoch, the order of one speaker's requests about different worker objects: a RayJob that starts anew has
    another RayCluster, whose generations begin at 1."""
    granted: Counts = {}
    """What the worker's pods could use when the wish came up: less than was granted where an earlier wish was less."""
    written: Counts | msgspec.UnsetType = msgspec.UNSET
    """The counts that the manager has put into the job's own spec on behalf of the worker, for a Kueue beside it,"""
    own: Counts | msgspec.UnsetType = msgspec.UNSET
    """and those that its user had there."""

    @classmethod
    def none_before(cls, envelope: Envelope) -> Self:
        """No wish, and of what the cluster had published before this message nothing counts any more."""
        return cls(
            counts={},
            worker_uid="",
            worker_generation=0,
            baseline={},
            correlation=envelope.correlation_id,
            speaker=envelope.speaker,
            epoch=envelope.epoch,
            sequence=envelope.sequence,
        )

    def cleared(self) -> Self:
        """No wish, and nothing older than this one counts any more."""
        return msgspec.structs.replace(self, counts={}, worker_uid="", worker_generation=0, baseline={}, granted={})

    @property
    def asks_for_size(self) -> bool:
        """Whether it asks for a size; False from when the job was evicted until its worker asks again."""
        return bool(self.worker_uid)

    @property
    def key(self) -> RequestKey:
        """Which request it is."""
        return RequestKey(self.worker_uid, self.worker_generation)

    def to_annotation(self) -> str:
        """JSON."""
        return msgspec.json.encode(self).decode()

    def is_of(self, envelope: Envelope) -> bool:
        """Whether it came from the sender of a message."""
        return self.speaker == envelope.speaker

    def is_older_than(self, request: RequestKey, *, speaker: str, published_at: tuple[int, int]) -> bool:
        """Whether a speaker's request is newer than this one; of one worker object its generation says so.

        `published_at` is the epoch and sequence of a message that told of it.
        """
        if self.worker_uid == request.worker_uid:
            return self.worker_generation < request.worker_generation
        return self.speaker != speaker or (self.epoch, self.sequence) < published_at

    @staticmethod
    def from_job(job: Manifest) -> "SizeRequest | None":
        """The record on a job; None where there is none, or where somebody has made it unreadable."""
        return read_json(annotation(job, kueue.REQUESTED_ANNOTATION), _SIZE_REQUEST)


class DesiredSize(msgspec.Struct, frozen=True, kw_only=True):
    """The size that a job shall have."""

    counts: Counts
    name_seed: str
    """What makes the name of a slice for this wish differ from those before it."""
    correlation: MessageId | None
    """Of the worker's request; None where the manager's own spec says the size."""
    own: Counts
    """The counts that the manager's spec has, or had before any were written there on behalf of the worker."""
    requested: SizeRequest | None
    """What the worker asked for last, whether it is the newest wish or not."""


def desired_size_of(job: Manifest, kind: JobKind) -> DesiredSize:
    """The newest wish: the worker's last request, unless the manager's own spec was edited since."""
    requested, own = SizeRequest.from_job(job), kind.counts(job, job)
    if requested is not None and requested.own is not msgspec.UNSET and requested.written == own:
        own = requested.own
    generation = job["metadata"].get("generation", 1)
    if requested is None or requested.baseline != own:
        return DesiredSize(counts=own, name_seed=str(generation), correlation=None, own=own, requested=requested)
    seed = f"{generation}_{requested.worker_uid}-{requested.worker_generation}"
    return DesiredSize(
        counts=requested.counts, name_seed=seed, correlation=requested.correlation, own=own, requested=requested
    )


class Dispatch(msgspec.Struct, frozen=True):
    """What a worker shall hold for a job: a version that only grows, and the hash of the content."""

    version: int
    hash: str
    answers: RequestKey = NO_REQUEST
    """The newest request that was known when it was written."""
    cluster: str = ""
    """Who was told; empty where that was not written down, and is where the chain was admitted."""
    place: str = ""
    """A hash of the flavors that the worker's copy was made for: its templates have their node labels."""
    suspended: bool = False
    """Whether the worker shall hold the job without pods."""
    previous_cluster: str = msgspec.field(default="", name="left")
    """The cluster that had been told before it was another. What comes from there is late."""
    since: int | msgspec.UnsetType = msgspec.UNSET
    """The first version after one that let the worker run nothing: what it said of an older one is of another run."""
    left_copies: dict[str, int] = msgspec.field(default_factory=dict, name="behind")
    """The clusters that were given up and may still have a copy, with the version that removes it."""
    unknown_end: bool | msgspec.UnsetType = msgspec.UNSET
    """Whether the worker's copy is gone, and may have ended before that. Until the job has given its quota back."""
    vanished: Literal[True] | msgspec.UnsetType = msgspec.UNSET
    """Whether the worker has reported that its copy is gone, and nobody had ordered that. The next dispatch says anew
    what it shall hold."""

    @property
    def has_vanished(self) -> bool:
        """As `vanished` says."""
        return self.vanished is True

    def is_of_this_run(self, version: int) -> bool:
        """Whether what the worker says of a version is of the run that it was told of last."""
        return self.since is msgspec.UNSET or version >= self.since

    def to_annotation(self) -> str:
        """JSON."""
        return msgspec.json.encode(self).decode()

    @staticmethod
    def from_manifest(manifest: Manifest) -> "Dispatch | None":
        """The record on a Workload or a job; None where there is none or it is unreadable."""
        return read_json(annotation(manifest, kueue.DISPATCHED_ANNOTATION), _DISPATCH)


_UNSHOWN = msgspec.json.Decoder(dict[str, Any])
_SIZE_REQUEST = msgspec.json.Decoder(SizeRequest)
_DISPATCH = msgspec.json.Decoder(Dispatch)


def applied_version(manifest: Manifest) -> int:
    """The version that the worker has reported, on the object that has the dispatch; 0 before the first."""
    return read_number(annotation(manifest, kueue.APPLIED_ANNOTATION))
