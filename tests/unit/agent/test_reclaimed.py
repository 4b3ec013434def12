"""The manager takes pods of a job back for others, and gives them back: what its worker sets, and what it then says."""

from typing import Any

import pytest
from msgspec import UNSET, structs

from slicebus.agent.decide.job import reconcile, waiting
from slicebus.agent.decide.order import orders
from slicebus.agent.state import annotations
from slicebus.agent.state.views import WorkerView
from slicebus.decisions.commands import Command, Emit, Patch, Publish
from slicebus.proto.messages import Counts, RequestKey, ScaleRequest, WorkloadSpec
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.api import api_names
from slicebus.slices.workload.waiting import Waiting
from unit.agent.objects import EAST, JOB_STEP, NOW, a_job, a_pod, a_spec, a_view, resizes, shorts

Manifest = dict[str, Any]


def word(
    size: int, *, granted: int = 8, id: str = "word-1", reason: str = api_names.RECLAIMED, version: int = 2
) -> WorkloadSpec:
    """An order by which the manager sets a size."""
    return structs.replace(
        a_spec(version, granted=granted, parallelism=size),
        resized_because="so it is",
        resized_reason=reason,
        taken_back=id,
    )


def running(size: int, *, baseline: int = 8, granted: int = 8, heard: str | None = None, **how: Any) -> Manifest:
    """A job of the worker; `heard` is the last word of the manager."""
    job = a_job(size, baseline=baseline, granted=granted, **how)
    if heard is not None:
        noted = dict.fromkeys((api_names.TAKEN_BACK_ANNOTATION, api_names.FOLLOWS_ANNOTATION), heard)
        job["metadata"]["annotations"] |= noted
    return job


def set_by(order: WorkloadSpec, job: Manifest) -> list[Command]:
    return resizes(order, a_view(job))


def after(order: WorkloadSpec, job: Manifest) -> Manifest:
    """The job after the order is noted, which is of the same size before, or in the same write."""
    [stamped, *_] = orders.workload_spec(order, EAST, now=NOW)[JOB_STEP].decide(a_view(job))
    assert isinstance(stamped, Patch)
    assert isinstance(stamped.body, dict)
    return merge_patch(job, stamped.body)


BACK = {"granted": 8, "reason": api_names.RESTORED}
MORE = {"reason": api_names.GROWN}
SET: dict[str, tuple[WorkloadSpec, Manifest, int | None]] = {
    "pods are taken": (word(4), running(8), 4),
    "its user wants more by now": (word(4), running(12), 4),
    "its user wants even less by now": (word(4), running(3), None),
    "the order comes twice": (word(4), running(4, baseline=4, heard="word-1"), None),
    "the order was carried out, and not noted": (word(4), running(4), None),
    "its user has resized it since": (word(4), running(6, baseline=4, heard="word-1"), None),
    "more are taken": (word(2, id="word-2"), running(4, baseline=4, heard="word-1"), 2),
    "the same again, after its user's resize": (word(4, id="word-2"), running(6, baseline=4, heard="word-1"), 4),
    "it may have more later": (word(4, **MORE), running(4, baseline=4), None),
    "it may have more later, and its user wants more by now": (word(4, **MORE), running(6, baseline=4), None),
    "it has more": (word(8, **MORE), running(4, baseline=4, granted=4, heard="word-1"), 8),
    "it has more, and its user has resized it": (word(8, **MORE), running(6, baseline=4, heard="word-1"), None),
    "pods come back": (word(8, **BACK), running(4, baseline=4, granted=4, heard="word-1"), 8),
    "they come back, and its user has resized it": (word(8, **BACK), running(3, baseline=4, heard="word-1"), None),
    "they come back to one that wants more": (word(8, **BACK), running(9, baseline=4, heard="word-1"), None),
    "they are back": (word(8, **BACK), running(8, baseline=8, heard="word-1"), None),
    "back, and never gone": (word(8, **BACK), running(8), None),
}


@pytest.mark.parametrize(("order", "job", "size"), SET.values(), ids=SET.keys())
def test_the_size_that_is_set(order: WorkloadSpec, job: Manifest, size: int | None) -> None:
    resized = [("train", f"/spec/parallelism={size}"), ("tell Job", order.resized_reason)]
    assert shorts(set_by(order, job)) == (resized if size is not None else [])


@pytest.mark.parametrize(
    ("order", "job", "warning"),
    [(word(4), running(8), True), (word(8, **BACK), running(4, baseline=4, heard="word-1"), False)],
    ids=["taken", "back"],
)
def test_the_event_warns_of_what_is_lost(order: WorkloadSpec, job: Manifest, warning: bool) -> None:
    [told] = [command for command in set_by(order, job) if isinstance(command, Emit)]
    assert (told.warning, told.note) == (warning, "so it is")


def test_the_word_is_noted_and_goes_with_an_order_without_one() -> None:
    noted = after(word(4), running(8))["metadata"]["annotations"]
    assert (noted[api_names.FOLLOWS_ANNOTATION], noted[api_names.TAKEN_BACK_ANNOTATION]) == ("word-1", "word-1")
    assert annotations.baseline(after(word(4), running(8))) == {"main": 4}
    plain = after(a_spec(3, granted=5, parallelism=5), running(4, baseline=4, heard="word-1"))
    assert api_names.FOLLOWS_ANNOTATION not in plain["metadata"]["annotations"]
    assert (
        api_names.FOLLOWS_ANNOTATION
        not in after(a_spec(2, granted=8, parallelism=8), running(8))["metadata"]["annotations"]
    )


def shown(job: Manifest) -> tuple[str, str, Counts, Counts] | None:
    waits = Waiting.from_manifest(job)
    return (waits.reason, waits.message, waits.wanted, waits.granted) if waits is not None else None


def reconciled(job: Manifest) -> Manifest:
    """The job after what it shows is brought up to date."""
    for command in waiting.reconcile(view_of(job), now=NOW):
        if isinstance(command, Patch):
            assert isinstance(command.body, dict)
            job = merge_patch(job, command.body)
    return job


WAITS = (api_names.RECLAIMED, "so it is", {"main": 8}, {"main": 4})


def test_it_shows_that_it_waits_for_what_was_taken_in_the_write_that_takes_it() -> None:
    job = after(structs.replace(word(4), waits_for={"main": 8}), running(8))
    assert shown(job) == WAITS
    assert waiting.reconcile(view_of(job), now=NOW) == []


@pytest.mark.parametrize(
    ("size", "baseline", "expected"),
    [
        (6, 6, (api_names.RECLAIMED, "so it is", {"main": 8}, {"main": 6})),
        (8, 8, None),
        (3, 4, None),
        (6, 4, None),
    ],
    ids=["some are back", "all are back", "its user has made it smaller", "its user has made it larger"],
)
def test_it_shows_so_until_they_are_back_or_somebody_resizes_it(
    size: int, baseline: int, expected: tuple[str, str, Counts, Counts] | None
) -> None:
    job = after(structs.replace(word(4), waits_for={"main": 8}), running(8))
    job["spec"]["parallelism"] = size
    noted = {api_names.BASELINE_ANNOTATION: annotations.encode_counts({"main": baseline})}
    assert shown(reconciled(merge_patch(job, {"metadata": {"annotations": noted}}))) == expected


def test_a_job_that_lost_only_what_nobody_had_asked_for_waits_for_nothing() -> None:
    assert shown(after(word(4), running(8))) is None


def requested(job: Manifest, *pods: Manifest) -> tuple[Manifest, ScaleRequest | None]:
    """The job and the message after both steps of a request."""
    for _ in range(2):
        for command in reconcile.request(view_of(job, *pods), EAST):
            if isinstance(command, Patch):
                assert isinstance(command.body, dict)
                job = merge_patch(job, command.body)
            elif isinstance(command, Publish):
                assert isinstance(command.message, ScaleRequest)
                return job, command.message
    return job, None


def view_of(job: Manifest, *pods: Manifest) -> WorkerView:
    return a_view(job, pods=pods)


EARLIER = annotations.PendingRequests.after(
    None, RequestKey("worker-uid", 1), wanted={"main": 8}, granted={"main": 1}
).answered(RequestKey("worker-uid", 1))


@pytest.mark.parametrize("earlier", [None, EARLIER], ids=["never resized", "resized before"])
def test_it_says_what_it_follows_when_the_pods_are_gone(earlier: annotations.PendingRequests | None) -> None:
    job = after(word(4), running(8, requested=earlier))
    job["spec"]["parallelism"], job["metadata"]["generation"] = 4, 2
    pods = [a_pod(f"p{number}") for number in range(8)]
    assert requested(job, *pods) == (job, None)
    job, message = requested(job, *pods[:4])
    assert message is not None
    assert (message.wanted, message.follows) == ({"main": 4}, "word-1")
    assert annotations.granted(job) == {"main": 4}
    assert requested(after(word(4, granted=4, version=3), job), *pods[:4])[1] is not None, "until it is answered"


def test_a_users_resize_follows_nothing() -> None:
    job = after(word(4), running(8))
    job["spec"]["parallelism"], job["metadata"]["generation"] = 3, 3
    _, message = requested(job)
    assert message is not None
    assert (message.wanted, message.follows) == ({"main": 3}, UNSET)


def test_a_job_without_a_word_follows_nothing() -> None:
    _, message = requested(running(4, baseline=8))
    assert message is not None
    assert message.follows is UNSET


def test_it_says_so_of_what_has_come_back() -> None:
    before = annotations.PendingRequests.after(
        None, RequestKey("worker-uid", 2), wanted={"main": 4}, granted={"main": 8}, follows="word-1"
    )
    job = running(4, baseline=4, granted=4, heard="word-1", requested=before, generation=2)
    order = structs.replace(word(8, **BACK), answers=before.key)
    job = after(order, job)
    job["spec"]["parallelism"], job["metadata"]["generation"] = 8, 3
    _, message = requested(job, *(a_pod(f"p{number}") for number in range(4)))
    assert message is not None
    assert (message.wanted, message.follows) == ({"main": 8}, "word-1")
