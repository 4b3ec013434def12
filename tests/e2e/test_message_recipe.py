"""The recipe "add a message", carried out on a copy of the checkout: an order and a report, from type to handler.

The tests of the copy then run: those that look at every message, and one for each handler.
"""

import json
from pathlib import Path

import pytest

from slicebus.proto.envelope import SCHEMA_VERSION
from support.recipe import Checkout, Edit, recipe, unnamed
from unit.proto.golden import PROTO

MESSAGES = "proto/slicebus/proto/messages"
TRIAGE, ORDERS = (f"agent/slicebus/agent/decide/order/{name}.py" for name in ("triage", "orders"))
HANDLERS = "manager/slicebus/manager/decide/messages/message_handlers.py"
ROUTER = "manager/slicebus/manager/decide/messages/message_router.py"
SUMMARIES, REDRIVES = "tests/unit/journal/test_summary.py", "tests/unit/journal/test_redrive.py"
NEW_TESTS = ("tests/unit/agent/test_checkpoint.py", "tests/unit/manager/test_milestone.py")
EVERY_MESSAGE = (
    *(f"tests/unit/proto/test_{name}.py" for name in ("catalogue", "golden", "rights", "schemas", "topology")),
    "tests/unit/test_decoders.py",
    SUMMARIES,
    REDRIVES,
)

TYPES = [
    Edit(
        f"{MESSAGES}/down.py",
        '''

class Checkpoint(JobMessage, frozen=True, kw_only=True):
    """Asks a worker's job to write a checkpoint."""

    type: ClassVar[str] = "checkpoint"
    direction: ClassVar[Direction] = Direction.DOWN

    spec_version: Version
    path: str

    def summary(self) -> str:
        """One line for people."""
        return f"to {self.path}, version {self.spec_version}"
''',
    ),
    Edit(
        f"{MESSAGES}/up.py",
        '''

class Milestone(JobMessage, frozen=True, kw_only=True):
    """How far a worker's job is."""

    type: ClassVar[str] = "milestone"
    direction: ClassVar[Direction] = Direction.UP
    lane: ClassVar[Lane] = Lane.STATUS
    not_redriven: ClassVar[str] = "an agent says it every minute"

    reached: str

    def summary(self) -> str:
        """One line for people."""
        return self.reached
''',
    ),
    Edit(f"{MESSAGES}/__init__.py", "    Checkpoint,\n", after="from slicebus.proto.messages.down import (\n"),
    Edit(f"{MESSAGES}/__init__.py", "    Milestone,\n", after="from slicebus.proto.messages.up import (\n"),
    Edit(f"{MESSAGES}/__init__.py", '    "Checkpoint",\n    "Milestone",\n', after="__all__ = [\n"),
    Edit(f"{MESSAGES}/catalogue.py", "Checkpoint, ", after="from slicebus.proto.messages.down import "),
    Edit(f"{MESSAGES}/catalogue.py", "Milestone, ", after="from slicebus.proto.messages.up import "),
    Edit(f"{MESSAGES}/catalogue.py", "Checkpoint | ", after="JobOrder = "),
    Edit(f"{MESSAGES}/catalogue.py", "Milestone | ", after="Report = "),
]
IMPORT = "from slicebus.proto.messages import (\n"
HANDLED = [
    Edit(TRIAGE, "    Checkpoint,\n", after=IMPORT),
    Edit(TRIAGE, "Checkpoint() | ", after="        case WorkloadSpec() | "),
    Edit(TRIAGE, "Checkpoint() | ", after="        case Relabel() | Pending() | "),
    Edit(ORDERS, "    Checkpoint,\n", after=IMPORT),
    Edit(ORDERS, "Emit, ", after="from slicebus.decisions.commands import Command, Create, "),
    Edit(ORDERS, "        case Checkpoint():\n            return checkpoint(order)\n", after="    match order:\n"),
    Edit(
        ORDERS,
        '''

def checkpoint(order: Checkpoint) -> list[OrderStep]:
    """Says on the job where it shall write its checkpoint."""
    event = {"reason": "Checkpoint", "note": order.path}
    return [OrderStep(lambda view: [Emit(regarding=view.job, **event)] if view.job else [])]
''',
    ),
    Edit(HANDLERS, "    Milestone,\n", after=IMPORT),
    Edit(
        HANDLERS,
        '''

def milestone(view: JobView, report: Milestone, envelope: Envelope) -> list[Command]:
    """Says on the job how far it is."""
    if view.job is None or not _is_from_here(view, envelope):
        return []
    return [Emit(regarding=view.job, reason="Milestone", note=report.reached)]
''',
    ),
    Edit(ROUTER, "    Milestone,\n", after=IMPORT),
    Edit(
        ROUTER,
        """        case Milestone():
            return message_handlers.milestone(store.view(_known(message.job)), message, envelope)
""",
        after="    match message:\n",
    ),
]
ROWS = [
    Edit(SUMMARIES, "    Checkpoint,\n    Milestone,\n", after=IMPORT),
    Edit(
        SUMMARIES,
        """
    (Checkpoint(job=JOB, spec_version=3, path="/data"), "to /data, version 3"),
    (Milestone(job=JOB, reached="epoch 7"), "epoch 7"),""",
        after="LINES: list[tuple[Message, str]] = [",
    ),
    Edit(REDRIVES, "    Checkpoint,\n    Milestone,\n", after=IMPORT),
    Edit(REDRIVES, '\n    Checkpoint(job=JOB, spec_version=2, path="/data"),', after="VERSIONED: list[Message] = ["),
    Edit(REDRIVES, '\n    Milestone(job=JOB, reached="epoch 7"),', after="OF_A_MOMENT: list[Message] = ["),
    Edit(
        NEW_TESTS[0],
        """from slicebus.proto.messages import Checkpoint
from unit.agent.objects import REF, a_spec
from unit.agent.test_inbox import Manager, receiving
from unit.agent.worker import Worker


async def test_a_checkpoint_is_an_event_on_the_job(worker: Worker) -> None:
    manager = Manager(worker)
    async with receiving(worker):
        await manager.order(a_spec(1), Checkpoint(job=REF, spec_version=1, path="/data"))
    assert manager.dead == []
    assert ("Checkpoint", "/data") in [(event["reason"], event["note"]) for _, event in worker.events]
""",
    ),
    Edit(
        NEW_TESTS[1],
        """from slicebus.proto.messages import Milestone
from unit.manager.message_router import Manager


async def test_a_milestone_is_an_event_on_the_job(manager: Manager) -> None:
    ref = await manager.given_job()
    await manager.receive(Milestone(job=ref, reached="epoch 7"))
    assert manager.dead == []
    await manager.receive(Milestone(job=ref, reached="epoch 7"), cluster="west")
    assert manager.dead == ["refused"]
""",
    ),
]


def golden(like: str, name: str, **body: object) -> Edit:
    """A golden message of a type, made from another one's."""
    made = json.loads((PROTO / "golden" / f"{like}.json").read_text().replace(like, name))
    made["headers"]["cloudEvents_schemaversion"] = SCHEMA_VERSION
    made["body"] = json.dumps({"job": json.loads(made["body"])["job"], **body}, separators=(",", ":"))
    return Edit(f"proto/golden/{name}.json", json.dumps(made, indent=2))


BY_HAND = [
    golden("suspend", "checkpoint", spec_version=3, path="/data"),
    golden("status", "milestone", reached="epoch 7"),
    Edit(
        "proto/README.md",
        "| `checkpoint` | down | control | |\n| `milestone` | up | status | |\n",
        after="| type | direction | lane | says |\n|---|---|---|---|\n",
    ),
]
EDITS = [*TYPES, *HANDLED, *BY_HAND, *ROWS]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_a_message_is_added_by_the_recipe(checkout: Checkout) -> None:
    checkout.edit(EDITS)
    checkout.run("proto/generate.py")
    checkout.run("-m", "pytest", "-q", "-p", "no:cacheprovider", *EVERY_MESSAGE, *NEW_TESTS)


def test_the_recipe_names_everything_that_is_touched() -> None:
    assert unnamed((edit for edit in EDITS if edit.path not in NEW_TESTS), recipe("Add a message")) == []
