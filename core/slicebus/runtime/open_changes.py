"""Knows which change of a job goes on, for the log: what a role logs while it works for a job has its chain.

By that `slicebus journal query --correlation` shows the rest. It is kept in memory, from the first message of a change
on that this process sends or gets: after a start a line may be without it. No decision reads it.
"""

from collections import OrderedDict
from contextlib import AbstractContextManager, nullcontext

import msgspec
from structlog.contextvars import bound_contextvars

from slicebus.proto.envelope import Envelope
from slicebus.proto.messages import (
    Applied,
    Counts,
    Delete,
    Message,
    Pending,
    Relabel,
    ScaleRequest,
    Status,
    Suspend,
    WorkloadSpec,
    job_of,
)

_MOST = 50_000
"""Jobs with an open change; the oldest are forgotten. Some 15 MB."""


class _Change(msgspec.Struct, frozen=True):
    """A change that goes on."""

    correlation: str
    version: int | None = None
    """Of its order; None before there is one."""
    granted: Counts = {}
    """By that order."""


class OpenChanges:
    """The open change of each job, by the messages of one role."""

    def __init__(self) -> None:
        self._by_job: OrderedDict[str, _Change] = OrderedDict()

    def note(self, envelope: Envelope, message: Message) -> None:
        """Take a message that is published, or was received: it may begin a change, or end one."""
        if (job := job_of(message)) is None:
            return
        chain, known = envelope.correlation_id, self._by_job.get(job.key)
        match message:
            case WorkloadSpec(spec_version=version, granted=granted):
                self._begin(job.key, _Change(chain, version, granted))
            case Suspend(spec_version=version) | Delete(spec_version=version):
                self._begin(job.key, _Change(chain, version))
            case ScaleRequest() | Relabel() | Pending():
                if known is None or known.correlation != chain:
                    self._begin(job.key, _Change(chain))
            case Status() | Applied() if known is not None and _ends(known, message):
                del self._by_job[job.key]
            case _:
                pass  # It belongs to a change that goes on.

    def logged(self, job: str) -> AbstractContextManager[object]:
        """While the context lasts, what is logged has the open change of a job, `Kind/namespace/name`."""
        known = self._by_job.get(job)
        return bound_contextvars(correlation=known.correlation) if known is not None else nullcontext()

    def _begin(self, job: str, change: _Change) -> None:
        self._by_job[job] = change
        self._by_job.move_to_end(job)
        if len(self._by_job) > _MOST:
            self._by_job.popitem(last=False)


def _ends(change: _Change, message: Status | Applied) -> bool:
    """Whether a report shows the outcome: the granted pods are ready, or the job or its pods are gone."""
    if change.version is None or message.spec_version < change.version:
        return False
    if isinstance(message, Applied):
        return message.deleted or not change.granted
    ready = {name: pods.ready for name, pods in message.pods.items()}
    return bool(change.granted) and all(ready.get(name, 0) == count for name, count in change.granted.items())
