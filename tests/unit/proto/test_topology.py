"""Where messages go: every type has one queue on its way, and no queue loses one."""

import fnmatch

import pytest

from slicebus.proto.messages import MESSAGES, Direction, JobMessage, Lane, Message
from slicebus.proto.rights import AGENT_EXCHANGES
from slicebus.proto.topology import (
    AGENT_DEAD,
    AGENT_JOURNAL,
    DEAD,
    DEAD_LETTERS,
    DECISIONS,
    DOWN,
    JOURNAL,
    JOURNALS,
    STRANGERS,
    UP,
    Binding,
    Exchange,
    Queue,
    Topology,
    addressed,
    agent_queue,
    agent_topology,
    cluster_queue,
    cluster_topology,
    common_topology,
    exchange_of,
    journal_queues,
    manager_queue,
    manager_topology,
    of_first_shard,
    queues_of_cluster,
    routing_key,
    words,
)

EAST, WEST = (agent_topology(name, "uid-1") + cluster_topology(name) for name in ("east", "west"))
FLEET = manager_topology() + EAST + WEST
every_message = pytest.mark.parametrize("message", MESSAGES.values(), ids=list(MESSAGES))


def queues_of(topology: Topology, exchange: str, key: str) -> list[str]:
    """Where a topic exchange puts a message; the keys have two words, and no pattern here has `#` beside a word."""
    return [
        binding.queue
        for binding in topology.bindings
        if binding.exchange == exchange and fnmatch.fnmatchcase(key, binding.routing_key.replace("#", "*"))
    ]


@every_message
def test_a_message_lands_in_its_lane_and_in_the_journal_and_nowhere_else(message: type[Message]) -> None:
    up = message.direction is Direction.UP
    lane = cluster_queue("east", message.lane) if up else agent_queue("east", message.lane, "uid-1")
    key, journal = routing_key("east", message.type, None if up else "uid-1"), AGENT_JOURNAL if up else JOURNAL
    assert sorted(queues_of(FLEET, exchange_of(message.direction), key)) == sorted([journal, lane])


@every_message
def test_what_a_stranger_says_lands_in_a_lane_of_strangers_and_in_the_journal_of_agents(message: type[Message]) -> None:
    if message.direction is Direction.UP:
        key = routing_key("north", message.type)
        assert queues_of(FLEET, UP, key) == []
        [up] = [exchange for exchange in FLEET.exchanges if exchange.name == UP]
        assert up.arguments == {"alternate-exchange": STRANGERS}
        assert sorted(queues_of(FLEET, STRANGERS, key)) == sorted([AGENT_JOURNAL, manager_queue(message.lane)])


def test_nothing_that_an_agent_may_publish_comes_into_the_managers_journal() -> None:
    sources = {binding.exchange for binding in FLEET.bindings if binding.queue == JOURNAL}
    assert sources == {DOWN, DECISIONS}
    assert not sources & set(AGENT_EXCHANGES)


def test_an_agent_gets_nothing_of_another_cluster() -> None:
    for message in MESSAGES.values():
        assert agent_queue("west", message.lane, "uid-1") not in queues_of(
            FLEET, DOWN, routing_key("east", message.type, "uid-1")
        )


def test_exchange_of_a_direction() -> None:
    assert (exchange_of(Direction.UP), exchange_of(Direction.DOWN)) == (UP, DOWN)


@pytest.mark.parametrize("topology", [manager_topology(), FLEET], ids=["manager", "fleet"])
def test_whatever_a_binding_names_is_declared(topology: Topology) -> None:
    exchanges = {exchange.name for exchange in topology.exchanges}
    queues = {queue.name for queue in topology.queues}
    assert {binding.exchange for binding in topology.bindings} <= exchanges
    assert {binding.queue for binding in topology.bindings} <= queues


@pytest.mark.parametrize("topology", [manager_topology(), EAST], ids=["manager", "agent"])
def test_the_dead_letter_queue_is_declared_before_what_dead_letters_into_it(topology: Topology) -> None:
    assert topology.exchanges[0].name == DEAD
    assert topology.queues[0].name == DEAD


@pytest.mark.parametrize("queue", FLEET.queues[4:], ids=lambda queue: queue.name)
def test_a_lane_keeps_order_and_drops_nothing(queue: Queue) -> None:
    assert queue.arguments == {
        "x-queue-type": "quorum",
        "x-delivery-limit": 20,
        "x-dead-letter-exchange": AGENT_DEAD if queue.name.startswith("slicebus.agent.") else DEAD,
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
        "x-single-active-consumer": True,
    }


@pytest.mark.parametrize("name", DEAD_LETTERS)
def test_a_dead_letter_queue_has_no_delivery_limit(name: str) -> None:
    dead = next(queue for queue in FLEET.queues if queue.name == name)
    assert dead.arguments == {"x-queue-type": "quorum", "x-delivery-limit": 2**31 - 1}
    assert queues_of(FLEET, name, "east.status") == [name]


@pytest.mark.parametrize("name", JOURNALS)
def test_a_journal_is_a_bounded_stream(name: str) -> None:
    journal = next(queue for queue in FLEET.queues if queue.name == name)
    assert journal.arguments["x-queue-type"] == "stream"
    assert {"x-max-age", "x-max-length-bytes"} <= set(journal.arguments)
    assert journal.kept, "one that is there cannot be given other limits"


@pytest.mark.parametrize(("gib", "segment"), [(1, 2**26), (2, 2**27), (100, 500_000_000)])
def test_the_journal_is_cut_off_by_small_parts(gib: int, segment: int) -> None:
    for journal in journal_queues(max_age="30D", max_bytes=gib * 2**30):
        assert journal.arguments == {
            "x-queue-type": "stream",
            "x-max-age": "30D",
            "x-max-length-bytes": gib * 2**30,
            "x-stream-max-segment-size-bytes": segment,
        }


def test_a_sum_has_everything_once() -> None:
    assert manager_topology() + common_topology() == manager_topology()
    assert FLEET + FLEET == FLEET


def test_a_sum_keeps_the_order() -> None:
    first = Topology((Exchange("a"),), (Queue("q", {}),), (Binding("a", "q", "#"),))
    second = Topology((Exchange("b"), Exchange("a")), (Queue("r", {}), Queue("q", {})), (Binding("b", "r", "#"),))
    total = first + second
    assert [exchange.name for exchange in total.exchanges] == ["a", "b"]
    assert [queue.name for queue in total.queues] == ["q", "r"]
    assert [binding.queue for binding in total.bindings] == ["q", "r"]


def test_names_of_queues() -> None:
    assert [manager_queue(lane) for lane in Lane] == ["slicebus.manager.control", "slicebus.manager.status"]
    assert [agent_queue("east", lane, "uid-1") for lane in Lane] == [
        "slicebus.agent.east.uid-1.control",
        "slicebus.agent.east.uid-1.status",
    ]
    assert [cluster_queue("east", lane) for lane in Lane] == [
        "slicebus.cluster.east.control",
        "slicebus.cluster.east.status",
    ]


def test_the_queues_of_a_cluster_are_those_of_its_name_alone() -> None:
    names = [queue.name for queue in FLEET.queues]
    more = [cluster_queue("east-2", lane) for lane in Lane] + [agent_queue("east-2", lane, "uid-1") for lane in Lane]
    assert queues_of_cluster("east", [*names, *more]) == [queue.name for queue in EAST.queues if ".east." in queue.name]


@pytest.mark.parametrize(
    ("queue", "expected"),
    [
        ("slicebus.manager.2.control", "slicebus.manager.control"),
        ("slicebus.cluster.east.status", "slicebus.manager.status"),
        ("slicebus.manager.status", "slicebus.manager.status"),
        ("slicebus.agent.east.uid-1.control", "slicebus.agent.east.uid-1.control"),
    ],
)
def test_the_first_shards_queue_stands_for_those_of_clusters_and_shards(queue: str, expected: str) -> None:
    assert of_first_shard(queue) == expected


def test_two_clusters_of_one_name_have_queues_of_their_own() -> None:
    one, other = agent_topology("east", "uid-1"), agent_topology("east", "uid-2")
    for message in (message for message in MESSAGES.values() if message.direction is Direction.DOWN):
        own = agent_queue("east", message.lane, "uid-1")
        assert queues_of(one + other, DOWN, routing_key("east", message.type, "uid-1")) == [JOURNAL, own]


@every_message
def test_what_an_agent_addresses_to_a_shard_comes_there_and_to_the_journal(message: type[Message]) -> None:
    of_shards = (
        manager_topology(3)
        + cluster_topology("east")
        + Topology((), (), addressed(1, taken_by=1) + addressed(2, taken_by=0))
    )
    if message.direction is Direction.UP and issubclass(message, JobMessage):
        for shard, taken_by in ((1, 1), (2, 0)):
            found = queues_of(of_shards, UP, routing_key("east", message.type, shard))
            assert sorted(found) == sorted([AGENT_JOURNAL, manager_queue(message.lane, taken_by)])


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("east.workload-spec", ("east", "workload-spec", None)),
        ("east.workload-spec.uid-1", ("east", "workload-spec", "uid-1")),
        ("east.status.2", ("east", "status", "2")),
        ("east", ("east", "", None)),
        ("", ("", "", None)),
    ],
)
def test_the_words_of_a_key(key: str, expected: tuple[str, str, str | None]) -> None:
    assert words(key) == expected
