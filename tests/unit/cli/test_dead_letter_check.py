"""What doctor says of dead letters."""

import pytest

from slicebus.bus.dead_letters.letters import DeadLetter
from slicebus.cli.doctor.dead_letter_check import dead_letter_finding
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import DeadReason
from unit.bus.letters import DOWN_QUEUE, dead, wire

FORGED = dead(wire("west.status"), queue="slicebus.cluster.west.status", reason=DeadReason.WRONG_USER)
ORDER = dead(wire("east.relabel.uid-1"), queue=DOWN_QUEUE, reason=DeadReason.REFUSED)
STRANGER = wire("north.hello")


@pytest.mark.parametrize(
    ("messages", "unread", "found"),
    [
        ([], 0, "none"),
        ([dead()], 0, "1 message: 1 scale-request of east in the lane control: unknown-cluster"),
        (
            [FORGED, ORDER, FORGED],
            0,
            "3 messages: 2 status of west in the lane status: wrong-user; "
            "1 relabel of east in the lane control: refused",
        ),
        ([STRANGER], 0, "1 message: 1 hello of north: unknown"),
        ([dead(wire(f"{name}.hello")) for name in "abcdef"], 0, None),
        ([], 20_000, "20000 messages"),
    ],
    ids=["none", "one", "several", "nobody says why", "many kinds", "too many to read"],
)
def test_dead_letters_are_counted_by_what_they_are(messages: list[WireMessage], unread: int, found: str | None) -> None:
    check = dead_letter_finding(map(DeadLetter.from_message, messages), unread=unread)
    assert check.ok is (found == "none")
    if found is not None:
        assert check.found == found
    else:
        assert check.found.startswith("6 messages: 1 hello of a ")
        assert check.found.endswith("; 2 more")
    if not check.ok:
        assert "`slicebus dead list`" in check.advice
        assert "`slicebus dead requeue`" in check.advice
