"""One job: why it has its size, what would admit it, its attempts and pods, and what the journal tells of it."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from slicebus.cli.cluster.finding import job_refs
from slicebus.cli.jobs.tree import TreeNode, tree_of
from slicebus.cli.names import nearest
from slicebus.cli.view.fleet_state import FleetState
from slicebus.cli.view.hour import RecordedHour
from slicebus.journal.chart import Chart, chart, waits_of
from slicebus.journal.page import TraceRow, trace_row
from slicebus.journal.traces import Size, Trace, sizes, traces
from slicebus.manager.decide.explain import Explanation, explain
from slicebus.manager.decide.problems import is_reached
from slicebus.manager.state.annotations import job_ref
from slicebus.manager.state.store import ManagerStore
from slicebus.manager.state.views import JobView
from slicebus.proto.errors import NotFoundError
from slicebus.proto.messages import JobRef

_MOST_TRACES = 50
"""The last changes of a job that a page has."""


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    """One job."""

    job: str
    """`Kind/namespace/name`."""
    explanation: Explanation | None
    """None where the job is gone."""
    tree: TreeNode | None
    chart: Chart | None
    """None where the journal tells nothing of its size."""
    changes: tuple[TraceRow, ...]
    """What happened to it, oldest first."""
    left_out: int
    """How many older changes there are."""
    journal: str
    """Why the journal is not read, or not up to now; empty where it is."""


def job_page(
    state: FleetState, hour: RecordedHour, kind: str, namespace: str, name: str, *, until: datetime
) -> JobPage:
    """The page of a job, up to a moment. Raises NotFoundError, with similar names, where neither the cluster nor the
    journal has anything of it."""
    store, job = state.reading.store, f"{kind}/{namespace}/{name}"
    ref = _ref(store, kind, namespace, name)
    entries, events = hour.about(job)
    found = traces(entries, events)
    if ref is None and not found:
        others = {ref.key for ref in job_refs(store)} | {entry.subject for entry in hour.entries if entry.subject}
        raise NotFoundError(f"there is no job {job}{nearest(job, others)}")
    view = store.view(ref) if ref is not None else None
    sight, kept = state.sight, found[-_MOST_TRACES:]
    return JobPage(
        job=job,
        explanation=explain(store, view.ref, sight, moment=until)
        if view is not None and view.job is not None
        else None,
        tree=_tree(view, is_reached=is_reached(store, view, sight)) if view is not None else None,
        chart=_chart(job, kept, sizes(entries).get(job, []), until),
        changes=tuple(map(trace_row, kept)),
        left_out=len(found) - len(kept),
        journal=hour.problem,
    )


def _tree(view: JobView, *, is_reached: bool) -> TreeNode:
    return tree_of(view, {}, is_reached=is_reached, advice="`slicebus tree --worker` shows each pod")


def _ref(store: ManagerStore, kind: str, namespace: str, name: str) -> JobRef | None:
    """A job that exists, or that is gone and has left Workloads; None for neither."""
    cache = store.jobs.get(kind)
    if cache is not None and (manifest := cache.get(namespace, name)) is not None:
        return job_ref(manifest)
    key = f"{kind}/{namespace}/{name}"
    return next((ref for ref in store.refs() if ref.key == key and store.view(ref).slices), None)


def _chart(job: str, found: Sequence[Trace], points: Sequence[Size], until: datetime) -> Chart | None:
    if not points:
        return None
    marks = [(trace.began, trace.title, f"change-{number}") for number, trace in enumerate(found, start=1)]
    began = min([points[0].at, *(trace.began for trace in found)])
    return chart(job, points, began=began, ended=max(until, points[-1].at), waits=waits_of(found), marks=marks)
