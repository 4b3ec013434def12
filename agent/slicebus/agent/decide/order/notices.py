"""Gives a job notice of the pods that it loses, and ends them when that is over.

The order only writes the notice onto the job. Everything else is level-triggered, so that it outlasts the agent: the
pods that go are told, and the deed follows the deadline, the acknowledgement, or the pods' own end.
"""

from collections.abc import Mapping
from datetime import datetime

from slicebus.agent.decide.job import earlier_words, waiting
from slicebus.agent.decide.job.room import patch_job
from slicebus.agent.decide.order import order_sizes
from slicebus.agent.decide.pods.going_pods import excess_pods, going_pods, surplus
from slicebus.agent.state import annotations
from slicebus.agent.state.reclaim import PendingReclaim, Suspension
from slicebus.agent.state.views import WorkerJobReading, WorkerView
from slicebus.decisions.commands import Command, Emit, Patch, Requeue
from slicebus.kube.resources import JOB_RESOURCES, PODS, Resource
from slicebus.proto.messages import Counts, Manifest, Notice, Suspend, WorkloadSpec, counts_text
from slicebus.slices.api import api_names
from slicebus.slices.jobs import KINDS
from slicebus.slices.jobs.suspension import suspension

Notes = Mapping[str, str | None]


def of_spec(view: WorkerView, order: WorkloadSpec, job: WorkerJobReading, *, now: str) -> tuple[Notes, list[Command]]:
    """The annotations by which a notice begins with an order, or is withdrawn by one without, and the Event of that."""
    last = job.reclaim
    if runs_for(job, order):
        return {}, []
    if order_sizes.waits(order, job) and isinstance(order.notice, Notice):
        reclaim = PendingReclaim.of(
            order.notice,
            before=view.counts,
            to=order_sizes.counts_of(order),
            now=now,
            version=order.spec_version,
            word=order.taken_back or "",
            waits_for=order.waits_for or {},
        ).begins_as(last)
        return _noted(reclaim) | earlier_words.note(job, reclaim.word, reclaim.to), _event(job, reclaim)
    return (_over(job), []) if last is not None else ({}, [])


def of_suspension(
    view: WorkerView, order: Suspend, job: WorkerJobReading, notice: Notice, *, now: str
) -> list[Command]:
    """The write by which the notice of a suspension begins."""
    reclaim = PendingReclaim.of(
        notice,
        before=view.counts,
        to=dict.fromkeys(view.counts, 0),
        now=now,
        version=order.spec_version,
        suspends=Suspension(workload=order.workload, reason=order.reason, message=order.message),
    ).begins_as(job.reclaim)
    return [*patch_job(job.manifest, {"metadata": {"annotations": _noted(reclaim)}}), *_event(job, reclaim)]


def runs_for(job: WorkerJobReading, order: WorkloadSpec | Suspend) -> bool:
    """Whether the notice of this order, or of a newer one, runs: it is kept, whatever the order says when it comes
    again."""
    return job.reclaim is not None and job.reclaim.version >= order.spec_version


def suspend(job: WorkerJobReading, version: int, workload: str, *, reason: str, message: str) -> list[Command]:
    """Take the job's grant and with it its pods away. Where its kind cannot be suspended, they stay until the manager
    deletes it."""
    nothing: Counts = {}
    at = annotations.job_metadata(job.ref, workload=workload, version=version, grant=nothing)
    at["annotations"] |= {api_names.REQUESTED_ANNOTATION: None, api_names.BASELINE_ANNOTATION: None, **_over(job)}
    event = Emit(regarding=job.manifest, reason=reason or "Suspended", note=message, warning=True)
    return [*patch_job(job.manifest, {"metadata": at} | suspension(job.ref.kind, True)), event]


def reconcile(view: WorkerView, *, now: str) -> list[Command]:
    """Tell the pods that go while a job's notice runs, and end them when it is over. Those that stay are told
    nothing. Of several notices that are over the last one is carried out, as it leaves fewest pods."""
    job = view.reading
    if job is None or job.is_going:
        return []
    reclaim = job.reclaim
    if reclaim is None:
        return _untell(view, job)
    if reclaim.suspends is None and not job.runs:
        return []
    over = [one for one in reclaim.notices if _is_over(view, job, one, now=now)]
    if not over:
        return _tell(view, job, reclaim)
    if (ordered := over[-1].suspends) is not None:
        return suspend(job, reclaim.version, ordered.workload, reason=ordered.reason, message=ordered.message)
    return _shrink(view, job, over[-1], left=reclaim.without(over[-1]), now=now)


def requeue_after(view: WorkerView, *, now: str) -> list[Command]:
    """Reconcile the job at its next deadline."""
    job = view.reading
    if job is None or job.reclaim is None:
        return []
    left_s = min((left_s for one in job.reclaim.notices if (left_s := _left_s(one, now=now)) > 0), default=None)
    return [Requeue(job=job.ref, delay_s=left_s)] if left_s is not None else []


def _is_over(view: WorkerView, job: WorkerJobReading, reclaim: PendingReclaim, *, now: str) -> bool:
    is_acknowledged = annotations.annotation(job.manifest, api_names.RECLAIM_ACK_ANNOTATION) == reclaim.id
    if is_acknowledged or _left_s(reclaim, now=now) <= 0:
        return True
    return not surplus(view, reclaim.to) and not going_pods(view, reclaim)


def _left_s(reclaim: PendingReclaim, *, now: str) -> float:
    return (reclaim.ends - datetime.fromisoformat(now)).total_seconds()


def _shrink(
    view: WorkerView, job: WorkerJobReading, reclaim: PendingReclaim, *, left: PendingReclaim | None, now: str
) -> list[Command]:
    """Lower the size, before or with the note that it follows the manager's word. Nobody gets pods by it who has
    fewer. `left` is the notice that runs on."""
    if order_sizes.lacks_cluster(view, job):
        return []
    least = order_sizes.reclaimed_size(view, job, reclaim.to, waits_for=reclaim.waits_for)
    sized = KINDS[view.key.kind].with_pods(job.manifest, least, present=job.manifest)
    resized = [*order_sizes.set_size(view, job, sized), *order_sizes.set_caps(view, reclaim.to)]
    fields = order_sizes.as_fields(job, resized)
    if resized and not fields:
        return _one_each(resized)
    noted = {
        api_names.BASELINE_ANNOTATION: annotations.encode_counts(reclaim.to),
        api_names.TAKEN_BACK_ANNOTATION: reclaim.word,
        api_names.FOLLOWS_ANNOTATION: reclaim.word,
        **order_sizes.note_travelling(job, reclaim.to),
    }
    after = job.requested.beside(reclaim.to) if job.requested is not None else None
    waits = waiting.note_taken_back(reclaim.to, wanted=reclaim.waits_for, message=reclaim.why, now=now)
    earlier = earlier_words.note(job, reclaim.word, reclaim.to)
    runs_on = _noted(left) if left is not None else {}
    changes = noted | earlier | waits | _over(job) | runs_on | annotations.request_note(job.requested, after)
    event = Emit(regarding=job.manifest, reason=api_names.RECLAIMED, note=reclaim.why, warning=True)
    return [*patch_job(job.manifest, {"metadata": {"annotations": changes}} | fields), event]


def _one_each(patches: list[Patch]) -> list[Command]:
    """The first patch of each object: after it the next one is decided again."""
    first: dict[str, Command] = {}
    for patch in patches:
        first.setdefault(patch.target["metadata"]["uid"], patch)
    return [*first.values()]


def _tell(view: WorkerView, job: WorkerJobReading, reclaim: PendingReclaim) -> list[Command]:
    """Tell each pod the first notice that takes it, and one that stays nothing. Pods past the size of the job are about
    to go, and keep what they were told."""
    told: dict[str, str] = {}
    for notice in reversed(reclaim.notices):
        told |= dict.fromkeys((pod.name for pod in going_pods(view, notice)), notice.to_told())
    leaving = {pod.name for pod in excess_pods(view)}
    objects = [(resource, cluster, reclaim.to_told()) for resource, cluster in _clusters(view, job)]
    pods = [
        (PODS, pod.manifest, told.get(pod.name))
        for members in view.own_pod_sets.values()
        for pod in members.running
        if not pod.is_terminating and pod.name not in leaving
    ]
    return [
        _note(resource, target, text)
        for resource, target, text in (*objects, *pods)
        if annotations.annotation(target, api_names.RECLAIM_ANNOTATION) != text
    ]


def _untell(view: WorkerView, job: WorkerJobReading) -> list[Command]:
    """Take the notice from what stays. Pods past the size of the job are about to go, and keep it."""
    sizes, left = view.counts, surplus(view, view.counts)
    pods = [
        (PODS, pod.manifest)
        for name, members in view.own_pod_sets.items()
        if job.runs and name in sizes and name not in left
        for pod in members.running
        if not pod.is_terminating
    ]
    return [
        _note(resource, target, None)
        for resource, target in (*_clusters(view, job), *pods)
        if annotations.annotation(target, api_names.RECLAIM_ANNOTATION) is not None
    ]


def _clusters(view: WorkerView, job: WorkerJobReading) -> list[tuple[Resource, Manifest]]:
    """The clusters that were made for the job."""
    own = job.manifest["metadata"]["uid"]
    return [(JOB_RESOURCES[one["kind"]], one) for one in view.scale_targets if one["metadata"]["uid"] != own]


def _note(resource: Resource, target: Manifest, told: str | None) -> Patch:
    body = {"metadata": {"annotations": {api_names.RECLAIM_ANNOTATION: told}}}
    return Patch(resource=resource, target=target, body=body, only_shows=True)


def _noted(reclaim: PendingReclaim) -> dict[str, str | None]:
    return {api_names.RECLAIM_ANNOTATION: reclaim.to_annotation()}


def _over(job: WorkerJobReading) -> dict[str, str | None]:
    """The annotations that go with a notice."""
    names = (api_names.RECLAIM_ANNOTATION, api_names.RECLAIM_ACK_ANNOTATION)
    return {name: None for name in names if annotations.annotation(job.manifest, name) is not None}


def _event(job: WorkerJobReading, reclaim: PendingReclaim) -> list[Command]:
    if job.reclaim is not None and job.reclaim.id == reclaim.id:
        return []
    lost = {name: count - reclaim.to.get(name, 0) for name, count in reclaim.before.items()}
    gone = counts_text({name: count for name, count in lost.items() if count > 0})
    note = f"Loses {gone} of {counts_text(reclaim.before)} pods at {reclaim.deadline}: {reclaim.why}"
    return [Emit(regarding=job.manifest, reason=api_names.RECLAIM_NOTICE, note=note, warning=True)]
