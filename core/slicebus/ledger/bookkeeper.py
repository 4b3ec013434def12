"""Follows the manager's recorded decisions, and says what they change in the books.

Every shard of the manager records all slices, in its own order; a slice is taken in the newest version that any of them
has shown. Whatever was taken before is known by the numbers of the batches: reading them again changes nothing.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import orjson

from slicebus.journal.entry import Entry
from slicebus.journal.object_diffs import changed_object
from slicebus.journal.recorded_commands import Remembered, commands_of
from slicebus.journal.recording import (
    Batch,
    Decided,
    Gone,
    Noted,
    Put,
    Received,
    Record,
    Source,
)
from slicebus.journal.recording_reader import Event, Lost, Phase, Skipped, SourceReader, Whole, batch_of
from slicebus.ledger.books import Books, OpenBooks, SubmittedJob
from slicebus.ledger.facts import Fact, PolicyFact
from slicebus.ledger.policies import Policies
from slicebus.ledger.slice_change import Interruption
from slicebus.ledger.specs import POLICY_RESOURCES, SETTINGS, TEMPLATES, noted, templates_text
from slicebus.proto.codec import decode
from slicebus.proto.errors import MALFORMED, InvalidError, ProtocolError
from slicebus.proto.messages import Manifest, Status
from slicebus.slices.api import api_names
from slicebus.slices.workload.workload import Slice

_WORKLOADS, _LOCAL_QUEUES = "workloads.kueue.x-k8s.io", "localqueues.kueue.x-k8s.io"
_LAST_STATUS = "last_status"
"""The manager's table that gets an entry with each status that it takes in."""
_MESSAGES_KEPT = 4096
"""More than a manager handles at once."""
_SILENT_MS = 120_000
"""A leader records something every few seconds. One that has not for so long has ended."""
_NO_TEMPLATE: Manifest = {"spec": {"containers": []}}
_Key = tuple[str, str, str]
"""The resource, the namespace and the name of an object."""


class TakenBatches(msgspec.Struct, frozen=True):
    """How many batches of a source the books have."""

    source: Source
    count: int


class LedgerState(msgspec.Struct, frozen=True):
    """What a bookkeeper goes on from."""

    opened: OpenBooks = OpenBooks()
    taken: tuple[TakenBatches, ...] = ()
    known_ms: int | None = None
    """Up to when the books say everything; None where they are empty."""
    policies: tuple[PolicyFact, ...] = ()
    """The last of each object that is there."""


class Bookkeeper:
    """Takes the entries of the manager's stream, in order, and says the facts in them.

    To go on from a state, feed it the stream from an hour before, so that it has a snapshot of each leader. What the
    state has already gives no facts.
    """

    def __init__(self, state: LedgerState, *, user_label: str = "") -> None:
        """`user_label`: the label of a job that says whose it is; empty for none."""
        self.known_ms = state.known_ms
        """Up to when the books say everything, in Unix time; None before the first snapshot."""
        self._counts = {taken.source: taken.count for taken in state.taken}
        self._user_label = user_label
        self._leaders: dict[int, _Leader] = {}
        """The newest leader of each shard."""
        self._users: dict[str, str] = {}
        """By the UID of the job."""
        self._queues: dict[tuple[str, str], str] = {}
        """The ClusterQueue of each LocalQueue, by namespace and name."""
        self._books = Books(state.opened, self._lookup)
        self._policies = Policies(state.policies)
        self._has_caught_up = False

    @property
    def taken(self) -> tuple[TakenBatches, ...]:
        """The batches that it has taken, by their sources."""
        return tuple(TakenBatches(source, count) for source, count in self._counts.items())

    def feed(self, entry: Entry) -> list[Fact]:
        """Take one entry, and return its facts. What is no batch of a manager has none."""
        try:
            batch = batch_of(entry.record, "manager")
        except InvalidError:
            return []
        if batch is None:
            return []
        source = batch.source
        leader = self._leaders.get(source.shard)
        if leader is None or leader.reader.source.epoch < source.epoch:
            leader = self._leaders[source.shard] = _Leader(source, self._counts.get(source, 0))
        elif leader.reader.source != source:
            return []  # A leader that has been replaced: the snapshot of the next one has what it did.
        published_ms = round(entry.published.timestamp() * 1000) if entry.published else 0
        return list(self._take(leader, batch, published_ms))

    def _take(self, leader: "_Leader", batch: Batch, published_ms: int) -> Iterator[Fact]:
        reader = leader.reader
        if reader.has(batch):
            return  # Published twice.
        is_new = batch.number >= self._counts.get(batch.source, 0)
        leader.lose(reader.begin(batch))
        for record in batch.records:
            try:
                if isinstance(record, Received | Decided):
                    leader.clock_ms = max(leader.clock_ms, round(record.at * 1000))
                yield from self._read(leader, record, _Mark(is_new, leader.clock_ms, published_ms))
            except (InvalidError, *MALFORMED) as error:
                leader.lose(reader.refuse(error))
        if is_new:
            if reader.phase is Phase.KNOWN and not self._has_caught_up:
                yield from self._catch_up(leader, leader.clock_ms or published_ms)
            self._counts[batch.source] = batch.number + 1
            if reader.phase is Phase.KNOWN:
                self.known_ms = max(self.known_ms or 0, leader.clock_ms)

    def _catch_up(self, leader: "_Leader", at_ms: int) -> Iterator[Fact]:
        """What an earlier version has not told of what is there."""
        self._has_caught_up = True
        yield from self._policies.untold(at_ms)
        yield from self._books.unspecified(leader.workloads, at_ms)

    def _read(self, leader: "_Leader", record: Record, mark: "_Mark") -> Iterator[Fact]:
        match leader.reader.take(record, mark):
            case None:
                return
            case Lost() as lost:
                leader.lose(lost)
            case Skipped():
                if mark.is_new and leader.reader.is_cut and not leader.lost:
                    leader.lost = f"the stream has no snapshot of {leader.reader.source} before"
            case Whole() as whole:
                yield from self._resume(leader, whole, is_new=mark.is_new)
            case event:
                yield from self._apply(leader, event, mark.clock_ms or mark.published_ms, is_new=mark.is_new)

    def _resume(self, leader: "_Leader", whole: "Whole[_Mark]", *, is_new: bool) -> Iterator[Fact]:
        """Go on from a snapshot."""
        leader.objects = {}
        for content in whole.content:
            if isinstance(content, Put):
                self._learn(leader, content)
        at_ms = whole.begun.clock_ms or whole.begun.published_ms
        is_told = self._is_told_by_another(leader, at_ms)
        self._policies.resumed(whole.content, is_whole=not is_told)
        for mark, event in whole.since:
            if not mark.is_new:
                yield from self._apply(leader, event, mark.clock_ms or at_ms, is_new=False)
        if is_new and not is_told:
            since_ms = at_ms if self.known_ms is None else self.known_ms
            is_gap = bool(leader.lost) and self.known_ms is not None
            reason = leader.lost or "no leader recorded anything"
            # The clock of the next leader may be behind.
            interruption = Interruption(since_ms, max(since_ms, at_ms), reason, is_gap=is_gap)
            yield from self._books.resumed(leader.workloads, interruption)
            yield from self._policies.untold(at_ms)
        leader.lost = ""
        for mark, event in whole.since:
            if mark.is_new:
                yield from self._apply(leader, event, mark.clock_ms or at_ms, is_new=True)

    def _is_told_by_another(self, leader: "_Leader", at_ms: int) -> bool:
        """Whether another shard has told all that happened before a snapshot."""
        others = [one for one in self._leaders.values() if one is not leader and one.reader.phase is Phase.KNOWN]
        return any(at_ms - one.clock_ms < _SILENT_MS for one in others)

    def _apply(self, leader: "_Leader", record: Event, at_ms: int, *, is_new: bool) -> Iterator[Fact]:
        match record:
            case Put():
                before, now = self._learn(leader, record)
                if record.of == _WORKLOADS and is_new and _has_changed(record, before, now):
                    yield from self._books.put(now, before, at_ms)
                elif record.of in POLICY_RESOURCES:
                    key = self._policies.put(record)
                    yield from self._policies.untold(at_ms, [key]) if is_new else ()
            case Noted(table=table) if table == SETTINGS:
                key = self._policies.noted(record)
                yield from self._policies.untold(at_ms, [key]) if is_new else ()
            case Gone(of=resource, namespace=namespace, name=name) if resource in POLICY_RESOURCES:
                key = self._policies.gone(resource, namespace, name)
                yield from self._policies.untold(at_ms, [key]) if is_new else ()
            case Gone(of=resource, namespace=namespace, name=name):
                gone = leader.objects.pop((resource, namespace, name), None)
                if gone is not None and resource == _WORKLOADS and is_new:
                    yield from self._books.gone(gone["metadata"]["uid"], at_ms)
            case Received(type=Status.type, problem=""):
                leader.keep(record)
            case Decided(failed=None):
                status = leader.taken_in(record)
                if status is not None and is_new:
                    ready = {str(name): pods.ready for name, pods in status.pods.items()}
                    yield from self._books.ready(status.job.namespace, status.workload, ready, at_ms)
            case _:
                return

    def _learn(self, leader: "_Leader", change: Put) -> tuple[Manifest | None, Manifest]:
        """Take an object, as it was before and as it is now. Of jobs only the user is kept."""
        metadata = change.object["metadata"]
        key = change.of, metadata.get("namespace", ""), metadata["name"]
        if change.of == _WORKLOADS:
            before = leader.objects.get(key)
            now = leader.objects[key] = _without_templates(changed_object(change, before))
            return before, now
        if change.of == _LOCAL_QUEUES and "spec" in change.object:
            self._queues[key[1:]] = change.object["spec"].get("clusterQueue", "")
        elif self._user_label and (user := (metadata.get("labels") or {}).get(self._user_label)):
            self._users[metadata["uid"]] = user
        return None, change.object

    def _lookup(self, slice: Slice) -> SubmittedJob:
        return SubmittedJob(self._users.get(slice.job_uid, ""), self._queues.get(slice.local_queue, ""))


class _Mark(msgspec.Struct, frozen=True):
    """What a record is read with."""

    is_new: bool
    clock_ms: int
    """The time of its leader's last decision or message by then; 0 for none."""
    published_ms: int
    """That of its batch."""


class _Leader:
    """What is known of one leader's recording."""

    def __init__(self, source: Source, known: int) -> None:
        self.reader: SourceReader[_Mark] = SourceReader(source, known=known)
        self.lost = ""
        """Why its state is not known, where records were lost."""
        self.clock_ms = 0
        """The time of its last decision or message."""
        self.objects: dict[_Key, Manifest] = {}
        """The slices."""
        self._messages: dict[int, Received] = {}

    @property
    def workloads(self) -> list[Manifest]:
        """The slices that there are."""
        return list(self.objects.values())

    def lose(self, lost: Lost | None) -> None:
        """Keep in mind why nothing is known up to the next snapshot."""
        if lost is not None:
            self.lost = lost.why or self.lost

    def keep(self, message: Received) -> None:
        """Keep a message for the decision about it."""
        self._messages[message.number] = message
        if len(self._messages) > _MESSAGES_KEPT:
            del self._messages[next(iter(self._messages))]

    def taken_in(self, decided: Decided) -> Status | None:
        """The status that a decision takes in; None where it is about none, or one that is outdated or refused."""
        if not self._messages or b'"incoming"' not in bytes(decided.arguments):
            return None
        arguments: Mapping[str, Any] = orjson.loads(bytes(decided.arguments))
        message = self._messages.get(arguments.get("incoming", -1))
        if message is None:
            return None
        notes = (command.table for command in commands_of(bytes(decided.outcome)) if isinstance(command, Remembered))
        if _LAST_STATUS not in notes:
            return None
        del self._messages[message.number]
        try:
            decoded = decode(message.wire)
        except ProtocolError:
            return None
        return decoded.message if isinstance(decoded.message, Status) else None


def _without_templates(workload: Manifest) -> Manifest:
    """A Workload without its pod templates, which take the most memory: the admission says what a pod requests, and a
    text of them that many share the rest. One that nobody can read stays as it is."""
    match workload:
        case {"spec": {"podSets": [*pod_sets]} as spec} if all(isinstance(pod_set, dict) for pod_set in pod_sets):
            if TEMPLATES in spec:
                return workload
            small = [pod_set | {"template": _NO_TEMPLATE} for pod_set in pod_sets]
            return workload | {"spec": spec | {"podSets": small, TEMPLATES: templates_text(pod_sets)}}
        case _:
            return workload


def _has_changed(change: Put, before: Manifest | None, now: Manifest) -> bool:
    """Whether something has changed that the books go by: most changes of metadata are notes of the manager."""
    if before is None or not {"spec", "status"}.issubset(change.same):
        return True
    return _cluster_in(before) != _cluster_in(now) or noted(before) != noted(now)


def _cluster_in(workload: Manifest) -> str | None:
    """The cluster that a slice has in its metadata, beside a Kueue."""
    annotations = workload["metadata"].get("annotations") or {}
    return annotations.get(api_names.CLUSTER_ANNOTATION)
