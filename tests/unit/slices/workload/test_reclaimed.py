"""The note of the pods that were taken back from a job: what it says, and what a slice makes of it."""

from typing import Any

import msgspec
import pytest

from slicebus.slices.api import api_names
from slicebus.slices.workload.reclaimed import Beneficiary, Reclaimed, give_back, grow, spare, take_back, withdraw
from slicebus.slices.workload.workload import Slice
from unit.slices.builders import a_pod_set, a_slice, admitted, with_counts

AT, LATER = "2026-01-01T12:00:00Z", "2026-01-01T12:01:00Z"
FIRST = Beneficiary(workload="team/first", uid="uid-first", job_uid="job-first")
SECOND = Beneficiary(workload="team/second", uid="uid-second", job_uid="job-second")


def taken(
    note: Reclaimed | None,
    wanted: int,
    to: int,
    beneficiary: Beneficiary = FIRST,
    at: str = AT,
) -> Reclaimed:
    return take_back(
        note, {"main": wanted}, {"main": to}, beneficiary=beneficiary, at=at, reason="InClusterQueue", message="why"
    )


def noted(slice: Slice, note: Reclaimed) -> Slice:
    return msgspec.structs.replace(slice, reclaimed=note)


def test_a_note_is_read_as_it_is_written() -> None:
    note = taken(None, 10, 6)
    text = note.to_annotation()
    assert Reclaimed.from_annotation(text) == note
    assert '"jobUid":"job-first"' in text
    assert '"done"' not in text
    assert (note.before, note.to, note.names) == ({"main": 10}, {"main": 6}, ("team/first",))
    done = msgspec.structs.replace(note, done=True)
    assert Reclaimed.from_annotation(done.to_annotation()) == done


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "null",
        "[]",
        "{",
        "{}",
        '{"id":1}',
        "[" * 100_000,
        taken(None, 3, 2).to_annotation().replace("3", "-3"),
    ],
)
def test_a_note_that_nobody_can_read_counts_as_absent(text: str | None) -> None:
    assert Reclaimed.from_annotation(text) is None


def test_the_same_words_give_the_same_id_and_others_another() -> None:
    assert taken(None, 10, 6) == taken(None, 10, 6)
    ids = {taken(None, 10, 6).id, taken(None, 10, 5).id, taken(None, 9, 6).id, taken(None, 10, 6, at=LATER).id}
    assert len(ids) == 4


def test_a_word_that_takes_asked_pods_of_a_job_with_unasked_ones_gives_it_nothing() -> None:
    """Else it would count as carried out, and its pods as given back, as soon as its worker has read it."""
    held, more, asked = {"a": 4, "b": 2}, {"a": 6, "b": 2}, {"a": 4, "b": 2}
    grown = grow(None, held, more, asked=asked, at=AT, message="why")
    settled = msgspec.structs.replace(grown, done=True)
    word = take_back(
        settled, more, {"a": 6, "b": 1}, beneficiary=FIRST, at=LATER, reason="InClusterQueue", message="why"
    )
    assert (grown.grows, word.grows) == (True, False)
    assert (word.before, word.asked) == ({"a": 6, "b": 2}, asked)


def test_what_is_taken_again_adds_to_what_was() -> None:
    first = msgspec.structs.replace(taken(None, 10, 6), done=True)
    again = taken(first, 10, 4, SECOND, LATER)
    assert (again.before, again.to, again.at, again.done) == ({"main": 10}, {"main": 4}, LATER, False)
    assert [(each.workload, each.at) for each in again.beneficiaries] == [("team/first", AT), ("team/second", LATER)]
    for_the_first = taken(again, 4, 3, FIRST, LATER)
    assert for_the_first.names == ("team/second", "team/first")
    assert for_the_first.before == {"main": 10}, "it still wants what it had before the pods that are going"


def test_what_it_wants_to_have_again_is_no_less_than_it_keeps() -> None:
    assert taken(None, 5, 6).before == {"main": 6}
    done = msgspec.structs.replace(taken(None, 10, 6), done=True)
    assert taken(done, 7, 4).before == {"main": 7}, "somebody has resized it since"


def test_only_the_last_beneficiaries_are_kept() -> None:
    note = None
    for number in range(20):
        name = str(number)
        note = taken(note, 30 - number, 29 - number, Beneficiary(workload=name, uid=name, job_uid=name))
    assert note is not None
    assert note.names == tuple(str(number) for number in range(4, 20))


SHRINKS: dict[str, tuple[Any, dict[str, int] | None]] = {
    "to go": (lambda slice: slice, {"main": 6}),
    "gone": (lambda slice: with_counts(slice, main=6), None),
    "below it by itself": (lambda slice: with_counts(slice, main=3), None),
    "in part": (lambda slice: with_counts(slice, main=8), {"main": 6}),
    "ended pods": (lambda slice: msgspec.structs.replace(slice, reclaimable={"main": 3}), {"main": 6}),
    "so many ended pods": (lambda slice: msgspec.structs.replace(slice, reclaimable={"main": 4}), None),
    "done": (lambda slice: noted(slice, msgspec.structs.replace(slice.reclaimed, done=True)), None),
    "evicted": (lambda slice: msgspec.structs.replace(slice, evicted=True), None),
    "deleted": (lambda slice: msgspec.structs.replace(slice, deleting=True), None),
    "finished": (lambda slice: msgspec.structs.replace(slice, finished=True), None),
    "without quota": (lambda slice: msgspec.structs.replace(slice, admission=None), None),
}


@pytest.mark.parametrize(("change", "left"), SHRINKS.values(), ids=SHRINKS.keys())
def test_a_slice_shrinks_while_pods_are_to_go(change: Any, left: dict[str, int] | None) -> None:
    slice = noted(admitted(a_slice("s1", 10)), taken(None, 10, 6))
    assert change(slice).shrinks_to == left


def test_a_slice_of_at_most_so_many_pods() -> None:
    pods = (a_pod_set("head"), a_pod_set("workers", 8), a_pod_set("others", 2))
    slice = msgspec.structs.replace(admitted(a_slice("s1", pod_sets=pods)), reclaimable={"workers": 2})
    less = slice.at_most({"workers": 4, "others": 5})
    assert less.held_counts == {"head": 1, "workers": 4, "others": 2}
    assert slice.usage == {("default", "cpu"): 9000}
    assert less.usage == {("default", "cpu"): 7000}


def manifest(**annotations: str) -> dict[str, Any]:
    names = {"min": api_names.MIN_SIZE_ANNOTATION, "note": api_names.RECLAIMED_ANNOTATION}
    names |= {"since": api_names.QUEUED_SINCE_ANNOTATION}
    metadata = {
        "namespace": "team",
        "name": "s1",
        "creationTimestamp": LATER,
        "annotations": {names[key]: text for key, text in annotations.items()},
    }
    return {"metadata": metadata, "spec": {"podSets": [{"name": "main", "count": 5, "template": {}}]}}


def test_a_slice_reads_the_annotations_of_its_workload() -> None:
    note = taken(None, 5, 3)
    slice = Slice.from_manifest(manifest(min="main=2", note=note.to_annotation(), since=AT))
    assert (slice.elasticity.least, slice.reclaimed, slice.queued_since) == ({"main": 2}, note, AT)
    assert slice.partial
    assert slice.restores
    assert slice.ranked_since == AT
    assert not msgspec.structs.replace(slice, evicted=True).restores
    assert not admitted(slice).restores


def test_a_least_size_above_the_present_one_stands() -> None:
    """As that of a Ray cluster whose autoscaler has made it smaller."""
    slice = Slice.from_manifest(manifest(min="main=6"))
    assert slice.elasticity.floor("main") == 6


def test_a_slice_without_them() -> None:
    slice = Slice.from_manifest(manifest(min="main=-6", note="?"))
    assert (slice.elasticity.least, slice.reclaimed, slice.queued_since) == ({}, None, "")
    assert not slice.partial
    assert not slice.restores
    assert slice.ranked_since == LATER


@pytest.mark.parametrize(("to", "asked"), [(6, 4), (4, 4), (2, 4)])
def test_pods_that_nobody_had_asked_for_stay_so_when_their_word_is_withdrawn(to: int, asked: int) -> None:
    grown = grow(None, {"main": 11}, {"main": 11}, asked={"main": asked}, at=AT, message="idle")
    note = withdraw(taken(grown, 11, to), {"main": 11})
    assert (note.before, note.to, note.asked, note.done) == ({"main": 11}, {"main": 11}, {"main": asked}, True)
    assert note.id == taken(grown, 11, to).id, "a worker that has followed the word gives them back"


def test_a_withdrawn_word_leaves_what_somebody_had_asked_for() -> None:
    note = withdraw(taken(None, 11, 6), {"main": 11})
    assert (note.before, note.to, note.asked, note.done) == ({"main": 11}, {"main": 11}, {}, True)
    some_lost = withdraw(taken(None, 11, 6), {"main": 8})
    assert (some_lost.before, some_lost.to, some_lost.asked) == ({"main": 11}, {"main": 8}, {})


def test_more_pods_leave_it_noted_that_a_worker_refuses_to_take_any() -> None:
    refused = withdraw(taken(None, 11, 6), {"main": 11}, refused_at=AT)
    assert refused.refused_at == AT
    assert grow(refused, {"main": 11}, {"main": 12}, asked={"main": 11}, at=AT, message="idle").refused_at == AT
    assert taken(refused, 11, 6).refused_at == ""


def for_each(*sizes: int, held: int = 10, alone: bool = True) -> Reclaimed:
    """The note of a job of 10 that goes down to each of these sizes for another beneficiary, `uid-0` first."""
    note: Reclaimed | None = None
    for number, size in enumerate(sizes):
        beneficiary = Beneficiary(workload=f"team/{number}", uid=f"uid-{number}", job_uid=f"job-{number}")
        note = take_back(
            note,
            {"main": 10},
            {"main": size},
            held={"main": held},
            beneficiary=beneficiary,
            is_alone=alone,
            at=AT,
            reason="InClusterQueue",
            message="why",
        )
    assert note is not None
    return note


SPARED: dict[str, tuple[Reclaimed, int, set[str], int | None]] = {
    "the last one is gone": (for_each(7, 5), 10, {"uid-1"}, 7),
    "the first one is": (for_each(7, 5), 10, {"uid-0"}, 8),
    "two of three are": (for_each(7, 5, 4), 10, {"uid-0", "uid-2"}, 8),
    "all are": (for_each(7, 5), 10, {"uid-0", "uid-1"}, 10),
    "nobody is": (for_each(7, 5), 10, set(), None),
    "one whose pods are gone": (for_each(7, 5), 7, {"uid-0"}, None),
    "one of whose pods some are gone": (for_each(7, 5), 8, {"uid-0"}, None),
    "the last one, when those of the first are gone": (for_each(7, 5), 7, {"uid-1"}, 7),
    "others may count on its pods": (for_each(7, 5, alone=False), 10, {"uid-0"}, None),
    "nobody knows how many went for it": (for_each(7, 5, held=0), 10, {"uid-0"}, None),
}


@pytest.mark.parametrize(("note", "held", "gone", "to"), SPARED.values(), ids=SPARED.keys())
def test_a_word_takes_no_pods_for_those_who_are_gone(
    note: Reclaimed, held: int, gone: set[str], to: int | None
) -> None:
    left = spare(note, {"main": held}, gone)
    assert (left.to["main"] if left is not None else None) == to
    if left is not None:
        assert (left.id, left.at, left.done, left.before) == (note.id, note.at, False, {"main": 10})
        assert {taken.uid for taken in left.beneficiaries} == {taken.uid for taken in note.beneficiaries} - gone


WITHDRAWN: dict[str, tuple[Reclaimed, int, set[str]]] = {
    "all stay": (for_each(7, 5), 10, set()),
    "those for the first one are gone": (for_each(7, 5), 7, {"uid-0"}),
    "some of those for the last one are": (for_each(7, 5), 6, {"uid-0", "uid-1"}),
    "others may count on them": (for_each(7, 5, alone=False), 10, {"uid-0", "uid-1"}),
}


@pytest.mark.parametrize(("note", "kept", "left"), WITHDRAWN.values(), ids=WITHDRAWN.keys())
def test_who_got_no_pods_of_a_job_has_taken_none(note: Reclaimed, kept: int, left: set[str]) -> None:
    """The job need not wait behind it, and may take some of it: that is no turn of a ring."""
    assert {taken.uid for taken in withdraw(note, {"main": kept}).beneficiaries} == left


def test_its_words_are_of_those_who_still_wait() -> None:
    left = spare(for_each(7, 5), {"main": 10}, {"uid-1"})
    assert left is not None
    assert left.message == "Shrunk to main=7 to accommodate team/0"


def test_who_takes_pods_twice_is_not_alone_with_them() -> None:
    """Both words together may have taken more than it wants."""
    note = for_each(7)
    again = take_back(
        note,
        {"main": 10},
        {"main": 6},
        held={"main": 10},
        beneficiary=note.beneficiaries[0],
        is_alone=True,
        at=LATER,
        reason="InClusterQueue",
        message="why",
    )
    assert spare(again, {"main": 10}, {"uid-0"}) is None


def test_pods_that_are_spared_of_those_that_nobody_had_asked_for_stay_so() -> None:
    grown = grow(None, {"main": 10}, {"main": 10}, asked={"main": 4}, at=AT, message="idle")
    note: Reclaimed | None = grown
    for size, beneficiary in ((8, FIRST), (3, SECOND)):
        note = take_back(
            note,
            {"main": 10},
            {"main": size},
            held={"main": 10},
            beneficiary=beneficiary,
            is_alone=True,
            at=AT,
            reason="InClusterQueue",
            message="why",
        )
    assert note is not None
    left = spare(note, {"main": 10}, {"uid-first"})
    assert left is not None
    assert (left.to, left.before, left.asked, left.grows) == ({"main": 5}, {"main": 5}, {"main": 4}, False)


def again(note: Reclaimed, *, held: int, to: int = 4) -> Reclaimed:
    """The note when another one takes pods of a job that holds so many."""
    return take_back(
        note,
        {"main": 10},
        {"main": to},
        held={"main": held},
        beneficiary=SECOND,
        at=LATER,
        reason="InClusterQueue",
        message="why",
    )


def settled(note: Reclaimed) -> Reclaimed:
    return msgspec.structs.replace(note, done=True)


IDLE = grow(settled(for_each(7, 5)), {"main": 5}, {"main": 8}, asked={"main": 5}, at=AT, message="idle")
FOR_WHOM: dict[str, tuple[Reclaimed, set[str]]] = {
    "all pods are to go": (again(for_each(7, 5), held=10), {"uid-0", "uid-1", "uid-second"}),
    "some of the first one are gone": (again(for_each(7, 5), held=8), {"uid-0", "uid-1", "uid-second"}),
    "all of the first one are": (again(for_each(7, 5), held=7), {"uid-1", "uid-second"}),
    "all of both are": (again(for_each(7, 5), held=5), {"uid-second"}),
    "both have ended": (again(settled(for_each(7, 5)), held=5), {"uid-second"}),
    "both were withdrawn": (again(withdraw(for_each(7, 5), {"main": 6}), held=6), {"uid-second"}),
    "it was given more since": (again(settled(IDLE), held=8), {"uid-second"}),
    "it was to be given more": (IDLE, set()),
    "they go back to nobody": (
        give_back(settled(IDLE), {"main": 5}, at=LATER, message="why", notice_s=9.0),
        set(),
    ),
}


@pytest.mark.parametrize(("note", "uids"), FOR_WHOM.values(), ids=FOR_WHOM.keys())
def test_for_whom_pods_are_to_go(note: Reclaimed, uids: set[str]) -> None:
    """Who has got all of its pods by an earlier word is remembered, and waits for none."""
    assert {taken.uid for taken in note.awaited_by} == uids
    assert {taken.uid for taken in note.preemptors} >= {"uid-0", "uid-1"}, "a ring is seen by them"
