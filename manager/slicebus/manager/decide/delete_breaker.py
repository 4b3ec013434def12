"""Stops when too many jobs of one cluster would be deleted at once (rule 6 of the design).

A namespace that somebody deletes, a list that comes back empty, a manager on the wrong cluster: each looks like many
deletes that are meant. So deletes are counted before the first one goes. When those that wait and those that went
within the window are more than the limit, none goes any more, until somebody releases the ones that are held.
"""

from collections.abc import Collection

import msgspec

from slicebus.proto.messages import JobRef
from slicebus.slices.fingerprints import content_hash


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs of a cluster may be deleted within a window."""

    share: float
    """Of the cluster's jobs."""
    count: int
    """However few jobs the cluster has."""
    window_s: float

    def most(self, jobs: int) -> int:
        """The limit for a cluster of so many jobs."""
        return max(self.count, int(self.share * jobs))


class Hold(msgspec.Struct, frozen=True):
    """Deletes that are held, as somebody sees and releases them."""

    id: str
    jobs: frozenset[JobRef]


class DeleteBreaker:
    """The deletes of one cluster. `now` is a time in seconds that only grows."""

    def __init__(self, limits: Limits, *, held: bool = False) -> None:
        self.held = held
        self._limits = limits
        self._waiting: dict[JobRef, None] = {}
        self._released: set[JobRef] = set()
        self._gone: dict[JobRef, float] = {}
        """Those that were let go without a release, and when."""

    @property
    def waiting(self) -> Collection[JobRef]:
        """The jobs that shall be deleted and are not released."""
        return self._waiting.keys()

    def add(self, job: JobRef) -> None:
        """The job shall be deleted. Idempotent."""
        if job not in self._released and job not in self._gone:
            self._waiting[job] = None

    def remove(self, job: JobRef) -> bool:
        """The job shall not be deleted, or its delete is on its way for good. Says whether it was waiting."""
        waited = job in self._waiting
        self._waiting.pop(job, None)
        self._released.discard(job)
        return waited

    def lift(self) -> None:
        """End a hold that has nothing left to hold: what was wanted is not wanted any more."""
        self.held = self.held and bool(self._waiting)

    def may_go(self, job: JobRef, *, jobs: int, now: float) -> bool:
        """Whether the delete of a job may go, on a cluster of so many jobs. From then on it may, for the window."""
        self._gone = {gone: at for gone, at in self._gone.items() if now - at < self._limits.window_s}
        if job in self._released or job in self._gone:
            return True
        self._waiting[job] = None
        if len(self._waiting) + len(self._gone) > self._limits.most(jobs):
            self.held = True
        if self.held:
            return False
        del self._waiting[job]
        self._gone[job] = now
        return True

    def hold(self, since: str) -> Hold:
        """What is held now. The id says which jobs and since when: the same jobs held again are another hold."""
        return Hold(content_hash([since, sorted(job.uid for job in self._waiting)]), frozenset(self._waiting))

    def release(self, hold: Hold) -> list[JobRef]:
        """Let go exactly what a hold has, as far as it is still wanted; gives those jobs."""
        released = [job for job in self._waiting if job in hold.jobs]
        self._released.update(released)
        for job in released:
            del self._waiting[job]
        self.held = bool(self._waiting)
        return released
