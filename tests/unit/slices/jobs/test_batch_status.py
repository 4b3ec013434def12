"""The status of a worker's Job fits the rules of the manager's API server, whatever the worker reports."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicebus.sandbox.apiserver import job_status
from slicebus.slices.jobs.batch_status import fitted

Manifest = dict[str, Any]
AT = "2026-01-31T1{}:00:00Z".format
PLAIN: Manifest = {"completions": 4, "parallelism": 2, "completionMode": "NonIndexed"}
INDEXED: Manifest = {"completions": 4, "parallelism": 2, "completionMode": "Indexed"}


def condition(name: str, **more: str) -> Manifest:
    return {"type": name, "status": "True", "reason": "R", "message": "m", "lastTransitionTime": AT(5)} | more


def types(status: Manifest) -> list[str]:
    return [entry["type"] for entry in status.get("conditions") or ()]


CASES: dict[str, tuple[Manifest, Manifest, Manifest, Manifest]] = {
    "a worker of 1.30 ends well": (
        PLAIN,
        {"startTime": AT(1)},
        {"conditions": [condition("Complete")], "succeeded": 4, "startTime": AT(1), "completionTime": AT(5)},
        {
            "conditions": [condition("SuccessCriteriaMet", reason="CompletionsReached"), condition("Complete")],
            "succeeded": 4,
            "startTime": AT(1),
            "completionTime": AT(5),
        },
    ),
    "a worker of 1.30 fails": (
        PLAIN,
        {},
        {"conditions": [condition("Failed", reason="DeadlineExceeded")], "startTime": AT(1), "failed": 1},
        {
            "conditions": [
                condition("FailureTarget", reason="DeadlineExceeded"),
                condition("Failed", reason="DeadlineExceeded"),
            ],
            "startTime": AT(1),
            "failed": 1,
        },
    ),
    "indexes past the manager's completions": (
        INDEXED,
        {},
        {"completedIndexes": "0,2-9", "active": 1},
        {"completedIndexes": "0,2-3", "active": 1},
    ),
    "only indexes past them": (INDEXED, {}, {"completedIndexes": "7-9"}, {}),
    "an index at their end": (INDEXED, {}, {"completedIndexes": "3-9"}, {"completedIndexes": "3"}),
    "indexes of a Job without them": (PLAIN, {}, {"completedIndexes": "0"}, {}),
    "indexes that nobody can read": (INDEXED, {}, {"completedIndexes": "a-b"}, {}),
    "the same indexes again and again": (INDEXED, {}, {"completedIndexes": "0-2,0-2,0-2"}, {}),
    "indexes that go down": (INDEXED, {}, {"completedIndexes": "3,1"}, {}),
    "failed indexes without a limit": (INDEXED, {}, {"failedIndexes": "1"}, {}),
    "failed indexes with one": (
        INDEXED | {"backoffLimitPerIndex": 1},
        {},
        {"failedIndexes": "1,5"},
        {"failedIndexes": "1"},
    ),
    "no failed index": (INDEXED | {"backoffLimitPerIndex": 1}, {}, {"failedIndexes": ""}, {"failedIndexes": ""}),
    "pods that an ended Job has not": (
        PLAIN,
        {"startTime": AT(1)},
        {
            "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
            "completionTime": AT(5),
            "active": 1,
            "ready": 1,
            "terminating": 1,
            "uncountedTerminatedPods": {"succeeded": ["u"]},
        },
        {
            "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
            "completionTime": AT(5),
            "startTime": AT(1),
        },
    ),
    "a clock that is behind": (
        PLAIN,
        {"startTime": AT(7)},
        {"conditions": [condition("SuccessCriteriaMet"), condition("Complete")], "completionTime": AT(5)},
        {
            "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
            "startTime": AT(7),
            "completionTime": AT(7),
        },
    ),
    "an end without times": (
        PLAIN,
        {},
        {"conditions": [condition("SuccessCriteriaMet"), condition("Complete")]},
        {
            "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
            "startTime": AT(5),
            "completionTime": AT(5),
        },
    ),
    "a time of an end that is none": (PLAIN, {}, {"completionTime": AT(5), "active": 1}, {"active": 1}),
    "more ready than active": (PLAIN, {}, {"active": 1, "ready": 2}, {"active": 1, "ready": 1}),
    "fewer successes": (PLAIN, {"succeeded": 3}, {"succeeded": 2}, {"succeeded": 3}),
    "fewer successes of an Indexed Job with more completions than pods": (
        INDEXED,
        {"succeeded": 3},
        {"succeeded": 2},
        {"succeeded": 3},
    ),
    "fewer successes of an Indexed Job that is shrunk": (
        INDEXED | {"parallelism": 4},
        {"succeeded": 5, "failed": 2},
        {"succeeded": 4, "failed": 1},
        {"succeeded": 4, "failed": 2},
    ),
    "a failure that has not ended it": (
        PLAIN,
        {},
        {"active": 1, "conditions": [condition("Suspended"), condition("FailureTarget")]},
        {"active": 1, "conditions": [condition("Suspended")]},
    ),
    "a mark that cannot be taken back": (
        PLAIN,
        {"conditions": [condition("FailureTarget")]},
        {"active": 1},
        {"active": 1, "conditions": [condition("FailureTarget")]},
    ),
}


@pytest.mark.parametrize(("spec", "shown", "reported", "expected"), CASES.values(), ids=CASES.keys())
def test_a_status_is_fitted(spec: Manifest, shown: Manifest, reported: Manifest, expected: Manifest) -> None:
    status = fitted({"spec": spec, "status": shown}, reported)
    assert status == expected
    assert list(job_status.problems(spec, shown, status)) == []


def test_a_job_that_fails_on_a_cluster_that_is_lost_is_complete_on_the_next_one() -> None:
    """A policy for failures ends its pods, which takes a while: it has not ended before they have."""
    fails: Manifest = {
        "startTime": AT(1),
        "active": 1,
        "conditions": [condition("FailureTarget", reason="PodFailurePolicy")],
    }
    succeeds = {
        "startTime": AT(3),
        "completionTime": AT(5),
        "succeeded": 4,
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
    }
    shown = fitted({"spec": PLAIN}, fails)
    assert list(job_status.problems(PLAIN, {}, shown)) == []
    status = fitted({"spec": PLAIN, "status": shown}, succeeds)
    assert types(status) == ["SuccessCriteriaMet", "Complete"]
    assert list(job_status.problems(PLAIN, shown, status)) == []
    failed = fitted(
        {"spec": PLAIN, "status": shown}, fails | {"conditions": [*fails["conditions"], condition("Failed")]}
    )
    assert types(failed) == ["FailureTarget", "Failed"]
    assert list(job_status.problems(PLAIN, shown, failed)) == []


def test_what_the_server_takes_is_left_as_it_is() -> None:
    shown = {"startTime": AT(1), "active": 2, "ready": 1}
    running = {"startTime": AT(1), "active": 2, "ready": 2, "terminating": 0, "uncountedTerminatedPods": {}}
    ended = {
        "startTime": AT(1),
        "completionTime": AT(5),
        "succeeded": 4,
        "active": 0,
        "ready": 0,
        "terminating": 0,
        "uncountedTerminatedPods": {},
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
    }
    assert fitted({"spec": PLAIN, "status": shown}, running) == running
    assert fitted({"spec": PLAIN, "status": shown}, ended) == ended


SPECS = st.fixed_dictionaries(
    {
        "completions": st.integers(0, 6),
        "parallelism": st.integers(0, 6),
        "completionMode": st.sampled_from(["Indexed", "NonIndexed"]),
    },
    optional={"backoffLimitPerIndex": st.just(1), "suspend": st.booleans()},
)
COUNT = st.integers(0, 9)
TIME = st.integers(0, 9).map(AT)
INDEXES = st.sets(st.integers(0, 9)).map(lambda found: ",".join(map(str, sorted(found))))


def statuses(names: list[str]) -> st.SearchStrategy[Manifest]:
    conditions = st.lists(st.sampled_from(names), max_size=2, unique=True)
    return st.fixed_dictionaries(
        {},
        optional={
            **dict.fromkeys(("active", "ready", "succeeded", "failed", "terminating"), COUNT),
            **dict.fromkeys(("startTime", "completionTime"), TIME),
            "completedIndexes": INDEXES,
            "uncountedTerminatedPods": st.just({"succeeded": ["u"]}),
            "conditions": conditions.map(lambda found: [condition(name) for name in found]),
        },
    )


@given(
    SPECS,
    statuses(["Suspended", "FailureTarget"]),
    statuses(["Suspended", "FailureTarget"]) | statuses(["Suspended", "Complete"]) | statuses(["Suspended", "Failed"]),
)
def test_the_server_takes_every_fitted_status(spec: Manifest, shown: Manifest, reported: Manifest) -> None:
    shown = fitted({"spec": spec, "status": {}}, shown)
    status = fitted({"spec": spec, "status": shown}, reported)
    assert list(job_status.problems(spec, shown, status)) == []
