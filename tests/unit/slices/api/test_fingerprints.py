"""The hashes that both sides compare. The protocol fixes them, so their values are written here."""

import pytest

from slicebus.proto.messages import ClusterName, JobPhase
from slicebus.slices.api.fingerprints import all_ready, content_hash, spec_hash, status_hash

EAST = ClusterName("east")
SPEC = spec_hash(EAST, "job-train-1a2b3", {"main": 3}, {"main": 1})


def test_the_hashes_are_the_protocols() -> None:
    assert SPEC == content_hash(["east", "job-train-1a2b3", {"main": 3}, {"main": 1}]) == "8d22c0b8eeea0d90"
    assert (
        status_hash({"active": 3}, JobPhase.RUNNING, True) == content_hash([{"active": 3}, True]) == "383a85662ba6b621"
    )


def test_the_order_of_keys_does_not_count() -> None:
    assert content_hash({"a": 1, "b": {"c": 2, "d": 3}}) == content_hash({"b": {"d": 3, "c": 2}, "a": 1})
    assert content_hash({"a": 1}) != content_hash({"a": 2})


@pytest.mark.parametrize(
    "other",
    [
        spec_hash(ClusterName("west"), "job-train-1a2b3", {"main": 3}, {"main": 1}),
        spec_hash(EAST, "job-train-9z8y7", {"main": 3}, {"main": 1}),
        spec_hash(EAST, "job-train-1a2b3", {"main": 2}, {"main": 1}),
        spec_hash(EAST, "job-train-1a2b3", {"main": 3}, {"main": 2}),
        spec_hash(EAST, "job-train-1a2b3", {"main": 3}, None),
    ],
    ids=["cluster", "slice", "granted", "baseline", "no baseline"],
)
def test_another_spec_has_another_hash(other: str) -> None:
    assert other != SPEC


def test_what_is_wrong_with_pods_follows_where_something_is() -> None:
    running, reasons = JobPhase.RUNNING, {"main": "Unschedulable"}
    assert status_hash({}, running, False, problems={}) == content_hash([{}, False])
    assert status_hash({}, running, False, problems=reasons) == content_hash([{}, False, {}, reasons])
    assert status_hash({}, running, False, waits="SurplusPods") == content_hash([{}, False, {}, {}, "SurplusPods"])
    assert status_hash({}, running, False, gang={"main": 2}) == content_hash([{}, False, {}, {}, "", {"main": 2}])
    assert status_hash({}, running, False, gang={}) == content_hash([{}, False, {}, {}, "", {}])
    assert status_hash({}, JobPhase.FAILED, None, waits="SurplusPods", gang={"main": 2}) == content_hash([{}, None])
    assert status_hash({}, JobPhase.FAILED, None, left={"main": 1}) == content_hash([{}, None, {"main": 1}])


def test_pods_count_only_while_the_job_runs() -> None:
    running = [status_hash({}, JobPhase.RUNNING, ready) for ready in (True, False, None)]
    assert len(set(running)) == 3
    assert len({status_hash({}, JobPhase.SUCCEEDED, ready) for ready in (True, False, None)}) == 1


@pytest.mark.parametrize(
    ("granted", "ready", "succeeded", "expected"),
    [
        ({"main": 2}, {"main": 2}, {}, True),
        ({"main": 2}, {"main": 3}, {}, True),
        ({"main": 2}, {"main": 1}, {}, False),
        ({"main": 2}, {"main": 1}, {"main": 1}, True),
        ({"main": 2}, {}, {}, False),
        ({"main": 0}, {}, {}, True),
        ({"head": 1, "group": 2}, {"head": 1, "group": 1}, {}, False),
        ({}, {"main": 1}, {}, True),
    ],
)
def test_all_are_ready_when_each_pod_set_has_what_it_was_granted(
    granted: dict[str, int], ready: dict[str, int], succeeded: dict[str, int], expected: bool
) -> None:
    assert all_ready(granted, ready, succeeded) is expected
