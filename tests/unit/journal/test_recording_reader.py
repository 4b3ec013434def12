"""What all readers of a recording go by: which records apply to a known state, and that this is the true one."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicebus.bus.contract import Record as StreamRecord
from slicebus.decisions.replay import Replay
from slicebus.journal.recording import (
    FORMAT,
    Batch,
    Began,
    Decided,
    Gap,
    Gone,
    Put,
    Record,
    SnapshotPart,
    Source,
    encode_batch,
    encode_record,
)
from slicebus.journal.recording_reader import (
    Lost,
    Phase,
    Skipped,
    SourceReader,
    Whole,
    batch_of,
    malformed_refused,
)
from slicebus.journal.shard_history import ShardHistory
from slicebus.proto.errors import InvalidError
from unit.decisions.roles import Store, a_pod, model
from unit.journal.records import garbage

SOURCE = Source("manager", "", 3)
PODS = "pods"


def put(name: str, version: int = 1) -> Put:
    return Put(of=PODS, object=a_pod(name, version))


def gone(name: str) -> Gone:
    return Gone(of=PODS, namespace="team", name=name)


def part(number: int, *content: Put, last: bool = False) -> SnapshotPart:
    return SnapshotPart(part=number, content=content, last=last)


def batch(number: int, *records: Record, source: Source = SOURCE) -> Batch:
    return Batch(format=FORMAT, source=source, number=number, records=records)


def read(*batches: Batch, known: int = 0) -> list[object]:
    """What a reader says, with the number of its batch as the mark of each record."""
    reader = SourceReader[int](SOURCE, known=known)
    found: list[object] = []
    for each in batches:
        if reader.has(each):
            continue
        found.append(reader.begin(each))
        found += (reader.take(record, each.number) for record in each.records)
    return [each for each in found if each is not None]


A, B, C = put("a"), put("b"), put("c")
WHOLE = part(0, A, last=True)
MISSING, DROPPED = Lost(f"1 batches of {SOURCE} are missing"), Lost(f"{SOURCE} has dropped 4 records")


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        pytest.param([batch(0, A, gone("a"))], [Skipped(), Skipped()], id="before a snapshot"),
        pytest.param([batch(0, WHOLE, B)], [Whole(0, [A]), B], id="after a snapshot"),
        pytest.param([batch(0, WHOLE), batch(0, B), batch(1, C)], [Whole(0, [A]), C], id="published twice"),
        pytest.param(
            [batch(0, WHOLE), batch(2, B, WHOLE, C)],
            [Whole(0, [A]), MISSING, Skipped(), Whole(2, [A]), C],
            id="missing",
        ),
        pytest.param(
            [batch(0, WHOLE, Gap(dropped=4), B, WHOLE)], [Whole(0, [A]), DROPPED, Skipped(), Whole(0, [A])], id="gap"
        ),
        pytest.param([batch(0, WHOLE, Began(version="1"), B)], [Whole(0, [A]), Lost(""), Skipped()], id="begins"),
        pytest.param(
            [batch(0, part(0, A), gone("a")), batch(1, part(1, B), C, part(2, last=True))],
            [Whole(0, [A, B], [(0, gone("a")), (1, C)])],
            id="in parts",
        ),
        pytest.param([batch(0, part(0, A), B, part(0, C, last=True))], [Whole(0, [C])], id="begun again"),
        pytest.param(
            [batch(0, part(0, A), Gap(dropped=4), B, part(1, C, last=True))], [DROPPED, Skipped()], id="torn by a gap"
        ),
        pytest.param([batch(0, WHOLE, part(0, B), C, part(1, last=True))], [Whole(0, [A]), C], id="known already"),
    ],
)
def test_what_applies_to_a_known_state(batches: Sequence[Batch], expected: list[object]) -> None:
    assert read(*batches) == expected


@pytest.mark.parametrize(
    ("known", "expected"),
    [(0, [Lost(f"5 batches of {SOURCE} are missing")]), (4, [MISSING]), (5, []), (9, [])],
    ids=["all new", "one is missing", "none is missing", "read before"],
)
def test_what_was_known_before_is_not_missed(known: int, expected: list[object]) -> None:
    assert read(batch(5), known=known) == expected


def test_a_record_that_cannot_be_applied_loses_the_state() -> None:
    reader = SourceReader[None](SOURCE)
    reader.begin(batch(0))
    reader.take(WHOLE, None)
    assert len(reader.refuse(ValueError("x" * 10_000)).why) == 500
    assert reader.refuse(KeyError("metadata")) == Lost(f"a record of {SOURCE} cannot be read: KeyError('metadata')")
    assert reader.phase is Phase.UNKNOWN
    assert not reader.is_cut


def recorded(batch: Batch, key: str = "") -> StreamRecord:
    moment = datetime.fromtimestamp(batch.number, UTC)
    message = encode_batch(
        batch.source, batch.number, list(map(encode_record, batch.records)), user="manager", at=moment
    )
    return StreamRecord(batch.number, msgspec.structs.replace(message, routing_key=key or message.routing_key), moment)


def test_whose_batch_it_is() -> None:
    own, agent = batch(7, A), batch(7, A, source=Source("agent", "east", 1))
    assert batch_of(recorded(own), "manager") == own
    assert batch_of(recorded(agent), "agent") == agent
    assert batch_of(recorded(agent), "manager") is None
    assert batch_of(recorded(own, "east.decisions"), "manager") is None, "an agent says that it is the manager"
    assert batch_of(garbage(), "manager") is None
    with pytest.raises(InvalidError, match="no batch of slicebus"):
        batch_of(garbage(type="decisions"), "manager")


def test_what_no_role_records_is_said_in_one_way() -> None:
    with (
        pytest.raises(InvalidError, match=r"^a thing that no agent records: KeyError\('x'\)$"),
        malformed_refused("a thing", role="agent"),
    ):
        {}["x"]


class Leader:
    """Records changes of its objects, loses batches, and knows what is true."""

    def __init__(self) -> None:
        self.truth: dict[str, int] = {}
        self.version = 0
        self._left: list[str] | None = None
        """The objects that a snapshot has not had, as they were when it began."""
        self._then: dict[str, int] = {}
        self._part = 0

    def records(self, what: str, name: str) -> Iterator[Record]:
        self.version += 1
        match what:
            case "put":
                self.truth[name] = self.version
                yield put(name, self.version)
            case "gone" if name in self.truth:
                del self.truth[name]
                yield gone(name)
            case "gap":
                self._left = None
                yield Gap(dropped=1)
            case "decide":
                yield Decided(what="names", at=0.0, arguments=msgspec.Raw(b"{}"))
            case "snapshot":
                if self._left is None:
                    self._left, self._then, self._part = sorted(self.truth), dict(self.truth), 0
                content, self._left = self._left[:1], self._left[1:]
                yield part(self._part, *(put(each, self._then[each]) for each in content), last=not self._left)
                self._part += 1
                self._left = self._left or None
            case _:
                return


WHATS = ["put", "put", "gone", "gap", "decide", "snapshot", "snapshot"]
STEPS = st.lists(st.tuples(st.sampled_from(WHATS), st.sampled_from("abc")), max_size=6)
LIVES = st.lists(st.tuples(STEPS, st.sampled_from([1, 1, 1, 2, 0])), max_size=12)
"""What happens in each batch, and how often that is published."""


def versions(objects: Iterable[dict[str, Any]]) -> dict[str, int]:
    return {each["metadata"]["name"]: int(each["metadata"]["resourceVersion"]) for each in objects}


@given(LIVES)
def test_every_reader_has_the_true_state_where_it_knows_one(life: list[tuple[list[tuple[str, str]], int]]) -> None:
    leader, replay, history = Leader(), Replay(SOURCE, model()), ShardHistory([PODS], [])
    for number, (steps, times) in enumerate(life):
        made = batch(number, *(record for what, name in steps for record in leader.records(what, name)))
        for _ in range(times):
            list(replay.batch(0, made))
            list(history.feed(made, float(number)))
        assert history.follows is (replay.reader.phase is Phase.KNOWN)
        if times and history.follows:
            assert isinstance(replay.state, Store)
            assert versions(replay.state.pods.all()) == leader.truth
            assert versions(history.objects[PODS].values()) == leader.truth
