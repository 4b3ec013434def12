"""Tells what is wrong with a job, other than a lack of quota: why it is not as it wants to be."""

from collections.abc import Iterator

import msgspec

from slicebus.kube.resources import CLUSTERQUEUES, COHORTS, LOCALQUEUES, RESOURCEFLAVORS
from slicebus.manager.decide.job import reclaims, waiting
from slicebus.manager.state.annotations import annotation
from slicebus.manager.state.outbox import Held, Progress
from slicebus.manager.state.requirements import NOT_MANAGED, missing
from slicebus.manager.state.store import ManagerStore
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Manifest
from slicebus.slices.api import api_names
from slicebus.slices.api.conditions import conditions_of
from slicebus.slices.api.honored import text, unhonored
from slicebus.slices.workload.pod_problems import text_of, texts, worst_first
from slicebus.slices.workload.waiting import PODS_NOT_RUNNING, Waiting


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """What the reader of a cluster may see beside the jobs: who has rights in one namespace sees neither."""

    quota: bool = True
    """Every Workload, ClusterQueue and Cohort: without them nobody can tell the place in the queue."""
    clusters: bool = True
    """The WorkerClusters: without them nobody can tell whether one is connected."""
    unled: str = ""
    """Why no manager keeps the objects up to date, for people; empty where one does."""


ALL = Sight()
_TOLD = (
    api_names.RESIZABLE_CONDITION,
    api_names.DISPATCHED_CONDITION,
    api_names.END_KNOWN_CONDITION,
    api_names.PODS_GONE_CONDITION,
    api_names.HONORED_CONDITION,
)
"""The conditions of an unfinished slice that say what is wrong while they are False."""
_WAITS_FOR_REPORT = {
    Held.HOLD: "",
    Held.SUSPENDED: ": the job keeps its quota until no pod of it is left there",
    Held.ABSENT: ": everything else waits until its copy is deleted there",
}
"""What waits for the report of a dispatch, by what the worker shall hold."""


def is_reached(store: ManagerStore, view: JobView, sight: Sight) -> bool:
    """Whether anybody knows what the pods of a job do: its cluster is connected, and a manager works. True where it has
    no cluster, and where the reader may not see the clusters."""
    if view.cluster and sight.unled:
        return False
    if not view.cluster or not sight.clusters:
        return True
    return any(cluster.connected for cluster in store.quotas.worker_clusters if cluster.name == view.cluster)


def why(store: ManagerStore, view: JobView, sight: Sight = ALL) -> tuple[str, str]:
    """Why a job is not as it wants to be: a reason in one word, and a sentence. Both are empty where nothing is wrong.

    What the manager has shown on the job counts where only it knew the reason.
    """
    wait = waiting.reason_for(view)
    shown = wait.shown if wait else Waiting.from_manifest(view.job) if view.job else None
    if shown is not None:
        pods = texts(shown.pods) if shown.reason != PODS_NOT_RUNNING else ""
        return shown.reason, "; ".join(filter(None, (shown.message, pods)))
    if view.job is None or view.outcome.phase.is_terminal:
        return "", view.outcome.message if view.job else ""
    first = next(problems(store, view, sight), "")
    reason, colon, message = first.partition(": ")
    return (reason, message) if colon and reason.isalpha() else ("", first)


def problems(store: ManagerStore, view: JobView, sight: Sight = ALL) -> Iterator[str]:
    """What keeps a job that exists from its size, other than a lack of quota; one sentence each, the same one perhaps
    twice."""
    assert view.job is not None
    job = view.job
    if sight.unled:
        yield f"NoManager: {sight.unled}; this is what it wrote last"
    if view.is_taken:
        yield from filter(None, [annotation(job, api_names.UNHEEDED_ANNOTATION)])
    else:
        yield from (f"{lack}: slicebus leaves it alone" for lack in missing(job, fixed_jobs=view.fixed_jobs))
    yield from (
        text for text in _conditions(job, api_names.ACCEPTED_CONDITION, "False") if not text.startswith(NOT_MANAGED)
    )
    for slice in view.slices:
        for type in _TOLD:
            if not slice.finished:
                yield from _conditions(view.workload(slice), type, "False")
        yield from _conditions(view.workload(slice), api_names.HELD_CONDITION, "True")
        yield from _conditions(view.workload(slice), api_names.END_SHOWN_CONDITION, "False")
    yield from _unhonored(store, view)
    wait = waiting.reason_for(view)
    if wait is not None and wait.slice in (None, view.holder) and wait.shown.reason != PODS_NOT_RUNNING:
        yield f"{wait.shown.reason}: {wait.shown.message}"
    for name, problem in worst_first(wait.shown.pods).items() if wait is not None else ():
        yield f"{text_of(name, problem)} (since {problem.since})"
    yield from reclaims.told(view)
    if view.desired.taken_back is not None and not view.desired.taken_back.note:
        yield f"ScaleUpTakenBack {view.desired.taken_back.at}: {view.desired.taken_back.message}"
    outbox = view.outbox
    cluster = next((cluster for cluster in store.quotas.worker_clusters if cluster.name == view.cluster), None)
    if view.cluster and cluster is None and sight.clusters:
        yield f"WorkerCluster {view.cluster} is gone"
    elif cluster is not None and not cluster.connected:
        yield f"cluster {cluster.name} is not connected: what it does is not known"
    if outbox is not None and view.state.progress is Progress.LOST:
        yield f"{view.cluster} does not hold what it had reported: it gets a version above {outbox.record.version}"
    elif outbox is not None and not outbox.is_reported:
        waits = _WAITS_FOR_REPORT[view.state.held]
        yield f"{view.cluster} has not reported version {outbox.record.version} yet, only {outbox.applied}{waits}"


def _unhonored(store: ManagerStore, view: JobView) -> Iterator[str]:
    """What is not honored of the job's queues and of the flavors that it has."""
    namespace, queue = view.ref.namespace, view.queue
    cluster_queue = store.quotas.cluster_queue_of((namespace, queue))
    queue_spec = store.quotas.cluster_queues.get(cluster_queue)
    cohorts = store.quotas.budgets.cohorts_of(queue_spec) if queue_spec is not None else ()
    admission = view.holder.admission if view.holder is not None else None
    flavors = sorted(
        {flavor for pod_set in admission.pod_sets for flavor in pod_set.flavors.values()} if admission else ()
    )
    objects = [
        (LOCALQUEUES, store.local_queues.get(namespace, queue)),
        (CLUSTERQUEUES, store.cluster_queues.get(None, cluster_queue)),
        *((COHORTS, store.cohorts.get(None, cohort.name)) for cohort in cohorts),
        *((RESOURCEFLAVORS, store.flavors.get(None, flavor)) for flavor in flavors),
    ]
    for resource, manifest in objects:
        if manifest is not None and not store.beside_kueue and (found := unhonored(resource.kind, manifest)):
            yield f"{resource.kind} {manifest['metadata']['name']}: {text(found)}"


def _conditions(manifest: Manifest, type: str, status: str) -> Iterator[str]:
    for condition in conditions_of(manifest):
        if condition["type"] == type and condition["status"] == status:
            yield f"{condition.get('reason', type)}: {condition.get('message', '')}"
