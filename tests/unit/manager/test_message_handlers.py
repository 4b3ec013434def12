"""Messages from workers: who may speak, what is late, and what each type writes."""

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from slicebus.decisions.commands import Forget, Patch, Remember
from slicebus.manager.decide.manifests import merge_difference
from slicebus.manager.decide.messages import message_handlers
from slicebus.manager.decide.messages.authorization import check as authorize
from slicebus.manager.state.annotations import SizeRequest, reported_status
from slicebus.manager.state.outbox import LOST as LOST_HASH
from slicebus.manager.state.outbox import MOST_BELIEVED, Dispatch
from slicebus.manager.state.tables import ManagerTable
from slicebus.manager.state.views import Readiness
from slicebus.manager.state.worker_clusters import Sender
from slicebus.proto.envelope import MessageId
from slicebus.proto.errors import DeadReason, ProtocolError
from slicebus.proto.messages import MOST_VERSION, Applied, JobPhase, PodSetStatus, Refused, ScaleRequest, Status
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.api import api_names
from slicebus.slices.api.api_names import DISPATCHED_CONDITION
from slicebus.slices.jobs import KINDS
from unit.manager.objects import (
    EAST,
    NOW,
    REF,
    WEST,
    a_job,
    a_view,
    a_workload,
    an_envelope,
    asking,
    condition,
    requested,
    shorts,
    uid_of,
    vanished,
    withdrawn,
)

Manifest = dict[str, Any]
FROM_EAST, FROM_WEST = an_envelope(), an_envelope(cluster=WEST, user="west")


# --- who may speak --------------------------------------------------------------------------------------------------

CLUSTERS = {"unknown": None, "not accepted": False, "accepted": True}
USERS = {"its own": "agent-east", "another's": "agent-west", "none": None}
EPOCHS = {"ended": 4, "the present one": 5, "a newer one": 6}


@pytest.mark.parametrize("epoch", EPOCHS)
@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("cluster", CLUSTERS)
def test_who_may_speak(cluster: str, user: str, epoch: str) -> None:
    accepted = CLUSTERS[cluster]
    sender = Sender(accepted=accepted, user="agent-east", epoch=5) if accepted is not None else None
    envelope = an_envelope(user=USERS[user], epoch=EPOCHS[epoch])
    expected = (
        DeadReason.UNKNOWN_CLUSTER
        if cluster != "accepted"
        else DeadReason.WRONG_USER
        if user != "its own"
        else DeadReason.FENCED_EPOCH
        if epoch == "ended"
        else None
    )
    if expected is None:
        authorize(envelope, sender, newest_epoch=6)
        return
    with pytest.raises(ProtocolError, match="'east'") as raised:
        authorize(envelope, sender, newest_epoch=6)
    assert raised.value.reason is expected


NOW_EPOCH, SKEW = 1000, 300
FUTURE: dict[str, tuple[int, int, DeadReason | None]] = {
    "of now": (5, NOW_EPOCH, None),
    "of a clock that is ahead": (5, NOW_EPOCH + SKEW, None),
    "of the future": (5, NOW_EPOCH + SKEW + 1, DeadReason.FUTURE_EPOCH),
    "of the far future": (5, 2**31 - 1, DeadReason.FUTURE_EPOCH),
    "older than a forged one": (2**31 - 1, NOW_EPOCH, None),
    "as forged as the stored one": (2**31 - 1, 2**31 - 1, DeadReason.FUTURE_EPOCH),
    "older than one of a clock that is ahead": (NOW_EPOCH + SKEW, NOW_EPOCH, DeadReason.FENCED_EPOCH),
}


@pytest.mark.parametrize(("stored", "epoch", "refused"), FUTURE.values(), ids=FUTURE.keys())
def test_an_epoch_that_nobody_can_have_yet_fences_nobody(stored: int, epoch: int, refused: DeadReason | None) -> None:
    sender, envelope = (
        Sender(accepted=True, user="agent-east", epoch=stored),
        an_envelope(user="agent-east", epoch=epoch),
    )
    if refused is None:
        authorize(envelope, sender, newest_epoch=NOW_EPOCH + SKEW)
        return
    with pytest.raises(ProtocolError, match="'east'") as raised:
        authorize(envelope, sender, newest_epoch=NOW_EPOCH + SKEW)
    assert raised.value.reason is refused


# --- whose job it is ------------------------------------------------------------------------------------------------

RUNNING = a_view(a_job(), a_workload(admitted=1, dispatched=1))
REQUEST = ScaleRequest(
    job=REF, workload="w1", worker_uid="w-1", worker_generation=3, granted={"main": 1}, wanted={"main": 5}
)
STATUS = Status(job=REF, workload="w1", spec_version=1, phase=JobPhase.RUNNING, job_status={"active": 1})
APPLIED = Applied(job=REF, workload="w1", spec_version=1)
THIS_TRY, OTHER_TRY = (f"it is there (request 1f3c2a1{number}-7c1e-4d1c-9a55-0242ac120002)" for number in (1, 2))
REFUSED = Refused(job=REF, workload="w1", spec_version=1, reason="JobExists", message="it is there")
NOT_THERE = {
    "no job": a_view(None),
    "no slices": a_view(a_job()),
    "a slice that runs nowhere yet": a_view(a_job(), a_workload()),
}


def taken_in(view: Any, message: Any, envelope: Any = FROM_EAST) -> list[tuple[Any, ...]]:
    match message:
        case ScaleRequest():
            return shorts(message_handlers.scale_request(view, message, envelope))
        case Status():
            return shorts(message_handlers.status(view, message, envelope, now=NOW))
        case Applied():
            return shorts(message_handlers.applied(view, message, envelope))
    return shorts(message_handlers.refused(view, message, envelope, now=NOW))


MESSAGES = {"scale-request": REQUEST, "status": STATUS, "applied": APPLIED, "refused": REFUSED}
PER_MESSAGE = pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES.keys())


@PER_MESSAGE
def test_a_cluster_speaks_only_of_the_jobs_that_run_on_it(message: Any) -> None:
    with pytest.raises(ProtocolError, match="runs on cluster 'east', not on 'west'") as raised:
        taken_in(RUNNING, message, FROM_WEST)
    assert raised.value.reason is DeadReason.REFUSED


@PER_MESSAGE
@pytest.mark.parametrize("view", NOT_THERE.values(), ids=NOT_THERE.keys())
def test_a_message_about_what_is_not_there_does_nothing(view: Any, message: Any) -> None:
    assert taken_in(view, message) == []


@pytest.mark.parametrize("over", ["Complete", "Failed"])
@pytest.mark.parametrize("message", [REQUEST, STATUS], ids=["scale-request", "status"])
def test_nothing_is_changed_after_the_end(over: str, message: Any) -> None:
    assert taken_in(a_view(a_job(over=over), a_workload(admitted=1)), message) == []


# --- scale requests -------------------------------------------------------------------------------------------------


def after(generation: int, *, uid: str = "w-1", **changes: Any) -> Any:
    """A job with an earlier request of its worker."""
    record = requested({"main": 2}, generation=generation, uid=uid, **changes)
    return a_view(
        a_job(annotations={api_names.REQUESTED_ANNOTATION: record.to_annotation()}),
        a_workload(admitted=1, dispatched=1),
    )


def request_with(**changes: Any) -> ScaleRequest:
    fields = {name: getattr(REQUEST, name) for name in REQUEST.__struct_fields__}
    return ScaleRequest(**(fields | changes))


REQUESTS: dict[str, tuple[Any, ScaleRequest, bool]] = {
    "the first": (RUNNING, REQUEST, True),
    "a newer generation": (after(2), REQUEST, True),
    "the same again": (after(3), REQUEST, False),
    "an older generation": (after(4), REQUEST, False),
    "of another worker object": (after(9, uid="w-0"), REQUEST, True),
    "of another cluster, where it runs now": (after(9, uid="w-0", speaker=uid_of(WEST), epoch=50), REQUEST, True),
    "of another cluster that has the name now": (after(9, uid="w-0", speaker="another", epoch=50), REQUEST, True),
    "an unreadable record": (
        a_view(a_job(annotations={api_names.REQUESTED_ANNOTATION: "?"}), a_workload(admitted=1)),
        REQUEST,
        True,
    ),
    "nothing is admitted": (a_view(a_job(), a_workload()), REQUEST, False),
    "down to nothing": (RUNNING, request_with(wanted={"main": 0}), True),
}


@pytest.mark.parametrize(("view", "request_", "written"), REQUESTS.values(), ids=REQUESTS.keys())
def test_a_request_is_written_onto_its_slice_once(view: Any, request_: ScaleRequest, written: bool) -> None:
    commands = message_handlers.scale_request(view, request_, FROM_EAST)
    assert bool(commands) is written
    for command in commands:
        assert isinstance(command, Patch)
        assert command.target is view.workload(view.holder)
        written = SizeRequest.from_manifest(command.body)
        assert written is not None
        assert written.revision > max((each.revision for each in view.requests.values()), default=0)
        assert structs.replace(written, revision=0) == SizeRequest(
            counts=request_.wanted,
            worker_uid="w-1",
            worker_generation=3,
            baseline={"main": 1},
            correlation="chain-1",
            speaker=uid_of(EAST),
            epoch=1,
            sequence=1,
            granted={"main": 1},
        )


@pytest.mark.parametrize("chain", ["x" * 255, "é", "x" * 64], ids=["long", "another alphabet", "as long as may be"])
def test_the_record_of_a_request_is_readable_whatever_chain_it_names(chain: str) -> None:
    envelope = structs.replace(an_envelope(), correlation_id=MessageId(chain))
    [command] = message_handlers.scale_request(RUNNING, REQUEST, envelope)
    assert isinstance(command, Patch)
    written = SizeRequest.from_manifest(command.body)
    assert written is not None
    assert written.counts == REQUEST.wanted
    assert written.correlation == (chain if chain == "x" * 64 else envelope.id)


ORDERS = list(itertools.product([(1, 5), (1, 6), (1, 7), (2, 1)], [(1, 6)]))


@pytest.mark.parametrize(("came", "known"), ORDERS, ids=[f"{came} after {known}" for came, known in ORDERS])
def test_a_late_request_of_a_worker_object_that_was_replaced_changes_nothing(
    came: tuple[int, int], known: tuple[int, int]
) -> None:
    view = after(1, uid="w-new", speaker=uid_of(EAST), epoch=known[0], sequence=known[1])
    envelope = an_envelope(epoch=came[0], sequence=came[1])
    assert bool(message_handlers.scale_request(view, REQUEST, envelope)) is (came > known)


# --- applied --------------------------------------------------------------------------------------------------------

TWO = (
    a_workload(admitted=1, dispatched=1, applied=1),
    a_workload("w2", 5, admitted=5, dispatched=2, replaces="w1"),
)


def applied(version: int, workload: str = "", *, deleted: bool = False) -> Applied:
    return Applied(job=REF, workload=workload, spec_version=version, deleted=deleted)


REPORTS: dict[str, tuple[tuple[Manifest, ...], Applied, list[tuple[Any, ...]]]] = {
    "the newest version": (TWO, applied(2, "w2"), [("w2", (api_names.APPLIED_ANNOTATION, "2"))]),
    "the same again": (TWO, applied(1, "w1"), []),
    "an older version": ((a_workload(admitted=1, dispatched=3, applied=3),), applied(2, "w1"), []),
    "still the slice before": (TWO, applied(2, "w1"), [("w1", (api_names.APPLIED_ANNOTATION, "2"))]),
    "nothing yet": (TWO, applied(0), []),
    "a slice that is not there": (TWO, applied(2, "w9"), []),
    "a slice that was never dispatched": ((a_workload(admitted=1),), applied(2, "w1"), []),
    "deleted": (
        (a_workload(admitted=1, applied=1), withdrawn("w2", dispatched=3, applied=2)),
        applied(3, deleted=True),
        [("w2", (api_names.APPLIED_ANNOTATION, "3"))],
    ),
    "deleted by a version that nobody knows here": (TWO, applied(3, deleted=True), [("w2", "version 3 is held")]),
    "deleted by an older version": (TWO, applied(1, deleted=True), [("w2", (api_names.APPLIED_ANNOTATION, "1"))]),
    "deleted, again": ((withdrawn(),), applied(2, deleted=True), []),
}


@pytest.mark.parametrize(("workloads", "report", "expected"), REPORTS.values(), ids=REPORTS.keys())
def test_a_report_is_written_once(
    workloads: tuple[Manifest, ...], report: Applied, expected: list[tuple[Any, ...]]
) -> None:
    assert taken_in(a_view(a_job(), *workloads), report) == expected


@pytest.mark.parametrize("deleted", [True, False])
@pytest.mark.parametrize("version", [MOST_BELIEVED + 1, MOST_VERSION])
def test_a_report_of_a_version_that_no_job_reaches_is_refused(version: int, deleted: bool) -> None:
    with pytest.raises(ProtocolError, match=f"version {version} of Job/team/train, which has come to 2"):
        taken_in(a_view(a_job(), *TWO), applied(version, "w2", deleted=deleted))


def test_a_report_of_a_version_that_the_manager_came_to_is_taken_however_high() -> None:
    high = MOST_BELIEVED + 7
    workload = a_workload(admitted=1, dispatched=high, applied=MOST_BELIEVED)
    assert taken_in(a_view(a_job(), workload), applied(high, "w1")) == [
        ("w1", (api_names.APPLIED_ANNOTATION, str(high)))
    ]


def test_a_report_counts_after_the_job_is_gone() -> None:
    assert taken_in(a_view(None, withdrawn(applied=1)), applied(2, deleted=True)) == [
        ("w1", (api_names.APPLIED_ANNOTATION, "2"))
    ]


# --- refused --------------------------------------------------------------------------------------------------------

SHOWN = condition(DISPATCHED_CONDITION, False, "JobExists", "Cluster east refused version 1: it is there")
REFUSALS: dict[str, tuple[Any, list[tuple[Any, ...]]]] = {
    "the first time": (
        RUNNING,
        [("w1", f"{DISPATCHED_CONDITION}=False JobExists"), ("warn Job", "JobExists"), ("requeue", 30.0)],
    ),
    "again": (
        a_view(a_job(), a_workload(admitted=1, dispatched=1, conditions=(SHOWN,))),
        [("requeue", 30.0)],
    ),
    "it is applied meanwhile": (a_view(a_job(), a_workload(admitted=1, dispatched=1, applied=1)), []),
    "the slice is gone": (a_view(a_job(), a_workload("w2", admitted=1)), []),
    "the job is gone": (
        a_view(None, a_workload(admitted=1, dispatched=1)),
        [("w1", f"{DISPATCHED_CONDITION}=False JobExists"), ("warn Workload", "JobExists"), ("requeue", 30.0)],
    ),
}


def test_a_refusal_is_shown_once_whatever_its_words_say_of_one_try() -> None:
    shown = condition(DISPATCHED_CONDITION, False, "JobExists", f"Cluster east refused version 1: {OTHER_TRY}")
    view = a_view(a_job(), a_workload(admitted=1, dispatched=1, conditions=(shown,)))
    assert taken_in(view, msgspec.structs.replace(REFUSED, message=THIS_TRY)) == [("requeue", 30.0)]


@pytest.mark.parametrize(("view", "expected"), REFUSALS.values(), ids=REFUSALS.keys())
def test_a_refusal_is_shown_once_and_tried_again(view: Any, expected: list[tuple[Any, ...]]) -> None:
    assert taken_in(view, REFUSED) == expected


def test_an_order_that_waits_on_its_worker_comes_again_soon() -> None:
    """Pods may take a minute to end: whoever asks again so late gives a job quota that it cannot use."""
    told = taken_in(RUNNING, msgspec.structs.replace(REFUSED, reason="Conflict"))
    assert told == [("w1", f"{DISPATCHED_CONDITION}=False Conflict"), ("warn Job", "Conflict"), ("requeue", 5.0)]


def test_a_refused_delete_is_shown_on_the_workload_that_has_the_order() -> None:
    refusal = msgspec.structs.replace(REFUSED, workload="", spec_version=2, reason="Forbidden")
    assert taken_in(a_view(None, withdrawn(applied=1)), refusal) == [
        ("w1", f"{DISPATCHED_CONDITION}=False Forbidden"),
        ("warn Workload", "Forbidden"),
        ("requeue", 30.0),
    ]
    assert taken_in(a_view(None, withdrawn(applied=2)), refusal) == []


HELD_NOW: dict[str, tuple[Manifest, bool]] = {
    "it was refused": (a_workload(admitted=1, dispatched=1, conditions=(SHOWN,)), True),
    "a newer order was refused": (a_workload(admitted=1, dispatched=2, conditions=(SHOWN,)), False),
    "it is too large by now": (
        a_workload(admitted=1, dispatched=1, conditions=(condition(DISPATCHED_CONDITION, False, "TooLarge"),)),
        False,
    ),
    "nothing was refused": (a_workload(admitted=1, dispatched=1), False),
}


@pytest.mark.parametrize(("workload", "is_shown"), HELD_NOW.values(), ids=HELD_NOW.keys())
def test_what_a_worker_holds_is_shown_as_refused_no_longer(workload: Manifest, is_shown: bool) -> None:
    commands = message_handlers.carried_out(a_view(a_job(), workload), APPLIED, FROM_EAST, now=NOW)
    assert shorts(commands) == ([("w1", f"{DISPATCHED_CONDITION}=True Dispatched")] if is_shown else [])


# --- status ---------------------------------------------------------------------------------------------------------


def status(phase: JobPhase = JobPhase.RUNNING, workload: str = "w1", *, version: int = 1, **changes: Any) -> Status:
    return Status(job=REF, workload=workload, spec_version=version, phase=phase, **changes)


def gang_notes(report: Status, *workloads: Manifest, cluster: str = EAST, **changes: Any) -> dict[str, str | None]:
    """What a report writes on Workloads."""
    commands = message_handlers.gang(a_view(a_job(), *workloads, **changes), report, cluster)
    found: dict[str, str | None] = {}
    for command in commands:
        assert isinstance(command, Patch)
        assert isinstance(command.body, dict)
        found[command.target["metadata"]["name"]] = command.body["metadata"]["annotations"][api_names.GANG_ANNOTATION]
    return found


def of_gang(name: str = "w1", note: str | None = None, **how: Any) -> Manifest:
    workload = a_workload(name, 4, dispatched=3, applied=3, **how)
    workload["metadata"]["annotations"] |= {api_names.GANG_ANNOTATION: note} if note is not None else {}
    return workload


def test_how_many_pods_of_a_gang_stay_is_noted_on_its_slices() -> None:
    two = status(version=3, gang={"main": 2, "other": 1})
    held, waits = of_gang(admitted=4), a_workload("w2", 6, replaces="w1")
    assert gang_notes(two, held, waits) == {"w1": '{"main":2}', "w2": '{"main":2}'}
    assert gang_notes(two, of_gang(note='{"main":2}', admitted=4)) == {}
    assert gang_notes(status(version=3, gang={}), held) == {"w1": "{}"}
    assert gang_notes(status(version=3), of_gang(note='{"main":2}', admitted=4)) == {"w1": None}
    assert gang_notes(status(version=3), held) == {}


def test_no_gang_is_noted_by_a_report_that_does_not_count() -> None:
    two, held = status(version=3, gang={"main": 2}), of_gang(admitted=4)
    assert gang_notes(two, held, cluster=WEST) == {}
    assert gang_notes(two, held, checks=frozenset({"check"})) == {}
    assert gang_notes(status(JobPhase.SUCCEEDED, version=3), of_gang(note="{}", admitted=4)) == {}
    assert gang_notes(status(version=2, gang={"main": 2}), evicted_once()) == {}


def evicted_once(*, hash: str = "hash", applied: int = 0, suspended: bool = False) -> Manifest:
    """A slice that has been admitted and dispatched again."""
    workload = a_workload(admitted=1, applied=applied)
    record = Dispatch(4, hash, cluster="east", since=3, suspended=suspended)
    workload["metadata"]["annotations"][api_names.DISPATCHED_ANNOTATION] = record.to_annotation()
    return workload


def made_anew(*, applied: int = 0) -> Manifest:
    """A slice whose copy was deleted by order at version 3, and is ordered anew at version 4."""
    workload = a_workload(admitted=1, applied=applied)
    record = Dispatch(4, "hash", cluster="east", since=4, cleared=3)
    workload["metadata"]["annotations"][api_names.DISPATCHED_ANNOTATION] = record.to_annotation()
    return workload


def vanished_anew() -> Any:
    """The same, when the worker has reported that the next copy is gone."""
    workload = a_workload(admitted=1, applied=4)
    record = Dispatch(4, "hash", cluster="east", since=4, cleared=3, vanished=True)
    workload["metadata"]["annotations"][api_names.DISPATCHED_ANNOTATION] = record.to_annotation()
    return a_view(a_job(), workload)


def pods(ready: int, gated: int = 0) -> dict[str, PodSetStatus]:
    return {"main": PodSetStatus(ready=ready, gated=gated, total=ready + gated)}


NOT_READY, READY = ("w1", "PodsReady=False WaitForStart"), ("w1", "PodsReady=True PodsReady")
AT = "2026-01-01T00:00:00Z"
OVER = {
    "startTime": AT,
    "completionTime": AT,
    "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
}
END_SHOWN = ("train", "SuccessCriteriaMet=True Some", "Complete=True Some", "completionTime", "startTime")
AGAIN = a_view(a_job(), evicted_once())
WITHDRAWN_FIRST = [("w1", "version 5 is absent"), ("delete to east", 5)]
SHOWN = condition("PodsReady", True, "PodsReady", "All pods are ready")
LOST = ("w1", "PodsReady=False WaitForRecovery")
NO_MORE = condition("PodsReady", False, "WaitForRecovery", "Not all pods are ready any more")
STATUSES: dict[str, tuple[Any, Status, list[tuple[Any, ...]]]] = {
    "pods are starting": (RUNNING, status(pods=pods(0)), [NOT_READY]),
    "pods are ready": (RUNNING, status(pods=pods(1)), [READY]),
    "more are ready than granted": (RUNNING, status(pods=pods(3)), [READY]),
    "no pods are reported": (RUNNING, status(), [NOT_READY]),
    "nothing is granted": (
        a_view(a_job(0), a_workload(count=0, admitted=0)),
        status(),
        [READY],
    ),
    "it is shown already": (
        a_view(a_job(), a_workload(admitted=1, conditions=(SHOWN,))),
        status(pods=pods(1)),
        [],
    ),
    "a pod that was ready is not any more": (
        a_view(a_job(), a_workload(admitted=1, conditions=(SHOWN,))),
        status(pods=pods(0)),
        [LOST],
    ),
    "it is not ready again yet": (
        a_view(a_job(), a_workload(admitted=1, conditions=(NO_MORE,))),
        status(pods=pods(0)),
        [],
    ),
    "pods that are not ready have a time limit": (
        a_view(a_job(), a_workload(admitted=1), readiness=Readiness(start_s=60.0, counts_from=NOW)),
        status(pods=pods(0)),
        [NOT_READY, ("requeue", 0.0)],
    ),
    "of the slice before": (RUNNING, status(workload="w0", pods=pods(1)), []),
    "of what has ended": (RUNNING, status(JobPhase.SUCCEEDED, pods=pods(0)), []),
    "the job's own status": (RUNNING, status(workload="w0", job_status={"active": 1}), [("train", "active")]),
    "the end of this run": (
        AGAIN,
        status(JobPhase.SUCCEEDED, version=4, job_status=OVER),
        [END_SHOWN],
    ),
    "the end of this run, and a newer order is under way": (
        AGAIN,
        status(JobPhase.SUCCEEDED, version=3, job_status=OVER),
        [*WITHDRAWN_FIRST, END_SHOWN],
    ),
    "the end of this run, and a newer order has been reported": (
        a_view(a_job(), evicted_once(applied=4)),
        status(JobPhase.SUCCEEDED, version=3, job_status=OVER),
        [*WITHDRAWN_FIRST, END_SHOWN],
    ),
    "the end of a copy that is lost": (
        a_view(a_job(), evicted_once(hash=LOST_HASH, applied=4)),
        status(JobPhase.SUCCEEDED, version=4, job_status=OVER),
        [*WITHDRAWN_FIRST, END_SHOWN],
    ),
    "the end of a copy that is being withdrawn": (
        a_view(a_job(), withdrawn(applied=1)),
        status(JobPhase.SUCCEEDED, job_status=OVER),
        [END_SHOWN],
    ),
    "the end of a copy that is being suspended": (
        a_view(a_job(), evicted_once(suspended=True)),
        status(JobPhase.SUCCEEDED, version=3, job_status=OVER),
        [END_SHOWN],
    ),
    "the end of the run before, which was evicted": (AGAIN, status(JobPhase.SUCCEEDED, version=2, job_status=OVER), []),
    "somebody deleted it": (
        RUNNING,
        status(JobPhase.GONE, seen=True),
        [("w1", "version 1 is gone")],
    ),
    "it is known that somebody deleted it": (vanished(), status(JobPhase.GONE, seen=True), []),
    "it is known, and its agent has forgotten": (vanished(), status(JobPhase.GONE), []),
    "it is there again": (vanished(), status(workload="w0"), [("w1", "version 1 is held")]),
    "it is gone, and may have ended": (RUNNING, status(JobPhase.GONE, seen=False), [("w1", "version 2 is absent")]),
    "it is gone, and nothing more is reported": (RUNNING, status(JobPhase.GONE), [("w1", "version 2 is absent")]),
    "it is gone, as it shall be": (a_view(a_job(), withdrawn(applied=1)), status(JobPhase.GONE), []),
    "an earlier copy is gone, which was deleted by order": (
        a_view(a_job(), made_anew(applied=3)),
        status(JobPhase.GONE, seen=True),
        [],
    ),
    "an earlier copy is gone, and may have ended": (a_view(a_job(), made_anew(applied=3)), status(JobPhase.GONE), []),
    "an earlier copy is gone, and the next one runs": (
        a_view(a_job(), evicted_once(applied=4)),
        status(JobPhase.GONE, version=1, seen=True),
        [],
    ),
    "the suspended copy is gone that is to run again": (
        a_view(a_job(), evicted_once(applied=2)),
        status(JobPhase.GONE, version=1, seen=True),
        [("w1", "version 4 is gone")],
    ),
    "the copy that was made anew is gone": (
        a_view(a_job(), made_anew(applied=4)),
        status(JobPhase.GONE, version=4, seen=True),
        [("w1", "version 4 is gone")],
    ),
    "an earlier copy was there": (
        vanished_anew(),
        status(version=2),
        [],
    ),
}


@pytest.mark.parametrize(("view", "report", "expected"), STATUSES.values(), ids=STATUSES.keys())
def test_a_status(view: Any, report: Status, expected: list[tuple[Any, ...]]) -> None:
    assert taken_in(view, report) == expected


def test_an_end_is_noted_until_it_is_written() -> None:
    first, *writes, last = message_handlers.status(
        a_view(a_job(), a_workload(admitted=1)), status(JobPhase.SUCCEEDED, job_status=OVER), FROM_EAST, now=NOW
    )
    assert [type(command) for command in writes] == [Patch]
    assert (first, last) == (
        Remember(table=ManagerTable.ENDS, key=REF, value=NOW),
        Forget(table=ManagerTable.ENDS, key=REF),
    )


def test_the_whole_status_is_mirrored() -> None:
    job = a_job() | {"status": {"active": 2, "old": 1, "nested": {"a": 1, "b": 2}, "conditions": [{"type": "X"}]}}
    there = {"active": 3, "nested": {"b": 2, "c": 3}, "conditions": []}
    [patch] = message_handlers.status(
        a_view(job, a_workload(admitted=1)), status(workload="w0", job_status=there), FROM_EAST, now=NOW
    )
    assert isinstance(patch, Patch)
    assert merge_patch(job, patch.body)["status"] == there


def test_what_cannot_be_shown_of_a_job_that_was_made_anew_is_kept_beside_it() -> None:
    job = a_job() | {"status": {"startTime": "before", "active": 1, "succeeded": 2}}
    there = {"startTime": "now", "active": 3, "succeeded": 1, "failed": 1}
    for remaining in (2, 1, 0):
        view, report = a_view(job, a_workload(admitted=1)), status(workload="w0", job_status=there)
        commands = message_handlers.status(view, report, FROM_EAST, now=NOW)
        assert len(commands) == remaining, "the first write makes the second conflict, which is decided again"
        for command in commands[:1]:
            assert isinstance(command, Patch)
            job = merge_patch(job, command.body)
    assert job["status"] == {"startTime": "before", "active": 3, "succeeded": 2, "failed": 1}
    assert reported_status(job) == there
    [shown, *_] = message_handlers.status(
        a_view(job, a_workload(admitted=1)), status(workload="w0", job_status=job["status"]), FROM_EAST, now=NOW
    )
    assert isinstance(shown, Patch)
    assert reported_status(merge_patch(job, shown.body)) == job["status"]


def test_a_status_that_another_controller_writes_is_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KINDS["Job"], "mirrored_status", lambda job, reported: job["status"])
    job, there = a_job() | {"status": {"observedGeneration": 2, "active": 0}}, {"active": 3, "ready": 3}
    report = status(workload="w0", job_status=there)
    [note] = message_handlers.status(a_view(job, a_workload(admitted=1)), report, FROM_EAST, now=NOW)
    assert isinstance(note, Patch)
    assert note.body.keys() == {"metadata"}
    noted = merge_patch(job, note.body)
    assert noted["status"] == job["status"]
    assert reported_status(noted) == there
    assert message_handlers.status(a_view(noted, a_workload(admitted=1)), report, FROM_EAST, now=NOW) == []


OBJECTS = st.recursive(
    st.dictionaries(st.sampled_from("abc"), st.one_of(st.integers(0, 2), st.lists(st.integers(0, 1), max_size=2))),
    lambda inner: st.dictionaries(st.sampled_from("abc"), st.one_of(st.integers(0, 2), inner)),
)


@given(present=OBJECTS, wanted=OBJECTS)
def test_a_difference_makes_the_one_of_the_other(present: Manifest, wanted: Manifest) -> None:
    assert merge_patch(present, merge_difference(present, wanted)) == wanted
    assert merge_difference(wanted, wanted) == {}


def test_the_desired_size_is_that_of_the_newest_request() -> None:
    assert SizeRequest.from_manifest(asking(1, 5)) == requested({"main": 5})
    assert EAST != WEST


def elsewhere(left_copies: dict[str, int], *, cluster: str = "west") -> Manifest:
    """A slice that runs on a cluster, while other clusters may have a copy left."""
    record = Dispatch(7, "hash", cluster=cluster, previous_cluster="east", left_copies=left_copies)
    workload = a_workload(admitted=1, cluster=cluster)
    workload["metadata"]["annotations"] |= {api_names.DISPATCHED_ANNOTATION: record.to_annotation()}
    return workload


RECALLED: dict[str, tuple[dict[str, int], Applied, dict[str, int] | None]] = {
    "its copy is gone": ({"east": 4, "north": 2}, applied(4, deleted=True), {"north": 2}),
    "a newer copy is gone": ({"east": 4}, applied(5, deleted=True), {}),
    "an older delete": ({"east": 4}, applied(3, deleted=True), None),
    "an order of before": ({"east": 4}, applied(4, "w1"), None),
    "it has no copy left": ({"north": 2}, applied(4, deleted=True), None),
}


@pytest.mark.parametrize(("left_copies", "report", "expected"), RECALLED.values(), ids=RECALLED.keys())
def test_a_cluster_that_was_given_up_reports_that_its_copy_is_gone(
    left_copies: dict[str, int], report: Applied, expected: dict[str, int] | None
) -> None:
    commands = message_handlers.applied(a_view(a_job(), elsewhere(left_copies)), report, an_envelope())
    records = [Dispatch.from_manifest({"metadata": c.body["metadata"]}) for c in commands if isinstance(c, Patch)]
    assert [record.left_copies for record in records if record] == ([] if expected is None else [expected])


def test_its_other_messages_about_the_job_are_late() -> None:
    view = a_view(a_job(), elsewhere({"east": 4}))
    assert message_handlers.status(view, STATUS, an_envelope(), now=NOW) == []
