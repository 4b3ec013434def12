"""The worker's size request is on a Workload of its job. What a job's user writes onto the job decides nothing."""

from datetime import datetime
from typing import Any

import msgspec
import pytest

from slicebus.decisions.commands import Command, Create, Patch
from slicebus.kube.resources import JOBS, WORKLOADS
from slicebus.manager.decide.admission.builtin import reconcile
from slicebus.manager.decide.job.slice_history import SliceHistory, collect
from slicebus.manager.decide.manifests import one_write_each
from slicebus.manager.decide.messages import message_handlers
from slicebus.manager.decide.order import record_copies, size_requests
from slicebus.manager.state.annotations import SizeRequest, SpecCounts
from slicebus.manager.state.store import ManagerStore
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import ScaleRequest
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.api import api_names
from unit.manager.objects import NOW, REF, a_job, a_workload, an_envelope, condition, requested, withdrawn

Manifest = dict[str, Any]
FINISHED = (condition("Finished", True, "WorkloadSliceReplaced"),)


def asked(name: str, request: SizeRequest | None, **how: Any) -> Manifest:
    """A slice whose Workload has a request."""
    workload = a_workload(name, **how)
    if request is not None:
        workload["metadata"]["annotations"][api_names.REQUESTED_ANNOTATION] = request.to_annotation()
    return workload


def seen(job: Manifest, *workloads: Manifest) -> JobView:
    """The view as the manager makes it of its caches."""
    store = ManagerStore()
    store.jobs["Job"].put(job)
    for workload in workloads:
        store.workloads.put(workload)
    return store.view(REF)


def with_request(request: SizeRequest, **more: Any) -> Manifest:
    """A job with a request in its own annotation."""
    return a_job(annotations={api_names.REQUESTED_ANNOTATION: request.to_annotation()}, **more)


RUNS = a_workload(count=4, admitted=4, dispatched=2, applied=2)
NOTHING = requested({"main": 0}, baseline=4, generation=10**9, revision=10**9, granted={"main": 0}, epoch=10**9)
OF_THE_WORKER = requested({"main": 4}, baseline=1, revision=3)


@pytest.mark.parametrize(
    "request_",
    [
        NOTHING,
        msgspec.structs.replace(NOTHING, finished={"main": 4}),
        requested({"main": 3}, baseline=4),
        requested({}, baseline=4),
        requested({"other": 9}, baseline=4),
        requested({"main": 4}, baseline=4, finished={"main": 4}),
    ],
    ids=["none", "none is left to run", "fewer", "of no pod set", "of another pod set", "as many, and all have ended"],
)
@pytest.mark.parametrize("kept", [None, SizeRequest.nothing(), OF_THE_WORKER], ids=["an old slice", "none", "one"])
def test_what_a_user_writes_onto_the_job_frees_nothing(request_: SizeRequest, kept: SizeRequest | None) -> None:
    view = seen(with_request(request_, parallelism=4), asked("w1", kept, count=4, admitted=4, dispatched=2, applied=2))
    assert view.requested is None or view.requested.counts in ({}, {"main": 4})
    for command in reconcile(view, NOW):
        assert not (isinstance(command, Patch) and "podSets" in str(command.body))
        assert not (isinstance(command, Patch) and "reclaimablePods" in str(command.body))


def test_nor_does_the_note_of_what_is_in_the_spec_until_the_worker_has_no_pod_of_it() -> None:
    """It says no more than an edit of the spec."""
    note = SpecCounts(written={"main": 4}, own={"main": 0}).to_annotation()
    view = seen(
        a_job(4, annotations={api_names.SPEC_COUNTS_ANNOTATION: note}),
        asked("w1", SizeRequest.nothing(), count=4, admitted=4),
    )
    assert view.desired.own == seen(a_job(0), RUNS).desired.own == {"main": 0}
    assert not [each for each in reconcile(view, NOW) if isinstance(each, Patch) and "podSets" in str(each.body)]


@pytest.mark.parametrize(
    "note",
    [
        "{",
        "[]",
        '{"written":{"main":4},"own":{"main":-1}}',
        '{"written":{"main":4},"own":{"main":3000000000}}',
        '{"written":{"main":4},"own":{"a":1}}',
    ],
)
def test_a_note_that_makes_no_sense_is_none(note: str) -> None:
    assert seen(a_job(4, annotations={api_names.SPEC_COUNTS_ANNOTATION: note}), RUNS).desired.own == {"main": 4}


def test_what_an_earlier_version_kept_on_the_job_is_taken_over() -> None:
    """A growth that waits keeps its place."""
    job, holder = with_request(requested({"main": 5})), asked("w1", None, admitted=1, dispatched=2, applied=2)
    view = seen(job, holder, asked("w2", None, count=5, replaces="w1"))
    assert view.desired.counts == {"main": 5}
    [taken] = reconcile(view, NOW)
    assert isinstance(taken, Patch)
    assert taken.target["metadata"]["name"] == "w1"
    after = seen(a_job(), merge_patch(holder, taken.body), asked("w2", None, count=5, replaces="w1"))
    assert after.desired.counts == {"main": 5}


# --- where it is ----------------------------------------------------------------------------------------------------


def ask(generation: int = 3, **wanted: int) -> ScaleRequest:
    return ScaleRequest(
        job=REF, workload="w1", worker_uid="w-1", worker_generation=generation, granted={"main": 1}, wanted=wanted
    )


def written_on(commands: list[Command]) -> list[str]:
    return [each.target["metadata"]["name"] for each in commands if isinstance(each, Patch)]


def test_each_new_slice_has_the_newest() -> None:
    [create, *_] = reconcile(seen(a_job(), asked("w1", requested({"main": 5}, revision=7), admitted=1)), NOW)
    assert isinstance(create, Create)
    copied = SizeRequest.from_manifest(create.manifest)
    assert copied is not None
    assert (copied.counts, copied.revision) == ({"main": 5}, 7)


PLACES: dict[str, tuple[list[Manifest], str]] = {
    "one with quota": ([asked("w1", None, admitted=1)], "w1"),
    "one with quota beside one that waits": (
        [asked("w1", None, admitted=1), asked("w2", OF_THE_WORKER, count=4)],
        "w1",
    ),
    "the newest with quota": (
        [asked("w1", OF_THE_WORKER, admitted=1, conditions=FINISHED), asked("w2", None, count=4, admitted=4)],
        "w2",
    ),
}


@pytest.mark.parametrize(("workloads", "place"), PLACES.values(), ids=PLACES.keys())
def test_a_request_is_written_on_what_lasts_and_is_the_newest_by_then(workloads: list[Manifest], place: str) -> None:
    view = seen(a_job(), *workloads)
    [patch] = message_handlers.scale_request(view, ask(main=6), an_envelope(epoch=2))
    assert isinstance(patch, Patch)
    assert patch.target["metadata"]["name"] == place
    after = seen(a_job(), *(merge_patch(w, patch.body) if w is patch.target else w for w in workloads))
    assert after.desired.counts == {"main": 6}


def test_what_a_slice_had_that_is_given_up_goes_on_with_one_that_lasts() -> None:
    newer = requested({"main": 1}, revision=9)
    gone = asked("w2", newer, count=4, conditions=(condition("Finished", True, "OutOfSync"),))
    view = seen(a_job(), asked("w1", OF_THE_WORKER, admitted=1), gone)
    assert view.requested == newer
    [patch] = size_requests.carry(view)
    assert isinstance(patch, Patch)
    assert written_on([patch]) == ["w1"]
    assert SizeRequest.from_manifest(patch.body) == newer  # type: ignore[arg-type]
    assert size_requests.carry(seen(a_job(), asked("w1", newer, admitted=1), gone)) == []


def test_until_then_that_slice_is_kept() -> None:
    history, moment = SliceHistory(limit=0, max_age_s=0), datetime.fromisoformat(NOW)
    old = asked("w1", OF_THE_WORKER, admitted=1, conditions=FINISHED, held=False)
    view = seen(a_job(), old, asked("w2", None, count=4, admitted=4))
    assert collect(view, history, moment) == []
    view = seen(a_job(), old, asked("w2", OF_THE_WORKER, count=4, admitted=4))
    assert len(collect(view, history, moment)) == 1


def test_a_job_that_outlives_its_slices_knows_what_is_late_and_no_size() -> None:
    workload = withdrawn()
    request = requested({"main": 5}, speaker="uid-of-east", epoch=4, sequence=2)
    workload["metadata"]["annotations"][api_names.REQUESTED_ANNOTATION] = request.to_annotation()
    [patch] = record_copies.copies(seen(a_job(), workload))
    assert isinstance(patch, Patch)
    left = seen(merge_patch(a_job(), patch.body))
    assert left.requested is not None
    assert (left.requested.counts, left.requested.epoch, left.requested.sequence) == ({}, 4, 2)
    assert left.desired.counts == {"main": 1}


def test_annotations_of_one_object_are_one_write() -> None:
    one, other = a_workload("w1"), a_workload("w2")

    def note(target: Manifest, name: str, **more: Any) -> Patch:
        return Patch(resource=WORKLOADS, target=target, body={"metadata": {"annotations": {name: "1"}} | more})

    finalizers, on_job = note(one, "c", finalizers=[]), Patch(resource=JOBS, target=a_job(), body={"spec": {}})
    merged = one_write_each([note(one, "a"), note(other, "a"), finalizers, note(one, "b"), on_job])
    assert [each.body for each in merged if isinstance(each, Patch)] == [
        {"metadata": {"annotations": {"a": "1", "b": "1"}}},
        {"metadata": {"annotations": {"a": "1"}}},
        finalizers.body,
        {"spec": {}},
    ]
