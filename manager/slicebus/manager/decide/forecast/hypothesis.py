"""The slice that a job would get if it were submitted, or resized: what the manager's own reconcile makes of it.

Nothing is written, and the store stays as it is.
"""

from collections.abc import Mapping

import msgspec

from slicebus.decisions.commands import Command, Create, Patch
from slicebus.kube.resources import WORKLOADS
from slicebus.manager.decide.admission import builtin, refusals
from slicebus.manager.decide.job import size_bounds
from slicebus.manager.state.annotations import SizeRequest, job_ref
from slicebus.manager.state.job_reading import JobReading
from slicebus.manager.state.requirements import NOT_MANAGED, missing
from slicebus.manager.state.store import ManagerStore
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Counts, JobRef, Manifest, counts_text
from slicebus.slices.api import api_names
from slicebus.slices.jobs import Problem
from slicebus.slices.workload.workload import Slice

ALREADY_EXISTS = "AlreadyExists"
_NO_SLICE = "NoSlice"
_RESIZED = "InvalidSize"
_ASKING = (api_names.DRY_RUN_ANNOTATION, api_names.VERDICT_ANNOTATION)


class Hypothesis(msgspec.Struct, frozen=True, kw_only=True):
    """A job that nobody has submitted, or a size that nobody has asked for."""

    job: JobRef
    manifest: Manifest | None = None
    """The job, where it has no copy yet; None where it has one, or gets none."""
    slice: Slice | None = None
    """The slice that would wait for quota; None for a job that gets none."""
    replaces: Slice | None = None
    """The slice that waits now, and would have this size instead."""
    problems: tuple[Problem, ...] = ()
    """Why the job gets no slice."""
    is_at_once: bool = False
    """Whether the job has what it asks for without a decision: it shrinks, or has that size."""
    counts: Counts = {}
    """What it asks for, by pod set."""
    queue: str = ""
    """Its LocalQueue."""

    @property
    def key(self) -> str:
        """`Kind/namespace/name`."""
        return self.job.key


def of_job(store: ManagerStore, job: Manifest, *, now: str) -> Hypothesis:
    """The job of a manifest as its API server would store it, with a UID."""
    ref = job_ref(job)
    if (known := store.jobs[ref.kind].get(ref.namespace, ref.name)) is not None and known["metadata"]["uid"] != ref.uid:
        return Hypothesis(job=ref, problems=(Problem(ALREADY_EXISTS, f"{ref.key} exists already"),))
    job = _without_dry_run(job)
    if lacks := list(missing(job, fixed_jobs=store.settings.fixed_jobs)):
        return Hypothesis(job=ref, problems=(Problem(NOT_MANAGED, "; ".join(lacks)),))
    found = of_view(msgspec.structs.replace(store.view(ref), reading=JobReading(job)), job, now=now)
    return msgspec.structs.replace(found, manifest=job)


def _without_dry_run(job: Manifest) -> Manifest:
    metadata = job["metadata"]
    kept = {name: it for name, it in (metadata.get("annotations") or {}).items() if name not in _ASKING}
    return {**job, "metadata": {**metadata, "annotations": kept}}


def of_view(view: JobView, job: Manifest, *, now: str) -> Hypothesis:
    """A job without any Workload, by its view."""
    if problems := refusals.problems_of(view, job):
        return Hypothesis(job=view.ref, problems=tuple(problems))
    return _of(view, now=now)


def of_size(store: ManagerStore, ref: JobRef, counts: Mapping[str, int], *, now: str) -> Hypothesis:
    """A job that exists, asked for these pods by pod set where it runs; the others as they are."""
    return of_view_at(store.view(ref), counts, factor=store.settings.resize_factor, now=now)


def of_view_at(view: JobView, counts: Mapping[str, int], *, factor: int, now: str) -> Hypothesis:
    """The same of a view. `factor`: as in the settings `resize_factor`."""
    ref = view.ref
    if view.job is not None and not view.is_managed:
        lacks = "; ".join(missing(view.job, fixed_jobs=view.fixed_jobs))
        return Hypothesis(job=ref, problems=(Problem(NOT_MANAGED, lacks),))
    wanted = view.desired.counts
    if unknown := sorted(counts.keys() - wanted.keys()):
        known = ", ".join(sorted(wanted))
        problem = Problem(_RESIZED, f"{ref.key} has no pod set {unknown[0]}: it has {known}")
        return Hypothesis(job=ref, problems=(problem,))
    asked = {**wanted, **counts}
    if past := size_bounds.problem(view, asked, factor=factor):
        return Hypothesis(job=ref, problems=(Problem(size_bounds.PAST_BOUNDS, past),))
    found = _of(_asking_for(view, asked), now=now)
    if found.is_at_once and found.counts != asked:
        problem = Problem(_RESIZED, f"{ref.key} keeps its size, {counts_text(found.counts)}")
        return Hypothesis(job=ref, problems=(problem,))
    return found


def _asking_for(view: JobView, counts: Counts) -> JobView:
    """The view of a job whose worker asks for this size."""
    keeper = view.keeper or (view.unfinished[-1] if view.unfinished else None)
    if keeper is None:
        return view
    before = view.requested or SizeRequest.nothing()
    asked = msgspec.structs.replace(
        before.cleared(), counts=counts, baseline=view.desired.own, revision=before.revision + 1
    )
    return msgspec.structs.replace(view, requests={**view.requests, keeper.name: asked})


def _of(view: JobView, *, now: str) -> Hypothesis:
    commands = builtin.reconcile(view, now)
    made = [made for command in commands if (made := _workload_of(command, now)) is not None]
    pending = [slice for slice in map(Slice.from_manifest, made) if slice.pending]
    waiting = next((slice for slice in view.unfinished if slice.pending), None)
    if pending:
        return Hypothesis(job=view.ref, slice=pending[-1], replaces=waiting)
    if waiting is not None:
        return Hypothesis(job=view.ref, slice=waiting, replaces=waiting)
    if view.holder is not None:
        return Hypothesis(job=view.ref, is_at_once=True, counts=view.desired.counts, queue=view.queue)
    return Hypothesis(job=view.ref, problems=(Problem(_NO_SLICE, "it gets no Workload now"),))


def _workload_of(command: Command, now: str) -> Manifest | None:
    """The Workload that a command makes or resizes, as its API server would store it."""
    match command:
        case Create(resource=resource, manifest=manifest) if resource == WORKLOADS:
            metadata = manifest["metadata"]
            stored = {"uid": f"{metadata['name']}-uid", "creationTimestamp": now, "generation": 1}
            return {**manifest, "metadata": {**metadata, **stored}}
        case Patch(resource=resource, target=target, body={"spec": {"podSets": pod_sets}}) if resource == WORKLOADS:
            return {**target, "spec": {**target["spec"], "podSets": pod_sets}}
        case _:
            return None
