"""Differences of objects, written into a recording and put together again."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicebus.journal.object_diffs import DiffWriter, changed_object
from slicebus.journal.recording import UNWRITABLE, Gone, Put, Source, decode_batch, encode_batch, encode_record
from slicebus.journal.redaction import MARK, Redactor
from slicebus.kube.cache import Manifest
from slicebus.proto.errors import InvalidError
from unit.journal.records import BEGAN

ALL = {"apiVersion", "kind", "metadata", "spec"}


def pod(version: int, *, uid: str = "u", **parts: Any) -> Manifest:
    metadata = {"name": "p", "uid": uid, "resourceVersion": str(version)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata} | parts


def read(change: Put) -> Put:
    """The change as it comes out of a recording."""
    [record] = decode_batch(
        encode_batch(Source("manager", "", 1), 0, [encode_record(change)], user="u", at=BEGAN)
    ).records
    assert isinstance(record, Put)
    return record


CHANGES: dict[str, tuple[Manifest, Manifest, set[str]]] = {
    "a status": (pod(1, spec={"a": 1}), pod(2, spec={"a": 1}, status={"b": 1}), {"metadata", "status"}),
    "a part that went": (pod(1, spec={}, status={"b": 1}), pod(2, spec={}), {"metadata"}),
    "a part that became nothing": (pod(1, status={"b": 1}), pod(2, status=None), {"metadata", "status"}),
    "another object of the name": (pod(1, spec={"a": 1}), pod(2, uid="v", spec={"a": 1}), ALL),
}


@pytest.mark.parametrize(("old", "new", "parts"), CHANGES.values(), ids=CHANGES.keys())
def test_an_object_is_written_as_its_changed_parts(old: Manifest, new: Manifest, parts: set[str]) -> None:
    diffs = DiffWriter("pods", Redactor())
    first, then = read(diffs.put(old)), read(diffs.put(new))
    assert (first.same, set(then.object)) == ((), parts)
    assert changed_object(then, changed_object(first, None)) == new


PARTS = st.dictionaries(st.sampled_from(["spec", "status", "data"]), st.dictionaries(st.text(), st.integers(0, 2)))


@given(st.lists(st.tuples(PARTS, st.sampled_from("uv")), min_size=1))
def test_every_version_is_read_as_it_was_written(versions: list[tuple[dict[str, Any], str]]) -> None:
    diffs, present = DiffWriter("pods", Redactor()), None
    for number, (parts, uid) in enumerate(versions):
        manifest = pod(number, uid=uid, **parts)
        present = changed_object(read(diffs.put(manifest)), present)
        assert present == manifest


def test_objects_of_two_namespaces_are_kept_apart() -> None:
    diffs = DiffWriter("pods", Redactor())
    here, there = pod(1, spec={}), pod(1, spec={})
    there["metadata"]["namespace"] = "other"
    assert diffs.put(here).same == diffs.put(there).same == ()


def test_an_object_made_anew_is_written_in_full() -> None:
    diffs = DiffWriter("pods", Redactor())
    diffs.put(pod(1, spec={}))
    assert diffs.gone(pod(1, spec={})) == Gone(of="pods", name="p")
    assert set(diffs.put(pod(2, spec={})).object) == ALL


def test_the_version_after_an_unwritable_one_is_written_in_full() -> None:
    diffs = DiffWriter("pods", Redactor())
    diffs.put(pod(1, spec={}))
    with pytest.raises(UNWRITABLE):
        diffs.put(pod(2, spec={1j: 1}))
    assert set(diffs.put(pod(3, spec={})).object) == ALL


def test_an_annotation_that_is_nested_too_deep_to_be_searched_is_left_out() -> None:
    """Whoever may write a job may write it, and the role that watches the job goes on."""
    depth, metadata = 200, {"name": "p", "uid": "u"}
    deep = "[" * depth + '"password=hunter22"' + "]" * depth
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata | {"annotations": {"a": deep, "b": "c"}}}
    written = read(DiffWriter("pods", Redactor()).put(manifest))
    assert written.object["metadata"]["annotations"] == {"a": MARK, "b": "c"}


def test_an_object_keeps_the_order_of_its_parts() -> None:
    diffs, new = DiffWriter("pods", Redactor()), pod(2, spec={"a": 1}, status={"b": 1})
    old = changed_object(read(diffs.put(pod(1, spec={"a": 1}, status={}))), None)
    assert list(changed_object(read(diffs.put(new)), old)) == list(new)


def test_a_difference_without_the_version_before_is_invalid() -> None:
    diffs = DiffWriter("pods", Redactor())
    diffs.put(pod(1, spec={}))
    with pytest.raises(InvalidError, match="a change of pods p, which is not there"):
        changed_object(read(diffs.put(pod(2, spec={}))), None)
