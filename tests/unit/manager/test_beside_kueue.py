"""One job beside a Kueue: when each order is published, what the check shows, and in which steps a job ends."""

from typing import Any

import msgspec
import pytest

from slicebus.decisions.commands import Command, Emit, Forget, Patch, Publish, Remember, Requeue
from slicebus.manager.decide.job import waiting
from slicebus.manager.decide.kueue import beside_kueue, kueue_messages, kueue_status
from slicebus.manager.decide.kueue.beside_kueue import Places
from slicebus.manager.decide.manifests import merge_difference
from slicebus.manager.decide.messages import message_handlers
from slicebus.manager.decide.modes import BesideKueue
from slicebus.manager.state.annotations import SizeRequest, SpecCounts
from slicebus.manager.state.outbox import Dispatch, applied_version
from slicebus.manager.state.requirements import FIXED_SIZE
from slicebus.manager.state.settings import AdmissionModeName, LeaderSettings
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.messages import (
    Applied,
    ClusterName,
    JobPhase,
    Manifest,
    ScaleRequest,
    Status,
    Suspend,
    Waits,
    WorkloadSpec,
)
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.admission.cycle import Evict
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.fingerprints import spec_hash
from slicebus.slices.api.kueue import EvictionReason
from slicebus.slices.jobs import KINDS
from slicebus.slices.jobs.suspension import suspension
from slicebus.slices.placement.fleet import Cluster, Fleet, Strategy
from unit.manager.objects import (
    NOW,
    REF,
    a_job,
    a_view,
    a_workload,
    an_envelope,
    condition,
    requested,
    short,
    without_notes,
)

SUSPENDED = {"type": "Suspended", "status": "True", "reason": "JobSuspended", "message": "Waits for admission"}
FINALIZERS = ["kueue.x-k8s.io/resource-in-use", api_names.DISPATCHED_FINALIZER]


def places(*names: str) -> Places:
    clusters = [Cluster(name=name, accepted=True, cordoned=False, connected=True) for name in names]
    return Places(clusters=frozenset(names), fleet=Fleet(clusters, {}, {}), strategy=Strategy.SPREAD)


def kueues_job(parallelism: int = 1, *, suspended: bool = False, active: int = 1, **how: Any) -> Manifest:
    """A job as Kueue keeps it."""
    job = a_job(parallelism, **how)
    job["spec"]["suspend"] = suspended
    times = {"lastProbeTime": NOW, "lastTransitionTime": NOW}
    if "conditions" not in job["status"]:
        job["status"] = {"conditions": [SUSPENDED | times]} if suspended else {"active": active}
    return job


def kueues_workload(
    name: str = "w1",
    count: int = 1,
    *,
    state: str = "Pending",
    message: str = "",
    cluster: str | None = "east",
    admitted: bool = False,
    checks: tuple[str, ...] = ("slicebus",),
    reserved: int | None = None,
    **how: Any,
) -> Manifest:
    """A slice that Kueue has made and given quota. `admitted` has passed every check."""
    workload = a_workload(name, count, admitted=count if reserved is None else reserved, **how)
    status, metadata = workload["status"], workload["metadata"]
    del status["clusterName"]
    if not admitted:
        status["conditions"] = [entry for entry in status["conditions"] if entry["type"] != "Admitted"]
    entry = {"state": state, "message": message, "lastTransitionTime": NOW}
    status["admissionChecks"] = [entry | {"name": check} for check in checks]
    if cluster is not None:
        metadata["annotations"][api_names.CLUSTER_ANNOTATION] = cluster
        metadata["finalizers"] = FINALIZERS
    return workload


def evicted(workload: Manifest) -> Manifest:
    workload["status"]["conditions"].append(condition("Evicted", message="Preempted"))
    return workload


def reconcile(job: Manifest | None, *workloads: Manifest, at: Places | None = None, **changes: Any) -> list[Command]:
    given = {"checks": frozenset({"slicebus"})} | changes
    return beside_kueue.reconcile(a_view(job, *workloads, **given), at or places("east", "west"), NOW)


def in_words(commands: list[Command]) -> list[tuple[Any, ...]]:
    """Commands in a few words, with the message of a check and the new status."""
    words: list[tuple[Any, ...]] = []
    for command in without_notes(commands):
        body = command.body if isinstance(command, Patch) and isinstance(command.body, dict) else {}
        if checks := body.get("status", {}).get("admissionChecks"):
            words += [("check", entry["state"], entry["message"]) for entry in checks if entry["name"] == "slicebus"]
        elif "spec" in body:
            words.append(("spec", body["spec"]))
        elif "status" in body:
            words.append(("status", body["status"]))
        else:
            words.append(short(command))
    return words


def granted(commands: list[Command]) -> list[dict[str, int]]:
    return [c.message.granted for c in commands if isinstance(c, Publish) and isinstance(c.message, WorkloadSpec)]


def placed(commands: list[Command]) -> str:
    """The cluster that the first command writes."""
    [patch, *_] = commands
    assert isinstance(patch, Patch)
    assert isinstance(patch.body, dict)
    return str(patch.body["metadata"]["annotations"][api_names.CLUSTER_ANNOTATION])


def test_a_slice_with_quota_is_placed_kept_and_ordered_in_one_write() -> None:
    [patch, note, publish] = reconcile(kueues_job(suspended=True), kueues_workload(cluster=None, held=True))
    assert isinstance(patch, Patch)
    assert isinstance(patch.body, dict)
    annotations = patch.body["metadata"]["annotations"]
    record = Dispatch.from_manifest(patch.body)
    assert record is not None
    assert (record.version, record.cluster) == (1, "east")
    assert annotations == {
        api_names.CLUSTER_ANNOTATION: "east",
        api_names.DISPATCHED_ANNOTATION: record.to_annotation(),
        api_names.REQUESTED_ANNOTATION: "{}",
    }
    assert patch.body["metadata"]["finalizers"] == FINALIZERS
    assert (type(note), short(publish)) == (Remember, ("workload-spec to east", 1))
    assert granted([publish]) == [{"main": 0}]


def test_a_crash_after_that_write_leaves_an_order_that_is_published() -> None:
    workload = kueues_workload(cluster=None, held=True)
    [patch, *_] = reconcile(kueues_job(suspended=True), workload)
    assert isinstance(patch, Patch)
    again = reconcile(kueues_job(suspended=True), merge_patch(workload, patch.body))
    assert in_words(again) == [("workload-spec to east", 1)]
    assert granted(again) == [{"main": 0}]


def test_an_order_that_is_too_large_does_not_keep_a_slice_from_its_place() -> None:
    workload = kueues_workload(cluster=None, held=True)
    [patch] = reconcile(kueues_job(suspended=True), workload, message_bytes=1)
    assert short(patch) == ("w1", (api_names.CLUSTER_ANNOTATION, "east"), (api_names.REQUESTED_ANNOTATION, "{}"))
    assert isinstance(patch, Patch)
    [shown, _] = reconcile(kueues_job(suspended=True), merge_patch(workload, patch.body), message_bytes=1)
    assert isinstance(shown, Patch)
    assert shown.subresource == "status"


def replaced(**how: Any) -> Manifest:
    """The slice of a running job in whose place another one has come: one pod may run on east."""
    hash = spec_hash(ClusterName("east"), "w1", {"main": 1}, {"main": 1})
    old = kueues_workload(**{"dispatched": 1, "applied": 1, "hash": hash, "admitted": True, "state": "Ready"} | how)
    old["status"]["conditions"].append(condition("Finished", reason="WorkloadSliceReplaced"))
    return old


@pytest.mark.parametrize("spec", [1, 3], ids=["resized by the worker", "resized on the manager"])
def test_a_replacement_is_ready_at_once_where_the_worker_holds_the_job(spec: int) -> None:
    job, new = kueues_job(spec), kueues_workload("w2", 3, replaces="w1", cluster=None)
    assert in_words(reconcile(job, replaced(), new)) == [("check", "Ready", "Worker cluster east holds it")]
    ready = kueues_workload("w2", 3, replaces="w1", cluster=None, state="Ready")
    assert reconcile(job, replaced(), ready) == []


def test_it_is_placed_and_ordered_in_one_write_when_it_is_admitted() -> None:
    admitted = kueues_workload("w2", 3, replaces="w1", cluster=None, state="Ready", admitted=True)
    commands = reconcile(kueues_job(3), replaced(), admitted)
    assert placed(commands) == "east"
    assert in_words(commands) == [("w2", "version 2 is held"), ("workload-spec to east", 2), ("relabel to east", 2)]
    assert granted(commands) == [{"main": 3}]


AWAY = Cluster(name="east", accepted=True, cordoned=False, connected=False)
ORDERED: dict[str, tuple[Manifest, Places | None]] = {
    "its order is not applied": (replaced(applied=0), None),
    "it holds more than it may run": (
        replaced(hash=spec_hash(ClusterName("east"), "w1", {"main": 2}, {"main": 1})),
        None,
    ),
    "its agent is away": (
        replaced(),
        Places(clusters=frozenset({"east"}), fleet=Fleet([AWAY], {}, {}), strategy=Strategy.SPREAD),
    ),
}


@pytest.mark.parametrize(("old", "at"), ORDERED.values(), ids=ORDERED.keys())
def test_else_it_is_ordered_before(old: Manifest, at: Places | None) -> None:
    commands = reconcile(kueues_job(3), old, kueues_workload("w2", 3, replaces="w1", cluster=None), at=at)
    assert placed(commands) == "east"
    assert granted(commands) == [{"main": 1}]


def test_a_replacement_goes_where_its_chain_is() -> None:
    old = kueues_workload("w1", dispatched=1, applied=1, cluster="west", admitted=True, state="Ready")
    old["status"]["conditions"].append(condition("Finished", reason="WorkloadSliceReplaced"))
    new = kueues_workload("w2", 3, replaces="w1", cluster=None)
    commands = reconcile(kueues_job(3), old, new)
    assert placed(commands) == "west"
    assert in_words(commands)[0] == ("w2", "version 2 is held")


def test_without_a_cluster_the_check_shows_what_is_missing() -> None:
    commands = reconcile(kueues_job(suspended=True), kueues_workload(cluster=None), at=places())
    waits = "Waits for a worker cluster: there is no WorkerCluster"
    assert in_words(commands) == [("check", "Pending", waits), ("requeue", 10.0)]


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ({"namespace_selector": {"matchLabels": {"stage": "production"}}}, "takes no jobs of namespace team"),
        ({"cluster_queues": frozenset({"other"})}, "takes no jobs of ClusterQueue"),
        ({"max_room": {"cpu": 0}}, "more cpu of its maxRoom"),
    ],
    ids=["another namespace", "another queue", "no room under its cap"],
)
def test_a_cluster_gets_only_the_jobs_that_it_takes(rules: dict[str, Any], why: str) -> None:
    closed = Cluster(name="east", accepted=True, cordoned=False, connected=True, **rules)
    at = Places(
        clusters=frozenset({"east"}),
        fleet=Fleet([closed], {}, {}),
        strategy=Strategy.SPREAD,
        namespace_labels={"stage": "test"},
    )
    [(_, state, message), _] = in_words(reconcile(kueues_job(suspended=True), kueues_workload(cluster=None), at=at))
    assert state == "Pending"
    assert why in message


def test_before_its_admission_a_first_slice_is_dispatched_with_nothing_to_run() -> None:
    commands = reconcile(kueues_job(suspended=True), kueues_workload())
    assert in_words(commands) == [("w1", "version 1 is held"), ("workload-spec to east", 1)]
    assert granted(commands) == [{"main": 0}]


def test_before_its_admission_a_replacement_runs_what_the_one_before_it_ran() -> None:
    old = kueues_workload("w1", 2, dispatched=1, applied=1, admitted=True, state="Ready")
    old["status"]["conditions"].append(condition("Finished", reason="WorkloadSliceReplaced"))
    commands = reconcile(kueues_job(5), old, kueues_workload("w2", 5, replaces="w1"))
    assert granted(commands) == [{"main": 2}]
    assert ("relabel to east", 2) in in_words(commands)


def test_a_suspended_job_runs_nothing_whatever_ran_before() -> None:
    old = kueues_workload("w1", 2, dispatched=1, applied=1, admitted=True, state="Ready")
    old["status"]["conditions"].append(condition("Finished", reason="WorkloadSliceReplaced"))
    assert granted(reconcile(kueues_job(5, suspended=True), old, kueues_workload("w2", 5, replaces="w1"))) == [
        {"main": 0}
    ]


APPLIED = {"dispatched": 1, "applied": 1}
HASH_OF_NOTHING = spec_hash(ClusterName("east"), "w1", {"main": 0}, {"main": 1})
ANSWERS: dict[str, tuple[Manifest, list[tuple[Any, ...]]]] = {
    "not applied yet": ({"dispatched": 1}, [("requeue", 2.0)]),
    "it has said something else": (
        {"dispatched": 1, "message": "Waits for a worker cluster"},
        [("check", "Pending", "Waits for worker cluster east to apply it")],
    ),
    "applied": (APPLIED, [("check", "Ready", "Worker cluster east holds it")]),
    "refused": (
        {"dispatched": 1, "conditions": (condition("slicebus.dev/Dispatched", False, message="east: no"),)},
        [("check", "Pending", "east: no")],
    ),
    "ready stays ready": (APPLIED | {"state": "Ready"}, []),
    "rejected": (APPLIED | {"state": "Rejected"}, []),
    "to be retried": (APPLIED | {"state": "Retry"}, []),
}


@pytest.mark.parametrize(("state", "expected"), ANSWERS.values(), ids=ANSWERS.keys())
def test_the_check_follows_the_worker(state: Manifest, expected: list[tuple[Any, ...]]) -> None:
    workload = kueues_workload(**state | {"hash": HASH_OF_NOTHING})
    assert in_words(reconcile(kueues_job(suspended=True), workload, published=1)) == expected


def test_a_check_that_waits_for_long_says_for_what() -> None:
    workload = kueues_workload(dispatched=1, hash=HASH_OF_NOTHING)
    workload["status"]["admissionChecks"][0]["lastTransitionTime"] = "2026-01-01T11:59:58Z"
    done = in_words(reconcile(kueues_job(suspended=True), workload, published=1))
    assert done == [("check", "Pending", "Waits for worker cluster east to apply it")]


def take_applied(workload: Manifest, *, version: int = 1, **changes: Any) -> list[Command]:
    view = a_view(kueues_job(suspended=True), workload, checks=frozenset({"slicebus"}), **changes)
    report = Applied(job=REF, workload="w1", spec_version=version)
    return kueue_messages.with_applied(view, message_handlers.applied(view, report, an_envelope()), now=NOW)


def test_what_the_worker_has_applied_and_the_answer_of_the_check_are_one_write() -> None:
    workload = kueues_workload(dispatched=1, hash=HASH_OF_NOTHING)
    [patch] = take_applied(workload)
    assert isinstance(patch, Patch)
    assert patch.subresource == "status"
    assert in_words([patch]) == [("check", "Ready", "Worker cluster east holds it")]
    written = merge_patch(workload, patch.body)
    assert applied_version(written) == 1
    assert reconcile(kueues_job(suspended=True), written) == []
    assert take_applied(written) == []


NOT_READY: dict[str, Manifest] = {
    "a newer order is under way": {"dispatched": 2},
    "the check is ready": {"dispatched": 1, "state": "Ready"},
    "its queue has no check of ours any more": {"dispatched": 1, "checks": ("other",)},
}


@pytest.mark.parametrize("how", NOT_READY.values(), ids=NOT_READY.keys())
def test_otherwise_only_the_version_is_written(how: dict[str, Any]) -> None:
    done = in_words(take_applied(kueues_workload(hash=HASH_OF_NOTHING, **how)))
    assert done == [("w1", (api_names.APPLIED_ANNOTATION, "1"))]


def test_a_slice_runs_when_kueue_has_admitted_it_after_the_job_shows_that_it_runs() -> None:
    workload = kueues_workload(dispatched=1, applied=1, hash=HASH_OF_NOTHING, state="Ready", admitted=True)
    job = kueues_job()
    job["status"] = {"conditions": [SUSPENDED]}
    commands = reconcile(job, workload)
    shown = ("status", {"active": 1, "conditions": None})
    assert in_words(commands) == [shown, ("w1", "version 2 is held"), ("workload-spec to east", 2)]
    assert granted(commands) == [{"main": 1}]


def asking(counts: dict[str, int], **how: Any) -> dict[str, str]:
    return {api_names.REQUESTED_ANNOTATION: requested(counts, **how).to_annotation()}


WRITTEN = {api_names.SPEC_COUNTS_ANNOTATION: SpecCounts(written={"main": 5}, own={"main": 1}).to_annotation()}


def test_the_workers_request_is_written_into_the_jobs_spec() -> None:
    running = kueues_workload(dispatched=1, applied=1, state="Ready", admitted=True)
    first = reconcile(kueues_job(1, annotations=asking({"main": 5})), running)[-1]
    assert isinstance(first, Patch)
    assert first.body["spec"] == {"parallelism": 5}  # type: ignore[call-overload]
    assert SpecCounts.from_job(first.body) == SpecCounts(written={"main": 5}, own={"main": 1})  # type: ignore[arg-type]


def ask(job: Manifest, *workloads: Manifest, **wanted: int) -> list[Command]:
    """What follows for a worker's first request."""
    view = a_view(job, *workloads, checks=frozenset({"slicebus"}))
    request = ScaleRequest(
        job=REF, wanted=wanted, granted={"main": 1}, worker_uid="uid-copy", worker_generation=2, workload="w1"
    )
    return kueue_messages.with_request(
        view, message_handlers.scale_request(view, request, an_envelope()), places("east"), now=NOW
    )


def test_a_request_is_noted_where_no_user_writes_before_the_counts_in_the_spec() -> None:
    job, workload = kueues_job(), kueues_workload(dispatched=1, applied=1, state="Ready", admitted=True)
    noted, patch = ask(job, workload, main=5)
    assert isinstance(noted, Patch)
    assert isinstance(patch, Patch)
    assert (noted.target["metadata"]["name"], patch.target) == ("w1", job)
    written = merge_patch(job, patch.body)
    assert written["spec"]["parallelism"] == 5
    assert SpecCounts.from_job(written) == SpecCounts(written={"main": 5}, own={"main": 1})
    record = SizeRequest.from_manifest(merge_patch(workload, noted.body))
    assert record is not None
    assert record.counts == {"main": 5}


def test_a_request_of_a_slice_that_kueue_is_to_evict_is_only_noted() -> None:
    leaving = kueues_workload(dispatched=1, applied=1, state="Retry", admitted=True)
    [patch] = ask(kueues_job(), leaving, main=5)
    assert isinstance(patch, Patch)
    assert isinstance(patch.body, dict)
    assert patch.body.keys() == {"metadata"}


def test_the_worker_is_given_the_counts_of_the_jobs_user() -> None:
    annotations = asking({"main": 5}) | WRITTEN | {api_names.IN_TREE_AUTOSCALING_ANNOTATION: "true"}
    commands = reconcile(kueues_job(5, annotations=annotations), kueues_workload("w1", 5, state="Ready", admitted=True))
    [spec] = [c.message for c in commands if isinstance(c, Publish) and isinstance(c.message, WorkloadSpec)]
    assert spec.manifest["spec"]["parallelism"] == 1


def test_an_edit_of_the_managers_spec_is_newer_than_what_was_written_there() -> None:
    job = kueues_job(4, annotations=asking({"main": 5}) | WRITTEN)
    commands = reconcile(job, kueues_workload("w1", 4, state="Ready", admitted=True))
    assert not [words for words in in_words(commands) if words[0] == "spec"]


def test_a_request_for_other_pod_sets_writes_no_counts() -> None:
    job, running = kueues_job(annotations=asking({"main": 1, "more": 2})), kueues_workload(admitted=True, state="Ready")
    assert not [words for words in in_words(reconcile(job, running)) if words[0] == "spec"]


def test_an_eviction_suspends_on_the_worker_then_resets_the_counts_then_gives_the_quota_back() -> None:
    grown = asking({"main": 5}) | WRITTEN
    job = kueues_job(5, annotations=grown, suspended=True)
    job["status"]["active"] = 5
    workload = evicted(kueues_workload("w1", 5, dispatched=1, applied=1, state="Pending", admitted=True))
    [write, _, publish] = reconcile(job, workload)
    assert isinstance(write, Patch)
    record = Dispatch.from_manifest(write.body)  # type: ignore[arg-type]
    assert record is not None
    assert (record.version, record.suspended, short(publish)) == (2, True, ("suspend to east", 2))

    rest = {api_names.DISPATCHED_ANNOTATION: record.to_annotation(), api_names.APPLIED_ANNOTATION: "2"}
    workload["metadata"]["annotations"] |= rest
    patch, forgets, *_ = reconcile(job, workload, published=2)
    assert isinstance(patch, Patch)
    assert isinstance(forgets, Patch)
    assert patch.body["spec"] == {"parallelism": 1}  # type: ignore[call-overload]
    assert SpecCounts.from_job(merge_patch(job, patch.body)) is None
    forgotten = SizeRequest.from_manifest(forgets.body)  # type: ignore[arg-type]
    assert forgotten is not None
    assert not forgotten.asks_for_size

    reset = kueues_job(1, suspended=True)
    reset["status"]["active"] = 5
    assert in_words(reconcile(reset, workload, published=2)) == [("w1", (api_names.CLUSTER_ANNOTATION, ""))]
    workload["metadata"]["annotations"][api_names.CLUSTER_ANNOTATION] = ""
    assert in_words(reconcile(reset, workload, published=2)) == [("status", {"active": None})]
    reset["status"].pop("active")
    assert reconcile(reset, workload, published=2) == []


def timed_out(*, cluster: str = "east", avoided: str = "") -> Manifest:
    """A slice that Kueue has evicted because its pods were not ready in time."""
    workload = kueues_workload(dispatched=2, applied=2, state="Pending", admitted=True, cluster=cluster)
    record = Dispatch(2, "nothing runs", cluster="east", suspended=True)
    workload["metadata"]["annotations"][api_names.DISPATCHED_ANNOTATION] = record.to_annotation()
    if avoided:
        workload["metadata"]["annotations"][api_names.AVOIDED_CLUSTERS_ANNOTATION] = avoided
    return workload


def test_a_job_that_kueue_evicted_as_its_pods_were_not_ready_goes_elsewhere() -> None:
    job = kueues_job(suspended=True)
    workload = timed_out()
    workload["status"]["conditions"].append(condition("Evicted", reason="PodsReadyTimeout"))
    [patch] = reconcile(job, workload, published=2)
    assert isinstance(patch, Patch)
    assert isinstance(patch.body, dict)
    workload = timed_out(
        cluster="", avoided=patch.body["metadata"]["annotations"][api_names.AVOIDED_CLUSTERS_ANNOTATION]
    )
    for at, chosen in ((places("east", "west"), "west"), (places("east"), "east")):
        assert placed(reconcile(job, workload, at=at, published=2)) == chosen


def test_when_its_pods_are_ready_it_avoids_no_cluster() -> None:
    workload = kueues_workload(dispatched=2, applied=2, admitted=True, state="Ready")
    workload["metadata"]["annotations"][api_names.AVOIDED_CLUSTERS_ANNOTATION] = (
        '{"west":{"times":1,"until":"2026-01-31T12:01:00Z"}}'
    )
    workload["status"]["conditions"].append(condition("PodsReady"))
    assert in_words(reconcile(kueues_job(), workload, published=2)) == [
        ("w1", (api_names.AVOIDED_CLUSTERS_ANNOTATION, None))
    ]


RESUMED: dict[str, tuple[Places, str]] = {
    "where it is": (places("north", "east"), "east"),
    "elsewhere, where that takes no jobs": (places("north"), "north"),
}


@pytest.mark.parametrize(("at", "cluster"), RESUMED.values(), ids=RESUMED.keys())
def test_a_job_that_has_quota_again_goes_on(at: Places, cluster: str) -> None:
    record = Dispatch(2, "nothing runs", cluster="east", suspended=True)
    workload = kueues_workload(cluster="", replaces="w0")
    workload["metadata"]["annotations"][api_names.DISPATCHED_ANNOTATION] = record.to_annotation()
    assert placed(reconcile(kueues_job(suspended=True), workload, at=at)) == cluster


def test_a_replacement_is_neither_retried_nor_rejected() -> None:
    """The one before it has ended: either would stop the job."""
    old = kueues_workload("w1", dispatched=1, applied=1, admitted=True, state="Ready", cluster="lost")
    old["status"]["conditions"].append(condition("Finished", reason="WorkloadSliceReplaced"))
    new = kueues_workload("w2", 3, replaces="w1", cluster="lost")
    job = kueues_job(3, annotations={kueue.MIN_PARALLELISM_ANNOTATION: "1"})
    done = in_words(reconcile(job, old, new))
    assert done[:2] == [("w2", "version 2 is held"), ("workload-spec to lost", 2)]
    assert not [words for words in done if words[1:2] in (("Retry",), ("Rejected",))]


def test_a_first_slice_whose_cluster_has_left_the_fleet_is_retried() -> None:
    commands = reconcile(kueues_job(), kueues_workload(dispatched=1, cluster="lost", state="Ready"), in_fleet=False)
    assert in_words(commands) == [("check", "Retry", "Worker cluster lost is no longer in the fleet")]


def started(name: str = "w1", **how: Any) -> Manifest:
    return kueues_workload(name, **({"state": "Ready", "admitted": True, "dispatched": 1, "applied": 1} | how))


EVICTABLE: dict[str, tuple[Manifest, bool]] = {
    "a first slice before it starts": (kueues_workload(), True),
    "a job that runs": (started(), True),
    "a job that has grown": (started(replaces="w0"), True),
    "a replacement that is not applied yet": (started(replaces="w0", state="Pending", admitted=False), False),
    "a replacement that other checks hold": (started(replaces="w0", admitted=False), False),
    "one that is asked for already": (started(state="Retry"), False),
    "one that is rejected": (kueues_workload(state="Rejected"), False),
    "one of a queue without our check": (started(checks=("other",)), False),
}


@pytest.mark.parametrize(("workload", "is_asked"), EVICTABLE.values(), ids=EVICTABLE.keys())
def test_kueue_is_asked_to_evict_what_leaves_its_cluster_once_all_of_it_is_one_slice(
    workload: Manifest, is_asked: bool
) -> None:
    view = a_view(kueues_job(), workload, checks=frozenset({"slicebus"}))
    evict = Evict(key=view.slices[0].key, reason=EvictionReason.CLUSTER_DRAINED, message="The cluster east is drained")
    expected = [("check", "Retry", "The cluster east is drained")] if is_asked else []
    assert in_words(beside_kueue.ask_to_evict(view, view.slices[0], evict, now=NOW)) == expected


def test_a_grown_job_whose_cluster_has_left_the_fleet_is_retried_as_a_whole() -> None:
    commands = reconcile(kueues_job(), started(replaces="w0", cluster="lost"), in_fleet=False)
    assert in_words(commands) == [("check", "Retry", "Worker cluster lost is no longer in the fleet")]


class TestLost:
    """The cluster is given up: the job leaves it without its report."""

    def test_what_is_evicted_counts_as_gone_and_then_the_job_is_not_active(self) -> None:
        workload, job = evicted(started()), kueues_job(suspended=True)
        [abandoned] = reconcile(job, workload, given_up=True)
        assert isinstance(abandoned, Patch)
        workload = merge_patch(workload, abandoned.body)
        record = Dispatch.from_manifest(workload)
        assert record is not None
        assert (record.hash, record.left_copies) == (api_names.ABSENT, {"east": 2})
        [nowhere] = reconcile(job, workload, given_up=True, left_copies=record.left_copies, recalled=record.left_copies)
        assert isinstance(nowhere, Patch)
        assert nowhere.body == {"metadata": {"annotations": {api_names.CLUSTER_ANNOTATION: ""}}}

    def test_its_copy_is_recalled(self) -> None:
        done = in_words(reconcile(kueues_job(), started(cluster="west"), left_copies={"east": 2}))
        assert done[0] == ("delete to east", 2)

    @pytest.mark.parametrize("left_copies", [{"east": 2}, {}], ids=["has a copy", "has none any more"])
    def test_a_deleted_job_keeps_its_dispatch_until_the_cluster_has_no_copy(self, left_copies: dict[str, int]) -> None:
        record = Dispatch(
            2, api_names.ABSENT, cluster="east", previous_cluster="east", left_copies={"east": 2}
        ).to_annotation()
        workload = evicted(kueues_workload(applied=2, cluster=""))
        workload["metadata"]["annotations"][api_names.DISPATCHED_ANNOTATION] = record
        done = in_words(reconcile(None, workload, left_copies=left_copies, recalled=left_copies))
        assert (("w1", "release", "kueue.x-k8s.io/resource-in-use") in done) is not bool(left_copies)


def test_once_evicted_it_goes_elsewhere_and_is_retried_no_more() -> None:
    record = Dispatch(1, "what it held", cluster="lost").to_annotation()
    workload = kueues_workload(cluster="", state="Pending")
    workload["metadata"]["annotations"][api_names.DISPATCHED_ANNOTATION] = record
    assert in_words(reconcile(kueues_job(suspended=True), workload, in_fleet=False))[0][:2] == (
        "w1",
        (api_names.CLUSTER_ANNOTATION, "east"),
    )
    workload["metadata"]["annotations"][api_names.CLUSTER_ANNOTATION] = "east"
    done = in_words(reconcile(kueues_job(suspended=True), workload, in_fleet=False))
    assert done == [("w1", "version 2 is held"), ("workload-spec to east", 2)]


def test_what_is_on_its_way_off_the_worker_is_not_ready() -> None:
    workload = kueues_workload(dispatched=2, applied=2, hash=api_names.ABSENT, cluster="west")
    commands = reconcile(kueues_job(suspended=True), workload)
    assert not [words for words in in_words(commands) if words[0] == "check"]
    going = kueues_workload(dispatched=2, applied=1, hash=api_names.ABSENT)
    assert in_words(reconcile(kueues_job(suspended=True), going, published=2)) == [("requeue", 2.0)]


REJECTED: dict[str, tuple[Manifest, str]] = {
    "it is not for workers": (a_job(managed=False), "it has no label"),
    "it is only asked about": (kueues_job(annotations={api_names.DRY_RUN_ANNOTATION: "true"}), "slicebus.dev/dry-run"),
    "it cannot run": (kueues_job(annotations={kueue.MIN_PARALLELISM_ANNOTATION: "1"}), "partial admission"),
    "its selector is none": (
        kueues_job(annotations={api_names.CLUSTER_SELECTOR_ANNOTATION: "a=b=c"}),
        "no label selector",
    ),
}


@pytest.mark.parametrize(("job", "why"), REJECTED.values(), ids=REJECTED.keys())
def test_a_job_that_cannot_run_is_rejected_with_its_first_slice(job: Manifest, why: str) -> None:
    state, *rest = in_words(reconcile(job, kueues_workload(cluster=None)))
    assert state[:2] == ("check", "Rejected")
    assert why in state[2]
    assert all(words[0] == "warn Job" for words in rest)


def test_a_workload_whose_queue_has_no_check_of_ours_is_left_alone() -> None:
    assert reconcile(kueues_job(), kueues_workload(checks=("other",), cluster=None, admitted=True)) == []


ENDED: dict[str, Manifest | None] = {"the job is deleted": None, "the job has ended": kueues_job(over="Complete")}


@pytest.mark.parametrize("job", ENDED.values(), ids=ENDED.keys())
def test_at_the_end_the_worker_lets_go_before_the_workload_does(job: Manifest | None) -> None:
    workload = kueues_workload(dispatched=1, applied=1, state="Ready", admitted=True)
    assert in_words(reconcile(job, workload)) == [("w1", "version 2 is absent"), ("delete to east", 2)]
    gone = kueues_workload(dispatched=2, applied=2, hash=api_names.ABSENT, state="Ready", admitted=True)
    assert in_words(reconcile(job, gone))[-1] == ("w1", "release", "kueue.x-k8s.io/resource-in-use")


def test_a_replaced_slice_is_let_go_when_the_next_one_is_dispatched() -> None:
    old = kueues_workload("w1", dispatched=1, applied=1, admitted=True, state="Ready")
    old["status"]["conditions"].append(condition("Finished", reason="WorkloadSliceReplaced"))
    new = kueues_workload("w2", 3, replaces="w1")
    assert ("w1", "release", "kueue.x-k8s.io/resource-in-use") not in in_words(reconcile(kueues_job(3), old, new))
    new = kueues_workload("w2", 3, replaces="w1", dispatched=2)
    assert ("w1", "release", "kueue.x-k8s.io/resource-in-use") in in_words(reconcile(kueues_job(3), old, new))


def report(phase: JobPhase = JobPhase.RUNNING, *, version: int = 1, **status: Any) -> Status:
    return Status(job=REF, workload="w1", spec_version=version, phase=phase, job_status=status)


STATUSES: dict[str, tuple[Manifest, Status | None, Manifest]] = {
    "the worker's": (kueues_job(), report(active=3, ready=2), {"active": 3, "ready": 2}),
    "active before there is a pod": (kueues_job(active=0), report(), {"active": 1}),
    "not while it is suspended": (kueues_job(suspended=True), report(active=1, startTime=NOW), {}),
    "an end": (kueues_job(), report(JobPhase.SUCCEEDED, succeeded=1), {"active": None, "succeeded": 1}),
    "not of a run before this one": (kueues_job(), report(version=0, active=7), {}),
}


@pytest.mark.parametrize(("job", "reported", "changed"), STATUSES.values(), ids=STATUSES.keys())
def test_what_the_managers_job_shows(job: Manifest, reported: Status | None, changed: Manifest) -> None:
    workload = kueues_workload(dispatched=1, applied=1, admitted=True)
    record = Dispatch.from_manifest(workload)
    assert record is not None
    since = msgspec.structs.replace(record, since=1).to_annotation()
    workload["metadata"]["annotations"][api_names.DISPATCHED_ANNOTATION] = since
    commands = kueue_status.mirror(a_view(job, workload, reported=reported), now=NOW, may_have_pods=False)
    assert [command.body for command in commands if isinstance(command, Patch)] == [{"status": changed}] * bool(changed)


def test_a_report_does_not_end_the_activity_of_an_evicted_job() -> None:
    """Kueue would give the quota anew before the place and the counts of the eviction are written."""
    workload = evicted(kueues_workload(dispatched=1, applied=1))
    view = a_view(kueues_job(suspended=True), workload)
    assert kueue_status.take(view, report(), NOW) == []
    assert kueue_status.take(view, report(JobPhase.SUCCEEDED, succeeded=1), NOW)


def test_a_status_changes_nothing_that_is_shown_already() -> None:
    job = kueues_job()
    [patch] = kueue_status.take(a_view(job, kueues_workload(dispatched=1)), report(active=2), NOW)
    assert isinstance(patch, Patch)
    assert isinstance(patch.body, dict)
    job["status"] |= patch.body["status"]
    assert merge_difference(job["status"], {"active": 2}) == {}
    assert kueue_status.take(a_view(job, kueues_workload(dispatched=1)), report(active=2), NOW) == []


@pytest.mark.parametrize(
    ("tried_at", "waits"), [(None, False), ("2026-01-31T11:59:50Z", True), ("2026-01-31T11:59:20Z", False)]
)
def test_a_copy_stays_while_the_end_of_its_job_is_being_written(tried_at: str | None, waits: bool) -> None:
    """Somebody deletes the job's Workload, and the API server answers no write of the job's status."""
    running = kueues_workload(state="Ready", admitted=True, dispatched=1, applied=1, deleting=True)
    commands = reconcile(kueues_job(), running, end_tried_at=tried_at)
    assert (commands == [Requeue(job=REF, delay_s=1.0)]) is waits
    assert any(isinstance(command, Publish) for command in commands) is not waits


def test_a_job_that_kueue_suspends_is_none_of_its_user_when_our_check_is_deleted() -> None:
    store = ManagerStore()
    store.configure(LeaderSettings(admission=AdmissionModeName.KUEUE))
    metadata = {"name": "slicebus", "uid": "uid-check", "resourceVersion": "1"}
    check = {"metadata": metadata, "spec": {"controllerName": api_names.CHECK_CONTROLLER}}
    store.admission_checks.put(check)
    store.jobs["Job"].put(kueues_job(suspended=True))
    store.workloads.put(kueues_workload())
    assert waiting.reason_for(store.view(REF)) is None
    store.admission_checks.remove(check)
    assert waiting.reason_for(store.view(REF)) is None


UNMANAGED: dict[str, Manifest] = {
    "it is only asked about": {"annotations": {api_names.DRY_RUN_ANNOTATION: "true"}},
    "it is of no queue": {"labels": {}},
    "it is not elastic": {"annotations": {kueue.ELASTIC_ANNOTATION: "false"}},
}


def edited(job: Manifest, change: Manifest) -> Manifest:
    """A job whose user has edited its metadata, so that slicebus would not take it."""
    metadata = job["metadata"]
    annotations = metadata["annotations"] | change.get("annotations", {})
    return job | {
        "metadata": metadata | {"annotations": annotations, "labels": change.get("labels", metadata["labels"])}
    }


@pytest.mark.parametrize("change", UNMANAGED.values(), ids=UNMANAGED.keys())
class TestAJobThatIsEditedWhereItRuns:
    """Whoever may edit the job keeps no quota by it, and loses no end."""

    def test_it_leaves_its_worker_when_kueue_evicts_it(self, change: Manifest) -> None:
        job = edited(kueues_job(suspended=True), change)
        commands = reconcile(job, evicted(started()))
        assert ("suspend to east", 2) in in_words(commands)

    def test_its_copy_goes_when_it_ends(self, change: Manifest) -> None:
        commands = reconcile(edited(kueues_job(over="Complete"), change), started())
        assert in_words(commands) == [("w1", "version 2 is absent"), ("delete to east", 2)]

    def test_it_runs_on(self, change: Manifest) -> None:
        commands = reconcile(edited(kueues_job(), change), started(hash=HASH_OF_NOTHING))
        assert granted(commands) == [{"main": 1}]

    def test_it_does_not_start_again(self, change: Manifest) -> None:
        record = Dispatch(2, "nothing runs", cluster="east", suspended=True)
        workload = kueues_workload(cluster="", dispatched=2, applied=2)
        workload["metadata"]["annotations"][api_names.DISPATCHED_ANNOTATION] = record.to_annotation()
        [(check, state, _), *_] = in_words(reconcile(edited(kueues_job(suspended=True), change), workload, published=2))
        assert (check, state) == ("check", "Rejected")

    def test_it_says_that_it_runs_on_until_the_edit_is_undone(self, change: Manifest) -> None:
        mode, job = BesideKueue(), edited(kueues_job(), change)
        view = a_view(job, started(), checks=frozenset({"slicebus"}))
        patch, event = mode.show_unmanaged(view, job, now=NOW)
        assert isinstance(patch, Patch)
        assert isinstance(event, Emit)
        assert "runs on: it has" in event.note
        shown = merge_patch(job, patch.body)
        assert mode.show_unmanaged(view, shown, now=NOW) == []
        undone = kueues_job(annotations={api_names.UNHEEDED_ANNOTATION: event.note})
        [cleared] = mode.show_unmanaged(a_view(undone, started(), checks=frozenset()), undone, now=NOW)
        assert isinstance(cleared, Patch)
        assert cleared.body == {"metadata": {"annotations": {api_names.UNHEEDED_ANNOTATION: None}}}


class TestSuspendedWithQuota:
    """Its user suspends it, or the job's change is seen before that of its evicted Workload.

    Kueue gives the quota of an evicted job back once it shows that it is not active.
    """

    JOB = kueues_job(suspended=True) | {"status": {"conditions": [SUSPENDED], "active": 3}}
    RUNS = started(hash=spec_hash(ClusterName("east"), "w1", {"main": 1}, {"main": 1}))

    @pytest.mark.parametrize("admitted", [True, False], ids=["admitted", "not admitted any more"])
    def test_it_shows_that_it_is_active_while_its_worker_has_pods_of_it(self, admitted: bool) -> None:
        runs = started(hash=spec_hash(ClusterName("east"), "w1", {"main": 1}, {"main": 1}), admitted=admitted)
        assert in_words(reconcile(self.JOB, runs)) == [("w1", "version 2 is held"), ("suspend to east", 2)]

    def test_no_report_takes_that_off(self) -> None:
        view = a_view(self.JOB, self.RUNS, checks=frozenset({"slicebus"}))
        assert kueue_status.take(view, report(active=3), NOW) == []
        assert kueue_status.take(view, report(JobPhase.SUCCEEDED, succeeded=1), NOW)

    def test_it_is_not_active_when_no_pod_is_left_and_starts_where_it_was(self) -> None:
        record = Dispatch(2, spec_hash(ClusterName("east"), "w1", {}, None), cluster="east", suspended=True)
        stopped = started(dispatched=2, applied=2, cluster="")
        stopped["metadata"]["annotations"][api_names.DISPATCHED_ANNOTATION] = record.to_annotation()
        assert in_words(reconcile(self.JOB, stopped, published=2)) == [("status", {"active": None})]
        job = self.JOB | {"status": {"conditions": [SUSPENDED]}}
        commands = reconcile(job, stopped, published=2)
        assert placed(commands) == "east"
        assert granted(commands) == [{"main": 0}]

    def test_its_worker_is_told_why(self) -> None:
        [message] = [c.message for c in reconcile(self.JOB, self.RUNS) if isinstance(c, Publish)]
        assert isinstance(message, Suspend)
        assert (message.reason, message.message) == ("Suspended", "The manager's job is suspended")

    @pytest.mark.parametrize("kind", ["Job", "RayCluster", "RayJob", "RayService"])
    def test_of_every_kind_it_stops_once(self, kind: str) -> None:
        job = merge_patch({"kind": kind, "spec": {}}, suspension(kind, True))
        runs = KINDS[kind].running_status({"serviceStatus": "Running"} if kind == "RayService" else {})
        assert kueue_status.is_stopping(job | {"status": runs})
        left = KINDS[kind].suspended_status({}, active=False, now=NOW)
        assert not kueue_status.is_stopping(job | {"status": left})


def states(commands: list[Command]) -> list[dict[str, str]]:
    """The states of all checks, by name, as each command writes them."""
    bodies = [c.body for c in commands if isinstance(c, Patch) and isinstance(c.body, dict)]
    lists = [body["status"]["admissionChecks"] for body in bodies if "admissionChecks" in body.get("status", {})]
    return [{check["name"]: check["state"] for check in checks} for checks in lists]


class TestSeveralChecksOfOurs:
    """A ClusterQueue may name one for each of its flavors."""

    OURS = frozenset({"slicebus", "for-spot"})

    def holding(self, *given: str) -> Manifest:
        workload = started(admitted=False, hash=HASH_OF_NOTHING, checks=("slicebus", "other", "for-spot"))
        for check, state in zip(workload["status"]["admissionChecks"], given, strict=True):
            check["state"] = state
        return workload

    @pytest.mark.parametrize("given", [("Pending", "Pending", "Pending"), ("Ready", "Pending", "Pending")])
    def test_all_are_answered_and_no_other_one_is(self, given: tuple[str, ...]) -> None:
        commands = reconcile(kueues_job(suspended=True), self.holding(*given), checks=self.OURS)
        assert states(commands) == [{"slicebus": "Ready", "other": "Pending", "for-spot": "Ready"}]

    def test_when_all_are_ready_nothing_is_written(self) -> None:
        assert reconcile(kueues_job(suspended=True), self.holding("Ready", "Pending", "Ready"), checks=self.OURS) == []

    @pytest.mark.parametrize("asked", ["Retry", "Rejected"])
    def test_one_that_stops_the_job_is_waited_for(self, asked: str) -> None:
        workload = self.holding("Ready", "Pending", asked)
        assert reconcile(kueues_job(suspended=True), workload, checks=self.OURS) == []


class TestARequestIsWrittenLast:
    """The job's spec is its user's: a policy or a webhook may refuse the worker's counts for as long as it likes."""

    JOB = kueues_job(annotations=asking({"main": 5}))
    ADMITTED = started(hash=HASH_OF_NOTHING)

    def test_what_was_admitted_is_ordered_before(self) -> None:
        words = in_words(reconcile(self.JOB, self.ADMITTED))
        assert words == [
            ("w1", "version 2 is held"),
            ("workload-spec to east", 2),
            ("spec", {"parallelism": 5}),
        ]

    def test_a_status_that_the_server_does_not_keep_holds_no_request_up(self) -> None:
        """Its definition may be older than the worker's."""
        reported = Status(job=REF, workload="w1", spec_version=1, phase=JobPhase.RUNNING, job_status={"newer": 1})
        words = in_words(reconcile(self.JOB, self.ADMITTED, reported=reported))
        assert ("spec", {"parallelism": 5}) in words

    def test_that_the_job_runs_comes_before(self) -> None:
        job = self.JOB | {"status": {}}
        words = in_words(reconcile(job, self.ADMITTED))
        assert words == [("status", {"active": 1}), ("w1", "version 2 is held"), ("workload-spec to east", 2)]

    def test_while_it_is_refused_it_is_tried_with_the_message(self) -> None:
        refused = Waits(wanted={"main": 5}, reason=waiting.REQUEST_REFUSED, message="no", since=NOW)
        words = in_words(reconcile(self.JOB, self.ADMITTED, refused_request=refused))
        assert words == [("w1", "version 2 is held"), ("workload-spec to east", 2)]


class TestAKueueWithoutElasticJobs:
    """An older one, or its gate is off: it would stop a job that runs, and delete its Workload, at each resize."""

    @pytest.mark.parametrize("cluster", [None, "east"], ids=["first seen", "dispatched"])
    def test_a_slice_that_cannot_be_replaced_is_rejected(self, cluster: str | None) -> None:
        workload = kueues_workload(cluster=cluster)
        del workload["metadata"]["annotations"][kueue.ELASTIC_ANNOTATION]
        (check, state, message), *rest = in_words(reconcile(kueues_job(suspended=True), workload))
        assert (check, state) == ("check", "Rejected")
        assert "ElasticJobsViaWorkloadSlices" in message
        assert rest == [("warn Job", "NotElastic")]

    def test_one_that_runs_keeps_its_size(self) -> None:
        workload = started(hash=spec_hash(ClusterName("east"), "w1", {"main": 1}, {"main": 1}))
        del workload["metadata"]["annotations"][kueue.ELASTIC_ANNOTATION]
        commands = reconcile(kueues_job(annotations=asking({"main": 5})), workload)
        assert not [words for words in in_words(commands) if words[0] == "spec"]
        view = a_view(kueues_job(annotations=asking({"main": 5})), workload, checks=frozenset({"slicebus"}))
        wait = waiting.reason_for(view)
        assert wait is not None
        assert (wait.shown.reason, wait.shown.wanted) == (FIXED_SIZE, {"main": 5})


def test_counts_that_were_not_restored_are_tried_again_after_the_next_run() -> None:
    refused = Waits(wanted={"main": 1}, reason=waiting.COUNTS_NOT_RESTORED, message="no", since=NOW)
    running = started(hash=spec_hash(ClusterName("east"), "w1", {"main": 1}, {"main": 1}))
    commands = reconcile(kueues_job(), running, refused_request=refused)
    assert [one.key for one in commands if isinstance(one, Forget)] == [REF]
