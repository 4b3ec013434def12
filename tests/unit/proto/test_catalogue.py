"""The unions of messages: each type is in the one of its direction, and a role reads its own alone."""

from types import ModuleType
from typing import Any, get_args

import pytest

from slicebus.proto.codec import decode_order, decode_report
from slicebus.proto.errors import DeadReason, ProtocolError
from slicebus.proto.messages import MESSAGES, Direction, JobMessage, JobOrder, Message, Order, Report, down, up
from unit.proto.golden import Golden

every_type = pytest.mark.parametrize("name", MESSAGES)


def types_of(module: ModuleType) -> set[Any]:
    """The message types that a module defines."""
    found = (value for value in vars(module).values() if isinstance(value, type) and issubclass(value, Message))
    return {each for each in found if each.__module__ == module.__name__}


@pytest.mark.parametrize(("module", "union"), [(up, Report), (down, Order)], ids=["up", "down"])
def test_a_union_has_every_type_that_goes_its_way(module: ModuleType, union: Any) -> None:
    assert types_of(module) == set(get_args(union))


def test_a_type_is_in_the_union_of_its_direction() -> None:
    assert {message.direction for message in get_args(Report)} == {Direction.UP}
    assert {message.direction for message in get_args(Order)} == {Direction.DOWN}
    assert set(MESSAGES.values()) == {*get_args(Report), *get_args(Order)}


def test_orders_about_a_job_have_a_union_of_their_own() -> None:
    assert set(get_args(JobOrder)) == {message for message in get_args(Order) if issubclass(message, JobMessage)}


@every_type
def test_a_role_reads_what_is_for_it_and_refuses_the_rest(name: str) -> None:
    wire = Golden.named(name).to_wire()
    is_order = MESSAGES[name].direction is Direction.DOWN
    reads, refuses = (decode_order, decode_report) if is_order else (decode_report, decode_order)
    assert reads(wire).message.type == name
    with pytest.raises(ProtocolError, match=f"{name} is not for {'a manager' if is_order else 'an agent'}") as caught:
        refuses(wire)
    assert caught.value.reason is DeadReason.UNKNOWN_TYPE
