"""What a worker shall hold for a job, and the messages that make it so.

The outbox is the Workload itself (rule 5 of the design). Before anything is published, the version and the hash of the
content are written onto it. When the agent reports the version as applied, that is written beside them. This process or
the next publishes again whatever is dispatched and not applied.
"""

import msgspec

from slicebus.decisions.commands import Command, Patch, Publish
from slicebus.kube.resources import JOB_RESOURCES, WORKLOADS
from slicebus.manager.decide.manifests import annotation_patch, without_server_fields
from slicebus.manager.state.annotations import DesiredSize, SizeRequest, annotation
from slicebus.manager.state.outbox import LOST, NO_REQUEST, Dispatch, Held, applied_version
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import (
    ClusterName,
    Counts,
    Delete,
    Manifest,
    PodSetFlavor,
    Relabel,
    Suspend,
    WorkloadSpec,
)
from slicebus.slices import kueue
from slicebus.slices.fingerprints import spec_hash
from slicebus.slices.jobs import KINDS
from slicebus.slices.kueue import Condition
from slicebus.slices.workload import Slice

_NOTHING = Dispatch(version=0, hash="")


def hold(view: JobView, slice: Slice) -> list[Command]:
    """Commands that make the worker hold an admitted slice; empty when that is written and published.

    A suspended job that is admitted to another cluster, or to other flavors, needs another copy. The present copy is
    withdrawn first.
    """
    if view.place is None or view.job is None:
        return []
    if _must_withdraw(view, slice):
        return abandon(view) if view.given_up else withdraw(view, reason="AdmittedElsewhere")
    requested = view.desired.requested
    record, writes = _next(
        view,
        Dispatch(
            version=0,
            hash=spec_hash(view.place, slice.name, slice.granted, view.desired.own),
            answers=requested.key if requested else NO_REQUEST,
            cluster=view.place,
            place=_flavors_hash(slice),
        ),
        view.workload(slice),
        must_answer=requested is not None and _holds_back(requested, slice.granted),
    )
    if not writes and not _is_due(view, record.version, view.workload(slice)):
        return []
    return [*writes, *_spec_messages(view, slice, record, view.place)]


def suspend(view: JobView, slice: Slice) -> list[Command]:
    """Commands that make the worker hold an evicted job without pods; empty when that is written and published."""
    outbox = view.outbox
    if outbox is None or view.cluster is None or view.is_withdrawn:
        return []
    if view.is_withdrawing or view.vanished:
        return withdraw(view, reason="Evicted")
    content = spec_hash(view.cluster, slice.name, {}, None)
    wanted = Dispatch(version=0, hash=content, cluster=view.cluster, place=outbox.record.place, suspended=True)
    record, writes = _next(view, wanted, view.workload(slice))
    if not writes and not _is_due(view, record.version, view.workload(slice)):
        return []
    evicted = slice.conditions[Condition.EVICTED]
    message = Suspend(
        job=view.ref,
        spec_version=record.version,
        workload=slice.name,
        reason=f"EvictedDueTo{evicted.get('reason', '')}",
        message=evicted.get("message", ""),
    )
    return [*writes, Publish(cluster=view.cluster, message=message)]


def withdraw(view: JobView, *, reason: str) -> list[Command]:
    """Commands that make the worker hold nothing of the job; empty when that is written and published."""
    outbox = view.outbox
    if outbox is None or view.cluster is None or view.is_withdrawn:
        return []
    if view.deletes_held and not view.is_withdrawing:
        return []
    record, writes = _next(view, Dispatch(version=0, hash=kueue.ABSENT, cluster=view.cluster), outbox.recorded_on)
    if not writes and not _is_due(view, record.version, outbox.recorded_on):
        return []
    message = Delete(job=view.ref, spec_version=record.version, reason=reason)
    return [*writes, Publish(cluster=view.cluster, message=message)]


def note_unknown_end(view: JobView) -> list[Command]:
    """Commands that record that the worker's copy is gone and may have ended, and that withdraw what is left of it.
    Empty when the copy is withdrawn already."""
    outbox = view.outbox
    if outbox is None or view.cluster is None or view.is_withdrawing:
        return []
    wanted = Dispatch(version=0, hash=kueue.ABSENT, cluster=view.cluster, unknown_end=True)
    return _next(view, wanted, outbox.recorded_on)[1]


def has_unknown_end(view: JobView) -> bool:
    """Whether the worker's copy is gone and may have ended, and the job has not given its quota back."""
    return view.outbox is not None and view.outbox.record.unknown_end is True


def forget_unknown_end(view: JobView) -> list[Command]:
    """Commands after which the job may be dispatched anew."""
    outbox = view.outbox
    if outbox is None or outbox.record.unknown_end is not True:
        return []
    record = msgspec.structs.replace(outbox.record, unknown_end=msgspec.UNSET)
    body = annotation_patch(kueue.DISPATCHED_ANNOTATION, record.to_annotation())
    resource = WORKLOADS if outbox.recorded_on["kind"] == WORKLOADS.kind else JOB_RESOURCES[view.ref.kind]
    return [Patch(resource=resource, target=outbox.recorded_on, body=body)]


def abandon(view: JobView) -> list[Command]:
    """Commands after which a given-up cluster counts as holding nothing, although it may have a copy left.

    By then its agent lets no pod start. The copy is removed before it may again: see `recall`.
    """
    outbox = view.outbox
    if outbox is None or view.cluster is None or view.is_withdrawn:
        return []
    version = outbox.record.version + 1
    left_copies = outbox.record.left_copies | {view.cluster: version}
    record = Dispatch(
        version=version, hash=kueue.ABSENT, cluster=view.cluster, previous_cluster=view.cluster, left_copies=left_copies
    )
    body = {
        "metadata": {
            "annotations": {
                kueue.DISPATCHED_ANNOTATION: record.to_annotation(),
                kueue.APPLIED_ANNOTATION: str(version),
            }
        }
    }
    resource = WORKLOADS if outbox.recorded_on["kind"] == WORKLOADS.kind else JOB_RESOURCES[view.ref.kind]
    return [Patch(resource=resource, target=outbox.recorded_on, body=body)]


def recall(view: JobView) -> list[Command]:
    """The deletes of copies left on given-up clusters, once for each hello of their agents."""
    return [
        Publish(cluster=cluster, message=Delete(job=view.ref, spec_version=version, reason="ClusterLost"))
        for cluster, version in view.left_copies.items()
        if view.recalled.get(cluster, 0) < version
    ]


def has_copy(view: JobView) -> bool:
    """Whether the worker has reported a copy of the job, or has yet to report that it deleted one."""
    if view.is_withdrawing:
        return not view.is_withdrawn
    return any(applied_version(workload) for workload in view.workloads.values())


def is_unanswered(view: JobView) -> bool:
    """Whether the worker has asked for a size since its last order."""
    requested, outbox = view.desired.requested, view.outbox
    if requested is None or not requested.asks_for_size or outbox is None or outbox.record.is_lost:
        return False
    return outbox.record.answers != requested.key


def take_as_applied(view: JobView, *, version: int) -> list[Command]:
    """Commands that record this version as applied, if it is the newest."""
    outbox = view.outbox
    if outbox is None or outbox.record.version != version or outbox.is_reported:
        return []
    body = annotation_patch(kueue.APPLIED_ANNOTATION, str(version))
    return [Patch(resource=WORKLOADS, target=outbox.recorded_on, body=body)]


def renew(view: JobView, *, above: int) -> list[Command]:
    """Commands that have what the worker shall hold dispatched anew, above every version that was seen.

    The worker has lost it, or holds something else, although it had reported it. So its version proves nothing.
    """
    record, recorded_on = _newest(view)
    seen = max(record.version, applied_version(recorded_on) if recorded_on else 0, above)
    lost = msgspec.structs.replace(record, version=seen, hash=LOST, answers=NO_REQUEST, vanished=msgspec.UNSET)
    return _rewrite(view, recorded_on, lost)


def note_vanished(view: JobView, *, vanished: bool = True) -> list[Command]:
    """Commands that record whether the worker has reported its copy as gone; empty when that is recorded.

    This process or the next decides from the record what follows.
    """
    record, recorded_on = _newest(view)
    if record.has_vanished is vanished or record.held is Held.ABSENT:
        return []
    return _rewrite(view, recorded_on, msgspec.structs.replace(record, vanished=True if vanished else msgspec.UNSET))


def copy_to_job(view: JobView) -> list[Command]:
    """Copy the newest dispatch onto the job before its last Workload goes.

    The job may get another first slice, whose version must be higher than the worker's tombstone.
    """
    outbox = view.outbox
    if outbox is None or view.job is None or outbox.recorded_on is view.job:
        return []
    record = {
        kueue.DISPATCHED_ANNOTATION: outbox.record.to_annotation(),
        kueue.APPLIED_ANNOTATION: str(applied_version(outbox.recorded_on)),
    }
    body = {"metadata": {"annotations": record}}
    return [Patch(resource=JOB_RESOURCES[view.ref.kind], target=view.job, body=body)]


def as_wanted(job: Manifest, desired: DesiredSize) -> Manifest:
    """The job as its worker shall have it: with its user's counts, and with the fields that only a copy may have."""
    kind = KINDS[job["kind"]]
    wanted = kind.with_counts(job, desired.own) if desired.requested else job
    return kind.autoscaled(wanted) if annotation(job, kueue.IN_TREE_AUTOSCALING_ANNOTATION) == "true" else wanted


def _newest(view: JobView) -> tuple[Dispatch, Manifest | None]:
    """The newest dispatch and the object that holds it; without one an empty dispatch and the newest Workload."""
    if view.outbox is not None:
        return view.outbox.record, view.outbox.recorded_on
    return _NOTHING, view.workload(view.slices[-1]) if view.slices else None


def _rewrite(view: JobView, recorded_on: Manifest | None, record: Dispatch) -> list[Command]:
    if recorded_on is None:
        return []
    body = annotation_patch(kueue.DISPATCHED_ANNOTATION, record.to_annotation())
    resource = WORKLOADS if recorded_on["kind"] == WORKLOADS.kind else JOB_RESOURCES[view.ref.kind]
    return [Patch(resource=resource, target=recorded_on, body=body)]


def _must_withdraw(view: JobView, slice: Slice) -> bool:
    """Whether the worker has a copy that the slice cannot use, or is still deleting one."""
    outbox = view.outbox
    if outbox is None or view.is_withdrawn:
        return False
    record = outbox.record
    if record.held is Held.ABSENT:
        return True
    if record.held is Held.HOLD:
        return False
    return view.cluster != view.place or record.place not in ("", _flavors_hash(slice))


def _flavors_hash(slice: Slice) -> str:
    """A hash of the flavors by pod set and resource."""
    return slice.admission.flavors_hash if slice.admission else ""


def _next(
    view: JobView, wanted: Dispatch, workload: Manifest, *, must_answer: bool = False
) -> tuple[Dispatch, list[Command]]:
    """The wanted dispatch with its version, and the write that records it; no write when it is the newest already."""
    outbox = view.outbox
    known = outbox and outbox.record.hash == wanted.hash and outbox.recorded_on is workload
    if outbox and known and (outbox.record.answers == wanted.answers or not must_answer):
        return outbox.record, []
    last = outbox.record if outbox else _NOTHING
    previous_cluster = last.cluster if last.cluster != wanted.cluster else last.previous_cluster
    left_copies = {
        cluster: version
        for cluster, version in last.left_copies.items()
        if cluster != wanted.cluster or wanted.hash == kueue.ABSENT
    }
    since = last.version + 1 if last.suspended or last.hash == kueue.ABSENT else last.since
    unknown_end = wanted.unknown_end or (last.unknown_end if wanted.hash == kueue.ABSENT else msgspec.UNSET)
    record = msgspec.structs.replace(
        wanted,
        version=last.version + 1,
        previous_cluster=previous_cluster,
        since=since,
        left_copies=left_copies,
        unknown_end=unknown_end,
    )
    body = annotation_patch(kueue.DISPATCHED_ANNOTATION, record.to_annotation())
    return record, [Patch(resource=WORKLOADS, target=workload, body=body)]


def _holds_back(requested: SizeRequest, granted: Counts) -> bool:
    """Whether the worker runs fewer pods than it may, until its request is answered."""
    return any(requested.granted.get(name, 0) < count for name, count in granted.items())


def _is_due(view: JobView, version: int, workload: Manifest) -> bool:
    return applied_version(workload) < version and view.published < version


def _spec_messages(view: JobView, slice: Slice, record: Dispatch, cluster: ClusterName) -> list[Command]:
    """The spec, and the relabel where the worker's copy may still name the replaced slice."""
    assert view.job is not None
    workload, desired = view.workload(slice), view.desired
    spec = WorkloadSpec(
        job=view.ref,
        spec_version=record.version,
        workload=without_server_fields(workload),
        manifest={k: v for k, v in without_server_fields(as_wanted(view.job, desired)).items() if k != "status"},
        granted=slice.granted,
        flavors={pod_set.name: _flavor(view, slice, pod_set.name) for pod_set in slice.pod_sets},
        answers=record.answers,
    )
    messages: list[Command] = [Publish(cluster=cluster, message=spec, correlation=desired.correlation)]
    if slice.replaces and applied_version(workload) == 0:
        relabel = Relabel(
            job=view.ref,
            spec_version=record.version,
            from_workload=slice.replaces.partition("/")[2],
            to_workload=slice.name,
            granted=slice.granted,
            answers=record.answers,
        )
        messages.append(Publish(cluster=cluster, message=relabel, correlation=desired.correlation))
    return messages


def _flavor(view: JobView, slice: Slice, pod_set: str) -> PodSetFlavor:
    """The node labels and tolerations of every flavor that a pod set was given."""
    node_labels: dict[str, str] = {}
    tolerations: list[Manifest] = []
    names = slice.admission.flavors_of(pod_set).values() if slice.admission else ()
    for name in dict.fromkeys(names):
        spec = view.flavors.get(name, {}).get("spec", {})
        node_labels |= spec.get("nodeLabels", {})
        tolerations += [toleration for toleration in spec.get("tolerations", ()) if toleration not in tolerations]
    return PodSetFlavor(node_labels=node_labels, tolerations=tolerations)
