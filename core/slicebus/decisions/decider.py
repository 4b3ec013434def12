"""Calls a role's decisions and records each with all its inputs, so that a replay can make it again.

A decision is a function of the role's state (its caches and tables) and of keyword arguments, and of nothing else. The
recording has its name, arguments and outcome, and every change of the state. An argument is an `Incoming`, or has a
type that msgspec encodes.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from importlib.metadata import version
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, get_args

import msgspec
from msgspec import UNSET, Raw

from slicebus.ambient.clock import now
from slicebus.decisions.commands import (
    Command,
    Create,
    Emit,
    Forget,
    Patch,
    PatchEach,
    Publish,
    Remember,
    Remove,
    Requeue,
)
from slicebus.decisions.recorded_cache import RecordedCache, resource_name
from slicebus.decisions.table import FORGOTTEN, Table
from slicebus.journal.object_diffs import HasRoom, whole_object
from slicebus.journal.recorded_commands import (
    Created,
    Emitted,
    Forgotten,
    Patched,
    PatchedEach,
    Published,
    RecordedCommand,
    Remembered,
    Removed,
    Requeued,
)
from slicebus.journal.recorder import Recorder
from slicebus.journal.recording import (
    UNWRITABLE,
    Began,
    Decided,
    Failure,
    Forgot,
    Noted,
    Put,
    Received,
    Record,
)
from slicebus.journal.recording_shares import RecordingShares, without_content
from slicebus.journal.redaction import MARK, Redactor
from slicebus.kube.cache import Cache, Change, Key, key_of
from slicebus.kube.resources import JOB_RESOURCES, Resource
from slicebus.proto.codec import Decoded
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import DecisionError, ProtocolError, SlicebusError
from slicebus.proto.headers import ATTRIBUTES
from slicebus.proto.messages import Manifest, Order, Report, job_of


class RoleState(Protocol):
    """The inputs of a role's decisions."""

    def decides_by(self) -> Iterable[tuple[Resource, Cache]]:
        """The caches that decisions read, by resource."""

    def tables(self) -> Mapping[str, Table[Any, Any]]:
        """The tables, by name."""

    def is_foreign(self, resource: Resource, manifest: Manifest) -> bool:
        """Whether an object is none of the role's: a cache has it, and a decision reads it only where it names it. It
        is recorded from the first such decision on."""


M = TypeVar("M", bound=Order | Report)


class Incoming(Generic[M]):
    """A received message. A recording has it once; decisions refer to it by its number."""

    is_cut = False
    """Whether it was recorded without its content."""
    sender = ""
    """The user that the broker has verified."""

    def __init__(self, number: int, decoded: Decoded[M]) -> None:
        self.number = number
        self.envelope = decoded.envelope
        self.message = decoded.message


S = TypeVar("S", bound=RoleState)
P = ParamSpec("P")
R = TypeVar("R")


class Decider(Generic[S]):
    """Calls decisions on a state. A recorder records every call from `begin` on."""

    def __init__(self, state: S, recorder: Recorder | None = None, shares: RecordingShares | None = None) -> None:
        """`shares` bounds what each sender's messages take of the recording."""
        self.state = state
        self._recorder = recorder
        self._shares = shares
        self._begun = False
        self._received = 0
        self._written_for: dict[tuple[str, Key], str] = {}
        """Whose messages last led to a write, by the kind and name of the object."""
        self._caches: defaultdict[str, list[RecordedCache]] = defaultdict(list)
        """By kind: several groups have PodGroups, and two have Workloads."""

    def recording(self) -> AbstractAsyncContextManager[None]:
        """Publish the recorded decisions while the context lasts."""
        return self._recorder.recording() if self._recorder else nullcontext()

    def begin(self) -> None:
        """Record from now on. Call it when the caches are synced, before the first decision."""
        if self._recorder is None:
            return
        for resource, cache in self.state.decides_by():
            recorded = RecordedCache(resource, cache, self._recorder.redactor)
            self._caches[resource.kind].append(recorded)
            cache.subscribe(partial(self._changed, recorded))
        for name, table in self.state.tables().items():
            table.observe(partial(self._noted, name))
        self._begun = True
        self._recorder.begin(Began(version=version("slicebus")), self._content)

    def receive(
        self, wire: WireMessage, decode: Callable[[WireMessage], Decoded[M]], decoded: Decoded[M] | None = None
    ) -> Incoming[M]:
        """Read a message by `decode`, or take it as `decoded`, and record it. Raises ProtocolError."""
        self._received += 1
        number, problem, is_cut = self._received, "", not self._has_room(wire)
        try:
            incoming = Incoming(number, decoded or decode(wire))
            incoming.is_cut, incoming.sender = is_cut, wire.user_id or ""
        except ProtocolError as error:
            problem = problem_of(error)
            raise
        else:
            return incoming
        finally:
            self._record(lambda: self._received_record(without_content(wire) if is_cut else wire, number, problem))

    def __call__(self, decision: Callable[Concatenate[S, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Make a decision, and return its outcome. Raises the errors of slicebus that the decision raises, and
        DecisionError for any other."""
        name, at = decision.__name__, _at()
        if self._begun:
            for value in kwargs.values():
                self._record_named(value)
        try:
            outcome = decision(self.state, *args, **kwargs)
        except Exception as error:
            failed = failure_of(error)
            self._record(lambda: Decided(what=name, at=at, arguments=self._arguments(kwargs), failed=failed))
            if isinstance(error, SlicebusError):
                raise
            raise DecisionError.of(name, error) from error
        if self._begun and self._shares is not None:
            self._note_written(outcome, kwargs)
        self._record(
            lambda: Decided(what=name, at=at, arguments=self._arguments(kwargs), outcome=self._outcome(outcome, kwargs))
        )
        return outcome

    def _has_room(self, wire: WireMessage) -> bool:
        """Whether a message is recorded with its content."""
        return self._shares is None or self._shares.take(wire, at_s=_at())

    def _note_written(self, outcome: object, arguments: Mapping[str, object]) -> None:
        """Note by whose message a job is about to be written: its status counts as the sender's, too. What messages
        write onto other objects is small."""
        sender = next((value.sender for value in arguments.values() if isinstance(value, Incoming)), None)
        if sender is not None:
            for patch in _patches(outcome):
                if patch.resource.kind in JOB_RESOURCES:
                    self._written_for[patch.resource.kind, key_of(patch.target)] = sender

    def _room_for(self, recorded: RecordedCache, manifest: Manifest) -> HasRoom | None:
        """Whether the share of whoever reported the status of a job has room for it; None for what nobody reported."""
        shares, sender = self._shares, self._written_for.get((recorded.resource.kind, key_of(manifest)))
        if shares is None or sender is None:
            return None
        return lambda size: shares.take_bytes(sender, size, at_s=_at())

    def _outcome(self, outcome: object, arguments: Mapping[str, object]) -> Raw:
        """The recorded outcome of a decision; none of a large one about a message whose content was not recorded."""
        encoded = encode_outcome(outcome)
        is_cut = any(isinstance(value, Incoming) and value.is_cut for value in arguments.values())
        return Raw(_NOTHING) if is_cut and len(encoded) > _LARGE else self._hidden(encoded)

    def _content(self) -> Iterator[Put | Noted]:
        """The whole state at the time of the call, without secrets and foreign objects."""
        assert self._recorder is not None
        recorded = itertools.chain.from_iterable(self._caches.values())
        objects = [(resource_name(cache.resource), cache.objects()) for cache in recorded]
        tables = [(name, list(table.items())) for name, table in self.state.tables().items()]
        return content(objects, tables, self._recorder.redactor, self._recorder.leave_out)

    def _changed(self, recorded: RecordedCache, change: Change) -> None:
        old, new = change.old, change.new
        if new is None:
            if old is not None:
                self._written_for.pop((recorded.resource.kind, key_of(old)), None)
            if old is not None and not recorded.forget(old):
                self._record(lambda: recorded.diffs.gone(old))
        elif (old is None or recorded.leaves_out(old)) and self.state.is_foreign(recorded.resource, new):
            recorded.leave_out(new)
        else:
            recorded.forget(new)
            for owner in new["metadata"].get("ownerReferences") or ():
                self._record_foreign(owner["kind"], new["metadata"].get("namespace"), owner["name"])
            self._record(lambda: recorded.diffs.put(new, has_room=self._room_for(recorded, new)))

    def _record_named(self, value: object) -> None:
        """Record the job that an argument of a decision names, where it was left out."""
        named = job_of(value.message) if isinstance(value, Incoming) else value
        kind, namespace, name = (getattr(named, field, None) for field in ("kind", "namespace", "name"))
        if isinstance(kind, str) and isinstance(name, str):
            self._record_foreign(kind, namespace, name)

    def _record_foreign(self, kind: str, namespace: str | None, name: str) -> None:
        for recorded in self._caches.get(kind, ()):
            manifest, diffs = recorded.take_in(namespace, name), recorded.diffs
            if manifest is not None:
                self._record(partial(diffs.put, manifest))

    def _noted(self, table: str, key: object, value: object) -> None:
        if value is FORGOTTEN:
            self._record(lambda: Forgot(table=table, key=Raw(encode(key))))
        else:
            self._record(lambda: Noted(table=table, key=Raw(encode(key)), value=self._hidden(encode(value))))

    def _arguments(self, arguments: Mapping[str, object]) -> Raw:
        """The arguments of a decision without secrets. Short ones name a job, a cluster or a time."""
        encoded = encode(arguments)
        return Raw(encoded) if len(encoded) <= _SHORT else self._hidden(encoded)

    def _hidden(self, encoded: bytes) -> Raw:
        """JSON of ours without secrets."""
        assert self._recorder is not None
        return Raw(encoded if encoded is _NOTHING else self._recorder.redactor.encoded(encoded))

    def _received_record(self, wire: WireMessage, number: int, problem: str) -> Received:
        """The record of a message without secrets, or without its body where that cannot be searched."""
        assert self._recorder is not None
        redactor = self._recorder.redactor
        searched = redactor.encoded(wire.body)
        body = MARK.encode() if searched == _UNSEARCHED else searched
        # The attributes of a message that can be read are ids, names and times.
        unchecked = wire.headers if problem else {n: text for n, text in wire.headers.items() if n not in ATTRIBUTES}
        clean = msgspec.structs.replace(wire, headers=wire.headers | redactor.headers(unchecked), body=body)
        return Received.from_wire(clean, number=number, at=_at(), problem=problem)

    def _record(self, make: Callable[[], Record]) -> None:
        if self._recorder is not None and self._begun:
            self._recorder.add(make)


def content(
    objects: Sequence[tuple[str, list[Manifest]]],
    tables: Sequence[tuple[str, list[tuple[Any, Any]]]],
    redactor: Redactor,
    leave_out: Callable[[Exception], None],
) -> Iterator[Put | Noted]:
    """Record objects and the entries of tables, by the names of resources and tables, without secrets. `leave_out` gets
    the error of an object that cannot be written."""
    for resource, manifests in objects:
        for manifest in manifests:
            try:
                record = whole_object(resource, manifest, redactor)
            except UNWRITABLE as error:
                leave_out(error)
            else:
                yield record
    for table, entries in tables:
        for key, value in entries:
            yield Noted(table=table, key=Raw(encode(key)), value=Raw(redactor.encoded(encode(value))))


def _enc_hook(value: object) -> object:
    if isinstance(value, Incoming):
        return value.number
    raise NotImplementedError(f"a decision takes no {type(value).__name__}")


_encoder = msgspec.json.Encoder(enc_hook=_enc_hook)
encode = _encoder.encode


_COMMANDS = frozenset(get_args(Command))
_NOTHING = b"[]"
_SHORT = 256
_LARGE = 4096
_UNSEARCHED = encode(MARK)
"""The body that the redactor leaves in place of one that it cannot search."""


def encode_outcome(outcome: object) -> bytes:
    """Encode the outcome of a decision as JSON. Commands name their targets; everything else is written in full."""
    if outcome == []:
        return _NOTHING  # The outcome of most decisions.
    return encode(_written(outcome))


def _written(outcome: object) -> object:
    if isinstance(outcome, (list, tuple)):
        return [_written(entry) for entry in outcome]
    return _command(outcome) if type(outcome) in _COMMANDS else outcome  # type: ignore[arg-type]


def failure_of(error: Exception) -> Failure:
    """The recorded form of an error that a decision has raised."""
    return Failure(
        error=type(error).__name__, text=problem_of(error) if isinstance(error, ProtocolError) else str(error)
    )


def problem_of(error: ProtocolError) -> str:
    """The reason and detail of a protocol error."""
    return f"{error.reason}: {error.detail}"


def _patches(outcome: object) -> Iterator[Patch]:
    """The patches among the commands of an outcome."""
    if isinstance(outcome, Patch):
        yield outcome
    elif isinstance(outcome, (list, tuple)):
        for entry in outcome:
            yield from _patches(entry)


def _command(command: Command) -> RecordedCommand:
    match command:
        case Remember(table=table, key=key, value=value):
            return Remembered(table=table, key=Raw(encode(key)), value=Raw(encode(value)))
        case Forget(table=table, key=key):
            return Forgotten(table=table, key=Raw(encode(key)))
        case Create(resource=resource, manifest=manifest, impersonate=impersonate):
            return Created(of=resource_name(resource), manifest=manifest, impersonate=impersonate or UNSET)
        case Patch():
            return _patched(command)
        case PatchEach(patches=patches, lets_start=lets_start):
            return PatchedEach(patches=[_patched(patch) for patch in patches], lets_start=lets_start)
        case Remove(resource=resource, target=target):
            return Removed(of=resource_name(resource), target=_name(target))
        case Emit(regarding=regarding, reason=reason, note=note, warning=warning):
            return Emitted(regarding=_name(regarding), reason=reason, note=note, warning=warning)
        case Publish(cluster=cluster, message=message, correlation=correlation, unless_confirmed=forget):
            return Published(
                to=cluster,
                type=message.type,
                message=Raw(encode(message)),
                correlation=correlation or UNSET,
                unless_confirmed=forget.table if forget else UNSET,
            )
        case Requeue(job=job, delay_s=delay_s):
            return Requeued(job=job, delay_s=delay_s)


def _patched(patch: Patch) -> Patched:
    return Patched(
        of=resource_name(patch.resource),
        target=_name(patch.target),
        subresource=patch.subresource,
        body=patch.body,
        impersonate=patch.impersonate or UNSET,
        unless_answered=patch.unless_answered.table if patch.unless_answered else UNSET,
    )


def _name(target: Manifest) -> str:
    """The object, and its version that was decided on."""
    metadata = target["metadata"]
    where = f"{metadata['namespace']}/" if "namespace" in metadata else ""
    return f"{target['kind']} {where}{metadata['name']} {metadata['uid']}@{metadata['resourceVersion']}"


def _at() -> float:
    return now().timestamp()
