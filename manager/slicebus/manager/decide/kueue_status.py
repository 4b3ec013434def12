"""The status of the manager's job, as a Kueue beside the manager reads it.

Kueue gives an evicted job's quota back when the job says that it is not active, and starts a job by changing its
template. So the job is active from before the worker may start its first pod until the worker has let go of the last
one, and while it is suspended it says so.
"""

import msgspec

from slicebus.decisions.commands import Command
from slicebus.manager.decide.manifests import write_status
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import JobPhase, Manifest, Status
from slicebus.slices import kueue
from slicebus.slices.jobs import KINDS

_TERMINAL = (JobPhase.SUCCEEDED, JobPhase.FAILED)


def is_suspended(job: Manifest) -> bool:
    """Whether Kueue keeps the job from running."""
    return bool(job["spec"].get("suspend"))


def mirror(view: JobView, *, now: str, may_have_pods: bool) -> list[Command]:
    """The status that the job shall show. `may_have_pods`: whether the worker may have pods of it, or be given some."""
    job, kind = view.job, KINDS[view.ref.kind]
    assert job is not None
    shown, reported = job.get("status", {}), reported_of(view)
    if kind.outcome(job).phase in _TERMINAL:
        return []
    if reported is not None and reported.phase in _TERMINAL:
        return _write(job, reported.job_status)
    if is_suspended(job):
        return _write(job, kind.suspended_status(shown, active=may_have_pods, now=now))
    return _write(job, kind.running_status(_newest(shown, reported)))


def take(view: JobView, report: Status, now: str) -> list[Command]:
    """What a new report changes. Of a job without quota only its end.

    That such a job is not active any more is said when the rest of its eviction is written: Kueue admits it anew then.
    """
    if view.holder is None and report.phase not in _TERMINAL:
        return []
    return mirror(msgspec.structs.replace(view, reported=report), now=now, may_have_pods=False)


def reported_of(view: JobView) -> Status | None:
    """What the worker last said of the job as it holds it since it was last dispatched anew.

    Of one that it is to let go only the end counts: it may have come before the order did.
    """
    outbox, reported = view.outbox, view.reported
    if outbox is None or reported is None:
        return None
    lets_go = outbox.record.suspended or outbox.record.hash == kueue.ABSENT
    is_relevant = not lets_go or reported.phase in _TERMINAL
    return reported if outbox.record.is_of_this_run(reported.spec_version) and is_relevant else None


def shows_running(job: Manifest) -> bool:
    """Whether the job runs, and Kueue would keep its quota until that is over."""
    shown = job.get("status", {})
    return not is_suspended(job) and KINDS[job["kind"]].running_status(shown) == shown


def _newest(shown: Manifest, reported: Status | None) -> Manifest:
    """Before the worker has said anything, a job shows what it did, but no longer that it is suspended."""
    if reported is not None:
        return reported.job_status
    conditions = [entry for entry in shown.get("conditions") or () if entry["type"] != "Suspended"]
    return {name: value for name, value in shown.items() if name != "conditions"} | (
        {"conditions": conditions} if conditions else {}
    )


def _write(job: Manifest, wanted: Manifest) -> list[Command]:
    return write_status(job, KINDS[job["kind"]].mirrored_status(job, wanted))
