"""Writes the counts that a worker asks for into the spec of the manager's job, where a Kueue reads them, and those of
its user back.

The API server may refuse either: by a rule of its own, a policy or a webhook.
"""

from collections.abc import Mapping

from slicebus.decisions.commands import Command, Forget, Patch, Remember, Requeue
from slicebus.kube.resources import JOB_RESOURCES
from slicebus.manager.decide.job import waiting
from slicebus.manager.decide.manifests import merge_difference
from slicebus.manager.decide.order import size_requests
from slicebus.manager.state.annotations import SpecCounts, annotation
from slicebus.manager.state.tables import ManagerTable
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Manifest, Waits
from slicebus.slices.api import api_names
from slicebus.slices.api.annotation_values import with_room
from slicebus.slices.jobs import KINDS
from slicebus.slices.workload.workload import Slice


def write_request(view: JobView, job: Manifest, holder: Slice) -> list[Command]:
    """Write the size of the worker's last request into the job's spec. Kueue stops a job that it cannot resize."""
    kind, desired = KINDS[view.ref.kind], view.desired
    requested, present = desired.requested, kind.counts(job, job)
    if requested is None or desired.correlation is None or desired.spec_counts == present:
        return []
    if desired.counts.keys() != present.keys() or not holder.elastic:
        return []
    noted = SpecCounts(written=desired.spec_counts, own=desired.own).to_annotation()
    return [_spec_patch(job, kind.with_counts(job, desired.spec_counts), {api_names.SPEC_COUNTS_ANNOTATION: noted})]


def restore(view: JobView, job: Manifest, *, now: str) -> list[Command]:
    """Give the job's spec its user's counts again, then forget the request: in between nothing else is decided. Counts
    that the API server refuses stay as they are, and keep no quota: the job says so until it runs again."""
    commands: list[Command] = []
    if annotation(job, api_names.SPEC_COUNTS_ANNOTATION) is not None and not _is_refused(view):
        own = view.desired.own
        refused = Waits(wanted=own, reason=waiting.COUNTS_NOT_RESTORED, message="", since=now)
        note = Remember(table=ManagerTable.REFUSED_REQUESTS, key=view.ref, value=refused)
        restored = KINDS[view.ref.kind].with_counts(job, own)
        patch = _spec_patch(job, restored, {api_names.SPEC_COUNTS_ANNOTATION: None}, if_refused=note)
        commands.append(patch)
    if view.requested is not None and view.requested.asks_for_size:
        commands += size_requests.record(view, view.requested.cleared())
    return [*commands, Requeue(job=view.ref, delay_s=0.0)] if commands else []


def forget_refusal(view: JobView) -> list[Command]:
    """After this, the user's counts are tried again when the job leaves its worker the next time."""
    return [Forget(table=ManagerTable.REFUSED_REQUESTS, key=view.ref)] if _is_refused(view) else []


def _is_refused(view: JobView) -> bool:
    return view.refused_request is not None and view.refused_request.reason == waiting.COUNTS_NOT_RESTORED


def _spec_patch(
    job: Manifest, wanted: Manifest, annotations: Mapping[str, str | None], *, if_refused: Remember | None = None
) -> Command:
    spec = merge_difference(job["spec"], wanted["spec"])
    written = with_room(job["metadata"].get("annotations") or {}, annotations)
    body = {"metadata": {"annotations": written}} | ({"spec": spec} if spec else {})
    return Patch(resource=JOB_RESOURCES[job["kind"]], target=job, body=body, if_refused=if_refused)
