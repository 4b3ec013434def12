"""The agent's annotations, written and read, also after others have changed them."""

from typing import Any

import pytest

from slicebus.agent.state import annotations
from slicebus.proto.messages import JobRef, RequestKey
from slicebus.slices.api import api_names, kueue
from unit.agent.objects import REF, a_job, encoded

Manifest = dict[str, Any]


def with_annotation(name: str, text: str | None) -> Manifest:
    return {"metadata": {"annotations": {name: text} if text is not None else None}}


def test_annotations_are_read_as_they_were_written() -> None:
    at = annotations.job_metadata(REF, workload="w2", version=7, grant={"b": 2, "a": 1})
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": at | {"name": "train", "namespace": "team"}}
    assert annotations.is_ours(job)
    assert annotations.is_of(job, REF)
    assert annotations.reference(job) == REF
    assert (annotations.slice_of(job), annotations.spec_version(job), annotations.granted(job)) == (
        "w2",
        7,
        {"a": 1, "b": 2},
    )
    assert at["labels"][kueue.PREBUILT_NAME] == at["annotations"][kueue.PREBUILT_NAME]


BARE: dict[str, Manifest] = {
    "nothing": {"metadata": {}},
    "empty": {"metadata": {"labels": {}, "annotations": {}}},
    "null": {"metadata": {"labels": None, "annotations": None}},
}


@pytest.mark.parametrize("manifest", BARE.values(), ids=BARE.keys())
def test_an_object_without_annotations(manifest: Manifest) -> None:
    assert not annotations.is_ours(manifest)
    assert not annotations.is_of(manifest, REF)
    assert (annotations.slice_of(manifest), annotations.spec_version(manifest)) == ("", 0)
    assert (annotations.granted(manifest), annotations.baseline(manifest)) == ({}, None)
    assert annotations.PendingRequests.from_job(manifest) is None


def test_the_managers_uid_alone_makes_nothing_ours() -> None:
    stripped = a_job()
    del stripped["metadata"]["labels"][api_names.ORIGIN_LABEL]
    assert not annotations.is_ours(stripped)
    assert not annotations.is_of(stripped, REF)


def test_a_job_of_the_same_name_is_another_job() -> None:
    assert not annotations.is_of(a_job(of=JobRef("batch/v1", "Job", "team", "train", "other")), REF)


@pytest.mark.parametrize(
    ("text", "expected"), [("7", 7), ("", 0), ("-7", 0), ("7.0", 0), ("x", 0), ("\u00b2", 0)], ids=repr
)
def test_a_version_that_cannot_be_read_is_0(text: str, expected: int) -> None:
    assert annotations.spec_version(with_annotation(api_names.SPEC_VERSION_ANNOTATION, text)) == expected


@pytest.mark.parametrize("text", ["", "{", "[]", "5", "null", '{"main":"five"}', '{"main":1.5}'], ids=repr)
def test_counts_that_cannot_be_read_grant_nothing(text: str) -> None:
    assert annotations.granted(with_annotation(api_names.GRANTED_ANNOTATION, text)) == {}
    assert annotations.baseline(with_annotation(api_names.BASELINE_ANNOTATION, text)) is None


@pytest.mark.parametrize("text", ["", "{", "{}", "[]", '{"worker_uid":"u"}'], ids=repr)
def test_a_request_that_cannot_be_read_is_none(text: str) -> None:
    assert annotations.PendingRequests.from_job(with_annotation(api_names.REQUESTED_ANNOTATION, text)) is None


def test_a_request_is_read_as_it_was_written() -> None:
    record = annotations.PendingRequests("worker-uid", 3, {"main": 5})
    assert (
        annotations.PendingRequests.from_job(with_annotation(api_names.REQUESTED_ANNOTATION, encoded(record))) == record
    )


def test_counts_are_written_the_same_whatever_their_order() -> None:
    assert annotations.encode_counts({"b": 2, "a": 1}) == annotations.encode_counts({"a": 1, "b": 2}) == '{"a":1,"b":2}'


def requests(*sizes: int, uid: str = "a") -> annotations.PendingRequests:
    """Requests for these sizes one after the other, with generations from 1."""
    pending = None
    for generation, size in enumerate(sizes, start=1):
        pending = annotations.PendingRequests.after(
            pending, RequestKey(uid, generation), wanted={"main": size}, granted={"main": 9}
        )
    assert pending is not None
    return pending


ANSWERS: dict[str, tuple[annotations.PendingRequests, Any, int]] = {
    "none of them": (requests(5, 2, 6), RequestKey(), 2),
    "the one that wanted more": (requests(5, 2, 6), RequestKey("a", 1), 2),
    "the one that wanted less": (requests(5, 2, 6), RequestKey("a", 2), 6),
    "the last": (requests(5, 2, 6), RequestKey("a", 3), 9),
    "a later one than this agent knows": (requests(5, 2, 6), RequestKey("a", 7), 9),
    "one of another worker object": (requests(5, 2, 6), RequestKey("b", 3), 2),
    "all that were of the object before": (
        annotations.PendingRequests.after(requests(1, 2), RequestKey("b", 1), wanted={"main": 3}, granted={"main": 2}),
        RequestKey("b", 1),
        9,
    ),
}


@pytest.mark.parametrize(("pending", "answers", "left"), ANSWERS.values(), ids=ANSWERS.keys())
def test_a_grant_is_capped_by_every_unanswered_request(
    pending: annotations.PendingRequests, answers: Any, left: int
) -> None:
    assert pending.answered(answers).allows({"main": 9}) == {"main": left}


def test_a_pod_set_that_a_request_no_longer_has_is_not_granted() -> None:
    assert requests(5).allows({"main": 9, "gone": 4}) == {"main": 5, "gone": 0}


def test_many_unanswered_requests_are_merged_and_the_lowest_still_caps() -> None:
    pending = requests(2, *range(20, 60))
    assert len(pending.unanswered) == 16
    assert pending.answered(RequestKey("a", 20)).allows({"main": 9}) == {"main": 2}
    assert pending.answered(RequestKey("a", 41)).allows({"main": 9}) == {"main": 9}
