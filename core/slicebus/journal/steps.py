"""What the recorded decisions tell of jobs, between the messages: a slice was made, admitted, or waits; pods may start.

A step is a write that a role decided on, at the time of that decision; the write itself follows at once. Writes that
only keep books, and those that repeat what was told before, are left out.
"""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import orjson

from slicebus.journal.entry import Entry
from slicebus.journal.recording import Decided, Put, Received, Record, Snapshot, Source, decode_batch
from slicebus.proto.errors import InvalidError, ProtocolError
from slicebus.proto.headers import PREFIX
from slicebus.proto.messages import Counts, Manifest, counts_text
from slicebus.slices import kueue
from slicebus.slices.kueue import Condition

_WORKLOADS = "workloads.kueue.x-k8s.io"
_KEPT = 4096
"""Messages that a later decision may refer to."""
_TOLD = {
    (Condition.QUOTA_RESERVED, "False"): "waits",
    (Condition.EVICTED, "True"): "evicted",
    (Condition.FINISHED, "True"): "finished",
    ("slicebus.dev/Resizable", "False"): "cannot be resized",
    ("slicebus.dev/Dispatched", "False"): "refused by the worker",
}
"""The conditions of a slice that are told, and how."""
_COMMANDS = re.compile(rb'\[(("\w+"|\d+|null),\[)?\{"do":')
"""How an outcome of commands begins: alone, with the stage of a reconcile, or with the next step of an order."""
_OTHERWISE = (LookupError, TypeError, ValueError, AttributeError, OverflowError, OSError)
"""What reading raises of a record that is in the right form and makes no sense: anybody may have published it."""

Command = dict[str, Any]
Subject = Callable[[str], bool]


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One write, or one message that could not be used."""

    source: Source
    at: datetime
    job: str
    """`Kind/namespace/name`."""
    text: str
    correlation_id: str = ""
    """The chain of the message that it was decided for, where it was for one."""
    slice: str = ""
    """The slice that it brings, admits or lets wait: the first message that names this one belongs to it."""
    request: tuple[str, int] | None = None
    """The wish that it writes down, by its idempotency key: worker UID and generation."""
    counts: Counts = {}
    """What the slice that it brings is to have."""
    waits: str = ""
    """Why the slice waits."""
    admitted: bool = False
    dead: str = ""
    """Why the message was dead-lettered."""


class Taken(msgspec.Struct, frozen=True):
    """A role took a message from its queue, at that time by its clock."""

    source: Source
    at: datetime
    job: str
    message_id: str


class Steps:
    """Reads steps out of recorded batches. To be fed from where the state is known, so that slices lead to jobs."""

    def __init__(self, wanted: Subject = lambda job: True) -> None:
        self._wanted = wanted
        self._sources: dict[Source, _Reader] = {}

    def feed(self, entry: Entry) -> Iterator[Step | Taken]:
        """What a batch tells of the jobs that are wanted; nothing where it is none."""
        if not entry.is_decisions:
            return
        try:
            batch = decode_batch(entry.record.message)
        except InvalidError:
            return
        reader = self._sources.setdefault(batch.source, _Reader(batch.source))
        if batch.number < reader.next:
            return  # Published twice.
        reader.next = batch.number + 1
        for record in batch.records:
            try:
                found = list(reader.read(record))
            except _OTHERWISE:
                continue
            yield from (told for told in found if self._wanted(told.job))


class _Reader:
    """One source's records."""

    def __init__(self, source: Source) -> None:
        self.next = 0
        self._source = source
        self._jobs: dict[str, str] = {}
        """The job of each slice, by `namespace/name`."""
        self._taken: dict[int, Received] = {}
        self._told: dict[tuple[str, str], tuple[str, str]] = {}
        """Status and message of each condition of each slice."""
        self._wishes: dict[str, tuple[str, int]] = {}

    def read(self, record: Record) -> Iterator[Step | Taken]:
        match record:
            case Snapshot(content=content):
                for part in content:
                    self._learn(part)
            case Put():
                self._learn(record)
            case Received():
                yield from self._receive(record)
            case Decided():
                yield from self._decide(record)

    def _learn(self, record: object) -> None:
        """Which job a slice is of."""
        if isinstance(record, Put) and record.of == _WORKLOADS:
            metadata = record.object["metadata"]
            if job := _owner(metadata):
                self._jobs[f"{metadata['namespace']}/{metadata['name']}"] = job

    def _receive(self, record: Received) -> Iterator[Step | Taken]:
        self._taken[record.number] = record
        if len(self._taken) > _KEPT:
            del self._taken[next(iter(self._taken))]
        job = record.headers.get(f"{PREFIX}subject", "")
        at = _moment(record.at)
        yield Taken(self._source, at, job, record.message_id or "")
        if record.problem:
            yield self._dead(record, at, record.problem)

    def _decide(self, record: Decided) -> Iterator[Step]:
        outcome = bytes(record.outcome)
        if record.failed is None and not _COMMANDS.match(outcome):
            return
        given = orjson.loads(bytes(record.given))
        taken = self._taken.get(given.get("incoming", -1))
        at = _moment(record.at)
        if record.failed is not None:
            if taken is not None and record.failed.error == ProtocolError.__name__:
                yield self._dead(taken, at, record.failed.text)
            return
        job = self._job(given, taken)
        chain = _correlation(taken) if taken else ""
        for step in self._steps(_commands(orjson.loads(outcome)), job, given.get("now", "")):
            if step.job:
                yield msgspec.structs.replace(step, at=at, correlation_id=step.correlation_id or chain)

    def _steps(self, commands: list[Command], job: str, now: str) -> Iterator[Step]:
        for command in commands:
            yield from self._of(command, job, now)
        freed = sum(command["do"] == "patch" and command["of"] == "pods" for command in commands)
        if freed:
            yield self._step(job, f"ungates {freed} {'pod' if freed == 1 else 'pods'}")

    def _of(self, command: Command, job: str, now: str) -> Iterator[Step]:
        match command:
            case {"do": "create", "of": "workloads.kueue.x-k8s.io", "manifest": manifest}:
                yield self._created(manifest, job)
            case {"do": "create", "manifest": {"kind": kind, "metadata": metadata}} if job.startswith(f"{kind}/"):
                name = metadata.get("annotations", {}).get(kueue.PREBUILT_NAME, "")
                yield self._step(job, f"creates the {kind}, on slice {name}")
            case {"do": "patch", "of": "workloads.kueue.x-k8s.io", "target": target, "body": dict(body)}:
                yield from self._patched(target, body, job, now)
            case {"do": "patch", "of": of, "body": dict(body)} if of != "pods":
                yield from self._job_patched(body, job)
            case {"do": "remove", "target": target}:
                kind, name = target.split()[:2]
                yield self._step(job, f"deletes the {kind} {name.rpartition('/')[2]}")

    def _created(self, manifest: Manifest, job: str) -> Step:
        metadata = manifest["metadata"]
        name = metadata["name"]
        job = job or _owner(metadata)
        self._jobs[f"{metadata['namespace']}/{name}"] = job
        if self._source.role == "agent":
            return self._step(job, f"creates the Workload {name}")
        replaced = metadata.get("annotations", {}).get(kueue.REPLACEMENT_FOR_ANNOTATION, "").rpartition("/")[2]
        counts = _counts(manifest["spec"])
        text = f"makes slice {name}: {counts_text(counts)}"
        return self._step(job, f"{text}, to replace {replaced}" if replaced else text, slice=name, counts=counts)

    def _patched(self, target: str, body: Manifest, job: str, now: str) -> Iterator[Step]:
        """A slice; what an agent mirrors onto its copy is known already."""
        if self._source.role == "agent":
            return
        _, key, _ = target.split()
        name = key.rpartition("/")[2]
        job = job or self._jobs.get(key, "")
        if "podSets" in body.get("spec", {}):
            yield self._step(job, f"changes slice {name} to {counts_text(_counts(body['spec']))}")
        status = body.get("status", {})
        if "admission" in status:
            yield self._admitted(name, status, job)
        for condition in status.get("conditions", ()):
            yield from self._condition(key, condition, job, now)

    def _admitted(self, name: str, status: Manifest, job: str) -> Step:
        admission = status["admission"] or {}
        counts = {each["name"]: each.get("count", 0) for each in admission.get("podSetAssignments", ())}
        where = f"by ClusterQueue {admission.get('clusterQueue', '')} on {status.get('clusterName', '')}"
        return self._step(job, f"admits slice {name} {where}: {counts_text(counts)}", slice=name, admitted=True)

    def _condition(self, key: str, condition: Manifest, job: str, now: str) -> Iterator[Step]:
        """One that says something else than it did, since this very decision."""
        type, status, message = condition["type"], condition["status"], condition.get("message", "")
        said = (status, message)
        if self._told.get((key, type)) == said:
            return
        known = (key, type) in self._told
        self._told[key, type] = said
        word = "is suspended" if condition.get("reason") == kueue.SUSPENDING else _TOLD.get((type, status))
        if word is None or not (known or condition.get("lastTransitionTime") == now):
            return
        name = key.rpartition("/")[2]
        waits = type == Condition.QUOTA_RESERVED
        finished = type == Condition.FINISHED
        yield self._step(
            job,
            f"slice {name} {word}: {condition['reason'] if finished else message}",
            slice=name if waits else "",
            waits=message if waits else "",
        )

    def _job_patched(self, body: Manifest, job: str) -> Iterator[Step]:
        metadata = body.get("metadata", {})
        annotations = metadata.get("annotations") or {}
        if (text := annotations.get(kueue.REQUESTED_ANNOTATION)) is not None:
            yield from self._wish(text, job)
        if kueue.PREBUILT_NAME in annotations:
            granted = _read(annotations.get(kueue.GRANTED_ANNOTATION, "{}"))
            suspended = body.get("spec", {}).get("suspend")
            text = "suspends the job" if suspended else f"puts the job on slice {annotations[kueue.PREBUILT_NAME]}"
            yield self._step(job, f"{text}, granted {counts_text(granted)}")

    def _wish(self, text: str, job: str) -> Iterator[Step]:
        """An agent writes a wish down before it is published and when the broker has it, and orders change its mark."""
        wish = _read(text)
        if not wish or wish.get("confirmed", False):
            return
        counts = wish.get("wanted") or wish.get("counts") or {}
        request = str(wish.get("worker_uid", "")), int(wish.get("worker_generation", 0))
        if self._wishes.get(job) == request:
            return
        self._wishes[job] = request
        yield self._step(job, f"notes the wish {counts_text(counts)}", request=request)

    def _dead(self, taken: Received, at: datetime, why: str) -> Step:
        job = taken.headers.get(f"{PREFIX}subject", "")
        said = f"dead-letters the {taken.type or 'message'}: {why}"
        step = self._step(job, said, correlation_id=_correlation(taken), dead=why)
        return msgspec.structs.replace(step, at=at)

    def _job(self, given: Manifest, taken: Received | None) -> str:
        match given:
            case {"job": {"kind": kind, "namespace": namespace, "name": name}} | {
                "key": {"kind": kind, "namespace": namespace, "name": name}
            }:
                return f"{kind}/{namespace}/{name}"
            case {"decision": {"key": str(key)}}:
                return self._jobs.get(key, "")
        return taken.headers.get(f"{PREFIX}subject", "") if taken else ""

    def _step(self, job: str, text: str, **more: Any) -> Step:
        return Step(source=self._source, at=datetime.min.replace(tzinfo=UTC), job=job, text=text, **more)


def _commands(outcome: list[Any]) -> list[Command]:
    match outcome:
        case [_, [*commands]]:
            return commands
        case _:
            return outcome


def _owner(metadata: Manifest) -> str:
    """The job of a slice: its owner on the manager, a mark on a worker."""
    namespace = metadata.get("namespace", "")
    for owner in metadata.get("ownerReferences", ()):
        return f"{owner['kind']}/{namespace}/{owner['name']}"
    kind, slash, name = metadata.get("annotations", {}).get(kueue.JOB_ANNOTATION, "").partition("/")
    return f"{kind}/{namespace}/{name}" if slash else ""


def _counts(spec: Manifest) -> dict[str, int]:
    return {pod_set["name"]: pod_set.get("count", 1) for pod_set in spec["podSets"]}


def _correlation(taken: Received) -> str:
    return taken.correlation_id or taken.headers.get(f"{PREFIX}correlationid", "") or taken.message_id or ""


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def _read(text: str) -> dict[str, Any]:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}
