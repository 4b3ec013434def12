"""What the agent writes on the worker's objects, so that a restart loses nothing.

On the job: its slice, the manager's UID, the applied version, the granted counts, what was requested last, and the
baseline that the manager's spec had. On a Workload copy: the version, and which job it belongs to.
"""

from typing import Self

import msgspec

from slicebus.proto.messages import Counts, JobRef, Manifest, ScaleRequest
from slicebus.slices import kueue


class Requested(msgspec.Struct, frozen=True):
    """The last wish, on its way to the manager or there."""

    worker_uid: str
    worker_generation: int
    wanted: Counts
    confirmed: bool = True
    """Whether the broker has it."""
    instead_of: Counts | None = None
    """What was granted when the wish was written down. What it lowers is no longer granted from then on."""

    def to_annotation(self) -> str:
        """JSON."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_message(cls, request: ScaleRequest) -> Self:
        """The record of a request that the broker has."""
        return cls(request.worker_uid, request.worker_generation, request.wanted, instead_of=request.granted)

    @classmethod
    def from_job(cls, job: Manifest) -> Self | None:
        """The record on a worker's job; None where there is none or it is unreadable."""
        text = annotation(job, kueue.REQUESTED_ANNOTATION)
        try:
            return msgspec.json.decode(text, type=cls) if text else None
        except msgspec.DecodeError:
            return None


def annotation(manifest: Manifest, name: str) -> str | None:
    """An annotation's value."""
    value: str | None = (manifest["metadata"].get("annotations") or {}).get(name)
    return value


def is_ours(manifest: Manifest) -> bool:
    """Whether an agent made the object. Whatever it has not made it never touches."""
    return (manifest["metadata"].get("labels") or {}).get(kueue.ORIGIN_LABEL) == kueue.ORIGIN


def is_of(manifest: Manifest, job: JobRef) -> bool:
    """Whether the object was made for this job of the manager."""
    return is_ours(manifest) and annotation(manifest, kueue.MANAGER_UID_ANNOTATION) == job.uid


def spec_version(manifest: Manifest) -> int:
    """The applied version; 0 where none is readable."""
    text = annotation(manifest, kueue.SPEC_VERSION_ANNOTATION) or "0"
    return int(text) if text.isdecimal() else 0


def slice_of(job: Manifest) -> str:
    """The slice that a worker's job names."""
    return annotation(job, kueue.PREBUILT_NAME) or ""


def granted(job: Manifest) -> Counts:
    """The pods that may run, by pod set; none where nothing is readable."""
    return _counts(job, kueue.GRANTED_ANNOTATION) or {}


def baseline(job: Manifest) -> Counts | None:
    """The counts that the manager's spec had when it was last taken over."""
    return _counts(job, kueue.BASELINE_ANNOTATION)


def encode_counts(counts: Counts) -> str:
    """Counts as an annotation's value."""
    return msgspec.json.encode(counts, order="sorted").decode()


def job_marks(job: JobRef, *, workload: str, version: int, grant: Counts) -> Manifest:
    """The metadata of a job that stands at a version of a slice. Label and annotation are always written together."""
    return {
        "labels": {kueue.ORIGIN_LABEL: kueue.ORIGIN, kueue.PREBUILT_NAME: workload},
        "annotations": {
            kueue.PREBUILT_NAME: workload,
            kueue.MANAGER_UID_ANNOTATION: job.uid,
            kueue.SPEC_VERSION_ANNOTATION: str(version),
            kueue.GRANTED_ANNOTATION: encode_counts(grant),
        },
    }


def reference(job: Manifest) -> JobRef:
    """The manager's job that a worker's job is the copy of."""
    return JobRef(
        api_version=job["apiVersion"],
        kind=job["kind"],
        namespace=job["metadata"]["namespace"],
        name=job["metadata"]["name"],
        uid=annotation(job, kueue.MANAGER_UID_ANNOTATION) or "",
    )


def _counts(job: Manifest, name: str) -> Counts | None:
    text = annotation(job, name)
    try:
        return msgspec.json.decode(text, type=Counts) if text else None
    except msgspec.DecodeError:
        return None
