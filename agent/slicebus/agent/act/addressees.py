"""Chooses the shard of the manager that a message about a job goes to.

It is the shard that the job's last order is from. Where no order has come yet, or too many jobs have had one since, it
is the first shard, which passes on what concerns another one (docs/decisions/0058).
"""

from slicebus.proto.messages import JobRef, Message, ScaleRequest, job_of

_MOST = 10_000
"""The most jobs that are remembered: those with the newest orders."""


class Addressees:
    """The jobs whose last order is from another shard than the first, with that shard."""

    def __init__(self) -> None:
        self._shards: dict[str, int] = {}
        """By the UID of the manager's job."""
        self._asked: dict[str, int] = {}
        """The shards that were asked for a size of these jobs, and have ordered nothing since; the first one is not
        among them."""

    @property
    def asked(self) -> frozenset[int]:
        """The shards that owe an answer; not the first one."""
        return frozenset(self._asked.values())

    def note(self, job: JobRef, shard: int) -> None:
        """Note that an order for a job has come from a shard."""
        self._asked.pop(job.uid, None)
        self._shards.pop(job.uid, None)
        if shard:
            self._shards[job.uid] = shard
        if len(self._shards) > _MOST:
            self._forget(next(iter(self._shards)))

    def of(self, message: Message) -> int:
        """The shard to publish a message to."""
        job = job_of(message)
        shard = self.of_job(job.uid) if job is not None else 0
        if job is not None and shard and isinstance(message, ScaleRequest):
            self._asked[job.uid] = shard
        return shard

    def of_job(self, uid: str) -> int:
        """The shard that messages about a job go to, by the UID of the manager's job."""
        return self._shards.get(uid, 0)

    def _forget(self, uid: str) -> None:
        del self._shards[uid]
        self._asked.pop(uid, None)
