"""A worker's jobs, Workload copies and pods as values, and commands in a form that fits a table."""

from collections.abc import Iterable
from typing import Any

import msgspec

from slicebus.agent.decide.order import orders
from slicebus.agent.state import annotations
from slicebus.agent.state.views import JobKey, WorkerJobReading, WorkerView
from slicebus.decisions.commands import Command, Create, Emit, Patch, Publish, Remove
from slicebus.proto.messages import ClusterName, ClusterUid, Counts, JobRef, PodSetFlavor, WorkloadSpec
from slicebus.slices.api import api_names, kueue
from slicebus.slices.workload.ungate import Pod

Manifest = dict[str, Any]
EAST = ClusterName("east")
EAST_UID = ClusterUid("uid-of-east")
REF = JobRef("batch/v1", "Job", "team", "train", "manager-uid")
KEY = JobKey("Job", "team", "train")
SIZES_STEP, JOB_STEP, COPY_STEP, REPORT_STEP = 2, 4, 5, 6
"""The numbers of steps of a spec."""
NOW = "2026-01-31T12:00:00Z"
POD = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}], "restartPolicy": "Never"}
ADMITTED = {
    "type": "Admitted",
    "status": "True",
    "reason": "Admitted",
    "message": "The workload is admitted",
    "lastTransitionTime": NOW,
}
POD_SETS = [{"name": "main", "count": 1, "template": {"spec": POD}}]


def an_end(over: str = "Complete") -> Manifest:
    """The status of a Job that has ended, as an API server takes it."""
    at = "2026-01-01T00:00:00Z"
    before = {"Complete": "SuccessCriteriaMet", "Failed": "FailureTarget"}[over]
    conditions = [{"type": name, "status": "True", "message": "so it ended"} for name in (before, over)]
    times = {"startTime": at, "completionTime": at} if over == "Complete" else {"startTime": at}
    return {"conditions": conditions, **times}


def a_job(
    parallelism: int = 1,
    *,
    version: int = 1,
    workload: str = "w1",
    granted: int = 1,
    baseline: int | None = 1,
    of: JobRef = REF,
    ours: bool = True,
    suspended: bool = False,
    deleting: bool = False,
    requested: annotations.PendingRequests | None = None,
    over: str | None = None,
    generation: int = 1,
) -> Manifest:
    """A Job on the worker, as the agent makes it."""
    at = annotations.job_metadata(of, workload=workload, version=version, grant={"main": granted})
    if baseline is not None:
        at["annotations"][api_names.BASELINE_ANNOTATION] = annotations.encode_counts({"main": baseline})
    if requested is not None:
        at["annotations"][api_names.REQUESTED_ANNOTATION] = encoded(requested)
    metadata = {
        "name": "train",
        "namespace": "team",
        "uid": "worker-uid",
        "resourceVersion": "10",
        "generation": generation,
        **(at if ours else {}),
        **({"deletionTimestamp": NOW} if deleting else {}),
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"parallelism": parallelism, "suspend": suspended, "template": {"spec": POD}},
        "status": an_end(over) if over else {},
    }


def encoded(requested: annotations.PendingRequests) -> str:
    return msgspec.json.encode(requested).decode()


def a_copy(
    name: str = "w1",
    *,
    version: int = 1,
    of: JobRef = REF,
    linked: str | None = None,
    pod_sets: Iterable[str] = ("main",),
    **more: Any,
) -> Manifest:
    """A Workload copy that the agent made. A pod of each pod set is charged for what `POD` requests."""
    annotations = {
        api_names.MANAGER_UID_ANNOTATION: of.uid,
        api_names.SPEC_VERSION_ANNOTATION: str(version),
        api_names.JOB_ANNOTATION: "Job/train",
        **({api_names.JOB_UID_ANNOTATION: linked} if linked else {}),
    }
    return {
        "apiVersion": kueue.API_VERSION,
        "kind": "Workload",
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"uid-{name}",
            "resourceVersion": "20",
            "labels": {api_names.ORIGIN_LABEL: api_names.ORIGIN},
            "annotations": annotations,
        },
        "spec": {"podSets": [POD_SETS[0] | {"name": name} for name in pod_sets]},
        **more,
    }


def a_pod(
    name: str,
    *,
    gated: bool = False,
    ready: bool = False,
    phase: str = "Running",
    pod_set: str = "main",
    of: JobRef | None = REF,
    others: tuple[str, ...] = ("example.com/other",),
) -> Manifest:
    """A pod of the job. `others` are the gates before ours."""
    owner = {api_names.MANAGER_UID_LABEL: of.uid} if of else {}
    gates = [{"name": name} for name in (*others, kueue.ELASTIC_GATE)] if gated else []
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"uid-{name}",
            "resourceVersion": "30",
            "labels": {kueue.POD_SET_LABEL: pod_set, "batch.kubernetes.io/job-name": "train"} | owner,
        },
        "spec": POD | {"schedulingGates": gates},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]},
    }


def a_spec(
    version: int = 2, name: str = "w1", *, granted: int = 1, parallelism: int = 1, job: JobRef = REF, **more: Any
) -> WorkloadSpec:
    """The order to hold a slice."""
    manifest = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "train",
            "namespace": "team",
            "uid": job.uid,
            "labels": {kueue.QUEUE_NAME_LABEL: "queue", "team": "a"},
            "annotations": {kueue.ELASTIC_ANNOTATION: "true"},
        },
        "spec": {"parallelism": parallelism, "managedBy": kueue.MANAGED_BY_MULTIKUEUE, "template": {"spec": POD}},
    }
    workload = {
        "apiVersion": kueue.API_VERSION,
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "team", "uid": f"manager-{name}", "annotations": {}},
        "spec": {"queueName": "queue", "podSets": [POD_SETS[0] | {"count": granted}]},
        "status": {"clusterName": "east", "conditions": [ADMITTED]},
    }
    flavors = {"main": PodSetFlavor({"pool": "spot"}, [{"key": "spot", "operator": "Exists"}])}
    fields = {"workload": workload, "manifest": manifest, "granted": {"main": granted}, "flavors": flavors}
    return WorkloadSpec(job=job, spec_version=version, **(fields | more))


def a_view(
    job: Manifest | None, *copies: Manifest, pods: tuple[Manifest, ...] = (), scale_target: Manifest | None = None
) -> WorkerView:
    reading = WorkerJobReading.from_manifest(job) if job is not None else None
    found = tuple(map(Pod.from_manifest, pods))
    return WorkerView(key=KEY, job=job, reading=reading, scale_target=scale_target or job, copies=copies, pods=found)


def counts(job: Manifest) -> Counts:
    return {"main": job["spec"]["parallelism"]}


def short(command: Command) -> tuple[Any, ...]:
    """A command in a few words."""
    match command:
        case Create(resource=resource, manifest=manifest):
            return f"create {resource.kind}", manifest["metadata"]["name"]
        case Patch(target=target, body=body, subresource=subresource):
            return target["metadata"]["name"], *([subresource] if subresource else []), *_changes(body)
        case Remove(resource=resource, target=target):
            return f"remove {resource.kind}", target["metadata"]["name"]
        case Emit(regarding=regarding, reason=reason):
            return f"tell {regarding['kind']}", reason
        case Publish(message=message):
            return message.type, getattr(message, "workload", None), getattr(message, "spec_version", None)
    raise AssertionError(command)


def _changes(body: Any) -> list[Any]:
    if isinstance(body, list):
        return [f"{entry['path']}={entry['value']}" for entry in body if entry["op"] != "test"]
    annotations = body.get("metadata", {}).get("annotations", {})
    changes: list[Any] = []
    if kueue.PREBUILT_NAME in annotations:
        version, granted = annotations[api_names.SPEC_VERSION_ANNOTATION], annotations[api_names.GRANTED_ANNOTATION]
        changes.append(f"at {annotations[kueue.PREBUILT_NAME]} v{version} {granted}")
        assert body["metadata"]["labels"][kueue.PREBUILT_NAME] == annotations[kueue.PREBUILT_NAME]
    elif api_names.SPEC_VERSION_ANNOTATION in annotations:
        changes.append(f"v{annotations[api_names.SPEC_VERSION_ANNOTATION]}")
    elif api_names.BASELINE_ANNOTATION in annotations:
        changes.append(f"baseline {annotations[api_names.BASELINE_ANNOTATION]}")
    if "suspend" in body.get("spec", {}):
        changes.append("suspended" if body["spec"]["suspend"] else "resumed")
    return changes + [f"/spec/{name}={value}" for name, value in body.get("spec", {}).items() if name in _SIZES]


_SIZES = ("parallelism", "completions")


def resizes(order: WorkloadSpec, view: WorkerView) -> list[Command]:
    """What an order sets of a job's size, and its Events: before the order is noted, or in that very write."""
    steps = orders.workload_spec(order, EAST)
    before = [*steps[SIZES_STEP].decide(view)]
    if before or view.job is None:
        return before
    noted = steps[JOB_STEP].decide(view)
    return [*filter(None, map(_size_alone, noted))] if any(_sets_size(command) for command in noted) else []


def _sets_size(command: Command) -> bool:
    return isinstance(command, Patch) and isinstance(command.body, dict) and "spec" in command.body


def _size_alone(command: Command) -> Command | None:
    if isinstance(command, Patch) and isinstance(command.body, dict):
        sizes = {name: value for name, value in command.body["spec"].items() if name in _SIZES}
        return msgspec.structs.replace(command, body={"spec": sizes}) if sizes else None
    return command


def shorts(commands: Any) -> list[tuple[Any, ...]]:
    return [short(command) for command in commands]
