"""A job with everything that belongs to it, as a tree: its slices, its copies on worker clusters, and their pods."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from slicebus.cli.durations import age_of
from slicebus.manager.decide.job.shown_state import ready_pods, shown_state
from slicebus.manager.decide.job.waiting import pod_problems_of
from slicebus.manager.state.outbox import Held, Progress
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import ClusterName, Manifest, counts_text
from slicebus.slices.api import kueue
from slicebus.slices.api.conditions import conditions_of
from slicebus.slices.api.kueue import Condition
from slicebus.slices.workload.pod_problems import cause_of, texts
from slicebus.slices.workload.ungate import is_gated
from slicebus.slices.workload.workload import Slice

_PROGRESS = {
    Progress.WRITTEN: "ordered, and not reported yet",
    Progress.PUBLISHED: "ordered, and not reported yet",
    Progress.APPLIED: "as ordered",
    Progress.LOST: "lost: it does not hold what it had reported",
}
_HELD = {Held.HOLD: "", Held.SUSPENDED: "without pods, ", Held.ABSENT: "to be removed, "}


class TreeNode(msgspec.Struct, frozen=True, kw_only=True):
    """One object of the tree."""

    kind: str
    """`Job`, `Workload`, `Copy`, `Pod`, or a note."""
    name: str
    state: str
    detail: str = ""
    children: "tuple[TreeNode, ...]" = ()


class WorkerSide(msgspec.Struct, frozen=True):
    """What a worker's API server has of a job."""

    copy: Manifest | None
    pods: Sequence[Manifest]
    problem: str = ""
    """Why it could not be read."""


def tree_of(
    view: JobView,
    workers: Mapping[ClusterName, WorkerSide],
    *,
    is_reached: bool = True,
    advice: str = "--worker shows each",
) -> TreeNode:
    """The tree of a job that exists. Of a cluster that nobody has read it has what the manager knows, and `advice`."""
    wanted = counts_text(view.desired.counts) if view.job is not None else "nothing"
    return TreeNode(
        kind=view.ref.kind,
        name=f"{view.ref.namespace}/{view.ref.name}",
        state=shown_state(view, is_reached=is_reached),
        detail=f"wants {wanted}, queue {view.queue or 'none'}",
        children=(*map(_slice, view.slices), *_copies(view, workers, is_reached=is_reached, advice=advice)),
    )


def _slice(slice: Slice) -> TreeNode:
    replaces = f", replaces {slice.replaces.partition('/')[2]}" if slice.replaces else ""
    return TreeNode(
        kind="Workload",
        name=slice.name,
        state=_slice_state(slice),
        detail=f"{counts_text(slice.counts)}{replaces}, {age_of(slice.created)} old",
    )


def _slice_state(slice: Slice) -> str:
    """`Admitted`, or why it is not."""
    if slice.finished:
        return f"Finished: {slice.conditions[Condition.FINISHED].get('reason', '')}"
    if slice.evicting:
        return f"Evicting: {slice.conditions[Condition.EVICTED].get('reason', '')}"
    if slice.admitted:
        return "Admitted"
    return "Pending" if slice.active else "Deactivated"


def _copies(
    view: JobView, workers: Mapping[ClusterName, WorkerSide], *, is_reached: bool, advice: str
) -> Iterator[TreeNode]:
    if view.cluster is not None and view.outbox is not None:
        held, progress = view.state
        version = f"version {view.outbox.record.version}"
        if progress is not Progress.APPLIED:
            version += f", {view.outbox.applied} is reported"
        unknown = "" if is_reached else "; the cluster is silent: what it does is not known"
        yield TreeNode(
            kind="Copy",
            name=view.cluster,
            state=f"{_HELD[held]}{_PROGRESS[progress]}",
            detail=version + unknown,
            children=tuple(_pods(view, workers.get(view.cluster), advice)),
        )
    for cluster, removed_by in view.left_copies.items():
        yield TreeNode(
            kind="Copy",
            name=cluster,
            state="left behind",
            detail=f"removed by version {removed_by} when the cluster is back",
            children=tuple(_pods(view, workers[cluster], advice)) if cluster in workers else (),
        )


def _pods(view: JobView, side: WorkerSide | None, advice: str) -> Iterator[TreeNode]:
    if side is None:
        ready, granted = ready_pods(view), sum(view.holder.granted.values()) if view.holder else 0
        known = f"{ready} of {granted} ready" if ready is not None else f"{granted} granted"
        problems = texts(pod_problems_of(view, view.job)) if view.job is not None else ""
        detail = "; ".join(filter(None, (problems, advice)))
        yield TreeNode(kind="Pods", name="by its report", state=known, detail=detail)
        return
    if side.problem:
        yield TreeNode(kind="Pods", name="unknown", state=side.problem)
        return
    if side.copy is None:
        yield TreeNode(kind=view.ref.kind, name=view.ref.name, state="is not there")
    for pod in sorted(side.pods, key=lambda pod: str(pod["metadata"]["name"])):
        metadata = pod["metadata"]
        yield TreeNode(
            kind="Pod",
            name=metadata["name"],
            state=pod_state(pod),
            detail=", ".join(
                filter(
                    None,
                    (
                        (metadata.get("labels") or {}).get(kueue.POD_SET_LABEL, ""),
                        pod["spec"].get("nodeName", ""),
                        f"{age_of(metadata.get('creationTimestamp'))} old",
                        _problem(pod),
                    ),
                )
            ),
        )


def _problem(pod: Manifest) -> str:
    """Why a pod that may start does not run; empty where it does, or only starts."""
    cause = cause_of(pod) if pod_state(pod) not in ("Ending", "Gated", "Ready") else None
    return ": ".join(filter(None, (cause.reason, cause.text))) if cause is not None else ""


def pod_state(pod: Manifest) -> str:
    """`Gated`, `Ready`, or the phase, as far as the pod itself says it."""
    if "deletionTimestamp" in pod["metadata"]:
        return "Ending"
    if is_gated(pod):
        return "Gated"
    if any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions_of(pod)):
        return "Ready"
    return str(pod.get("status", {}).get("phase", "Pending"))


def belonging(pods: Iterable[Manifest], selectors: Sequence[Mapping[str, str]]) -> list[Manifest]:
    """The pods that have the labels of one of the selectors."""
    return [
        pod
        for pod in pods
        if any(selector.items() <= (pod["metadata"].get("labels") or {}).items() for selector in selectors)
    ]


def cluster_names(view: JobView) -> list[ClusterName]:
    """The clusters that have a copy of a job, or may have one."""
    return list(dict.fromkeys([*([view.cluster] if view.cluster else []), *view.left_copies]))


def drawn(node: TreeNode, first: str = "", rest: str = "") -> Iterator[str]:
    """The lines of a tree. `first` stands before its top, `rest` before everything below."""
    yield first + "  ".join(filter(None, (f"{node.kind} {node.name}", node.state, node.detail)))
    for child in node.children:
        is_last = child is node.children[-1]
        yield from drawn(child, rest + ("└── " if is_last else "├── "), rest + ("    " if is_last else "│   "))
