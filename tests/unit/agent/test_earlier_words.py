"""Pods are taken once more before those of an earlier word have gone: each word is reported when its own are."""

from typing import Any

import pytest
from msgspec import UNSET, structs

from slicebus.agent.decide.job import reconcile
from slicebus.agent.decide.order import notices, orders
from slicebus.agent.state import annotations
from slicebus.agent.state.annotations import Word
from slicebus.agent.state.views import Finishing
from slicebus.decisions.commands import Patch
from slicebus.proto.messages import Notice, Relabel, RequestKey, WorkloadSpec
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.api import api_names
from unit.agent.objects import EAST, REF, a_pod, a_spec, a_view
from unit.agent.test_reclaimed import BACK, MORE, after, requested, running, view_of, word

Manifest = dict[str, Any]
LATER = "2026-01-31T12:01:01Z"
PODS = [a_pod(f"p{number}") for number in range(8)]
FIRST, SECOND, THIRD = Word("word-1", {"main": 6}), Word("word-2", {"main": 4}), "word-3"


def sized(job: Manifest, size: int) -> Manifest:
    """The job as its controller finds it then."""
    job["spec"]["parallelism"] = size
    job["metadata"]["generation"] += 1
    return job


def told(job: Manifest, order: WorkloadSpec) -> Manifest:
    """The job after an order that sets its size."""
    return sized(after(order, job), order.manifest["spec"]["parallelism"])


def told_twice(**how: Any) -> Manifest:
    """Eight pods run; the first word leaves six of them, the second four."""
    return told(told(running(8, **how), word(6)), word(4, id="word-2", version=3))


def test_the_first_word_is_reported_while_pods_of_the_second_go() -> None:
    job = told_twice()
    assert annotations.earlier_words(job) == (FIRST,)
    assert requested(job, *PODS[:7]) == (job, None)
    job, first = requested(job, *PODS[:6])
    assert first is not None
    assert (first.wanted, first.granted, first.follows) == ({"main": 6}, {"main": 8}, "word-1")
    assert annotations.granted(job) == {"main": 6}
    assert api_names.EARLIER_WORDS_ANNOTATION not in job["metadata"]["annotations"]
    assert reconcile.request(view_of(job, *PODS[:5]), EAST)[0].message == first, "until it is answered"  # type: ignore[union-attr]

    answers = RequestKey(first.worker_uid, first.worker_generation)
    job = after(structs.replace(word(4, id="word-2", version=4, granted=6), answers=answers), job)
    assert requested(job, *PODS[:5]) == (job, None)
    job, second = requested(job, *PODS[:4])
    assert second is not None
    assert (second.wanted, second.follows) == ({"main": 4}, "word-2")
    assert second.worker_generation > first.worker_generation
    assert annotations.granted(job) == {"main": 4}


def test_a_word_whose_pods_go_with_those_of_the_next_is_not_reported_by_itself() -> None:
    job, message = requested(told_twice(), *PODS[:4])
    assert message is not None
    assert (message.wanted, message.follows) == ({"main": 4}, "word-2")
    assert annotations.earlier_words(job) == ()


def test_the_last_of_several_whose_pods_are_gone_is_reported() -> None:
    job = told(told_twice(), word(2, id=THIRD, version=4))
    assert annotations.earlier_words(job) == (FIRST, SECOND)
    job, message = requested(job, *PODS[:4])
    assert message is not None
    assert (message.wanted, message.follows) == ({"main": 4}, "word-2")
    assert annotations.earlier_words(job) == ()


def test_a_later_word_is_kept_after_an_earlier_one_is_reported() -> None:
    job, message = requested(told(told_twice(), word(2, id=THIRD, version=4)), *PODS[:6])
    assert message is not None
    assert message.follows == "word-1"
    assert annotations.earlier_words(job) == (SECOND,)


def test_a_job_that_has_resized_before_reports_it_too() -> None:
    key = RequestKey("worker-uid", 1)
    before = annotations.PendingRequests.after(None, key, wanted={"main": 6}, granted={"main": 1}).answered(key)
    _, message = requested(told_twice(requested=before), *PODS[:6])
    assert message is not None
    assert (message.wanted, message.follows) == ({"main": 6}, "word-1")


def test_what_has_ended_for_good_is_left_out() -> None:
    job = told_twice()
    job["spec"]["completions"], job["status"] = 4, {"succeeded": 1}
    settled = Finishing(since_s=0.0, settled=True)
    six, five = (structs.replace(view_of(job, *PODS[:count]), finishing=settled) for count in (6, 5))
    assert reconcile.request(six, EAST) == []
    [patch] = reconcile.request(five, EAST)
    assert isinstance(patch, Patch)
    assert isinstance(patch.body, dict)
    last = annotations.PendingRequests.from_job(merge_patch(job, patch.body))
    assert last is not None
    assert (last.wanted, last.finished, last.follows) == ({"main": 5}, {"main": 1}, "word-1")


def test_a_word_is_reported_before_more_is_asked_for() -> None:
    """Another cluster of a RayService comes while pods go, or its user wants more again: the request for more alone
    would leave whoever took the pods waiting."""
    job = sized(told(running(8), word(4)), 6)
    wish, _ = requested(job, *PODS[:5])
    assert annotations.PendingRequests.from_job(wish).wanted == {"main": 6}, "five still run"  # type: ignore[union-attr]

    job, first = requested(job, *PODS[:4])
    assert first is not None
    assert (first.wanted, first.follows) == ({"main": 4}, "word-1")
    assert annotations.granted(job) == {"main": 4}
    assert requested(job, *PODS[:4]) == (job, first), "until it is published"

    published = structs.replace(view_of(job, *PODS[:4]), published=annotations.PendingRequests.from_job(job).key)  # type: ignore[union-attr]
    [patch] = reconcile.request(published, EAST)
    assert isinstance(patch, Patch)
    assert isinstance(patch.body, dict)
    more = annotations.PendingRequests.from_job(merge_patch(job, patch.body))
    assert more is not None
    assert (more.wanted, more.follows) == ({"main": 6}, UNSET)


@pytest.mark.parametrize("granted", [4, 8])
def test_a_relabel_that_grants_more_ends_the_word(granted: int) -> None:
    """Its spec may come later: until then the job would say again that pods are gone, and lose what it has got."""
    job, _ = requested(told(running(8), word(4)), *PODS[:4])
    moves = Relabel(job=REF, spec_version=3, from_workload="w1", to_workload="w2", granted={"main": granted})
    [moved] = orders.relabel(moves, EAST)[0].decide(a_view(job))
    assert isinstance(moved, Patch)
    assert isinstance(moved.body, dict)
    reading = view_of(sized(merge_patch(job, moved.body), 8), *PODS[:4]).reading
    assert reading is not None
    assert reading.last_word == (Word("word-1", {"main": 4}) if granted == 4 else None)


NEXT: dict[str, tuple[WorkloadSpec, tuple[Word, ...]]] = {
    "the same word": (word(4, id="word-2", version=4), (FIRST,)),
    "an even smaller size": (word(2, id=THIRD, version=4), (FIRST, SECOND)),
    "pods come back": (word(8, id="word-2", version=4, **BACK), ()),
    "some come back": (word(5, id="word-2", version=4, **BACK), (FIRST,)),
    "it may have more": (word(8, id=THIRD, version=4, **MORE), ()),
    "its user resizes it at the manager": (a_spec(4, granted=8, parallelism=3), ()),
    "the first word again": (word(6, version=4), ()),
}


@pytest.mark.parametrize(("order", "kept"), NEXT.values(), ids=NEXT.keys())
def test_what_an_order_leaves(order: WorkloadSpec, kept: tuple[Word, ...]) -> None:
    assert annotations.earlier_words(after(order, told_twice())) == kept


def test_a_word_that_was_reported_is_not_kept() -> None:
    job, message = requested(told(running(8), word(6)), *PODS[:6])
    assert message is not None
    assert annotations.earlier_words(told(job, word(4, id="word-2", version=3))) == ()


def test_a_users_resize_in_between_leaves_the_word() -> None:
    """Its smaller size is asked for when those pods are gone, too, and carries nothing out."""
    job = sized(told_twice(), 3)
    job, first = requested(job, *PODS[:6])
    assert first is not None
    assert first.follows == "word-1"
    assert requested(job, *PODS[:4])[1] == first, "until it is answered"
    _, message = requested(job, *PODS[:3])
    assert message is not None
    assert (message.wanted, message.follows) == ({"main": 3}, UNSET)


def test_a_users_larger_size_is_asked_for_at_once() -> None:
    _, message = requested(sized(told_twice(), 9), *PODS[:6])
    assert message is not None
    assert (message.wanted, message.follows) == ({"main": 9}, UNSET)


@pytest.mark.parametrize("text", ['[["word-1",{"other":6}]]', '[["word-1",{"main":"6"}]]', "{", '[["word-1",{}]]'])
def test_an_annotation_of_somebody_else_changes_nothing(text: str) -> None:
    job = told_twice()
    job["metadata"]["annotations"][api_names.EARLIER_WORDS_ANNOTATION] = text
    assert requested(job, *PODS[:6]) == (job, None)


def test_only_so_many_are_kept() -> None:
    job = running(40, baseline=40, granted=40)
    for number in range(1, 31):
        job = told(job, word(40 - number, id=f"word-{number}", version=number + 1, granted=40))
    kept = annotations.earlier_words(job)
    assert (len(kept), kept[0]) == (16, Word("word-1", {"main": 39}))


def noticed(size: int, id: str, version: int) -> WorkloadSpec:
    return structs.replace(word(size, id=id, version=version), notice=Notice(id=id, notice_s=60.0))


def test_a_notice_that_another_takes_the_place_of_is_an_earlier_word() -> None:
    job = after(noticed(4, "word-2", 3), after(noticed(6, "word-1", 2), running(8)))
    assert annotations.earlier_words(job) == (FIRST,)
    assert requested(job, *PODS) == (job, None)
    [shrunk, *_] = notices.reconcile(a_view(job, pods=tuple(PODS)), now=LATER)
    assert isinstance(shrunk, Patch)
    assert isinstance(shrunk.body, dict)
    job = merge_patch(job, shrunk.body)
    assert (job["spec"]["parallelism"], annotations.earlier_words(job)) == (4, (FIRST,))
    _, message = requested(sized(job, 4), *PODS[:6])
    assert message is not None
    assert (message.wanted, message.follows) == ({"main": 6}, "word-1")


def test_a_word_that_is_carried_out_is_kept_when_the_notice_of_the_next_is_over() -> None:
    job = after(noticed(4, "word-2", 3), told(running(8), word(6)))
    assert job["metadata"]["annotations"][api_names.FOLLOWS_ANNOTATION] == "word-1"
    assert annotations.earlier_words(job) == (FIRST,)
    _, message = requested(job, *PODS[:6])
    assert message is not None
    assert (message.wanted, message.follows) == ({"main": 6}, "word-1"), "while the notice runs"
    [shrunk, *_] = notices.reconcile(a_view(job, pods=tuple(PODS)), now=LATER)
    assert isinstance(shrunk, Patch)
    assert isinstance(shrunk.body, dict)
    job = merge_patch(job, shrunk.body)
    assert (annotations.baseline(job), annotations.earlier_words(job)) == ({"main": 4}, (FIRST,))


def test_a_notice_that_is_withdrawn_is_no_earlier_word() -> None:
    job = after(noticed(6, "word-1", 2), running(8))
    withdrawn = after(word(8, version=3, **BACK), job)
    assert annotations.earlier_words(withdrawn) == ()
    assert api_names.RECLAIM_ANNOTATION not in withdrawn["metadata"]["annotations"]
