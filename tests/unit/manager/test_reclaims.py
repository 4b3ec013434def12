"""Pods are taken back from a job, somebody resizes it or nobody does, and it has them again."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from msgspec import structs

from slicebus.decisions.commands import Command, Create, Emit, Patch, Publish, Requeue
from slicebus.kube.times import time_text
from slicebus.manager.decide.admission import admission_writes, admitting, builtin
from slicebus.manager.decide.job import edits, reclaims
from slicebus.manager.decide.messages import message_handlers
from slicebus.manager.decide.modes import Builtin
from slicebus.manager.state.annotations import SizeRequest
from slicebus.manager.state.outbox import Dispatch
from slicebus.manager.state.reclaims import ElasticRules
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Counts, ScaleRequest, Waits, WorkloadSpec
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.admission.cycle import Admit, Evict, Shrink, Wait
from slicebus.slices.api import api_names, kueue
from slicebus.slices.workload.reclaimed import Beneficiary, Reclaimed
from slicebus.slices.workload.workload import Admission, FlavorName, PodSetAssignment, SliceKey
from unit.manager.objects import NOW, REF, a_job, a_view, a_workload, an_envelope, condition

Manifest = dict[str, Any]
HIGH = Beneficiary(workload="team/high", uid="uid-high", job_uid="job-high")
BEGAN = "2026-01-01T00:00:00Z"
"""When the slices of these tests got their quota."""


def shrink(to: int, *, message: str = "so it is", beneficiary: Beneficiary = HIGH) -> Shrink:
    return Shrink(
        key=SliceKey("team/w1"),
        to={"main": to},
        beneficiary=beneficiary,
        preemption="InClusterQueue",
        message=message,
        is_alone=True,
    )


def admit(name: str, count: int) -> Admit:
    usage = PodSetAssignment(name="main", flavors={"cpu": FlavorName("spot")}, usage={"cpu": count * 1000}, count=count)
    return Admit(key=SliceKey(f"team/{name}"), admission=Admission("cq", (usage,)), cluster="east")


class Story:
    """A job of the manager from one decision to the next."""

    def __init__(
        self, size: int = 8, *, now: str = NOW, notice: str | None = None, cap_s: float = 0.0, most: int = 0
    ) -> None:
        says = {api_names.MIN_SIZE_ANNOTATION: "main=2"}
        if most:
            says[api_names.MAX_SIZE_ANNOTATION] = f"main={most}"
        if notice is not None:
            says[api_names.NOTICE_ANNOTATION] = notice
        self.job = a_job(size, annotations=says)
        self.now, self.is_awaited, self.allowed = now, True, ElasticRules(notice_cap_s=cap_s)
        self.gone = frozenset[str]()
        self.waits: Waits | None = None
        workload = a_workload(count=size, admitted=size, dispatched=1, applied=1)
        workload["metadata"]["annotations"] |= says
        self.workloads = {"w1": workload}
        self.generation = 1
        self.reconcile()
        self.report()

    @property
    def view(self) -> JobView:
        how = {"allowed": self.allowed, "is_awaited": self.is_awaited, "gone": self.gone, "waits": self.waits}
        return a_view(self.job, *self.workloads.values(), **how)

    @property
    def note(self) -> Reclaimed | None:
        holder = self.view.holder
        return holder.reclaimed if holder is not None else None

    @property
    def sizes(self) -> list[int]:
        """Those of the slices that have not ended."""
        return [slice.counts["main"] for slice in self.view.unfinished]

    def carry_out(self, commands: list[Command]) -> list[Command]:
        for command in commands:
            if isinstance(command, Patch):
                name = command.target["metadata"]["name"]
                assert isinstance(command.body, dict)
                if command.target["kind"] == "Workload":
                    self.workloads[name] = merge_patch(self.workloads[name], command.body)
                else:
                    self.job = merge_patch(self.job, command.body)
            elif isinstance(command, Create):
                made = command.manifest
                made["metadata"] |= {
                    "name": f"w{len(self.workloads) + 1}",
                    "uid": f"uid-w{len(self.workloads) + 1}",
                    "resourceVersion": "1",
                    "creationTimestamp": self.now,
                }
                self.workloads[made["metadata"]["name"]] = made
        return commands

    def reconcile(self) -> list[Command]:
        """Everything that is decided until nothing is left to write."""
        done: list[Command] = []
        for _ in range(10):
            commands = self.carry_out(builtin.reconcile(self.view, self.now))
            done += commands
            if not any(isinstance(command, Patch | Create) for command in commands):
                return done
        raise AssertionError(commands)

    def shrink(self, to: int, **how: Any) -> list[Command]:
        holder = self.view.holder
        assert holder is not None
        return self.carry_out(admitting.commands(self.view, holder, shrink(to, **how), now=self.now))

    def evict(self, decision: Evict) -> None:
        holder = self.view.holder
        assert holder is not None
        self.carry_out(admission_writes.commands(self.view, holder, decision, now=self.now))

    def admit(self, count: int) -> WorkloadSpec:
        """The order for the slice that waits, which gets so many pods."""
        waits = self.view.unfinished[-1]
        self.carry_out(admitting.commands(self.view, waits, admit(waits.name, count), now=self.now))
        return self.orders(self.reconcile())[-1]

    def orders(self, commands: list[Command]) -> list[WorkloadSpec]:
        """Each of them once: what was published is written nowhere."""
        found = [each.message for each in commands if isinstance(each, Publish)]
        return [*{each.spec_version: each for each in found if isinstance(each, WorkloadSpec)}.values()]

    def report(self) -> None:
        """Its worker has applied the newest order."""
        outbox = self.view.outbox
        assert outbox is not None
        body = {"metadata": {"annotations": {api_names.APPLIED_ANNOTATION: str(outbox.record.version)}}}
        name = outbox.recorded_on["metadata"]["name"]
        self.workloads[name] = merge_patch(self.workloads[name], body)

    def ask(self, wanted: int, *, follows: str = "", finished: int = 0) -> list[Command]:
        self.generation += 1
        request = ScaleRequest(
            job=REF,
            workload="w1",
            worker_uid="w-1",
            worker_generation=self.generation,
            granted={"main": 8},
            wanted={"main": wanted},
            **({"follows": follows} if follows else {}),
            **({"finished": {"main": finished}} if finished else {}),
        )
        return self.carry_out(message_handlers.scale_request(self.view, request, an_envelope(sequence=self.generation)))

    def shrunk(self, to: int = 4) -> "Story":
        """Its worker has done it, and the former size waits."""
        self.shrink(to)
        self.reconcile()
        self.report()
        assert self.note is not None
        self.ask(to, follows=self.note.id)
        self.reconcile()
        self.report()
        return self

    def restored(self, count: int = 8) -> "Story":
        self.admit(count)
        self.report()
        assert self.note is not None
        self.ask(count, follows=self.note.id)
        self.reconcile()
        self.report()
        return self


def counts_of(order: WorkloadSpec) -> tuple[int, Counts]:
    """The size that an order sets, and what it grants."""
    return order.manifest["spec"]["parallelism"], order.granted


def test_what_is_taken_back_is_ordered_again_when_the_job_is_mended() -> None:
    """A worker sets no size by a manifest that its kind cannot take."""
    story = Story(8)
    whole = story.job
    story.job = merge_patch(whole, {"metadata": {"annotations": {kueue.MIN_PARALLELISM_ANNOTATION: "2"}}})
    assert story.view.problems
    story.shrink(4)
    first = story.orders(story.reconcile())[-1]
    story.report()
    assert story.orders(story.reconcile()) == []
    story.job = whole
    [again] = story.orders(story.reconcile())
    assert again.taken_back == first.taken_back
    assert again.spec_version > first.spec_version
    assert again.manifest["spec"]["parallelism"] == 4


def test_note_request_and_order_are_one_write() -> None:
    story = Story()
    commands = story.shrink(4)
    [patch] = [command for command in commands if isinstance(command, Patch)]
    assert isinstance(patch.body, dict)
    assert patch.body["metadata"]["annotations"].keys() == {
        api_names.RECLAIMED_ANNOTATION,
        api_names.REQUESTED_ANNOTATION,
        api_names.DISPATCHED_ANNOTATION,
    }
    [order] = story.orders(commands)
    assert counts_of(order) == (4, {"main": 8}), "its quota is held until the pods are gone"
    assert [pod_set["count"] for pod_set in order.workload["spec"]["podSets"]] == [4]
    assert order.waits_for == {"main": 8}
    assert story.note is not None
    assert (order.taken_back, order.resized_reason, order.resized_because) == (story.note.id, "Reclaimed", "so it is")
    told = [(command.regarding["kind"], command.note) for command in commands if isinstance(command, Emit)]
    text = "Took back 4 of 8 pods of main for team/high: so it is"
    assert told == [("Job", text)]
    assert not [command for command in story.reconcile() if isinstance(command, Patch | Create)]
    assert (story.note.before, story.note.to, story.note.done) == ({"main": 8}, {"main": 4}, False)
    assert list(reclaims.told(story.view)) == [
        f"Reclaimed {NOW}: goes to main=4 of main=8 for team/high (InClusterQueue); grows again when those are gone"
    ]


def test_without_the_jobs_turn_the_next_reconcile_writes_the_order() -> None:
    story = Story()
    holder = story.view.holder
    assert holder is not None
    story.carry_out(admission_writes.commands(story.view, holder, shrink(4), now=NOW))
    [order] = story.orders(story.reconcile())
    assert counts_of(order) == (4, {"main": 8})


def test_nothing_is_taken_while_an_edit_of_the_job_is_due() -> None:
    story = Story()
    story.job["metadata"]["annotations"][api_names.MIN_SIZE_ANNOTATION] = "main=6"
    holder = story.view.holder
    assert holder is not None
    assert Builtin().apply(story.view, holder, shrink(4), in_turn=True, now=NOW) == []


def test_no_other_order_follows_when_the_pods_are_gone() -> None:
    """The worker has lowered its grant by itself, as with every request for less."""
    story = Story()
    story.shrink(4)
    story.report()
    assert story.note is not None
    story.ask(4, follows=story.note.id)
    commands = [each for _ in range(3) for each in story.reconcile()]
    assert [*story.orders(commands)] == []
    assert story.sizes == [4, 8]


def test_the_request_that_says_so_frees_their_quota_in_one_write() -> None:
    story = Story()
    story.shrink(4)
    story.report()
    assert story.note is not None
    story.ask(4, follows=story.note.id)
    assert story.sizes == [4]


def test_an_order_follows_where_its_user_has_made_it_smaller() -> None:
    story = Story()
    story.shrink(4)
    story.report()
    story.ask(3)
    [order] = story.orders([each for _ in range(3) for each in story.reconcile()])
    assert (order.granted, story.sizes) == ({"main": 3}, [3])


def test_what_has_gone_is_free_and_the_former_size_waits_by_its_first_admission() -> None:
    story = Story().shrunk()
    assert story.sizes == [4, 8]
    holder, waits = story.view.unfinished
    assert (holder.granted, holder.shrinks_to) == ({"main": 4}, None)
    assert (waits.queued_since, waits.partial, waits.restores) == (BEGAN, True, True)
    assert waits.reclaimed is not None
    assert waits.reclaimed.done
    assert list(reclaims.told(story.view)) == [
        f"Reclaimed {NOW}: has main=4 of main=8 for team/high (InClusterQueue); the rest comes back with quota"
    ]


def test_of_pods_that_are_waited_for_one_event_has_told() -> None:
    story = Story()
    told = [command.reason for command in story.shrink(4) if isinstance(command, Emit)]
    assert told == ["Reclaimed"]
    story.report()
    assert story.note is not None
    story.ask(4, follows=story.note.id)
    assert [command.reason for command in story.reconcile() if isinstance(command, Emit)] == []

    def events(message: str) -> list[str]:
        waits = story.view.unfinished[-1]
        wait = Wait(key=waits.key, reason="Pending", message=message, would_admit="4 cpu")
        commands = story.carry_out(admission_writes.commands(story.view, waits, wait, now=NOW))
        return [command.reason for command in commands if isinstance(command, Emit)]

    assert events("4 cpu short") == []
    assert story.view.unfinished[-1].conditions["QuotaReserved"]["message"] == "4 cpu short"
    assert events("no cluster has room") == ["Pending", "Pending"]


@pytest.mark.parametrize(("granted", "sizes"), [(8, [8]), (6, [8, 8])], ids=["all", "a part"])
def test_its_admission_sets_the_size_that_is_granted(granted: int, sizes: list[int]) -> None:
    story = Story().shrunk()
    order = story.admit(granted)
    assert counts_of(order) == (granted, {"main": granted})
    assert order.resized_reason == "Restored"
    assert order.resized_because == f"Pods are back: main={granted} of main=8"
    assert story.sizes == sizes
    story.report()
    assert story.note is not None
    story.ask(granted, follows=story.note.id)
    story.reconcile()
    assert story.sizes == sizes
    assert (
        list(reclaims.told(story.view)) == []
        if granted == 8
        else [f"Reclaimed {NOW}: has main=6 of main=8 for team/high (InClusterQueue); the rest comes back with quota"]
    )


def test_the_rest_waits_with_the_same_rank() -> None:
    story = Story().shrunk()
    story.now = "2026-01-31T12:05:00Z"
    story.admit(6)
    assert [slice.queued_since for slice in story.view.unfinished] == [BEGAN, BEGAN]


WON: dict[str, tuple[int, list[int], int]] = {
    "smaller than what was kept": (3, [3], 4),
    "larger": (6, [4, 6], 4),
    "the former size": (8, [4, 8], 4),
}


@pytest.mark.parametrize(("size", "sizes", "set_to"), WON.values(), ids=WON.keys())
def test_a_resize_on_the_worker_forgets_the_note(size: int, sizes: list[int], set_to: int) -> None:
    story = Story().shrunk()
    story.ask(size)
    assert story.note is None
    orders = story.orders(story.reconcile())
    assert story.sizes == sizes
    assert all(counts_of(order)[0] == set_to for order in orders), "the worker keeps its user's size"
    assert all(not slice.queued_since and slice.reclaimed is None for slice in story.view.unfinished)


def test_a_resize_after_a_part_is_back_leaves_the_worker_its_users_size() -> None:
    story = Story().shrunk().restored(6)
    story.ask(7)
    orders = story.orders(story.reconcile())
    assert story.note is None
    assert story.sizes == [8, 7]
    assert all(counts_of(order)[0] == 6 for order in orders), "6 was set last: another size would overrule the user's"


@pytest.mark.parametrize(("size", "sizes"), [(6, [4, 6]), (3, [3]), (12, [4, 12])], ids=["more", "less", "much more"])
def test_a_resize_at_the_manager_forgets_it(size: int, sizes: list[int]) -> None:
    story = Story().shrunk()
    story.job["spec"]["parallelism"] = size
    story.reconcile()
    if size < 4:
        story.report()
        story.ask(size)
        story.reconcile()
    assert story.note is None
    assert story.sizes == sizes
    assert all(not slice.queued_since and slice.reclaimed is None for slice in story.view.unfinished)


def test_a_smaller_resize_while_pods_go_leaves_nothing_to_give_back() -> None:
    story = Story()
    story.shrink(4)
    story.ask(3)
    assert story.note is None
    orders = story.orders(story.reconcile())
    assert story.sizes == [3]
    assert [counts_of(order)[0] for order in orders] == [4], "what was set last is no reason to set another size"


@pytest.mark.parametrize("size", [6, 12])
def test_a_larger_one_is_a_wish_and_the_worker_is_told_again(size: int) -> None:
    story = Story()
    story.shrink(4)
    before = story.note
    story.ask(size)
    [order] = story.orders(story.reconcile())
    note = story.note
    assert before is not None
    assert note is not None
    assert note.id != before.id
    assert (note.before, note.to, order.taken_back) == ({"main": size}, {"main": 4}, note.id)
    assert counts_of(order) == (4, {"main": min(size, 8)})
    story.report()
    story.ask(4, follows=note.id)
    story.reconcile()
    assert story.sizes == [4, size]


def test_a_request_that_follows_an_earlier_word_is_no_resize() -> None:
    """The worker has restored the job while pods are taken once more."""
    story = Story().shrunk()
    story.admit(8)
    story.report()
    assert story.note is not None
    earlier = story.note.id
    story.shrink(2)
    note = story.note
    story.ask(8, follows=earlier)
    story.reconcile()
    assert story.note == note
    story.report()
    assert note is not None
    story.ask(2, follows=note.id)
    story.reconcile()
    assert story.sizes == [2, 8]


def test_a_late_report_of_a_word_that_left_less_is_no_resize() -> None:
    """Fewer pods were to go in the end, by another word that the worker had not heard yet."""
    story = Story(notice="120s", cap_s=600)
    story.shrink(2)
    story.report()
    assert story.note is not None
    earlier = story.note.id
    story.is_awaited = False
    story.reconcile()
    story.is_awaited = True
    story.shrink(5)
    note = story.note
    assert note is not None
    story.ask(2, follows=earlier)
    [order] = story.orders(story.reconcile())
    assert counts_of(order) == (5, {"main": 5})
    assert (story.note, story.sizes, order.taken_back) == (note, [5], note.id), "the others have the rest"
    story.report()
    story.ask(5, follows=note.id)
    story.reconcile()
    assert story.sizes == [5, 8]


def test_the_quota_of_the_first_is_free_while_pods_that_the_second_takes_still_go() -> None:
    """The worker says that the pods of the earlier word are gone."""
    story = Story()
    story.shrink(6)
    story.report()
    assert story.note is not None
    earlier = story.note.id
    story.shrink(4)
    story.report()
    note = story.note
    assert note is not None
    story.ask(6, follows=earlier)
    assert story.orders(story.reconcile()) == [], "it has been told what it keeps in the end"
    assert (story.note, story.sizes) == (note, [6]), "nothing comes back before the rest is gone"
    assert story.view.holder is not None
    assert story.view.holder.shrinks_to == {"main": 4}
    story.ask(4, follows=note.id)
    story.reconcile()
    assert story.sizes == [4, 8]


def test_an_agent_that_ended_in_between_cannot_say_what_it_follows() -> None:
    story = Story()
    story.shrink(4)
    story.ask(4)
    story.reconcile()
    assert story.sizes == [4, 8]


@pytest.mark.parametrize("size", [8, 12])
def test_a_size_that_comes_before_the_word_is_no_resize(size: int) -> None:
    """Its user had made it smaller there already. It became larger again by an earlier order, and smaller by the word:
    the manager had forgotten that, and what it wanted to have again."""
    story = Story()
    story.shrink(4)
    story.ask(4)
    story.reconcile()
    story.ask(size)
    story.reconcile()
    note = story.note
    assert note is not None
    assert (note.before, note.done, story.sizes) == ({"main": size}, True, [4, size])
    story.report()
    story.ask(4, follows=note.id)
    story.reconcile()
    assert story.sizes == [4, size]


def test_what_it_waited_for_comes_back_too() -> None:
    story = Story()
    story.ask(12)
    story.reconcile()
    assert story.sizes == [8, 12]
    story.shrunk()
    assert story.sizes == [4, 12]


def test_what_its_user_gives_up_does_not() -> None:
    """The smaller size was asked for at the manager, and its worker has yet to carry that out."""
    story = Story()
    story.job["spec"]["parallelism"] = 6
    story.reconcile()
    story.shrink(4)
    assert story.note is not None
    assert story.note.before == {"main": 6}


def test_pods_that_have_ended_are_not_wished_for() -> None:
    story = Story().shrunk()
    assert story.note is not None
    story.ask(3, follows=story.note.id, finished=1)
    story.reconcile()
    assert [slice.unfinished_counts["main"] for slice in story.view.unfinished] == [3]


def indexed(*, notice: str | None = None, follows: bool = True) -> Story:
    """An Indexed Job with as many completions as pods, eight, which follow them or stay."""
    story = Story(8, notice=notice, cap_s=600.0)
    story.job["spec"] |= {"completionMode": "Indexed", "completions": 8}
    if not follows:
        story.job["metadata"]["annotations"][kueue.SYNC_COMPLETIONS_ANNOTATION] = "false"
    story.reconcile()
    story.report()
    return story


def ended(story: Story, indexes: str, number: int) -> Story:
    """These indexes have succeeded; the status comes before the request."""
    story.job["status"] = {"succeeded": number, "completedIndexes": indexes}
    story.ask(8 - number, finished=number)
    story.reconcile()
    story.report()
    return story


def completions(order: WorkloadSpec) -> tuple[int, int]:
    return order.manifest["spec"]["parallelism"], order.manifest["spec"]["completions"]


LOST: dict[str, tuple[str, int, int, int]] = {
    "one of five": ("0-2", 3, 4, 7),
    "two of five": ("0-2", 3, 3, 6),
    "where others have succeeded": ("1,4,6", 3, 4, 7),
    "where one that goes has succeeded": ("6", 1, 5, 5),
    "where one above them has succeeded": ("7", 1, 6, 6),
}


@pytest.mark.parametrize(("indexes", "number", "to", "size"), LOST.values(), ids=LOST.keys())
def test_an_indexed_job_loses_the_highest_indexes_that_run(indexes: str, number: int, to: int, size: int) -> None:
    story = ended(indexed(), indexes, number)
    [order] = story.orders(story.shrink(to))
    assert completions(order) == (size, size)
    assert story.note is not None
    assert (story.note.before, story.note.to) == ({"main": 8 - number}, {"main": to})
    assert order.waits_for == {"main": 8}


@pytest.mark.parametrize("number", [0, 3])
def test_one_whose_completions_do_not_follow_loses_pods_alone(number: int) -> None:
    story = indexed(follows=False)
    if number:
        ended(story, "0-2", number)
    [order] = story.orders(story.shrink(4))
    assert (completions(order), order.waits_for) == ((4, 8), {"main": 8 - number})
    story.report()
    assert story.note is not None
    story.ask(4, follows=story.note.id)
    story.reconcile()
    holder, waits = story.view.unfinished
    assert (holder.granted, waits.counts) == ({"main": 4}, {"main": 8 - number})
    taken_back = story.view.desired.taken_back
    assert taken_back is not None
    assert (taken_back.counts, story.orders(story.reconcile())) == ({"main": 4}, []), "nothing is back yet"
    assert completions(story.admit(8 - number)) == (8 - number, 8)


def test_its_quota_is_free_with_each_share_that_ends_past_its_pods() -> None:
    story = indexed(follows=False).shrunk(4)
    assert story.note is not None
    story.ask(3, finished=1, follows=story.note.id)
    story.reconcile()
    assert [slice.unfinished_counts for slice in story.view.unfinished] == [{"main": 3}], "three are left at all"


@pytest.mark.parametrize(("to", "size"), [(9, (9, 9)), (6, (6, 8))])
def test_it_has_as_many_completions_as_pods_where_it_was_made_larger_on_its_worker(
    to: int, size: tuple[int, int]
) -> None:
    story = indexed(follows=False)
    story.ask(12)
    story.reconcile()
    story.admit(12)
    story.report()
    [order] = story.orders(story.shrink(to))
    assert completions(order) == size


def test_without_a_status_that_names_them_the_lowest_have_succeeded() -> None:
    story = ended(indexed(), "0-2", 3)
    del story.job["status"]
    [order] = story.orders(story.shrink(3))
    assert completions(order) == (6, 6)


def test_an_indexed_job_has_its_indexes_back() -> None:
    story = ended(indexed(), "0-2", 3)
    story.shrink(4)
    story.report()
    assert story.note is not None
    story.ask(4, finished=3, follows=story.note.id)
    assert story.orders(story.reconcile()) == [], "no other order follows"
    holder, waits = story.view.unfinished
    assert (holder.granted, waits.counts) == ({"main": 4}, {"main": 5})
    order = story.admit(5)
    assert (completions(order), order.granted) == ((8, 8), {"main": 5})


def test_indexes_that_succeed_meanwhile_make_room_for_those_that_are_lost() -> None:
    story = indexed().shrunk(4)
    assert story.note is not None
    story.ask(3, finished=1, follows=story.note.id)
    [order] = story.orders(story.reconcile())
    assert (completions(order), order.granted) == ((5, 5), {"main": 4}), "index 4 runs in place of index 0"
    assert (story.sizes, story.note.before) == ([4, 7], {"main": 7})
    assert completions(story.admit(7)) == (8, 8)


def test_indexes_that_succeed_before_others_are_gone_spare_as_many() -> None:
    story = indexed(notice="120s")
    first = story.orders(story.shrink(4))[-1]
    assert completions(first) == (4, 4)
    story.job["status"] = {"succeeded": 1, "completedIndexes": "2"}
    story.ask(7, finished=1)
    order = story.orders(story.reconcile())[-1]
    assert (completions(order), order.notice is not msgspec.UNSET) == ((5, 5), True)
    assert order.taken_back != first.taken_back
    story.job["status"] = {"succeeded": 4, "completedIndexes": "0-3"}
    story.ask(4, finished=4)
    assert completions(story.orders(story.reconcile())[-1]) == (8, 8), "none is to go any more"
    story.report()
    assert story.note is not None
    story.ask(4, finished=4, follows=story.note.id)
    story.reconcile()
    assert [slice.unfinished_counts for slice in story.view.unfinished] == [{"main": 4}]


def test_an_earlier_word_is_no_resize_where_only_more_indexes_have_succeeded() -> None:
    story = indexed().shrunk(6)
    assert story.note is not None
    earlier = story.note.id
    story.shrink(4)
    story.job["status"] = {"succeeded": 2, "completedIndexes": "0,1"}
    story.ask(4, finished=2, follows=earlier)
    assert completions(story.orders(story.reconcile())[-1]) == (6, 6)
    assert story.note is not None
    assert (story.note.before, story.note.to) == ({"main": 6}, {"main": 4})


def test_a_job_that_has_more_left_than_was_known_is_told_a_smaller_size() -> None:
    """One of the indexes that go had succeeded, and no status had named it."""
    story = ended(indexed(), "7", 1)
    del story.job["status"]
    assert completions(story.orders(story.shrink(4))[-1]) == (5, 5)
    story.report()
    assert story.note is not None
    story.ask(5, follows=story.note.id)
    assert completions(story.orders(story.reconcile())[-1]) == (4, 4)
    assert story.note.before == {"main": 8}, "the index that had succeeded is to run again"


def test_nothing_is_taken_before_the_quota_of_ended_indexes_is_free() -> None:
    story = indexed()
    story.ask(3, finished=5)
    assert story.shrink(4) == []
    story.reconcile()
    assert completions(story.orders(story.shrink(2))[-1]) == (7, 7)


def test_a_job_that_has_everything_back_forgets_the_note_in_time() -> None:
    story = Story().shrunk().restored()
    assert story.note is not None
    requeued = [each.delay_s for each in builtin.reconcile(story.view, NOW) if isinstance(each, Requeue)]
    assert requeued == [601.0]
    story.now = time_text(datetime.fromisoformat(NOW).astimezone(UTC) + timedelta(minutes=10))
    orders = story.orders(story.reconcile())
    assert story.note is None
    assert all(counts_of(order)[0] == 8 for order in orders)
    assert story.sizes == [8]
    assert not [command for command in builtin.reconcile(story.view, story.now) if isinstance(command, Requeue)]


def test_a_note_that_does_not_stand_is_taken_away() -> None:
    """Such as one of a slice that was admitted just when somebody resized the job."""
    story = Story().shrunk()
    waits = story.view.unfinished[-1]
    body = {"metadata": {"annotations": {api_names.REQUESTED_ANNOTATION: SizeRequest.nothing().to_annotation()}}}
    story.workloads["w1"] = merge_patch(story.workloads["w1"], body)
    story.workloads[waits.name] = merge_patch(story.workloads[waits.name], body)
    assert edits.are_due(story.view, story.job)
    story.reconcile()
    assert all(not slice.queued_since and slice.reclaimed is None for slice in story.view.unfinished)


def test_an_eviction_forgets_it() -> None:
    story = Story().shrunk()
    """By the time it has given its quota back."""
    evicted = condition("Evicted", True, "Preempted", "so it is")
    status = story.workloads["w1"]["status"]
    others = [each for each in status["conditions"] if each["type"] not in ("Admitted", "QuotaReserved")]
    story.workloads["w1"]["status"] = {"conditions": [*others, evicted]}
    assert edits.are_due(story.view, story.job), "it is not admitted with the note"
    for _ in range(4):
        story.carry_out(builtin.reconcile(story.view, NOW))
    assert (
        story.workloads["w1"]["metadata"]["annotations"]
        .keys()
        .isdisjoint({api_names.RECLAIMED_ANNOTATION, api_names.QUEUED_SINCE_ANNOTATION})
    )


def test_a_job_without_a_note_is_as_it_was() -> None:
    story = Story()
    view = structs.replace(story.view, published=Dispatch.from_manifest(story.workloads["w1"]).version)  # type: ignore[union-attr]
    assert builtin.reconcile(view, NOW) == []
    assert reclaims.annotations(view) == {}
