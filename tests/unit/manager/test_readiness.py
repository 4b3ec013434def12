"""Pods that have quota and do not get ready in time: their job is evicted, or only its scale-up is taken back."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import UNSET, structs

from slicebus.decisions.commands import Command, Emit, Patch, Publish
from slicebus.kube.times import time_text
from slicebus.manager.decide.admission.builtin import reconcile
from slicebus.manager.decide.admission.readiness import reconcile as reconcile_readiness
from slicebus.manager.decide.admission.readiness import requeue_after
from slicebus.manager.decide.messages import message_handlers
from slicebus.manager.decide.order import dispatch
from slicebus.manager.state.annotations import SizeRequest
from slicebus.manager.state.views import JobView, Readiness
from slicebus.proto.messages import ScaleRequest, WorkloadSpec
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.kueue import EvictionReason
from slicebus.slices.jobs import KINDS
from slicebus.slices.workload import avoided_clusters
from slicebus.slices.workload.avoided_clusters import Avoided
from unit.manager.objects import (
    REF,
    a_job,
    a_view,
    a_workload,
    an_envelope,
    asking,
    condition,
    desired_of,
    requested,
    shorts,
)
from unit.slices.jobs.manifests import a_rayservice

Manifest = dict[str, Any]
ADMITTED = datetime(2026, 1, 1, tzinfo=UTC)
"""When the slices of these tests were admitted."""
BEGAN = "2025-12-31T00:00:00Z"
FOREVER = Readiness(counts_from=BEGAN, connected_since=BEGAN)
AFTER_300 = structs.replace(FOREVER, start_s=300.0)
SCALE_UPS = structs.replace(FOREVER, scale_up_s=300.0)
READY, NOT_READY = condition("PodsReady"), condition("PodsReady", False, "WaitForStart")
LOST = condition("PodsReady", False, "WaitForRecovery")
REPLACED = condition("Finished", True, "WorkloadSliceReplaced")


def after(seconds: float) -> str:
    return time_text(ADMITTED + timedelta(seconds=seconds))


def holds(count: int = 1, *conditions: Manifest, name: str = "w1", **how: Any) -> Manifest:
    """A slice that its worker has applied."""
    return a_workload(name, count, admitted=count, dispatched=3, applied=3, conditions=conditions, **how)


def decided(view: JobView, *, at_s: float) -> list[Command]:
    """What is decided when only time has passed: the dispatch is as it was."""
    return [
        command for command in reconcile(structs.replace(view, published=3), after(at_s)) if not _is_dispatch(command)
    ]


def _is_dispatch(command: Command) -> bool:
    dispatch = api_names.DISPATCHED_ANNOTATION
    is_record = isinstance(command, Patch) and dispatch in str(command.body)
    return is_record or isinstance(command, Publish)


def starting(readiness: Readiness | None, *conditions: Manifest) -> JobView:
    return a_view(a_job(), holds(1, *conditions), readiness=readiness)


def requeued(commands: list[Command]) -> list[tuple[Any, ...]]:
    return [each for each in shorts(commands) if each[0] == "requeue"]


@pytest.mark.parametrize(
    ("view", "at_s", "left"),
    [
        (starting(AFTER_300), 10, [("requeue", 291.0)]),
        (starting(AFTER_300, NOT_READY), 10, [("requeue", 291.0)]),
        (starting(AFTER_300, READY), 10, []),
        (starting(AFTER_300, LOST), 10, []),
        (starting(structs.replace(FOREVER, recovery_s=60.0), LOST), 10, [("requeue", 51.0)]),
        (starting(structs.replace(FOREVER, recovery_s=60.0), NOT_READY), 10, []),
        (starting(None), 10, []),
        (starting(structs.replace(AFTER_300, counts_from=after(100))), 110, [("requeue", 291.0)]),
        (starting(structs.replace(AFTER_300, connected_since=after(100))), 110, [("requeue", 291.0)]),
        (starting(structs.replace(AFTER_300, connected_since=None)), 9999, [("requeue", 301.0)]),
    ],
    ids=[
        "nothing reported",
        "not ready",
        "ready",
        "ready before, without a limit for that",
        "ready before",
        "never ready, and a limit only for those that were",
        "no limit",
        "the manager started later",
        "the cluster connected later",
        "the cluster is not connected",
    ],
)
def test_a_job_is_looked_at_again_when_its_time_is_over(
    view: JobView, at_s: float, left: list[tuple[Any, ...]]
) -> None:
    assert requeued(decided(view, at_s=at_s)) == left


def applied(workload: Manifest, commands: list[Command]) -> Manifest:
    for command in commands:
        if isinstance(command, Patch) and command.target["kind"] == "Workload":
            assert isinstance(command.body, dict)
            workload = merge_patch(workload, command.body)
    return workload


@pytest.mark.parametrize(
    ("readiness", "shown"),
    [(AFTER_300, NOT_READY), (structs.replace(FOREVER, recovery_s=300.0), LOST)],
    ids=["never ready", "not ready any more"],
)
def test_then_it_avoids_the_cluster_and_is_evicted(readiness: Readiness, shown: Manifest) -> None:
    workload = holds(1, shown)
    first = decided(a_view(a_job(), workload, readiness=readiness), at_s=300)
    workload = applied(workload, first)
    until = ADMITTED + timedelta(seconds=360)
    assert avoided_clusters.read(workload) == {"east": Avoided(1, until)}
    second = decided(a_view(a_job(), workload, readiness=readiness), at_s=300)
    assert [each.reason for each in second if isinstance(each, Emit)] == ["EvictedDueToPodsReadyTimeout"] * 2
    [evicted] = [each for each in applied(workload, second)["status"]["conditions"] if each["type"] == "Evicted"]
    assert (evicted["status"], evicted["reason"]) == ("True", EvictionReason.PODS_READY_TIMEOUT)
    assert evicted["message"] == "Exceeded the PodsReady timeout team/w1"


def waiting(until_s: float) -> Manifest:
    """A slice without quota that keeps away from a cluster."""
    avoided = {"east": Avoided(1, ADMITTED + timedelta(seconds=until_s))}
    workload = a_workload()
    text = avoided_clusters.to_annotation(avoided)
    workload["metadata"]["annotations"][api_names.AVOIDED_CLUSTERS_ANNOTATION] = text
    return workload


def test_a_job_that_waits_may_go_there_again_after_a_while() -> None:
    workload = waiting(60)
    view = a_view(a_job(), workload)
    assert view.slices[0].avoids == {"east"}
    assert requeued(decided(view, at_s=20)) == [("requeue", 41.0)]
    after_it = applied(workload, decided(view, at_s=60))
    assert avoided_clusters.read(after_it) == {"east": Avoided(1)}
    assert a_view(a_job(), after_it).slices[0].avoids == frozenset()


def test_what_a_job_avoids_is_forgotten_when_its_pods_are_ready() -> None:
    workload = holds(1, READY)
    text = avoided_clusters.to_annotation({"west": Avoided(2)})
    workload["metadata"]["annotations"][api_names.AVOIDED_CLUSTERS_ANNOTATION] = text
    after_it = applied(workload, decided(a_view(a_job(), workload, readiness=AFTER_300), at_s=1))
    assert api_names.AVOIDED_CLUSTERS_ANNOTATION not in after_it["metadata"]["annotations"]


def grown(readiness: Readiness, *of_the_first: Manifest, job: Manifest | None = None, second: int = 5) -> JobView:
    """A job that ran with three pods and was granted five, which are not ready."""
    first = a_workload("w1", 3, admitted=3, conditions=(*of_the_first, REPLACED))
    return a_view(job or asking(1, 5), first, holds(second, NOT_READY, name="w2", replaces="w1"), readiness=readiness)


def test_only_the_scale_up_is_taken_back() -> None:
    view = grown(SCALE_UPS, READY)
    assert requeued(decided(view, at_s=0)) == [("requeue", 301.0)]
    patch, event = decided(view, at_s=300)
    assert isinstance(patch, Patch)
    assert isinstance(event, Emit)
    assert isinstance(patch.body, dict)
    assert (event.reason, event.warning) == ("ScaleUpTakenBack", True)
    assert event.note == ("Pods of the scale-up to main=5 were not ready after 300 s: the size is main=3 again")
    assert view.job is not None
    job = merge_patch(view.job, patch.body)
    desired = desired_of(job)
    assert (desired.counts, desired.own, desired.sent) == ({"main": 3}, {"main": 1}, {"main": 3})


def test_the_size_of_an_indexed_job_counts_what_has_succeeded() -> None:
    job = a_job(3)
    job["spec"] |= {"completionMode": "Indexed", "completions": 3}
    view = grown(SCALE_UPS, READY, job=job)
    request = SizeRequest(counts={"main": 5}, worker_uid="w", worker_generation=2, finished={"main": 2})
    request = structs.replace(request, baseline={"main": 3})
    workload = view.workload(view.slices[-1])
    workload["metadata"]["annotations"][api_names.REQUESTED_ANNOTATION] = request.to_annotation()
    view = a_view(job, *view.workloads.values(), readiness=SCALE_UPS)
    [patch, _] = decided(view, at_s=300)
    assert isinstance(patch, Patch)
    assert isinstance(patch.body, dict)
    desired = a_view(job, view.workload(view.slices[0]), merge_patch(workload, patch.body)).desired
    assert (desired.counts, desired.finished, desired.sent) == ({"main": 3}, {"main": 2}, {"main": 5})


def taken_back(*, spec: int = 1, before: int = 1) -> Manifest:
    """The job after that, and its spec by then; `before` was its spec when it asked for five."""
    [patch, _] = decided(grown(SCALE_UPS, READY, job=asking(before, 5)), at_s=300)
    assert isinstance(patch, Patch)
    assert isinstance(patch.body, dict)
    return merge_patch(asking(before, 5), patch.body) | {"spec": a_job(spec)["spec"]}


def specs(commands: list[Command]) -> list[WorkloadSpec]:
    return [each.message for each in commands if isinstance(each, Publish) and isinstance(each.message, WorkloadSpec)]


def test_the_worker_gets_the_smaller_size_and_the_quota_stays_until_it_has_it() -> None:
    view = grown(SCALE_UPS, READY, job=taken_back())
    [spec] = specs(reconcile(structs.replace(view, published=3), after(301)))
    assert spec.manifest["spec"]["parallelism"] == 3
    assert spec.granted == {"main": 5}
    assert "the size is main=3 again" in str(spec.resized_because)
    assert view.holder is not None
    assert view.holder.counts == {"main": 5}, "its pods may still run"
    assert requeued(reconcile(view, after(301))) == [], "nothing more is taken back"


def test_the_worker_gets_it_also_where_it_has_grown_from_that_size() -> None:
    """The order that granted the growth had the same counts."""
    view = grown(SCALE_UPS, READY, job=asking(3, 5))
    granted = reconcile(view, after(1))
    [first_order], second = specs(granted), applied(view.workloads["w2"], granted)

    def ordered(job: Manifest) -> list[WorkloadSpec]:
        first = a_workload("w1", 3, admitted=3, conditions=(READY, REPLACED))
        published = first_order.spec_version
        return specs(reconcile(a_view(job, first, second, readiness=SCALE_UPS, published=published), after(301)))

    assert ordered(asking(3, 5)) == []
    [again] = ordered(taken_back(spec=3, before=3))
    assert [each.manifest["spec"]["parallelism"] for each in (first_order, again)] == [3, 3]
    assert again.spec_version == first_order.spec_version + 1
    assert (first_order.taken_back, bool(again.taken_back)) == (UNSET, True)


def test_that_answers_no_request_for_more() -> None:
    """The worker may run what it was granted, whatever it has asked for since."""
    view = grown(SCALE_UPS, READY, job=taken_back())
    assert dispatch.is_unanswered(view)
    assert [each for each in shorts(reconcile(view, after(301))) if each[1] == "counts"] == []


def test_then_the_worker_asks_for_it_and_the_quota_is_free() -> None:
    view = grown(SCALE_UPS, READY, job=taken_back())
    request = ScaleRequest(
        job=REF, workload="w2", worker_uid="w-1", worker_generation=3, granted={"main": 5}, wanted={"main": 3}
    )
    [noted] = message_handlers.scale_request(view, request, an_envelope(sequence=9))
    assert isinstance(noted, Patch)
    assert isinstance(noted.body, dict)
    job = merge_patch(taken_back(), noted.body)
    shrinks = [each for each in shorts(reconcile(grown(SCALE_UPS, READY, job=job), after(302))) if each[1] == "counts"]
    assert shrinks == [("w2", "counts", {"main": 3}, "version 4 is held")]
    desired = desired_of(job)
    assert (desired.counts, desired.sent) == ({"main": 3}, {"main": 3}), "the worker's job is not resized again"


def test_an_edit_of_the_spec_comes_before_what_was_taken_back() -> None:
    desired = desired_of(taken_back(spec=2))
    assert (desired.counts, desired.sent, desired.taken_back) == ({"main": 2}, {"main": 2}, None)


def test_after_an_eviction_the_job_begins_with_its_spec_again() -> None:
    requested = SizeRequest.from_manifest(taken_back())
    assert requested is not None
    forgotten = a_job(annotations={api_names.REQUESTED_ANNOTATION: requested.cleared().to_annotation()})
    desired = desired_of(forgotten)
    assert (desired.counts, desired.sent) == ({"main": 1}, {"main": 1})


def test_a_scale_up_that_was_made_at_the_manager_is_taken_back_too() -> None:
    view = grown(SCALE_UPS, READY, job=a_job(5))
    patch, _ = decided(view, at_s=300)
    assert isinstance(patch, Patch)
    assert isinstance(patch.body, dict)
    job = merge_patch(a_job(5), patch.body)
    desired = desired_of(job)
    assert (desired.counts, desired.sent, desired.correlation) == ({"main": 3}, {"main": 3}, None)
    [spec] = specs(reconcile(structs.replace(grown(SCALE_UPS, READY, job=job), published=3), after(301)))
    assert spec.manifest["spec"]["parallelism"] == 3


EVICTED_BEFORE = condition("Evicted", False, "QuotaReserved")


@pytest.mark.parametrize(
    ("view", "evicts"),
    [
        (grown(AFTER_300, READY), True),
        (grown(structs.replace(SCALE_UPS, start_s=100.0), NOT_READY), True),
        (grown(SCALE_UPS, NOT_READY), False),
        (grown(structs.replace(SCALE_UPS, start_s=100.0), READY, second=2), True),
        (
            a_view(
                asking(1, 5),
                a_workload("w1", 3, admitted=3, conditions=(READY, REPLACED)),
                holds(5, NOT_READY, EVICTED_BEFORE, name="w2", replaces="w1"),
                readiness=structs.replace(SCALE_UPS, start_s=100.0),
            ),
            True,
        ),
    ],
    ids=[
        "there is no limit of its own",
        "its pods were never ready",
        "its pods were never ready, and only scale-ups have a limit",
        "it has fewer pods than when they were ready",
        "it was evicted since",
    ],
)
def test_otherwise_the_whole_job_waits_for_its_pods(view: JobView, evicts: bool) -> None:
    commands = decided(view, at_s=300)
    assert [each for each in commands if isinstance(each, Emit)] == []
    avoided = [each for each in commands if api_names.AVOIDED_CLUSTERS_ANNOTATION in str(getattr(each, "body", ""))]
    assert bool(avoided) is evicts


def test_a_new_slice_knows_what_the_one_before_avoids() -> None:
    workload = holds(1, NOT_READY)
    text = avoided_clusters.to_annotation({"west": Avoided(2)})
    workload["metadata"]["annotations"][api_names.AVOIDED_CLUSTERS_ANNOTATION] = text
    [create] = [each for each in shorts(reconcile(a_view(asking(1, 5), workload), after(0))) if "create" in each[0]]
    assert create == ("create Workload", {"main": 5}, "team/w1")
    made = reconcile(a_view(asking(1, 5), workload), after(0))
    [annotations] = [
        each.manifest["metadata"]["annotations"] for each in made if getattr(each, "manifest", None) is not None
    ]
    assert annotations[api_names.AVOIDED_CLUSTERS_ANNOTATION] == text
    assert annotations[kueue.REPLACEMENT_FOR_ANNOTATION] == "team/w1"


UPGRADES: dict[str, tuple[int, int, bool]] = {
    "a scale-up": (1, 1, True),
    "an upgrade": (2, 2, False),
    "a scale-up, while an upgrade waits for quota": (1, 2, False),
}


@pytest.mark.parametrize("limits", [AFTER_300, SCALE_UPS], ids=["of a job", "of a scale-up"])
@pytest.mark.parametrize(("heads", "wanted", "has_time"), UPGRADES.values(), ids=UPGRADES.keys())
def test_the_next_cluster_of_a_service_has_no_time(limits: Readiness, heads: int, wanted: int, has_time: bool) -> None:
    """The cluster before it serves, and no size takes the next one back, nor the wish for it."""
    service = a_job() | {name: a_rayservice()[name] for name in ("apiVersion", "kind", "spec")}
    own = KINDS["RayService"].counts(service, service)
    wish = structs.replace(requested({"head": wanted, "small": 2 * wanted}), baseline=own)
    service["metadata"]["annotations"] = {api_names.REQUESTED_ANNOTATION: wish.to_annotation()}
    first, second = a_workload(admitted=1), holds(name="w2", replaces="w1")
    counts = ((first, 1, 1, (READY, REPLACED)), (second, heads, 2 * heads, (NOT_READY,)))
    for workload, head, small, conditions in counts:
        sizes = [{"name": "head", "count": head}, {"name": "small", "count": small}]
        [assignment] = workload["status"]["admission"]["podSetAssignments"]
        workload["status"]["admission"]["podSetAssignments"] = [assignment | size for size in sizes]
        workload["spec"]["podSets"] = [workload["spec"]["podSets"][0] | size for size in sizes]
        workload["status"]["conditions"] += conditions
    view = a_view(service, first, second, readiness=limits)
    assert bool(requeue_after(view, now=after(10))) is has_time
    assert bool(reconcile_readiness(view, service, now=after(300))) is has_time
