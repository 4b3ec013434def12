"""The verified sender of a dead letter, and its headers."""

import pytest

from slicebus.bus.dead_letters.headers import USER_HEADER, as_sent, sender, without_death
from slicebus.proto.envelope import WireMessage
from unit.bus.letters import dead, given_up, wire

FORGED = {"slicebus_user_id": "west"}


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param(wire(), "east", id="as it was sent"),
        pytest.param(wire(user=None), None, id="without a user"),
        pytest.param(wire(**FORGED), "east", id="an agent writes another's name"),
        pytest.param(wire(user=None, **FORGED), None, id="nobody writes a name"),
        pytest.param(wire(user="manager", **FORGED), "west", id="the manager names the first sender"),
        pytest.param(wire(user="manager"), "manager", id="the manager's own"),
        pytest.param(dead(), "east", id="dead-lettered by the manager"),
        pytest.param(dead(wire(user=None)), None, id="dead-lettered without a user"),
        pytest.param(dead(wire(user=None, **FORGED)), None, id="a forged name does not survive the manager's copy"),
        pytest.param(dead(wire(**FORGED)), "east", id="nor beside a user"),
        pytest.param(dead(wire(user="manager", **FORGED)), "west", id="requeued, and dead again"),
        pytest.param(dead(wire(user="west"), by="east"), "east", id="a copy by an agent proves the agent"),
        pytest.param(given_up(wire()), "east", id="given up by the broker"),
        pytest.param(given_up(wire(**FORGED)), "east", id="given up, with a forged name"),
        pytest.param(given_up(wire(user="manager", **FORGED)), "west", id="requeued, and given up"),
    ],
)
def test_the_sender_is_the_user_that_the_broker_verified(message: WireMessage, expected: str | None) -> None:
    assert sender(message, trusted="manager") == expected
    assert as_sent(message, trusted="manager").user_id == expected


def test_the_headers_of_a_dead_letter_are_removed() -> None:
    broker = {"x-first-death-queue": "q", "x-last-death-reason": "r", "slicebus-dead-anything": "a"}
    message = wire()
    spoiled = WireMessage(routing_key=message.routing_key, body=message.body, headers=message.headers | broker)
    assert without_death(spoiled).headers == message.headers


def test_a_copy_has_the_newest_reason() -> None:
    first = dead(detail="first")
    again = dead(first, detail="second", by="manager")
    assert again.headers["slicebus-dead-detail"] == "second"
    assert again.headers[USER_HEADER] == "east"
    assert len(dead(detail="x" * 5000).headers["slicebus-dead-detail"]) == 2000
