"""batch/v1 Job."""

import copy
from typing import Any

import pytest

from slicebus.proto.messages import JobPhase
from slicebus.slices.jobs import KINDS, Outcome, Placement
from unit.slices.jobs.manifests import GATE, POD_SET, a_job, a_template

JOB = KINDS["Job"]


@pytest.mark.parametrize(("spec", "count"), [({"parallelism": 5}, 5), ({"parallelism": 0}, 0)], ids=["five", "none"])
def test_one_pod_set_as_large_as_the_parallelism(spec: dict[str, Any], count: int) -> None:
    job = a_job(**spec)
    assert JOB.counts(job, job) == {"main": count}
    [pod_set] = JOB.pod_sets(job)
    assert (pod_set["name"], pod_set["count"]) == ("main", count)
    assert pod_set["template"]["spec"] == job["spec"]["template"]["spec"]


def test_a_job_that_does_not_say_runs_one_pod() -> None:
    job = a_job()
    del job["spec"]["parallelism"]
    assert JOB.counts(job, job) == {"main": 1}


def test_the_parallelism_counts_whatever_is_left_to_complete() -> None:
    job = a_job(parallelism=5, completions=6) | {"status": {"succeeded": 4}}
    assert JOB.counts(job, job) == {"main": 5}


@pytest.mark.parametrize(
    ("spec", "succeeded", "finished"),
    [
        ({"completions": 5}, 3, {"main": 3}),
        ({"completions": 5}, 0, {}),
        ({"completions": 9}, 4, {}),
        ({"completions": 9}, 5, {"main": 1}),
        ({"completions": 3}, 3, {"main": 5}),
        ({"completions": 3}, 0, {"main": 2}),
        ({}, 0, {}),
        ({}, 2, {"main": 2}),
        ({}, 9, {"main": 5}),
    ],
    ids=[
        "three of five",
        "none",
        "enough left",
        "one too many",
        "all",
        "never made",
        "neither",
        "without completions",
        "more than pods",
    ],
)
def test_pods_in_whose_place_none_comes_have_ended_for_good(
    spec: dict[str, Any], succeeded: int, finished: dict[str, int]
) -> None:
    assert JOB.finished(a_job(parallelism=5, **spec) | {"status": {"succeeded": succeeded}}) == finished


def test_the_counts_are_those_of_the_carrier() -> None:
    assert JOB.counts(a_job(), a_job(parallelism=7)) == {"main": 7}


def test_labels_of_the_api_server_are_not_part_of_the_template() -> None:
    labels = {
        "app": "demo",
        "controller-uid": "u",
        "job-name": "demo",
        "batch.kubernetes.io/controller-uid": "u",
        "batch.kubernetes.io/job-name": "demo",
    }
    job = a_job(template=a_template() | {"metadata": {"labels": labels, "annotations": {"a": "b"}}})
    [pod_set] = JOB.pod_sets(job)
    assert pod_set["template"]["metadata"] == {"labels": {"app": "demo"}, "annotations": {"a": "b"}}


class TestCopy:
    """What is created on a worker."""

    def test_it_is_gated_labelled_and_running(self) -> None:
        spec = JOB.worker_copy(a_job(), {})["spec"]
        assert spec["template"]["spec"]["schedulingGates"] == [GATE]
        assert spec["template"]["metadata"]["labels"] == {POD_SET: "main"}
        assert spec["suspend"] is False
        assert spec["parallelism"] == 3

    def test_the_selector_of_the_managers_api_server_stays_behind(self) -> None:
        spec = JOB.worker_copy(a_job(selector={"matchLabels": {"controller-uid": "u"}}, manualSelector=False), {})[
            "spec"
        ]
        assert not spec.keys() & {"selector", "manualSelector", "managedBy"}

    def test_nothing_deletes_it_after_its_end(self) -> None:
        assert "ttlSecondsAfterFinished" not in JOB.worker_copy(a_job(ttlSecondsAfterFinished=0), {})["spec"]

    def test_a_selector_of_the_users_own_goes_along(self) -> None:
        selector = {"matchLabels": {"app": "demo"}}
        spec = JOB.worker_copy(a_job(selector=selector, manualSelector=True), {})["spec"]
        assert (spec["selector"], spec["manualSelector"]) == (selector, True)

    def test_pods_go_where_the_flavor_says(self) -> None:
        own = {"key": "own", "operator": "Exists"}
        spot = {"key": "spot", "operator": "Exists"}
        template = a_template(nodeSelector={"disk": "ssd", "zone": "a"}, tolerations=[own])
        placement = Placement(node_selector={"zone": "b", "spot": "true"}, tolerations=(spot, own))
        spec = JOB.worker_copy(a_job(template=template), {"main": placement})["spec"]["template"]["spec"]
        assert spec["nodeSelector"] == {"disk": "ssd", "zone": "b", "spot": "true"}
        assert spec["tolerations"] == [own, spot]

    def test_pods_request_what_their_slice_is_charged_for(self) -> None:
        charged = {"requests": {"cpu": "1"}}
        template = a_template(
            containers=[
                {"name": "c", "image": "new", "resources": {"requests": {"cpu": "2"}}},
                {"name": "other", "image": "i"},
            ]
        )
        spec = JOB.worker_copy(a_job(template=template), {"main": Placement(resources={"c": charged})})["spec"]
        assert spec["template"]["spec"]["containers"] == [
            {"name": "c", "image": "new", "resources": charged},
            {"name": "other", "image": "i"},
        ]

    def test_the_managers_job_is_not_changed(self) -> None:
        job = a_job()
        before = copy.deepcopy(job)
        JOB.worker_copy(job, {"main": Placement(node_selector={"zone": "b"})})
        assert job == before


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({"main": 5}, [{"op": "add", "path": "/spec/parallelism", "value": 5}]),
        ({"main": 0}, [{"op": "add", "path": "/spec/parallelism", "value": 0}]),
        ({"main": 3}, []),
        ({}, []),
    ],
    ids=["larger", "none", "the same", "nothing said"],
)
def test_resize(counts: dict[str, int], expected: list[dict[str, Any]]) -> None:
    assert JOB.resize(a_job(), counts) == expected


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, Outcome(JobPhase.RUNNING)),
        ({"conditions": None}, Outcome(JobPhase.RUNNING)),
        ({"conditions": [{"type": "Suspended", "status": "True"}]}, Outcome(JobPhase.RUNNING)),
        ({"conditions": [{"type": "FailureTarget", "status": "True"}]}, Outcome(JobPhase.RUNNING)),
        ({"conditions": [{"type": "Complete", "status": "False"}]}, Outcome(JobPhase.RUNNING)),
        (
            {"conditions": [{"type": "Complete", "status": "True", "message": "all done"}]},
            Outcome(JobPhase.SUCCEEDED, "all done"),
        ),
        (
            {
                "conditions": [
                    {"type": "FailureTarget", "status": "True"},
                    {"type": "Failed", "status": "True", "message": "too often"},
                ]
            },
            Outcome(JobPhase.FAILED, "too often"),
        ),
        ({"conditions": [{"type": "Failed", "status": "True"}]}, Outcome(JobPhase.FAILED)),
    ],
    ids=["new", "null", "suspended", "about to fail", "not complete", "complete", "failed", "failed without a word"],
)
def test_outcome(status: dict[str, Any], expected: Outcome) -> None:
    assert JOB.outcome(a_job() | {"status": status}) == expected


def test_a_job_is_its_own_carrier_and_its_pods_start_one_by_one() -> None:
    assert JOB.children(a_job()) is None
    assert JOB.replica_size(a_job(), "main") == 1
    assert JOB.scaler(a_job()) == "parallelism changed"
    assert JOB.pod_selectors(a_job()) == [{"batch.kubernetes.io/job-name": "demo"}]


FIRST, SECOND = "2026-01-31T12:00:00Z", "2026-01-31T13:00:00Z"
MIRRORED: dict[str, tuple[bool, dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "the first": (False, {}, {"startTime": FIRST, "active": 1}, {"startTime": FIRST, "active": 1}),
    "the next": (False, {"startTime": FIRST, "succeeded": 1}, {"startTime": FIRST, "succeeded": 2}, {"succeeded": 2}),
    "begun anew": (
        False,
        {"startTime": FIRST, "succeeded": 2, "failed": 1},
        {"startTime": SECOND, "active": 1, "succeeded": 1},
        {"startTime": FIRST, "active": 1, "succeeded": 2, "failed": 1},
    ),
    "not begun again": (False, {"startTime": FIRST}, {"active": 1}, {"startTime": FIRST, "active": 1}),
    "begun anew while suspended": (True, {"startTime": FIRST, "failed": 1}, {"startTime": SECOND}, {"failed": 1}),
    "suspended": (True, {"startTime": FIRST, "active": 2}, {"active": 0}, {"active": 0}),
}


@pytest.mark.parametrize(("suspended", "shown", "reported", "expected"), MIRRORED.values(), ids=MIRRORED.keys())
def test_a_status_is_mirrored_as_far_as_it_may_be_written(
    suspended: bool, shown: dict[str, Any], reported: dict[str, Any], expected: dict[str, Any]
) -> None:
    job = a_job(suspend=suspended) | {"status": shown}
    assert JOB.mirrored_status(job, reported) == reported | expected
