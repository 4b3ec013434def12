"""Which changes have a job reconciled: never too few."""

import copy
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest

from slicebus.decisions.commands import Command, Create, Patch, Requeue
from slicebus.kube.cache import Change
from slicebus.manager.decide.admission import builtin
from slicebus.manager.decide.admission.change_filter import needs_reconcile
from slicebus.manager.decide.modes import BesideKueue
from slicebus.manager.state.outbox import LOST, Dispatch
from slicebus.manager.state.views import JobView
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.fingerprints import spec_hash
from unit.manager.objects import EAST, NOW, a_job, a_view, a_workload, asking, condition, short

Manifest = dict[str, Any]
Edit = Callable[[Manifest], object]
"""Changes a Workload."""
HELD = spec_hash(EAST, "w1", {"main": 1}, {"main": 1})
"""Of what the worker shall hold of the slice, admitted as the job asks."""


def annotate(name: str, value: str) -> Edit:
    return lambda workload: workload["metadata"]["annotations"].update({name: value})


def dispatched(**record: Any) -> Edit:
    return annotate(
        api_names.DISPATCHED_ANNOTATION, Dispatch(**({"version": 3, "hash": HELD} | record)).to_annotation()
    )


def shown(type: str) -> Edit:
    return lambda workload: workload["status"]["conditions"].append(condition(type))


NO_RESIZE = condition(
    api_names.RESIZABLE_CONDITION,
    False,
    "StructuralChange",
    "A job that runs keeps its pods: what main requests is changed when it is made anew",
)
"""Somebody has edited the pods."""


def edited(workload: Manifest) -> None:
    workload["status"]["conditions"].append(NO_RESIZE)


def let_go(workload: Manifest) -> None:
    workload["metadata"]["finalizers"] = []


def quota_held(workload: Manifest) -> None:
    workload["metadata"]["finalizers"] = [kueue.RESOURCE_IN_USE_FINALIZER]


def a_slice(*edits: Edit, **how: Any) -> Manifest:
    workload = a_workload(**({"admitted": 1} | how))
    for edit in edits:
        edit(workload)
    return workload


REPORTED, LET_GO = annotate(api_names.APPLIED_ANNOTATION, "3"), let_go
ASKS: dict[str, tuple[Manifest, Edit, bool]] = {
    "the report of what it holds": (a_slice(dispatched()), REPORTED, False),
    "the report of an older version": (a_slice(dispatched(version=4)), REPORTED, True),
    "a report that is taken back": (a_slice(dispatched(), REPORTED), annotate(api_names.APPLIED_ANNOTATION, "2"), True),
    "a report of what was never dispatched": (a_slice(), REPORTED, True),
    "the report that it is suspended": (a_slice(dispatched(suspended=True)), REPORTED, True),
    "the report that it is deleted": (a_slice(dispatched(hash=api_names.ABSENT)), REPORTED, True),
    "a report after an edit of its pods": (
        a_slice(dispatched(), edited),
        REPORTED,
        True,
    ),
    "a report of a slice that has ended": (a_slice(dispatched(), shown("Finished")), REPORTED, True),
    "a dispatch": (a_slice(REPORTED), dispatched(), True),
    "another annotation": (a_slice(), annotate("some", "note"), True),
    "that it is let go": (a_slice(), LET_GO, False),
    "that it is held again": (a_slice(held=False), quota_held, True),
}


@pytest.mark.parametrize(("workload", "edit", "asks"), ASKS.values(), ids=ASKS.keys())
def test_which_changes_of_a_workload_have_the_job_reconciled(workload: Manifest, edit: Edit, asks: bool) -> None:
    assert needs_reconcile(Change(workload, changed_by(workload, edit))) is asks


def refused(reason: str, message: str) -> Edit:
    return lambda workload: workload["status"]["conditions"].append(
        condition(api_names.DISPATCHED_CONDITION, False, reason, message)
    )


def test_a_refusal_in_other_words_has_nothing_reconciled() -> None:
    """The reconcile would publish at once the order that is refused again."""
    before = a_slice(dispatched())
    first, second = (changed_by(before, refused(*how)) for how in (("Forbidden", "no"), ("Invalid", "nor so")))
    assert needs_reconcile(Change(before, first))
    assert not needs_reconcile(Change(first, second))
    assert needs_reconcile(Change(second, changed_by(before, shown(api_names.DISPATCHED_CONDITION))))
    withheld = changed_by(before, refused("FlavorNotFound", "no such flavor"))
    assert needs_reconcile(Change(first, withheld)), "the job has to say what its order waits for"


def test_beside_a_kueue_all_but_other_words_of_a_refusal_has_the_job_reconciled() -> None:
    needs, before = BesideKueue().needs_reconcile, a_slice(dispatched())
    first, second = (changed_by(before, refused(*how)) for how in (("Forbidden", "no"), ("Invalid", "nor so")))
    assert needs(Change(before, first))
    assert not needs(Change(first, second))
    assert needs(Change(second, changed_by(before, shown(api_names.DISPATCHED_CONDITION))))
    assert needs(Change(first, first)), "whatever else has changed"
    for edit in (shown("PodsReady"), lambda workload: workload["metadata"].update(finalizers=["a"])):
        assert needs(Change(first, changed_by(second, edit)))
    for created in (Change(None, first), Change(first, None)):
        assert needs(created)


def test_a_slice_that_was_made_here_waits_for_admission() -> None:
    assert not needs_reconcile(Change(None, a_workload(), is_own=True))
    assert needs_reconcile(Change(None, a_workload()))
    assert needs_reconcile(Change(a_workload(), None))


def ended_smaller() -> Manifest:
    """An Indexed Job of four whose copy ended with three."""
    job = a_job(4, over="Complete")
    job["status"]["completedIndexes"] = "0-2"
    return job | {"spec": job["spec"] | {"completionMode": "Indexed", "completions": 4}}


RECORDS: dict[str, Edit] = {
    "never dispatched": lambda workload: None,
    "dispatched": dispatched(),
    "suspended": dispatched(suspended=True, hash=spec_hash(EAST, "w1", {}, None)),
    "deleted": dispatched(hash=api_names.ABSENT),
    "lost": dispatched(hash=LOST),
    "a copy is left": dispatched(left_copies={"west": 2}),
    "without a report before": annotate(api_names.APPLIED_ANNOTATION, "1"),
}
STATES: dict[str, Edit] = {
    "running": lambda workload: None,
    "evicted": shown("Evicted"),
    "ended": shown("Finished"),
    "edited": edited,
    "being deleted": lambda workload: workload["metadata"].update(deletionTimestamp=NOW),
}
OTHER_PODS = {"template": {"spec": {"containers": []}}}
JOBS: dict[str, Manifest | None] = {
    "a job": a_job(),
    "one that asks for more": asking(1, 3),
    "one with other pods": a_job() | {"spec": a_job()["spec"] | OTHER_PODS},
    "one with fewer of them": a_job() | {"spec": a_job(0)["spec"] | OTHER_PODS},
    "one that is suspended": a_job() | {"spec": a_job()["spec"] | {"suspend": True}},
    "one that has ended": a_job(over="Complete"),
    "one that has ended with another size": ended_smaller(),
    "one that goes": a_job(deleting=True),
    "none": None,
}
NEWER: dict[str, list[Manifest]] = {
    "alone": [],
    "replaced": [a_workload("w2", admitted=1, replaces="w1")],
    "replaced, and edited": [a_workload("w2", admitted=1, replaces="w1", conditions=(NO_RESIZE,))],
}


def changed_by(workload: Manifest, *edits: Edit) -> Manifest:
    copied = copy.deepcopy(workload)
    for edit in edits:
        edit(copied)
    return copied


def _views() -> Iterator[tuple[Callable[[Manifest], JobView], Manifest]]:
    """The chain around one of its Workloads, and that Workload."""
    for job, record, state, newer in product(JOBS.values(), RECORDS.values(), STATES.values(), NEWER.values()):

        def view(workload: Manifest, job: Manifest | None = job, newer: list[Manifest] = newer) -> JobView:
            return a_view(job, workload, *newer, published=3)

        yield view, changed_by(a_workload("w1", admitted=1), record, state)


@pytest.mark.parametrize("edit", [REPORTED, LET_GO], ids=["a report", "let go"])
def test_a_filtered_change_leaves_nothing_more_to_do(edit: Edit) -> None:
    passed_over = 0
    for view, before in _views():
        after = changed_by(before, edit)
        if needs_reconcile(Change(before, after)):
            continue
        passed_over += 1
        commands = builtin.reconcile(view(before), NOW)
        if not any(map(_asks, commands)):
            assert not set(map(_in_short, builtin.reconcile(view(after), NOW))) - set(map(_in_short, commands))
    assert passed_over > 30


def _asks(command: Command) -> bool:
    """Whether carrying it out has the job reconciled again."""
    return isinstance(command, Create | Requeue) or (isinstance(command, Patch) and "release" not in _in_short(command))


def _in_short(command: Command) -> str:
    if isinstance(command, Patch) and isinstance(command.body, dict) and "spec" in command.body:
        return f"{command.target['metadata']['name']} {command.body}"
    return str(short(command))
