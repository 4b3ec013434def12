"""Every command, on messages, files and objects with hostile text in every field: it ends, and prints harmless text."""

import gzip
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from html.parser import HTMLParser
from itertools import islice
from pathlib import Path
from typing import Any, Self
from unittest.mock import patch

import msgspec
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slicebus.cli.doctor import checks
from slicebus.cli.journal.source import records_of_file
from slicebus.cli.replay.page import MODELS
from slicebus.decisions.recorded_cache import resource_name
from slicebus.decisions.replay import Replayer
from slicebus.journal.entry import Entry
from slicebus.journal.recording import decode_batch
from slicebus.kube.client import KubeClient
from slicebus.kube.lists import ListPage
from slicebus.kube.resources import LEASES, Resource
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import ForbiddenError, NotFoundError
from slicebus.proto.topology import DEAD, JOURNAL, manager_topology
from slicebus.sandbox.bus import MemoryBroker
from unit.cli.hostile import NAMED, TEXTS, Called, call, is_harmless, leaves, replaced

REPLAYS = Path(__file__).parents[2] / "replays"
LIFE = REPLAYS / "life-of-a-job.jsonl.gz"
BROKER = "hostile"
URL = f"memory://manager@{BROKER}"
JOB = "job-a"
SETTINGS = settings(
    max_examples=12,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def check(called: Called, *statuses: int) -> None:
    """A command has ended by itself, with a status that it has: no traceback, and nothing that a terminal acts on."""
    assert called.status in (statuses or (0, 1, 2, 3)), called.err
    assert "Traceback" not in called.err
    assert is_harmless(called.out)
    assert is_harmless(called.err)


# --- messages -------------------------------------------------------------------------------------------------------


@cache
def recorded() -> tuple[WireMessage, ...]:
    """Each type of message once."""
    found: dict[str, WireMessage] = {}
    for record in records_of_file(str(LIFE)):
        entry = Entry.from_record(record)
        if not entry.is_decisions:
            found.setdefault(entry.type, record.message)
    return tuple(found.values())


@st.composite
def messages(draw: st.DrawFn) -> WireMessage:
    """A message with hostile text in one of its fields, or in all of its headers."""
    message, text = draw(st.sampled_from(recorded())), draw(TEXTS)
    where = draw(st.sampled_from(["header", "headers", "name", "property", "key", "body", "leaf"]))
    headers = dict(message.headers)
    match where:
        case "header":
            headers[draw(st.sampled_from(sorted(headers)))] = text
        case "headers":
            headers = dict.fromkeys(headers, text)
        case "name":
            headers[text] = text
        case "property":
            name = draw(st.sampled_from(["message_id", "correlation_id", "user_id", "content_type", "type"]))
            return msgspec.structs.replace(message, **{name: text})
        case "key":
            return msgspec.structs.replace(message, routing_key=text)
        case "body":
            return msgspec.structs.replace(message, body=draw(st.just(text.encode()) | st.binary()))
        case "leaf":
            body = orjson.loads(message.body)
            body = replaced(body, draw(st.sampled_from(list(leaves(body)))), text)
            return msgspec.structs.replace(message, body=orjson.dumps(body))
    return msgspec.structs.replace(message, headers=headers)


@contextmanager
def broker(*, journal: Sequence[WireMessage] = (), dead: Sequence[WireMessage] = ()) -> Iterator[None]:
    made = MemoryBroker.named(BROKER)
    made.declare(manager_topology())
    for message in journal:
        made.streams[JOURNAL].append(message, datetime.now(UTC))
    for message in dead:
        made.publish(DEAD, message)
    try:
        yield
    finally:
        MemoryBroker.forget(BROKER)


@contextmanager
def saying_yes() -> Iterator[None]:
    """Somebody sits at a terminal, and agrees to whatever he is asked."""
    with patch("slicebus.cli.screen.can_ask", return_value=True), patch("typer.confirm", return_value=True):
        yield


OF_JOURNAL: dict[str, tuple[str, ...]] = {
    "journal tail": ("journal", "tail", "--no-follow", "--since", "1h"),
    "journal tail --json": ("journal", "tail", "--no-follow", "--since", "1h", "--json"),
    "journal query": ("journal", "query"),
    "journal query --json": ("journal", "query", "--json"),
    "journal export": ("journal", "export", "-"),
    "journal export --no-redact": ("journal", "export", "-", "--no-redact"),
    "trace": ("trace", JOB),
    "redrive, dry": ("redrive", "stream", "--all", "--dry-run"),
    "redrive, asked": ("redrive", "stream", "--all"),
    "replay": ("replay", "stream", "--until", "0"),
}


@pytest.mark.parametrize("arguments", OF_JOURNAL.values(), ids=OF_JOURNAL.keys())
@SETTINGS
@given(hostile=messages())
def test_hostile_messages_in_the_journal(
    arguments: tuple[str, ...], hostile: WireMessage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMQP_URL", URL)
    with broker(journal=[*recorded(), hostile]), saying_yes():
        called = call(*arguments)
    check(called)
    if arguments[:2] in (("journal", "query"), ("journal", "export")):
        assert called.out.count("\n") == len(recorded()) + 1, "each message is a line, and no message is two"


OF_DEAD_LETTERS: dict[str, tuple[str, ...]] = {
    "list": ("dead", "list"),
    "list --json": ("dead", "list", "--json"),
    "show": ("dead", "show", "{id}"),
    "show --no-redact": ("dead", "show", "{id}", "--no-redact"),
    "requeue": ("dead", "requeue", "--all", "--yes"),
    "requeue, asked": ("dead", "requeue", "--all"),
    "discard": ("dead", "discard", "--all", "--yes"),
}


@pytest.mark.parametrize("arguments", OF_DEAD_LETTERS.values(), ids=OF_DEAD_LETTERS.keys())
@SETTINGS
@given(hostile=messages())
def test_hostile_dead_letters(
    arguments: tuple[str, ...], hostile: WireMessage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMQP_URL", URL)
    id = hostile.message_id or "x"
    with broker(dead=[hostile]), saying_yes():
        called = call(*(argument.format(id=id) if argument == "{id}" else argument for argument in arguments))
    check(called)
    if arguments[:2] == ("dead", "list"):
        assert called.out.count("\n") == 1 + ("--json" not in arguments)


@pytest.mark.parametrize("text", [NAMED["brackets"], NAMED["objects"]], ids=["brackets", "objects"])
@pytest.mark.parametrize("arguments", [*OF_JOURNAL.values(), *OF_DEAD_LETTERS.values()], ids=" ".join)
def test_a_header_of_a_thousand_brackets_ends_nothing(
    arguments: tuple[str, ...], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = recorded()[0]
    hostile = msgspec.structs.replace(
        first, headers={"slicebus-dead-detail": text} | dict.fromkeys(first.headers, text)
    )
    monkeypatch.setenv("AMQP_URL", URL)
    with broker(journal=[hostile], dead=[hostile]), saying_yes():
        called = call(*(str(hostile.message_id) if argument == "{id}" else argument for argument in arguments))
    check(called)


# --- files ----------------------------------------------------------------------------------------------------------


@cache
def lines() -> tuple[Any, ...]:
    """A recording that begins, and goes on for some batches."""
    with gzip.open(LIFE) as file:
        return tuple(map(orjson.loads, islice(file, 40)))


OF_FILES: dict[str, tuple[str, ...]] = {
    "journal query": ("journal", "query", "--from", "{file}"),
    "journal query of decisions": ("journal", "query", "--from", "{file}", "--type", "decisions"),
    "journal query --json": ("journal", "query", "--from", "{file}", "--json"),
    "trace": ("trace", JOB, "--from", "{file}"),
    "trace --html": ("trace", JOB, "--from", "{file}", "--html", "{page}"),
    "replay": ("replay", "{file}"),
    "replay --state": ("replay", "{file}", "--state"),
    "jobs --at": ("jobs", "-A", "--at", "2026-01-01T00:00:12Z", "--from", "{file}"),
    "jobs --at -o yaml": ("jobs", "-A", "-o", "yaml", "--at", "2026-01-01T00:00:12Z", "--from", "{file}"),
    "queues --at": ("queues", "--at", "2026-01-01T00:00:12Z", "--from", "{file}"),
    "replay --step": ("replay", "{file}", "--step", "--until", "12"),
}


# What a file says of an object may be none: it is set aside, and the others are shown.
@pytest.mark.decisions_fail
@pytest.mark.parametrize("arguments", OF_FILES.values(), ids=OF_FILES.keys())
@SETTINGS
@given(data=st.data())
def test_hostile_files(arguments: tuple[str, ...], data: st.DataObject, tmp_path: Path) -> None:
    found = list(lines())
    index, text = data.draw(st.integers(0, len(found) - 1)), data.draw(TEXTS)
    path = data.draw(st.sampled_from(list(leaves(found[index]))))
    found[index] = replaced(found[index], path, text)
    file, page = tmp_path / "hostile.jsonl", tmp_path / "page.html"
    file.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in found))
    names = {"{file}": str(file), "{page}": str(page)}
    check(call(*(names.get(argument, argument) for argument in arguments)))
    if page.exists():
        check_page(page.read_text(encoding="utf-8"))


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: set[tuple[str, str]] = set()

    def handle_starttag(self, tag: str, attributes: Sequence[tuple[str, str | None]]) -> None:
        self.found |= {(tag, name) for name, _ in attributes} | {(tag, "")}


def tags(page: str) -> set[tuple[str, str]]:
    """The elements of a page, with the names of their attributes."""
    parser = _Tags()
    parser.feed(page)
    return parser.found


@cache
def ordinary_tags() -> set[tuple[str, str]]:
    page = REPLAYS / "nowhere"
    with patch.object(Path, "write_text", autospec=True) as write:
        assert call("trace", JOB, "--from", str(LIFE), "--html", str(page)).status == 0
    return tags(write.call_args.args[1])


def check_page(page: str) -> None:
    assert is_harmless(page)
    assert tags(page) <= ordinary_tags() | {("details", "open")}


def test_the_page_shows_hostile_text_as_text(tmp_path: Path) -> None:
    """In every text of every message about the job that can be one."""
    page = tmp_path / "page.html"
    for text in NAMED.values():
        found = [line | {"headers": line["headers"] | {"cloudEvents_traceparent": text}} for line in lines()]
        for line in found:
            if isinstance(line["body"], dict) and "why" in line["body"]:
                line["body"] = line["body"] | {"why": text}
        file = tmp_path / "hostile.jsonl"
        file.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in found))
        check(call("trace", JOB, "--from", str(file), "--html", str(page)), 0)
        check_page(page.read_text(encoding="utf-8"))


# --- objects --------------------------------------------------------------------------------------------------------


@cache
def objects() -> dict[str, list[Any]]:
    """The manager's objects at the end of a recording."""
    replayer = Replayer(MODELS)
    for record in records_of_file(str(REPLAYS / "eviction.jsonl.gz")):
        if Entry.from_record(record).is_decisions and decode_batch(record.message).source.role == "manager":
            list(replayer.feed(record))
    [replay] = replayer.sources.values()
    found = {resource_name(resource): cache.all() for resource, cache in replay.state.decides_by()}
    lease = {
        "kind": "Lease",
        "metadata": {"name": "slicebus-manager", "annotations": {"slicebus.dev/not-ready": "waits"}},
        # A Lease that looks expired is watched for half of its duration, by every command.
        "spec": {
            "holderIdentity": "manager-0",
            "leaseDurationSeconds": 9000,
            "renewTime": datetime.now(UTC).isoformat(),
        },
    }
    return found | {resource_name(LEASES): [lease]}


FREE = ("message", "room", "agentVersion", "holderIdentity")


def is_free(path: tuple[Any, ...]) -> bool:
    """Whether an API server takes any text there."""
    return path[-1] is not None and (path[-1] in FREE or "annotations" in path)


class Client:
    """A client of a cluster that has these objects."""

    host = "https://example"
    namespace = "team-a"

    def __init__(self, found: dict[str, list[Any]], text: str) -> None:
        self._found, self._text = found, text

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def serves(self, _: Resource) -> bool:
        return True

    async def version(self) -> str:
        return self._text

    async def list(self, resource: Resource, **_: object) -> Any:
        return ListPage(self._found.get(resource_name(resource), []), "1", "")

    async def get(self, resource: Resource, *_: object) -> Any:
        for found in self._found.get(resource_name(resource), []):
            return found
        raise NotFoundError(self._text)

    async def patch(self, *_: object, **__: object) -> None:
        raise NotFoundError(self._text)


OF_OBJECTS: dict[str, tuple[str, ...]] = {
    "fleet list": ("fleet", "list"),
    "fleet list -o yaml": ("fleet", "list", "-o", "yaml"),
    "fleet release": ("fleet", "release", "east", "--yes"),
    "fleet repin": ("fleet", "repin", "east", "--yes"),
    "fleet drain": ("fleet", "drain", "east"),
    "top": ("top",),
    "top of a namespace": ("top", "-n", "team-a"),
    "fleet cordon": ("fleet", "cordon", "east"),
    "jobs": ("jobs", "-A"),
    "jobs -o wide": ("jobs", "-A", "-o", "wide"),
    "jobs -o json": ("jobs", "-A", "-o", "json"),
    "queues": ("queues",),
    "queues of a namespace": ("queues", "-A", "-o", "yaml"),
    "fleet get": ("fleet", "get", "east"),
    "fleet get -o yaml": ("fleet", "get", "east", "-o", "yaml"),
    "tree": ("tree", "{job}"),
    "tree -o json": ("tree", "{job}", "-o", "json"),
    "explain": ("explain", "{job}"),
    "explain -o json": ("explain", "{job}", "-o", "json"),
    "explain another": ("explain", "job"),
    "simulate": ("simulate", "{job}", "--size", "main=9"),
    "simulate -o json": ("simulate", "{job}", "--size", "main=9", "-o", "json"),
    "doctor": ("doctor", "--amqp-url", URL),
    "doctor beside Kueue": ("doctor", "--amqp-url", URL, "--admission", "kueue"),
}


@pytest.mark.parametrize("arguments", OF_OBJECTS.values(), ids=OF_OBJECTS.keys())
@SETTINGS
@given(data=st.data())
def test_hostile_objects(arguments: tuple[str, ...], data: st.DataObject) -> None:
    """What an API server lets a tenant or an agent write: any text that is no name, and no structure."""
    kind = data.draw(st.sampled_from(sorted(name for name, found in objects().items() if found)))
    index, text = data.draw(st.integers(0, len(objects()[kind]) - 1)), data.draw(TEXTS)
    manifest = objects()[kind][index]
    free = [path for path in leaves(manifest) if is_free(path)]
    hostile = replaced(manifest, data.draw(st.sampled_from(free)), text) if free else manifest
    changed = [*objects()[kind][:index], hostile, *objects()[kind][index + 1 :]]
    client = Client(objects() | {kind: changed}, text)

    async def connect(**_: object) -> Client:
        return client

    async def missing(*_: object, **__: object) -> list[str]:
        return [text]

    jobs = [job["metadata"]["name"] for job in objects()["jobs.batch"]]
    with broker(), patch.object(KubeClient, "connect", connect), patch.object(checks, "missing", missing):
        check(call(*(argument.replace("{job}", jobs[0]) for argument in arguments)))


class OfOneNamespace(Client):
    """The client of a user who may see one namespace, and what is in none."""

    async def list(self, resource: Resource, *, namespace: str | None = None, **options: object) -> Any:
        if resource.namespaced and resource != LEASES and namespace != self.namespace:
            raise ForbiddenError(f"{resource.plural} is forbidden")
        return await super().list(resource, **options)


@pytest.mark.parametrize("output", [(), ("-o", "yaml")], ids=["page", "yaml"])
def test_who_sees_one_namespace_is_told_no_sum_of_all(output: tuple[str, ...]) -> None:
    async def connect(**_: object) -> Client:
        return OfOneNamespace(objects() | {"workloads.kueue.x-k8s.io": []}, "")

    with patch.object(KubeClient, "connect", connect):
        called = call("fleet", "get", "east", *output)
    assert ("left: null" in called.out) if output else ("?\n" in called.out), called
    assert "Events: you may not see" in called.out or "events_unread: you may not see" in called.out


@SETTINGS
@given(hostile=messages())
def test_hostile_messages_of_a_fleet(hostile: WireMessage) -> None:
    async def connect(**_: object) -> Client:
        return Client(objects(), "")

    with broker(journal=[*recorded(), hostile]), patch.object(KubeClient, "connect", connect):
        called = call("top", "--amqp-url", URL)
    check(called)
    assert "messages, in " in called.out
