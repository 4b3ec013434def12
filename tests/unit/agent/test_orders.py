"""What an order changes: every order in every state of the job, then the single rules."""

from typing import Any

import msgspec
import pytest

from slicebus.agent.decide.job import reconcile
from slicebus.agent.decide.order import orders
from slicebus.agent.decide.order.orders import OrderStep
from slicebus.agent.decide.order.refusals import RefusedOrder, refusal
from slicebus.agent.state import annotations
from slicebus.agent.state.views import WorkerView
from slicebus.decisions.commands import Create, Emit, Patch, Publish
from slicebus.kube.resources import WORKLOADS
from slicebus.proto.errors import ConflictError, ForbiddenError, InvalidError, PermanentError, WebhookError
from slicebus.proto.messages import Applied, Delete, JobRef, Pending, Relabel, RequestKey, ScaleRequest, Suspend
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.api import api_names, kueue
from unit.agent.objects import (
    COPY_STEP,
    EAST,
    JOB_STEP,
    NOW,
    POD_SETS,
    REF,
    SIZES_STEP,
    a_copy,
    a_job,
    a_pod,
    a_spec,
    a_view,
    encoded,
    resizes,
    short,
    shorts,
)

Manifest = dict[str, Any]
OTHER = JobRef("batch/v1", "Job", "team", "train", "other-uid")

VIEWS: dict[str, WorkerView] = {
    "nothing": a_view(None),
    "a copy only": a_view(None, a_copy()),
    "foreign": a_view(a_job(ours=False)),
    "of another job": a_view(a_job(of=OTHER), a_copy(of=OTHER)),
    "going": a_view(a_job(deleting=True), a_copy()),
    "older": a_view(a_job(), a_copy(linked="worker-uid")),
    "older, suspended": a_view(a_job(suspended=True), a_copy(linked="worker-uid")),
    "same": a_view(
        a_job(5, version=2, workload="w2", baseline=5),
        a_copy(linked="worker-uid"),
        a_copy("w2", linked="worker-uid", version=2),
    ),
    "same, without its copy": a_view(a_job(5, version=2, workload="w2", baseline=5), a_copy(linked="worker-uid")),
    "newer": a_view(a_job(version=3, workload="w3"), a_copy("w3", linked="worker-uid", version=3)),
    "newer, not moved yet": a_view(a_job(), a_copy(linked="worker-uid"), a_copy("w3", linked="worker-uid", version=3)),
}
ORDERS: dict[str, list[OrderStep]] = {
    "spec of the same slice": orders.workload_spec(a_spec(2, "w1"), EAST),
    "spec of the next slice": orders.workload_spec(a_spec(2, "w2", granted=5, parallelism=5), EAST),
    "relabel": orders.relabel(
        Relabel(job=REF, spec_version=2, from_workload="w1", to_workload="w2", granted={"main": 5}), EAST
    ),
    "suspend": orders.suspend(Suspend(job=REF, spec_version=2, workload="w1", reason="Preempted", message="quota")),
    "delete": orders.delete(Delete(job=REF, spec_version=2)),
}


WAIT, REFUSE = "waits", "refuses"
AT_W1, AT_W2 = ("train", 'at w1 v2 {"main":1}'), ("train", 'at w2 v2 {"main":5}')
SUSPENDED = [("train", "at w1 v2 {}", "suspended"), ("tell Job", "Preempted")]
NOT_OURS = {"foreign": [REFUSE], "of another job": [WAIT], "going": [WAIT]}
CREATED = [("create Job", "train")]

EXPECTED: dict[str, dict[str, list[Any]]] = {
    # whether it is possible, copy of a job that is there, sizes, what it takes over, job, copy, report
    "spec of the same slice": NOT_OURS
    | {
        "nothing": [[], [], [], [], CREATED, [("create Workload", "w1")], []],
        "a copy only": [[], [], [], [], CREATED, [("w1", "v2")], []],
        "older": [[], [("w1", "v2")], [], [], [AT_W1], [("w1", "v2")], []],
        "older, suspended": [[], [("w1", "v2")], [], [], [(*AT_W1, "resumed")], [("w1", "v2")], []],
        "same": [
            [],
            [],
            [],
            [],
            [("train", 'baseline {"main":1}', "/spec/parallelism=1")],
            [("w1", "v2")],
            [("remove Workload", "w1"), ("applied", "w2", 2)],
        ],
        "same, without its copy": [
            [],
            [],
            [],
            [],
            [("train", 'baseline {"main":1}', "/spec/parallelism=1")],
            [("w1", "v2")],
            [("applied", "w2", 2)],
        ],
        "newer": [[], [], [], [], [], [], [("applied", "w3", 3)]],
        "newer, not moved yet": [[], [], [], [], [], [], []],
    },
    "spec of the next slice": NOT_OURS
    | {
        "nothing": [[], [], [], [], CREATED, [("create Workload", "w2")], []],
        "a copy only": [[], [], [], [], CREATED, [("create Workload", "w2")], []],
        "older": [
            [],
            [],
            [],
            [],
            [("train", 'baseline {"main":5}', "/spec/parallelism=5")],
            [("create Workload", "w2")],
            [],
        ],
        "older, suspended": [
            [],
            [],
            [("train", "/spec/parallelism=5")],
            [],
            [("train", 'baseline {"main":5}')],
            [("create Workload", "w2")],
            [],
        ],
        "same": [[], [], [], [], [], [], [("remove Workload", "w1"), ("applied", "w2", 2)]],
        "same, without its copy": [[], [], [], [], [], [("create Workload", "w2")], [("applied", "w2", 2)]],
        "newer": [[], [], [], [], [], [], [("applied", "w3", 3)]],
        "newer, not moved yet": [[], [], [], [], [], [], []],
    },
    # job, copies, report
    "relabel": NOT_OURS
    | {
        "nothing": [[], [], [("applied", "", 0)]],
        "a copy only": [[], [], [("applied", "", 0)]],
        "older": [[AT_W2], [], [("applied", "w1", 1)]],
        "older, suspended": [[(*AT_W2, "resumed")], [], [("applied", "w1", 1)]],
        "same": [[], [("remove Workload", "w1")], [("applied", "w2", 2)]],
        "same, without its copy": [[], [], []],
        "newer": [[], [], [("applied", "w3", 3)]],
        "newer, not moved yet": [[AT_W2], [], [("applied", "w1", 1)]],
    },
    # job, copies
    "suspend": NOT_OURS
    | {
        "nothing": [[], []],
        "a copy only": [[], []],
        "older": [SUSPENDED, []],
        "older, suspended": [SUSPENDED, []],
        "same": [[], [("remove Workload", "w1")]],
        "same, without its copy": [[], []],
        "newer": [[], []],
        "newer, not moved yet": [SUSPENDED, []],
    },
    "delete": {
        "nothing": [[]],
        "a copy only": [[("remove Workload", "w1")]],
        "foreign": [[]],
        "of another job": [[]],
        "going": [[("remove Job", "train"), ("remove Workload", "w1")]],
        "older": [[("remove Job", "train"), ("remove Workload", "w1")]],
        "older, suspended": [[("remove Job", "train"), ("remove Workload", "w1")]],
        "same": [[("remove Job", "train"), ("remove Workload", "w1"), ("remove Workload", "w2")]],
        "same, without its copy": [[("remove Job", "train"), ("remove Workload", "w1")]],
        "newer": [[]],
        "newer, not moved yet": [[("remove Job", "train"), ("remove Workload", "w1")]],
    },
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("order", ORDERS)
def test_every_order_in_every_state(order: str, view: str) -> None:
    """Each step alone, on the view as it is: in the shell every step sees what the one before has done."""
    done: list[Any] = []
    for step in ORDERS[order]:
        try:
            done.append(shorts(step.decide(VIEWS[view])))
        except ConflictError:
            done.append(WAIT)
            break
        except RefusedOrder:
            done.append(REFUSE)
            break
    assert done == EXPECTED[order][view]


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("order", ORDERS)
def test_an_order_goes_from_one_step_with_something_to_do_to_the_next(order: str, view: str) -> None:
    done: list[Any] = []
    then: int | None = 0
    while then is not None:
        try:
            then, commands = orders.next_step(ORDERS[order], then, VIEWS[view])
        except (ConflictError, RefusedOrder) as error:
            done.append(WAIT if isinstance(error, ConflictError) else REFUSE)
            break
        assert commands or then is None
        done += [shorts(commands)] if commands else []
    assert done == taken_together(ORDERS[order], EXPECTED[order][view])


def taken_together(steps: list[OrderStep], decided: list[Any]) -> list[Any]:
    """What steps have decided, those that see nothing of each other in one."""
    together: list[Any] = []
    beside = False
    for step, commands in zip(steps, decided, strict=False):
        if commands and beside:
            together[-1] += commands
        elif commands:
            together.append(commands)
        beside = not step.is_seen if commands else beside
    return together


def test_a_step_whose_change_no_later_step_reads_is_decided_with_the_next() -> None:
    view = a_view(a_job(5, version=2, workload="w2"), a_copy("w2", version=2), a_copy())
    steps = ORDERS["relabel"]
    copies = [("w2",), ("w1",), ("remove Workload", "w1")]
    assert shorts(steps[1].decide(view)) == copies
    found = orders.next_step(steps, 0, view)
    assert (found.then, shorts(found.commands)) == (None, [*copies, ("applied", "w2", 2)])


def test_nothing_is_left_after_the_last_step() -> None:
    assert orders.next_step(ORDERS["relabel"], 0, VIEWS["older"]).then == 1
    assert orders.next_step(ORDERS["relabel"], 1, VIEWS["older"]).then is None


def test_a_copy_knows_its_job_before_the_manager_hears_that_the_job_is_there() -> None:
    """Somebody may delete it at once, and a job that no copy knew is not missed."""
    view = a_view(a_job(version=2), a_copy(version=2))
    last = orders.workload_spec(a_spec(2, "w1"), EAST)[-1].decide(view)
    assert last[0] == Patch(
        resource=WORKLOADS,
        target=view.copies[0],
        body={"metadata": {"annotations": {api_names.JOB_UID_ANNOTATION: "worker-uid"}}},
    )
    assert shorts(last[1:]) == [("applied", "w1", 2)]


@pytest.mark.parametrize(("view", "link"), [("older", "worker-uid"), ("nothing", None)])
def test_a_copy_that_is_made_beside_its_job_knows_it_at_once(view: str, link: str | None) -> None:
    """A job that has gone since it was made leaves a copy without a link: its end is reported by that copy."""
    [create] = orders.workload_spec(a_spec(2, "w2"), EAST)[COPY_STEP].decide(VIEWS[view])
    assert isinstance(create, Create)
    assert annotations.annotation(create.manifest, api_names.JOB_UID_ANNOTATION) == link


def test_the_copy_of_the_next_slice_knows_the_job_before_the_others_go() -> None:
    view = a_view(a_job(version=2, workload="w2"), a_copy(linked="worker-uid"), a_copy("w2", version=2))
    relabel = orders.relabel(Relabel(job=REF, spec_version=2, from_workload="w1", to_workload="w2", granted={}), EAST)
    assert shorts(relabel[1].decide(view)) == [("w2",), ("remove Workload", "w1")]


def test_a_job_that_is_not_ours_is_refused_with_a_reason() -> None:
    with pytest.raises(RefusedOrder, match="left alone") as raised:
        orders.workload_spec(a_spec(), EAST)[0].decide(VIEWS["foreign"])
    assert raised.value.reason == "JobExists"


LATE = a_spec(1, "w1", granted=1, parallelism=1)


def test_a_late_spec_does_not_take_back_what_the_next_slice_brought() -> None:
    """The next slice's spec has come and its relabel has not: the job is still at the version of the late one."""
    view = a_view(a_job(5, baseline=5), a_copy(), a_copy("w2", version=2))
    steps = orders.workload_spec(LATE, EAST)[SIZES_STEP : JOB_STEP + 1]
    assert [shorts(step.decide(view)) for step in steps] == [[], [], []]


def test_the_copies_of_another_job_say_nothing_about_this_one() -> None:
    view = a_view(None, a_copy(of=OTHER, version=9))
    assert shorts(orders.workload_spec(LATE, EAST)[JOB_STEP].decide(view)) == CREATED


def test_a_job_is_created_with_its_annotations_its_gate_and_its_placement() -> None:
    [create] = orders.workload_spec(a_spec(3, "w1", granted=2, parallelism=4), EAST)[JOB_STEP].decide(a_view(None))
    assert isinstance(create, Create)
    job = create.manifest
    assert annotations.is_of(job, REF)
    assert (annotations.slice_of(job), annotations.spec_version(job)) == ("w1", 3)
    assert (annotations.granted(job), annotations.baseline(job)) == ({"main": 2}, {"main": 4})
    assert job["metadata"]["labels"][kueue.PREBUILT_NAME] == "w1"
    assert job["metadata"]["labels"]["team"] == "a"
    assert kueue.QUEUE_NAME_LABEL not in job["metadata"]["labels"]
    assert "managedBy" not in job["spec"]
    assert job["spec"]["suspend"] is False
    pod = job["spec"]["template"]["spec"]
    assert pod["schedulingGates"] == [{"name": kueue.ELASTIC_GATE}]
    assert pod["nodeSelector"] == {"pool": "spot"}
    assert pod["tolerations"] == [{"key": "spot", "operator": "Exists"}]
    assert job["spec"]["template"]["metadata"]["labels"][kueue.POD_SET_LABEL] == "main"


def test_a_kueue_here_leaves_a_copy_alone() -> None:
    own = {api_names.DISPATCHED_ANNOTATION: "{}", api_names.APPLIED_ANNOTATION: "1", "example.com/kept": "x"}
    spec = a_spec(3)
    spec.workload["metadata"]["annotations"] = own
    [create] = orders.workload_spec(spec, EAST)[COPY_STEP].decide(a_view(None))
    assert isinstance(create, Create)
    metadata = create.manifest["metadata"]
    assert metadata["labels"] == {api_names.ORIGIN_LABEL: api_names.ORIGIN}
    assert metadata["annotations"] == {
        "example.com/kept": "x",
        api_names.MANAGER_UID_ANNOTATION: "manager-uid",
        api_names.SPEC_VERSION_ANNOTATION: "3",
        api_names.JOB_ANNOTATION: "Job/train",
    }
    assert "ownerReferences" not in metadata
    assert create.manifest["spec"] == {"podSets": POD_SETS}
    assert "status" not in create.manifest


def test_a_copy_says_which_flavors_its_slice_was_given() -> None:
    spec = a_spec(3)
    assignments = [{"name": "main", "flavors": {"cpu": "spot"}, "count": 3, "resourceUsage": {"cpu": "1"}}]
    spec.workload["status"] = {"admission": {"clusterQueue": "cq", "podSetAssignments": assignments}}
    [create] = orders.workload_spec(spec, EAST)[COPY_STEP].decide(a_view(None))
    assert isinstance(create, Create)
    assert annotations.flavors(create.manifest) == {"main": {"cpu": "spot"}}
    assert annotations.charged(create.manifest) == {"main": {"cpu": 334}}
    assert "status" not in create.manifest


COUNTS: dict[str, tuple[Manifest, list[tuple[Any, ...]]]] = {
    "a resize that started at the manager": (a_job(1, baseline=1), [("train", "/spec/parallelism=3")]),
    "the manager's counts are as before: the worker's own resize stays": (a_job(8, baseline=3), []),
    "the worker has them already": (a_job(3, baseline=1), []),
    "no baseline can be read": (a_job(1, baseline=None), [("train", "/spec/parallelism=3")]),
    "an older order": (a_job(1, version=3, baseline=1), []),
    "no job yet": ({}, []),
}


@pytest.mark.parametrize(("job", "expected"), COUNTS.values(), ids=COUNTS.keys())
def test_counts_are_taken_over_when_the_managers_have_changed(job: Manifest, expected: list[tuple[Any, ...]]) -> None:
    assert shorts(resizes(a_spec(2, parallelism=3), a_view(job or None))) == expected


def test_the_size_of_a_job_is_set_in_the_write_that_notes_the_order() -> None:
    """A crash between two writes would leave a size that the job's user seems to have set."""
    steps, view = orders.workload_spec(a_spec(2, granted=3, parallelism=3), EAST), a_view(a_job(5, baseline=5))
    assert list(steps[SIZES_STEP].decide(view)) == []
    assert shorts(steps[JOB_STEP].decide(view)) == [("train", 'at w1 v2 {"main":3}', "/spec/parallelism=3")]


def an_indexed(size: int, completions: int, *, noted: int | None = None, **how: Any) -> Manifest:
    """An Indexed Job; `noted` are the completions that the manager has last set."""
    job = a_job(size, **how)
    job["spec"] |= {"completionMode": "Indexed", "completions": completions}
    if noted is not None:
        job["metadata"]["annotations"][api_names.BOUNDS_ANNOTATION] = f'{{"completions":{noted}}}'
    return job


def sets(size: int, completions: int) -> list[str]:
    return [f"/spec/parallelism={size}", f"/spec/completions={completions}"]


COMPLETIONS: dict[str, tuple[Manifest, tuple[int, int], list[tuple[Any, ...]]]] = {
    "both are set in one patch": (an_indexed(3, 3, noted=3, baseline=3), (5, 5), [("train", *sets(5, 5))]),
    "completions alone": (an_indexed(5, 3, noted=3, baseline=5), (5, 5), [("train", *sets(5, 5))]),
    "pods alone": (an_indexed(3, 3, noted=3, baseline=3), (1, 3), [("train", "/spec/parallelism=1")]),
    "neither: what the worker has grown to stays": (an_indexed(7, 7, noted=3, baseline=3), (3, 3), []),
    "a suspended job comes back": (an_indexed(7, 7, noted=3, baseline=None), (3, 3), [("train", *sets(3, 3))]),
    "completions that are more than the pods": (
        an_indexed(2, 2, noted=9, baseline=3),
        (4, 9),
        [("train", *sets(9, 9)), ("train", "/spec/parallelism=4")],
    ),
}


@pytest.mark.parametrize(("job", "own", "expected"), COMPLETIONS.values(), ids=COMPLETIONS.keys())
def test_the_completions_of_an_indexed_job_are_taken_over_with_its_size(
    job: Manifest, own: tuple[int, int], expected: list[tuple[Any, ...]]
) -> None:
    order = a_spec(2, parallelism=own[0])
    order.manifest["spec"] |= {"completionMode": "Indexed", "completions": own[1]}
    assert shorts(resizes(order, a_view(job))) == expected
    [stamped] = orders.workload_spec(order, EAST)[JOB_STEP].decide(a_view(job))
    assert isinstance(stamped, Patch)
    assert isinstance(stamped.body, dict)
    assert annotations.bounds(merge_patch(job, stamped.body)) == {"completions": own[1]}


def test_its_user_is_told_where_the_manager_has_changed_the_counts_by_itself() -> None:
    spec = msgspec.structs.replace(a_spec(2, parallelism=3), resized_because="its pods were not ready")
    told = resizes(spec, a_view(a_job(5, baseline=1)))
    assert shorts(told) == [("train", "/spec/parallelism=3"), ("tell Job", "ScaleUpTakenBack")]
    assert resizes(spec, a_view(a_job(3, baseline=1))) == [], "it is told with the resize only"


@pytest.mark.parametrize(("known", "is_taken"), [(None, True), ("an earlier one", True), ("this one", False)])
def test_a_scale_up_is_taken_back_once_also_to_the_size_that_the_worker_has_grown_from(
    known: str | None, is_taken: bool
) -> None:
    spec = msgspec.structs.replace(a_spec(2, parallelism=3), resized_because="not ready", taken_back="this one")
    job = a_job(5, baseline=3, requested=REQUEST)
    job["metadata"]["annotations"] |= {api_names.TAKEN_BACK_ANNOTATION: known} if known else {}
    resized = [("train", "/spec/parallelism=3"), ("tell Job", "ScaleUpTakenBack")]
    assert shorts(resizes(spec, a_view(job))) == (resized if is_taken else [])
    [stamped, *_] = orders.workload_spec(spec, EAST)[JOB_STEP].decide(a_view(job))
    assert isinstance(stamped, Patch)
    assert isinstance(stamped.body, dict)
    left = merge_patch(job, stamped.body)
    assert left["metadata"]["annotations"][api_names.TAKEN_BACK_ANNOTATION] == "this one"
    requests = annotations.PendingRequests.from_job(left)
    assert requests is not None
    assert (requests.overruled is True) is is_taken, "the size of the request is asked for again if it is still wanted"


REQUEST = annotations.PendingRequests.after(None, RequestKey("worker-uid", 4), wanted={"main": 1}, granted={"main": 3})
REQUESTING = a_view(a_job(1, requested=REQUEST))
AFTER_A_REQUEST = {
    "the order was made before it": (RequestKey("worker-uid", 3), 1, REQUEST),
    "the order answers it": (REQUEST.key, 3, msgspec.structs.replace(REQUEST, unanswered=())),
}


@pytest.mark.parametrize(("answers", "granted", "left"), AFTER_A_REQUEST.values(), ids=AFTER_A_REQUEST.keys())
def test_an_order_grants_nothing_that_a_later_request_has_given_up(
    answers: RequestKey, granted: int, left: annotations.PendingRequests
) -> None:
    spec = msgspec.structs.replace(a_spec(2, granted=3), answers=answers)
    relabel = Relabel(
        job=REF, spec_version=2, from_workload="w1", to_workload="w2", granted={"main": 3}, answers=answers
    )
    for step in (orders.workload_spec(spec, EAST)[JOB_STEP], orders.relabel(relabel, EAST)[0]):
        [patch] = step.decide(REQUESTING)
        assert isinstance(patch, Patch)
        assert isinstance(patch.body, dict)
        after = {"metadata": {"annotations": {api_names.REQUESTED_ANNOTATION: encoded(REQUEST)}}}
        after["metadata"]["annotations"] |= patch.body["metadata"]["annotations"]
        assert annotations.granted(after) == {"main": granted}
        assert annotations.PendingRequests.from_job(after) == left


ANSWERED = annotations.PendingRequests("worker-uid", 4, {"main": 3})
FORGOTTEN: dict[str, tuple[Manifest, bool]] = {
    "an order takes back what another had granted": (a_job(3, granted=3, requested=ANSWERED), True),
    "the job was not granted more before": (a_job(3, granted=1, requested=ANSWERED), False),
    "it asks for no more than that": (
        a_job(3, granted=3, requested=msgspec.structs.replace(ANSWERED, wanted={"main": 1})),
        False,
    ),
    "it was suspended, and comes back with less": (a_job(3, granted=0, suspended=True, requested=ANSWERED), False),
    "the manager has overruled the request": (
        a_job(3, granted=3, requested=msgspec.structs.replace(ANSWERED, overruled=True)),
        False,
    ),
    "another request is on its way": (
        a_job(
            5,
            granted=3,
            requested=annotations.PendingRequests.after(
                ANSWERED, RequestKey("worker-uid", 5), wanted={"main": 5}, granted={"main": 3}
            ),
        ),
        False,
    ),
}


@pytest.mark.parametrize(("job", "again"), FORGOTTEN.values(), ids=FORGOTTEN.keys())
def test_a_request_that_the_manager_has_forgotten_is_made_again(job: Manifest, again: bool) -> None:
    answers = RequestKey("worker-uid", 4)
    spec = msgspec.structs.replace(a_spec(9, granted=1), answers=answers)
    relabel = Relabel(
        job=REF, spec_version=9, from_workload="w1", to_workload="w1", granted={"main": 1}, answers=answers
    )
    for step in (orders.workload_spec(spec, EAST)[JOB_STEP], orders.relabel(relabel, EAST)[0]):
        [patch] = step.decide(a_view(job))
        assert isinstance(patch, Patch)
        moved = merge_patch(job, patch.body)
        before, after = map(annotations.PendingRequests.from_job, (job, moved))
        if not again:
            assert after == before
            continue
        publish, *_ = reconcile.request(a_view(moved), EAST)
        assert isinstance(publish, Publish)
        assert isinstance(publish.message, ScaleRequest)
        assert (publish.message.wanted, publish.message.worker_generation) == ({"main": 3}, 5)


@pytest.mark.parametrize(
    ("answers", "granted", "left"),
    [(RequestKey("worker-uid", 3), 1, True), (REQUEST.key, 3, False)],
    ids=["the order was made before it", "the order answers it"],
)
def test_a_copy_that_is_made_anew_is_granted_nothing_that_the_one_before_has_given_up(
    answers: RequestKey, granted: int, left: bool
) -> None:
    view = msgspec.structs.replace(a_view(None, a_copy()), left_requests={REF.uid: REQUEST})
    spec = msgspec.structs.replace(a_spec(2, granted=3), answers=answers)
    [create] = orders.workload_spec(spec, EAST)[JOB_STEP].decide(view)
    assert isinstance(create, Create)
    assert annotations.granted(create.manifest) == {"main": granted}
    requested = annotations.PendingRequests.from_job(create.manifest)
    assert requested is not None
    assert requested.overruled is True, "it begins with the size of the spec, and the manager has to hear so"
    assert requested.unanswered == (REQUEST.unanswered if left else ())


@pytest.mark.parametrize(
    "known", [{REF.uid: REQUEST}, {}], ids=["the agent knows of it", "the agent was started since"]
)
def test_a_copy_that_is_made_anew_asks_for_its_own_size(known: dict[str, annotations.PendingRequests]) -> None:
    """The manager has answered a request of the copy before, which waits: it would go on waiting for that size."""
    view = msgspec.structs.replace(a_view(None, a_copy()), left_requests=known)
    spec = msgspec.structs.replace(a_spec(2, granted=1), answers=REQUEST.key)
    [create] = orders.workload_spec(spec, EAST)[JOB_STEP].decide(view)
    assert isinstance(create, Create)
    job = merge_patch(create.manifest, {"metadata": {"uid": "another-uid", "generation": 1}})
    [patch] = reconcile.request(a_view(job), EAST)
    assert isinstance(patch, Patch)
    publish, *_ = reconcile.request(a_view(merge_patch(job, patch.body)), EAST)
    assert isinstance(publish, Publish)
    assert isinstance(publish.message, ScaleRequest)
    assert (publish.message.wanted, publish.message.worker_uid) == ({"main": 1}, "another-uid")


@pytest.mark.parametrize(
    ("answers", "asks"),
    [(REQUEST.key, True), (RequestKey("", 0), False)],
    ids=["the manager has taken its eviction back", "the manager has forgotten the request"],
)
def test_a_copy_that_is_resumed_asks_for_its_own_size(answers: RequestKey, asks: bool) -> None:
    """It lost its request when it was suspended. A manager that never heard of that waits for that size."""
    [suspending, *_] = orders.suspend(Suspend(job=REF, spec_version=2, workload="w1"))[0].decide(
        a_view(a_job(3, granted=3, requested=REQUEST))
    )
    assert isinstance(suspending, Patch)
    suspended = merge_patch(a_job(1, requested=REQUEST), suspending.body)
    spec = msgspec.structs.replace(a_spec(3, granted=1, parallelism=1), answers=answers)
    [patch] = orders.workload_spec(spec, EAST)[JOB_STEP].decide(a_view(suspended))
    assert isinstance(patch, Patch)
    later = {"metadata": {"generation": REQUEST.worker_generation + 1}}
    job = merge_patch(merge_patch(suspended, patch.body), later)
    commands = reconcile.request(a_view(job), EAST)
    assert [type(command) for command in commands] == [Patch] * asks
    for command in commands:
        assert isinstance(command, Patch)
        requested = annotations.PendingRequests.from_job(merge_patch(job, command.body))
        assert requested is not None
        assert requested.unanswered[-1].wanted == {"main": 1}


TAKEN_OVER = {
    "another size": (1, 3, "w1", True),
    "another size, before the job moves to the next slice": (1, 3, "w2", True),
    "the size that was asked for": (3, 1, "w1", False),
    "the size that was asked for, before the job moves to the next slice": (3, 1, "w2", False),
    "no other size": (3, 3, "w1", False),
    "no other size, before the job moves to the next slice": (3, 3, "w2", False),
}


@pytest.mark.parametrize(("baseline", "own", "workload", "overruled"), TAKEN_OVER.values(), ids=TAKEN_OVER.keys())
def test_another_size_of_the_managers_spec_overrules_the_last_request(
    baseline: int, own: int, workload: str, overruled: bool
) -> None:
    """The worker may want the same size again after it: a request that the manager does not know."""
    view = a_view(a_job(own, baseline=baseline, requested=REQUEST))
    spec = msgspec.structs.replace(a_spec(2, workload, parallelism=own), answers=RequestKey("worker-uid", 3))
    written = {api_names.REQUESTED_ANNOTATION: encoded(REQUEST)}
    for patch in orders.workload_spec(spec, EAST)[JOB_STEP].decide(view):
        assert isinstance(patch, Patch)
        assert isinstance(patch.body, dict)
        written |= patch.body["metadata"]["annotations"]
    left = annotations.PendingRequests.from_job({"metadata": {"annotations": written}})
    assert left == msgspec.structs.replace(REQUEST, overruled=overruled or msgspec.UNSET)


def test_what_somebody_has_deleted_is_not_made_again() -> None:
    """Its requests may still be on their way, and would be taken for those of the new one."""
    with pytest.raises(ConflictError, match="somebody has deleted"):
        orders.workload_spec(a_spec(2), EAST)[0].decide(a_view(None, a_copy(linked="worker-uid")))


def test_a_suspended_job_has_no_request() -> None:
    [patch, event] = orders.suspend(Suspend(job=REF, spec_version=2, workload="w1"))[0].decide(VIEWS["older"])
    assert isinstance(patch, Patch)
    assert isinstance(patch.body, dict)
    assert patch.body["metadata"]["annotations"][api_names.REQUESTED_ANNOTATION] is None
    assert isinstance(event, Emit)
    assert event.reason == "Suspended"


NOTICE = Pending(
    job=REF,
    workload="w2",
    worker_uid="worker-uid",
    worker_generation=2,
    wanted={"small": 2, "main": 5},
    reason="Pending",
    message="4 cpu short",
    since=NOW,
    would_admit="4 cpu",
)


@pytest.mark.parametrize(
    ("view", "events"),
    [("older", 1), ("newer", 1), ("nothing", 0), ("foreign", 0), ("of another job", 0)],
)
def test_a_notice_is_an_event_on_the_job(view: str, events: int) -> None:
    [step] = orders.pending(NOTICE)
    commands = step.decide(VIEWS[view])
    assert len(commands) == events
    for command in commands:
        assert isinstance(command, Emit)
        assert command.note == f"Resize to main=5, small=2 waits since {NOW}: 4 cpu short; it goes on with 4 cpu"


def test_a_notice_is_an_event_on_the_scale_target_too() -> None:
    child = a_job() | {"kind": "RayCluster", "metadata": {"name": "child", "uid": "child-uid"}}
    [step] = orders.pending(NOTICE)
    assert [short(command) for command in step.decide(a_view(a_job(), scale_target=child))] == [
        ("tell Job", "Pending"),
        ("tell RayCluster", "Pending"),
    ]


REASONS: dict[str, tuple[PermanentError | WebhookError, str]] = {
    "ours": (RefusedOrder("JobExists", "no"), "JobExists"),
    "invalid": (InvalidError("422: no"), "Invalid"),
    "forbidden": (ForbiddenError("403: no"), "Forbidden"),
    "a webhook is down": (WebhookError("500: no"), "WebhookUnavailable"),
}


@pytest.mark.parametrize(("error", "reason"), REASONS.values(), ids=REASONS.keys())
def test_a_refusal_says_what_of_which_version_and_why(error: PermanentError | WebhookError, reason: str) -> None:
    [publish] = refusal(a_spec(4, "w2"), error, EAST)
    assert isinstance(publish, Publish)
    message = publish.message
    assert (message.workload, message.spec_version, message.reason) == ("w2", 4, reason)
    assert message.message == str(error)


def test_a_refusal_quotes_no_more_than_a_condition_takes() -> None:
    [publish] = refusal(a_spec(), RefusedOrder("OtherObject", "x" * 100_000), EAST)
    assert isinstance(publish, Publish)
    assert len(publish.message.message) < 32_768


def test_a_report_has_the_applied_version_whatever_was_ordered() -> None:
    for view, expected in (("newer", ("w3", 3)), ("nothing", ("", 0)), ("of another job", ("", 0))):
        [publish] = orders.report(VIEWS[view], REF, EAST)
        assert isinstance(publish.message, Applied)
        assert (publish.message.workload, publish.message.spec_version) == expected
        assert not publish.message.deleted


def test_a_job_is_not_made_beside_pods_of_its_own_that_still_run() -> None:
    view = a_view(None, pods=(a_pod("a", of=REF),))
    with pytest.raises(ConflictError, match="still run"):
        [list(step.decide(view)) for step in orders.workload_spec(a_spec(1), EAST)]
    others = a_view(None, pods=(a_pod("a", of=OTHER), a_pod("b", of=REF, phase="Failed")))
    assert CREATED in [shorts(step.decide(others)) for step in orders.workload_spec(a_spec(1), EAST)]


def test_pods_have_the_managers_uid_as_a_label() -> None:
    """They may outlive the job."""
    [create] = next(found for step in orders.workload_spec(a_spec(1), EAST) if (found := _creates_job(step)))
    labels = create.manifest["spec"]["template"]["metadata"]["labels"]
    assert labels == {kueue.POD_SET_LABEL: "main", api_names.MANAGER_UID_LABEL: REF.uid}


def _creates_job(step: OrderStep) -> list[Create]:
    commands = step.decide(a_view(None))
    return [command for command in commands if isinstance(command, Create) and command.resource != WORKLOADS]
