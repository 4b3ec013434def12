"""Which jobs have come, and how long they have run, by what the journal has of them: from the first order with quota
until the worker said that the job had ended."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from slicebus.journal.entry import Entry
from slicebus.proto.messages import Delete, Manifest, Status, Suspend, WorkloadSpec

LEAST = 10
"""With fewer runs than that nothing is said by them."""
_SIZES = 2


def are_alike(pods: int, others: int) -> bool:
    """Whether jobs of so many pods are about as large: neither has more than twice the other's."""
    return pods <= others * _SIZES and others <= pods * _SIZES


class RunTime(msgspec.Struct, frozen=True):
    """One job that ran to its end."""

    queue: str
    """The ClusterQueue that gave it quota."""
    pods: int
    """The most that it was granted."""
    seconds: float


class RunHistory(msgspec.Struct, frozen=True):
    """What is known of the jobs of a time."""

    run_times: Sequence[RunTime]
    newcomers: Sequence[Manifest] = ()
    """The Workload of each job that was given quota, as its first order had it: whoever reads it finds out whether it
    can be read."""


class _Run(msgspec.Struct):
    since: datetime
    queue: str
    pods: int


class RunTimes:
    """Collects run times. A run that was cut off, because its quota was taken or the job was deleted, tells nothing."""

    def __init__(self) -> None:
        self._found: list[RunTime] = []
        self._newcomers: list[Manifest] = []
        self._known: set[str] = set()
        """The UIDs of the jobs that have come."""
        self._running: dict[str, _Run] = {}
        """By the UID of the job."""

    @property
    def history(self) -> RunHistory:
        """What was fed so far."""
        return RunHistory(tuple(self._found), tuple(self._newcomers))

    def feed(self, entry: Entry) -> None:
        """Take one entry; one that is no message, or has no time, tells nothing."""
        at, received = entry.published, entry.received
        if at is None or received is None:
            return
        match received.message:
            case WorkloadSpec() as order:
                queue, pods = _queue_of(order.workload), sum(order.granted.values())
                if queue and pods:
                    self._come(order)
                    run = self._running.setdefault(order.job.uid, _Run(at, queue, pods))
                    run.pods = max(run.pods, pods)
            case Suspend() | Delete() as order:
                self._running.pop(order.job.uid, None)
            case Status() as report if report.phase.is_terminal:
                ended = self._running.pop(report.job.uid, None)
                if ended is not None:
                    seconds = max(0.0, (at - ended.since).total_seconds())
                    self._found.append(RunTime(ended.queue, ended.pods, seconds))

    def _come(self, order: WorkloadSpec) -> None:
        if order.job.uid not in self._known:
            self._known.add(order.job.uid)
            self._newcomers.append(order.workload)


def _queue_of(workload: Manifest) -> str:
    """The ClusterQueue of a Workload; empty where it says none."""
    found = workload
    for name in ("status", "admission"):
        inner = found.get(name)
        if not isinstance(inner, dict):
            return ""
        found = inner
    queue = found.get("clusterQueue")
    return queue if isinstance(queue, str) else ""
