"""The status of the manager's job, as a Kueue beside the manager reads it.

Kueue gives an evicted job's quota back when its status shows that it is not active, and starts a job by changing its
template. So the job shows active from before the worker may start its first pod until the last one is gone, and shows
that it is suspended while it is.
"""

import msgspec

from slicebus.decisions.commands import Command, Remember
from slicebus.manager.decide.job import unshown_ends
from slicebus.manager.decide.manifests import write_status
from slicebus.manager.state.outbox import Held
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Manifest, Status
from slicebus.slices.jobs import KINDS
from slicebus.slices.jobs.suspension import is_suspended


def mirror(view: JobView, *, now: str, may_have_pods: bool, if_refused: Remember | None = None) -> list[Command]:
    """Write the status that the job shall show. `may_have_pods`: whether the worker may have pods, or get some.
    `if_refused`: what to remember where the API server refuses it."""
    assert view.job is not None
    return write_status(view.job, status_of(view, now=now, may_have_pods=may_have_pods), if_refused=if_refused)


def status_of(view: JobView, *, now: str, may_have_pods: bool) -> Manifest:
    """The status that `mirror` writes."""
    job, kind = view.job, KINDS[view.ref.kind]
    assert job is not None
    shown: Manifest = job.get("status", {})
    reported = reported_of(view)
    if kind.outcome(job).phase.is_terminal:
        return shown
    if reported is not None and reported.phase.is_terminal:
        return kind.mirrored_status(job, reported.job_status)
    if is_suspended(job):
        return kind.mirrored_status(job, kind.suspended_status(shown, active=may_have_pods, now=now))
    return kind.mirrored_status(job, kind.running_status(_newest(shown, reported)))


def take(view: JobView, report: Status, now: str) -> list[Command]:
    """Write what a new report changes; of a job that leaves its worker only its end, and no end while pods run on:
    Kueue gives the quota of all back with it.

    Such a job shows that it is not active with the last write of its eviction: Kueue admits it anew then.
    """
    if report.has_left_pods:
        return []
    is_leaving = view.holder is None or (view.job is not None and is_stopping(view.job))
    if is_leaving and not report.phase.is_terminal:
        return []
    if_refused = unshown_ends.if_refused(view, report)
    return mirror(msgspec.structs.replace(view, reported=report), now=now, may_have_pods=False, if_refused=if_refused)


def reported_of(view: JobView) -> Status | None:
    """The worker's last status of the present run; None without one.

    Of a job that is to be suspended or withdrawn only the end counts: it may have come before the order did.
    """
    outbox, reported = view.outbox, view.reported
    if outbox is None or reported is None:
        return None
    is_relevant = view.state.held is Held.HOLD or reported.phase.is_terminal
    return reported if outbox.record.is_of_this_run(reported.spec_version) and is_relevant else None


def shows_running(job: Manifest) -> bool:
    """Whether the job shows that it runs, so that Kueue keeps its quota until it ends."""
    shown = job.get("status", {})
    return not is_suspended(job) and KINDS[job["kind"]].running_status(shown) == shown


def is_stopping(job: Manifest) -> bool:
    """Whether a suspended job shows that it is active: it may have pods. Kueue gives the quota of an evicted one back
    when it shows that no more, and may have evicted it before that is seen on its Workload."""
    shown, kind = job.get("status", {}), KINDS[job["kind"]]
    if not is_suspended(job) or kind.running_status(shown) != shown:
        return False
    left, kept = (kind.suspended_status(shown, active=active, now="") for active in (False, True))
    return left != kept


def _newest(shown: Manifest, reported: Status | None) -> Manifest:
    """The reported status. Before the first report, what the job shows, but not that it is suspended."""
    if reported is not None:
        return reported.job_status
    conditions = [entry for entry in shown.get("conditions") or () if entry["type"] != "Suspended"]
    return {name: value for name, value in shown.items() if name != "conditions"} | (
        {"conditions": conditions} if conditions else {}
    )
