"""Reports jobs that have been deleted, and stay for a finalizer of somebody else.

The controller of such a job makes no pods of it. So it counts as gone when its last pod has ended, whenever the
finalizer goes: until then the manager would hold its quota.
"""

from slicebus.agent.decide.job.reconcile import published
from slicebus.agent.state import annotations
from slicebus.agent.state.views import Tombstone, WorkerJobReading, WorkerView
from slicebus.decisions.commands import Command
from slicebus.proto.messages import ClusterName, JobPhase, Status


def is_kept(job: WorkerJobReading) -> bool:
    """Whether a job is being deleted, and stays for a finalizer of somebody else."""
    return job.is_going and annotations.is_kept_by_others(job.manifest)


def report(
    view: WorkerView,
    cluster: ClusterName,
    *,
    tombstone: Tombstone | None,
    last: tuple[Status, float] | None,
    now_s: float,
) -> list[Command]:
    """The report, once, on a job that somebody has deleted here without an order: its end where it has ended, otherwise
    that it is gone. `tombstone` is that of an order to delete it, `last` the last report."""
    job = view.reading
    if job is None or not is_kept(job) or job.ref.uid in view.running:
        return []
    if tombstone is not None and tombstone.version >= job.version:
        return []
    version = max([job.version, *map(annotations.spec_version, view.own_copies)])
    gone = Status(job=job.ref, workload=job.slice, spec_version=version, phase=JobPhase.GONE, seen=True)
    status = job.report() if job.outcome.phase.is_terminal else gone
    if last is not None and last[0] == status:
        return []
    return published(view, status, cluster, now_s=now_s)
