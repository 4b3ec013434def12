"""Jobs and Workloads of the manager as values, and commands in a form that fits a table."""

from typing import Any

from msgspec import structs

from slicebus.decisions.commands import Command, Create, Emit, Forget, Patch, Publish, Remember, Remove, Requeue
from slicebus.manager.state.annotations import DesiredSize, SizeRequest, job_ref, size_requests_of
from slicebus.manager.state.job_reading import JobReading
from slicebus.manager.state.outbox import NO_REQUEST, Dispatch, Held, Outbox
from slicebus.manager.state.views import JobView, cluster_of
from slicebus.proto.envelope import Envelope, MessageId
from slicebus.proto.messages import ClusterName, ClusterUid, Counts, JobRef, RequestKey
from slicebus.slices.api import api_names, kueue
from slicebus.slices.workload.chain import oldest_first
from slicebus.slices.workload.workload import Slice

Manifest = dict[str, Any]
EAST, WEST = ClusterName("east"), ClusterName("west")
REF = JobRef("batch/v1", "Job", "team", "train", "uid-train")
NOW = "2026-01-31T12:00:00Z"
SPOT = {"kind": "ResourceFlavor", "metadata": {"name": "spot", "uid": "uid-spot", "resourceVersion": "1"}, "spec": {}}
"""The flavor of each `a_workload` with quota."""
CONTENT = "the-hash-of-what-it-shall-hold"
POD = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}


def condition(type: str, status: bool = True, reason: str = "Some", message: str = "") -> Manifest:
    return {
        "type": type,
        "status": "True" if status else "False",
        "reason": reason,
        "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


def a_job(
    parallelism: int = 1,
    *,
    generation: int = 1,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    over: str | None = None,
    deleting: bool = False,
    managed: bool = True,
) -> Manifest:
    """A Job; `over` is the type of the condition that shows its end."""
    metadata = {
        "name": "train",
        "namespace": "team",
        "uid": "uid-train",
        "resourceVersion": "10",
        "generation": generation,
        "labels": ({kueue.QUEUE_NAME_LABEL: "queue"} if managed else {}) | (labels or {}),
        "annotations": {kueue.ELASTIC_ANNOTATION: "true"} | (annotations or {}),
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata | ({"deletionTimestamp": NOW} if deleting else {}),
        "spec": {
            "parallelism": parallelism,
            "managedBy": kueue.MANAGED_BY_MULTIKUEUE,
            "template": {"spec": POD | {"restartPolicy": "Never"}},
        },
        "status": {"conditions": [condition(over, message="so it ended")]} if over else {},
    }


def requested(
    counts: Counts, *, baseline: int = 1, generation: int = 2, uid: str = "w-1", **changes: Any
) -> SizeRequest:
    """A worker's size request."""
    return SizeRequest(
        counts=counts,
        worker_uid=uid,
        worker_generation=generation,
        baseline={"main": baseline},
        correlation=MessageId("chain-1"),
        **({"granted": {"main": baseline}} | changes),
    )


def asking(parallelism: int, wanted: int, **record: Any) -> Manifest:
    """A job whose worker requests another size."""
    asked = requested({"main": wanted}, baseline=parallelism, **record)
    return a_job(parallelism, annotations={api_names.REQUESTED_ANNOTATION: asked.to_annotation()})


def a_workload(
    name: str = "w1",
    count: int = 1,
    *,
    admitted: int | None = None,
    dispatched: int = 0,
    hash: str = CONTENT,
    applied: int = 0,
    answers: RequestKey = NO_REQUEST,
    replaces: str | None = None,
    conditions: tuple[Manifest, ...] = (),
    deleting: bool = False,
    held: bool = True,
    cluster: str = EAST,
) -> Manifest:
    """A slice of the job; `admitted` is the count that it was given quota for."""
    annotations = {
        kueue.ELASTIC_ANNOTATION: "true",
        **(
            {api_names.DISPATCHED_ANNOTATION: Dispatch(dispatched, hash, answers).to_annotation()} if dispatched else {}
        ),
        **({api_names.APPLIED_ANNOTATION: str(applied)} if applied else {}),
        **({kueue.REPLACEMENT_FOR_ANNOTATION: f"team/{replaces}"} if replaces else {}),
        kueue.SLICE_NAME_ANNOTATION: "w1",
    }
    status: Manifest = {}
    if admitted is not None:
        assignment = {
            "name": "main",
            "count": admitted,
            "flavors": {"cpu": "spot"},
            "resourceUsage": {"cpu": str(admitted)},
        }
        status = {
            "clusterName": cluster,
            "admission": {"clusterQueue": "cq", "podSetAssignments": [assignment]},
        }
        conditions = (condition("QuotaReserved"), condition("Admitted"), *conditions)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "uid-train", "controller": True}
    return {
        "apiVersion": kueue.API_VERSION,
        "kind": "Workload",
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"uid-{name}",
            "resourceVersion": "20",
            "creationTimestamp": f"2026-01-01T00:00:0{name[-1]}Z",
            "generation": 1,
            "labels": {kueue.JOB_UID_LABEL: "uid-train"},
            "annotations": annotations,
            "ownerReferences": [owner],
            "finalizers": [kueue.RESOURCE_IN_USE_FINALIZER] if held else [],
            **({"deletionTimestamp": NOW} if deleting else {}),
        },
        "spec": {
            "active": True,
            "queueName": "queue",
            "podSets": [{"name": "main", "count": count, "template": {"spec": POD}}],
        },
        "status": status | ({"conditions": list(conditions)} if conditions else {}),
    }


def vanished(*workloads: Manifest, job: Manifest | None = None, **how: Any) -> JobView:
    """A job whose copy somebody has deleted on its worker."""
    workload = a_workload(admitted=1, dispatched=1, applied=1, **how)
    record = Dispatch(1, CONTENT, vanished=True)
    workload["metadata"]["annotations"][api_names.DISPATCHED_ANNOTATION] = record.to_annotation()
    return a_view(job or a_job(), workload, *workloads)


def withdrawn(name: str = "w1", *, dispatched: int = 2, applied: int = 2, **how: Any) -> Manifest:
    """A slice whose worker shall hold nothing."""
    return a_workload(name, admitted=1, dispatched=dispatched, hash=api_names.ABSENT, applied=applied, **how)


def a_view(job: Manifest | None, *workloads: Manifest, **changes: Any) -> JobView:
    """The view of a job whose flavor is there. The request on a job of `asking` is read as on its newest Workload with
    quota."""
    slices = tuple(oldest_first(map(Slice.from_manifest, workloads)))
    outbox = Outbox.newest(map(Outbox.from_manifest, workloads), left=Outbox.left_on(job) if job else None)
    named = {workload["metadata"]["name"]: workload for workload in workloads}
    requests, asked = size_requests_of(named), SizeRequest.from_manifest(job) if job else None
    if asked is not None and slices:
        lasting = [slice for slice in slices if slice.admitted] or [s for s in slices if not s.finished] or slices
        newest = max((request.revision for request in requests.values()), default=0)
        requests |= {lasting[-1].name: structs.replace(asked, revision=max(asked.revision, newest))}
    return JobView(
        ref=job_ref(job) if job else REF,
        reading=JobReading(job) if job else None,
        workloads=named,
        slices=slices,
        requests=requests,
        outbox=outbox,
        cluster=cluster_of(slices, outbox),
        **({"flavors": {"spot": SPOT}} | changes),
    )


def desired_of(job: Manifest) -> DesiredSize:
    """The size that a job shall have, by the request of `asking`."""
    return a_view(job, a_workload()).desired


def uid_of(cluster: str) -> ClusterUid:
    """The UID of a cluster that has its name for itself."""
    return ClusterUid(f"uid-of-{cluster}")


def an_envelope(
    *,
    cluster: ClusterName = EAST,
    uid: ClusterUid | None = None,
    user: str | None = "east",
    epoch: int = 1,
    sequence: int = 1,
    type: str = "status",
) -> Envelope:
    return Envelope(
        id=MessageId("m-1"),
        type=type,
        cluster=cluster,
        cluster_uid=uid or uid_of(cluster),
        subject=REF.key,
        time=NOW,
        epoch=epoch,
        sequence=sequence,
        correlation_id=MessageId("chain-1"),
        user_id=user,
    )


def short(command: Command) -> tuple[Any, ...]:
    """A command in a few words."""
    match command:
        case Create(resource=resource, manifest=manifest):
            counts = {pod_set["name"]: pod_set["count"] for pod_set in manifest["spec"]["podSets"]}
            replaces = manifest["metadata"]["annotations"].get(kueue.REPLACEMENT_FOR_ANNOTATION)
            return f"create {resource.kind}", counts, replaces
        case Patch(target=target):
            return target["metadata"]["name"], *_patch(command)
        case Remove(resource=resource, target=target):
            return f"remove {resource.kind}", target["metadata"]["name"]
        case Emit(regarding=regarding, reason=reason, warning=warning):
            return f"{'warn' if warning else 'event'} {regarding['kind']}", reason
        case Publish(cluster=cluster, message=message):
            version = getattr(message, "spec_version", None)
            return f"{message.type} to {cluster}", *(() if version is None else (version,))
        case Requeue(delay_s=delay_s):
            return "requeue", delay_s
    raise AssertionError(command)


def _patch(patch: Patch) -> tuple[Any, ...]:
    assert isinstance(patch.body, dict)
    annotations = patch.body.get("metadata", {}).get("annotations", {})
    if "suspend" in patch.body.get("spec", {}):
        suspended = patch.body["spec"]["suspend"]
        assert annotations == {api_names.SUSPENDED_ANNOTATION: "true" if suspended else None}
        return ("suspended" if suspended else "resumed",)
    if api_names.DISPATCHED_ANNOTATION in annotations:
        record = Dispatch.from_manifest(patch.body)
        assert record is not None
        what = "gone" if record.has_vanished else "absent" if record.held is Held.ABSENT else "held"
        more = (api_names.APPLIED_ANNOTATION,) if api_names.APPLIED_ANNOTATION in annotations else ()
        resized = {pod_set["name"]: pod_set["count"] for pod_set in patch.body.get("spec", {}).get("podSets", ())}
        return *(("counts", resized) if resized else ()), f"version {record.version} is {what}", *more
    if "active" in patch.body.get("spec", {}):
        return ("active" if patch.body["spec"]["active"] else "inactive",)
    if annotations:
        return tuple(annotations.items())
    if "finalizers" in patch.body.get("metadata", {}):
        return "release", *patch.body["metadata"]["finalizers"]
    if "podSets" in patch.body.get("spec", {}):
        return "counts", {pod_set["name"]: pod_set["count"] for pod_set in patch.body["spec"]["podSets"]}
    assert patch.subresource == "status"
    old = {entry["type"]: entry for entry in patch.target.get("status", {}).get("conditions", ())}
    new = [entry for entry in patch.body["status"].get("conditions", ()) if old.get(entry["type"]) != entry]
    rest = sorted(patch.body["status"].keys() - {"conditions"})
    return *(f"{entry['type']}={entry['status']} {entry['reason']}" for entry in new), *rest


def shorts(commands: Any) -> list[tuple[Any, ...]]:
    """Commands in a few words, without what they write into tables."""
    return [short(command) for command in without_notes(commands)]


def without_notes(commands: Any) -> list[Any]:
    """Commands without those that write into tables."""
    return [command for command in commands if not isinstance(command, Remember | Forget)]
