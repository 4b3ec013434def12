"""Shows why a job does not have the size that it wants: on the worker's job, and on the RayCluster of a RayJob.

The manager says why a request waits. Only the worker knows that pods run which are no longer wanted. Both are kept in
the annotation alone, so an agent that starts again knows them and emits no second Event.
"""

from collections.abc import Mapping
from datetime import timedelta

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from slicebus.agent.decide.cluster.reach import Unreached
from slicebus.agent.decide.job import gangs, suspension
from slicebus.agent.decide.pods import pod_fit, pod_problems, terminating_pods
from slicebus.agent.decide.pods.pod_problems import age
from slicebus.agent.decide.pods.pod_refusals import by_status, is_without_pods, lacking
from slicebus.agent.state import annotations
from slicebus.agent.state.tables import AgentTable
from slicebus.agent.state.views import PodsRefusal, WorkerJobReading, WorkerView
from slicebus.decisions.commands import Command, Emit, Forget, Patch, Remember, Requeue
from slicebus.kube.resources import JOB_RESOURCES
from slicebus.proto.messages import ClusterName, Counts, Manifest, Pending, PodProblem, RequestKey, Time, Waits
from slicebus.slices.api import api_names
from slicebus.slices.jobs import KINDS, Problem
from slicebus.slices.workload.waiting import (
    CONTROLLER_REFUSED,
    ONLY_WORKERS_KNOW,
    PODS_NOT_RUNNING,
    PODS_PAST_SLICE,
    PODS_REFUSED,
    PODS_TERMINATING,
    REFUSED_THERE,
    SPEC_REFUSED,
    SURPLUS,
    UNREACHED,
    WORKLOAD_MISSING,
    WRITE_REFUSED,
    Waiting,
    lacks,
    shown_on,
    with_pods,
    without_details,
    without_pods,
)

_LENGTH = 2000
"""Of a text: all annotations of an object share 256 KiB."""
_WITH_EVENT = (SURPLUS, PODS_PAST_SLICE, WORKLOAD_MISSING, PODS_TERMINATING, *UNREACHED)
"""What an Event says too: nobody else says it on the worker."""
_SETTLES = timedelta(seconds=60)
"""How long more pods may run than are wanted before that is shown: normally Ray's autoscaler names them for deletion in
the patch that lowers the size."""


def take(view: WorkerView, notice: Pending) -> list[Command]:
    """Show why the job's last request waits, with one Event on every object that shows it; nothing when it is shown, or
    was granted since. A notice about an earlier request is an Event only."""
    if view.job is None or not annotations.is_of(view.job, notice.job):
        return []
    job, events = view.reading, _events(view, notice)
    if job is None or not job.runs or job.requested is None or view.scale_target is None:
        return events
    if job.requested.key != RequestKey(notice.worker_uid, notice.worker_generation):
        return events
    waiting, before = _lacking(view, job, notice), Waiting.from_manifest(job.manifest)
    if waiting is not None and before is not None:
        waiting = replace(waiting, pods=before.pods)
    if waiting is None or waiting.says_same(before):
        return []
    return [_annotate(job.manifest, waiting), *events]


def note_taken_back(size: Counts, *, wanted: Counts, message: str, now: str) -> dict[str, str]:
    """The annotation of a job that goes down to a size for others, and waits to have this one again. It goes with the
    write that notes the smaller size."""
    if wanted.keys() != size.keys() or not lacks(wanted, size):
        return {}
    waiting = Waiting.of(wanted, size, reason=api_names.RECLAIMED, message=message, since=now)
    return {api_names.WAITING_ANNOTATION: waiting.to_annotation()}


def show_unreached(view: WorkerView, unreached: Unreached | None) -> list[Command]:
    """Show on a job whose last request nobody has answered that the manager is not reached, with one Event; nothing
    where that is shown, and where it is reached. An earlier reason was about an earlier request."""
    waiting = _of_unheard(view, unreached)
    if waiting is None or view.reading is None:
        return []
    before = Waiting.from_manifest(view.reading.manifest)
    return _show(view, replace(waiting, pods=before.pods if before is not None else {}))


def shows_unreached(job: WorkerJobReading) -> bool:
    """Whether a job shows that the manager is not reached."""
    shown = Waiting.from_manifest(job.manifest)
    return shown is not None and shown.reason in UNREACHED


def reconcile(view: WorkerView, *, now: str, unreached: Unreached | None = None) -> list[Command]:
    """Keep up to date what is shown: for the present counts, on the present RayCluster, and removed when the wait is
    over. `now` is RFC 3339."""
    job, target = view.reading, view.scale_target
    if job is None or job.is_going:
        return []
    before = Waiting.from_manifest(job.manifest)
    is_refused = _refused(view, job, now=now) is not None or (before is not None and before.reason in REFUSED_THERE)
    if job.runs and target is None and not is_refused:
        return [_annotate(job.manifest, without_pods(before))] if before is not None and before.pods else []
    surplus, timed = _surplus(view, now=now)
    waiting = _of_unheard(view, unreached) or _of_request(view, job) or surplus or _held_up(view, job, now=now)
    waiting = waiting or suspension.waiting(view, now=now) or _of_taken_back(view, job)
    problems = pod_problems.settled(view, now=now)
    waiting = with_pods(waiting, problems, wanted=view.desired or job.granted, granted=job.granted)
    return [*timed, *_show(view, waiting)]


def _show(view: WorkerView, waiting: Waiting | None) -> list[Command]:
    """Show a reason on every object that a user looks at, or none; with an Event where nobody else says it."""
    before = Waiting.from_manifest(view.reading.manifest) if view.reading is not None else None
    told = waiting if waiting is not None and waiting.reason in _WITH_EVENT else None
    is_news = told is not None and (before is None or before.reason != told.reason)
    objects = _objects(view)
    events = [
        Emit(regarding=manifest, reason=told.reason, note=told.message, warning=True)
        for manifest in objects
        if is_news and told is not None
    ]
    patches = [_annotate(manifest, waiting) for manifest in objects if not _shows(manifest, waiting)]
    return [*patches, *events]


def requeue_after(view: WorkerView, *, now: str) -> list[Command]:
    """Requeue the job for when it is time to show that pods run which are no longer wanted. Call it after each
    reconcile: of several delays only the earliest counts."""
    job, since = view.reading, view.surplus_since
    left = _SETTLES - age(since, now) if since is not None else timedelta(0)
    # Times are whole seconds.
    return [Requeue(job=job.ref, delay_s=left.total_seconds() + 1)] if job is not None and left > timedelta(0) else []


def note_refused(view: WorkerView, cluster: ClusterName, problem: str, *, now: str) -> list[Command]:
    """Remember that the API server refuses what a job needs, for the next status report, with an Event on every object
    that a user looks at; nothing where that is known. The objects may not be writable, so no annotation says it."""
    job, before = view.reading, view.refused_write
    if job is None or job.is_going:
        return []
    message = f"The API server of cluster {cluster} refuses what slicebus has to write: {problem}"[:_LENGTH]
    if before is not None and without_details(before.message) == without_details(message):
        return []
    since, wanted = before.since if before is not None else now, view.desired if job.runs else {}
    refused = Waits(wanted=wanted, reason=WRITE_REFUSED, message=message, since=since)
    events = [Emit(regarding=target, reason=WRITE_REFUSED, note=message, warning=True) for target in _objects(view)]
    return [Remember(table=AgentTable.REFUSED_WRITES, key=view.key, value=refused), *events]


def reported(view: WorkerView, job: WorkerJobReading) -> Waits | UnsetType:
    """The reason to wait that only the worker knows, for a status report."""
    if view.refused_write is not None:
        return view.refused_write
    shown = Waiting.from_manifest(job.manifest)
    if shown is None or shown.reason not in ONLY_WORKERS_KNOW or shown.reason in (PODS_NOT_RUNNING, *UNREACHED):
        return UNSET
    return Waits(wanted=shown.wanted, reason=shown.reason, message=shown.message, since=shown.since)


def reported_problems(job: WorkerJobReading) -> Mapping[str, PodProblem]:
    """Why granted pods do not run, by pod set, for a status report: what the job shows."""
    shown = Waiting.from_manifest(job.manifest)
    pods = shown.pods if shown is not None else {}
    return {name: problem for name, problem in pods.items() if job.granted.get(name)}


def _of_unheard(view: WorkerView, unreached: Unreached | None) -> Waiting | None:
    """What to show where nobody has answered the last request, or the next one is not even written, as the manager is
    not reached. A reason that the manager has given for this size stands: it was the answer."""
    job = view.reading
    if unreached is None or job is None or not job.runs or view.scale_target is None:
        return None
    last, wanted, before = job.requested, view.desired, Waiting.from_manifest(job.manifest)
    if last is not None and (lacks(last.wanted, job.granted) or last.wanted == wanted):
        wanted = last.wanted if last.unanswered else {}
    if not wanted or not lacks(wanted, job.granted):
        return None
    if before is not None and before.reason not in ONLY_WORKERS_KNOW and before.wanted == wanted:
        return None
    shown = before if before is not None and before.reason in UNREACHED else None
    if not unreached.reason:
        return shown and Waiting.of(wanted, job.granted, reason=shown.reason, message=shown.message, since=shown.since)
    if shown is not None and shown.reason == unreached.reason and shown.since < unreached.since:
        # An agent that has begun meanwhile has looked for a shorter time.
        unreached = replace(unreached, since=shown.since)
    message, since = unreached.message, unreached.since
    return Waiting.of(wanted, job.granted, reason=unreached.reason, message=message, since=since)


def _of_request(view: WorkerView, job: WorkerJobReading) -> Waiting | None:
    """Why a request waits, as the manager has said it, with the present counts; None when it no longer waits. What it
    has said of an earlier request stays as it is until it speaks of this one."""
    before, last = Waiting.from_manifest(job.manifest), job.requested
    if before is None or before.reason in (*ONLY_WORKERS_KNOW, api_names.RECLAIMED):
        return None
    if not job.runs or view.scale_target is None:
        return None
    shown = _lacking(view, job, before)
    is_earlier = last is not None and bool(last.unanswered) and before.wanted != last.wanted
    return before if shown is not None and is_earlier else shown


def _of_taken_back(view: WorkerView, job: WorkerJobReading) -> Waiting | None:
    """What a job shows that lost pods to others, with the size that it has by now; None where it has all of them again,
    and where somebody has resized it since."""
    before, word = Waiting.from_manifest(job.manifest), job.last_word
    if before is None or before.reason != api_names.RECLAIMED or word is None or not job.runs:
        return None
    if view.counts != word.size or before.wanted.keys() != word.size.keys() or not lacks(before.wanted, word.size):
        return None
    return Waiting.of(before.wanted, word.size, reason=before.reason, message=before.message, since=before.since)


def _lacking(view: WorkerView, job: WorkerJobReading, why: Pending | Waiting) -> Waiting | None:
    """What to show with this reason at the present counts; None where no pod lacks its grant.

    A smaller size is asked for when its pods have gone. Until then the request before it still waits, and may become
    the wanted one again: the manager does not repeat its notice.
    """
    last, wanted = job.requested, view.desired
    if not lacks(wanted, job.granted):
        if last is None or last.overruled is True or not lacks(last.wanted, job.granted):
            return None
        wanted = last.wanted
    return Waiting.of(
        wanted,
        job.granted,
        reason=why.reason,
        message=why.message,
        since=why.since,
        would_admit=why.would_admit,
    )


def _surplus(view: WorkerView, *, now: str) -> tuple[Waiting | None, list[Command]]:
    """What to show where pods run that are no longer wanted and that nobody deletes, after a while; and the commands
    that time it."""
    job, target = view.reading, view.scale_target
    pods = _pods_past(view, target) if job is not None and target is not None and job.runs else 0
    if job is None or target is None or not pods:
        return None, [Forget(table=AgentTable.SURPLUS, key=view.key)] if view.surplus_since else []
    before = Waiting.from_manifest(job.manifest)
    since = before.since if before is not None and before.reason == SURPLUS else view.surplus_since
    if since is None:
        return None, [Remember(table=AgentTable.SURPLUS, key=view.key, value=now)]
    if age(since, now) < _SETTLES:
        return None, []
    return Waiting.of(view.counts, job.granted, reason=SURPLUS, message=_past_text(pods), since=since), []


def _held_up(view: WorkerView, job: WorkerJobReading, *, now: str) -> Waiting | None:
    return _refused(view, job, now=now) or _unscheduled(view, job, now=now) or _kept_out(view, job, now=now)


def _unscheduled(view: WorkerView, job: WorkerJobReading, *, now: str) -> Waiting | None:
    """What to show where granted pods do not start: they are not those of their slice, or their scheduler backend needs
    something."""
    problem = pod_fit.problem(view) or gangs.problem(view)
    if problem is None:
        return None
    before = Waiting.from_manifest(job.manifest)
    since = before.since if before is not None and before.reason == problem.reason else now
    return _of(problem, view, job, since=since)


def _kept_out(view: WorkerView, job: WorkerJobReading, *, now: str) -> Waiting | None:
    """What to show where granted pods wait until terminating ones have gone."""
    found = terminating_pods.problem(view, now=now)
    if found is None:
        return None
    problem, since = found
    return _of(problem, view, job, since=since)


def _of(problem: Problem, view: WorkerView, job: WorkerJobReading, *, since: Time) -> Waiting:
    return Waiting.of(view.desired, job.granted, reason=problem.reason, message=problem.message, since=since)


def _refused(view: WorkerView, job: WorkerJobReading, *, now: str) -> Waiting | None:
    """What to show where pods are not made, or the job's controller refuses it. They keep their quota, so whoever mends
    it need not wait for quota again.

    An Event ends long before the refusal that it tells. What an earlier agent has shown stays until this one has read
    the Events; and a refusal of the whole job until a pod is there.
    """
    number, before = lacking(view), Waiting.from_manifest(job.manifest)
    if not job.runs:
        return None
    refusal = by_status(view)
    if not refusal.reason:
        shown = before.reason if before is not None else ""
        is_unread = view.refused_pods is None and shown in REFUSED_THERE
        is_silent = view.refused_pods == PodsRefusal() and shown == CONTROLLER_REFUSED and is_without_pods(view)
        if number and (is_unread or is_silent):
            return before
        refusal = view.refused_pods or refusal
    is_over = refusal.reason == CONTROLLER_REFUSED and not is_without_pods(view)
    if not refusal.reason or is_over or not (number or refusal.reason == SPEC_REFUSED):
        return None
    since = before.since if before is not None and before.reason == refusal.reason else now
    message = _refusal_text(refusal, number)
    wanted = view.desired or job.granted
    return Waiting.of(wanted, job.granted, reason=refusal.reason, message=message, since=since)


def _refusal_text(refusal: PodsRefusal, number: int) -> str:
    quota = f"{'1 pod holds its' if number == 1 else f'{number} pods hold their'} quota"
    if refusal.reason == PODS_REFUSED:
        pods = "1 pod cannot be made and holds its" if number == 1 else f"{number} pods cannot be made and hold their"
        return f"{pods} quota: {refusal.text}"
    if refusal.reason == CONTROLLER_REFUSED:
        return f"Its controller refuses the job, and {quota}: {refusal.text}"
    return f"Its controller refuses its present spec{f', and {quota}' if number else ''}: {refusal.text}"


def _pods_past(view: WorkerView, target: Manifest) -> int:
    """How many pods run past the wanted counts, neither going nor named for deletion."""
    if not KINDS[view.key.kind].is_autoscaled(target):
        return 0
    wanted, named = view.counts, view.named_for_deletion
    staying: Counts = {
        name: sum(not pod.is_terminating and pod.name not in named for pod in members.running)
        for name, members in view.pod_sets.items()
    }
    return sum(max(0, count - wanted.get(name, count)) for name, count in staying.items())


def _past_text(pods: int) -> str:
    pods_text = "1 pod runs that is" if pods == 1 else f"{pods} pods run that are"
    return f"{pods_text} no longer wanted; with the autoscaler on only it deletes {'it' if pods == 1 else 'them'}"


def _shows(manifest: Manifest, waiting: Waiting | None) -> bool:
    if waiting is None:
        return shown_on(manifest) is None
    return waiting.says_same(Waiting.from_manifest(manifest))


def _annotate(target: Manifest, waiting: Waiting | None) -> Command:
    text = waiting.to_annotation() if waiting is not None else None
    body = {"metadata": {"annotations": {api_names.WAITING_ANNOTATION: text}}}
    return Patch(resource=JOB_RESOURCES[target["kind"]], target=target, body=body, only_shows=True)


def _events(view: WorkerView, notice: Pending) -> list[Command]:
    wanted = ", ".join(f"{name}={count}" for name, count in sorted(notice.wanted.items()))
    note = f"Resize to {wanted} waits since {notice.since}: {notice.message}"
    if notice.would_admit:
        note += f"; it goes on with {notice.would_admit}"
    return [Emit(regarding=target, reason=notice.reason, note=note, warning=True) for target in _objects(view)]


def _objects(view: WorkerView) -> list[Manifest]:
    """The objects that a user looks at: the job, and the RayCluster of a RayJob."""
    manifests = (manifest for manifest in (view.job, *view.scale_targets) if manifest is not None)
    return list({manifest["metadata"]["uid"]: manifest for manifest in manifests}.values())
