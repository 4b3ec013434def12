"""The recorded form of commands: what the decider writes is what the journal reads."""

import msgspec
import pytest
from msgspec import UNSET, Raw

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
from slicebus.decisions.decider import encode_outcome
from slicebus.journal.recorded_commands import (
    Created,
    Emitted,
    Forgotten,
    Patched,
    Published,
    RecordedCommand,
    Remembered,
    Removed,
    Requeued,
    commands_of,
)
from slicebus.kube.impersonation import Impersonation
from slicebus.kube.resources import JOBS, PODS
from slicebus.proto.envelope import MessageId
from slicebus.proto.messages import ClusterName, Resync
from unit.journal.records import JOB

POD = {"kind": "Pod", "metadata": {"namespace": "team", "name": "a", "uid": "u", "resourceVersion": "7"}}
NAME = "Pod team/a u@7"
EAST = ClusterName("east")
FORGET = Forget(table="notes", key=["a", 1])
SOMEBODY = Impersonation("system:serviceaccount:team:jobs", {"slicebus.dev/agent": "slicebus-system"})
REMEMBER = Remember(table="notes", key=["a", 1], value=JOB)
COMMANDS: dict[str, tuple[Command, RecordedCommand]] = {
    "create": (Create(resource=JOBS, manifest=POD), Created(of="jobs.batch", manifest=POD)),
    "create as somebody else": (
        Create(resource=JOBS, manifest=POD, impersonate=SOMEBODY),
        Created(of="jobs.batch", manifest=POD, impersonate=SOMEBODY),
    ),
    "merge patch": (
        Patch(resource=PODS, target=POD, body={"a": 1}, subresource="status"),
        Patched(of="pods", target=NAME, subresource="status", body={"a": 1}),
    ),
    "JSON patch": (
        Patch(resource=PODS, target=POD, body=[{"op": "remove"}]),
        Patched(of="pods", target=NAME, subresource="", body=[{"op": "remove"}]),
    ),
    "remove": (Remove(resource=PODS, target=POD), Removed(of="pods", target=NAME)),
    "emit": (
        Emit(regarding=POD, reason="R", note="n", warning=True),
        Emitted(regarding=NAME, reason="R", note="n", warning=True),
    ),
    "patch with an unknown result": (
        Patch(resource=PODS, target=POD, body={}, unless_answered=REMEMBER),
        Patched(of="pods", target=NAME, subresource="", body={}, unless_answered="notes"),
    ),
    "remember": (REMEMBER, Remembered(table="notes", key=Raw(b'["a",1]'), value=Raw(msgspec.json.encode(JOB)))),
    "forget": (FORGET, Forgotten(table="notes", key=Raw(b'["a",1]'))),
    "requeue": (Requeue(job=JOB, delay_s=0.5), Requeued(job=JOB, delay_s=0.5)),
}
REMOVE_GATE = Patch(resource=PODS, target=POD, body=[{"op": "remove"}])
REMOVED_GATE = COMMANDS["JSON patch"][1]


@pytest.mark.parametrize(("command", "recorded"), COMMANDS.values(), ids=COMMANDS.keys())
def test_a_command_is_read_as_it_was_written(command: Command, recorded: RecordedCommand) -> None:
    assert commands_of(encode_outcome([command])) == [recorded]


def test_a_create_by_the_role_itself_is_recorded_as_ever() -> None:
    outcome = b'[{"do":"create","of":"jobs.batch","manifest":{"kind":"Job"}}]'
    assert commands_of(outcome) == [Created(of="jobs.batch", manifest={"kind": "Job"})]
    assert encode_outcome([Create(resource=JOBS, manifest={"kind": "Job"})]) == outcome


@pytest.mark.parametrize("correlation", [None, MessageId("chain")])
def test_a_published_message_keeps_its_chain(correlation: MessageId | None) -> None:
    publish = Publish(cluster=EAST, message=Resync(reason="x"), correlation=correlation, unless_confirmed=FORGET)
    [read] = commands_of(encode_outcome([publish]))
    assert isinstance(read, Published)
    assert (read.to, read.type, read.correlation) == ("east", "resync", correlation or UNSET)
    assert read.unless_confirmed == "notes"


def test_independent_patches_are_read_one_by_one() -> None:
    assert commands_of(encode_outcome([REMEMBER, PatchEach(patches=(REMOVE_GATE, REMOVE_GATE))])) == [
        COMMANDS["remember"][1],
        REMOVED_GATE,
        REMOVED_GATE,
    ]


@pytest.mark.parametrize("next", ["ungate", 3, None])
def test_commands_are_read_beside_where_to_go_on(next: str | int | None) -> None:
    assert commands_of(encode_outcome((next, [REMOVE_GATE, REMOVE_GATE]))) == [REMOVED_GATE, REMOVED_GATE]


@pytest.mark.parametrize(
    "outcome",
    [
        b"[]",
        b"null",
        b"true",
        b'"taken"',
        b'["a","b"]',
        b'{"type":"Admit"}',
        b'[{"type":"Admit"}]',
        b'[{"do":"x"}]',
        b"{",
    ],
)
def test_any_other_outcome_has_no_commands(outcome: bytes) -> None:
    assert commands_of(outcome) == []
