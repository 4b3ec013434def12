"""Values of annotations: what nobody can read, and objects whose annotations are full."""

import msgspec
import pytest

from slicebus.slices.api.annotation_values import read_json, read_number, with_room

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
