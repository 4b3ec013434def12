"""Why a job waits: the annotation on the manager's job, and the notice to its worker."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import structs

from slicebus.decisions.commands import Command, Emit, Forget, Patch, Publish, Remember, Requeue
from slicebus.manager.decide.job import waiting
from slicebus.manager.state.tables import ManagerTable
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import ClusterName, JobPhase, Manifest, Pending, Status, Waits
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.api_names import RESIZABLE_CONDITION
from slicebus.slices.workload.waiting import PODS_REFUSED, SURPLUS, Waiting
from slicebus.slices.workload.workload import SliceKey
from unit.manager.objects import NOW, a_job, a_view, a_workload, asking, condition, requested

SINCE = "2026-01-01T00:00:00Z"
OLD = a_workload(admitted=1, dispatched=1, applied=1)
KEY = SliceKey("team/w2")
WHY = "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor spot, 4 more needed"
SHOWN = Waiting.of(
    {"main": 5}, {"main": 1}, reason="Pending", message=WHY, since=SINCE, would_admit="4 more cpu of flavor spot"
)
SAID = Waits(wanted={"main": 1}, reason=SURPLUS, message="2 pods run that are no longer wanted", since=NOW)
EAST = ClusterName("east")


def pending(message: str = WHY, count: int = 5, **how: Any) -> Manifest:
    shown = condition("QuotaReserved", False, "Pending", message)
    return a_workload("w2", count, **({"replaces": "w1", "conditions": (shown,)} | how))


def a_wait(job: Manifest | None = None, slice: Manifest | None = None, **changes: Any) -> JobView:
    """A job of one pod that wants five."""
    given = {"would_admit": {KEY: SHOWN.would_admit}} | changes
    return a_view(job or asking(1, 5), OLD, slice or pending(), **given)


def with_annotation(job: Manifest, text: str) -> Manifest:
    return merge_patch(job, {"metadata": {"annotations": {api_names.WAITING_ANNOTATION: text}}})


def shown(job: Manifest, waits: Waiting = SHOWN) -> Manifest:
    return with_annotation(job, waits.to_annotation())


def written(commands: Sequence[Command]) -> list[Any]:
    """What is written onto the job; None for what is taken off."""
    found = []
    for command in commands:
        if isinstance(command, Patch):
            assert isinstance(command.body, dict)
            assert (command.subresource, command.body.keys()) == ("", {"metadata"}), "it would change the generation"
            text = command.body["metadata"]["annotations"][api_names.WAITING_ANNOTATION]
            found.append(Waiting.from_manifest(command.body) if text else None)
    return found


def told(commands: Sequence[Command]) -> list[Pending]:
    return [c.message for c in commands if isinstance(c, Publish) and isinstance(c.message, Pending)]


def test_a_waiting_resize_is_shown_on_the_job() -> None:
    assert written(waiting.reconcile(a_wait())) == [SHOWN]


def test_it_is_written_once() -> None:
    assert written(waiting.reconcile(a_wait(shown(asking(1, 5))))) == []


def test_other_numbers_in_a_message_are_no_write() -> None:
    other = pending(WHY.replace("4 more", "3 more"))
    view = a_wait(shown(asking(1, 5)), other, would_admit={KEY: "3 more cpu of flavor spot"})
    assert written(waiting.reconcile(view)) == []


@pytest.mark.parametrize(
    "slice",
    [
        pending(count=6),
        pending(WHY.replace("flavor spot", "flavor reserved")),
        pending(WHY.replace("cpu", "memory")),
    ],
    ids=["another size", "another flavor", "another resource"],
)
def test_another_reason_is_a_write(slice: Manifest) -> None:
    [found] = written(waiting.reconcile(a_wait(shown(asking(1, 5)), slice)))
    assert found.since == SINCE


def test_a_manager_that_starts_again_keeps_what_would_let_it_in() -> None:
    """The admission cycle decides nothing again that is shown."""
    assert written(waiting.reconcile(a_wait(shown(asking(1, 5)), would_admit={}))) == []
    [notice] = told(waiting.reconcile(a_wait(shown(asking(1, 5)), would_admit={})))
    assert notice.would_admit == SHOWN.would_admit


def test_a_first_slice_waits_without_a_notice() -> None:
    first = a_workload("w1", 3, conditions=(condition("QuotaReserved", False, "Pending", "no"),))
    commands = waiting.reconcile(a_view(a_job(3), first))
    assert written(commands) == [Waiting.of({"main": 3}, {}, reason="Pending", message="no", since=SINCE)]
    assert written(commands)[0].granted == {"main": 0}
    assert told(commands) == []


OVER: dict[str, JobView] = {
    "admitted": a_view(shown(asking(1, 5)), OLD, a_workload("w2", 5, admitted=5, replaces="w1")),
    "withdrawn": a_view(shown(asking(1, 1)), OLD),
    "ended": a_wait(shown(a_job(over="Complete"))),
    "let go": a_view(shown(a_job(managed=False)), a_workload(held=False, conditions=(condition("Finished"),))),
    "not decided yet": a_wait(shown(asking(1, 5)), pending(conditions=())),
}


@pytest.mark.parametrize("view", OVER.values(), ids=OVER.keys())
def test_it_goes_when_it_is_over(view: JobView) -> None:
    assert written(waiting.reconcile(view)) == [None]


def test_a_job_that_opts_out_goes_on_showing_it() -> None:
    view = a_wait(shown(a_job(managed=False), SHOWN))
    assert written(waiting.reconcile(view)) == []


def test_a_job_that_goes_is_left_alone() -> None:
    assert waiting.reconcile(a_wait(shown(a_job(deleting=True)))) == []
    assert waiting.reconcile(a_view(None, OLD)) == []


@pytest.mark.parametrize("text", ["", "{", "{}", "[]", '{"wanted":{"main":"5"}}', "x" * 1000])
def test_what_somebody_else_wrote_means_nothing(text: str) -> None:
    assert written(waiting.reconcile(a_wait(with_annotation(asking(1, 5), text)))) == [SHOWN]
    assert written(waiting.reconcile(a_view(with_annotation(asking(1, 1), text), OLD))) == [None]


def test_a_forged_reason_is_replaced() -> None:
    forged = structs.replace(SHOWN, granted={"main": 5}, since=NOW, message="nothing")
    assert written(waiting.reconcile(a_wait(shown(asking(1, 5), forged)))) == [SHOWN]


def test_a_refused_resize_is_shown_beside_the_granted_counts() -> None:
    refused = condition(RESIZABLE_CONDITION, False, "StructuralChange", "it adds more")
    job = a_job(annotations={api_names.REQUESTED_ANNOTATION: requested({"main": 1, "more": 2}).to_annotation()})
    commands = waiting.reconcile(a_view(job, a_workload(admitted=1, dispatched=1, applied=1, conditions=(refused,))))
    [found] = written(commands)
    assert (found.reason, found.message, found.since) == ("StructuralChange", "it adds more", SINCE)
    assert (found.wanted, found.granted) == ({"main": 1, "more": 2}, {"main": 1, "more": 0})
    [notice] = told(commands)
    assert (notice.reason, notice.wanted) == ("StructuralChange", {"main": 1, "more": 2})


def test_edited_pods_of_the_same_counts_are_no_size_that_waits() -> None:
    edited = condition(RESIZABLE_CONDITION, False, "StructuralChange", "A job that runs keeps its pods")
    view = a_view(a_job(), a_workload(admitted=1, dispatched=1, applied=1, conditions=(edited,)))
    assert waiting.reconcile(view) == []


def test_beside_a_kueue_no_condition_says_that_a_resize_is_refused() -> None:
    job = a_job(annotations={api_names.REQUESTED_ANNOTATION: requested({"main": 1, "more": 2}).to_annotation()})
    commands = waiting.reconcile(a_view(job, OLD))
    [found], [notice] = written(commands), told(commands)
    assert found.message == notice.message
    assert found.message.endswith("it adds more")


def test_a_worker_that_asked_gets_the_notice_once() -> None:
    commands = waiting.reconcile(a_wait())
    [publish] = [command for command in commands if isinstance(command, Publish)]
    assert publish.correlation == "chain-1"
    assert publish.message == Pending(
        job=a_wait().ref,
        workload="w2",
        worker_uid="w-1",
        worker_generation=2,
        wanted={"main": 5},
        reason="Pending",
        message=WHY,
        since=SINCE,
        would_admit=SHOWN.would_admit,
    )
    [remember] = [command for command in commands if isinstance(command, Remember)]
    assert remember == Remember(
        table=ManagerTable.NOTICES, key=a_wait().ref, value=waiting.notice_key(told(commands)[0])
    )
    again = a_wait(last_notice=remember.value)
    assert told(waiting.reconcile(again)) == []
    numbers = a_wait(None, pending(WHY.replace("4 more", "3 more")), last_notice=remember.value)
    assert told(waiting.reconcile(numbers)) == []


def test_the_same_size_asked_for_again_gets_another_notice() -> None:
    """The worker has forgotten the reason with the request before."""
    known = waiting.notice_key(told(waiting.reconcile(a_wait()))[0])
    again = a_wait(asking(1, 5, generation=4), last_notice=known)
    assert [notice.worker_generation for notice in told(waiting.reconcile(again))] == [4]


def test_a_notice_that_the_broker_does_not_confirm_is_not_known_any_more() -> None:
    """The worker may have it or not: where the reason is the one before again, that is told."""
    view = a_wait(last_notice="before")
    [publish] = [command for command in waiting.reconcile(view) if isinstance(command, Publish)]
    assert publish.unless_confirmed == Forget(table=ManagerTable.NOTICES, key=view.ref)


def test_what_was_told_is_forgotten_when_it_is_over() -> None:
    over = a_view(asking(1, 1), OLD, last_notice="before")
    assert waiting.reconcile(over) == [Forget(table=ManagerTable.NOTICES, key=over.ref)]


NOBODY = {
    "nobody has asked": a_wait(a_job()),
    "the job is gone": a_view(None, OLD, pending()),
    "it runs nowhere": a_view(asking(1, 5), a_workload(), pending()),
}


@pytest.mark.parametrize("view", NOBODY.values(), ids=NOBODY.keys())
def test_a_notice_needs_a_worker_that_asked(view: Any) -> None:
    assert told(waiting.reconcile(view)) == []


def test_a_decision_that_writes_the_job_comes_first() -> None:
    """It is decided again after that write, and a second one of the same version would conflict."""
    view = a_wait()
    assert view.job is not None
    patch = Patch(resource=waiting.JOB_RESOURCES["Job"], target=view.job, body={"spec": {}})
    assert waiting.extend([patch], view) == [patch]
    assert written(waiting.extend([], view)) == [SHOWN]


# --- what only the worker knows -------------------------------------------------------------------------------------


def a_report(waits: Waits | None = None, **changes: Any) -> Status:
    view = a_view(a_job(), OLD)
    report = Status(job=view.ref, workload="w1", spec_version=1, phase=JobPhase.RUNNING)
    return structs.replace(report, **({"waits": waits} if waits else {}), **changes)


def test_pods_that_are_no_longer_wanted_are_shown_with_one_event() -> None:
    view = a_view(a_job(), OLD)
    remember, requeue = waiting.take_report(view, a_report(SAID), EAST)
    assert remember == Remember(table=ManagerTable.WAITS, key=view.ref, value=SAID)
    assert isinstance(requeue, Requeue)
    known = a_view(a_job(), OLD, waits=SAID)
    assert waiting.take_report(known, a_report(SAID), EAST) == []
    [patch, event] = waiting.reconcile(known)
    assert written([patch]) == [
        Waiting.of({"main": 1}, {"main": 1}, reason=SURPLUS, message=SAID.message, since=SAID.since)
    ]
    assert isinstance(event, Emit)
    assert (event.reason, event.note) == (SURPLUS, SAID.message)
    shows = merge_patch(a_job(), patch.body)  # type: ignore[union-attr]
    assert waiting.reconcile(a_view(shows, OLD, waits=SAID)) == []
    [fewer] = waiting.reconcile(a_view(shows, OLD, waits=structs.replace(SAID, message="1 pod runs")))
    assert written([fewer])[0].message == "1 pod runs"


def test_a_report_without_them_ends_it() -> None:
    known = a_view(a_job(), OLD, waits=SAID)
    forget, requeue = waiting.take_report(known, a_report(), EAST)
    assert forget == Forget(table=ManagerTable.WAITS, key=known.ref)
    assert isinstance(requeue, Requeue)


def test_what_is_over_is_not_shown_until_the_next_report() -> None:
    known = a_view(SURPLUS_SHOWN, OLD, waits=SAID)
    forget, patch, requeue = waiting.take_report(known, a_report(), EAST)
    assert forget == Forget(table=ManagerTable.WAITS, key=known.ref)
    assert written([patch]) == [None]
    assert isinstance(requeue, Requeue)


def test_pods_that_a_worker_cannot_make_are_shown_in_its_words() -> None:
    said = structs.replace(
        SAID, reason=PODS_REFUSED, message="1 pod cannot be made and holds its quota: exceeded quota"
    )
    patch, event = waiting.reconcile(a_view(a_job(), OLD, waits=said))
    assert written([patch]) == [
        Waiting.of({"main": 1}, {"main": 1}, reason=PODS_REFUSED, message=said.message, since=SAID.since)
    ]
    assert isinstance(event, Emit)
    assert (event.reason, event.note) == (PODS_REFUSED, said.message)


SURPLUS_SHOWN = shown(a_job(), Waiting.of({"main": 1}, {"main": 1}, reason=SURPLUS, message="2 pods run", since=NOW))


def test_what_an_earlier_manager_has_shown_stays_until_a_report() -> None:
    view = a_view(SURPLUS_SHOWN, OLD)
    assert waiting.reconcile(view) == []
    assert waiting.take_report(a_view(a_job(), OLD), a_report(), EAST) == []
    assert written(waiting.take_report(view, a_report(), EAST)) == [None]


@pytest.mark.parametrize(
    ("report", "cluster"),
    [
        (a_report(phase=JobPhase.GONE), EAST),
        (a_report(phase=JobPhase.SUCCEEDED), EAST),
        (a_report(), ClusterName("west")),
    ],
    ids=["gone", "ended", "of another cluster"],
)
def test_other_reports_say_nothing_of_them(report: Status, cluster: ClusterName) -> None:
    assert waiting.take_report(a_view(SURPLUS_SHOWN, OLD), report, cluster) == []


def test_a_lack_of_quota_is_shown_first() -> None:
    assert written(waiting.reconcile(a_wait(waits=SAID))) == [SHOWN]


def test_a_job_of_another_user_says_the_same_of_its_copy() -> None:
    """A submitted copy of a YAML has the annotation, and its queue is another one."""
    copied = shown(a_job(labels={kueue.QUEUE_NAME_LABEL: "other"}))
    assert written(waiting.reconcile(a_view(copied))) == [None]
