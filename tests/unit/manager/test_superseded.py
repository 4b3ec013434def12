"""Which of two messages of one job has no effect is found before anybody has checked their headers."""

import pytest

from slicebus.manager.act.inbox import _is_superseded
from slicebus.proto.envelope import WireMessage
from slicebus.proto.headers import PREFIX


class Arrived:
    """A delivery of a status."""

    def __init__(self, sequence: str) -> None:
        headers = {f"{PREFIX}{name}": value for name, value in (("epoch", "1"), ("sequence", sequence))}
        self.message = WireMessage(routing_key="east.status", body=b"{}", headers=headers, message_id="1")


def is_superseded(first: str, second: str) -> bool:
    return _is_superseded(Arrived(first), Arrived(second))  # type: ignore[arg-type]


def test_the_later_one_supersedes() -> None:
    assert is_superseded("9", "10")
    assert not is_superseded("10", "9")


@pytest.mark.parametrize("odd", ["", "9" * 5000, "-1", "1.5", "\u0662", "\u00b2", " 1"])
def test_what_is_no_number_supersedes_nothing_and_raises_nothing(odd: str) -> None:
    assert not is_superseded("1", odd)
    assert not is_superseded(odd, "2")
    assert not is_superseded(odd, odd)
