"""A job that its own controller refuses: known by its Events and conditions, and shown until a pod is there."""

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import structs

from slicebus.agent.decide.job import reconcile, waiting
from slicebus.agent.decide.pods import pod_refusals
from slicebus.agent.state import annotations
from slicebus.agent.state.views import JobKey, PodsRefusal, WorkerJobReading, WorkerView
from slicebus.proto.messages import Counts, JobRef, Manifest, Waits
from slicebus.slices.workload.ungate import Pod
from slicebus.slices.workload.waiting import CONTROLLER_REFUSED, PODS_REFUSED, SPEC_REFUSED, Waiting
from unit.agent.objects import NOW, a_pod
from unit.agent.test_pod_refusals import an_event
from unit.agent.test_ray_pods import WORKERS, an_object
from unit.agent.test_ray_pods import a_spec as a_ray_spec

TLS = "tlsOptions needs the feature gate to be on"
REFUSED = {"reason": "InvalidRayClusterSpec", "message": f"The RayCluster spec is invalid team/train: {TLS}"}
TEXT = f"InvalidRayClusterSpec: The RayCluster spec is invalid team/train: {TLS}"
VALIDATION = {"type": "Ready", "status": "False", "reason": "ValidationFailed", "message": "not a duration"}
TIMEOUT = {"type": "Ready", "status": "False", "reason": "InitializingTimeout", "message": "not ready within 10m"}
NOTHING = PodsRefusal()


def a_ray(
    kind: str = "RayCluster",
    *pods: Manifest,
    status: Manifest | None = None,
    refused: PodsRefusal | None = NOTHING,
    shown: Waiting | None = None,
    granted: Counts | None = None,
) -> WorkerView:
    """A job of a head and one worker. A RayJob and a RayService have no cluster yet."""
    spec = {"RayCluster": a_ray_spec(), "RayService": {"rayClusterConfig": a_ray_spec()}}
    of = JobRef("ray.io/v1", kind, "team", "train", "manager-uid")
    granted = {"head": 1, WORKERS: 1} if granted is None else granted
    at = annotations.job_metadata(of, workload="w1", version=1, grant=granted)
    at["annotations"] |= {"slicebus.dev/waiting": shown.to_annotation()} if shown else {}
    job = an_object(kind, "train", spec.get(kind, {"rayClusterSpec": a_ray_spec()}), **at)
    job["metadata"]["creationTimestamp"] = "2026-01-31T09:00:00Z"
    job |= {"status": status} if status else {}
    return WorkerView(
        key=JobKey(kind, "team", "train"),
        job=job,
        reading=WorkerJobReading.from_manifest(job),
        scale_target=job if kind == "RayCluster" else None,
        pods=tuple(map(Pod.from_manifest, pods)),
        refused_pods=refused,
    )


A_HEAD = a_pod("p", pod_set="head")
FOUND: dict[str, tuple[list[Manifest], tuple[Manifest, ...], PodsRefusal]] = {
    "a spec": ([an_event(**REFUSED)], (), PodsRefusal(CONTROLLER_REFUSED, TEXT)),
    "a spec, long ago": ([an_event(**REFUSED, at="09:00:01")], (), PodsRefusal(CONTROLLER_REFUSED, TEXT)),
    "a spec, before this job": ([an_event(**REFUSED, at="08:59:59")], (), NOTHING),
    "anything else that keeps all pods away": (
        [an_event("no such account", reason="AutoscalerServiceAccountNotFound")],
        (),
        PodsRefusal(CONTROLLER_REFUSED, "AutoscalerServiceAccountNotFound: no such account"),
    ),
    "the same, while pods are there": ([an_event("no", reason="FailedToCreateIngress")], (A_HEAD,), NOTHING),
    "a spec, while pods are there": ([an_event(**REFUSED)], (A_HEAD,), PodsRefusal(SPEC_REFUSED, TEXT)),
    "a spec that it runs all the same": (
        [an_event("RayCluster spec warning team/train: restartPolicy should be Never", reason=REFUSED["reason"])],
        (),
        NOTHING,
    ),
    "what an agent says itself": (
        [an_event("waits", reason="Pending", source={"component": "slicebus-agent"})],
        (),
        NOTHING,
    ),
    "first a spec, then a pod": (
        [an_event(**REFUSED, at="11:50:00"), an_event("no quota", at="11:59:00")],
        (),
        PodsRefusal(PODS_REFUSED, "no quota"),
    ),
    "first a pod, then a spec": (
        [an_event(**REFUSED, at="11:59:00"), an_event("no quota", at="11:50:00")],
        (),
        PodsRefusal(CONTROLLER_REFUSED, TEXT),
    ),
    "names of what it would make": (
        [an_event("cannot make train-x7k2p for it", reason="FailedToCreateRayCluster")],
        (),
        PodsRefusal(CONTROLLER_REFUSED, "FailedToCreateRayCluster: cannot make train-* for it"),
    ),
    "two things by turns": (
        [
            an_event("b", reason="FailedToCreateIngress", at="11:59:00"),
            an_event("a", reason="AutoscalerServiceAccountNotFound", at="11:59:30"),
            an_event("c", reason="FailedToCreateService", at="11:50:00"),
        ],
        (),
        PodsRefusal(CONTROLLER_REFUSED, "AutoscalerServiceAccountNotFound: a; FailedToCreateIngress: b"),
    ),
    "nothing readable": ([{"metadata": {"creationTimestamp": "never"}}], (), NOTHING),
}


@pytest.mark.parametrize(("events", "pods", "refusal"), FOUND.values(), ids=FOUND.keys())
def test_what_events_say(events: list[Manifest], pods: tuple[Manifest, ...], refusal: PodsRefusal) -> None:
    moment = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
    assert pod_refusals.why(events, moment, view=a_ray("RayCluster", *pods)) == refusal


CONDITIONS: dict[str, tuple[Manifest, tuple[Manifest, ...], PodsRefusal]] = {
    "a spec": (VALIDATION, (), PodsRefusal(CONTROLLER_REFUSED, "ValidationFailed: not a duration")),
    "a spec, while it serves": (VALIDATION, (A_HEAD,), PodsRefusal(SPEC_REFUSED, "ValidationFailed: not a duration")),
    "a job that is stalled": (
        {"type": "Stalled", "status": "True", "reason": "InvalidSpec", "message": "no"},
        (),
        PodsRefusal(CONTROLLER_REFUSED, "InvalidSpec: no"),
    ),
    "a job that is stalled, while pods are there": (
        {"type": "Stalled", "status": "True", "reason": "InvalidSpec", "message": "no"},
        (A_HEAD,),
        NOTHING,
    ),
    "a job that is not accepted": (
        {"type": "Accepted", "status": "False", "reason": "NotAllowed", "message": "no"},
        (),
        PodsRefusal(CONTROLLER_REFUSED, "NotAllowed: no"),
    ),
    "a failure": (
        {"type": "Synced", "status": "False", "reason": "JobCreationFailed", "message": "no"},
        (),
        PodsRefusal(CONTROLLER_REFUSED, "JobCreationFailed: no"),
    ),
    "a failure, while pods are there": (
        {"type": "Synced", "status": "False", "reason": "ProbeFailed", "message": "no"},
        (A_HEAD,),
        NOTHING,
    ),
    "a time that is over": (TIMEOUT, (), PodsRefusal(CONTROLLER_REFUSED, "InitializingTimeout: not ready within 10m")),
    "a time that is over, while pods are there": (TIMEOUT, (A_HEAD,), NOTHING),
    "that it is not ready yet": ({"type": "Ready", "status": "False", "reason": "Initializing"}, (), NOTHING),
    "that it was refused": (VALIDATION | {"status": "True"}, (), NOTHING),
    "a pod that could not be made": (
        {"type": "ReplicaFailure", "status": "False", "reason": "FailedCreateHeadPod"},
        (),
        NOTHING,
    ),
    "nothing": ({"type": "Ready", "status": "False"}, (), NOTHING),
}


@pytest.mark.parametrize(("condition", "pods", "refusal"), CONDITIONS.values(), ids=CONDITIONS.keys())
def test_what_conditions_say(condition: Manifest, pods: tuple[Manifest, ...], refusal: PodsRefusal) -> None:
    view = a_ray("RayService", *pods, status={"conditions": [condition]})
    assert pod_refusals.by_status(view) == refusal


BY_EVENT = PodsRefusal(CONTROLLER_REFUSED, TEXT)
SHOWN = Waiting.of(
    {"head": 1, WORKERS: 1},
    {"head": 1, WORKERS: 1},
    reason=CONTROLLER_REFUSED,
    message=f"Its controller refuses the job, and 2 pods hold their quota: {TEXT}",
    since="2026-01-31T11:00:00Z",
)


def shown(view: WorkerView) -> list[Waiting | None]:
    """What is written onto the job; nothing where it stays as it is."""
    bodies = [command.body for command in waiting.reconcile(view, now=NOW) if hasattr(command, "body")]
    texts = [body["metadata"]["annotations"]["slicebus.dev/waiting"] for body in bodies]
    return [Waiting.from_manifest({"metadata": {"annotations": {"slicebus.dev/waiting": text}}}) for text in texts]


@pytest.mark.parametrize("kind", ["RayCluster", "RayJob", "RayService"])
def test_it_is_shown_and_told(kind: str) -> None:
    assert shown(a_ray(kind, refused=BY_EVENT)) == [structs.replace(SHOWN, since=NOW)]
    status = reconcile.status(a_ray(kind, refused=BY_EVENT, shown=SHOWN))
    assert status is not None
    assert status.waits == Waits(
        wanted=SHOWN.wanted, reason=CONTROLLER_REFUSED, message=SHOWN.message, since=SHOWN.since
    )


def test_a_condition_needs_no_events() -> None:
    [told] = shown(a_ray("RayService", status={"conditions": [VALIDATION]}, refused=None))
    assert told is not None
    assert told.message.endswith("2 pods hold their quota: ValidationFailed: not a duration")


HELD: dict[str, tuple[dict[str, Any], list[Waiting | None]]] = {
    "as long as it is said": ({"refused": BY_EVENT}, []),
    "before an agent that starts has read the Events": ({"refused": None}, []),
    "when the Event is over": ({"refused": NOTHING}, []),
    "not when nothing is granted any more": ({"refused": NOTHING, "granted": {"head": 0, WORKERS: 0}}, [None]),
}


@pytest.mark.parametrize(("how", "written"), HELD.values(), ids=HELD.keys())
@pytest.mark.parametrize("kind", ["RayJob", "RayService"])
def test_it_stays_shown(kind: str, how: dict[str, Any], written: list[Waiting | None]) -> None:
    assert shown(a_ray(kind, shown=SHOWN, **how)) == written


def test_it_goes_with_the_first_pod() -> None:
    assert shown(a_ray("RayCluster", A_HEAD, shown=SHOWN, refused=NOTHING)) == [None]
    assert shown(a_ray("RayCluster", A_HEAD, shown=SHOWN, refused=BY_EVENT)) == [None]


def test_a_request_that_waits_is_not_taken_away_while_a_rayjob_has_no_cluster() -> None:
    pending = structs.replace(SHOWN, reason="Pending", message="5 cpu short")
    assert shown(a_ray("RayJob", shown=pending)) == []


def test_a_refused_edit_is_shown_while_all_pods_run() -> None:
    pods = A_HEAD, a_pod("w", pod_set=WORKERS)
    [told] = shown(a_ray("RayCluster", *pods, refused=PodsRefusal(SPEC_REFUSED, TEXT)))
    assert told is not None
    assert (told.reason, told.message) == (SPEC_REFUSED, f"Its controller refuses its present spec: {TEXT}")
