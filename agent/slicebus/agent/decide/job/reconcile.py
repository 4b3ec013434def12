"""Reconciles one job of the worker: requests another size, ungates pods, reports.

Level-triggered: each function compares what is with what should be. The last request is an annotation of the job, so a
restart neither loses nor repeats it.
"""

from collections.abc import Mapping

from msgspec import UNSET, UnsetType

from slicebus.agent.decide.job import earlier_words, gangs, waiting
from slicebus.agent.decide.job.requested_sizes import RequestedSizes, is_published
from slicebus.agent.decide.job.room import patch_job
from slicebus.agent.decide.pods.next_pods import about_to_go
from slicebus.agent.decide.pods.pod_placement import is_unplaced, placed, placements
from slicebus.agent.state import annotations
from slicebus.agent.state.annotations import PendingRequests
from slicebus.agent.state.departures import Departure
from slicebus.agent.state.status_bounds import told_pods
from slicebus.agent.state.tables import AgentTable
from slicebus.agent.state.views import JobKey, WorkerJobReading, WorkerView
from slicebus.decisions.commands import Command, Forget, Patch, PatchEach, Publish, Remember, Requeue
from slicebus.kube.resources import GONE, JOB_RESOURCES, PODS, WORKLOADS
from slicebus.proto.messages import (
    Applied,
    ClusterName,
    Counts,
    JobPhase,
    JobRef,
    Manifest,
    PodSetFlavor,
    RequestKey,
    ScaleRequest,
    Status,
)
from slicebus.slices.api import api_names, kueue
from slicebus.slices.jobs import KINDS
from slicebus.slices.jobs.suspension import can_suspend, to_suspend
from slicebus.slices.workload.ungate import Members, could_start, pod_set_of

_EPOCH = api_names.EPOCH_ANNOTATION


def link_copies(view: WorkerView) -> list[Command]:
    """Writes the UID of the job onto its Workload copies. From then on a missing job is known to be gone."""
    job = view.reading
    if job is None:
        return []
    uid = job.manifest["metadata"]["uid"]
    body = {"metadata": {"annotations": link_to(view, job)}}
    return [
        Patch(resource=WORKLOADS, target=copy, body=body)
        for copy in view.own_copies
        if annotations.annotation(copy, api_names.JOB_UID_ANNOTATION) != uid
    ]


def link_to(view: WorkerView, job: WorkerJobReading) -> dict[str, str]:
    """The annotations that link a Workload copy to its job."""
    known = {api_names.JOB_UID_ANNOTATION: job.manifest["metadata"]["uid"]}
    return known | ({api_names.DEFINITION_ANNOTATION: view.definition} if view.definition else {})


def unlink_copies(view: WorkerView) -> list[Command]:
    """Unlinks the copies from a job that went with its definition: nobody has deleted the job. The next inventory shows
    the manager that it is missing, and the manager sends it again."""
    body = {"metadata": {"annotations": {api_names.JOB_UID_ANNOTATION: None, api_names.DEFINITION_ANNOTATION: None}}}
    return [
        Patch(resource=WORKLOADS, target=copy, body=body)
        for copy in view.copies
        if annotations.is_linked(copy) and went_with_definition(view, copy)
    ]


def went_with_definition(view: WorkerView, copy: Manifest) -> bool:
    """Whether a copy's missing job went because somebody removed the definition of its kind."""
    by = annotations.annotation(copy, api_names.DEFINITION_ANNOTATION)
    return view.definition == GONE or (None not in (view.definition, by) and view.definition != by)


def request(view: WorkerView, cluster: ClusterName) -> list[Command]:
    """The next step of requesting the job's present size; nothing when the manager has the request.

    Two steps: write the request on the job, publish it. Wherever this stops, the next reconcile goes on. The first step
    also lowers the grant to the request: the manager frees the quota as soon as it knows, and pods of a later request
    must not start under the old grant.

    A request that no order has answered is published once by each agent: the broker may not have had it from the one
    before, and the manager may have refused it, because the epoch had ended before it arrived.

    The manager frees the quota of a smaller size at once, so it is requested when its surplus pods are gone. A pod set
    with such pods holds up no other: until then the request has those that run (rule 1), or the size of an earlier word
    of the manager when the pods of that are gone (`earlier_words`).
    """
    job, scale_target = view.reading, view.scale_target
    if job is None or scale_target is None or not job.runs:
        return []
    sizes, last = RequestedSizes.of(view, job), job.requested
    key = RequestKey(scale_target["metadata"]["uid"], scale_target["metadata"]["generation"])
    if _is_first_due(sizes, job) if last is None else _is_another_due(sizes, view, job, last, key):
        return _write_request(sizes, view, job, key) if sizes.going <= sizes.wanted.keys() else []
    if last is None or is_published(view, last):
        return []
    message = ScaleRequest(
        job=job.ref,
        workload=job.slice,
        worker_uid=last.worker_uid,
        worker_generation=last.worker_generation,
        granted=last.instead_of,
        wanted=last.wanted,
        finished=last.finished or UNSET,
        follows=last.follows,
        why=KINDS[view.key.kind].scaler(scale_target),
    )
    return [
        Publish(cluster=cluster, message=message),
        Remember(table=AgentTable.PUBLISHED, key=view.key, value=last.key),
    ]


def _write_request(sizes: RequestedSizes, view: WorkerView, job: WorkerJobReading, key: RequestKey) -> list[Command]:
    wanted, granted = sizes.wanted, sizes.granted
    follows = sizes.word.id if sizes.word is not None else _followed(view, job)
    pending = PendingRequests.after(
        job.requested, key, wanted=wanted, granted=granted, finished=view.finished, follows=follows
    )
    note = {
        api_names.REQUESTED_ANNOTATION: pending.to_annotation(),
        api_names.GRANTED_ANNOTATION: annotations.encode_counts(sizes.lowered),
        **earlier_words.left(job, sizes.lowered),
    }
    return patch_job(job.manifest, {"metadata": {"annotations": note}})


def _followed(view: WorkerView, job: WorkerJobReading) -> str | UnsetType:
    """The manager's word that a request carries out: the job has the very size that was set with it."""
    word = job.last_word
    return word.id if word is not None and view.counts == word.size else UNSET


def _is_first_due(sizes: RequestedSizes, job: WorkerJobReading) -> bool:
    """Whether a job that has requested nothing has to.

    The size of the manager's spec needs no request while nothing is granted and there was no other size: beside a Kueue
    the manager grants nothing at first. Where it grants a part, the request is what it tells the worker to wait for. A
    size that an order has set, and that was changed back before this call, needs a request: no earlier one has reported
    it.
    """
    own = annotations.baseline(job.manifest)
    if own is not None and sizes.are_news_to(own):
        return True
    return (own is None or any(sizes.granted.values())) and sizes.are_news_to(sizes.granted)


def _is_another_due(
    sizes: RequestedSizes, view: WorkerView, job: WorkerJobReading, last: PendingRequests, key: RequestKey
) -> bool:
    """Whether the last request does not say what is wanted, or no longer stands."""
    if sizes.are_news_to(last.wanted):
        return True
    is_lost = last.worker_uid != key.worker_uid and not is_published(view, last)
    return is_lost or _is_overruled(sizes, view, job, last, key) or _is_exceeded(sizes, last)


def _is_overruled(
    sizes: RequestedSizes, view: WorkerView, job: WorkerJobReading, last: PendingRequests, key: RequestKey
) -> bool:
    """Whether the manager has a size of its own in place of a request. The same size needs a new one: otherwise the
    manager would never learn of it. The manager's size is that of one cluster: in an upgrade the pods of the other one
    need a request, although the scale target has not changed since, where it had that size already."""
    if last.overruled is not True:
        return False
    own = annotations.baseline(job.manifest) or {}
    if last.made_for == key and not _is_upgraded_at(own, view):
        return False
    return not sizes.going or sizes.are_news_to(own)


def _is_upgraded_at(size: Counts, view: WorkerView) -> bool:
    """Whether the scale target has this size, beside another cluster of the job."""
    if view.job is None or view.scale_target is None or not view.beside:
        return False
    return KINDS[view.key.kind].counts(view.job, view.scale_target) == size


def _is_exceeded(sizes: RequestedSizes, last: PendingRequests) -> bool:
    """Whether an order has granted more since: the manager holds the quota until it is asked for less."""
    return not last.unanswered and sizes.are_less


def ungate(view: WorkerView) -> list[Command]:
    """One patch for each pod that may start now.

    A patch without an answer counts as done, and is sent again. A pod of an earlier job of the name, or of a RayCluster
    that is no longer the job's, is about to go with it and is not started. Neither is one that the Ray autoscaler has
    named for deletion. One that its template does not place waits until its slice says where it runs. Each waits for
    what its scheduler backend needs.
    """
    job, scale_target = view.reading, view.scale_target
    if job is None or scale_target is None or not job.runs:
        return []
    going, owners = about_to_go(view), (job.manifest, *view.scale_targets)
    unanswered = [
        pod.manifest
        for pod in view.unanswered
        if _runs_within(job.granted, view, pod.pod_set) and pod.name not in going and not pod.is_left_by_another(owners)
    ]
    flavors = placements(view)
    patches = tuple(
        _ungate(pod, flavors.get(pod_set_of(pod)))
        for pod in (*unanswered, *gangs.allowed(view))
        if pod_set_of(pod) in flavors or not is_unplaced(pod)
    )
    return [PatchEach(patches=patches, lets_start=True)] if patches else []


def ungate_cleanups(view: WorkerView) -> list[Command]:
    """One patch for each gated pod that cleans up after a job, whatever is granted, whether the job is there or not.

    Its RayCluster is being deleted, and does not go before that pod has ended.
    """
    gated = (pod.manifest for pod in view.pods if pod.cleans_up and pod.is_gated and not pod.is_terminating)
    patches = tuple(Patch(resource=PODS, target=pod, body=_without_gate(pod)) for pod in gated)
    return [PatchEach(patches=patches, lets_start=True)] if patches else []


def _ungate(pod: Manifest, flavor: PodSetFlavor | None) -> Patch:
    uid, version = pod["metadata"]["uid"], pod["metadata"]["resourceVersion"]
    may_start = Remember(table=AgentTable.UNANSWERED, key=uid, value=version)
    nodes = placed(pod, flavor) if flavor is not None and is_unplaced(pod) else []
    return Patch(resource=PODS, target=pod, body=[*_without_gate(pod), *nodes], unless_answered=may_start)


def _runs_within(granted: Counts, view: WorkerView, pod_set: str) -> bool:
    return len(view.pod_sets.get(pod_set, Members()).running) <= granted.get(pod_set, 0)


def take_over_pods(view: WorkerView, *, epoch: int) -> list[Patch]:
    """One write to each pod that an earlier agent may be about to ungate, so that its patch conflicts."""
    if view.reading is None:
        return []
    return [
        Patch(resource=PODS, target=pod, body={"metadata": {annotations.place_of_epoch(pod): {_EPOCH: str(epoch)}}})
        for pod in could_start(view.pod_sets, view.reading.granted)
        if annotations.epoch(pod) != str(epoch)
    ]


def confirm_suspended(view: WorkerView, cluster: ClusterName, *, reported: tuple[str, int] | None) -> list[Command]:
    """Suspends a job that the manager has suspended, and reports once when no pod of it is left. Ended pods may stay.
    One whose kind cannot be suspended has had its notice: that is reported, and the manager deletes it.

    A job that has ended reports its end instead: the manager would run it again elsewhere.

    `reported`: UID of the manager's job and version of the last such report.
    """
    job = view.reading
    if job is None or job.is_going or not job.is_suspended:
        return []
    if suspending := to_suspend(job.manifest):
        return [Patch(resource=JOB_RESOURCES[view.key.kind], target=job.manifest, body=suspending)]
    applied = Applied(job=job.ref, workload=job.slice, spec_version=job.version)
    confirmed = applied.job.uid, applied.spec_version
    if (view.pod_sets and can_suspend(view.key.kind)) or job.outcome.phase.is_terminal or reported == confirmed:
        return []
    note = Remember(table=AgentTable.CONFIRMED_SUSPENDED, key=view.key, value=confirmed)
    return [Publish(cluster=cluster, message=applied), note]


def status(view: WorkerView) -> Status | None:
    """The report on a job as it is now; None where it is not ours.

    KubeRay ends a RayJob before its cluster and, past its deadline, before its submitter: the end is told with the pods
    that still run. Kubernetes before 1.31 ends a Job before its pods, which end at once: None until they have.
    """
    job = view.reading
    if job is None or job.is_going:
        return None
    if job.outcome.phase is not JobPhase.RUNNING and KINDS[view.key.kind].ends_with_pods and view.has_running_pods:
        return None
    problems = waiting.reported_problems(job) if job.runs else {}
    pods = told_pods(view.own_pod_sets, own=job.granted, problems=problems)
    return job.report(pods, waits=waiting.reported(view, job), gang=gangs.reported(view))


def report(
    view: WorkerView, cluster: ClusterName, *, last: tuple[Status, float] | None, now_s: float, interval_s: float
) -> list[Command]:
    """Publishes the status when it differs from the last one: an end, and that its last pod has gone, at once;
    everything else at most every `interval_s` seconds. The note comes before the confirm: until that comes, the manager
    may ask for it again."""
    present = status(view)
    if present is None or (last is not None and present == last[0]):
        return []
    due_s = last[1] + interval_s - now_s if last is not None else 0.0
    is_end = present.phase is not JobPhase.RUNNING and not (present.running and last and last[0].phase is present.phase)
    if due_s > 0 and not is_end:
        return [Requeue(job=present.job, delay_s=due_s)]
    return published(view, present, cluster, now_s=now_s)


def published(view: WorkerView, status: Status, cluster: ClusterName, *, now_s: float) -> list[Command]:
    """Publishes a status, and notes it as the last one of the job's name."""
    forget = Forget(table=AgentTable.REPORTED, key=view.key)
    return [
        Remember(table=AgentTable.REPORTED, key=view.key, value=(status, now_s)),
        Publish(cluster=cluster, message=status, unless_confirmed=forget),
    ]


def gone_report(view: WorkerView, *, departed: Mapping[str, Departure]) -> Status | None:
    """The report on a job that is missing although a Workload copy is linked to it, or a watch has brought it before.

    It is the job's end where that was seen, otherwise GONE, with the newest version of its copies. `departed` is by the
    UID of the manager's job.

    The caller has asked the API server: an empty cache is no evidence (rule 6 of the design). Neither is a missing job
    whose kind is not served, or was not in the meantime.
    """
    if view.is_hidden:
        return None
    for copy in sorted(view.copies, key=annotations.spec_version, reverse=True):
        uid = annotations.annotation(copy, api_names.MANAGER_UID_ANNOTATION) or ""
        departure = departed.get(uid)
        if departure is not None and departure.end is not None:
            return departure.end
        if (annotations.is_linked(copy) or departure is not None) and not went_with_definition(view, copy):
            job = JobRef(
                api_version=KINDS[view.key.kind].resource.api_version,
                kind=view.key.kind,
                namespace=view.key.namespace,
                name=view.key.name,
                uid=uid,
            )
            name, version = copy["metadata"]["name"], annotations.spec_version(copy)
            seen = departure is not None and departure.seen
            return Status(job=job, workload=name, spec_version=version, phase=JobPhase.GONE, seen=seen)
    if view.copies:
        return None
    reports = filter(None, (departure.report for departure in departed.values()))
    return next((gone for gone in reports if view.key == JobKey.of(gone.job)), None)


def linked_uids(view: WorkerView) -> set[str]:
    """The UIDs of the jobs that the copies are linked to."""
    return {uid for copy in view.copies if (uid := annotations.annotation(copy, api_names.JOB_UID_ANNOTATION))}


def _without_gate(pod: Manifest) -> list[Manifest]:
    gates = pod["spec"]["schedulingGates"]
    index = next(i for i, gate in enumerate(gates) if gate["name"] == kueue.ELASTIC_GATE)
    path = f"/spec/schedulingGates/{index}"
    return [
        {"op": "test", "path": f"{path}/name", "value": kueue.ELASTIC_GATE},
        {"op": "remove", "path": path},
    ]
