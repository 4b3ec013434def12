"""Pods that end for good give their quota back: a job asks for fewer, a while after the first of them."""

from typing import Any

import pytest
from msgspec import UNSET, structs

from slicebus.agent.decide.job import finishing, reconcile
from slicebus.agent.decide.job.finishing import SETTLES_S
from slicebus.agent.state.annotations import PendingRequest, PendingRequests
from slicebus.agent.state.views import Finishing, WorkerJobReading, WorkerView
from slicebus.decisions.commands import Forget, Publish, Remember, Requeue
from slicebus.proto.messages import Counts, RequestKey, ScaleRequest
from unit.agent.objects import EAST, KEY, a_job

SINCE = Finishing(since_s=100.0)
SETTLED = Finishing(since_s=100.0, settled=True)


WAITS = PendingRequest("worker-uid", 2, {"main": 4})


def asked(wanted: int, finished: int = 0, **how: Any) -> PendingRequests:
    """The last request, which the broker and the manager have."""
    told: Counts = {"main": finished} if finished else {}
    return PendingRequests("worker-uid", 2, {"main": wanted}, finished=told, instead_of={"main": 5}, **how)


def a_view(
    succeeded: int,
    *,
    parallelism: int = 5,
    completions: int | None = 5,
    granted: int = 5,
    requested: PendingRequests | None = None,
    known: Finishing | None = None,
    **how: Any,
) -> WorkerView:
    """A Job of five pods, of which so many have succeeded."""
    job = a_job(parallelism, granted=granted, baseline=5, requested=requested, **how)
    if completions is not None:
        job["spec"]["completions"] = completions
    job["status"] |= {"succeeded": succeeded}
    published = requested.key if requested else None
    return WorkerView(
        key=KEY,
        job=job,
        reading=WorkerJobReading.from_manifest(job),
        scale_target=job,
        published=published,
        finishing=known,
    )


def noted(view: WorkerView, now_s: float) -> WorkerView:
    """The view after what was noted of it."""
    for command in finishing.reconcile(view, now_s=now_s):
        assert isinstance(command, Remember | Forget)
        view = structs.replace(view, finishing=command.value if isinstance(command, Remember) else None)
    return view


def test_they_are_told_of_together_after_a_while() -> None:
    view = noted(a_view(1), 100.0)
    assert (view.finishing, view.desired, view.finished) == (SINCE, {"main": 5}, {})
    assert reconcile.request(view, EAST) == []
    assert noted(view, 100.0 + SETTLES_S / 2) == view

    later = noted(a_view(3, known=view.finishing), 100.0 + SETTLES_S)
    assert (later.finishing, later.desired, later.finished) == (SETTLED, {"main": 2}, {"main": 3})


def test_the_request_lowers_the_grant_and_names_them() -> None:
    [patch] = reconcile.request(a_view(3, known=SETTLED), EAST)
    annotations = patch.body["metadata"]["annotations"]  # type: ignore[union-attr]
    assert annotations["slicebus.dev/granted"] == '{"main":2}'
    written = a_view(3, known=SETTLED)
    assert written.job is not None
    written.job["metadata"]["annotations"] |= annotations
    view = structs.replace(written, reading=WorkerJobReading.from_manifest(written.job))
    [publish, *_] = reconcile.request(view, EAST)
    assert isinstance(publish, Publish)
    assert isinstance(publish.message, ScaleRequest)
    assert (publish.message.wanted, publish.message.finished) == ({"main": 2}, {"main": 3})
    assert publish.message.granted == {"main": 5}


def test_a_request_without_any_is_as_it_was() -> None:
    [publish, *_] = reconcile.request(
        structs.replace(a_view(0, granted=4, parallelism=4, requested=asked(4, unanswered=(WAITS,))), published=None),
        EAST,
    )
    assert isinstance(publish, Publish)
    assert isinstance(publish.message, ScaleRequest)
    assert publish.message.finished is UNSET


def test_what_was_told_is_noted_no_more() -> None:
    view = noted(a_view(3, granted=2, requested=asked(2, 3), known=SETTLED), 200.0)
    assert view.finishing is None
    assert view.desired == {"main": 2}
    assert reconcile.request(view, EAST) == []


def test_the_next_ones_wait_again_while_the_last_ones_stay_told() -> None:
    view = noted(a_view(4, granted=2, requested=asked(2, 3)), 200.0)
    assert (view.finishing, view.desired) == (Finishing(since_s=200.0), {"main": 2})


@pytest.mark.parametrize(
    ("view", "wanted"),
    [
        (a_view(3, parallelism=8, granted=2, requested=asked(2, 3)), 2),
        (a_view(3, parallelism=8, completions=20), 8),
        (a_view(3, parallelism=1, granted=2, requested=asked(2, 3)), 1),
        (a_view(3, parallelism=8), 5),
        (a_view(0, granted=2, requested=asked(2, 3)), 5),
    ],
    ids=["past what is left", "with completions for it", "down", "past what is left, untold", "made anew"],
)
def test_a_resize_meanwhile_asks_for_no_pod_that_would_not_run(view: WorkerView, wanted: int) -> None:
    assert view.desired == {"main": wanted}


@pytest.mark.parametrize("how", [{"suspended": True}, {"deleting": True}, {"over": "Complete"}], ids=str)
def test_nothing_is_told_of_a_job_that_does_not_run(how: dict[str, Any]) -> None:
    assert noted(a_view(3, known=SINCE, **how), 200.0).finishing is None


def test_it_is_looked_at_again_when_it_is_time() -> None:
    [again] = finishing.requeue_after(a_view(3, known=SINCE), now_s=101.0)
    assert isinstance(again, Requeue)
    assert again.delay_s == pytest.approx(SETTLES_S - 1.0, abs=0.2)
    assert finishing.requeue_after(a_view(3, known=SETTLED), now_s=101.0) == []
    assert finishing.requeue_after(a_view(3), now_s=101.0) == []


def test_a_request_again_names_them_again() -> None:
    again = asked(2, 3).renewed({"main": 5})
    assert (again.key, again.wanted, again.finished) == (RequestKey("worker-uid", 3), {"main": 2}, {"main": 3})
