"""Undoes a suspension that is not the manager's, and tells the manager of one that comes again too soon.

Such a job holds its quota, and only the manager gives that back: who wants to suspend a job does so on the manager's
cluster.
"""

import math
from datetime import datetime

from slicebus.agent.decide.job import gangs
from slicebus.agent.state import annotations
from slicebus.agent.state.views import WorkerJobReading, WorkerView
from slicebus.decisions.commands import Command, Emit, Patch, Requeue
from slicebus.kube.resources import JOB_RESOURCES
from slicebus.proto.messages import Manifest
from slicebus.slices.api import api_names
from slicebus.slices.jobs import KINDS
from slicebus.slices.jobs.paths import text_of
from slicebus.slices.jobs.suspension import to_resume
from slicebus.slices.workload.waiting import SUSPENDED_THERE, Waiting

_UNDONE = "SuspensionUndone"
_UNDO_AGAIN_S = 60.0


def undo(view: WorkerView, *, now: str) -> list[Command]:
    """The patches that resume a job that somebody else than the manager has suspended, or the object that carries its
    size, with an Event. Who suspends it again and again is answered once a minute.

    A gang is resumed when its objects have gone. Meanwhile the other steps go on: one of them removes these.
    """
    job, targets = view.reading, _suspended(view)
    if job is None or not targets or _left_s(job.manifest, now=now) > 0 or gangs.left_object(view) is not None:
        return []
    note = f"Somebody has suspended it here, and it is resumed. {_how_to_suspend(view, job)}"
    mark = {"metadata": {"annotations": {api_names.RESUMED_ANNOTATION: now}}}
    own = Patch(resource=JOB_RESOURCES[view.key.kind], target=job.manifest, body=mark | to_resume(job.manifest))
    others = [
        Patch(resource=JOB_RESOURCES[target["kind"]], target=target, body=to_resume(target))
        for target in targets
        if target is not job.manifest
    ]
    return [own, *others, Emit(regarding=job.manifest, reason=_UNDONE, note=note, warning=True)]


def requeue_after(view: WorkerView, *, now: str) -> list[Command]:
    """Requeue the job for when a suspension may be undone that came too soon after the last one."""
    job = view.reading
    if job is None or not _suspended(view) or (left_s := _left_s(job.manifest, now=now)) <= 0:
        return []
    return [Requeue(job=job.ref, delay_s=left_s)]


def waiting(view: WorkerView, *, now: str) -> Waiting | None:
    """What the manager's job shows where somebody suspends its copy again: it holds its quota, and does not run."""
    job = view.reading
    if job is None or not _suspended(view) or _left_s(job.manifest, now=now) <= 0:
        return None
    before = Waiting.from_manifest(job.manifest)
    since = before.since if before is not None and before.reason == SUSPENDED_THERE else now
    message = (
        "Somebody suspends its copy on the worker again and again. It holds its quota, and is resumed there at most "
        f"once a minute. {_how_to_suspend(view, job)}"
    )
    return Waiting.of(job.granted, job.granted, reason=SUSPENDED_THERE, message=message, since=since)


def _how_to_suspend(view: WorkerView, job: WorkerJobReading) -> str:
    path = text_of(KINDS[view.key.kind].suspend_path or ())
    return f"Who wants to suspend it sets {path} of {job.ref.key} on the manager's cluster"


def _suspended(view: WorkerView) -> list[Manifest]:
    """What somebody has suspended of a job that the manager has not suspended."""
    job = view.reading
    if job is None or job.is_going or job.is_suspended or job.outcome.phase.is_terminal:
        return []
    return [target for target in (job.manifest, *view.scale_targets) if to_resume(target)]


def _left_s(job: Manifest, *, now: str) -> float:
    """How long the next suspension stays, in seconds; not positive where it may be undone at once."""
    return _UNDO_AGAIN_S - _seconds_since(annotations.annotation(job, api_names.RESUMED_ANNOTATION), now=now)


def _seconds_since(since: str | None, *, now: str) -> float:
    """Seconds since a time on an object; infinite where there is none that can be read, or it is of the future."""
    try:
        passed_s = (datetime.fromisoformat(now) - datetime.fromisoformat(since or "")).total_seconds()
    except (ValueError, TypeError):
        return math.inf
    return passed_s if passed_s >= 0 else math.inf
