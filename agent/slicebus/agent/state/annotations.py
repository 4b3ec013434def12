"""The annotations that the agent keeps on the worker's objects, so that a restart loses nothing.

On a job: its slice, the manager's UID, the applied version, the granted counts, the pending requests, and the baseline
of the manager's spec. On a Workload copy: the version, and the job that it belongs to.
"""

from typing import Annotated, Any, Self

import msgspec
from msgspec import UnsetType

from slicebus.proto.messages import Counts, JobRef, Manifest, RequestKey, Version
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.annotation_values import is_full, read_json, read_number
from slicebus.slices.api.owners import Owner
from slicebus.slices.jobs import KINDS
from slicebus.slices.workload.waiting import SCHEDULING, Waiting
from slicebus.slices.workload.workload import FlavorName

_MOST_UNANSWERED = 16
_COLLECTORS = ("foregroundDeletion", "orphan")
_CONTROLLERS = ("ray.io/", "batch.kubernetes.io/")
"""Of finalizers by which the controllers of jobs clean up."""
_NOTHING: Counts = {}


class PendingRequest(msgspec.Struct, frozen=True, array_like=True):
    """A request that no order of the manager has answered yet."""

    worker_uid: str
    worker_generation: Version
    wanted: Counts


class PendingRequests(msgspec.Struct, frozen=True):
    """The last request of a job, and those before it that no order has answered."""

    worker_uid: str
    worker_generation: Version
    wanted: Counts
    finished: Counts = {}
    """The pods that had ended for good by then: `wanted` leaves them out."""
    instead_of: Counts = {}
    """The grant when the request was written. From then on the grant is lowered to the request."""
    unanswered: tuple[PendingRequest, ...] = ()
    """This request and those before it, oldest first, that the last order does not answer. The manager may free what
    they gave up, so no order that does not answer them grants more than they request."""
    overruled: bool | UnsetType = msgspec.UNSET
    """Whether the worker has taken over another size of the manager's spec since: the request then no longer stands."""
    made_at: Version | UnsetType = msgspec.UNSET
    """The generation of the object when the last request was made, where the request has a later one."""
    follows: str | UnsetType = msgspec.UNSET
    """The manager's word that it carries out, where nobody else has resized the job since."""

    def to_annotation(self) -> str:
        """The annotation's value, as JSON."""
        return msgspec.json.encode(self).decode()

    @property
    def key(self) -> RequestKey:
        """The key of the last request."""
        return RequestKey(self.worker_uid, self.worker_generation)

    @property
    def made_for(self) -> RequestKey:
        """The object and its generation that the last request was made for."""
        return RequestKey(self.worker_uid, self.made_at or self.worker_generation)

    @classmethod
    def after(
        cls,
        last: Self | None,
        key: RequestKey,
        *,
        wanted: Counts,
        granted: Counts,
        finished: Counts = _NOTHING,
        follows: str | UnsetType = msgspec.UNSET,
    ) -> Self:
        """A new request, after the last one of this job. Its generation is past the last one's: a request is made again
        where the object has not changed."""
        seen = key.worker_generation
        if last is not None and last.worker_uid == key.worker_uid:
            generation = max(key.worker_generation, last.worker_generation + 1)
            key = RequestKey(key.worker_uid, generation)
        before = last.unanswered if last else ()
        if len(before) == _MOST_UNANSWERED:
            merged = msgspec.structs.replace(before[1], wanted=lowered(before[0].wanted, before[1].wanted))
            before = (merged, *before[2:])
        request = PendingRequest(key.worker_uid, key.worker_generation, wanted)
        return cls(
            key.worker_uid,
            key.worker_generation,
            wanted,
            finished=finished,
            instead_of=granted,
            unanswered=(*before, request),
            made_at=seen if seen != key.worker_generation else msgspec.UNSET,
            follows=follows,
        )

    def answered(self, by: RequestKey) -> Self:
        """The requests that stay unanswered after an order that answers the request `by` and all before it."""
        known = (
            number
            for number, request in enumerate(self.unanswered, start=1)
            if request.worker_uid == by.worker_uid and request.worker_generation <= by.worker_generation
        )
        return msgspec.structs.replace(self, unanswered=self.unanswered[max(known, default=0) :])

    def beside(self, own: Counts) -> Self:
        """These requests after the worker took over a size of the manager's spec: another size then needs a new
        request."""
        return self if self.wanted == own else msgspec.structs.replace(self, overruled=True)

    def is_forgotten(self, before: Counts, granted: Counts) -> bool:
        """Whether an order takes back what the last request was granted, although nobody has asked for less: the
        manager no longer knows the request. That happens after a restore of its etcd."""
        stands = not self.unanswered and self.overruled is not True
        return stands and lowered(before, granted) != before and lowered(self.wanted, granted) != self.wanted

    def renewed(self, granted: Counts) -> Self:
        """A new request for the same size."""
        return self.after(
            self,
            self.made_for,
            wanted=self.wanted,
            granted=granted,
            finished=self.finished,
            follows=self.follows,
        )

    def allows(self, granted: Counts) -> Counts:
        """The granted counts, capped by every unanswered request."""
        for request in self.unanswered:
            granted = lowered(granted, request.wanted)
        return granted

    @staticmethod
    def from_job(job: Manifest) -> "PendingRequests | None":
        """The requests on a worker's job; None where there is no annotation or it is unreadable."""
        return read_json(annotation(job, api_names.REQUESTED_ANNOTATION), _PENDING_REQUESTS)


class Word(msgspec.Struct, frozen=True, array_like=True):
    """A word of the manager, by which pods of a job are taken or given back."""

    id: str
    size: Counts
    """What it leaves the job, by pod set."""


def left_behind(requested: PendingRequests | None, by: RequestKey) -> PendingRequests | None:
    """The requests that a copy takes over from the one before, where it is made anew or resumed; None where that had no
    known request.

    Such a copy begins with the size of the spec, so the last request no longer stands, and a manager that has answered
    it has to learn that. When the manager learns of the unanswered requests, it gives away what they gave back: they
    still cap what is granted.
    """
    left = requested.answered(by) if requested is not None else None
    if left is not None and left.unanswered:
        return msgspec.structs.replace(left, overruled=True)
    if not by.worker_uid:
        return None
    return PendingRequests(by.worker_uid, by.worker_generation, wanted={}, overruled=True)


def request_note(before: PendingRequests | None, after: PendingRequests | None) -> dict[str, str]:
    """The annotation of requests that have changed; empty where they have not."""
    return {api_names.REQUESTED_ANNOTATION: after.to_annotation()} if after is not None and after != before else {}


_PENDING_REQUESTS = msgspec.json.Decoder(PendingRequests)
_COUNTS = msgspec.json.Decoder(Counts)
_BOUNDS = msgspec.json.Decoder(dict[str, Any])
_CHARGED = msgspec.json.Decoder(dict[str, dict[str, Annotated[int, msgspec.Meta(ge=0)]]])
_FLAVORS = msgspec.json.Decoder(dict[str, dict[str, FlavorName]])
_EARLIER_WORDS = msgspec.json.Decoder(tuple[Word, ...])


def annotation(manifest: Manifest, name: str) -> str | None:
    """The value of an annotation, or None."""
    value: str | None = (manifest["metadata"].get("annotations") or {}).get(name)
    return value


def epoch(pod: Manifest) -> str | None:
    """The epoch of the agent that has taken a gated pod over; None where none has."""
    labelled: str | None = (pod["metadata"].get("labels") or {}).get(api_names.EPOCH_ANNOTATION)
    return labelled or annotation(pod, api_names.EPOCH_ANNOTATION)


def place_of_epoch(pod: Manifest) -> str:
    """Where the epoch of the agent goes that takes a pod over. A pod whose annotations are full has it as a label:
    there is always room for one, and without it no agent would begin."""
    labels, notes = pod["metadata"].get("labels") or {}, pod["metadata"].get("annotations") or {}
    is_label = api_names.EPOCH_ANNOTATION in labels or is_full(notes)
    return "labels" if is_label else "annotations"


def is_ours(manifest: Manifest) -> bool:
    """Whether an agent created the object. Agents touch no other.

    A RayCluster that KubeRay makes for a job is not ours, although it gets all of the job's labels and annotations. Any
    other controller is a tenant's word.
    """
    metadata, owner = manifest["metadata"], Owner.from_metadata(manifest["metadata"])
    parent = KINDS.get(owner.kind) if owner is not None else None
    is_made_for_another = parent is not None and parent.child_kind == manifest["kind"]
    return (metadata.get("labels") or {}).get(api_names.ORIGIN_LABEL) == api_names.ORIGIN and not is_made_for_another


def is_of(manifest: Manifest, job: JobRef) -> bool:
    """Whether the object was made for this job of the manager."""
    return is_ours(manifest) and annotation(manifest, api_names.MANAGER_UID_ANNOTATION) == job.uid


def is_kept_by_others(manifest: Manifest) -> bool:
    """Whether an object stays when it is deleted, for a finalizer that is neither the garbage collector's nor that of
    its own controller."""
    finalizers = manifest["metadata"].get("finalizers") or ()
    return any(name not in _COLLECTORS and not name.startswith(_CONTROLLERS) for name in finalizers)


def spec_version(manifest: Manifest) -> int:
    """The applied version; 0 where none is readable."""
    return read_number(annotation(manifest, api_names.SPEC_VERSION_ANNOTATION))


def is_linked(copy: Manifest) -> bool:
    """Whether a Workload copy has the UID of its job: a job that is missing then is gone."""
    return bool(annotation(copy, api_names.JOB_UID_ANNOTATION))


def slice_of(job: Manifest) -> str:
    """The slice of a worker's job; empty for none."""
    return annotation(job, kueue.PREBUILT_NAME) or ""


def granted(job: Manifest) -> Counts:
    """The number of pods that may run, by pod set; empty where the annotation is unreadable."""
    return _counts(job, api_names.GRANTED_ANNOTATION) or {}


def is_suspended(job: Manifest) -> bool:
    """Whether the manager has suspended the job: its grant names no pod set."""
    return _counts(job, api_names.GRANTED_ANNOTATION) == {}


def baseline(job: Manifest) -> Counts | None:
    """The counts of the manager's spec when the worker last took them over; None for none."""
    return _counts(job, api_names.BASELINE_ANNOTATION)


def earlier_words(job: Manifest) -> tuple[Word, ...]:
    """The words of the manager before its last one that the job has not reported, oldest first."""
    return read_json(annotation(job, api_names.EARLIER_WORDS_ANNOTATION), _EARLIER_WORDS) or ()


def bounds(job: Manifest) -> Manifest | None:
    """The bounds that the manager has last set for the autoscaler of a job; None where they are unknown."""
    return read_json(annotation(job, api_names.BOUNDS_ANNOTATION), _BOUNDS)


def flavors(copy: Manifest) -> dict[str, dict[str, FlavorName]] | None:
    """The flavors that a Workload copy was given, by pod set and resource; None where they are unknown."""
    return read_json(annotation(copy, api_names.FLAVORS_ANNOTATION), _FLAVORS)


def charged(copy: Manifest) -> dict[str, dict[str, int]]:
    """What one pod of a Workload copy's slice was admitted with, by pod set and resource."""
    return read_json(annotation(copy, api_names.CHARGED_ANNOTATION), _CHARGED) or {}


def scheduler(job: Manifest) -> str:
    """The scheduler backend that a job was made for; empty for one that needs no objects."""
    return annotation(job, api_names.SCHEDULER_ANNOTATION) or ""


def gang(job: Manifest) -> Counts:
    """How many pods of each pod set start together; empty before that is known."""
    return _counts(job, api_names.GANG_ANNOTATION) or {}


def lowered(granted: Counts, wanted: Counts) -> Counts:
    """The granted counts, capped by the wanted ones."""
    return {name: min(count, wanted.get(name, 0)) for name, count in granted.items()}


def encode_counts(counts: Counts) -> str:
    """Counts as an annotation's value."""
    return msgspec.json.encode(counts, order="sorted").decode()


def job_metadata(job: JobRef, *, workload: str, version: int, grant: Counts) -> Manifest:
    """The metadata of a job at a version of a slice. Label and annotation are always written together."""
    return {
        "labels": {api_names.ORIGIN_LABEL: api_names.ORIGIN, kueue.PREBUILT_NAME: workload},
        "annotations": {
            kueue.PREBUILT_NAME: workload,
            api_names.MANAGER_UID_ANNOTATION: job.uid,
            api_names.SPEC_VERSION_ANNOTATION: str(version),
            api_names.GRANTED_ANNOTATION: encode_counts(grant),
        },
    }


def reference(job: Manifest) -> JobRef:
    """The manager's job of which a worker's job is the copy."""
    return JobRef(
        api_version=job["apiVersion"],
        kind=job["kind"],
        namespace=job["metadata"]["namespace"],
        name=job["metadata"]["name"],
        uid=annotation(job, api_names.MANAGER_UID_ANNOTATION) or "",
    )


def _counts(job: Manifest, name: str) -> Counts | None:
    return read_json(annotation(job, name), _COUNTS)


def shows_held_up(job: Manifest) -> bool:
    """Whether a job shows that its pods wait for what their scheduler backend needs."""
    waiting = Waiting.from_manifest(job)
    return waiting is not None and waiting.reason in SCHEDULING
