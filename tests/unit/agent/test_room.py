"""Annotations on a worker's job find room: others' give way, and an Event says so."""

from typing import Any

from slicebus.agent.decide.job.room import patch_job
from slicebus.decisions.commands import Emit, Patch
from slicebus.slices.api import api_names

FULL = 256 * 1024
WRITTEN = {api_names.GRANTED_ANNOTATION: '{"main":3}'}


def job(**annotations: str) -> dict[str, Any]:
    metadata = {"name": "train", "namespace": "team", "uid": "u", "annotations": annotations}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {}}


def test_where_there_is_room_nothing_else_is_written() -> None:
    body = {"metadata": {"labels": {"a": "b"}, "annotations": WRITTEN}, "spec": {"suspend": False}}
    [patch] = patch_job(job(notes="x"), body)
    assert isinstance(patch, Patch)
    assert patch.body == body


def test_what_gives_way_is_named_on_the_job() -> None:
    full = {f"notes-{number}": "x" * (FULL // 30) for number in range(10, 41)}
    patch, told = patch_job(job(**full), {"metadata": {"annotations": WRITTEN}})
    assert isinstance(patch, Patch)
    assert isinstance(told, Emit)
    removed = [name for name, value in patch.body["metadata"]["annotations"].items() if value is None]
    assert removed == ["notes-10", "notes-11"]
    assert told.reason == "AnnotationsRemoved"
    assert told.note.endswith(f"were removed here: {', '.join(removed)}")


def test_of_many_only_some_are_named() -> None:
    full = {f"notes-{number:04}": "x" * 100 for number in range(3000)}
    _, told = patch_job(job(**full), {"metadata": {"annotations": WRITTEN}})
    assert isinstance(told, Emit)
    assert "notes-0000, notes-0001, notes-0002 and " in told.note
    assert len(told.note) < 400
