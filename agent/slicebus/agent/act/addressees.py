"""Chooses the shard of the manager that a message about a job goes to.

It is the shard that the job's last order is from. Where no order has come yet, or too many jobs have had one since, it
is the first shard, which passes on what concerns another one (docs/decisions/0058).
"""

from slicebus.proto.messages import JobRef, Message, job_of

_MOST = 10_000
"""The most jobs that are remembered: those with the newest orders."""


class Addressees:
    """The jobs whose last order is from another shard than the first, with that shard."""

    def __init__(self) -> None:
        self._shards: dict[str, int] = {}
        """By the UID of the manager's job."""

    def note(self, job: JobRef, shard: int) -> None:
        """Note that an order for a job has come from a shard."""
        self._shards.pop(job.uid, None)
        if shard:
            self._shards[job.uid] = shard
        if len(self._shards) > _MOST:
            del self._shards[next(iter(self._shards))]

    def of(self, message: Message) -> int:
        """The shard to publish a message to."""
        job = job_of(message)
        return self._shards.get(job.uid, 0) if job is not None else 0
