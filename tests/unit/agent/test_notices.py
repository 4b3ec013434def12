"""A job is told of the pods that it loses, and loses them when its notice is over."""

from typing import Any

import msgspec
import pytest
from msgspec import UNSET, structs

from slicebus.agent.decide.job import inventory, reconcile
from slicebus.agent.decide.order import notices, order_sizes, orders
from slicebus.agent.decide.pods.going_pods import going_pods
from slicebus.agent.decide.pods.next_pods import next_pods
from slicebus.agent.state import annotations
from slicebus.agent.state.reclaim import PendingReclaim
from slicebus.agent.state.views import WorkerView
from slicebus.decisions.commands import Command, Emit, Patch, Publish, Remember, Requeue
from slicebus.proto.errors import ProtocolError
from slicebus.proto.messages import Applied, JobOrder, Notice, Suspend, WorkloadSpec
from slicebus.sandbox.apiserver.patches import json_patch, merge_patch
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.fingerprints import spec_hash
from slicebus.slices.jobs import KINDS
from unit.agent.objects import EAST, REF, a_copy, a_job, a_pod, a_spec, a_view

Manifest = dict[str, Any]
TOLD, ACK = api_names.RECLAIM_ANNOTATION, api_names.RECLAIM_ACK_ANNOTATION
BEGUN, BEFORE, DEADLINE = "2026-01-31T12:00:00Z", "2026-01-31T12:02:00Z", "2026-01-31T12:02:01Z"
"""A notice of two minutes that began in the second before its own, the last second before its deadline, and that."""


def shrink(to: int = 4, *, id: str = "word-1", version: int = 2, notice_s: float = 120.0) -> WorkloadSpec:
    """An order that takes pods back, with a notice."""
    return structs.replace(
        a_spec(version, granted=8, parallelism=to),
        resized_because="so it is",
        resized_reason=api_names.RECLAIMED,
        taken_back=id,
        notice=Notice(id=id, notice_s=notice_s, why="so it is", beneficiaries=["team/high"]),
    )


def restored(to: int, *, id: str = "word-1", version: int = 3) -> WorkloadSpec:
    """An order that gives pods back."""
    order = structs.replace(shrink(to, id=id, version=version), resized_reason=api_names.RESTORED)
    return structs.replace(order, notice=UNSET)


def suspension(version: int = 2, *, id: str = "eviction-1") -> Suspend:
    notice = Notice(id=id, notice_s=120.0, why="so it is")
    return Suspend(job=REF, spec_version=version, workload="w1", reason="EvictedDueToPreempted", notice=notice)


class Worker:
    """A job of eight pods, from one decision to the next."""

    def __init__(self, size: int = 8) -> None:
        self.job = a_job(size, baseline=size, granted=size)
        self.pods = {f"p{number}": a_pod(f"p{number}", ready=True) for number in range(size)}
        self.now = BEGUN
        self.events: list[str] = []

    @property
    def view(self) -> WorkerView:
        return a_view(self.job, a_copy(linked="worker-uid"), pods=tuple(self.pods.values()))

    @property
    def reclaim(self) -> PendingReclaim | None:
        return PendingReclaim.from_job(self.job)

    @property
    def told(self) -> set[str]:
        """The pods that are told."""
        return {name for name, pod in self.pods.items() if TOLD in pod["metadata"].get("annotations", {})}

    def noted(self, name: str) -> str | None:
        return annotations.annotation(self.job, name)

    def take(self, order: JobOrder) -> None:
        for step in orders.steps(order, EAST, now=self.now):
            self._write(step.decide(self.view))
        self.reconcile()

    def reconcile(self, now: str | None = None) -> None:
        self.now = now or self.now
        for _ in range(10):
            if not (commands := notices.reconcile(self.view, now=self.now)):
                return
            self._write(commands)
        raise AssertionError(commands)

    def _write(self, commands: Any) -> None:
        for command in commands:
            if isinstance(command, Emit):
                self.events.append(command.reason)
            if not isinstance(command, Patch) or command.target["kind"] == "Workload":
                continue
            target = self.job if command.target["kind"] == "Job" else self.pods[command.target["metadata"]["name"]]
            assert target["metadata"]["resourceVersion"] == command.target["metadata"]["resourceVersion"], "a conflict"
            patch = json_patch if isinstance(command.body, list) else merge_patch
            changed = patch(target, command.body)  # type: ignore[operator]
            changed["metadata"]["resourceVersion"] += "0"
            if target is self.job:
                self.job = changed
            else:
                self.pods[changed["metadata"]["name"]] = changed


def test_a_shrink_waits_for_its_deadline() -> None:
    worker = Worker()
    worker.take(shrink())
    told = worker.reclaim
    assert told is not None
    assert (told.id, told.before, told.to, told.deadline) == ("word-1", {"main": 8}, {"main": 4}, DEADLINE)
    assert (told.why, told.beneficiaries) == ("so it is", ["team/high"])
    assert annotations.spec_version(worker.job) == 2, "all else of the order is carried out"
    for now in (BEGUN, BEFORE):
        worker.reconcile(now)
        assert worker.job["spec"]["parallelism"] == 8
        assert (worker.noted(api_names.FOLLOWS_ANNOTATION), annotations.baseline(worker.job)) == (None, {"main": 8})
    worker.reconcile(DEADLINE)
    assert worker.job["spec"]["parallelism"] == 4
    assert worker.reclaim is None
    words = [worker.noted(name) for name in (api_names.FOLLOWS_ANNOTATION, api_names.TAKEN_BACK_ANNOTATION)]
    assert (words, annotations.baseline(worker.job)) == (["word-1", "word-1"], {"main": 4})
    assert worker.events == [api_names.RECLAIM_NOTICE, api_names.RECLAIMED]
    worker.take(shrink())
    assert (worker.reclaim, worker.events[2:]) == (None, []), "the order comes twice"


def test_an_eviction_waits_for_its_deadline() -> None:
    worker = Worker()
    worker.take(suspension())
    assert worker.told == {*worker.pods}
    worker.reconcile(BEFORE)
    assert (worker.job["spec"]["suspend"], annotations.spec_version(worker.job)) == (False, 1)
    worker.reconcile(DEADLINE)
    assert (worker.job["spec"]["suspend"], annotations.is_suspended(worker.job)) == (True, True)
    assert (annotations.spec_version(worker.job), worker.reclaim) == (2, None)
    assert worker.events == [api_names.RECLAIM_NOTICE, "EvictedDueToPreempted"]
    worker.take(suspension())
    assert worker.events[2:] == [], "the order comes twice"


@pytest.fixture
def not_suspendable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KINDS["Job"], "suspend_path", None)


@pytest.mark.usefixtures("not_suspendable")
def test_a_job_that_cannot_be_suspended_runs_until_the_manager_hears_that_its_notice_is_over() -> None:
    worker = Worker()
    worker.take(structs.replace(suspension(), deleted_after=True))
    assert worker.told == {*worker.pods}
    assert reconcile.confirm_suspended(worker.view, EAST, reported=None) == []
    worker.reconcile(DEADLINE)
    assert (worker.job["spec"]["suspend"], worker.reclaim, worker.told) == (False, None, {*worker.pods})
    [publish, note] = reconcile.confirm_suspended(worker.view, EAST, reported=None)
    assert isinstance(publish, Publish)
    assert publish.message == Applied(job=REF, workload="w1", spec_version=2)
    assert isinstance(note, Remember)
    assert reconcile.confirm_suspended(worker.view, EAST, reported=note.value) == []


@pytest.mark.usefixtures("not_suspendable")
@pytest.mark.parametrize("order", [suspension(), structs.replace(suspension(), notice=UNSET)])
def test_it_is_refused_where_the_manager_takes_it_for_one_that_can_be_suspended(order: Suspend) -> None:
    """It would take the report for one that no pod is left."""
    with pytest.raises(ProtocolError, match="a Job cannot be suspended"):
        Worker().take(order)


def test_the_same_order_without_a_notice_ends_none() -> None:
    """The manager's administrator has lowered the cap, and the next leader publishes the order again."""
    worker = Worker()
    worker.take(suspension())
    worker.take(structs.replace(suspension(), notice=UNSET))
    assert not worker.job["spec"]["suspend"]
    worker.take(structs.replace(suspension(3), notice=UNSET))
    assert worker.job["spec"]["suspend"]


ORDERS = pytest.mark.parametrize("order", [shrink(), suspension()], ids=["shrink", "eviction"])


def is_done(worker: Worker) -> bool:
    return bool(worker.job["spec"]["suspend"] or worker.job["spec"]["parallelism"] == 4)


@ORDERS
def test_an_acknowledgement_ends_the_wait(order: JobOrder) -> None:
    worker = Worker()
    worker.take(order)
    worker.job["metadata"]["annotations"][ACK] = "another"
    worker.reconcile()
    assert not is_done(worker)
    told = worker.reclaim
    assert told is not None
    worker.job["metadata"]["annotations"][ACK] = told.id
    worker.reconcile()
    assert (is_done(worker), worker.noted(ACK)) == (True, None)


@ORDERS
def test_the_end_of_the_pods_ends_the_wait(order: JobOrder) -> None:
    worker = Worker()
    worker.take(order)
    [*first, last] = sorted(worker.told)
    for name in first:
        worker.pods[name]["status"]["phase"] = "Succeeded"
    worker.reconcile()
    assert not is_done(worker)
    del worker.pods[last]
    worker.reconcile()
    assert is_done(worker)


@ORDERS
def test_an_order_that_comes_again_does_not_begin_anew(order: JobOrder) -> None:
    """Neither does a restart of the agent: it has only what stands on the job."""
    worker = Worker()
    worker.take(order)
    told = worker.reclaim
    worker.now = BEFORE
    worker.take(order)
    assert worker.reclaim == told
    worker.reconcile(DEADLINE)
    assert is_done(worker)


def test_the_word_for_the_same_size_runs_on_and_that_for_another_begins() -> None:
    worker = Worker()
    worker.take(shrink())
    worker.now = BEFORE
    worker.take(shrink(id="word-2", version=3))
    told = worker.reclaim
    assert told is not None
    assert (told.id, told.deadline, told.word) == ("word-1", DEADLINE, "word-2")
    worker.take(shrink(2, id="word-3", version=4))
    told = worker.reclaim
    assert told is not None
    assert (told.id, told.deadline, len(worker.told)) == ("word-3", "2026-01-31T12:04:01Z", 6)
    worker.take(suspension(5))
    assert (len(worker.told), worker.events) == (8, [api_names.RECLAIM_NOTICE] * 3)


def steps(*sizes: int) -> Worker:
    """A worker that is told to go down to each of these sizes, half a minute after the one before."""
    worker = Worker()
    for number, (now, size) in enumerate(zip(TIMES, sizes, strict=False), start=1):
        worker.now = now
        worker.take(shrink(size, id=f"word-{number}", version=number + 1))
    return worker


TIMES = [BEGUN, "2026-01-31T12:00:30Z", "2026-01-31T12:01:00Z"]
DEADLINES = [DEADLINE, "2026-01-31T12:02:31Z", "2026-01-31T12:03:01Z"]


def told_of(worker: Worker) -> dict[str, PendingReclaim]:
    return {name: told for name, pod in worker.pods.items() if (told := PendingReclaim.from_job(pod)) is not None}


def test_each_word_takes_its_pods_at_its_own_deadline() -> None:
    """Otherwise whoever waits for the first ones would wait for as long as further words come."""
    worker = steps(6, 5, 3)
    for deadline, before, size, number in zip(DEADLINES, (8, 6, 5), (6, 5, 3), (1, 2, 3), strict=True):
        told = worker.reclaim
        assert told is not None
        assert (told.notices[0].deadline, told.notices[0].before) == (deadline, {"main": before})
        assert notices.requeue_after(worker.view, now=BEGUN)[0].delay_s > 0  # type: ignore[union-attr]
        second = f"{int(deadline[17:19]) - 1:02}"
        worker.reconcile(f"{deadline[:17]}{second}Z")
        assert worker.job["spec"]["parallelism"] == before
        worker.reconcile(deadline)
        assert (worker.job["spec"]["parallelism"], annotations.baseline(worker.job)) == (size, {"main": size})
        words = [worker.noted(name) for name in (api_names.FOLLOWS_ANNOTATION, api_names.TAKEN_BACK_ANNOTATION)]
        assert words == [f"word-{number}"] * 2
    assert worker.reclaim is None
    assert worker.events == [api_names.RECLAIM_NOTICE] * 3 + [api_names.RECLAIMED] * 3


def test_each_pod_keeps_the_deadline_that_it_was_told() -> None:
    first = told_of(steps(6))
    worker = steps(6, 5, 3)
    told = told_of(worker)
    assert {name: one for name, one in told.items() if name in first} == first
    assert sorted(one.deadline for one in told.values()) == [DEADLINES[0]] * 2 + [DEADLINES[1]] + [DEADLINES[2]] * 2
    assert all(one.earlier == () for one in told.values())
    worker.reconcile(DEADLINE)
    assert told_of(worker) == told, "also while those that go are still there"
    for name in first:
        del worker.pods[name]
    worker.reconcile()
    assert told_of(worker) == {name: one for name, one in told.items() if name not in first}


def test_an_order_that_comes_again_leaves_earlier_deadlines() -> None:
    worker = steps(6, 5)
    told = worker.reclaim
    worker.now = BEFORE
    worker.take(shrink(5, id="word-2", version=3))
    assert worker.reclaim == told
    worker.take(shrink(5, id="word-3", version=4))
    again = worker.reclaim
    assert told is not None
    assert again is not None
    assert (again.earlier, again.id, again.deadline, again.word) == (told.earlier, "word-2", DEADLINES[1], "word-3")


@pytest.mark.parametrize(("id", "left"), [("word-1", 6), ("word-2", 5), ("word-3", 3), ("word-4", 8)])
def test_an_acknowledgement_is_of_its_notice_and_those_before(id: str, left: int) -> None:
    worker = steps(6, 5, 3)
    worker.job["metadata"]["annotations"][ACK] = id
    worker.reconcile()
    assert worker.job["spec"]["parallelism"] == left
    assert worker.noted(ACK) == (id if id == "word-4" else None)


def test_the_end_of_pods_ends_the_notice_that_takes_no_more() -> None:
    worker = steps(6, 5, 3)
    for name in [name for name, told in told_of(worker).items() if told.id == "word-1"]:
        del worker.pods[name]
    worker.reconcile()
    assert (worker.job["spec"]["parallelism"], worker.noted(api_names.FOLLOWS_ANNOTATION)) == (6, "word-1")
    told = worker.reclaim
    assert told is not None
    assert [one.id for one in told.notices] == ["word-2", "word-3"]


@pytest.mark.parametrize(
    ("size", "ids", "deadlines"),
    [
        (7, ["word-1"], DEADLINES[:1]),
        (6, ["word-1"], DEADLINES[:1]),
        (4, ["word-1", "word-2", "word-3"], DEADLINES),
    ],
    ids=["more than all", "as many as the first", "less than the second"],
)
def test_a_word_that_leaves_more_takes_the_place_of_those_that_leave_less(
    size: int, ids: list[str], deadlines: list[str]
) -> None:
    worker = steps(6, 5, 3)
    worker.now = "2026-01-31T12:01:59Z"
    worker.take(shrink(size, id="word-9", version=9))
    told = worker.reclaim
    assert told is not None
    assert [one.id for one in told.notices] == ids
    assert [one.deadline for one in told.notices] == deadlines, "its pods were told that"
    assert (told.to, told.word) == ({"main": size}, "word-9")
    assert len(worker.told) == 8 - size, "whoever stays is told nothing"


@pytest.mark.parametrize(
    ("sizes", "left", "deadline"),
    [((6, 5), 6, DEADLINES[0]), ((6, 5), 7, DEADLINES[1]), ((7, 4), 5, DEADLINES[1])],
    ids=["for the second", "more than the first leaves", "for a part of the second"],
)
def test_a_word_that_spares_pods_keeps_the_deadline_of_the_others(
    sizes: tuple[int, ...], left: int, deadline: str
) -> None:
    worker = steps(*sizes)
    worker.take(shrink(left, id="word-2", version=9))
    assert len(worker.told) == 8 - left
    worker.reconcile(deadline)
    assert (worker.job["spec"]["parallelism"], worker.reclaim) == (left, None)
    assert worker.noted(api_names.FOLLOWS_ANNOTATION) == "word-2"


@pytest.mark.parametrize(("size", "left"), [(5, 7), (3, 3)], ids=["as it was left", "its user has resized it"])
@pytest.mark.parametrize("runs", [True, False], ids=["while the second runs", "when both are over"])
def test_a_word_that_spares_pods_gives_back_what_is_gone(size: int, left: int, runs: bool) -> None:
    """The first word took three, whoever wanted them is gone, and the manager has not heard that they are."""
    worker = steps(5, 4)
    worker.reconcile(DEADLINES[0] if runs else DEADLINES[1])
    assert worker.job["spec"]["parallelism"] == (5 if runs else 4)
    if size == 3:
        worker.job["spec"]["parallelism"] = 3
    worker.take(shrink(7, id="word-2", version=9))
    assert (worker.job["spec"]["parallelism"], worker.reclaim) == (left, None)
    words = [worker.noted(name) for name in (api_names.FOLLOWS_ANNOTATION, api_names.TAKEN_BACK_ANNOTATION)]
    assert (words, annotations.baseline(worker.job)) == (["word-2"] * 2, {"main": 7})


def test_a_word_that_spares_pods_of_a_job_that_has_grown_ends_no_notice() -> None:
    """The manager's spec says four, and its user has made it eight on the worker."""
    worker = Worker()
    worker.job["metadata"]["annotations"][api_names.BASELINE_ANNOTATION] = '{"main":4}'
    worker.take(shrink(5))
    worker.take(shrink(7, version=3))
    assert (worker.job["spec"]["parallelism"], len(worker.told)) == (8, 1)
    worker.reconcile(DEADLINE)
    assert worker.job["spec"]["parallelism"] == 7


def test_a_shorter_notice_ends_no_earlier_than_those_before_it() -> None:
    worker = steps(6)
    worker.take(shrink(4, id="word-2", version=3, notice_s=5.0))
    told = worker.reclaim
    assert told is not None
    assert [(one.id, one.deadline) for one in told.notices] == [("word-2", DEADLINE)]


def test_a_suspension_takes_all_pods_together() -> None:
    """The manager frees nothing of an evicted job before all of it is gone."""
    worker = steps(6, 5)
    worker.now = TIMES[2]
    worker.take(suspension(9))
    told = worker.reclaim
    assert told is not None
    assert [(one.id, one.deadline) for one in told.notices] == [("eviction-1", DEADLINES[2])]


def test_only_so_many_earlier_notices_run_on() -> None:
    worker = Worker(40)
    for number in range(1, 31):
        worker.now = f"2026-01-31T12:00:{number:02}Z"
        worker.take(shrink(40 - number, id=f"word-{number}", version=number + 1))
    told = worker.reclaim
    assert told is not None
    assert [one.id for one in told.notices] == [*(f"word-{number}" for number in range(1, 17)), "word-30"]


def test_an_order_without_a_notice_withdraws_all() -> None:
    worker = steps(6, 5, 3)
    worker.take(a_spec(5, granted=8, parallelism=8))
    assert (worker.reclaim, worker.told) == (None, set())
    worker.reconcile(DEADLINES[2])
    assert worker.job["spec"]["parallelism"] == 8


@pytest.mark.parametrize(("size", "left"), [(6, 8), (7, 7)], ids=["as it was left", "its user has resized it"])
def test_a_notice_that_is_withdrawn_gives_back_what_an_earlier_one_took(size: int, left: int) -> None:
    """The manager has not heard that these pods are gone, so their quota was never free."""
    worker = steps(6, 5)
    worker.reconcile(DEADLINE)
    worker.job["spec"]["parallelism"] = size
    order = structs.replace(shrink(8, id="word-2", version=4), resized_reason=api_names.RESTORED, notice=UNSET)
    worker.take(order)
    assert (worker.job["spec"]["parallelism"], worker.reclaim) == (left, None)


@pytest.mark.parametrize(("before", "to"), [(6, 8), (10, 8)])
def test_a_notice_that_is_withdrawn_leaves_a_resize_of_meanwhile(before: int, to: int) -> None:
    """Its user has gone back to the size of the manager's spec, and the manager has not heard of that."""
    worker = Worker(before)
    worker.job["metadata"]["annotations"][api_names.BASELINE_ANNOTATION] = f'{{"main":{to}}}'
    worker.take(shrink())
    worker.job["spec"]["parallelism"] = to
    worker.take(structs.replace(shrink(before, version=3), resized_reason=api_names.RESTORED, notice=UNSET))
    assert (worker.job["spec"]["parallelism"], worker.reclaim) == (to, None)


def test_the_newest_word_is_followed() -> None:
    worker = Worker()
    worker.take(shrink())
    worker.take(shrink(id="word-2", version=3))
    worker.reconcile(DEADLINE)
    assert worker.noted(api_names.FOLLOWS_ANNOTATION) == "word-2"


@ORDERS
def test_an_order_without_a_notice_withdraws_it(order: JobOrder) -> None:
    worker = Worker()
    worker.take(order)
    worker.take(a_spec(1, granted=8, parallelism=8))
    assert worker.reclaim is not None, "a late order does not"
    worker.take(a_spec(3, granted=8, parallelism=8))
    assert (worker.reclaim, worker.told) == (None, set())
    worker.reconcile(DEADLINE)
    assert not is_done(worker)


def test_a_smaller_size_of_its_user_stays() -> None:
    worker = Worker()
    worker.take(shrink())
    worker.job["spec"]["parallelism"] = 3
    worker.reconcile(DEADLINE)
    assert (worker.job["spec"]["parallelism"], annotations.baseline(worker.job)) == (3, {"main": 4})


@pytest.mark.parametrize(("at_once", "size"), [(False, 3), (True, 3), (False, 2), (False, 1)])
def test_a_later_word_for_fewer_pods_gives_back_what_an_earlier_one_took(at_once: bool, size: int) -> None:
    """It was taken back in part while the worker carried it out, and the worker hears of both together."""
    worker = Worker()
    worker.take(shrink(2))
    worker.reconcile(DEADLINE)
    assert worker.job["spec"]["parallelism"] == 2
    later = shrink(size, id="word-2", version=3)
    worker.take(structs.replace(later, notice=UNSET) if at_once else later)
    worker.reconcile("2026-01-31T12:04:03Z")
    assert (worker.job["spec"]["parallelism"], annotations.baseline(worker.job)) == (size, {"main": size})


def test_no_pod_starts_in_place_of_one_that_goes() -> None:
    worker = Worker()
    worker.pods["p9"] = a_pod("p9", gated=True)
    del worker.pods["p0"]
    assert [pod["metadata"]["name"] for pod in next_pods(worker.view)] == ["p9"]
    worker.take(shrink())
    assert next_pods(worker.view) == []


def test_the_inventory_shows_the_size_that_was_ordered() -> None:
    """Otherwise every inventory would have the order sent again."""
    waits, does = Worker(), Worker()
    waits.take(shrink())
    does.take(structs.replace(shrink(), notice=msgspec.UNSET))
    does.job["spec"]["parallelism"] = 8
    hashes = [inventory._spec_hash(worker.job, EAST) for worker in (waits, does)]
    assert hashes == [spec_hash(EAST, "w1", {"main": 4}, {"main": 4})] * 2, "and what that leaves it"


def test_it_is_reconciled_at_its_deadline() -> None:
    worker = Worker()
    assert notices.requeue_after(worker.view, now=BEGUN) == []
    worker.take(shrink())
    assert notices.requeue_after(worker.view, now=BEGUN) == [Requeue(job=REF, delay_s=121.0)]
    assert notices.requeue_after(worker.view, now=DEADLINE) == []


@pytest.mark.parametrize("value", ["", "{", '{"id": "a", "from": {}, "to": {}, "deadline": "soon"}'])
def test_what_nobody_can_read_is_no_notice(value: str) -> None:
    worker = Worker()
    worker.job["metadata"]["annotations"][TOLD] = value
    assert worker.reclaim is None
    worker.reconcile()
    assert worker.view.reading is not None


def aged(name: str, **how: Any) -> Manifest:
    """A pod that runs on a node since the first second of a day."""
    pod = a_pod(name, ready=how.get("ready", True), phase=how.get("phase", "Running"))
    pod["spec"]["nodeName"] = how.get("node", "n1")
    pod["metadata"]["creationTimestamp"] = how.get("made", "2026-01-01T00:00:00Z")
    pod["metadata"]["labels"] |= how.get("labels", {})
    for condition in pod["status"].get("conditions", []):
        condition["lastTransitionTime"] = how.get("since", "2026-01-01T00:00:00Z")
    pod["status"]["containerStatuses"] = [{"name": "c", "restartCount": how.get("restarts", 0)}]
    return pod


FIRST: dict[str, dict[str, Any]] = {
    "without a node": {"node": ""},
    "pending": {"phase": "Pending"},
    "not ready": {"ready": False},
    "ready for a shorter time": {"since": "2026-01-01T00:00:01Z"},
    "more restarts": {"restarts": 1},
    "newer": {"made": "2026-01-01T00:00:01Z"},
}


@pytest.mark.parametrize("how", FIRST.values(), ids=FIRST.keys())
def test_the_pods_go_that_the_job_controller_picks(how: dict[str, Any]) -> None:
    worker = Worker()
    worker.pods = {name: aged(name) for name in ("p0", "p2")} | {"p1": aged("p1", **how)}
    reclaim = PendingReclaim(id="a", before={"main": 3}, to={"main": 2}, deadline=DEADLINE)
    assert [pod.name for pod in going_pods(worker.view, reclaim)] == ["p1"]


def shares(size: int, *, bound: int = 8) -> Worker:
    """An Indexed Job with as many completions as pods, which stay; the manager has last set `bound`."""
    worker = Worker(bound)
    worker.job["spec"] |= {"completionMode": "Indexed", "parallelism": size, "completions": size}
    worker.job["metadata"]["annotations"] |= {
        api_names.BOUNDS_ANNOTATION: f'{{"completions":{bound}}}',
        kueue.SYNC_COMPLETIONS_ANNOTATION: "false",
    }
    return worker


def indexed(size: int, *, bound: int = 8) -> Worker:
    """One whose completions follow its size."""
    worker = shares(size, bound=bound)
    del worker.job["metadata"]["annotations"][kueue.SYNC_COMPLETIONS_ANNOTATION]
    return worker


def with_completions(order: WorkloadSpec, number: int) -> WorkloadSpec:
    """An order for a job whose completions stay."""
    annotations = order.manifest["metadata"].setdefault("annotations", {})
    annotations[kueue.SYNC_COMPLETIONS_ANNOTATION] = "false"
    order.manifest["spec"] |= {"completionMode": "Indexed", "completions": number}
    return order


def to_completions(order: WorkloadSpec) -> WorkloadSpec:
    """An order for a job whose completions follow its size."""
    with_completions(order, order.manifest["spec"]["parallelism"])
    del order.manifest["metadata"]["annotations"][kueue.SYNC_COMPLETIONS_ANNOTATION]
    return order


def never_following(order: WorkloadSpec, number: int) -> WorkloadSpec:
    """An order for a job with more completions than pods at the manager."""
    with_completions(order, number)
    del order.manifest["metadata"]["annotations"][kueue.SYNC_COMPLETIONS_ANNOTATION]
    return order


def sizes(worker: Worker) -> tuple[int, int, Manifest | None]:
    """Pods, completions, and the noted bounds."""
    spec = worker.job["spec"]
    return spec["parallelism"], spec["completions"], annotations.bounds(worker.job)


def test_completions_go_down_with_the_pods_when_the_notice_is_over() -> None:
    worker = indexed(8)
    worker.take(to_completions(shrink()))
    worker.reconcile(BEFORE)
    assert sizes(worker) == (8, 8, {"completions": 8})
    worker.reconcile(DEADLINE)
    assert sizes(worker) == (4, 4, {"completions": 4})
    worker.take(to_completions(shrink()))
    assert (sizes(worker), worker.reclaim) == ((4, 4, {"completions": 4}), None), "the order comes twice"


@pytest.mark.parametrize("has_notice", [True, False], ids=["with a notice", "at once"])
def test_completions_stay_that_do_not_follow(has_notice: bool) -> None:
    worker = shares(8)
    succeeded(worker, 0, 1, 2)
    order = with_completions(shrink(), 8)
    worker.take(order if has_notice else structs.replace(order, notice=UNSET))
    assert len(worker.told) == has_notice, "four of the five that run stay"
    worker.reconcile(DEADLINE)
    assert sizes(worker) == (4, 8, {"completions": 8})
    worker.take(with_completions(restored(5), 8))
    assert sizes(worker) == (5, 8, {"completions": 8})


SHARES: dict[str, tuple[int, int, list[tuple[int, int, tuple[int, int, int]]]]] = {
    "as its user has it": (8, 8, [(4, 8, (4, 8, 8)), (8, 8, (8, 8, 8))]),
    "made larger where it runs": (8, 4, [(6, 6, (6, 8, 4)), (2, 4, (2, 8, 4)), (7, 7, (7, 8, 4)), (8, 8, (8, 8, 4))]),
    "made smaller where it runs": (4, 8, [(2, 8, (2, 4, 8)), (4, 8, (4, 4, 8))]),
}
"""The size on the worker, what the manager has last set, and each order's pods and completions with what becomes of
it."""


@pytest.mark.parametrize(("size", "bound", "words"), SHARES.values(), ids=SHARES.keys())
def test_they_stay_what_they_were_made_where_it_runs(
    size: int, bound: int, words: list[tuple[int, int, tuple[int, int, int]]]
) -> None:
    worker, before, word = shares(size, bound=bound), size, 0
    for version, (pods, completions, (left, most, noted)) in enumerate(words, 2):
        word += pods < before
        order = (shrink if pods < before else restored)(pods, id=f"word-{word}", version=version)
        worker.take(with_completions(structs.replace(order, notice=UNSET), completions))
        assert sizes(worker) == (left, most, {"completions": noted})
        before = pods


def test_completions_that_were_edited_before_pods_were_taken_are_taken_over() -> None:
    """The agent was away during the edit."""
    order = structs.replace(with_completions(shrink(5), 12), notice=UNSET)
    view = shares(8).view
    assert view.reading is not None
    patches = [one.body for one in order_sizes.changes(view, order, view.reading) if isinstance(one, Patch)]
    assert patches == [
        [
            {"op": "add", "path": "/spec/parallelism", "value": 12},
            {"op": "add", "path": "/spec/completions", "value": 12},
        ],
        [{"op": "add", "path": "/spec/parallelism", "value": 5}],
    ]


def undone(to: int) -> WorkloadSpec:
    """An order that undoes a scale-up whose pods were not ready."""
    return structs.replace(shrink(to), resized_reason=UNSET, notice=UNSET)


UNDONE: dict[str, tuple[Worker, WorkloadSpec, tuple[int, int, int]]] = {
    "ranks": (indexed(12), to_completions(undone(8)), (8, 8, 8)),
    "shares, made larger where it runs": (shares(12), with_completions(undone(8), 8), (8, 12, 8)),
    "shares, grown before from less": (shares(12, bound=6), with_completions(undone(8), 8), (8, 12, 6)),
    "shares, made larger at the manager": (shares(8), with_completions(undone(5), 8), (5, 8, 8)),
    "they never followed": (indexed(16, bound=12), never_following(undone(4), 12), (4, 16, 12)),
}
"""The worker's job, the order, and the pods, completions and noted bounds that are left."""


@pytest.mark.parametrize(("worker", "order", "left"), UNDONE.values(), ids=UNDONE.keys())
def test_a_scale_up_that_is_undone_leaves_the_completions_that_do_not_follow(
    worker: Worker, order: WorkloadSpec, left: tuple[int, int, int]
) -> None:
    pods, most, noted = left
    worker.take(order)
    assert sizes(worker) == (pods, most, {"completions": noted})
    worker.job["spec"] |= {"parallelism": 3, "completions": 3}
    worker.take(structs.replace(order, spec_version=3))
    assert sizes(worker)[:2] == (3, 3), "a later order sets it no more"


@pytest.mark.parametrize("has_notice", [True, False], ids=["with a notice", "at once"])
def test_they_do_not_follow_where_they_are_equal_on_the_worker_alone(has_notice: bool) -> None:
    """All twelve indexes were to run, four at a time; somebody has let them run at once."""
    worker = indexed(12, bound=12)
    worker.job["metadata"]["annotations"][api_names.BASELINE_ANNOTATION] = '{"main":4}'
    order = never_following(shrink(6), 12)
    worker.take(order if has_notice else structs.replace(order, notice=UNSET))
    worker.reconcile(DEADLINE)
    assert sizes(worker) == (6, 12, {"completions": 12})


@pytest.mark.parametrize("has_notice", [True, False], ids=["with a notice", "at once"])
def test_they_do_not_follow_where_the_worker_has_more_of_them_than_pods(has_notice: bool) -> None:
    """Somebody has made the pods fewer where it runs: all eight indexes run, four at a time."""
    worker = indexed(8)
    worker.job["spec"]["parallelism"] = 4
    order = to_completions(shrink(2))
    worker.take(order if has_notice else structs.replace(order, notice=UNSET))
    worker.reconcile(DEADLINE)
    assert sizes(worker)[:2] == (2, 8)
    worker = indexed(8)
    worker.job["spec"]["parallelism"] = 4
    succeeded(worker, 0, 1, 2)
    order = to_completions(shrink(5))
    worker.take(order if has_notice else structs.replace(order, notice=UNSET))
    worker.reconcile(DEADLINE)
    assert sizes(worker)[:2] == (2, 8), "the manager counts those that have succeeded"
    for version, size in enumerate((2, 4), 3):
        worker.take(to_completions(restored(size, version=version)))
    assert sizes(worker)[:2] == (4, 8), "the worker has asked for what is left, and it comes back by that"


@pytest.mark.parametrize("follows", [True, False])
def test_whether_they_follow_is_what_the_managers_job_says_last(follows: bool) -> None:
    worker, order = (shares if follows else indexed)(8), structs.replace(with_completions(shrink(), 8), notice=UNSET)
    worker.take(to_completions(order) if follows else order)
    assert sizes(worker)[:2] == ((4, 4) if follows else (4, 8))
    assert worker.noted(kueue.SYNC_COMPLETIONS_ANNOTATION) == (None if follows else "false")


@pytest.mark.parametrize("has_notice", [True, False], ids=["with a notice", "at once"])
def test_no_reclaim_adds_completions_to_a_job_that_its_user_has_made_smaller(has_notice: bool) -> None:
    worker, order = indexed(2), to_completions(shrink())
    worker.pods = {name: worker.pods[name] for name in ("p0", "p1")}
    worker.take(order if has_notice else structs.replace(order, notice=UNSET))
    assert sizes(worker) == (2, 2, {"completions": 4})
    worker.take(to_completions(structs.replace(shrink(version=3), notice=UNSET)))
    assert sizes(worker) == (2, 2, {"completions": 4}), "nor does a later order"


def succeeded(worker: Worker, *indexes: int) -> None:
    worker.job["status"] = {"succeeded": len(indexes), "completedIndexes": ",".join(map(str, indexes))}
    for index in indexes:
        worker.pods.pop(f"p{index}", None)


def test_as_many_pods_go_as_indexes_run_past_the_size() -> None:
    worker = indexed(8)
    succeeded(worker, 0, 1, 7)
    worker.take(to_completions(shrink(7)))
    assert (len(worker.told), sizes(worker)[:2]) == (0, (7, 7)), "all that are left may stay"
    worker = indexed(8)
    succeeded(worker, 0, 1, 6)
    worker.take(to_completions(shrink(6)))
    assert (len(worker.told), sizes(worker)[:2]) == (1, (8, 8))


def test_a_word_that_spares_pods_does_not_begin_a_notice_anew() -> None:
    worker = indexed(8)
    worker.take(to_completions(shrink()))
    worker.now = BEFORE
    succeeded(worker, 0)
    worker.take(to_completions(shrink(5, id="word-2", version=3)))
    assert worker.reclaim is not None
    assert (worker.reclaim.deadline, worker.reclaim.to) == (DEADLINE, {"main": 5})
    worker.reconcile(DEADLINE)
    assert sizes(worker) == (5, 5, {"completions": 5})


def test_a_later_word_gives_indexes_back_for_those_that_have_succeeded() -> None:
    worker = indexed(8)
    worker.take(to_completions(structs.replace(shrink(), notice=UNSET)))
    assert sizes(worker)[:2] == (4, 4)
    worker.take(to_completions(structs.replace(shrink(5, id="word-2", version=3), notice=UNSET)))
    assert sizes(worker)[:2] == (5, 5)


@pytest.mark.parametrize("has_notice", [True, False], ids=["with a notice", "at once"])
def test_no_job_is_complete_by_what_others_take(has_notice: bool) -> None:
    """All that were to stay have succeeded meanwhile. The manager hears that nothing else is left."""
    worker, order = indexed(8), structs.replace(to_completions(shrink()), waits_for={"main": 8})
    if has_notice:
        worker.take(order)
    succeeded(worker, 0, 1, 2, 3)
    worker.take(order if has_notice else structs.replace(order, notice=UNSET))
    worker.reconcile(DEADLINE)
    assert (sizes(worker), worker.reclaim) == ((8, 8, {"completions": 4}), None)
    assert worker.noted(api_names.TAKEN_BACK_ANNOTATION) == "word-1"


def test_who_was_told_stays_the_one_that_goes() -> None:
    worker = Worker()
    worker.take(shrink())
    told = worker.told
    assert len(told) == 4
    for name in {*worker.pods} - told:
        worker.pods[name]["status"]["conditions"] = []
    worker.reconcile()
    assert worker.told == told


def test_the_pods_are_told_what_concerns_them() -> None:
    worker = Worker()
    worker.take(shrink())
    [text] = {worker.pods[name]["metadata"]["annotations"][TOLD] for name in worker.told}
    assert msgspec.json.decode(text) == {
        "id": "word-1",
        "from": {"main": 8},
        "to": {"main": 4},
        "deadline": DEADLINE,
        "why": "so it is",
        "for": ["team/high"],
    }


def test_a_write_that_is_refused_holds_up_nothing() -> None:
    worker = Worker()
    worker.take(suspension())
    for pod in worker.pods.values():
        del pod["metadata"]["annotations"]
    commands: list[Command] = notices.reconcile(worker.view, now=BEGUN)
    assert len(commands) == 8
    assert all(isinstance(command, Patch) and command.only_shows for command in commands)
