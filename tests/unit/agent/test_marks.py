"""What the agent writes on objects, and what it makes of what others have done to that."""

from typing import Any

import pytest

from slicebus.agent import marks
from slicebus.proto.messages import JobRef
from slicebus.slices import kueue
from unit.agent.objects import REF, a_job, encoded

Manifest = dict[str, Any]


def with_annotation(name: str, text: str | None) -> Manifest:
    return {"metadata": {"annotations": {name: text} if text is not None else None}}


def test_marks_are_read_as_they_were_written() -> None:
    at = marks.job_marks(REF, workload="w2", version=7, grant={"b": 2, "a": 1})
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": at | {"name": "train", "namespace": "team"}}
    assert marks.is_ours(job)
    assert marks.is_of(job, REF)
    assert marks.reference(job) == REF
    assert (marks.slice_of(job), marks.spec_version(job), marks.granted(job)) == ("w2", 7, {"a": 1, "b": 2})
    assert at["labels"][kueue.PREBUILT_NAME] == at["annotations"][kueue.PREBUILT_NAME]


BARE: dict[str, Manifest] = {
    "nothing": {"metadata": {}},
    "empty": {"metadata": {"labels": {}, "annotations": {}}},
    "null": {"metadata": {"labels": None, "annotations": None}},
}


@pytest.mark.parametrize("manifest", BARE.values(), ids=BARE.keys())
def test_an_object_without_marks(manifest: Manifest) -> None:
    assert not marks.is_ours(manifest)
    assert not marks.is_of(manifest, REF)
    assert (marks.slice_of(manifest), marks.spec_version(manifest)) == ("", 0)
    assert (marks.granted(manifest), marks.baseline(manifest)) == ({}, None)
    assert marks.Requested.from_job(manifest) is None


def test_the_managers_uid_alone_makes_nothing_ours() -> None:
    stripped = a_job()
    del stripped["metadata"]["labels"][kueue.ORIGIN_LABEL]
    assert not marks.is_ours(stripped)
    assert not marks.is_of(stripped, REF)


def test_a_job_of_the_same_name_is_another_job() -> None:
    assert not marks.is_of(a_job(of=JobRef("batch/v1", "Job", "team", "train", "other")), REF)


@pytest.mark.parametrize(
    ("text", "expected"), [("7", 7), ("", 0), ("-7", 0), ("7.0", 0), ("x", 0), ("\u00b2", 0)], ids=repr
)
def test_a_version_that_cannot_be_read_is_0(text: str, expected: int) -> None:
    assert marks.spec_version(with_annotation(kueue.SPEC_VERSION_ANNOTATION, text)) == expected


@pytest.mark.parametrize("text", ["", "{", "[]", "5", "null", '{"main":"five"}', '{"main":1.5}'], ids=repr)
def test_counts_that_cannot_be_read_grant_nothing(text: str) -> None:
    assert marks.granted(with_annotation(kueue.GRANTED_ANNOTATION, text)) == {}
    assert marks.baseline(with_annotation(kueue.BASELINE_ANNOTATION, text)) is None


@pytest.mark.parametrize("text", ["", "{", "{}", "[]", '{"worker_uid":"u"}'], ids=repr)
def test_a_request_that_cannot_be_read_is_none(text: str) -> None:
    assert marks.Requested.from_job(with_annotation(kueue.REQUESTED_ANNOTATION, text)) is None


def test_a_request_is_read_as_it_was_written() -> None:
    record = marks.Requested("worker-uid", 3, {"main": 5})
    assert marks.Requested.from_job(with_annotation(kueue.REQUESTED_ANNOTATION, encoded(record))) == record


def test_counts_are_written_the_same_whatever_their_order() -> None:
    assert marks.encode_counts({"b": 2, "a": 1}) == marks.encode_counts({"a": 1, "b": 2}) == '{"a":1,"b":2}'
