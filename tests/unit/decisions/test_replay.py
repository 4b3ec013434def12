"""Decisions are recorded with their inputs, and made again from these."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest
from msgspec import Raw

from slicebus.bus.contract import Record
from slicebus.cli.journal.source import records_of_file
from slicebus.cli.replay.page import MODELS
from slicebus.decisions.decider import Decider
from slicebus.decisions.replay import Model, Position, Replayer
from slicebus.journal.export import from_line, to_line
from slicebus.journal.recording import (
    Began,
    Decided,
    Gap,
    Gone,
    Noted,
    Put,
    RoleName,
    SnapshotPart,
    Source,
    decode_batch,
    encode_batch,
    encode_record,
)
from slicebus.journal.recording_reader import Phase
from slicebus.proto.codec import decode, encode
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import ConflictError, InvalidError, ProtocolError
from slicebus.proto.issuer import Issuer
from slicebus.proto.messages import ClusterName, ClusterUid, Resync
from unit.decisions.roles import JOB, SOURCE, Role, Store, a_pod, act, model, names, node_of, reason, replay, seen
from unit.journal.records import BEGAN
from unit.kube.loop_time import LoopTime


def a_message(text: str = "x", **changes: Any) -> WireMessage:
    issuer = Issuer(epoch=1, user="manager", now=lambda: BEGAN, random=lambda count: b"\0" * count)
    message = Resync(reason=text)
    return msgspec.structs.replace(
        encode(issuer.envelope(message, ClusterName("east"), ClusterUid("uid-1")), message), **changes
    )


@pytest.fixture
def role(jumping: LoopTime) -> Role:
    return Role()


async def some_work(role: Role) -> None:
    role.store.pods.put(a_pod("before", 1))
    role.store.seen[JOB] = 1
    async with role.recorded():
        role.decide(names)
        role.store.pods.put(a_pod("a", 2))
        role.store.pods.put(a_pod("a", 3, status={"phase": "Running"}))
        role.decide(act)
        role.store.seen[JOB] = 2
        role.decide(seen, job=JOB)
        role.store.pods.remove(a_pod("a", 4))
        del role.store.seen[JOB]
        role.decide(seen, job=JOB)
        role.decide(names)
        with pytest.raises(ConflictError):
            role.decide(node_of, name="a")
        incoming = role.decide.receive(a_message("x"), decode)
        role.decide(reason, incoming=incoming, times=2)
        with pytest.raises(ProtocolError):
            role.decide.receive(a_message(body=b"\xff"), decode)


async def test_the_same_code_makes_the_same_decisions(role: Role) -> None:
    await some_work(role)
    replayer, made = replay(role.records)
    assert [(each.what, each.same) for each in made] == [
        (what, True) for what in ("names", "act", "seen", "seen", "names", "node_of", "reason", "receive")
    ]
    assert [orjson.loads(each.recorded) for each in made[2:7]] == [
        2,
        None,
        ["before"],
        {"error": "ConflictError", "text": "no pod a"},
        "xx",
    ]
    assert orjson.loads(made[7].recorded).startswith("malformed: the body is not JSON")
    assert replayer.passed_over == 0
    [source] = replayer.sources.values()
    assert source.reader.phase is Phase.KNOWN
    assert names(source.state) == ["before"]


async def test_commands_name_the_objects_that_they_were_decided_on(role: Role) -> None:
    async with role.recorded():
        role.store.pods.put(a_pod("a", 7))
        role.decide(act)
    [made] = replay(role.records)[1]
    assert orjson.loads(made.replayed) == [
        {"do": "create", "of": "pods", "manifest": {"metadata": {"name": "new"}}},
        {"do": "patch", "of": "pods", "target": "Pod team/a uid-a@7", "subresource": "status", "body": {"a": 1}},
        {"do": "remove", "of": "pods", "target": "Pod team/a uid-a@7"},
        {"do": "emit", "regarding": "Pod team/a uid-a@7", "reason": "R", "note": "n", "warning": False},
        {"do": "publish", "to": "east", "type": "resync", "message": msgspec.to_builtins(Resync(reason="x"))},
        {"do": "requeue", "job": msgspec.to_builtins(JOB), "delay_s": 0.5},
    ]


def no_name(store: Store) -> list[str]:
    raise ConflictError("none")


def other_names(store: Store) -> list[str]:
    return ["other"]


DIFFERENT: dict[str, tuple[Any, Any, str]] = {
    "another outcome": (other_names, ["other"], ""),
    "another error": (no_name, {"error": "ConflictError", "text": "none"}, ""),
    "a decision that is gone": (None, None, "this version has no decision names"),
    "other arguments": (
        lambda store, *, of: of,
        None,
        "this version's names takes other arguments: Object missing required field `of`",
    ),
}


@pytest.mark.parametrize(("other", "expected", "problem"), DIFFERENT.values(), ids=DIFFERENT.keys())
async def test_a_change_of_the_code_shows_as_a_difference(role: Role, other: Any, expected: Any, problem: str) -> None:
    await some_work(role)
    _, made = replay(role.records, names=other)
    different = [each for each in made if not each.same]
    assert [each.what for each in different] == ["names", "names"]
    assert different[0].problem == problem
    assert (orjson.loads(different[0].replayed) if different[0].replayed else None) == expected
    assert orjson.loads(different[0].recorded) == ["before"]
    assert str(different[0].position) == "0.2"


async def test_an_export_without_secrets_replays_the_same(role: Role) -> None:
    secret = {"env": [{"name": "DB_PASSWORD", "value": "hunter2"}]}
    async with role.recorded():
        role.store.pods.put(a_pod("a", 1, spec={"node": secret}))
        role.decide(node_of, name="a")
        incoming = role.decide.receive(a_message("amqp://user:hunter2@broker/"), decode)
        role.decide(reason, incoming=incoming, times=1)
        for body in (b"hunter2", b"\xffhunter2"):
            with pytest.raises(ProtocolError):
                role.decide.receive(a_message(body=body), decode)
    lines = [to_line(record) for record in role.records]
    assert b"hunter2" not in b"".join(lines)
    _, made = replay(list(map(from_line, lines)))
    assert [(each.what, each.same) for each in made] == [("node_of", True), ("reason", True)]
    assert b"(redacted:" in made[0].replayed


async def test_an_outcome_that_cannot_be_encoded_does_not_stop_the_role(role: Role) -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    async with role.recorded():
        role.store.pods.put(a_pod("deep", 1, spec={"node": deep}))
        assert role.decide(node_of, name="deep") is deep
        assert role.decide(names) == ["deep"]


def test_without_a_recorder_nothing_is_recorded() -> None:
    store = Store()
    decide = Decider(store)
    decide.begin()
    store.pods.put(a_pod())
    assert decide(names) == ["a"]
    assert decide.receive(a_message("y"), decode).message == Resync(reason="y")


# --- recordings that are not whole ----------------------------------------------------------------------------------


def batch(number: int, *records: Any, source: Any = SOURCE) -> Record:
    message = encode_batch(source, number, list(map(encode_record, records)), user="manager", at=BEGAN)
    return Record(offset=100 + number, message=message, timestamp=None)


def put(name: str, version: int = 1) -> Put:
    return Put(of="pods", object=a_pod(name, version))


def decided(*outcome: str) -> Decided:
    return Decided(what="names", at=0.0, arguments=Raw(b"{}"), outcome=Raw(orjson.dumps(outcome)))


def shown(part: int, *content: Any, last: bool = True) -> SnapshotPart:
    return SnapshotPart(part=part, last=last, content=content)


START = (Began(version="0"), shown(0, put("a")))
WHOLE: dict[str, tuple[list[Record], int, int]] = {
    "from the start": ([batch(0, *START, decided("a"))], 1, 0),
    "a batch that came twice": (
        [batch(0, *START, put("b")), batch(1, decided("a", "b")), batch(1, decided("x"))],
        1,
        0,
    ),
    "an object that comes back as it was, with its definition": (
        [batch(0, *START, Gone(of="pods", namespace="team", name="a"), decided(), put("a"), decided("a"))],
        2,
        0,
    ),
    "its beginning is missing": ([batch(3, put("b"), decided("x")), batch(4, shown(0, put("c")), decided("c"))], 1, 1),
    "a batch is missing": ([batch(0, *START), batch(2, decided("x")), batch(3, shown(0), decided())], 1, 1),
    "a gap": ([batch(0, *START, Gap(dropped=1), decided("x"), shown(0, put("c")), decided("c"))], 1, 1),
    "a snapshot that is not needed": ([batch(0, *START, shown(0, put("z")), decided("a"))], 1, 0),
    "a snapshot in parts, with changes between": (
        [
            batch(5, shown(0, put("a"), last=False), put("c"), decided("a", "b", "c")),
            batch(6, shown(1, put("b")), decided("a", "b", "c")),
        ],
        2,
        0,
    ),
    "the rest of a snapshot": (
        [batch(5, shown(1, put("b")), decided("x")), batch(6, shown(0, put("b")), decided("b"))],
        1,
        1,
    ),
    "a snapshot that has a gap": (
        [batch(0, shown(0, put("a"), last=False), Gap(dropped=1), shown(1, put("b")), decided("x"))],
        0,
        1,
    ),
    "a leader that begins anew": (
        [batch(0, *START, decided("a"), Began(version="1"), decided("x"), shown(0), decided())],
        2,
        1,
    ),
}


async def test_a_replay_ends_at_the_given_position(role: Role) -> None:
    await some_work(role)
    replayer = Replayer({"manager": model()})
    made = [each for record in role.records for each in replayer.feed(record, until=Position.parse("0.6"))]
    assert [each.what for each in made] == ["names", "act"]
    [source] = replayer.sources.values()
    assert names(source.state) == ["before", "a"]


def test_positions() -> None:
    assert Position.parse("17.3") == Position(17, 3)
    assert Position(17, 2**20) <= Position.parse("17") < Position(18, 0)
    assert sorted([Position(2, 0), Position(1, 9)]) == [Position(1, 9), Position(2, 0)]


@pytest.mark.parametrize(("records", "made_again", "passed_over"), WHOLE.values(), ids=WHOLE.keys())
def test_decisions_before_a_snapshot_are_skipped(records: list[Record], made_again: int, passed_over: int) -> None:
    replayer, made = replay(records)
    assert [each.same for each in made] == [True] * made_again
    assert replayer.passed_over == passed_over


def test_a_decision_about_an_unrecorded_message_is_skipped() -> None:
    unknown = Decided(what="reason", at=0.0, arguments=Raw(b'{"incoming":7,"times":1}'), outcome=Raw(b'"x"'))
    replayer, made = replay([batch(0, *START, unknown, decided("a"))])
    assert [each.what for each in made] == ["names"]
    assert replayer.passed_over == 1


def test_overlapping_leaders_are_replayed_separately() -> None:
    later = msgspec.structs.replace(SOURCE, epoch=2)
    records = [
        batch(0, *START),
        batch(0, Began(version="0"), shown(0, put("z")), source=later),
        batch(1, put("b"), decided("a", "b")),
        batch(1, decided("z"), source=later),
    ]
    replayer, made = replay(records)
    assert [(str(each.source), each.same) for each in made] == [("manager, epoch 1", True), ("manager, epoch 2", True)]
    assert len(replayer.sources) == 2


# --- many records together ------------------------------------------------------------------------------------------

LIFE = Path(__file__).parents[2] / "replays" / "life-of-a-job.jsonl.gz"
AGENT = Source("agent", "east", 1)
BOTH: Mapping[RoleName, Model] = {"manager": model(), "agent": model()}


@pytest.mark.parametrize("window", [1, 7, 10_000])
def test_records_fed_together_give_the_same_as_one_by_one(window: int) -> None:
    records, one_by_one, together = list(records_of_file(str(LIFE))), Replayer(MODELS), Replayer(MODELS)
    made = [each for record in records for each in one_by_one.feed(record)]
    windows = [records[start : start + window] for start in range(0, len(records), window)]
    assert [each for some in windows for each in together.feed_together(some)] == made
    assert len({each.source for each in made}) > 1
    assert together.passed_over == one_by_one.passed_over


def test_decisions_before_an_invalid_record_are_made_and_none_after_it() -> None:
    records = [
        batch(0, *START, decided("a")),
        batch(0, *START, source=AGENT),
        batch(1, decided("a"), unreadable(b"1"), decided("a"), source=AGENT),
        batch(1, decided("a")),
        batch(2, unreadable(b'"x"')),
    ]
    fed, made = Replayer(BOTH).feed_together(records), []
    with pytest.raises(InvalidError, match="got `int`"):  # noqa: PT012 what was given before the error counts
        while True:
            made.append(next(fed))
    assert [str(each.source) for each in made] == ["manager, epoch 1", "agent east, epoch 1"]


def unreadable(key: bytes) -> Noted:
    return Noted(table="seen", key=Raw(key), value=Raw(b"1"))


def test_records_fed_together_end_at_the_given_position() -> None:
    records = [batch(0, *START, decided("a")), batch(1, decided("a"), decided("a")), batch(1, *START, source=AGENT)]
    replayer = Replayer(BOTH)
    assert len(list(replayer.feed_together(records, until=Position.parse("101.0")))) == 2
    assert {str(source): replay.reader.phase for source, replay in replayer.sources.items()} == {
        "manager, epoch 1": Phase.KNOWN,
        "agent east, epoch 1": Phase.UNKNOWN,
    }


def test_resources_and_tables_that_this_version_lacks_are_skipped() -> None:
    other = Noted(table="other", key=Raw(b"1"), value=Raw(b"1"))
    [made] = replay([batch(0, *START, other, Put(of="secrets", object=a_pod("s")), decided("a"))])[1]
    assert made.same


def test_an_unreadable_table_is_an_error() -> None:
    with pytest.raises(InvalidError, match="tables were others"):
        replay([batch(0, *START, unreadable(b"1"))])


def test_a_batch_has_its_records_in_order() -> None:
    [read] = [decode_batch(batch(0, put("a"), put("b")).message)]
    assert [record.object["metadata"]["name"] for record in read.records if isinstance(record, Put)] == ["a", "b"]


async def test_an_argument_that_the_recording_lacks_gets_its_default(role: Role) -> None:
    await some_work(role)
    _, made = replay(role.records, names=lambda store, *, besides=(): [*names(store), *besides])
    assert made
    assert all(each.same for each in made)
