"""The annotations that the manager keeps on its own objects: the worker's size request. For the outbox see `outbox`.

A job's users may write its annotations, but not those of its Workloads. So what decides about quota is read from the
Workloads (docs/decisions/0068).
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Self

import msgspec

from slicebus.proto.envelope import Envelope, MessageId
from slicebus.proto.messages import Counts, JobRef, Manifest, RequestKey, Version
from slicebus.slices.api import api_names
from slicebus.slices.api.annotation_values import read_json
from slicebus.slices.api.conditions import conditions_of
from slicebus.slices.api.fingerprints import content_hash
from slicebus.slices.jobs import KINDS, JobKind
from slicebus.slices.jobs.copies import MOST_PODS
from slicebus.slices.workload.reclaimed import Reclaimed


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


def correlation_of(envelope: Envelope) -> MessageId:
    """The chain of a message as a Workload keeps it: that of its own id where it is no text of the length of such an
    id. A header may have four times as many characters, and of any kind."""
    chain = envelope.correlation_id
    return chain if len(chain) <= _MOST_CORRELATION and re.match(_PRINTABLE, chain) else envelope.id


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
    status = job.get("status", {})
    if own := own_conditions(job):
        others = [entry for entry in status["conditions"] if entry not in own]
        status = status | {"conditions": others or None}
    return {name: value for name, value in (status | unshown).items() if value is not None}


def own_conditions(job: Manifest) -> list[Manifest]:
    """The conditions of a job that the manager has set beside those that its worker reports."""
    return [entry for entry in conditions_of(job) if entry.get("type") == api_names.RUNS_CONDITION]


_NO_MESSAGE = MessageId("")


class TakenBack(msgspec.Struct, frozen=True):
    """A request that the manager has overruled by a smaller size: pods of a scale-up did not get ready, or others took
    pods back."""

    counts: Counts
    """That size."""
    request: RequestKey
    """The newest request by then: any later one counts again. Empty where no worker has asked."""
    at: str
    """RFC 3339."""
    message: str
    note: str | msgspec.UnsetType = msgspec.UNSET
    """The id of the note on the Workload, where others took pods back (`reclaims`). The size then follows the note."""
    finished: Counts | msgspec.UnsetType = msgspec.UNSET
    """Of that size, the pods that had ended for good. Unset where they do not count in a job's size."""

    @property
    def left(self) -> Counts:
        """That size without the pods that had ended for good."""
        ended = self.finished or {}
        return {name: count - ended.get(name, 0) for name, count in self.counts.items()}

    @property
    def counts_ended(self) -> bool:
        """Whether pods that have ended for good count in the job's size."""
        return self.finished is not msgspec.UNSET

    @property
    def id(self) -> str:
        """A hash that tells apart what was taken back."""
        return self.note or content_hash(self)


_MOST_CORRELATION, _PRINTABLE = 64, r"^[\x20-\x7e]*(?!\n)$"


class SizeRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The size that a worker asked for last, on a Workload of the manager's job."""

    counts: Counts = {}
    """The size asked for. Where none is: the size that the worker's present copy began with; empty where that is the
    slice's."""
    worker_uid: str = ""
    worker_generation: Version = 0
    baseline: Counts = {}
    """The counts of the manager's own spec at that time. An edit of them counts as newer than the request."""
    correlation: Annotated[MessageId, msgspec.Meta(max_length=_MOST_CORRELATION, pattern=_PRINTABLE)] = _NO_MESSAGE
    """The id of a message, or empty."""
    revision: Version = 0
    """Counts the writes: of several on the Workloads of a job, the highest counts."""
    speaker: str = ""
    epoch: Version = 0
    sequence: Version = 0
    """With the epoch, the order of one speaker's requests about different worker objects: a RayJob that starts anew has
    another RayCluster, whose generations begin at 1."""
    granted: Counts = {}
    """What the worker's pods could use at that time: less than was granted where an earlier request was for less."""
    finished: Counts = {}
    """Pods that have ended for good by then."""
    taken_back: TakenBack | msgspec.UnsetType = msgspec.UNSET
    """The last size by which a request was overruled, while `baseline` stays the same: on the worker, it took the place
    of the baseline."""
    follows: str = ""
    """The id of the note on the Workload that the request carries out: nobody else has resized the job on its worker
    since."""

    @classmethod
    def nothing(cls) -> Self:
        """An empty request, for a job whose worker has made none."""
        return cls()

    @classmethod
    def none_before(cls, published_at: tuple[int, int], *, speaker: str, begins_with: Counts | None = None) -> Self:
        """An empty request: nothing that the speaker published before this epoch and sequence counts any more.

        `begins_with`: the size of the copy that is made anew, as in `counts`; None where none is.
        """
        epoch, sequence = published_at
        return cls(counts=begins_with or {}, speaker=speaker, epoch=epoch, sequence=sequence)

    def cleared(self) -> Self:
        """This request without its size. No older request counts any more."""
        return type(self)(
            correlation=self.correlation,
            revision=self.revision,
            speaker=self.speaker,
            epoch=self.epoch,
            sequence=self.sequence,
        )

    @property
    def asks_for_size(self) -> bool:
        """Whether it asks for a size. False after an eviction until the worker asks again."""
        return bool(self.worker_uid)

    @property
    def key(self) -> RequestKey:
        """The key of the request in messages."""
        return RequestKey(self.worker_uid, self.worker_generation)

    def is_of_size(self, size: Counts) -> bool:
        """Whether the worker's job had this size, of which it asked for what had not ended for good."""
        left = {name: count - self.finished.get(name, 0) for name, count in size.items()}
        return any(self.finished.values()) and left == self.counts

    @property
    def size(self) -> Counts:
        """The size that the worker's job had."""
        return with_ended(self.counts, self.finished)

    def to_annotation(self) -> str:
        """The annotation's value, as JSON."""
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
    def from_manifest(manifest: Manifest) -> "SizeRequest | None":
        """The request on a Workload; None where there is none, or where it is unreadable."""
        return read_json(annotation(manifest, api_names.REQUESTED_ANNOTATION), _SIZE_REQUEST)


class SpecCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What the manager has written into a job's spec for its worker, where a Kueue admits."""

    written: Counts
    """The counts that it has written."""
    own: Counts
    """The counts that its user had there before."""

    def to_annotation(self) -> str:
        """The annotation's value, as JSON."""
        return msgspec.json.encode(self).decode()

    @staticmethod
    def from_job(job: Manifest) -> "SpecCounts | None":
        """What is noted on a job; None where there is nothing, or where it is unreadable."""
        return read_json(annotation(job, api_names.SPEC_COUNTS_ANNOTATION), _SPEC_COUNTS)


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
    """The last size by which a request was overruled, and that no edit of the spec has overridden."""
    kept: Counts | None = None
    """The counts that a job of a fixed size was started with."""
    reclaimed: Reclaimed | None = None
    """The note that others took pods back, while nobody has resized the job since; done as soon as they are gone."""

    @property
    def sent(self) -> Counts:
        """The counts that the worker's job gets for those of the manager's spec."""
        if self.kept is not None:
            return self.kept
        return self.taken_back.counts if self.taken_back is not None else self.own

    @property
    def spec_counts(self) -> Counts:
        """The counts of the spec that the worker's job has."""
        return with_ended(self.counts, self.finished)


def with_ended(left: Counts, ended: Counts) -> Counts:
    """The size of a job with so many pods left: those that have ended for good count in it."""
    return {name: count + ended.get(name, 0) for name, count in left.items()}


def own_counts(job: Manifest, kind: JobKind) -> Counts:
    """The counts that the job's user has put into its spec."""
    present, noted = kind.counts(job, job), SpecCounts.from_job(job)
    if noted is None or noted.written != present or noted.own.keys() != present.keys():
        return present
    return noted.own if all(0 <= count <= MOST_PODS for count in noted.own.values()) else present


def desired_size_of(job: Manifest, own: Counts, requested: SizeRequest | None) -> DesiredSize:
    """The desired size: the worker's last request, unless the user's own counts were edited since.

    An edit to the size that the worker's job has, of which some pods have ended for good, changes nothing there, and no
    request would say again that these do not come back.
    """
    generation = job["metadata"].get("generation", 1)
    if requested is None or (requested.baseline != own and not requested.is_of_size(own)):
        return DesiredSize(counts=own, name_seed=str(generation), correlation=None, own=own, requested=requested)
    seed = f"{generation}_{requested.worker_uid}-{requested.worker_generation}"
    taken = (requested.taken_back or None) if requested.baseline == own else None
    is_overruled = taken is not None and taken.request == requested.key
    return DesiredSize(
        counts=taken.left if taken is not None and is_overruled else requested.counts,
        name_seed=seed,
        correlation=requested.correlation or None,
        own=own,
        requested=requested,
        finished={} if taken is not None and is_overruled and not taken.counts_ended else requested.finished,
        taken_back=taken,
    )


def size_requests_of(workloads: Mapping[str, Manifest]) -> dict[str, SizeRequest]:
    """The size requests on a job's Workloads, by the names of these."""
    read = {name: SizeRequest.from_manifest(workload) for name, workload in workloads.items()}
    return {name: request for name, request in read.items() if request is not None}


_UNSHOWN = msgspec.json.Decoder(dict[str, Any])
_SIZE_REQUEST = msgspec.json.Decoder(SizeRequest)
_SPEC_COUNTS = msgspec.json.Decoder(SpecCounts)
