"""Which recorded messages may be published again."""

from typing import Any

import msgspec
import pytest

from slicebus.bus.contract import Record
from slicebus.bus.dead_letters.letters import MessageRequeue
from slicebus.cli.journal.redrive import offset_range
from slicebus.journal.entry import Entry
from slicebus.journal.redaction import MARK
from slicebus.journal.redrive import NewestMessages, NotRedriven, redrive
from slicebus.proto.errors import ConfigurationError
from slicebus.proto.messages import (
    MESSAGES,
    Applied,
    ClusterName,
    Delete,
    Heartbeat,
    Hello,
    Inventory,
    Message,
    Pending,
    Refused,
    Relabel,
    Resync,
    ScaleRequest,
    Status,
    Suspend,
    Terms,
    WorkloadSpec,
)
from unit.journal.records import JOB, entry, garbage, record

WISH = ScaleRequest(job=JOB, workload="w", worker_uid="u", worker_generation=2, granted={"main": 1}, wanted={"main": 5})
SPEC = WorkloadSpec(job=JOB, spec_version=2, workload={}, manifest={}, granted={"main": 5})
VERSIONED: list[Message] = [
    WISH,
    Applied(job=JOB, workload="w", spec_version=2),
    Refused(job=JOB, workload="w", spec_version=2, reason="Invalid", message="no"),
    SPEC,
    Relabel(job=JOB, spec_version=2, from_workload="a", to_workload="b", granted={"main": 5}),
    Suspend(job=JOB, spec_version=2, workload="w1"),
    Delete(job=JOB, spec_version=2),
]
OF_A_MOMENT: list[Message] = [
    Hello(agent_version="1", kubernetes_version="v1", schema_version="1.0"),
    Heartbeat(),
    Status(job=JOB, workload="w", spec_version=2, phase="Running"),
    Inventory(round=1, page=0, last=True, items=[]),
    Pending(
        job=JOB,
        workload="w",
        worker_uid="u",
        worker_generation=2,
        wanted={},
        reason="Pending",
        message="no",
        since="2026-01-31T12:00:00Z",
    ),
    Resync(),
    Terms(version="1"),
]


def sent(message: Message, *, offset: int = 5, at_s: float = 5.0) -> Entry:
    """As the broker has recorded it."""
    user = "manager" if message.direction == "down" else "east"
    return entry(message, offset=offset, at_s=at_s, user_id=user)


def decided(asked: Entry, *later: Entry) -> MessageRequeue | NotRedriven:
    since = NewestMessages()
    for each in (asked, *later):
        since.see(each)
    return redrive(asked, since, manager="manager")


def test_every_message_type_is_either_redriven_or_not() -> None:
    assert {type(message) for message in VERSIONED + OF_A_MOMENT} == set(MESSAGES.values())


@pytest.mark.parametrize("message", VERSIONED, ids=lambda message: message.type)
def test_the_newest_message_about_a_job_is_published_again(message: Message) -> None:
    asked = sent(message)
    once_more = decided(asked)
    assert isinstance(once_more, MessageRequeue)
    assert once_more.message.message_id == asked.record.message.message_id


@pytest.mark.parametrize("message", OF_A_MOMENT, ids=lambda message: message.type)
def test_a_report_of_a_state_is_left(message: Message) -> None:
    left = decided(sent(message))
    assert isinstance(left, NotRedriven)
    assert left.of_a_moment


def of_epoch(asked: Entry, epoch: int, *, offset: int) -> Entry:
    headers = asked.record.message.headers | {"cloudEvents_epoch": str(epoch)}
    message = msgspec.structs.replace(asked.record.message, headers=headers, message_id="another")
    return Entry.from_record(Record(offset, message, None))


OVERTAKEN: dict[str, tuple[Message, Entry, str]] = {
    "a newer spec": (SPEC, sent(Delete(job=JOB, spec_version=3), offset=9), "overtaken by 3, offset 9"),
    "a newer request": (
        WISH,
        sent(msgspec.structs.replace(WISH, worker_generation=3), offset=9, at_s=6),
        "overtaken by another request, offset 9",
    ),
    "a newer epoch": (WISH, of_epoch(sent(Heartbeat()), 7, offset=9), "epoch 1 of east has ended, 7 speaks now"),
}


@pytest.mark.parametrize(("message", "later", "why"), OVERTAKEN.values(), ids=OVERTAKEN.keys())
def test_an_overtaken_message_is_left(message: Message, later: Entry, why: str) -> None:
    left = decided(sent(message), later)
    assert isinstance(left, NotRedriven)
    assert left.why.endswith(why)


def test_a_late_message_overtakes_nothing() -> None:
    older = sent(msgspec.structs.replace(SPEC, spec_version=1), offset=9, at_s=9)
    assert isinstance(decided(sent(SPEC), older), MessageRequeue)
    same = sent(WISH, offset=9, at_s=9)
    assert isinstance(decided(sent(WISH), same), MessageRequeue)


def test_another_job_overtakes_nothing() -> None:
    other = msgspec.structs.replace(SPEC, job=msgspec.structs.replace(JOB, uid="another"), spec_version=9)
    assert isinstance(decided(sent(SPEC), sent(other, offset=9)), MessageRequeue)


def test_the_epoch_of_another_cluster_ends_nobodys_though_it_says_the_same_uid() -> None:
    other = entry(Heartbeat(), offset=9, cluster=ClusterName("west"), epoch=7, user_id="west")
    assert isinstance(decided(sent(WISH), other), MessageRequeue)


def test_what_the_journal_does_not_cover_is_left() -> None:
    asked, since = sent(SPEC), NewestMessages()
    for later in ((), (sent(Resync(), offset=9, at_s=9),)):
        for each in later:
            since.see(each)
        left = redrive(asked, since, manager="manager")
        assert isinstance(left, NotRedriven)
        assert "does not go back so far" in left.why


def changed(entry: Entry, **fields: Any) -> Entry:
    return Entry.from_record(Record(entry.offset, msgspec.structs.replace(entry.record.message, **fields), None))


ASKED = sent(SPEC)
BODY = ASKED.record.message.body
FORGED: dict[str, tuple[Entry, str]] = {
    "it is not there": (changed(ASKED, message_id="0190ffff-0000-7000-8000-000000000009"), "has no such message"),
    "another body": (changed(ASKED, body=BODY.replace(b'"main":5', b'"main":9')), "another message under this id"),
    "another sender": (changed(ASKED, user_id="other"), "another message under this id"),
    "another header": (
        changed(ASKED, headers=ASKED.record.message.headers | {"cloudEvents_epoch": "9"}),
        "another message under this id",
    ),
}


@pytest.mark.parametrize(("asked", "why"), FORGED.values(), ids=FORGED.keys())
def test_what_the_journal_does_not_have_with_this_content_is_left(asked: Entry, why: str) -> None:
    """A file may be anybody's. The journal has what the broker has verified."""
    since = NewestMessages()
    for each in (sent(Resync(), offset=1, at_s=1), ASKED):
        since.see(each)
    assert isinstance(redrive(ASKED, since, manager="manager"), MessageRequeue)
    left = redrive(asked, since, manager="manager")
    assert isinstance(left, NotRedriven)
    assert why in left.why


UNUSABLE: dict[str, tuple[Record, str]] = {
    "unreadable": (garbage(), "malformed"),
    "without secrets": (
        record(msgspec.structs.replace(SPEC, manifest={"password": MARK}), user_id="manager"),
        "secrets",
    ),
    "of nobody": (record(SPEC, user_id=None), "verified no sender"),
    "of another": (record(SPEC, user_id="east"), "an order from 'east'"),
}


@pytest.mark.parametrize(("recorded", "why"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_an_unusable_message_is_left(recorded: Any, why: str) -> None:
    left = decided(Entry.from_record(recorded))
    assert isinstance(left, NotRedriven)
    assert why in left.why


@pytest.mark.parametrize(
    ("text", "expected"),
    [("17", range(17, 18)), ("17-40", range(17, 41)), ("17-", range(17, 2**62 + 1)), ("-40", range(41))],
)
def test_offsets(text: str, expected: range) -> None:
    assert offset_range(text) == expected


@pytest.mark.parametrize("text", ["", "-", "x", "1-2-3", "1.5"])
def test_invalid_offsets(text: str) -> None:
    with pytest.raises(ConfigurationError, match="use 17"):
        offset_range(text)
