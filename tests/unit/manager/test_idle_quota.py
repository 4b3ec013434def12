"""A job is given more than somebody asked for, until others need it or somebody asks for another size."""

from typing import Any

import pytest
from msgspec import UNSET

from slicebus.decisions.commands import Command, Emit, Patch
from slicebus.kube.cache import Change
from slicebus.manager.decide import catalog
from slicebus.manager.decide.admission import admitting, change_filter
from slicebus.manager.decide.job import reclaims
from slicebus.manager.state.reclaims import ElasticRules, gone, is_awaited
from slicebus.proto.messages import Notice
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.admission.cycle import Grow
from slicebus.slices.api import api_names
from slicebus.slices.workload.workload import SliceKey
from unit.manager.objects import a_job, a_workload
from unit.manager.test_explain import a_store
from unit.manager.test_reclaims import Story

Manifest = dict[str, Any]


def give(story: Story, to: int, *, asked: int) -> list[Command]:
    decision = Grow(key=SliceKey("team/w1"), to={"main": to}, asked={"main": asked})
    holder = story.view.holder
    assert holder is not None
    return story.carry_out(admitting.commands(story.view, holder, decision, now=story.now))


def grown(to: int = 8, **how: Any) -> Story:
    """A job of four pods that was given more."""
    story = Story(4, most=16, **how)
    give(story, to, asked=4)
    story.reconcile()
    story.report()
    story.reconcile()
    story.admit(to)
    story.reconcile()
    story.report()
    story.reconcile()
    return story


def asked(story: Story) -> dict[str, int] | None:
    holder = story.view.holder
    assert holder is not None
    return holder.asked_counts


@pytest.mark.parametrize(
    ("spec", "status", "to"),
    [
        ({}, {}, 4),
        ({"completions": 9}, {"succeeded": 5}, 4),
        ({"completions": 9}, {"succeeded": 6}, 3),
        ({"completions": 9}, {"succeeded": 7}, None),
        ({"completions": 9, "completionMode": "Indexed"}, {"succeeded": 5, "failedIndexes": "8"}, 3),
        ({"completions": 2, "completionMode": "Indexed"}, {"succeeded": 1, "completedIndexes": "0"}, 4),
    ],
    ids=[
        "no completions",
        "enough to do",
        "less to do",
        "nearly done",
        "failed indexes",
        "completions follow its size",
    ],
)
def test_it_is_given_no_more_than_it_has_work_for(spec: Manifest, status: Manifest, to: int | None) -> None:
    store = a_store(
        merge_patch(a_job(2), {"spec": spec, "status": status}),
        merge_patch(
            a_workload(count=2, admitted=2, dispatched=1, applied=1),
            {"metadata": {"annotations": {api_names.MAX_SIZE_ANNOTATION: "main=4"}}},
        ),
    )
    decided = catalog.cycle(store, trees=None, preemption_cycles_since="", idle_since="2026-06-01T00:00:00Z")
    assert [each.to["main"] for each in decided if isinstance(each, Grow)] == ([] if to is None else [to])


def test_its_worker_hears_of_it_before_it_asks_for_more() -> None:
    story = Story(4, most=16)
    commands = give(story, 8, asked=4)
    told = [each.note for each in commands if isinstance(each, Emit)]
    assert told == ["Grows to main=8 in quota that nobody waits for; main=4 are asked for"]
    [order] = story.orders(story.reconcile())
    assert (order.manifest["spec"]["parallelism"], order.resized_reason) == (4, api_names.GROWN)
    assert story.sizes == [4], "a resize there that nobody has heard of would be overruled"
    before = story.workloads["w1"]
    story.report()
    assert change_filter.needs_reconcile(Change(before, story.workloads["w1"]))
    story.reconcile()
    assert story.sizes == [4, 8]
    waits = story.view.unfinished[-1]
    assert (waits.grows_unasked, waits.queued_since, waits.partial) == (True, "", False)


def test_it_grows_by_a_slice_of_its_own() -> None:
    story = grown()
    assert story.sizes == [8]
    assert asked(story) == {"main": 4}
    assert story.view.desired.sent == {"main": 8}
    assert [*reclaims.told(story.view)] == [f"Grown {story.now}: main=4 of main=8 are opportunistic"]
    assert story.reconcile() == []


def test_it_is_not_forgotten_as_time_passes() -> None:
    story = grown()
    assert reclaims.requeue_after(story.view, now=story.now) == []
    assert reclaims.reconcile(story.view, now=story.now) == []


def test_where_its_room_is_gone_it_asks_for_no_more() -> None:
    story = Story(4, most=16)
    give(story, 8, asked=4)
    story.reconcile()
    story.report()
    story.reconcile()
    assert story.sizes == [4, 8]
    assert not [each for each in give(story, 4, asked=4) if isinstance(each, Emit)]
    story.reconcile()
    assert story.sizes == [4]
    assert asked(story) is None


def test_what_waits_for_them_is_never_taken_for_what_somebody_asks_for() -> None:
    """Its note says so until it has ended: a cycle may come in between."""
    story = Story(4, most=16)
    give(story, 8, asked=4)
    story.reconcile()
    story.report()
    story.reconcile()
    give(story, 4, asked=4)
    waits = story.view.unfinished[-1]
    assert waits.counts == {"main": 8}
    for command in reclaims.copied(story.view):
        assert isinstance(command, Patch)
        assert command.target["metadata"]["name"] != waits.name
    assert waits.grows_unasked


def test_others_take_them_and_it_asks_for_none_of_these() -> None:
    story = grown()
    story.shrink(6, message="Others need it")
    story.reconcile()
    story.ask(6, follows=story.note.id if story.note else "")
    story.reconcile()
    assert story.sizes == [6]
    assert asked(story) == {"main": 4}
    story.shrink(4, message="Others need more")
    story.reconcile()
    story.ask(4, follows=story.note.id if story.note else "")
    story.reconcile()
    assert (story.sizes, asked(story)) == ([4], None)


@pytest.mark.parametrize(
    ("most", "left", "unasked"),
    [("main=6", 6, True), ("main=4", 4, False), ("main=2", 4, False), (None, 4, False), ("8", 4, False)],
)
def test_a_smaller_greatest_size_gives_them_back(most: str | None, left: int, unasked: bool) -> None:
    story = grown()
    annotations = {api_names.MAX_SIZE_ANNOTATION: most}
    story.job = merge_patch(story.job, {"metadata": {"annotations": annotations}})
    commands = story.reconcile()
    told = {each.note for each in commands if isinstance(each, Emit)}
    assert told == {f"Took back {8 - left} of 8 pods of main: It takes no more than main={left} now"}
    order = story.orders(commands)[-1]
    assert (order.manifest["spec"]["parallelism"], order.resized_reason) == (left, api_names.RECLAIMED)
    assert order.notice is UNSET
    story.report()
    story.ask(left, follows=story.note.id if story.note else "")
    story.reconcile()
    assert (story.sizes, asked(story)) == ([left], {"main": 4} if unasked else None)
    story.report()
    assert not [each for each in story.reconcile() if isinstance(each, Emit)]


@pytest.mark.parametrize("most", ["main=16", "main=8", "main=many"])
def test_one_that_is_no_smaller_or_makes_no_sense_takes_nothing(most: str) -> None:
    story = grown()
    story.job = merge_patch(story.job, {"metadata": {"annotations": {api_names.MAX_SIZE_ANNOTATION: most}}})
    story.reconcile()
    assert (story.sizes, asked(story)) == ([8], {"main": 4})


def test_a_queue_that_lends_none_any_more_gets_them_back() -> None:
    story = grown()
    story.allowed = ElasticRules(grows=False)
    story.reconcile()
    story.report()
    story.ask(4, follows=story.note.id if story.note else "")
    story.reconcile()
    assert (story.sizes, asked(story)) == ([4], None)


@pytest.fixture
def told() -> Story:
    """A job that has notice of the four pods that its queue does not lend it any more."""
    story = grown(notice="120s", cap_s=600)
    story.allowed = ElasticRules(notice_cap_s=600, grows=False)
    [order] = {order.spec_version: order for order in story.orders(story.reconcile())}.values()
    assert isinstance(order.notice, Notice)
    assert (order.notice.notice_s, order.manifest["spec"]["parallelism"]) == (120, 4)
    story.report()
    return story


def test_it_has_its_notice_of_them(told: Story) -> None:
    word = told.note
    assert word is not None
    holder = told.view.holder
    assert holder is not None
    assert is_awaited([holder], lambda chain: [], lambda uid, job_uid: False), "they go for nobody"
    assert gone([holder], lambda chain: []) == set()
    assert (told.orders(told.reconcile()), told.note) == ([], word)
    assert [*reclaims.told(told.view)][-1:] == [
        f"Reclaimed {told.now}: goes to main=4 after 120 s of notice: It takes no more than main=4 now"
    ]
    told.ask(4, follows=word.id)
    told.reconcile()
    assert (told.sizes, asked(told)) == ([4], None)


def test_a_larger_least_size_takes_nothing_of_that_back(told: Story) -> None:
    word = told.note
    told.job["metadata"]["annotations"][api_names.MIN_SIZE_ANNOTATION] = "main=4"
    told.reconcile()
    assert told.note == word


def test_it_is_withdrawn_where_the_job_may_have_them_again(told: Story) -> None:
    told.allowed = ElasticRules(notice_cap_s=600)
    commands = told.reconcile()
    assert "ReclaimWithdrawn" in [each.reason for each in commands if isinstance(each, Emit)]
    [order] = {order.spec_version: order for order in told.orders(commands)}.values()
    assert (order.manifest["spec"]["parallelism"], order.notice) == (8, UNSET)
    told.report()
    told.reconcile()
    assert (told.sizes, asked(told)) == ([8], {"main": 4})


def test_another_one_may_take_more_meanwhile(told: Story) -> None:
    told.shrink(2)
    told.reconcile()
    assert told.note is not None
    assert (told.note.before, told.note.to, told.note.to_nobody) == ({"main": 4}, {"main": 2}, False)


def test_what_somebody_asked_for_comes_back() -> None:
    story = grown()
    story.shrink(2)
    story.reconcile()
    assert story.note is not None
    assert (story.note.before, story.note.asked) == ({"main": 4}, {})
    story.ask(2, follows=story.note.id)
    story.reconcile()
    assert story.sizes == [2, 4]
    assert story.view.unfinished[-1].restores


@pytest.mark.parametrize(("size", "sizes"), [(6, [6]), (3, [3]), (10, [8, 10])])
def test_a_resize_on_the_worker_asks_for_all_of_that(size: int, sizes: list[int]) -> None:
    story = grown()
    story.ask(size)
    story.reconcile()
    assert (story.sizes, asked(story)) == (sizes, None)


def test_a_resize_that_comes_before_the_slice_wins() -> None:
    story = Story(4, most=16)
    give(story, 8, asked=4)
    story.ask(6)
    story.reconcile()
    assert story.note is None
    assert story.sizes == [4, 6]
    assert story.view.holder is not None
    assert story.view.holder.grown_at == story.now


def test_a_resize_while_such_pods_go_asks_for_all_of_that() -> None:
    story = grown()
    story.shrink(5)
    story.reconcile()
    story.ask(7)
    story.reconcile()
    assert story.note is not None
    assert (story.note.before, story.note.to, story.note.asked) == ({"main": 7}, {"main": 5}, {})


def test_nothing_is_given_where_somebody_wants_another_size() -> None:
    story = Story(4, most=16)
    story.ask(6)
    story.reconcile()
    assert give(story, 8, asked=4) == []


def test_it_is_given_more_once_more() -> None:
    story = grown(6)
    holder = story.view.holder
    assert holder is not None
    decision = Grow(key=holder.key, to={"main": 8}, asked={"main": 4})
    story.carry_out(admitting.commands(story.view, holder, decision, now="2026-01-01T01:00:00Z"))
    story.reconcile()
    story.report()
    story.reconcile()
    assert story.sizes == [6, 8]
    story.admit(8)
    assert asked(story) == {"main": 4}
