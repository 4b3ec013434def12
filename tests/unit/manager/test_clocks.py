"""A cluster whose clock differs says so, once, and none of its messages is a dead letter for it."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from slicebus.ambient.lasting_failures import LastingFailures, Patience
from slicebus.decisions.commands import Command, Emit, Forget, Patch, Remember
from slicebus.kube.failures import error_of
from slicebus.kube.resources import WORKERCLUSTERS
from slicebus.manager.decide.cluster import clocks
from slicebus.manager.state.tables import ManagerTable
from slicebus.proto.envelope import Envelope
from slicebus.proto.epochs import epoch_at
from slicebus.proto.errors import ForbiddenError, SlicebusError, WebhookError
from slicebus.proto.messages import Heartbeat, Resync
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.api.conditions import conditions_of
from unit.manager.message_router import Manager
from unit.manager.objects import an_envelope
from unit.manager.test_inbox import HELLO, request
from unit.manager.test_refused_writes import refusing

Manifest = dict[str, Any]
NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
MOST_S = 300.0
PLAIN: Manifest = {"metadata": {"name": "east", "uid": "u", "resourceVersion": "1"}}


def text(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class World:
    """A WorkerCluster, and what its messages say of its clock."""

    def __init__(self) -> None:
        self.cluster = PLAIN
        self.late: tuple[str, str] | None = None
        self.events: list[str] = []

    def hear(self, sent: datetime | str, now: datetime = NOW, *, epoch: int = 1) -> list[Command]:
        envelope: Envelope = msgspec.structs.replace(
            an_envelope(epoch=epoch), time=sent if isinstance(sent, str) else text(sent)
        )
        commands = clocks.note(
            self.cluster, envelope, late_before=self.late, most_s=MOST_S, now=now.isoformat().replace("+00:00", "Z")
        )
        for command in commands:
            match command:
                case Patch(body=body):
                    assert isinstance(body, dict)
                    self.cluster = merge_patch(self.cluster, body)
                case Emit(reason=reason):
                    self.events.append(reason)
                case Remember(table=ManagerTable.LATE, value=value):
                    self.late = value
                case Forget():
                    self.late = None
        return commands

    @property
    def shown(self) -> tuple[str, str] | None:
        found = [(c["status"], c["reason"]) for c in conditions_of(self.cluster) if c["type"] == clocks.CLOCK_SKEW]
        return found[0] if found else None


def after(minutes: float) -> datetime:
    return NOW + timedelta(minutes=minutes)


@pytest.mark.parametrize("minutes", [-5, -1, 0, 1, 5])
def test_clocks_that_differ_by_no_more_than_they_may_are_no_news(minutes: float) -> None:
    world = World()
    for beat in range(3):
        assert world.hear(after(minutes + beat), after(beat)) == []


def test_a_clock_that_is_ahead_is_said_once_and_when_it_is_right_again() -> None:
    world = World()
    for beat in range(9):
        world.hear(after(15 + beat * 1.01), after(beat))
    assert world.shown == ("True", clocks.AHEAD)
    assert world.events == [clocks.AHEAD]
    [condition] = conditions_of(world.cluster)
    assert "clock of east is 15 minutes ahead" in condition["message"]
    world.hear(after(10), after(10))
    assert world.shown == ("False", "InStep")
    assert world.events == [clocks.AHEAD, "InStep"]
    assert world.hear(after(11), after(11)) == []


def test_a_clock_that_is_behind_is_said_once() -> None:
    world = World()
    for beat in range(9):
        world.hear(after(-15 + beat / 6), after(beat / 6))
    assert world.shown == ("True", clocks.BEHIND)
    assert world.events == [clocks.BEHIND]
    world.hear(after(2), after(2))
    assert (world.shown, world.late) == (("False", "InStep"), None)


def test_messages_that_have_waited_in_the_broker_show_no_clock() -> None:
    world = World()
    for beat in range(90):
        world.hear(after(-15 + beat / 6), after(beat / 6000))
    assert world.shown is None
    world.hear(after(1), after(1))
    assert world.late is None


def test_a_message_twice_shows_no_clock() -> None:
    world = World()
    world.hear(after(-15), after(0))
    world.hear(after(-15), after(1))
    assert world.shown is None


def test_an_epoch_that_a_wrong_clock_has_left_is_said() -> None:
    world = World()
    world.hear(NOW, NOW, epoch=epoch_at(after(15)))
    assert world.shown == ("True", clocks.AHEAD)


def test_the_highest_epoch_is_said_as_one_that_is_ahead() -> None:
    world = World()
    world.hear(NOW, NOW, epoch=10**15 - 1)
    assert world.shown == ("True", clocks.AHEAD)


@pytest.mark.parametrize("sent", ["", "yesterday", "2026-05-01T12:00:00", "9999-99-99T00:00:00Z"])
def test_a_time_that_nobody_can_read_shows_nothing(sent: str) -> None:
    assert World().hear(sent) == []


async def test_a_cluster_that_is_ahead_says_so_and_has_no_dead_letters(manager: Manager) -> None:
    """A heartbeat every ten seconds was a dead letter every ten seconds."""
    ref = await manager.given_job()
    ahead = datetime.now(UTC) + timedelta(minutes=15)
    for message in (HELLO, Heartbeat(), Heartbeat(), request(ref)):
        wire = manager.wire(message, epoch=epoch_at(ahead))
        await manager.again(msgspec.structs.replace(wire, headers=wire.headers | {"cloudEvents_time": text(ahead)}))
    assert manager.dead == []
    east = await manager.client.get(WORKERCLUSTERS, "east")
    assert [(c["type"], c["status"]) for c in conditions_of(east)] == [(clocks.CLOCK_SKEW, "True")]
    assert [reason for reason, _ in manager.events] == [clocks.AHEAD]
    assert manager.inbox.last_message_at == {}
    await manager.receive(Heartbeat(), epoch=epoch_at(datetime.now(UTC)))
    assert any(isinstance(answer, Resync) for answer in manager.answers), "it reports everything anew"
    shown = {c["type"]: c["status"] for c in conditions_of(await manager.client.get(WORKERCLUSTERS, "east"))}
    assert shown[clocks.CLOCK_SKEW] == "False"


UNSHOWN = [ForbiddenError("403"), WebhookError("500: failed calling webhook"), error_of(500, b"{}")]


@pytest.mark.parametrize("error", UNSHOWN, ids=lambda error: type(error).__name__)
async def test_messages_from_ahead_are_settled_although_nobody_may_show_that(
    manager: Manager, monkeypatch: pytest.MonkeyPatch, error: SlicebusError
) -> None:
    monkeypatch.setattr(manager.inbox._held, "_failures", LastingFailures(Patience(webhook_s=0.1, server_s=0.1)))
    ahead = datetime.now(UTC) + timedelta(minutes=15)
    with refusing(manager, error, (WORKERCLUSTERS, "status")):
        async with asyncio.timeout(5):
            for message in (HELLO, Heartbeat()):
                wire = manager.wire(message, epoch=epoch_at(ahead))
                headers = wire.headers | {"cloudEvents_time": text(ahead)}
                await manager.again(msgspec.structs.replace(wire, headers=headers))
    assert manager.dead == []
    assert manager.inbox.refused_clusters == {"east": str(error)}, "the Lease says so"
