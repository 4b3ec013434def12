"""How a job left the worker that was not ordered to go.

A job that has ended may be removed by somebody else before its end was reported: by a user, by a time to live, by an
operator that cleans up. Only who saw its last state can tell that from a user who deleted a job that ran.
"""

from typing import Self

import msgspec

from slicebus.agent.state.views import JobReading
from slicebus.proto.messages import JobPhase, Manifest, Status


class Departure(msgspec.Struct, frozen=True):
    """What is known of a job that is no longer there."""

    worker_uid: str
    """Of the worker's job."""
    seen: bool
    """Whether its last state was seen. Where it was not, the job may have ended after what was seen of it."""
    end: Status | None = None
    """The report of its end, where it had ended when it was seen last."""

    @classmethod
    def of(cls, job: JobReading, final: Manifest | None) -> Self:
        """`job` is what was known of it before, `final` its last state where the watch has brought that."""
        last = (JobReading.from_manifest(final) if final is not None else None) or job
        uid = last.manifest["metadata"]["uid"]
        if last.outcome.phase is JobPhase.RUNNING:
            return cls(uid, seen=final is not None)
        end = Status(
            job=last.ref,
            workload=last.slice,
            spec_version=last.version,
            phase=last.outcome.phase,
            message=last.outcome.message,
            job_status=last.manifest.get("status", {}),
        )
        return cls(uid, seen=final is not None, end=end)
