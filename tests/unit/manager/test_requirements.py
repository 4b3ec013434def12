"""Which jobs slicebus leaves alone, what they lack, and that each job shows it once."""

from typing import Any

import pytest

from slicebus.decisions.commands import Command, Emit, Patch
from slicebus.manager.decide import catalog
from slicebus.manager.decide.modes import AdmissionMode, BesideKueue, Builtin, mode_of
from slicebus.manager.state.job_changes import on_job_change
from slicebus.manager.state.requirements import (
    NOT_MANAGED,
    OPT_IN_REMOVED,
    QUEUE_CHANGED,
    is_nearly_managed,
    is_of_concern,
    missing,
)
from slicebus.manager.state.store import ManagerStore
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import JobRef
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.api_names import ACCEPTED_CONDITION
from unit.manager.objects import NOW, a_job, a_view, a_workload, condition, shorts
from unit.manager.test_beside_kueue import kueues_workload

Manifest = dict[str, Any]
NOT_ELASTIC = {kueue.ELASTIC_ANNOTATION: "false"}
REPORTED = [("train", f"{ACCEPTED_CONDITION}=False {NOT_MANAGED}"), ("warn Job", NOT_MANAGED)]


def somebodys(managed_by: str | None = "example.com/other", **how: Any) -> Manifest:
    job = a_job(**how)
    job["spec"].pop("managedBy")
    return job | {"spec": job["spec"] | ({"managedBy": managed_by} if managed_by else {})}


def of_a_rayjob(job: Manifest) -> Manifest:
    owner = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "train", "uid": "u", "controller": True}
    return job | {"metadata": job["metadata"] | {"ownerReferences": [owner]}}


def reporting(job: Manifest, message: str) -> Manifest:
    shown = condition(ACCEPTED_CONDITION, False, NOT_MANAGED, message)
    return job | {"status": {"conditions": [condition("Other"), shown]}}


NOT_ELASTIC_TEXT = f'slicebus leaves it alone: it has no annotation {kueue.ELASTIC_ANNOTATION}: "true"'
BUILTIN_MODE = Builtin()


def reported(view: JobView, mode: AdmissionMode = BUILTIN_MODE) -> list[Command]:
    """What a mode has written onto a job that is left alone."""
    assert view.job is not None
    return mode.show_unmanaged(view, view.job, now=NOW)


BUILTIN: dict[str, tuple[Manifest, list[tuple[Any, ...]]]] = {
    "managed": (a_job(), []),
    "not elastic": (a_job(annotations=NOT_ELASTIC), REPORTED),
    "somebody else's, and elastic": (somebodys(), REPORTED),
    "nobody's, and elastic": (somebodys(None), REPORTED),
    "neither": (somebodys(annotations=NOT_ELASTIC), []),
    "not queued": (a_job(managed=False, annotations=NOT_ELASTIC), []),
    "not queued, and elastic": (somebodys(managed=False), []),
    "made by a RayJob": (of_a_rayjob(somebodys()), []),
    "shown already": (reporting(a_job(annotations=NOT_ELASTIC), NOT_ELASTIC_TEXT), []),
    "shows something else": (reporting(a_job(annotations=NOT_ELASTIC), "before"), REPORTED),
    "taken since": (reporting(a_job(), NOT_ELASTIC_TEXT), [("train", "conditions")]),
    "not queued any more": (reporting(a_job(managed=False), NOT_ELASTIC_TEXT), [("train", "conditions")]),
}


@pytest.mark.parametrize(("job", "expected"), BUILTIN.values(), ids=BUILTIN.keys())
def test_which_jobs_show_it(job: Manifest, expected: list[tuple[Any, ...]]) -> None:
    commands = shorts(reported(a_view(job)))
    assert [words if words[1:] != () else (*words, "conditions") for words in commands] == expected
    assert is_of_concern(job) or not commands


ELSEWHERE = {kueue.QUEUE_NAME_LABEL: "other"}
TAKEN: dict[str, tuple[Manifest, Manifest, str | None]] = {
    "as it was taken": (a_job(), a_workload(admitted=1), None),
    "not elastic any more": (a_job(annotations=NOT_ELASTIC), a_workload(admitted=1), OPT_IN_REMOVED),
    "not queued any more": (a_job(managed=False), a_workload(admitted=1), OPT_IN_REMOVED),
    "not queued any more, and waits": (a_job(managed=False), a_workload(), OPT_IN_REMOVED),
    "in another queue, and has quota": (a_job(labels=ELSEWHERE), a_workload(admitted=1), QUEUE_CHANGED),
    "let go": (a_job(managed=False), a_workload(held=False, conditions=(condition("Finished"),)), None),
}


@pytest.mark.parametrize(("job", "workload", "reason"), TAKEN.values(), ids=TAKEN.keys())
def test_a_job_that_was_taken_shows_what_was_changed(job: Manifest, workload: Manifest, reason: str | None) -> None:
    commands = reported(a_view(job, workload))
    if reason is None:
        assert commands == []
        return
    [patch, event] = commands
    assert isinstance(patch, Patch)
    assert isinstance(event, Emit)
    assert event.reason == reason
    assert patch.body == {"metadata": {"annotations": {api_names.UNHEEDED_ANNOTATION: event.note}}}
    shown = job | {"metadata": job["metadata"] | {"annotations": job["metadata"]["annotations"] | _annotations(patch)}}
    assert reported(a_view(shown, workload)) == [], "and once"


def _annotations(patch: Patch) -> dict[str, str]:
    assert isinstance(patch.body, dict)
    annotations: dict[str, str] = patch.body["metadata"]["annotations"]
    return annotations


def test_a_job_that_is_as_it_was_taken_again_shows_nothing() -> None:
    back = a_job(annotations={api_names.UNHEEDED_ANNOTATION: "before"})
    assert shorts(reported(a_view(back, a_workload(admitted=1)))) == [("train", (api_names.UNHEEDED_ANNOTATION, None))]


def test_a_job_that_was_taken_is_reconciled_whatever_its_metadata_says() -> None:
    store, requeued = ManagerStore(), list[JobRef]()
    store.workloads.put(a_workload(admitted=1))
    on_job_change(store, requeued.append, when=mode_of(store).needs_reconcile)
    opted_out = a_job(managed=False, annotations=NOT_ELASTIC)
    assert not is_of_concern(opted_out)
    requeued.clear()
    store.jobs["Job"].put(opted_out)
    assert [ref.name for ref in requeued] == ["train"]


BESIDE_KUEUE: dict[str, tuple[Manifest, tuple[str, ...] | None, list[tuple[Any, ...]]]] = {
    "managed": (a_job(), ("slicebus",), []),
    "in our queue, not elastic": (a_job(annotations=NOT_ELASTIC), ("slicebus",), REPORTED),
    "in our queue, somebody else's": (somebodys(), ("slicebus",), REPORTED),
    "in our queue, neither": (somebodys(None, annotations=NOT_ELASTIC), ("slicebus",), REPORTED),
    "in a queue of Kueue's own": (somebodys(None), (), []),
    "in a queue of MultiKueue": (a_job(annotations=NOT_ELASTIC), ("multikueue",), []),
    "without a Workload": (a_job(annotations=NOT_ELASTIC), None, []),
}


@pytest.mark.parametrize(("job", "checks", "expected"), BESIDE_KUEUE.values(), ids=BESIDE_KUEUE.keys())
def test_which_jobs_show_it_beside_a_kueue(
    job: Manifest, checks: tuple[str, ...] | None, expected: list[tuple[Any, ...]]
) -> None:
    workloads = () if checks is None else (kueues_workload(checks=checks),)
    view = a_view(job, *workloads, checks=frozenset(("slicebus",)))
    assert shorts(reported(view, BesideKueue())) == expected


def test_a_rayjob_shows_it_by_an_annotation_that_is_cleared() -> None:
    job = somebodys() | {"kind": "RayJob"}
    [patch, _] = reported(a_view(job))
    annotations = patch.body["metadata"]["annotations"]  # type: ignore[union-attr, index]
    assert annotations == {
        api_names.NOT_MANAGED_ANNOTATION: f"slicebus leaves it alone: {next(missing(job, fixed_jobs=False))}"
    }
    annotated = a_job(annotations=annotations) | {"kind": "RayJob"}
    assert shorts(reported(a_view(annotated))) == [("train", (api_names.NOT_MANAGED_ANNOTATION, None))]


def test_a_nearly_managed_job_is_reconciled() -> None:
    store, requeued = ManagerStore(), list[JobRef]()
    on_job_change(store, requeued.append, when=mode_of(store).needs_reconcile)
    nearly, local = a_job(annotations=NOT_ELASTIC), somebodys(annotations=NOT_ELASTIC)
    local["metadata"] |= {"name": "local", "uid": "uid-local"}
    for job in (nearly, local):
        store.jobs["Job"].put(job)
    assert is_nearly_managed(nearly)
    assert [ref.name for ref in requeued] == ["train"]
    assert shorts(catalog.reconcile_job(store, job=requeued[0], deletes_held=False, now=NOW)) == REPORTED
