"""Departures: how a job has gone from the worker without an order of the manager.

A user, a TTL or an operator may remove an ended job before its end was reported. Only the job's last state
distinguishes that from a user's delete of a running job.
"""

from typing import Self

import msgspec

from slicebus.agent.state.views import WorkerJobReading
from slicebus.proto.messages import JobPhase, Manifest, Status


class Departure(msgspec.Struct, frozen=True):
    """The last state of a job that has gone, as far as the agent knows it."""

    worker_uid: str
    """The UID of the worker's job."""
    seen: bool
    """Whether the watch brought its last state. Otherwise the job may have ended after its last known state."""
    end: Status | None = None
    """The report of its end, where the job had ended in its last known state."""
    gone: Status | None = None
    """The report of its absence, for a job whose copies somebody deletes before its last pod has ended."""

    @property
    def report(self) -> Status | None:
        """What is to be said of it where no copy says more."""
        return self.end or self.gone

    @classmethod
    def of(cls, job: WorkerJobReading, final: Manifest | None) -> Self:
        """`job` is the last known state, `final` the one of its deletion, where the watch has brought that."""
        last = (WorkerJobReading.from_manifest(final) if final is not None else None) or job
        uid, seen = last.manifest["metadata"]["uid"], final is not None
        if last.outcome.phase is not JobPhase.RUNNING:
            return cls(uid, seen=seen, end=last.report())
        gone = Status(job=last.ref, workload=last.slice, spec_version=last.version, phase=JobPhase.GONE, seen=seen)
        return cls(uid, seen=seen, gone=gone)
