"""Applies what an order changes of an existing job: its size, its autoscaler's bounds, and what a RayService takes
over.

Each is changed only where the manager's value differs from its last one: until then a change that was made here stays.
Nothing is taken from an edit that nobody can run: the job runs on as it was, which the manager says.
"""

from collections.abc import Iterable

import msgspec

from slicebus.agent.decide.job import earlier_words
from slicebus.agent.decide.order import pods_that_go
from slicebus.agent.decide.order.policy import creator, ensure_edit_allowed
from slicebus.agent.decide.pods.pod_placement import places
from slicebus.agent.state import annotations
from slicebus.agent.state.views import WorkerJobReading, WorkerView
from slicebus.decisions.commands import Command, Emit, Patch
from slicebus.kube.resources import JOB_RESOURCES
from slicebus.proto.errors import ConflictError
from slicebus.proto.messages import Counts, Manifest, WorkloadSpec
from slicebus.slices.api import api_names, kueue
from slicebus.slices.jobs import KINDS
from slicebus.slices.jobs.copies import without
from slicebus.slices.jobs.suspension import is_suspended
from slicebus.slices.workload.pod_requests import pod_requests

_FIELDS = "fields"
"""The key in bounds of the hashes of what a job takes over, by the field of its spec."""


def counts_of(order: WorkloadSpec) -> Counts:
    """The size that the manager has set: that of its user's spec, or the one before a scale-up that was taken back."""
    return KINDS[order.job.kind].counts(order.manifest, order.manifest)


def sets_another(order: WorkloadSpec, job: WorkerJobReading) -> bool:
    """Whether the manager has set another size than the last time. The size of a scale-up that is taken back always
    counts as another: the worker may have grown from the same size."""
    if not _can_run(order) or waits(order, job):
        return False
    noted = annotations.annotation(job.manifest, api_names.TAKEN_BACK_ANNOTATION)
    is_news = bool(order.taken_back) and noted != order.taken_back
    return is_news or annotations.baseline(job.manifest) != counts_of(order)


def waits(order: WorkloadSpec, job: WorkerJobReading) -> bool:
    """Whether the size that the manager has set is for when the job's notice is over (`notices`)."""
    is_told = order.notice is not msgspec.UNSET and job.runs and _can_run(order) and not _withdraws(order, job)
    return is_told and annotations.annotation(job.manifest, api_names.TAKEN_BACK_ANNOTATION) != order.taken_back


def sets_other_bounds(order: WorkloadSpec, job: WorkerJobReading) -> bool:
    """Whether the manager has set other bounds than the last time, or edited fields that the job takes over."""
    bounds = _noted_bounds(order, job)
    return bool(bounds) and annotations.bounds(job.manifest) != bounds


def note(order: WorkloadSpec, job: WorkerJobReading | None) -> dict[str, str | None]:
    """The annotations of a job by which the next order is compared with this one, and None for one that it loses. `job`
    is None where it is made."""
    noted = _note_end(order, job)
    if bounds := _noted_bounds(order, job):
        noted |= _bounds_note(bounds)
    if job is not None and waits(order, job):
        return noted
    noted[api_names.BASELINE_ANNOTATION] = annotations.encode_counts(counts_of(order))
    if order.taken_back and (job is None or _can_run(order)):
        noted[api_names.TAKEN_BACK_ANNOTATION] = order.taken_back
    follows = order.taken_back if order.resized_reason and order.taken_back else None
    if follows or (job is not None and annotations.annotation(job.manifest, api_names.FOLLOWS_ANNOTATION)):
        noted[api_names.FOLLOWS_ANNOTATION] = follows
    return noted | (earlier_words.note(job, follows, counts_of(order)) if job is not None else {})


def note_travelling(job: WorkerJobReading, size: Counts) -> dict[str, str]:
    """The annotation of a job whose bounds go to this size with its pods; empty for any other."""
    kind = KINDS[job.ref.kind]
    if not kind.end_follows(job.manifest):
        return {}
    return _bounds_note(kind.bounds(kind.with_counts(job.manifest, size)))


def take(view: WorkerView, order: WorkloadSpec, job: WorkerJobReading) -> list[Command]:
    """Applies what an order sets, unless it goes with the write that notes the order (`with_note`)."""
    commands = changes(view, order, job)
    return [] if as_fields(job, commands) else commands


def with_note(view: WorkerView, order: WorkloadSpec, job: WorkerJobReading) -> tuple[Manifest, list[Command]]:
    """The fields of the job that an order sets and that go with the write that notes it, and the Events of that."""
    commands = changes(view, order, job)
    fields = as_fields(job, commands)
    return fields, [command for command in commands if isinstance(command, Emit)] if fields else []


def as_fields(job: WorkerJobReading, commands: Iterable[Command]) -> Manifest:
    """The one patch among these commands as fields for a merge patch of the job; empty where there are several, where
    it is of another object or sets something in a list, and for a suspended job."""
    patches = [command for command in commands if isinstance(command, Patch)]
    if len(patches) != 1 or is_suspended(job.manifest):
        return {}
    if patches[0].target["metadata"]["uid"] != job.manifest["metadata"]["uid"]:
        return {}
    fields: Manifest = {}
    operations = patches[0].body
    assert isinstance(operations, list)
    for operation in operations:
        *parents, name = _parts(operation)
        present, inner = job.manifest, fields
        for parent in parents:
            found = present.get(parent)
            if not isinstance(found, dict):
                return {}
            present, inner = found, inner.setdefault(parent, {})
        if operation["op"] != "add" or isinstance(operation["value"], dict):
            return {}
        inner[name] = operation["value"]
    return fields


def _parts(operation: Manifest) -> list[str]:
    path: str = operation["path"]
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


def changes(view: WorkerView, order: WorkloadSpec, job: WorkerJobReading) -> list[Command]:
    """Applies a resize that was made at the manager, and gives the autoscaler the bounds that were set there.

    A suspended job comes back with the counts of the manager's spec, whatever it had grown to. Of several patches of
    one object the first makes the next conflict, and the order is taken again.
    """
    counts, caps, why = _count_patches(view, order, job), _caps(view, order, job), order.resized_because or ""
    done = [(patch.target["metadata"]["uid"], operation) for patch in counts for operation in patch.body]
    bounds = [
        patch
        for patch in _bounds_patches(view, order, job)
        if any((patch.target["metadata"]["uid"], operation) not in done for operation in patch.body)
    ]
    reason = order.resized_reason or "ScaleUpTakenBack"
    events = [
        Emit(
            regarding=patch.target, reason=reason, note=why, warning=reason not in (api_names.RESTORED, api_names.GROWN)
        )
        for patch in (counts or (caps if _is_set(view, order, job) else []))[:1]
        if why
    ]
    return [*counts, *events, *bounds, *caps]


def ensure_taken(view: WorkerView, order: WorkloadSpec, job: WorkerJobReading) -> None:
    """Raises ConflictError while a cluster that the job names lacks what the order sets: KubeRay has made it since, and
    what is set on the job alone does not reach it. Call this before the job notes what the order sets."""
    kind = KINDS[view.key.kind]
    named = kind.children(job.manifest) if job.runs else None
    if not named or not (sets_another(order, job) or sets_other_bounds(order, job)):
        return
    missing = {*named} - {target["metadata"]["name"] for target in view.scale_targets}
    left = [
        command
        for command in changes(view, order, job)
        if isinstance(command, Patch) and command.target["kind"] == kind.child_kind
    ]
    if missing or left:
        raise ConflictError(f"a cluster of {view.key} has yet to take what the order sets")


def take_over(view: WorkerView, order: WorkloadSpec, job: WorkerJobReading) -> list[Command]:
    """Gives a job that runs the fields that were edited at the manager, where its kind takes them.

    It gets none of them while one is impossible. Raises RefusedOrder for what the policy does not allow.
    """
    fields = _edited_fields(order, job)
    if not fields or not _can_be_had(order, job):
        return []
    copy = KINDS[view.key.kind].worker_copy(order.manifest, places(order))
    patch = KINDS[view.key.kind].take_over(job.manifest, copy, fields)
    if not patch:
        return []
    ensure_edit_allowed(view.policy, copy)
    resource, impersonate = JOB_RESOURCES[view.key.kind], creator(view.policy, view.key.namespace)
    return [Patch(resource=resource, target=job.manifest, body=patch, impersonate=impersonate)]


def _count_patches(view: WorkerView, order: WorkloadSpec, job: WorkerJobReading) -> list[Patch]:
    """Set the counts in the job, as far as its kind has the size of the next cluster there, and in its present
    clusters."""
    if not sets_another(order, job):
        return []
    sized = _sized(view, order, job)
    if sized is None:
        return []
    return [*set_size(view, job, sized), *_size_next(view, order, job, sized)]


def _size_next(view: WorkerView, order: WorkloadSpec, job: WorkerJobReading, sized: Manifest) -> list[Patch]:
    """Give the cluster that is made next of the job's own spec, the first one or that of a retry, the size that
    somebody has edited. What others take back, or give, is for the clusters that are there.

    A cluster whose name the job has is made already, or being made: see `ensure_taken`.
    """
    kind, present = KINDS[view.key.kind], job.manifest
    if not job.runs or order.taken_back or kind.is_autoscaled(present):
        return []
    is_first = not view.scale_targets and kind.children(present) == []
    body = kind.follow_next(present, sized) if is_first or kind.retries(present) else []
    return [_patch(present, body)] if body else []


def set_size(view: WorkerView, job: WorkerJobReading, sized: Manifest) -> list[Patch]:
    """Give the job and its present clusters the size of `sized`, and name the pods that go; of several patches of one
    object only the first takes effect."""
    kind = KINDS[view.key.kind]
    if is_suspended(job.manifest):
        # It has no cluster, or one that is going.
        return [_patch(job.manifest, body) for body in kind.follow(job.manifest, sized)]
    counts = kind.counts(sized, sized)
    return [
        _patch(target, [*body, *pods_that_go.named(view, target, counts)])
        for target in _targets(view, job)
        for body in kind.follow(target, sized)
    ]


def set_caps(view: WorkerView, counts: Counts | None) -> list[Patch]:
    """Keep Ray's autoscaler to these counts in the job's present clusters; None leaves all to it again."""
    kind = KINDS[view.key.kind]
    return [_patch(target, body) for target in view.scale_targets if (body := kind.cap(target, counts))]


def lacks_cluster(view: WorkerView, job: WorkerJobReading) -> bool:
    """Whether the job names a cluster that nobody has brought yet: no size reaches it."""
    named = KINDS[view.key.kind].children(job.manifest) if job.runs else None
    return bool(named and {*named} - {target["metadata"]["name"] for target in view.scale_targets})


def _caps(view: WorkerView, order: WorkloadSpec, job: WorkerJobReading) -> list[Patch]:
    """Keep Ray's autoscaler to the size that others leave the job. All is left to it again where nothing is taken back,
    or where it has set another size since. While the job's notice runs it keeps what it has."""
    stands = _is_set(view, order, job)
    if waits(order, job) or (order.resized_reason == api_names.RECLAIMED and not stands):
        return []
    return set_caps(view, counts_of(order) if stands else None)


def _is_set(view: WorkerView, order: WorkloadSpec, job: WorkerJobReading) -> bool:
    """Whether the job, which runs, has to have the size that an order takes back to, or gives back."""
    is_word = bool(order.resized_reason) and _can_run(order) and not is_suspended(job.manifest)
    return is_word and _sized(view, order, job) is not None


def _sized(view: WorkerView, order: WorkloadSpec, job: WorkerJobReading) -> Manifest | None:
    """The manager's job with the size to set; None where the worker's keeps its own.

    None is added to a job of which others take pods, and that somebody has made smaller meanwhile. Pods that come back,
    or that nobody asked for, are no reason to overrule what somebody has set since.
    """
    if is_suspended(job.manifest) or not order.taken_back:
        return order.manifest
    if not order.resized_reason:
        return _with_pods(order, job, counts_of(order)) if sets_another(order, job) else None
    present, noted = view.counts, annotations.annotation(job.manifest, api_names.TAKEN_BACK_ANNOTATION)
    if noted == order.taken_back:
        return _with_pods(order, job, counts_of(order)) if present == annotations.baseline(job.manifest) else None
    if _withdraws(order, job):
        # Where no earlier word has set the size, the job has lost nothing.
        is_set = job.last_word is not None and present == job.last_word.size
        return _with_pods(order, job, counts_of(order)) if is_set else None
    if order.resized_reason == api_names.GROWN:
        return None
    return _with_pods(order, job, reclaimed_size(view, job, counts_of(order), waits_for=order.waits_for or {}))


def _with_pods(order: WorkloadSpec, job: WorkerJobReading, counts: Counts) -> Manifest:
    """The manager's job with the counts that others leave this one, or give it. An end that does not follow them is
    what it has become here, unless the manager's user has set another one since."""
    kind = KINDS[order.job.kind]
    is_set = not kind.end_follows(order.manifest) and _sets_end(order, job)
    return kind.with_pods(order.manifest, counts, present=order.manifest if is_set else job.manifest)


def _sets_end(order: WorkloadSpec, job: WorkerJobReading) -> bool:
    """Whether the manager's user has set another end than the noted one. An end that is only as large as the size may
    be there for the size alone, where somebody has made the job larger here."""
    kind, noted = KINDS[order.job.kind], annotations.bounds(job.manifest)
    if noted is None or noted == _bounds(order):
        return False
    return not kind.ends_by_size(order.manifest) or noted == kind.bounds(job.manifest)


def _withdraws(order: WorkloadSpec, job: WorkerJobReading) -> bool:
    """Whether an order gives back what the job's notice was to take, or leaves it more than an earlier notice has. The
    job may have lost pods of that one, of which the manager has not heard yet: their quota was never free."""
    if job.reclaim is None or job.reclaim.word != order.taken_back:
        return False
    size, left = counts_of(order), job.reclaim.notices[0].before
    is_more = size != left and all(size.get(name, 0) >= count for name, count in left.items())
    return order.resized_reason == api_names.RESTORED or is_more


def reclaimed_size(view: WorkerView, job: WorkerJobReading, size: Counts, *, waits_for: Counts) -> Counts:
    """The size of a job that others leave this one: none is added where somebody has made it smaller meanwhile.

    A later word may be for more than the one that the job follows: that one is taken back in part, and nobody has said
    so here; or pods that have ended count, and more have. A job that waits for more is not complete by it: its next
    request says that nothing else is left.
    """
    kind, present, word = KINDS[view.key.kind], view.counts, job.last_word
    if not kind.end_follows(job.manifest):
        size = kind.left_at(job.manifest, size)
    elif waits_for and not any(kind.left_at(job.manifest, size).values()):
        return present
    if word is not None and word.size == present:
        return size
    return {name: min(count, present.get(name, count)) for name, count in size.items()}


def _bounds_patches(view: WorkerView, order: WorkloadSpec, job: WorkerJobReading) -> list[Patch]:
    """Set the bounds in the job, and in its present clusters. Those that travel with its size are set with it."""
    kind = KINDS[view.key.kind]
    travel = kind.ends_by_size(order.manifest)
    sized = _sized(view, order, job) if travel else order.manifest
    if sized is None or (travel and waits(order, job)):
        return []
    noted, wanted = annotations.bounds(job.manifest), without(kind.bounds(sized), (_FIELDS,))
    if noted is None or not wanted or not _can_run(order) or without(noted, (_FIELDS,)) == wanted:
        return []
    return [_patch(target, body) for target in _targets(view, job) if (body := kind.set_bounds(target, wanted))]


def _targets(view: WorkerView, job: WorkerJobReading) -> list[Manifest]:
    """The clusters, the one that serves first, and the job itself."""
    return [*{target["metadata"]["uid"]: target for target in (*view.scale_targets, job.manifest)}.values()]


def _patch(target: Manifest, body: list[Manifest]) -> Patch:
    return Patch(resource=JOB_RESOURCES[target["kind"]], target=target, body=body)


def _noted_bounds(order: WorkloadSpec, job: WorkerJobReading | None) -> Manifest:
    """The order's bounds; for what is impossible the noted ones, so that each later order tries again. The noted ones
    too while they travel with a size that waits for the end of a notice."""
    kind, bounds = KINDS[order.job.kind], _bounds(order)
    travel = kind.ends_by_size(order.manifest)
    if job is not None and (not _can_run(order) or (travel and waits(order, job))):
        return annotations.bounds(job.manifest) or {}
    if job is not None and travel and order.taken_back and not kind.end_follows(order.manifest):
        return bounds if _sets_end(order, job) else annotations.bounds(job.manifest) or {}
    if job is None or not _edited_fields(order, job) or _can_be_had(order, job):
        return bounds
    return bounds | {_FIELDS: (annotations.bounds(job.manifest) or {})[_FIELDS]}


def _edited_fields(order: WorkloadSpec, job: WorkerJobReading) -> set[str]:
    """The fields that the manager has set otherwise than the last time; none where nobody knows."""
    noted = (annotations.bounds(job.manifest) or {}).get(_FIELDS)
    wanted: dict[str, str] = _bounds(order).get(_FIELDS, {})
    if not isinstance(noted, dict):
        return set()
    return {name for name in noted | wanted if noted.get(name) != wanted.get(name)}


def _can_be_had(order: WorkloadSpec, job: WorkerJobReading) -> bool:
    """Whether the job may take over the manager's fields: it keeps the pod sets of its slice, pods that request what it
    is charged for, and replicas of as many pods, and KubeRay refuses nothing. The manager shows what prevents it."""
    kind = KINDS[order.job.kind]
    if not _can_run(order):
        return False
    copy = kind.worker_copy(order.manifest, places(order))
    requests = _requests(kind.pod_sets(copy))
    if requests != _requests(order.workload["spec"]["podSets"]):
        return False
    return all(kind.replica_size(copy, name) == kind.replica_size(job.manifest, name) for name in requests)


def _can_run(order: WorkloadSpec) -> bool:
    """Whether the job's kind takes the job as its user has it on the manager now."""
    return not KINDS[order.job.kind].problems(order.manifest)


def _requests(pod_sets: list[Manifest]) -> dict[str, dict[str, int]]:
    """What one pod requests, by pod set. A Kueue may have written a RuntimeClass' overhead into the pod sets of the
    slice."""
    return {pod_set["name"]: pod_requests(without(pod_set["template"]["spec"], ("overhead",))) for pod_set in pod_sets}


def _note_end(order: WorkloadSpec, job: WorkerJobReading | None) -> dict[str, str | None]:
    """The annotation that says whether the job's end follows its pods, where the manager's user has changed it."""
    said = KINDS[order.job.kind].said_of_end(order.manifest)
    if job is None or annotations.annotation(job.manifest, kueue.SYNC_COMPLETIONS_ANNOTATION) == said:
        return {}
    return {kueue.SYNC_COMPLETIONS_ANNOTATION: said}


def _bounds_note(bounds: Manifest) -> dict[str, str]:
    return {api_names.BOUNDS_ANNOTATION: msgspec.json.encode(bounds, order="sorted").decode()}


def _bounds(order: WorkloadSpec) -> Manifest:
    return KINDS[order.job.kind].bounds(order.manifest)
