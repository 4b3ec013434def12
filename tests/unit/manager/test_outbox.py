"""The outbox as a state machine: every state, everything that may be wanted, and what follows."""

from collections.abc import Callable
from fnmatch import fnmatch
from itertools import product, starmap
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from slicebus.decisions.commands import Command, Patch, Publish
from slicebus.manager.decide.order import dispatch
from slicebus.manager.decide.order.outbox import STEPS, next_version
from slicebus.manager.state.outbox import (
    HOLDING,
    LOST,
    MOST_BELIEVED,
    STOPPED,
    WITHDRAWN,
    Dispatch,
    Held,
    Outbox,
    OutboxState,
    Progress,
)
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import MOST_VERSION
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.api import api_names
from slicebus.slices.api.fingerprints import spec_hash
from slicebus.slices.workload.workload import Slice
from unit.manager.objects import CONTENT, EAST, WEST, Manifest, a_job, a_view, a_workload, condition, short

HERE = dispatch._flavors_hash(Slice.from_manifest(a_workload(admitted=1)))
RECORDS = {
    "hold": Dispatch(3, spec_hash(EAST, "w1", {"main": 1}, {"main": 1}), cluster=EAST, place=HERE),
    "suspended": Dispatch(3, spec_hash(EAST, "w1", {}, None), cluster=EAST, place=HERE, suspended=True),
    "absent": Dispatch(3, api_names.ABSENT, cluster=EAST),
}
PROGRESS = {"written": (2, 0), "published": (2, 3), "applied": (3, 0), "lost": (3, 0)}
"""The version that is applied, and the one that this process has published."""


def evicted(name: str = "w1") -> Manifest:
    return a_workload(name, admitted=1, conditions=(condition("Evicted", True, "Preempted"),))


def hold(view: JobView) -> list[Command]:
    return dispatch.hold(view, view.slices[-1])


def suspend(view: JobView) -> list[Command]:
    return dispatch.suspend(view, view.slices[-1])


def withdraw(view: JobView) -> list[Command]:
    return dispatch.withdraw(view, reason="JobDeleted")


WANTS: dict[str, tuple[Callable[[JobView], list[Command]], list[Manifest]]] = {
    "hold": (hold, [a_workload(admitted=1)]),
    "hold more": (hold, [a_workload(count=2, admitted=2)]),
    "hold elsewhere": (hold, [a_workload(admitted=1, cluster=WEST)]),
    "suspend": (suspend, [evicted()]),
    "suspend a newer": (suspend, [a_workload(admitted=1), evicted("w2")]),
    "withdraw": (withdraw, [a_workload(admitted=1)]),
}
FOLLOWS = """
                    | hold    | hold more | hold elsewhere | suspend | suspend a newer | withdraw
never dispatched    | write   | write     | write          | -       | -               | -
hold written        | publish | write     | write          | write   | write           | write
hold published      | -       | write     | write          | write   | write           | write
hold applied        | -       | write     | write          | write   | write           | write
hold lost           | write   | write     | write          | write   | write           | write
suspended written   | write   | write     | delete         | publish | write           | write
suspended published | write   | write     | delete         | -       | write           | write
suspended applied   | write   | write     | delete         | -       | write           | write
suspended lost      | write   | write     | delete         | write   | write           | write
absent written      | publish | publish   | publish        | publish | publish         | publish
absent published    | -       | -         | -              | -       | -               | -
absent applied      | write   | write     | write          | -       | -               | -
"""
"""write: the next version is written and published; publish: this version is published again; delete: the copy that the
worker has is withdrawn first; leave: it is left behind on its cluster."""
OTHERWISE: dict[str, tuple[dict[str, Any], dict[tuple[str, str], str]]] = {
    "nothing else": ({}, {}),
    "its copy has vanished": (
        {"vanished": True},
        {("hold *", "suspend*"): "delete", ("suspended *", "suspend*"): "delete"},
    ),
    "its delete is held": (
        {"deletes_held": True},
        {("hold *", "withdraw"): "-", ("suspended *", "withdraw"): "-", ("suspended *", "hold elsewhere"): "-"},
    ),
    "its copy has vanished and its delete is held": (
        {"vanished": True, "deletes_held": True},
        {
            ("hold *", "suspend*"): "-",
            ("suspended *", "suspend*"): "-",
            ("hold *", "withdraw"): "-",
            ("suspended *", "withdraw"): "-",
            ("suspended *", "hold elsewhere"): "-",
        },
    ),
    "its cluster is given up": (
        {"given_up": True},
        {
            ("suspended *", "hold elsewhere"): "leave",
            ("absent written", "[!w]*"): "leave",
            ("absent published", "[!w]*"): "leave",
        },
    ),
    "its cluster has left the fleet": (
        {"in_fleet": False},
        {
            ("*", "suspend*"): "-",
            ("*", "withdraw"): "-",
            ("suspended *", "hold elsewhere"): "write",
            ("absent written", "hold*"): "write",
            ("absent published", "hold*"): "write",
        },
    ),
}


def states() -> list[str]:
    return [line.partition("|")[0].strip() for line in FOLLOWS.strip().splitlines()[1:]]


def expected(state: str, want: str, otherwise: dict[tuple[str, str], str]) -> str:
    head, *lines = ([cell.strip() for cell in line.split("|")] for line in FOLLOWS.strip().splitlines())
    follows = {line[0]: dict(zip(head, line, strict=True)) for line in lines}[state][want]
    others = (other for (states, wants), other in otherwise.items() if fnmatch(state, states) and fnmatch(want, wants))
    return next(others, follows)


def in_state(state: str, workloads: list[Manifest], *, vanished: bool = False, **situation: Any) -> JobView:
    """The view of a job whose first Workload has a dispatch in this state."""
    if state == "never dispatched":
        return a_view(a_job(), *workloads, **situation)
    held, progress = state.split()
    record, (applied, published) = RECORDS[held], PROGRESS[progress]
    if progress == "lost":
        record = msgspec.structs.replace(record, hash=LOST)
    if vanished:
        record = msgspec.structs.replace(record, vanished=True)
    first, *others = workloads
    annotations = {api_names.DISPATCHED_ANNOTATION: record.to_annotation(), api_names.APPLIED_ANNOTATION: str(applied)}
    noted = merge_patch(first, {"metadata": {"annotations": annotations}})
    return a_view(a_job(), noted, *others, published=published, **situation)


def what_follows(want: str, commands: list[Command]) -> str:
    """The commands as a word of the grid."""
    writes = [command for command in commands if isinstance(command, Patch)]
    messages = [command.message.type for command in commands if isinstance(command, Publish)]
    if not writes:
        assert len(messages) <= 1
        return "publish" if messages else "-"
    [write], record = writes, Dispatch.from_manifest(writes[0].body)
    assert record is not None
    assert record.version == 4 or record.version == 1
    if api_names.APPLIED_ANNOTATION in write.body["metadata"]["annotations"]:
        assert (record.hash, messages) == (api_names.ABSENT, [])
        return "leave"
    if record.hash == api_names.ABSENT:
        assert messages == ["delete"]
        return "write" if want == "withdraw" else "delete"
    assert messages == ["suspend" if record.suspended else "workload-spec"]
    return "write"


def test_the_table_has_every_state_that_can_be_read() -> None:
    readable = set(starmap(OutboxState, product(Held, Progress))) - {OutboxState(Held.ABSENT, Progress.LOST)}
    assert STEPS.keys() == readable
    assert all(row.keys() == set(Held) for row in STEPS.values())
    lost = msgspec.structs.replace(RECORDS["absent"], hash=LOST)
    assert lost.held is Held.HOLD


READINGS: dict[str, tuple[str, int, int, OutboxState]] = {
    "never reported": ('{"version":3,"hash":"h"}', 0, 0, OutboxState(Held.HOLD, Progress.WRITTEN)),
    "an older version was published": ('{"version":3,"hash":"h"}', 2, 2, OutboxState(Held.HOLD, Progress.WRITTEN)),
    "published": ('{"version":3,"hash":"h"}', 2, 3, OutboxState(Held.HOLD, Progress.PUBLISHED)),
    "reported": ('{"version":3,"hash":"h"}', 3, 3, HOLDING),
    "reported to another process": ('{"version":3,"hash":"h"}', 3, 0, HOLDING),
    "a newer version was reported": ('{"version":3,"hash":"h"}', 4, 0, HOLDING),
    "suspended": ('{"version":3,"hash":"h","suspended":true}', 2, 3, OutboxState(Held.SUSPENDED, Progress.PUBLISHED)),
    "suspended, and reported": ('{"version":3,"hash":"h","suspended":true}', 3, 0, STOPPED),
    "to be deleted": ('{"version":3,"hash":"absent"}', 2, 0, OutboxState(Held.ABSENT, Progress.WRITTEN)),
    "deleted": ('{"version":3,"hash":"absent"}', 3, 0, WITHDRAWN),
    "lost": ('{"version":3,"hash":"lost"}', 3, 3, OutboxState(Held.HOLD, Progress.LOST)),
    "lost, above what is reported": ('{"version":9,"hash":"lost"}', 3, 3, OutboxState(Held.HOLD, Progress.LOST)),
    "suspended, and lost": (
        '{"version":3,"hash":"lost","suspended":true}',
        3,
        3,
        OutboxState(Held.SUSPENDED, Progress.LOST),
    ),
}


@pytest.mark.parametrize(("stored", "applied", "published", "state"), READINGS.values(), ids=READINGS.keys())
def test_the_state_is_read_from_what_is_stored(stored: str, applied: int, published: int, state: OutboxState) -> None:
    workload = a_workload(admitted=1)
    workload["metadata"]["annotations"] |= {
        api_names.DISPATCHED_ANNOTATION: stored,
        api_names.APPLIED_ANNOTATION: str(applied),
    }
    assert a_view(a_job(), workload, published=published).state == state


def test_a_worker_holds_nothing_before_the_first_dispatch() -> None:
    assert a_view(a_job(), a_workload(admitted=1)).state == WITHDRAWN


@pytest.mark.parametrize("otherwise", OTHERWISE)
@pytest.mark.parametrize("want", WANTS)
@pytest.mark.parametrize("state", states())
def test_what_follows(state: str, want: str, otherwise: str) -> None:
    situation, others = OTHERWISE[otherwise]
    decide, workloads = WANTS[want]
    view = in_state(state, workloads, **situation)
    assert what_follows(want, decide(view)) == expected(state, want, others)


class Process:
    """The processes that follow one another for a job, and a worker that reports whatever was published."""

    def __init__(self, state: str, want: str, situation: dict[str, Any]) -> None:
        self._decide, workloads = WANTS[want]
        view = in_state(state, workloads, **situation)
        self._workloads, self._published, self._sent = view.workloads, view.published, view.published
        self.steps = 0

    @property
    def view(self) -> JobView:
        return a_view(a_job(), *self._workloads.values(), published=self._published)

    def run(self, *, crash_after: int = -1) -> None:
        """Carry out every command and report, one a step, until nothing follows. A crash loses what is not written."""
        waiting = self._decide(self.view)
        while waiting or self._is_unreported:
            assert self.steps < 20
            if self.steps == crash_after:
                self._published, waiting = 0, self._decide(self.view)
            self.steps += 1
            if waiting:
                self._carry_out(waiting.pop(0))
            else:
                self._report()
            waiting = waiting or self._decide(self.view)

    @property
    def _is_unreported(self) -> bool:
        outbox = self.view.outbox
        return outbox is not None and not outbox.is_reported and self._sent == outbox.record.version

    def _carry_out(self, command: Command) -> None:
        if isinstance(command, Patch):
            self._workloads[command.target["metadata"]["name"]] = merge_patch(command.target, command.body)
        elif isinstance(command, Publish):
            self._published = self._sent = command.message.spec_version

    def _report(self) -> None:
        outbox = self.view.outbox
        assert outbox is not None
        body = {"metadata": {"annotations": {api_names.APPLIED_ANNOTATION: str(self._sent)}}}
        self._workloads[outbox.recorded_on["metadata"]["name"]] = merge_patch(outbox.recorded_on, body)


def is_reached(want: str, view: JobView) -> bool:
    if want == "withdraw":
        return view.is_withdrawn
    if want.startswith("suspend"):
        return view.is_without_pods
    return (
        view.cluster == view.place and not view.is_without_pods and view.outbox is not None and view.outbox.is_reported
    )


@pytest.mark.parametrize("otherwise", ["nothing else", "its copy has vanished"])
@pytest.mark.parametrize("want", WANTS)
@pytest.mark.parametrize("state", states())
def test_every_state_reaches_what_is_wanted_whenever_its_process_crashes(state: str, want: str, otherwise: str) -> None:
    situation, _ = OTHERWISE[otherwise]
    undisturbed = Process(state, want, situation)
    undisturbed.run()
    assert is_reached(want, undisturbed.view)
    for crash_after in range(undisturbed.steps):
        crashed = Process(state, want, situation)
        crashed.run(crash_after=crash_after)
        assert crashed.view.workloads == undisturbed.view.workloads


def test_a_job_that_an_unknown_version_has_moved_is_moved_to_its_slice_until_that_is_reported() -> None:
    workload = a_workload(admitted=1, dispatched=2, applied=2)
    [lost] = dispatch.renew(a_view(a_job(), workload), above=7, has_copy=True)
    assert isinstance(lost, Patch)
    workload = merge_patch(workload, lost.body)
    ordered = [("workload-spec to east", 8), ("relabel to east", 8)]
    [written, _, *messages] = hold(a_view(a_job(), workload))
    assert isinstance(written, Patch)
    assert [short(message) for message in messages] == ordered
    workload = merge_patch(workload, written.body)
    assert [short(message) for message in hold(a_view(a_job(), workload))[1:]] == ordered, "published again"
    workload["metadata"]["annotations"][api_names.APPLIED_ANNOTATION] = "8"
    [written, _, *messages] = hold(a_view(a_job(3), workload))
    assert isinstance(written, Patch)
    assert [short(message) for message in messages] == [("workload-spec to east", 9)]


def test_the_orders_after_the_highest_version_that_somebody_says_can_be_read() -> None:
    """An inventory may say any. The next order went past what a record can have, and nobody could read it."""
    workload = a_workload(admitted=1, dispatched=2, applied=2)
    for version in (MOST_BELIEVED + 1, MOST_BELIEVED + 3):
        [lost] = dispatch.renew(a_view(a_job(), workload), above=MOST_VERSION, has_copy=True)
        assert isinstance(lost, Patch)
        workload = merge_patch(workload, lost.body)
        [written, *_] = hold(a_view(a_job(), workload))
        assert isinstance(written, Patch)
        workload = merge_patch(workload, written.body)
        outbox = Outbox.from_manifest(workload)
        assert outbox is not None
        assert outbox.record.version == version
        workload["metadata"]["annotations"][api_names.APPLIED_ANNOTATION] = str(version + 1)


def job_with(record: str, applied: str = "") -> Manifest:
    return a_job(annotations={api_names.DISPATCHED_ANNOTATION: record, api_names.APPLIED_ANNOTATION: applied})


LEFT = {
    "as the manager leaves it": (job_with(Dispatch(3, api_names.ABSENT, cluster=EAST).to_annotation(), "3"), 3),
    "a copy": (job_with(Dispatch(3, CONTENT, cluster=EAST).to_annotation()), 3),
    "a lost one": (job_with(Dispatch(3, LOST, cluster=EAST).to_annotation(), "5"), 5),
    "one without pods": (job_with(Dispatch(3, CONTENT, cluster=EAST, suspended=True).to_annotation()), 3),
    "copies that fence other clusters": (
        job_with(Dispatch(3, api_names.ABSENT, cluster=EAST, left_copies={"west": 9}).to_annotation(), "3"),
        3,
    ),
    "a version that nobody has counted to": (job_with(Dispatch(2**60, api_names.ABSENT).to_annotation()), None),
    "a version below the first": (job_with(Dispatch(-4, api_names.ABSENT).to_annotation()), None),
    "no record": (job_with("{"), None),
}


@pytest.mark.parametrize(("job", "version"), LEFT.values(), ids=LEFT.keys())
def test_what_a_user_may_have_written_onto_a_job_is_a_version_and_no_more(job: Manifest, version: int | None) -> None:
    view = a_view(job)
    assert view.is_withdrawn
    assert (view.cluster, view.left_copies, view.vanished) == (None, {}, False)
    assert (view.outbox.record.version if view.outbox else None) == version
    if view.outbox is not None:
        assert (view.outbox.record.left_copies, view.outbox.record.unknown_end) == ({}, UNSET)


@pytest.mark.parametrize("job", [job for job, _ in LEFT.values()], ids=LEFT.keys())
def test_it_counts_for_nothing_beside_a_workloads(job: Manifest) -> None:
    workload = a_workload(admitted=1, dispatched=2, applied=1)
    view = a_view(job, workload)
    assert view.outbox == Outbox.from_manifest(workload)
    assert view.cluster == EAST


def test_a_run_after_a_delete_that_is_lost_is_a_new_one() -> None:
    deleted = Dispatch(6, api_names.ABSENT, cluster=EAST, since=2)
    workload = a_workload(admitted=1)
    workload["metadata"]["annotations"] |= {
        api_names.DISPATCHED_ANNOTATION: deleted.to_annotation(),
        api_names.APPLIED_ANNOTATION: "6",
    }
    for decide in (lambda view: dispatch.renew(view, above=9, has_copy=True), hold):
        [write, *_] = decide(a_view(a_job(), workload))
        assert isinstance(write, Patch)
        workload = merge_patch(workload, write.body)
    record = Dispatch.from_manifest(workload)
    assert record is not None
    assert (record.version, record.held, record.is_of_this_run(5)) == (10, Held.HOLD, False)


def test_a_copy_that_is_lost_counts_as_lost_until_the_next_order_is_reported() -> None:
    workload = a_workload(admitted=1, dispatched=2, applied=2)
    [lost] = dispatch.renew(a_view(a_job(), workload), above=2, has_copy=False)
    known = [lost, *hold(a_view(a_job(), merged(workload, lost)))[:1]]
    workload = merged(workload, *known)
    assert not dispatch.has_copy(a_view(a_job(), workload))
    workload["metadata"]["annotations"][api_names.APPLIED_ANNOTATION] = "3"
    assert dispatch.has_copy(a_view(a_job(), workload))
    next_record = next_version(Outbox.from_manifest(workload), Dispatch(0, "hash"))
    assert (next_record.version, next_record.lost_version) == (4, UNSET)


def merged(workload: Manifest, *commands: Command) -> Manifest:
    for command in commands:
        assert isinstance(command, Patch)
        assert isinstance(command.body, dict)
        workload = merge_patch(workload, command.body)
    return workload


def test_a_copy_before_a_delete_that_was_reported_is_no_present_one() -> None:
    workload = a_workload(admitted=1)
    deleted = Dispatch(6, api_names.ABSENT, cluster=EAST, since=2)
    workload["metadata"]["annotations"] |= {
        api_names.DISPATCHED_ANNOTATION: deleted.to_annotation(),
        api_names.APPLIED_ANNOTATION: "6",
    }
    [write, *_] = hold(a_view(a_job(), workload))
    assert isinstance(write, Patch)
    outbox = Outbox.from_manifest(merge_patch(workload, write.body))
    assert outbox is not None
    assert [outbox.has_outlived(version) for version in (5, 6, 7)] == [True, True, False]


def test_no_version_is_used_twice_where_the_workload_of_the_last_one_is_gone() -> None:
    """A user may delete one of the Workloads of a job that has ended. The others know what was reported."""
    workload = a_workload(admitted=1, dispatched=2, applied=5)
    for way in (dispatch.withdraw(a_view(a_job(), workload), reason="JobFinished"), abandoned(workload)):
        [write, *_] = way
        assert isinstance(write, Patch)
        record = Dispatch.from_manifest(merge_patch(workload, write.body))
        assert record is not None
        assert record.version == 6


def abandoned(workload: Manifest) -> list[Command]:
    return dispatch.abandon(a_view(a_job(), workload, given_up=True))
