"""Which jobs are told that slicebus leaves them alone, what they lack, and that each is told once."""

from typing import Any

import pytest

from slicebus.manager.decide import catalog
from slicebus.manager.decide.change_filter import filter_of
from slicebus.manager.decide.unmanaged import tell
from slicebus.manager.state.requirements import (
    ACCEPTED_CONDITION,
    NOT_MANAGED,
    is_nearly_managed,
    is_of_concern,
    missing,
)
from slicebus.manager.state.store import Store
from slicebus.proto.messages import JobRef
from slicebus.slices import kueue
from unit.manager.objects import NOW, a_job, a_view, condition, shorts
from unit.manager.test_beside_kueue import kueues_workload

Manifest = dict[str, Any]
NOT_ELASTIC = {kueue.ELASTIC_ANNOTATION: "false"}
TOLD = [("train", f"{ACCEPTED_CONDITION}=False {NOT_MANAGED}"), ("warn Job", NOT_MANAGED)]


def somebodys(managed_by: str | None = "example.com/other", **how: Any) -> Manifest:
    job = a_job(**how)
    job["spec"].pop("managedBy")
    return job | {"spec": job["spec"] | ({"managedBy": managed_by} if managed_by else {})}


def of_a_rayjob(job: Manifest) -> Manifest:
    owner = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "train", "uid": "u", "controller": True}
    return job | {"metadata": job["metadata"] | {"ownerReferences": [owner]}}


def said(job: Manifest, message: str) -> Manifest:
    told = condition(ACCEPTED_CONDITION, False, NOT_MANAGED, message)
    return job | {"status": {"conditions": [condition("Other"), told]}}


NOT_ELASTIC_TEXT = f'slicebus leaves it alone: it has no annotation {kueue.ELASTIC_ANNOTATION}: "true"'
BUILTIN: dict[str, tuple[Manifest, list[tuple[Any, ...]]]] = {
    "managed": (a_job(), []),
    "not elastic": (a_job(annotations=NOT_ELASTIC), TOLD),
    "somebody else's, and elastic": (somebodys(), TOLD),
    "nobody's, and elastic": (somebodys(None), TOLD),
    "neither": (somebodys(annotations=NOT_ELASTIC), []),
    "not queued": (a_job(managed=False, annotations=NOT_ELASTIC), []),
    "not queued, and elastic": (somebodys(managed=False), []),
    "made by a RayJob": (of_a_rayjob(somebodys()), []),
    "told already": (said(a_job(annotations=NOT_ELASTIC), NOT_ELASTIC_TEXT), []),
    "told something else": (said(a_job(annotations=NOT_ELASTIC), "before"), TOLD),
    "taken since": (said(a_job(), NOT_ELASTIC_TEXT), [("train", "conditions")]),
    "not queued any more": (said(a_job(managed=False), NOT_ELASTIC_TEXT), [("train", "conditions")]),
}


@pytest.mark.parametrize(("job", "expected"), BUILTIN.values(), ids=BUILTIN.keys())
def test_who_is_told(job: Manifest, expected: list[tuple[Any, ...]]) -> None:
    commands = shorts(tell(a_view(job), beside_kueue=False, now=NOW))
    assert [words if words[1:] != () else (*words, "conditions") for words in commands] == expected
    assert is_of_concern(job) or not commands


BESIDE_KUEUE: dict[str, tuple[Manifest, tuple[str, ...] | None, list[tuple[Any, ...]]]] = {
    "managed": (a_job(), ("slicebus",), []),
    "in our queue, not elastic": (a_job(annotations=NOT_ELASTIC), ("slicebus",), TOLD),
    "in our queue, somebody else's": (somebodys(), ("slicebus",), TOLD),
    "in our queue, neither": (somebodys(None, annotations=NOT_ELASTIC), ("slicebus",), TOLD),
    "in a queue of Kueue's own": (somebodys(None), (), []),
    "in a queue of MultiKueue": (a_job(annotations=NOT_ELASTIC), ("multikueue",), []),
    "without a Workload": (a_job(annotations=NOT_ELASTIC), None, []),
}


@pytest.mark.parametrize(("job", "checks", "expected"), BESIDE_KUEUE.values(), ids=BESIDE_KUEUE.keys())
def test_who_is_told_beside_a_kueue(
    job: Manifest, checks: tuple[str, ...] | None, expected: list[tuple[Any, ...]]
) -> None:
    workloads = () if checks is None else (kueues_workload(checks=checks),)
    view = a_view(job, *workloads, checks=frozenset(("slicebus",)))
    assert shorts(tell(view, beside_kueue=True, now=NOW)) == expected


def test_a_rayjob_is_told_by_an_annotation_that_goes() -> None:
    job = somebodys() | {"kind": "RayJob"}
    [patch, _] = tell(a_view(job), beside_kueue=False, now=NOW)
    told = patch.body["metadata"]["annotations"]  # type: ignore[union-attr, index]
    assert told == {kueue.NOT_MANAGED_ANNOTATION: f"slicebus leaves it alone: {next(missing(job))}"}
    annotated = a_job(annotations=told) | {"kind": "RayJob"}
    assert shorts(tell(a_view(annotated), beside_kueue=False, now=NOW)) == [
        ("train", (kueue.NOT_MANAGED_ANNOTATION, None))
    ]


def test_what_is_nearly_managed_is_looked_at() -> None:
    store, looked = Store(), list[JobRef]()
    store.on_job_change(looked.append, when=filter_of(store))
    nearly, local = a_job(annotations=NOT_ELASTIC), somebodys(annotations=NOT_ELASTIC)
    local["metadata"] |= {"name": "local", "uid": "uid-local"}
    for job in (nearly, local):
        store.jobs["Job"].put(job)
    assert is_nearly_managed(nearly)
    assert [ref.name for ref in looked] == ["train"]
    assert shorts(catalog.reconcile_job(store, job=looked[0], deletes_held=False, now=NOW)) == TOLD
