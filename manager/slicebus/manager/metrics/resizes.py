"""Measures how long resizes take."""

import asyncio

from prometheus_client import CollectorRegistry, Histogram

from slicebus.kube.cache import Cache, Change
from slicebus.manager.state.annotations import job_ref
from slicebus.proto.envelope import Envelope, MessageId
from slicebus.proto.messages import Applied, JobRef, Message, ScaleRequest

_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600, 6 * 3600)


class ResizeMetrics:
    """Measures from the receipt of a scale-request until its worker reports the answer as applied.

    That includes any wait for quota. Only the newest request of a job counts, and only if this process received it.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._begun: dict[JobRef, tuple[MessageId, float]] = {}
        """The correlation id of each job's request, and the loop's time of its receipt."""
        self._times = Histogram(
            "slicebus_resize_seconds",
            "From when a scale-request came until its worker reported it as applied.",
            ["cluster"],
            buckets=_BUCKETS,
            registry=registry,
        )

    def follow(self, jobs: Cache) -> None:
        """Forget deleted jobs."""
        jobs.subscribe(self._changed)

    def note(self, envelope: Envelope, message: Message) -> None:
        """Note a message from a worker."""
        now, chain = asyncio.get_running_loop().time(), envelope.correlation_id
        match message:
            case ScaleRequest(job=job) if not self._is_of(job, chain):
                self._begun[job] = chain, now
            case Applied(job=job) if self._is_of(job, chain):
                self._times.labels(envelope.cluster).observe(now - self._begun.pop(job)[1])

    def _is_of(self, job: JobRef, chain: MessageId) -> bool:
        return job in self._begun and self._begun[job][0] == chain

    def _changed(self, change: Change) -> None:
        if change.new is None and change.old is not None:
            self._begun.pop(job_ref(change.old), None)
