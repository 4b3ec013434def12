"""The version before and the one after: schemas that only add, recorded messages, and fields that nobody knows yet."""

import copy
import runpy
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest
from jsonschema import Draft202012Validator

from slicebus.agent.decide import orders
from slicebus.agent.decide.triage import Triage, triage
from slicebus.agent.state.store import Store as Agent
from slicebus.agent.state.views import JobKey
from slicebus.bus.contract import Record
from slicebus.cli.journal_source import records_of_file
from slicebus.cli.replay_page import MODELS
from slicebus.decisions.commands import Command
from slicebus.decisions.decider import Incoming
from slicebus.decisions.replay import Model, Replayer
from slicebus.journal.recording import RoleName
from slicebus.manager.decide.messages import message_router as manager
from slicebus.manager.state.store import Store as Manager
from slicebus.proto.codec import decode, encode
from slicebus.proto.envelope import SCHEMA_VERSION
from slicebus.proto.messages import ClusterName, Inventory, JobRef, WorkloadSpec
from slicebus.proto.topology import DECISIONS_TYPE
from support.versions import VERSIONS, as_of, of_a_newer_minor, schema_of
from unit.agent.objects import COPY_STEP, JOB_STEP, REPORT_STEP, SIZES_STEP
from unit.proto.golden import GOLDEN, NAMES, PROTO, Golden

breaks: Callable[[Any, Any], list[str]] = runpy.run_path(str(PROTO / "compatibility.py"))["breaks"]
MAJOR, _, MINOR = SCHEMA_VERSION.partition(".")
BEFORE = [folder for folder in sorted(VERSIONS.iterdir()) if folder.name.partition(".")[0] == MAJOR]
RECORDINGS = sorted(VERSIONS.glob(f"{MAJOR}.*/*.jsonl.gz"))
KEPT = [(folder, path.stem) for folder in BEFORE for path in sorted((folder / "schemas").glob("*.json"))]

NOW = "2026-01-01T00:00:00+00:00"
MANAGER_USER = "manager"

each_recording = pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: f"{path.parent.name}-{path.stem}")


def test_every_minor_version_before_this_one_is_kept() -> None:
    assert [folder.name for folder in BEFORE] == [f"{MAJOR}.{minor}" for minor in range(int(MINOR))]
    assert {path.parent.name for path in RECORDINGS} == {folder.name for folder in BEFORE}


@pytest.mark.parametrize(("folder", "name"), KEPT, ids=[f"{folder.name}-{name}" for folder, name in KEPT])
def test_this_version_only_adds(folder: Path, name: str) -> None:
    assert (PROTO / "schemas" / f"{name}.json").exists(), f"the type {name} is gone: that needs another major version"
    found = breaks(schema_of(folder, name), schema_of(PROTO, name))
    assert not found, f"a peer of {folder.name} would not understand {name}: {'; '.join(found)}"


# --- the rules themselves -------------------------------------------------------------------------------------------

STATUS, REQUEST, INVENTORY = (schema_of(PROTO, name) for name in ("status", "scale-request", "inventory"))
ITEM = ("$defs", "InventoryItem")


def changed(schema: Any, *path: str | int, to: Any) -> Any:
    """A copy with another value at a path; None takes it out."""
    made = copy.deepcopy(schema)
    inner = made
    for step in path[:-1]:
        inner = inner[step]
    if to is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = to
    return made


BROKEN: dict[str, tuple[Any, Any, str]] = {
    "a field is gone": (STATUS, changed(STATUS, "properties", "workload", to=None), "workload: is gone"),
    "a field is required now": (
        STATUS,
        changed(STATUS, "required", to=[*STATUS["required"], "message"]),
        "message: is required now",
    ),
    "a field may be missing now": (
        REQUEST,
        changed(REQUEST, "required", to=[name for name in REQUEST["required"] if name != "wanted"]),
        "wanted: may be missing now",
    ),
    "another type": (STATUS, changed(STATUS, "properties", "message", "type", to="integer"), "message: type was"),
    "another default": (STATUS, changed(STATUS, "properties", "message", "default", to="x"), "message: default was"),
    "a tighter constraint": (
        STATUS,
        changed(STATUS, "properties", "spec_version", "minimum", to=1),
        "spec_version: minimum was 0",
    ),
    "a wider constraint": (
        STATUS,
        changed(STATUS, "properties", "spec_version", "minimum", to=None),
        "spec_version: minimum was 0",
    ),
    "a new value of an enum": (
        STATUS,
        changed(STATUS, "$defs", "JobPhase", "enum", to=[*STATUS["$defs"]["JobPhase"]["enum"], "Paused"]),
        "phase: enum was",
    ),
    "a field of a part": (STATUS, changed(STATUS, "$defs", "JobRef", "properties", "uid", to=None), "job.uid: is gone"),
    "the values of a mapping": (
        STATUS,
        changed(STATUS, "properties", "pods", "additionalProperties", to={"type": "integer"}),
        "pods[]: type was 'object'",
    ),
    "what a mapping may hold": (
        STATUS,
        changed(STATUS, "properties", "pods", "additionalProperties", to=False),
        "pods: additionalProperties was",
    ),
    "fewer places": (
        INVENTORY,
        changed(INVENTORY, *ITEM, "prefixItems", to=INVENTORY["$defs"]["InventoryItem"]["prefixItems"][:-1]),
        "items[]: had 7 places, and has 6",
    ),
    "another kind of place": (
        INVENTORY,
        changed(INVENTORY, *ITEM, "prefixItems", 4, "type", to="string"),
        "items[][4]: type was 'integer'",
    ),
    "more places that must be there": (
        INVENTORY,
        changed(INVENTORY, *ITEM, "minItems", to=8),
        "items[]: minItems was 7",
    ),
}
FINE: dict[str, tuple[Any, Any]] = {
    "nothing": (STATUS, STATUS),
    "another description": (STATUS, changed(STATUS, "description", to="x")),
    "an optional field": (STATUS, changed(STATUS, "properties", "more", to={"type": "string", "default": ""})),
    "an optional field of a part": (
        STATUS,
        changed(STATUS, "$defs", "PodSetStatus", "properties", "more", to={"type": "integer", "default": 0}),
    ),
}


@pytest.mark.parametrize(("old", "new", "told"), BROKEN.values(), ids=BROKEN.keys())
def test_a_change_that_a_peer_would_not_understand_is_found(old: Any, new: Any, told: str) -> None:
    first, *_ = breaks(old, new) or [""]
    assert first.startswith(told)


@pytest.mark.parametrize(("old", "new"), FINE.values(), ids=FINE.keys())
def test_a_change_that_only_adds_is_a_minor_version(old: Any, new: Any) -> None:
    assert breaks(old, new) == []


# --- messages of the version before ---------------------------------------------------------------------------------


@pytest.mark.parametrize("path", GOLDEN, ids=NAMES)
def test_a_golden_is_of_the_version_that_it_names(path: Path) -> None:
    """A committed one is never changed, so those of an older version are what its peers send."""
    golden = Golden.read(path)
    version = golden.headers["cloudEvents_schemaversion"]
    if (VERSIONS / version).exists():
        wire = golden.to_wire()
        assert as_of(version)(wire).headers == wire.headers
        assert orjson.loads(as_of(version)(wire).body) == orjson.loads(wire.body), "it has what that version had not"


def messages_of(recording: Path) -> list[Record]:
    found = [record for record in records_of_file(str(recording)) if record.message.type != DECISIONS_TYPE]
    assert {record.message.type for record in found} >= {"hello", "scale-request", "workload-spec", "relabel", "delete"}
    return found


@each_recording
def test_recorded_messages_are_read_and_written_as_they_were(recording: Path) -> None:
    for record in messages_of(recording):
        received = decode(record.message)
        assert received.unknown == {}
        assert received.envelope.schema_version == recording.parent.name
        again = encode(received.envelope, received.message)
        assert orjson.loads(again.body) == orjson.loads(record.message.body)
        for folder in (recording.parent, PROTO):
            Draft202012Validator(schema_of(folder, received.envelope.type)).validate(orjson.loads(record.message.body))


_SHOWN_ON_COPIES = {"do": "patch", "of": "workloads.kueue.x-k8s.io", "subresource": "status"}
"""An agent showed the manager's status on its copies, which only people read."""


_NOTHING: dict[str, str] = {}


def done(outcome: bytes, *, without: dict[str, str] = _NOTHING) -> list[str]:
    """What a decision led to, without the contents: they may say more now."""
    value = orjson.loads(outcome)
    commands = value if isinstance(value, list) else []
    return [
        f"{command['do']} {command.get('of') or command.get('type') or ''}"
        for command in commands
        if not without or not without.items() <= command.items()
    ]


def does_as_before(made: list[str], recorded: list[str]) -> bool:
    """Whether all of it is still done in that order, and nothing else is said. More may be kept on one's own."""
    rest = iter(made)
    said, said_before = ([done for done in each if done.startswith("publish")] for each in (made, recorded))
    return said == said_before and all(done in rest for done in recorded)


def receive(store: Manager, *, incoming: Incoming, now: str) -> Sequence[Command]:
    return manager.receive(store, incoming=incoming, now=now, fence_s=None)


def authorize(store: Manager, *, incoming: Incoming) -> None:
    manager.receive(store, incoming=incoming, now=NOW, fence_s=None)


def accept(store: Agent, *, incoming: Incoming, cluster: ClusterName, manager_user: str | None) -> None:
    # The agent of then could be told of no manager's user, and was not.
    by = manager_user or MANAGER_USER
    triage(store, incoming=incoming, cluster=cluster, manager_user=by, cluster_uid=None)


def has_ended(store: Agent, *, incoming: Incoming) -> bool:
    cluster = incoming.envelope.cluster
    triaged = triage(store, incoming=incoming, cluster=cluster, manager_user=MANAGER_USER, cluster_uid=None)
    return triaged.outcome is Triage.ENDED


_STEPS_OF_A_SPEC = {0: COPY_STEP, 2: SIZES_STEP, 3: JOB_STEP, 4: REPORT_STEP}
"""Its numbers of then: it made the copy before the job. The one that is left out showed the status."""


def step(store: Agent, *, incoming: Incoming, number: int, cluster: ClusterName) -> Sequence[Command]:
    job = getattr(incoming.message, "job", None)
    assert isinstance(job, JobRef)
    if isinstance(incoming.message, WorkloadSpec):
        if number not in _STEPS_OF_A_SPEC:
            return []
        number = _STEPS_OF_A_SPEC[number]
    return orders.steps(incoming.message, cluster)[number].decide(store.view(JobKey.of(job)))


OF_VERSION_1_0: dict[RoleName, tuple[Callable[..., Any], ...]] = {
    "manager": (receive, authorize),
    "agent": (accept, has_ended, step),
}
"""What that version decided with a message, by what this one decides. It took other arguments, and smaller steps."""
MODELS_BEFORE: dict[RoleName, Model] = {
    role: Model(
        state=MODELS[role].state,
        decode=MODELS[role].decode,
        decisions={**MODELS[role].decisions, **{decision.__name__: decision for decision in decisions}},
    )
    for role, decisions in OF_VERSION_1_0.items()
}


@each_recording
def test_both_sides_do_with_recorded_messages_what_the_version_before_did(recording: Path) -> None:
    """This manager with the messages of an older agent, this agent with those of an older manager."""
    with_messages = {decision.__name__ for decisions in OF_VERSION_1_0.values() for decision in decisions}
    replayer, count = Replayer(MODELS_BEFORE), Counter[str]()
    for record in records_of_file(str(recording)):
        for made in replayer.feed(record):
            if made.what in with_messages:
                count[made.source.role] += 1
                assert made.problem == ""
                assert b'"error"' not in made.made or b'"error"' in made.recorded, made
                gone = _SHOWN_ON_COPIES if made.source.role == "agent" else _NOTHING
                assert does_as_before(done(made.made), done(made.recorded, without=gone)), made
    assert min(count["manager"], count["agent"]) > 20


def test_a_difference_in_what_is_done_would_be_seen() -> None:
    assert done(b'[{"do":"patch","of":"pods"},{"do":"publish","type":"applied"}]') == ["patch pods", "publish applied"]
    assert done(b"null") == []
    before = ["patch pods", "publish applied"]
    assert does_as_before(["patch pods", "patch workloads", "publish applied"], before)
    assert not does_as_before(["publish applied"], before)
    assert not does_as_before(["publish applied", "patch pods"], before)
    assert not does_as_before(["patch pods", "publish applied", "publish status"], before)


# --- messages of a version after ------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", GOLDEN, ids=NAMES)
def test_what_a_newer_minor_version_adds_changes_nothing(path: Path) -> None:
    wire = Golden.read(path).to_wire()
    newer = of_a_newer_minor(wire)
    assert newer.body.count(b"of_newer_minor") >= 1
    received, known = decode(newer), decode(wire)
    assert received.message == known.message
    assert received.envelope.schema_version == "1.9"
    assert received.unknown == known.unknown | {"of_newer_minor": {"a": [1, None, "x"]}}
    again = encode(received.envelope, received.message, unknown=received.unknown)
    assert decode(again) == received
    assert again.headers["cloudEvents_tenant"] == "team-a"


def test_an_array_of_places_may_grow() -> None:
    wire = of_a_newer_minor(Golden.named("inventory").to_wire())
    message = decode(wire).message
    assert isinstance(message, Inventory)
    assert all(len(item) == 8 for item in orjson.loads(wire.body)["items"])
    assert message.items


def test_an_older_peer_is_shown_nothing_new() -> None:
    wire = Golden.named("workload-spec-answers").to_wire()
    shown = as_of("1.0")(wire)
    assert shown is not None
    older = decode(shown)
    assert isinstance(older.message, WorkloadSpec)
    assert older.message.answers is msgspec.UNSET
    assert as_of("1.0")(Golden.named("terms").to_wire()) is None
