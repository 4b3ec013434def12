"""The annotations that the manager keeps on its own objects: the worker's size request. For the outbox see `outbox`."""

from typing import Any, Self

import msgspec

from slicebus.proto.envelope import MessageId
from slicebus.proto.messages import Counts, JobRef, Manifest, RequestKey
from slicebus.slices.api import api_names
from slicebus.slices.api.annotation_values import read_json
from slicebus.slices.api.fingerprints import content_hash
from slicebus.slices.jobs import KINDS, JobKind


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
    """The value of an annotation; None where it is not set."""
    value: str | None = manifest["metadata"].get("annotations", {}).get(name)
    return value


def as_copied(job: Manifest) -> Manifest:
    """A job with the fields that only its worker's copy may have: the Ray autoscaler that an annotation turns on."""
    is_autoscaled = annotation(job, api_names.IN_TREE_AUTOSCALING_ANNOTATION) == "true"
    return KINDS[job["kind"]].autoscaled(job) if is_autoscaled else job


def reported_status(job: Manifest) -> Manifest:
    """The status that the worker has reported: what the manager's job shows, and the fields that it cannot show."""
    unshown = read_json(annotation(job, api_names.UNSHOWN_ANNOTATION), _UNSHOWN) or {}
    return {name: value for name, value in (job.get("status", {}) | unshown).items() if value is not None}


_NO_MESSAGE = MessageId("")


class TakenBack(msgspec.Struct, frozen=True):
    """A scale-up whose pods did not get ready, and that the manager has overruled by the size before it."""

    counts: Counts
    """That size."""
    request: RequestKey
    """The newest request by then: any later one counts again. Empty where no worker has asked."""
    at: str
    """RFC 3339."""
    message: str

    @property
    def id(self) -> str:
        """A hash that tells scale-ups apart that were taken back."""
        return content_hash(self)


class SizeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The size that a worker asked for last, on the manager's job."""

    counts: Counts
    """The size asked for. Where none is: the size that the worker's present copy began with; empty where that is the
    slice's."""
    worker_uid: str
    worker_generation: int
    baseline: Counts
    """The counts of the manager's own spec at that time. An edit of them counts as newer than the request."""
    correlation: MessageId
    speaker: str = ""
    epoch: int = 0
    sequence: int = 0
    """With the epoch, the order of one speaker's requests about different worker objects: a RayJob that starts anew has
    another RayCluster, whose generations begin at 1."""
    granted: Counts = {}
    """What the worker's pods could use at that time: less than was granted where an earlier request was for less."""
    finished: Counts = {}
    """Pods that have ended for good by then."""
    written: Counts | msgspec.UnsetType = msgspec.UNSET
    """The counts that the manager has written into the job's own spec for the worker, where a Kueue admits."""
    own: Counts | msgspec.UnsetType = msgspec.UNSET
    """The counts that its user had there before."""
    taken_back: TakenBack | msgspec.UnsetType = msgspec.UNSET
    """The last scale-up that was taken back, while `baseline` stays the same: on the worker, its size took the place of
    the baseline."""

    @classmethod
    def nothing(cls) -> Self:
        """An empty request, for a job whose worker has made none."""
        return cls(counts={}, worker_uid="", worker_generation=0, baseline={}, correlation=_NO_MESSAGE)

    @classmethod
    def none_before(
        cls, published_at: tuple[int, int], *, speaker: str, last: Self | None, begins_with: Counts | None = None
    ) -> Self:
        """An empty request: nothing that the speaker published before this epoch and sequence counts any more.

        `begins_with`: the size of the copy that is made anew, as in `counts`; None where none is. What was written
        into the job's spec for the last request stays known.
        """
        epoch, sequence = published_at
        return cls(
            counts=begins_with or {},
            worker_uid="",
            worker_generation=0,
            baseline={},
            correlation=_NO_MESSAGE,
            speaker=speaker,
            epoch=epoch,
            sequence=sequence,
            written=last.written if last else msgspec.UNSET,
            own=last.own if last else msgspec.UNSET,
        )

    def cleared(self) -> Self:
        """This request without its size. No older request counts any more."""
        return msgspec.structs.replace(
            self,
            counts={},
            worker_uid="",
            worker_generation=0,
            baseline={},
            granted={},
            finished={},
            taken_back=msgspec.UNSET,
        )

    @property
    def asks_for_size(self) -> bool:
        """Whether it asks for a size. False after an eviction until the worker asks again."""
        return bool(self.worker_uid)

    @property
    def key(self) -> RequestKey:
        """The key of the request in messages."""
        return RequestKey(self.worker_uid, self.worker_generation)

    def to_annotation(self) -> str:
        """The annotation's value, as The annotation's value, as JSON."""
        return msgspec.json.encode(self).decode()

    def is_since(self, published_at: tuple[int, int], *, speaker: str) -> bool:
        """Whether the speaker made the request, or was told to count none, not before this epoch and sequence."""
        return self.speaker == speaker and (self.epoch, self.sequence) >= published_at

    def is_older_than(self, request: RequestKey, *, speaker: str, published_at: tuple[int, int]) -> bool:
        """Whether another request is newer. Requests of one worker object are ordered by its generation.

        `published_at` is the epoch and sequence of a message of the speaker that named the other request.
        """
        if self.worker_uid == request.worker_uid:
            return self.worker_generation < request.worker_generation
        return self.speaker != speaker or (self.epoch, self.sequence) < published_at

    @staticmethod
    def from_job(job: Manifest) -> "SizeRequest | None":
        """The request on a job; None where there is none, or where it is unreadable."""
        return read_json(annotation(job, api_names.REQUESTED_ANNOTATION), _SIZE_REQUEST)


class DesiredSize(msgspec.Struct, frozen=True, kw_only=True):
    """The size that a job shall have."""

    counts: Counts
    name_seed: str
    """Makes the name of a slice for this size differ from earlier ones."""
    correlation: MessageId | None
    """The message id of the worker's request; None where the size is that of the manager's own spec."""
    own: Counts
    """The counts of the manager's spec; its user's where the manager has written others there for the worker."""
    requested: SizeRequest | None
    """The worker's last request, also where a newer edit of the spec overrides it."""
    finished: Counts = {}
    """Pods that have ended for good, which `counts` leaves out."""
    taken_back: TakenBack | None = None
    """The last scale-up that was taken back, and that no edit of the spec has overridden."""
    kept: Counts | None = None
    """The counts that a job of a fixed size was started with."""

    @property
    def sent(self) -> Counts:
        """The counts that the worker's job gets for those of the manager's spec."""
        if self.kept is not None:
            return self.kept
        return self.taken_back.counts if self.taken_back is not None else self.own

    @property
    def spec_counts(self) -> Counts:
        """The counts of the spec that the worker's job has."""
        return {name: count + self.finished.get(name, 0) for name, count in self.counts.items()}


def desired_size_of(job: Manifest, kind: JobKind) -> DesiredSize:
    """The desired size: the worker's last request, unless the manager's own spec was edited since."""
    requested, own = SizeRequest.from_job(job), kind.counts(job, job)
    if requested is not None and requested.own is not msgspec.UNSET and requested.written == own:
        own = requested.own
    generation = job["metadata"].get("generation", 1)
    if requested is None or requested.baseline != own:
        return DesiredSize(counts=own, name_seed=str(generation), correlation=None, own=own, requested=requested)
    seed = f"{generation}_{requested.worker_uid}-{requested.worker_generation}"
    taken = requested.taken_back or None
    is_overruled = taken is not None and taken.request == requested.key
    return DesiredSize(
        counts=taken.counts if taken is not None and is_overruled else requested.counts,
        name_seed=seed,
        correlation=requested.correlation or None,
        own=own,
        requested=requested,
        finished={} if is_overruled else requested.finished,
        taken_back=taken,
    )


_UNSHOWN = msgspec.json.Decoder(dict[str, Any])
_SIZE_REQUEST = msgspec.json.Decoder(SizeRequest)
