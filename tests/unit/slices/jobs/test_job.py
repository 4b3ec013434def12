"""batch/v1 Job."""

import copy
from typing import Any

import pytest

from slicebus.proto.messages import JobPhase
from slicebus.sandbox.apiserver import job_spec
from slicebus.sandbox.apiserver.patches import json_patch
from slicebus.slices.api import kueue
from slicebus.slices.jobs import KINDS, Outcome, Placement
from unit.slices.jobs.manifests import GATE, POD_SET, a_job, a_template

JOB = KINDS["Job"]


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        ({"parallelism": 5}, 5),
        ({"parallelism": 0}, 0),
        ({"parallelism": 5, "completions": 9}, 5),
        ({"parallelism": 5, "completions": 2}, 2),
        ({"parallelism": 5, "completions": 0}, 0),
        ({"parallelism": 5, "completions": 2, "completionMode": "Indexed"}, 2),
    ],
    ids=["five", "none", "more completions", "fewer completions", "no completions", "fewer indexes"],
)
def test_one_pod_set_of_as_many_pods_as_run_at_a_time(spec: dict[str, Any], count: int) -> None:
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
        ({"completions": 3}, 3, {"main": 3}),
        ({"completions": 3}, 1, {"main": 1}),
        ({"completions": 3}, 0, {}),
        ({}, 0, {}),
        ({}, 2, {"main": 2}),
        ({}, 9, {"main": 5}),
    ],
    ids=[
        "three of five",
        "none",
        "enough left",
        "one too many",
        "all of fewer",
        "one of fewer",
        "none of fewer",
        "neither",
        "without completions",
        "more than pods",
    ],
)
def test_pods_in_whose_place_none_comes_have_ended_for_good(
    spec: dict[str, Any], succeeded: int, finished: dict[str, int]
) -> None:
    assert JOB.finished(a_job(parallelism=5, **spec) | {"status": {"succeeded": succeeded}}) == finished


FAILED: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, int]]] = {
    "nine of ten": ({}, {"failedIndexes": "0-8"}, {"main": 9}),
    "some, and others have succeeded": ({}, {"failedIndexes": "0,1,5-6", "succeeded": 3}, {"main": 7}),
    "all": ({}, {"failedIndexes": "0-9"}, {"main": 10}),
    "enough are left": ({"parallelism": 4}, {"failedIndexes": "0-5"}, {}),
    "fewer are left": ({"parallelism": 4}, {"failedIndexes": "0-7"}, {"main": 2}),
    "some past its completions": ({}, {"failedIndexes": "8-20"}, {"main": 2}),
    "none": ({}, {"failedIndexes": ""}, {}),
    "nobody can read them": ({}, {"failedIndexes": "0-x"}, {}),
    "no text": ({}, {"failedIndexes": 9}, {}),
    "not indexed": ({"completionMode": "NonIndexed"}, {"failedIndexes": "0-8"}, {}),
}


@pytest.mark.parametrize(("spec", "status", "finished"), FAILED.values(), ids=FAILED.keys())
def test_an_index_that_has_failed_gets_no_pod_again(
    spec: dict[str, Any], status: dict[str, Any], finished: dict[str, int]
) -> None:
    indexed = {"parallelism": 10, "completions": 10, "completionMode": "Indexed", "backoffLimitPerIndex": 0}
    assert JOB.finished(a_job(**(indexed | spec)) | {"status": status}) == finished


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

    def test_a_selector_of_the_users_own_stays_behind_too(self) -> None:
        own = {"app": "demo", "controller-uid": "of another Job", "batch.kubernetes.io/job-name": "another"}
        job = a_job(selector={"matchLabels": own}, manualSelector=True)
        job["spec"]["template"]["metadata"] = {"labels": own}
        spec = JOB.worker_copy(job, {})["spec"]
        assert not spec.keys() & {"selector", "manualSelector"}
        assert spec["template"]["metadata"]["labels"] == {"app": "demo", POD_SET: "main"}

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
    assert JOB.index_label(a_job(), "main") == ""
    assert JOB.scaler(a_job()) == "parallelism changed"
    assert JOB.pod_selectors(a_job()) == [{"batch.kubernetes.io/job-name": "demo"}]


def an_indexed(parallelism: int, completions: int, **status: Any) -> dict[str, Any]:
    job = a_job(completionMode="Indexed", parallelism=parallelism, completions=completions)
    return job | {"status": status}


def following(job: dict[str, Any], value: str) -> dict[str, Any]:
    """The job with Kueue's annotation for completions that follow its pods."""
    return job | {"metadata": job["metadata"] | {"annotations": {kueue.SYNC_COMPLETIONS_ANNOTATION: value}}}


FOLLOWED: dict[str, tuple[dict[str, Any], dict[str, Any], list[tuple[int, int]]]] = {
    "grown": (an_indexed(3, 3), an_indexed(5, 5), [(5, 5)]),
    "shrunk": (an_indexed(5, 5), an_indexed(3, 3), [(3, 3)]),
    "back from what the worker had made of it": (an_indexed(6, 6), an_indexed(3, 3), [(3, 3)]),
    "fewer pods, and as many completions": (an_indexed(5, 5), an_indexed(2, 5), [(2, 5)]),
    "completions that are more than pods": (an_indexed(5, 5), an_indexed(3, 9), [(9, 9), (3, 9)]),
    "completions alone": (an_indexed(5, 3), an_indexed(5, 5), [(5, 5)]),
    "the same": (an_indexed(5, 5), an_indexed(5, 5), []),
}


@pytest.mark.parametrize(("copy", "job", "expected"), FOLLOWED.values(), ids=FOLLOWED.keys())
def test_the_completions_of_an_indexed_job_follow_the_managers(
    copy: dict[str, Any], job: dict[str, Any], expected: list[tuple[int, int]]
) -> None:
    sizes = []
    while patches := JOB.follow(copy, job):
        copy = json_patch(copy, patches[0])
        assert len(patches) == len(expected) - len(sizes), "each patch makes the next one conflict"
        sizes.append((copy["spec"]["parallelism"], copy["spec"]["completions"]))
    assert sizes == expected


def test_only_indexed_jobs_have_completions_that_follow() -> None:
    plain = a_job(parallelism=3, completions=3)
    assert JOB.bounds(plain) == {}
    assert JOB.follow(plain, a_job(parallelism=2, completions=3)) == [JOB.resize(plain, {"main": 2})]
    assert JOB.set_bounds(plain, {"completions": 5}) == []


def test_completions_are_what_may_change_beside_the_size() -> None:
    job = an_indexed(5, 3)
    assert JOB.bounds(job) == {"completions": 3}
    assert json_patch(job, JOB.set_bounds(job, {"completions": 5}))["spec"]["completions"] == 5
    assert JOB.set_bounds(job, {"completions": 3}) == JOB.set_bounds(job, {}) == []


def test_succeeded_indexes_count_in_the_size_of_a_job_that_ends_by_it() -> None:
    job = an_indexed(8, 8, succeeded=4, completedIndexes="0,2,6,7")
    assert [JOB.left_at(job, {"main": size})["main"] for size in (8, 7, 6, 2, 0)] == [4, 4, 4, 1, 0]
    assert [JOB.size_for(job, {"main": left}, {})["main"] for left in (4, 3, 2, 1, 0)] == [8, 5, 4, 3, 1]
    assert JOB.size_for(job, {"main": 3}, {"main": 5}) == {"main": 8}, "the status is older"
    assert JOB.left_at(an_indexed(8, 8, completedIndexes="x"), {"main": 5}) == {"main": 5}
    fewer = an_indexed(4, 8, completedIndexes="0,2")
    assert JOB.left_at(fewer, {"main": 3}) == {"main": 1}, "the pods were made fewer where it runs"
    for other in (following(fewer, "false"), a_job(parallelism=8, completions=8)):
        assert JOB.left_at(other, {"main": 3}) == JOB.size_for(other, {"main": 3}, {"main": 2}) == {"main": 3}


def test_a_copy_says_that_completions_stay_which_do_not_follow_at_the_manager() -> None:
    """Somebody may make both numbers equal where it runs."""
    jobs = (an_indexed(4, 8), following(an_indexed(4, 8), "true"), following(an_indexed(4, 4), "false"))
    for job in (*jobs, following(an_indexed(4, 4), "true"), an_indexed(4, 4), a_job(parallelism=4, completions=8)):
        notes = JOB.worker_copy(job, {})["metadata"].get("annotations", {})
        said = (job["metadata"].get("annotations") or {}).get(kueue.SYNC_COMPLETIONS_ANNOTATION)
        assert notes.get(kueue.SYNC_COMPLETIONS_ANNOTATION) == ("false" if job in jobs else said)
        assert (job["metadata"].get("annotations") or {}).get(kueue.SYNC_COMPLETIONS_ANNOTATION) == said


def test_others_take_indexes_unless_the_completions_stay() -> None:
    job = an_indexed(8, 8, succeeded=4, completedIndexes="0,2,6,7")
    stays = following(job, "false")
    sizes = {"follow": job, "follow too": following(job, "true"), "stay": stays, "more": an_indexed(4, 8)}
    assert [name for name, one in sizes.items() if JOB.end_follows(one)] == ["follow", "follow too"]
    assert [JOB.left_at(stays, {"main": size})["main"] for size in (8, 7, 6, 2, 0)] == [4, 4, 4, 2, 0]
    left = {name: JOB.with_pods(one, {"main": 3}, present=one)["spec"] for name, one in sizes.items()}
    assert {name: (spec["parallelism"], spec["completions"]) for name, spec in left.items()} == {
        "follow": (3, 3),
        "follow too": (3, 3),
        "stay": (3, 8),
        "more": (3, 8),
    }
    assert [JOB.index_label(one, "main") != "" for one in sizes.values()] == [True, True, False, False]
    made = JOB.with_pods(four := following(an_indexed(4, 4), "false"), {"main": 6}, present=an_indexed(9, 9))["spec"]
    assert (made["parallelism"], made["completions"]) == (6, 9), "what it was made where it runs"
    made = JOB.with_pods(four, {"main": 6}, present=four)["spec"]
    assert (made["parallelism"], made["completions"]) == (6, 6)
    fewer = JOB.with_pods(an_indexed(8, 8), {"main": 2}, present=an_indexed(4, 8))["spec"]
    assert (fewer["parallelism"], fewer["completions"]) == (2, 8), "all indexes are to run there"
    plain = a_job(parallelism=8, completions=8)
    assert JOB.with_pods(plain, {"main": 3}, present=plain) == JOB.with_counts(plain, {"main": 3})


def test_indexes_past_the_completions_have_not_ended() -> None:
    """The status of a Job that was made smaller names them until its controller has written it anew."""
    assert JOB.finished(an_indexed(5, 5, succeeded=2, completedIndexes="0,6")) == {"main": 1}


COMPLETE = [{"type": "Complete", "status": "True"}]
ENDED_WITH: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[int, int]]] = {
    "more": (an_indexed(3, 3), {"completedIndexes": "0-4", "conditions": COMPLETE}, (5, 5)),
    "fewer": (an_indexed(3, 3), {"completedIndexes": "0", "conditions": COMPLETE}, (1, 1)),
    "two": (an_indexed(3, 3), {"completedIndexes": "0,1", "conditions": COMPLETE}, (2, 2)),
    "two others": (an_indexed(3, 3), {"completedIndexes": "0,2", "conditions": COMPLETE}, (3, 3)),
    "as many": (an_indexed(2, 3), {"completedIndexes": "0-2", "conditions": COMPLETE}, (2, 3)),
    "not complete": (an_indexed(3, 3), {"completedIndexes": "0-4"}, (3, 3)),
    "not from the first one": (an_indexed(3, 3), {"completedIndexes": "1-4", "conditions": COMPLETE}, (3, 3)),
    "with a gap": (an_indexed(3, 3), {"completedIndexes": "0-2,4", "conditions": COMPLETE}, (3, 3)),
    "more than Kubernetes has": (an_indexed(3, 3), {"completedIndexes": "0-100000", "conditions": COMPLETE}, (3, 3)),
    "no text": (an_indexed(3, 3), {"completedIndexes": 4, "conditions": COMPLETE}, (3, 3)),
    "not indexed": (a_job(completions=3), {"completedIndexes": "0-4", "conditions": COMPLETE}, (3, 3)),
}


@pytest.mark.parametrize(("job", "reported", "expected"), ENDED_WITH.values(), ids=ENDED_WITH.keys())
def test_a_complete_indexed_job_has_as_many_completions_as_indexes(
    job: dict[str, Any], reported: dict[str, Any], expected: tuple[int, int]
) -> None:
    spec = JOB.as_ended(job, reported)["spec"]
    assert (spec["parallelism"], spec["completions"]) == expected


def with_failures(job: dict[str, Any], most: int) -> dict[str, Any]:
    """The job with a bound for its failed indexes."""
    return job | {"spec": job["spec"] | {"backoffLimitPerIndex": 1, "maxFailedIndexes": most}}


def refusals(job: dict[str, Any]) -> list[str]:
    """Why an API server refuses the job's spec."""
    return [*job_spec.problems(job["spec"])]


FAILURES_FOLLOWED: dict[str, tuple[dict[str, Any], dict[str, Any], list[int]]] = {
    "others take more than may fail": (an_indexed(6, 6), an_indexed(3, 3), [5, 5, 3]),
    "they come back": (an_indexed(3, 3), an_indexed(6, 6), [3, 5, 5]),
    "the manager's user lowers both": (an_indexed(6, 6), an_indexed(2, 2), [5, 1, 1]),
    "and leaves more completions": (an_indexed(6, 6), an_indexed(2, 4), [5, 1, 1]),
    "nothing that may fail changes": (an_indexed(6, 6), an_indexed(5, 5), [2, 2, 2]),
}


@pytest.mark.parametrize(("copy", "job", "most"), FAILURES_FOLLOWED.values(), ids=FAILURES_FOLLOWED.keys())
def test_no_more_may_fail_than_there_are_completions(
    copy: dict[str, Any], job: dict[str, Any], most: list[int]
) -> None:
    copy, job = with_failures(copy, most[0]), with_failures(job, most[1])
    while patches := JOB.follow(copy, job):
        copy = json_patch(copy, patches[0])
        assert refusals(copy) == []
    assert copy["spec"]["maxFailedIndexes"] == most[2]


def test_a_copy_that_is_made_while_others_have_its_pods_is_taken() -> None:
    job = with_failures(an_indexed(6, 6), 5)
    left = JOB.with_pods(job, {"main": 3}, present=job)
    assert refusals(left) == []
    assert (left["spec"]["completions"], left["spec"]["maxFailedIndexes"]) == (3, 3)


def test_completions_that_change_alone_take_what_may_fail_along() -> None:
    job = with_failures(an_indexed(2, 6), 5)
    assert refusals(json_patch(job, JOB.set_bounds(job, {"completions": 2}))) == []


def test_a_complete_job_says_no_more_failures_than_completions() -> None:
    ended = JOB.as_ended(with_failures(an_indexed(6, 6), 5), {"completedIndexes": "0,1", "conditions": COMPLETE})
    assert refusals(ended) == []


SUCCESS: dict[str, tuple[list[dict[str, Any]], int]] = {
    "of indexes": ([{"succeededIndexes": "0,2-3"}], 4),
    "of some of them": ([{"succeededIndexes": "1-4", "succeededCount": 1}], 5),
    "of a number": ([{"succeededCount": 3}], 3),
    "of the first one": ([{"succeededIndexes": "0"}], 1),
    "by several rules": ([{"succeededIndexes": "0"}, {"succeededCount": 2}, {"succeededIndexes": "2"}], 3),
    "that nobody can read": ([{"succeededIndexes": "2-x"}], 1),
}


@pytest.mark.parametrize(("rules", "fewest"), SUCCESS.values(), ids=SUCCESS.keys())
def test_the_completions_that_a_success_needs_stay(rules: list[dict[str, Any]], fewest: int) -> None:
    job = an_indexed(6, 6)
    job["spec"]["successPolicy"] = {"rules": rules}
    assert [JOB.with_counts(job, {"main": size})["spec"]["completions"] for size in (1, 5)] == [fewest, 5]
    least = job | {"metadata": job["metadata"] | {"annotations": {kueue.MIN_PARALLELISM_ANNOTATION: "1"}}}
    assert JOB.least(least) == {"main": fewest}
    stays = following(job, "false")
    assert JOB.with_counts(stays, {"main": 1})["spec"]["parallelism"] == 1, "its completions stay, whatever it has"


def test_a_job_with_a_rule_of_its_own_for_success_keeps_its_completions() -> None:
    job = an_indexed(3, 3)
    job["spec"]["successPolicy"] = {"rules": [{"succeededCount": 1}]}
    assert JOB.as_ended(job, {"completedIndexes": "0", "conditions": COMPLETE}) == job


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
