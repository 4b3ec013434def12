"""How the manager counts dead letters, and when it warns about them."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from slicebus.bus.contract import QueueDepth
from slicebus.bus.dead_letters.letters import DeadLetter
from slicebus.decisions.commands import Command, Emit
from slicebus.kube.resources import WORKERCLUSTERS
from slicebus.manager.act.dead_letter_watch import DeadLetterWatch
from slicebus.manager.decide.messages.dead_letters import (
    QUOTA,
    DeadLetterQuota,
    LetterUse,
    age_s,
    alerts,
    labels,
    newly_dead,
)
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import DeadReason, ForbiddenError
from slicebus.proto.topology import AGENT_DEAD, DEAD, manager_topology
from slicebus.sandbox.bus import MemoryBroker, MemoryBus
from unit.bus.letters import NOON, dead, given_up, letter, wire
from unit.kube.loop_time import LoopTime

TEN = timedelta(minutes=10)


def cluster(name: str) -> dict[str, Any]:
    return {
        "apiVersion": WORKERCLUSTERS.api_version,
        "kind": WORKERCLUSTERS.kind,
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "1"},
    }


EAST, WEST = cluster("east"), cluster("west")
OLD = letter(minutes_ago=12)
YOUNG = letter(minutes_ago=2, reason=DeadReason.MALFORMED)


@pytest.mark.parametrize(
    ("letters", "warned_at", "expected"),
    [
        pytest.param([], {}, [], id="none"),
        pytest.param([YOUNG], {}, [], id="young"),
        pytest.param([OLD, YOUNG], {}, ["east"], id="the oldest is old"),
        pytest.param([OLD], {"east": NOON - timedelta(minutes=9)}, [], id="warned about lately"),
        pytest.param([OLD], {"east": NOON - TEN}, ["east"], id="warned about long ago"),
        pytest.param([OLD], {"west": NOON}, ["east"], id="another was warned about"),
        pytest.param([letter("nowhere.status", minutes_ago=99)], {}, [], id="no such cluster"),
        pytest.param([OLD, letter("west.status", minutes_ago=99)], {}, ["east", "west"], id="both"),
    ],
)
def test_clusters_are_warned_about(
    letters: list[DeadLetter], warned_at: dict[str, datetime], expected: list[str]
) -> None:
    warnings = alerts(letters, [EAST, WEST], warned_at, now=NOON, alert=TEN)
    assert [event.regarding["metadata"]["name"] for event in warnings] == expected
    assert all(event.warning and event.reason == "DeadLetters" for event in warnings)


def test_the_warning_names_reasons_and_command() -> None:
    [event] = alerts([OLD, YOUNG], [EAST], {}, now=NOON, alert=TEN)
    assert event.note == (
        "Dead letters: 1 malformed, 1 unknown-cluster; the oldest for 12 min. See: slicebus dead list --cluster east"
    )


def test_the_age_is_the_oldests() -> None:
    assert age_s([YOUNG, OLD], NOON) == 720
    assert age_s([], NOON) == 0
    assert age_s([letter(minutes_ago=-5)], NOON) == 0


def test_only_what_others_have_dead_lettered_since_is_newly_dead() -> None:
    by_agent = DeadLetter.from_message(dead(by="east"))
    by_broker = DeadLetter.from_message(given_up(wire()))
    order_by_broker = DeadLetter.from_message(given_up(wire("east.relabel", user="manager")))
    letters = [OLD, by_agent, by_broker, order_by_broker]
    assert newly_dead(letters, None, manager="manager") == []
    assert newly_dead(letters, [], manager="manager") == [by_agent, by_broker, order_by_broker]
    assert newly_dead(letters, [by_agent], manager="manager") == [by_broker, order_by_broker]


def test_labels_are_those_that_exist() -> None:
    assert labels(OLD, {"east"}) == ("east", "scale-request", "unknown-cluster")
    assert labels(letter("made.up"), {"east"}) == ("other", "other", "unknown-cluster")


class Bus(MemoryBus):
    """Refuses to say how many messages a queue has as long as a test wants it to."""

    refuses: Exception | None = None

    async def depth(self, queue: str) -> QueueDepth:
        if self.refuses is not None:
            raise self.refuses
        return await super().depth(queue)


class Surroundings:
    """A watch over a broker of this process."""

    def __init__(self) -> None:
        self.broker = MemoryBroker(clock=lambda: NOON)
        self.broker.declare(manager_topology())
        self.store = ManagerStore()
        for manifest in (EAST, WEST):
            self.store.clusters.put(manifest)
        self.registry = CollectorRegistry()
        self.commands: list[Command] = []
        self.now = NOON
        self.bus = Bus(self.broker, user="manager")
        self.watch = DeadLetterWatch(
            bus=self.bus,
            store=self.store,
            executor=self,  # type: ignore[arg-type]
            registry=self.registry,
            now=lambda: self.now,
            alert_s=600,
        )

    async def run(self, commands: Sequence[Command]) -> None:
        """As an executor."""
        self.commands += commands

    def metric(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"slicebus_{name}", labels)

    async def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        await asyncio.sleep(seconds)


@pytest.fixture
async def around(jumping: LoopTime) -> AsyncIterator[Surroundings]:
    made = Surroundings()
    task = asyncio.create_task(made.watch.run())
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_it_measures_and_warns_once_a_period(around: Surroundings) -> None:
    await around.later(1)
    assert (around.metric("dead_letters"), around.metric("dead_letter_oldest_seconds")) == (0, 0)
    around.broker.publish(DEAD, dead(by="east"))
    await around.later(30)
    assert around.metric("dead_letters") == 1
    counted = {"cluster": "east", "type": "scale-request", "reason": "unknown-cluster"}
    assert around.metric("dead_lettered_total", **counted) == 1
    assert around.commands == []
    await around.later(600)
    assert around.metric("dead_letter_oldest_seconds") == pytest.approx(631, abs=16)
    assert len(around.commands) == 1
    await around.later(500)
    assert len(around.commands) == 1
    await around.later(200)
    assert len(around.commands) == 2
    assert isinstance(around.commands[0], Emit)
    assert around.metric("dead_lettered_total", **counted) == 1
    around.broker.queues[DEAD].ready.clear()
    await around.later(30)
    assert (around.metric("dead_letters"), around.metric("dead_letter_oldest_seconds")) == (0, 0)


async def test_a_right_to_them_that_is_taken_away_ends_nothing(around: Surroundings) -> None:
    around.broker.publish(DEAD, dead())
    around.bus.refuses = ForbiddenError("ACCESS_REFUSED")
    await around.later(60)
    assert around.metric("dead_letters") == 0
    around.bus.refuses = None
    await around.later(60)
    assert around.metric("dead_letters") == 1


async def test_another_browser_does_not_make_the_queue_empty(around: Surroundings) -> None:
    around.broker.publish(DEAD, dead())
    await around.later(30)
    async with MemoryBus(around.broker, user="manager").subscribe(DEAD, prefetch=5) as subscription:
        await anext(aiter(subscription))
        await around.later(60)
        assert around.metric("dead_letters") == 1


def quota_of(letters: int = 3, bytes: int = 1000) -> DeadLetterQuota:
    return DeadLetterQuota(LetterUse(letters, bytes))


def test_each_cluster_has_a_quota_of_its_own() -> None:
    quota = quota_of()
    assert [quota.take("thief", 10, at_s=0.0) for _ in range(5)] == [True, True, True, False, False]
    assert quota.take("east", 10, at_s=0.0)
    assert quota.dropped == {"thief": 2}


def test_large_letters_use_it_up_sooner() -> None:
    quota = quota_of()
    assert [quota.take("thief", 600, at_s=0.0) for _ in range(2)] == [True, False]


def test_what_was_settled_makes_room() -> None:
    quota = quota_of()
    quota.survey({"east": LetterUse(3, 30)}, at_s=1.0)
    assert not quota.take("east", 10, at_s=1.0)
    quota.survey({"east": LetterUse(1, 10)}, at_s=2.0)
    assert [quota.take("east", 10, at_s=2.0) for _ in range(3)] == [True, True, False]


def test_without_surveys_the_quota_is_that_of_an_hour() -> None:
    quota = quota_of()
    for at_s in (0.0, 3700.0):
        assert [quota.take("east", 10, at_s=at_s) for _ in range(4)] == [True, True, True, False]


def given(key: str) -> Any:
    return SimpleNamespace(message=WireMessage(routing_key=key, body=b"x", headers={}))


async def test_what_is_not_kept_is_counted_and_told_on_its_cluster(around: Surroundings) -> None:
    kept = [around.watch.keeps(given("east.status")) for _ in range(QUOTA.letters + 2)]
    assert kept.count(False) == 2
    assert around.watch.keeps(given("west.status"))
    assert around.metric("dead_letters_dropped_total", cluster="east") == 2
    await around.later(16)
    [event] = [command for command in around.commands if isinstance(command, Emit)]
    assert (event.regarding["metadata"]["name"], event.reason) == ("east", "DeadLettersDropped")
    assert event.note.startswith("2 messages that could not be handled were not kept")
    await around.later(60)
    assert len(around.commands) == 1, "it is told again when there are more"


async def test_what_lies_in_the_managers_queue_counts_and_not_what_agents_dead_letter(around: Surroundings) -> None:
    for _ in range(QUOTA.letters):
        around.broker.publish(AGENT_DEAD, dead(by="east"))
    await around.later(700)
    assert around.watch.keeps(given("east.status"))
    for _ in range(QUOTA.letters):
        around.broker.publish(DEAD, dead())
    await around.later(700)
    assert not around.watch.keeps(given("east.status"))
