"""The selection of dead letters, and the messages that requeue them."""

from datetime import timedelta

import msgspec
import pytest

from slicebus.bus.dead_letters.headers import TIME_HEADER, USER_HEADER, passed_on, was_passed_on
from slicebus.bus.dead_letters.letters import DeadLetter, LetterSelection, choose, republish, requeue
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import DeadReason, InvalidError
from slicebus.proto.headers import ADDRESSEE
from unit.bus.letters import DOWN_QUEUE, NOON, UP_QUEUE, dead, given_up, letter, wire

OLD = letter("east.scale-request", id="aaa-111", minutes_ago=90)
MIDDLE = letter("west.status", id="bbb-111", minutes_ago=30, reason=DeadReason.MALFORMED)
YOUNG = letter("east.status", id="ccc-333", minutes_ago=1)
COPY = letter("east.status", id="ccc-333", minutes_ago=0.5)
ALL = (MIDDLE, COPY, OLD, YOUNG)
AGELESS = msgspec.structs.replace(YOUNG, id="ddd", at=None)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        pytest.param(LetterSelection(), [OLD, MIDDLE, YOUNG, COPY], id="everything, oldest first"),
        pytest.param(LetterSelection(cluster="east"), [OLD, YOUNG, COPY], id="cluster"),
        pytest.param(LetterSelection(type="status"), [MIDDLE, YOUNG, COPY], id="type"),
        pytest.param(LetterSelection(reason="malformed"), [MIDDLE], id="reason"),
        pytest.param(LetterSelection(older_than=timedelta(minutes=30)), [OLD, MIDDLE], id="age, at least"),
        pytest.param(LetterSelection(limit=2), [OLD, MIDDLE], id="the oldest"),
        pytest.param(LetterSelection(cluster="east", type="status", limit=1), [YOUNG], id="all of it"),
        pytest.param(LetterSelection(ids=("ccc-333",)), [YOUNG, COPY], id="copies of one message"),
        pytest.param(LetterSelection(ids=("333",)), [YOUNG, COPY], id="the end of an id"),
        pytest.param(LetterSelection(ids=("333",), cluster="west"), [], id="id and filter"),
    ],
)
def test_dead_letters_are_chosen(wanted: LetterSelection, expected: list[DeadLetter]) -> None:
    assert list(choose(ALL, wanted, NOON).letters) == expected


def test_ids_without_a_match_are_named() -> None:
    choice = choose(ALL, LetterSelection(ids=("111", "333", "nothing")), NOON)
    assert choice.letters == (YOUNG, COPY)
    assert choice.missing == ("nothing",)
    assert choice.ambiguous == ("111",)


def test_a_whole_id_is_not_ambiguous() -> None:
    longer = letter(id="x-aaa-111")
    assert choose([OLD, longer], LetterSelection(ids=("aaa-111",)), NOON).letters == (OLD,)


def test_a_dead_letter_of_unknown_age_counts_as_the_oldest() -> None:
    choice = choose([YOUNG, AGELESS], LetterSelection(older_than=timedelta(days=9)), NOON)
    assert choice.letters == (AGELESS,)


@pytest.mark.parametrize("time", ["", "yesterday", "2026-01-31T11:59:00", "2026-01-31T11:59:00Z"])
def test_any_message_can_be_described(time: str) -> None:
    message = WireMessage(routing_key="", body=b"\xff", headers={TIME_HEADER: time})
    described = DeadLetter.from_message(message)
    assert described.id
    assert described.age(NOON) in (None, timedelta(minutes=1))
    assert (described.cluster, described.type, described.reason, described.queue, described.by) == (
        "",
        "",
        "",
        "",
        None,
    )


ORDER = wire("east.workload-spec.uid-1", user="manager")


@pytest.mark.parametrize(
    ("message", "exchange", "first"),
    [
        pytest.param(dead(), "slicebus.up", "east", id="the manager's copy"),
        pytest.param(given_up(wire()), "slicebus.up", "east", id="given up by the broker"),
        pytest.param(dead(wire(slicebus_user_id="west")), "slicebus.up", "east", id="the sender wrote another name"),
        pytest.param(
            dead(wire(user="manager", slicebus_user_id="east")), "slicebus.up", "east", id="requeued and dead again"
        ),
        pytest.param(dead(ORDER, queue=DOWN_QUEUE, by="east"), "slicebus.down", None, id="an order, by its agent"),
        pytest.param(given_up(ORDER, queue=DOWN_QUEUE), "slicebus.down", None, id="an order, given up"),
    ],
)
def test_a_requeue_publishes_the_message_as_it_was(message: WireMessage, exchange: str, first: str | None) -> None:
    back = requeue(message, manager="manager", agents={})
    assert back.exchange == exchange
    assert back.queue == DeadLetter.from_message(message).queue
    assert back.message.user_id == "manager"
    headers = {"cloudEvents_subject": "Job/team/train"} | ({USER_HEADER: first} if first else {})
    assert back.message.headers == headers
    same = ("routing_key", "body", "message_id", "correlation_id", "type", "content_type", "persistent")
    assert all(getattr(back.message, name) == getattr(message, name) for name in same)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        pytest.param(dead(wire(user=None)), "verified no sender", id="no user"),
        pytest.param(dead(wire(user=None, slicebus_user_id="west")), "verified no sender", id="no user, a name"),
        pytest.param(dead(by="east"), "dead-lettered by 'east'", id="an agent poses as the manager"),
        pytest.param(given_up(wire(slicebus_user_id="west")), "dead-lettered by 'east'", id="a forged name"),
        pytest.param(dead(wire("east.bogus")), "no queue takes", id="a type that no queue takes"),
        pytest.param(dead(wire("east.scale-request.uid-1")), "no queue takes", id="a request of a type and more"),
        pytest.param(dead(wire("east.workload-spec", user="manager")), "no queue takes", id="an order to no cluster"),
        pytest.param(
            given_up(wire("east.workload-spec.uid-2", user="manager"), queue=DOWN_QUEUE),
            "lay in queue",
            id="the queue of another cluster of the name",
        ),
        pytest.param(dead(queue="slicebus.manager.status"), "lay in queue", id="another lane"),
        pytest.param(dead(queue="elsewhere"), "lay in queue", id="another queue"),
        pytest.param(wire(), "lay in queue ''", id="not dead at all"),
        pytest.param(
            dead(wire("west.workload-spec.uid-1", user="manager"), queue=DOWN_QUEUE, by="east"),
            "lay in queue",
            id="key",
        ),
        pytest.param(
            dead(
                wire("west.workload-spec.uid-1", user="manager"), queue="slicebus.agent.west.uid-1.control", by="east"
            ),
            "dead-lettered by 'east', and 'west' speaks for west",
            id="an agent forges an order to another",
        ),
        pytest.param(
            dead(wire("east.workload-spec.uid-1", user="west"), queue=DOWN_QUEUE, by="east"),
            "an order from 'west'",
            id="an order that another agent sent",
        ),
        pytest.param(
            given_up(wire("east.workload-spec.uid-1", user="west"), queue=DOWN_QUEUE),
            "dead-lettered by 'west'",
            id="limit",
        ),
        pytest.param(
            dead(wire("east.workload-spec.uid-1", user="west"), queue=DOWN_QUEUE, by="manager"),
            "an order from",
            id="copied",
        ),
    ],
)
def test_the_error_of_a_requeue_has_the_reason(message: WireMessage, why: str) -> None:
    with pytest.raises(InvalidError, match=why):
        requeue(message, manager="manager", agents={})


def test_an_agent_may_have_a_user_of_another_name() -> None:
    message = dead(ORDER, queue=DOWN_QUEUE, by="u7")
    with pytest.raises(InvalidError, match="--agent-user east=u7"):
        requeue(message, manager="manager", agents={})
    assert requeue(message, manager="manager", agents={"east": "u7"}).queue == DOWN_QUEUE


def test_another_account_of_the_manager_cannot_requeue_its_copies() -> None:
    with pytest.raises(InvalidError, match="not by this user 'operator'"):
        requeue(dead(), manager="operator", agents={})


@pytest.mark.parametrize(
    "sent",
    [wire(), msgspec.structs.replace(wire("east.scale-request.3"), headers=wire().headers | {ADDRESSEE: "3"})],
    ids=["passed on", "addressed"],
)
def test_what_died_in_the_queue_of_another_shard_goes_to_the_first_which_passes_it_on(sent: WireMessage) -> None:
    message = passed_on(sent, by="manager", shard=0)
    for died in (
        dead(message, queue="slicebus.manager.3.control"),
        given_up(message, queue="slicebus.manager.3.control"),
    ):
        back = requeue(died, manager="manager", agents={})
        assert (back.queue, back.exchange, back.message.headers[USER_HEADER]) == (UP_QUEUE, "slicebus.up", "east")
        assert back.message.routing_key == "east.scale-request"
        assert ADDRESSEE not in back.message.headers
        assert not was_passed_on(back.message, trusted="manager")


def test_queues_are_those_of_the_topology() -> None:
    assert requeue(dead(), manager="manager", agents={}).queue == UP_QUEUE


@pytest.mark.parametrize(
    ("message", "exchange", "queue", "first"),
    [
        pytest.param(wire(), "slicebus.up", UP_QUEUE, "east", id="an agent's"),
        pytest.param(
            wire(slicebus_user_id="west"), "slicebus.up", UP_QUEUE, "east", id="the sender wrote another name"
        ),
        pytest.param(
            wire(user="manager", slicebus_user_id="east"), "slicebus.up", UP_QUEUE, "east", id="redriven before"
        ),
        pytest.param(ORDER, "slicebus.down", DOWN_QUEUE, None, id="an order"),
    ],
)
def test_a_recorded_message_is_published_again_for_its_sender(
    message: WireMessage, exchange: str, queue: str, first: str | None
) -> None:
    once_more = republish(message, manager="manager")
    assert (once_more.exchange, once_more.queue) == (exchange, queue)
    assert (once_more.message.user_id, once_more.message.headers.get(USER_HEADER)) == ("manager", first)
    same = ("routing_key", "body", "message_id", "correlation_id", "type", "content_type", "persistent")
    assert all(getattr(once_more.message, name) == getattr(message, name) for name in same)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        pytest.param(wire(user=None), "verified no sender", id="no user"),
        pytest.param(wire("east.workload-spec.uid-1", user=None), "verified no sender", id="an order of nobody"),
        pytest.param(wire("east.workload-spec.uid-1", user="west"), "an order from 'west'", id="an order of an agent"),
        pytest.param(wire(user="manager"), "speaks for no cluster", id="the manager as an agent"),
        pytest.param(wire("east.bogus"), "no queue takes", id="a type that no queue takes"),
    ],
)
def test_a_recorded_message_without_a_trusted_sender_is_not_published_again(message: WireMessage, why: str) -> None:
    with pytest.raises(InvalidError, match=why):
        republish(message, manager="manager")
