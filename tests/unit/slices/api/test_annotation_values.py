"""Values of annotations: what nobody can read, and objects whose annotations are full."""

import msgspec
import pytest

from slicebus.slices.api.annotation_values import (
    is_full,
    read_json,
    read_number,
    too_many,
    with_room,
    with_room_on_copy,
)

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
FULL = 256 * 1024
COUNTS = msgspec.json.Decoder(dict[str, int])


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"a": "b"}', "\x00", "[" * 5000, "1e999", '"\\ud800"'])
def test_json_that_nobody_can_read_is_none(text: str) -> None:
    assert read_json(text, COUNTS) is None


@pytest.mark.parametrize("text", ["", "-1", "1.0", "x", "٣", "9" * 19, "1e3", " 1"])
def test_a_number_that_nobody_can_read_is_0(text: str) -> None:
    assert read_number(text) == 0


def test_an_object_with_room_keeps_everything() -> None:
    assert with_room({LAST_APPLIED: "x" * 1000}, {"a": "b"}) == {"a": "b"}


def test_an_object_without_room_gives_up_the_copy_of_itself() -> None:
    present = {LAST_APPLIED: "x" * (FULL - len(LAST_APPLIED))}
    assert with_room(present, {"a": "b"}) == {"a": "b", LAST_APPLIED: None}


def test_the_size_is_that_of_bytes_and_of_what_is_left() -> None:
    present = {LAST_APPLIED: "é" * (FULL // 2 - len(LAST_APPLIED)), "old": "x" * 100}
    assert with_room(present, {"old": None}) == {"old": None}
    assert LAST_APPLIED in with_room(present, {"old": "x" * 200})


def test_there_is_nothing_else_to_give_up() -> None:
    assert with_room({"mine": "x" * FULL}, {"a": "b"}) == {"a": "b"}


def test_on_a_copy_others_give_way_the_largest_first() -> None:
    present = {"mine": "x" * (FULL - 20_000), "small": "x", "other": "x" * 19_000}
    assert with_room_on_copy(present, {"a": "b"}) == {"a": "b"}
    assert with_room_on_copy(present, {"a": "b" * 2000}) == {"a": "b" * 2000, "mine": None}


def test_on_a_copy_too_the_copy_of_itself_goes_first() -> None:
    present = {LAST_APPLIED: "x" * 1000, "mine": "x" * (FULL - 1100)}
    assert with_room_on_copy(present, {"a": "b" * 100}) == {"a": "b" * 100, LAST_APPLIED: None}


def test_what_the_job_is_run_by_stays() -> None:
    present = {f"{domain}/long": "x" * (FULL // 3) for domain in ("slicebus.dev", "kueue.x-k8s.io", "ray.io")}
    assert with_room_on_copy(present, {"a": "b" * 100}) == {"a": "b" * 100}
    assert with_room_on_copy(present, {"kueue.x-k8s.io/long": None, "a": "b" * 100})["kueue.x-k8s.io/long"] is None


def test_a_copy_has_room_for_what_slicebus_writes() -> None:
    assert too_many({"mine": "x" * (FULL - 8 * 1024 - 4)}) == []
    assert too_many({"mine": "x" * (FULL - 8 * 1024 - 3)}) == ["mine"]
    many = {f"n{number:04}": "x" * 95 for number in range(2_700)}
    gone = too_many(many)
    assert gone == sorted(many)[: len(gone)]
    assert 100 * (len(many) - len(gone)) == FULL - 8 * 1024 - (FULL - 8 * 1024) % 100


def test_full_is_what_has_no_room_for_a_short_one() -> None:
    assert not is_full({"a": "x" * (FULL - 257)})
    assert is_full({"a": "x" * (FULL - 256)})
