"""Makes recorded decisions again with this version's code, from their recorded inputs.

The state is in the caches and tables that the roles use themselves, so that the same code makes its views. A source is
replayed from its first snapshot on. After a gap it is replayed from the next snapshot on.
"""

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Any, Self, get_origin, get_type_hints

import msgspec
import orjson

from slicebus.bus.contract import Record as StreamRecord
from slicebus.decisions.decider import (
    Incoming,
    RoleState,
    encode,
    encode_outcome,
    failure_of,
    problem_of,
)
from slicebus.decisions.recorded_cache import resource_name
from slicebus.decisions.table import Table
from slicebus.decisions.table_reader import TableReader
from slicebus.journal.object_diffs import changed_object
from slicebus.journal.recording import (
    Batch,
    Decided,
    Forgot,
    Gone,
    Noted,
    Put,
    Received,
    Record,
    RoleName,
    Source,
    decode_batch,
)
from slicebus.journal.recording_reader import Event, Lost, Skipped, SourceReader, Whole, malformed
from slicebus.journal.redaction import MARK, has_marks, redacted
from slicebus.kube.cache import Cache, Key, key_of
from slicebus.proto.codec import Decoded
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import MALFORMED, InvalidError, ProtocolError, SlicebusError
from slicebus.proto.topology import DECISIONS_TYPE

Decision = Callable[..., Any]
WINDOW = 256
"""How many records to feed together: more gains nothing."""
_LAST = 2**62
_ARGUMENTS_KEPT = 4096
_MESSAGES_KEPT = 4096
"""Messages that a later decision may refer to: more than a role handles at once."""


class Model(msgspec.Struct, frozen=True):
    """Describes a role so that it can be replayed."""

    state: Callable[[], RoleState]
    decode: Callable[[WireMessage], Decoded[Any]]
    """Reads a message to the role, and refuses one that is not for it."""
    decisions: Mapping[str, Decision]
    """By name."""
    hashed: frozenset[str] = frozenset()
    """The decisions that compare hashes of content that a recording has without its secrets. Where secrets were taken
    out, they cannot be made again."""


class Position(msgspec.Struct, frozen=True, order=True):
    """Names a record of a recording: the batch's offset in the stream, and which of its records."""

    offset: int
    index: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `17.3`, or `17` for the last record there. Raises ValueError."""
        offset, dot, index = text.partition(".")
        return cls(int(offset), int(index) if dot else _LAST)

    def __str__(self) -> str:
        return f"{self.offset}.{self.index}"


class Replayed(msgspec.Struct, frozen=True):
    """A decision that was made again."""

    source: Source
    position: Position
    at: float
    what: str
    arguments: bytes
    recorded: bytes
    """The recorded outcome, as JSON."""
    replayed: bytes
    """The outcome of this version; empty where it has no such decision."""
    same: bool
    problem: str = ""
    """Why this version could not make the decision."""


class _Callable(msgspec.Struct):
    """A decision of this version."""

    decision: Decision
    decoder: msgspec.json.Decoder[Any]
    repeats: bool
    """Whether the same arguments come again. Those of reconciling a job do, messages and times do not."""
    known: dict[bytes, dict[str, Any]]
    """Decoded arguments, by their JSON."""


class Replay:
    """Replays one source."""

    def __init__(self, source: Source, model: Model) -> None:
        self.source = source
        self.state = model.state()
        self.reader: SourceReader[Position] = SourceReader(source)
        self.passed_over = 0
        """The number of decisions that could not be made again because inputs are missing."""
        self._model = model
        self._callable: dict[str, _Callable] = {}
        self._caches: dict[str, Cache] = {}
        self._tables: Mapping[str, Table[Any, Any]] = {}
        self._readers: dict[str, TableReader] = {}
        self._incoming: dict[int, Incoming[Any]] = {}
        self._cut: set[tuple[str, Key]] = set()
        """The objects of which parts were not recorded, by resource and name."""

    def batch(self, offset: int, batch: Batch, *, until: Position | None = None) -> Iterator[Replayed]:
        """Take a batch, up to `until`, and yield its decisions as they are made."""
        if self.reader.has(batch):
            return  # Published twice.
        self.reader.begin(batch)
        for index, record in enumerate(batch.records):
            position = Position(offset, index)
            if until is not None and position > until:
                return
            yield from self.take(record, position)

    def take(self, record: Record, position: Position) -> Iterable[Replayed]:
        """Take the next record of a batch that the reader has begun, and return its decisions: more than one where they
        have waited for a snapshot, and each is made when it is asked for."""
        match self.reader.take(record, position):
            case None | Lost():
                return ()
            case Skipped():
                self.passed_over += isinstance(record, Decided)
                return ()
            case Whole(content=content, since=since):
                self._begin(content)
                return filter(None, (self._handle(event, where) for where, event in since))
            case event:
                replayed = self._handle(event, position)
                return () if replayed is None else (replayed,)

    def _begin(self, content: Iterable[Put | Noted]) -> None:
        """Go on from the state of a snapshot."""
        self.state = self._model.state()
        self._caches = {resource_name(resource): cache for resource, cache in self.state.decides_by()}
        self._tables = self.state.tables()
        self._readers = {name: TableReader.for_table(table) for name, table in self._tables.items()}
        self._cut = set()
        for change in content:
            self._apply(change)

    def _handle(self, event: Event, position: Position) -> Replayed | None:
        match event:
            case Decided():
                return self._decide(position, event)
            case Received():
                return self._receive(position, event)
            case _:
                self._apply(event)
                return None

    def _apply(self, record: Event) -> None:
        """Change the state; skip resources and tables that this version lacks. Raises InvalidError for a record that no
        role has written."""
        try:
            self._change(record)
        except MALFORMED as error:
            raise malformed(f"{self.source}: a {type(record).__name__}", error) from error

    def _change(self, record: Event) -> None:
        match record:
            case Put(of=resource, object=manifest) if resource in self._caches:
                metadata, cache = manifest["metadata"], self._caches[resource]
                note = self._cut.add if record.cut else self._cut.discard
                note((resource, key_of(manifest)))
                cache.put(changed_object(record, cache.get(metadata.get("namespace"), metadata["name"])))
            case Gone(of=resource, namespace=namespace, name=name) if resource in self._caches:
                present = self._caches[resource].get(namespace, name)
                self._cut.discard((resource, (namespace, name)))
                if present is not None:
                    self._caches[resource].drop(present)
            case Noted(table=name, key=key, value=value) if name in self._tables:
                self._tables[name][self._readers[name].key(key)] = self._readers[name].value(value)
            case Forgot(table=name, key=key) if name in self._tables:
                self._tables[name].pop(self._readers[name].key(key), None)

    def _receive(self, position: Position, record: Received) -> Replayed | None:
        """Decode a message again. A difference counts as a decision. A message whose whole body was redacted is
        skipped."""
        if record.text == MARK:
            return None
        problem = ""
        try:
            self._incoming[record.number] = Incoming(record.number, self._model.decode(record.wire))
        except ProtocolError as error:
            problem = problem_of(error)
        if len(self._incoming) > _MESSAGES_KEPT:
            del self._incoming[next(iter(self._incoming))]
        if problem == record.problem == "":
            return None
        arguments = encode({"message": record.message_id})
        recorded, outcome = encode(record.problem), encode(problem)
        return Replayed(
            self.source, position, record.at, "receive", arguments, recorded, outcome, _same(recorded, outcome)
        )

    def _decide(self, position: Position, record: Decided) -> Replayed | None:
        recorded = bytes(record.outcome) if record.failed is None else encode(record.failed)
        problem, outcome, arguments = "", b"", bytes(record.arguments)
        try:
            outcome = self._make(record.what, arguments)
        except _UnknownMessage:
            self.passed_over += 1
            return None
        except InvalidError as error:
            problem = str(error)
        if outcome == recorded:
            outcome = recorded  # One copy is enough.
        same = outcome is recorded or (not problem and _same(recorded, outcome))
        if not same and (self._lacks_parts(arguments) or (record.what in self._model.hashed and self._lacks_secrets())):
            self.passed_over += 1
            return None
        return Replayed(self.source, position, record.at, record.what, arguments, recorded, outcome, same, problem)

    def _lacks_parts(self, arguments: bytes) -> bool:
        """Whether a decision is about an object of which parts were not recorded, or about none by name while there is
        such an object."""
        if not self._cut:
            return False
        values = [value for value in orjson.loads(arguments).values() if isinstance(value, dict)]
        named = {(value.get("namespace", ""), value["name"]) for value in values if "name" in value}
        return not named or any(key in named for _, key in self._cut)

    def _lacks_secrets(self) -> bool:
        """Whether secrets were taken out of the status of some object."""
        statuses = (manifest.get("status") for cache in self._caches.values() for manifest in cache.all())
        return any(has_marks(orjson.dumps(status)) for status in statuses if status)

    def _make(self, name: str, encoded: bytes) -> bytes:
        """The outcome of a decision as JSON. Raises InvalidError when this version cannot make it."""
        entry = self._callable.get(name) or self._prepare(name)
        arguments = entry.known.get(encoded)
        if arguments is None:
            try:
                arguments = msgspec.structs.asdict(entry.decoder.decode(encoded))
            except msgspec.ValidationError as error:
                raise InvalidError(f"this version's {name} takes other arguments: {error}") from error
            if entry.repeats and len(entry.known) < _ARGUMENTS_KEPT:
                entry.known[encoded] = arguments
        try:
            return encode_outcome(entry.decision(self.state, **arguments))
        except Exception as error:  # noqa: BLE001 an incident may be just this
            return encode(failure_of(error))

    def _prepare(self, name: str) -> "_Callable":
        """Prepare a decision with the decoder of its arguments: all parameters but the first, which is the state.

        A parameter that the recording lacks gets its default.
        """
        decision = self._model.decisions.get(name)
        if decision is None:
            raise InvalidError(f"this version has no decision {name}")
        hints = get_type_hints(decision)
        _, *parameters = inspect.signature(decision).parameters.values()
        defaults = {p.name: msgspec.NODEFAULT if p.default is p.empty else p.default for p in parameters}
        fields = [(field, hints.get(field, Any), default) for field, default in defaults.items()]
        decoder = msgspec.json.Decoder(msgspec.defstruct(name, fields, kw_only=True), dec_hook=self._look_up)
        types = [get_origin(hint) or hint for hint in map(hints.get, defaults)]
        repeats = "now" not in defaults and not {Incoming, Any, float}.intersection(types)
        entry = self._callable[name] = _Callable(decision, decoder, repeats, {})
        return entry

    def _look_up(self, _: type, number: int) -> Incoming[Any]:
        incoming = self._incoming.get(number)
        if incoming is None:
            raise _UnknownMessage
        return incoming


class Replayer:
    """Replays every source of a recording."""

    def __init__(self, models: Mapping[RoleName, Model]) -> None:
        self._models = models
        self.sources: dict[Source, Replay] = {}

    def feed(self, record: StreamRecord, *, until: Position | None = None) -> Iterator[Replayed]:
        """Take one record of the journal, and yield the decisions of a batch as they are made. Raises InvalidError."""
        if record.message.type != DECISIONS_TYPE:
            return
        batch = decode_batch(record.message)
        source = batch.source
        if source not in self.sources:
            self.sources[source] = Replay(source, self._models[source.role])
        yield from self.sources[source].batch(record.offset, batch, until=until)

    def feed_together(self, records: Iterable[StreamRecord], *, until: Position | None = None) -> Iterator[Replayed]:
        """Take successive records, and yield their decisions in the order of the recording. Raises InvalidError after
        the decisions before the invalid record.

        Sources share nothing and are replayed one after the other: the data and code of one stay in the processor's
        caches. Changing the source with each batch took a sixth longer.
        """
        by_source: defaultdict[str, list[tuple[int, StreamRecord]]] = defaultdict(list)
        for number, record in enumerate(records):
            by_source[record.message.routing_key].append((number, record))
        collected: list[tuple[int, Replayed]] = []
        invalid: list[tuple[int, InvalidError]] = []
        for of_source in by_source.values():
            for number, record in of_source:
                try:
                    for replayed in self.feed(record, until=until):
                        collected.append((number, replayed))  # noqa: PERF401 what was made before an error counts
                except InvalidError as error:
                    invalid.append((number, error))
                    break
        end, first = min(invalid, key=itemgetter(0), default=(_LAST, None))
        yield from (replayed for number, replayed in sorted(collected, key=itemgetter(0)) if number <= end)
        if first is not None:
            raise first

    @property
    def passed_over(self) -> int:
        """The number of decisions that could not be made again."""
        return sum(replay.passed_over for replay in self.sources.values())


class _UnknownMessage(SlicebusError):
    """A decision refers to a message that is not in the recording."""


def _same(recorded: bytes, outcome: bytes) -> bool:
    """Whether two outcomes are equal, apart from the secrets that the recording lacks."""
    before, present = orjson.loads(recorded), orjson.loads(outcome)
    return bool(before == present or before == redacted(present))
