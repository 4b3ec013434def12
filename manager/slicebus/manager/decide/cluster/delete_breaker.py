"""Holds deletes when too many jobs of one cluster would be deleted at once (rule 6 of the design).

A terminating namespace, a list that comes back empty, a manager on the wrong cluster: each looks like many deletes that
somebody wants. So deletes are counted before the first one goes. When the waiting ones and those of the last window
exceed the limit, all waiting deletes are held until somebody releases them.
"""

from collections.abc import Collection
from typing import NamedTuple

import msgspec

from slicebus.proto.messages import JobRef
from slicebus.slices.api.fingerprints import content_hash


class DeleteLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs of a cluster may be deleted within a window."""

    share: float
    """Share of the cluster's jobs, 0 to 1."""
    count: int
    """So many may be deleted however few jobs the cluster has."""
    window_s: float

    def most(self, jobs: int) -> int:
        """The largest number of deletes on a cluster of so many jobs."""
        return max(self.count, int(self.share * jobs))


class Hold(msgspec.Struct, frozen=True):
    """The held deletes of a cluster, as its status shows them and a release names them."""

    id: str
    jobs: frozenset[JobRef]
    unserved: frozenset[str] = frozenset()
    """The kinds of jobs among them that are missing since their kind was not served."""
    unseen: int = 0
    """How many more may have to be deleted: they are looked at when these are gone, and held anew."""


class _Gone(NamedTuple):
    """A delete that went without a release."""

    at: float
    jobs: int
    """How many jobs the cluster had then."""


class DeleteBreaker:
    """Counts the deletes of one cluster. `now` is a monotonic time in seconds."""

    def __init__(self, limits: DeleteLimits, *, held: bool = False) -> None:
        self.held = held
        self.unseen = 0
        """How many more may have to be deleted: which these are is not known yet. They count as waiting."""
        self._limits = limits
        self._waiting: dict[JobRef, None] = {}
        self._unserved: set[JobRef] = set()
        self._released: set[JobRef] = set()
        self._gone: dict[JobRef, _Gone] = {}

    @property
    def waiting(self) -> Collection[JobRef]:
        """The jobs that are to be deleted and are not released."""
        return self._waiting.keys()

    def add(self, job: JobRef) -> None:
        """Count a job that is to be deleted. Idempotent."""
        if job not in self._released and job not in self._gone:
            self._waiting[job] = None

    def hold_unserved(self, job: JobRef) -> None:
        """Hold a job that is missing since its kind was not served, however few those are."""
        self.add(job)
        if job in self._waiting:
            self._unserved.add(job)
            self.held = True

    def remove(self, job: JobRef) -> bool:
        """Stop counting a job: it stays, or its delete is dispatched. Return whether it was waiting."""
        waited = job in self._waiting
        self._waiting.pop(job, None)
        self._unserved.discard(job)
        self._released.discard(job)
        return waited

    def lift(self) -> None:
        """End a hold when no job waits any more."""
        self.held = self.held and bool(self._waiting)

    def may_go(self, job: JobRef, *, jobs: int, now: float) -> bool:
        """Whether the delete of a job may go, on a cluster of so many jobs. A yes holds for the window.

        The share is of the most jobs that the cluster had within the window: each delete makes it smaller.
        """
        self._gone = {ref: gone for ref, gone in self._gone.items() if now - gone.at < self._limits.window_s}
        if job in self._released or job in self._gone:
            return True
        self._waiting[job] = None
        most_jobs = max([jobs, *(gone.jobs for gone in self._gone.values())])
        if len(self._waiting) + self.unseen + len(self._gone) > self._limits.most(most_jobs):
            self.held = True
        if self.held:
            return False
        del self._waiting[job]
        self._gone[job] = _Gone(now, jobs)
        return True

    def hold(self, since: str) -> Hold:
        """The present hold. Its id covers the jobs and `since` (RFC 3339): the same jobs later are another hold."""
        id = content_hash([since, sorted(job.uid for job in self._waiting)])
        return Hold(id, frozenset(self._waiting), frozenset(job.kind for job in self._unserved), self.unseen)

    def release(self, hold: Hold) -> list[JobRef]:
        """Release exactly the jobs of a hold that still wait, and return them."""
        released = [job for job in self._waiting if job in hold.jobs]
        self._released.update(released)
        self._unserved.difference_update(released)
        for job in released:
            del self._waiting[job]
        self.held = bool(self._waiting)
        return released
