"""The least rights on the broker: what each user may name, by RabbitMQ's way of matching."""

import re

import pytest

from slicebus.proto.messages import MESSAGES, ClusterName, ClusterUid, Direction, Lane
from slicebus.proto.rights import (
    Action,
    BrokerPermission,
    Definitions,
    Member,
    TopicPermission,
    Use,
    Viewer,
    agent_uses,
    definitions,
    manager_uses,
    too_much,
)
from slicebus.proto.topology import (
    AGENT_DEAD,
    AGENT_DECISIONS,
    AGENT_JOURNAL,
    DEAD,
    DECISIONS,
    DOWN,
    JOURNAL,
    STRANGERS,
    UP,
    addressed,
    agent_queue,
    agent_topology,
    cluster_queue,
    cluster_topology,
    decisions_key,
    exchange_of,
    manager_queue,
    manager_topology,
    routing_key,
    shard_exchange,
)

UID = ClusterUid("3f1c9a3e-0b7d-4e0c-9a57-2f4f5d6c7b8a")
EAST, EAST_2 = ClusterName("east"), ClusterName("east-2")
FLEET = definitions([Member(EAST, "east", UID), Member(EAST_2, "agent of east-2")])
ALL = FLEET.topology


def may(user: str, use: Use, given: Definitions = FLEET) -> bool:
    """As RabbitMQ decides: an expression matches anywhere in a name."""
    [permission] = [one for one in given.rights.permissions if one.user == user]
    if not re.search(getattr(permission, use.action), use.name):
        return False
    if use.key is None:
        return True
    topics = [one for one in given.rights.topic_permissions if (one.user, one.exchange) == (user, use.name)]
    return not topics or bool(re.search(getattr(topics[0], use.action), use.key))


def test_the_manager_may_make_the_whole_topology() -> None:
    for name in (*(exchange.name for exchange in ALL.exchanges), *(queue.name for queue in ALL.queues)):
        assert all(may("manager", Use(action, name)) for action in Action), name
    for binding in ALL.bindings:
        assert may("manager", Use(Action.READ, binding.exchange, binding.routing_key)), binding


def test_the_manager_may_publish_what_it_publishes() -> None:
    for message in MESSAGES.values():
        exchange = exchange_of(message.direction)
        uid = UID if message.direction is Direction.DOWN else None
        assert may("manager", Use(Action.WRITE, exchange, routing_key(EAST, message.type, uid))), "or send it again"
    assert all(may("manager", use) for use in manager_uses())
    assert may("manager", Use(Action.WRITE, DEAD, "anything that an agent sent"))
    assert not may("manager", Use(Action.WRITE, DECISIONS, decisions_key(EAST)))


def test_with_shards_the_manager_makes_and_uses_the_queues_of_all() -> None:
    given = definitions([Member(EAST, "east", UID)], shards=3)
    named = [*given.topology.exchanges, *given.topology.queues]
    for name in (each.name for each in named):
        assert all(may("manager", Use(action, name), given) for action in Action), name
    for binding in (*given.topology.bindings, *addressed(2, taken_by=2), *addressed(2, taken_by=0)):
        assert may("manager", Use(Action.READ, binding.exchange, binding.routing_key), given), binding
    assert all(may("manager", use, given) for use in manager_uses(3))
    assert {"slicebus.shard.2", "slicebus.manager.2.status"} <= {each.name for each in named}
    uses = [Use(Action.WRITE, shard_exchange(1), routing_key(EAST, "hello"))]
    uses += [Use(action, manager_queue(Lane.CONTROL, 1)) for action in Action]
    assert not any(may("east", use, given) for use in uses)
    topics = {(one.user, one.exchange) for one in given.rights.topic_permissions}
    assert topics == {(user, exchange.name) for user in given.users for exchange in given.topology.exchanges}


VIEWERS = definitions([Member(EAST, "east", UID)], shards=2, viewers=[Viewer("jane.doe@example"), Viewer("ann")])


def test_a_viewer_reads_the_journal_and_does_nothing_else() -> None:
    assert VIEWERS.users == ("manager", "east", "ann", "jane.doe@example")
    names = {each.name for each in (*VIEWERS.topology.exchanges, *VIEWERS.topology.queues)}
    names |= {"amq.default", "amq.topic", "slicebus.journal.more", "x.slicebus.journal", "slicebus.agent-journals"}
    for user in ("ann", "jane.doe@example"):
        allowed = {Use(action, name) for name in names for action in Action if may(user, Use(action, name), VIEWERS)}
        assert allowed == {Use(Action.READ, JOURNAL), Use(Action.READ, AGENT_JOURNAL)}
    assert {one.user for one in VIEWERS.rights.limits} == set(VIEWERS.users), "everybody's connections are bounded"


@pytest.mark.parametrize("name", ["", "a b", "a/b", "../a", "-x", "a:b", "a=b", "a\n"])
def test_a_viewers_name_is_one_word_and_a_files(name: str) -> None:
    with pytest.raises(ValueError, match="not a viewer"):
        Viewer(name)


@pytest.mark.parametrize("name", ["east", "manager", "twice"])
def test_a_viewer_has_a_user_of_its_own(name: str) -> None:
    viewers = [Viewer(name), *([Viewer(name)] if name == "twice" else [])]
    with pytest.raises(ValueError, match="every viewer a user"):
        definitions([Member(EAST, "east", UID)], viewers=viewers)


def test_one_shard_needs_nothing_more() -> None:
    assert definitions([Member(EAST, "east", UID)], shards=1) == definitions([Member(EAST, "east", UID)])
    assert not any("shard" in each.name for each in (*ALL.exchanges, *ALL.queues))


@pytest.mark.parametrize(
    "name", ["", "amq.topic", "other", "slicebus", "slicebus.other", "slicebus.upper", "slicebus.agent.a.b.c.control"]
)
def test_the_manager_may_use_nothing_else(name: str) -> None:
    assert not any(may("manager", Use(action, name)) for action in Action)


@pytest.mark.parametrize(("cluster", "user"), [(EAST, "east"), (EAST_2, "agent of east-2")])
def test_an_agent_may_do_what_it_does(cluster: ClusterName, user: str) -> None:
    for uses in (agent_uses(cluster, UID), agent_uses(cluster, ClusterUid("another")), agent_uses(cluster)):
        assert all(may(user, use) for use in uses)
    for message in MESSAGES.values():
        is_up = message.direction is Direction.UP
        assert may(user, Use(Action.WRITE, exchange_of(message.direction), routing_key(cluster, message.type))) is is_up
        assert may(user, Use(Action.WRITE, AGENT_DEAD, routing_key(cluster, message.type, UID)))


FORBIDDEN = {
    "read the journal": Use(Action.READ, JOURNAL),
    "read the agents' journal": Use(Action.READ, AGENT_JOURNAL),
    "delete the journal": Use(Action.CONFIGURE, JOURNAL),
    "read the dead letters": Use(Action.READ, DEAD),
    "bind to the orders": Use(Action.READ, DOWN),
    "bind to the reports": Use(Action.READ, UP),
    "publish an order": Use(Action.WRITE, DOWN, f"east.delete.{UID}"),
    "publish an order for another": Use(Action.WRITE, DOWN, f"west.delete.{UID}"),
    "delete an exchange": Use(Action.CONFIGURE, UP),
    "consume the manager's queue": Use(Action.READ, manager_queue(Lane.CONTROL)),
    "bind the manager's queue": Use(Action.WRITE, manager_queue(Lane.CONTROL)),
    "consume another's queue": Use(Action.READ, agent_queue(EAST_2, Lane.CONTROL, UID)),
    "consume a queue beside its own": Use(Action.READ, "slicebus.agent.east.control.more"),
    "make a queue or exchange of its own name": Use(Action.CONFIGURE, agent_queue(EAST, Lane.CONTROL, UID)),
    "bind its own queue": Use(Action.WRITE, agent_queue(EAST, Lane.CONTROL, UID)),
    "make anything": Use(Action.CONFIGURE, "mine"),
    "publish to a queue": Use(Action.WRITE, "amq.default"),
    "speak for another": Use(Action.WRITE, UP, "west.hello"),
    "speak for one with a longer name": Use(Action.WRITE, UP, "east-2.hello"),
    "speak for one with a name that ends so": Use(Action.WRITE, UP, "north-east.hello"),
    "speak for the manager": Use(Action.WRITE, DECISIONS, "manager.decisions"),
    "record as the manager": Use(Action.WRITE, DECISIONS, "east.decisions"),
    "record another's": Use(Action.WRITE, AGENT_DECISIONS, "east-2.decisions"),
    "record something else": Use(Action.WRITE, AGENT_DECISIONS, "east.hello"),
    "dead-letter another's": Use(Action.WRITE, AGENT_DEAD, "east-2.hello"),
    "fill the manager's dead letters": Use(Action.WRITE, DEAD, "east.hello"),
    "speak as a stranger": Use(Action.WRITE, STRANGERS, "east.hello"),
    "consume what it has sent": Use(Action.READ, cluster_queue(EAST, Lane.CONTROL)),
    "purge what another has sent": Use(Action.CONFIGURE, cluster_queue(EAST_2, Lane.CONTROL)),
}


@pytest.mark.parametrize("use", FORBIDDEN.values(), ids=FORBIDDEN.keys())
def test_an_agent_may_not(use: Use) -> None:
    assert not may("east", use)


def test_every_user_has_a_topic_permission_on_every_exchange() -> None:
    given = {(one.user, one.exchange) for one in FLEET.rights.topic_permissions}
    assert given == {(user, exchange.name) for user in FLEET.users for exchange in ALL.exchanges}


@pytest.mark.parametrize(("user", "cluster"), [("manager", None), ("east", EAST), ("agent of east-2", EAST_2)])
def test_what_the_doctor_tries_is_refused_by_these_rights_and_allowed_by_broad_ones(
    user: str, cluster: ClusterName | None
) -> None:
    tried = too_much(cluster)
    assert not any(may(user, use) for use in tried)
    broad = (BrokerPermission(user, ".*", ".*", ".*"),)
    plain = Definitions(FLEET.users, FLEET.rights.__class__(broad, (), ()), (), 1, ALL)
    assert all(may(user, use, plain) for use in tried)


def test_a_topic_permission_alone_that_is_missing_shows() -> None:
    without: tuple[TopicPermission, ...] = tuple(one for one in FLEET.rights.topic_permissions if one.exchange != UP)
    rights = FLEET.rights.__class__(FLEET.rights.permissions, without, ())
    given = Definitions(FLEET.users, rights, (), 1, ALL)
    assert [str(use) for use in too_much(EAST) if may("east", use, given)] == [
        "publish slicebus-probe.hello to slicebus.up",
        "publish east-2.hello to slicebus.up",
        "publish manager.decisions to slicebus.up",
    ]


def test_bounds_are_for_the_queues_that_somebody_else_fills() -> None:
    def bounded(name: str) -> list[str]:
        return [policy.name for policy in FLEET.policies if re.search(policy.pattern, name)]

    names = [queue.name for queue in ALL.queues]
    assert {name: bounded(name) for name in names if bounded(name)} == {
        DEAD: ["slicebus-dead-letters"],
        AGENT_DEAD: ["slicebus-agents-dead-letters"],
        **{name: ["slicebus-clusters"] for name in names if name.startswith("slicebus.cluster.")},
        **{name: ["slicebus-manager"] for name in names if name.startswith("slicebus.manager.")},
        **{name: ["slicebus-agents"] for name in names if name.startswith("slicebus.agent.")},
    }
    dropping = [policy.name for policy in FLEET.policies if policy.definition["overflow"] != "reject-publish"]
    assert dropping == ["slicebus-agents-dead-letters"]
    lanes = [policy.definition for policy in FLEET.policies if policy.name in ("slicebus-clusters", "slicebus-manager")]
    assert all(lane["max-length"] and lane["max-length-bytes"] for lane in lanes)
    assert FLEET.max_queues > len(names)


def test_the_limit_of_queues_is_the_same_before_a_cluster_has_said_its_uid() -> None:
    before = definitions([Member(EAST, "east"), Member(EAST_2, "agent of east-2")])
    assert before.max_queues == FLEET.max_queues


def test_the_topology_is_the_managers_and_every_clusters() -> None:
    assert manager_topology() + cluster_topology(EAST) + agent_topology(EAST, UID) + cluster_topology(EAST_2) == ALL


def test_the_manager_has_channels_for_each_cluster() -> None:
    [limits] = [limit for limit in FLEET.rights.limits if limit.user == "manager"]
    [alone] = [limit for limit in definitions([]).rights.limits if limit.user == "manager"]
    assert limits.channels == alone.channels + 2 * 2


@pytest.mark.parametrize(
    "members",
    [
        [("east", "one"), ("east", "other")],
        [("east", "one"), ("west", "one")],
        [("east", "manager")],
    ],
    ids=["two of one name", "two of one user", "the manager's user"],
)
def test_a_user_speaks_for_one_cluster(members: list[tuple[str, str]]) -> None:
    with pytest.raises(ValueError, match="of its own"):
        definitions([Member(ClusterName(name), user) for name, user in members])


@pytest.mark.parametrize("name", ["", "East", "a.b", ".*", "a|b", "east\n", "-a"])
def test_a_name_is_no_expression(name: str) -> None:
    with pytest.raises(ValueError, match="is no name of a cluster: use 1 to 63 of a-z, 0-9 and -"):
        Member(ClusterName(name), "u")
