"""What a Kueue beside the manager reads of a job: the counts in its spec, and whether its status says it is active."""

from typing import Any

import pytest

from slicebus.slices.jobs import KINDS
from unit.slices.jobs.manifests import a_cluster, a_group, a_job, a_rayjob

Manifest = dict[str, Any]
NOW, LATER = "2026-01-31T12:00:00Z", "2026-01-31T13:00:00Z"
JOB, RAY, RAYJOB = KINDS["Job"], KINDS["RayCluster"], KINDS["RayJob"]


def test_counts_are_written_where_kueue_reads_them() -> None:
    job = a_job(completions=9)
    assert JOB.with_counts(job, {"main": 5})["spec"] == job["spec"] | {"parallelism": 5}
    cluster = a_cluster(a_group(replicas=1, numOfHosts=2), a_group("big", replicas=3))
    resized = RAY.with_counts(cluster, {"head": 1, "small": 6})
    assert [group["replicas"] for group in resized["spec"]["workerGroupSpecs"]] == [3, 3]
    nested = RAYJOB.with_counts(a_rayjob(), {"small": 4})
    assert nested["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["replicas"] == 4


def test_an_indexed_job_keeps_as_many_completions_as_it_has_pods() -> None:
    job = a_job(completionMode="Indexed", parallelism=3, completions=3)
    assert JOB.with_counts(job, {"main": 5})["spec"]["completions"] == 5
    other = a_job(completionMode="Indexed", parallelism=3, completions=9)
    assert JOB.with_counts(other, {"main": 5})["spec"]["completions"] == 9


def test_the_autoscaler_is_on_where_there_is_one() -> None:
    assert JOB.autoscaled(a_job()) == a_job()
    off = a_cluster(enableInTreeAutoscaling=False)
    assert RAY.autoscaled(off)["spec"]["enableInTreeAutoscaling"] is True
    assert RAYJOB.autoscaled(a_rayjob())["spec"]["rayClusterSpec"]["enableInTreeAutoscaling"] is True


RUNNING: dict[str, tuple[str, Manifest, Manifest]] = {
    "a Job before its first pod": ("Job", {}, {"active": 1}),
    "a Job with pods": ("Job", {"active": 4, "ready": 4}, {"active": 4, "ready": 4}),
    "a RayCluster that starts": ("RayCluster", {"reason": "r"}, {"reason": "r", "state": "ready"}),
    "a RayJob that starts": ("RayJob", {}, {"jobDeploymentStatus": "Initializing"}),
    "a RayJob": ("RayJob", {"jobDeploymentStatus": "Running"}, {"jobDeploymentStatus": "Running"}),
}


@pytest.mark.parametrize(("kind", "reported", "expected"), RUNNING.values(), ids=RUNNING.keys())
def test_a_job_that_runs_is_active(kind: str, reported: Manifest, expected: Manifest) -> None:
    assert KINDS[kind].running_status(reported) == expected


def test_a_suspended_job_says_so_once_and_is_active_until_it_has_let_go() -> None:
    running = {"active": 3, "ready": 2, "startTime": NOW, "succeeded": 1}
    held = JOB.suspended_status(running, active=True, now=NOW)
    [condition] = held.pop("conditions")
    assert (condition["type"], condition["status"], condition["lastTransitionTime"]) == ("Suspended", "True", NOW)
    assert held == {"active": 3, "ready": 2, "succeeded": 1}
    idle = JOB.suspended_status(running | {"conditions": [condition]}, active=False, now=LATER)
    assert idle == {"succeeded": 1, "conditions": [condition]}
    assert JOB.suspended_status(idle, active=False, now=LATER) == idle


SUSPENDED = {"RayCluster": {"state": "suspended"}, "RayJob": {"jobDeploymentStatus": "Suspended"}}


@pytest.mark.parametrize(("kind", "idle"), SUSPENDED.items())
def test_what_ray_says_of_a_suspended_job(kind: str, idle: Manifest) -> None:
    shown = {"state": "ready", "jobDeploymentStatus": "Running"}
    assert KINDS[kind].suspended_status(shown, active=True, now=NOW) == shown
    assert KINDS[kind].suspended_status(shown, active=False, now=NOW) == idle
