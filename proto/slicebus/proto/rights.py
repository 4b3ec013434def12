"""Makes the least rights on the broker from the topology, as data: users, permissions, bounds and limits.

RabbitMQ matches three regular expressions of a user (configure, write, read) with the name of a queue or an exchange,
whichever it is. A binding needs write on its destination and read on its source. Topic permissions are checked where a
message is published, and where a topic exchange is bound; a user without one on an exchange may use every key there.

So an agent creates and binds nothing (docs/decisions/0026). One that could write a name of its own could make an
exchange of that name, bind `slicebus.decisions` to it, and publish there under any key.
"""

import re
from collections.abc import Iterable
from enum import StrEnum

import msgspec

from slicebus.proto.messages import CLUSTER_NAME, CLUSTER_NAME_RULE, CLUSTER_UID, ClusterName, ClusterUid, Lane
from slicebus.proto.topology import (
    AGENT_DEAD,
    AGENT_DECISIONS,
    DEAD,
    DEAD_LETTERS,
    DECISIONS,
    DOWN,
    JOURNALS,
    MANAGER_KEY,
    STRANGERS,
    UP,
    Topology,
    agent_queue,
    agent_topology,
    cluster_queue,
    cluster_topology,
    decisions_key,
    manager_queue,
    manager_topology,
    routing_key,
    shard_exchanges,
)

EXCHANGES = (UP, DOWN, DEAD, DECISIONS, STRANGERS, AGENT_DEAD, AGENT_DECISIONS)
AGENT_EXCHANGES = (UP, AGENT_DEAD, AGENT_DECISIONS)
"""The exchanges that an agent publishes to."""
NOTHING = "^$"
"""The expression that RabbitMQ itself writes for no right. No queue, exchange or message of slicebus has an empty name
or key."""

DEAD_LETTER_BYTES = 1024**3
AGENT_DEAD_LETTER_BYTES = 256 * 1024**2
LANE_MESSAGES = 50_000
LANE_BYTES = 512 * 1024**2
"""What one cluster's messages may take in each lane while the manager is away, or slower than they come. Then its agent
is refused, and tries again."""
AGENT_QUEUE_BYTES = 1024**3
AGENT_QUEUE_EXPIRES_MS = 14 * 24 * 3600 * 1000
"""Without a consumer for this long, the queue of a cluster that has left is deleted. RabbitMQ takes 49 days at most."""
_PRIORITY = 10

_AGENT_LIMITS = (8, 64)
"""The connections and channels of an agent's user: for two replicas, two more while they are replaced, and commands. A
role has one connection, and a channel for each subscription, for publishing, and for each thing that it does at a
time."""
_MANAGER_LIMITS = (32, 512)
"""The same for the manager's user, with the commands of several people, who use it too."""
_VIEWER_LIMITS = (16, 64)
"""The same for a viewer, which several people may share. A command has one connection at a time."""
_CHANNELS_OF_A_CLUSTER = 2
"""One for a cluster's queues, and one more while the connection is replaced."""
_QUEUES_BESIDE = 100
"""The queues that the vhost may have beside the topology: those of a repinned cluster stay until they expire."""
_QUEUES_OF_A_CLUSTER = 3 * len(Lane)
"""Its own, those of its agent, and as many again. They count before the agent has said its UID: then the number would
be another one, and what was loaded before would be wrong."""

_CLUSTER, _UID = (text.removeprefix("^").removesuffix("$") for text in (CLUSTER_NAME, CLUSTER_UID))
_LANES = "|".join(Lane)
_TYPE = "[a-z-]+"
_VIEWER = r"[A-Za-z0-9][A-Za-z0-9._@-]*"
_PROBE = "slicebus-probe"
"""A name that no queue or exchange has."""
_NO_CLUSTER = ClusterUid(_PROBE)


class Member(msgspec.Struct, frozen=True):
    """A worker cluster on the broker."""

    name: ClusterName
    user: str
    """The broker user of its agent."""
    uid: ClusterUid | None = None
    """The UID in the names of its queues; None until its agent has said it."""

    def __post_init__(self) -> None:
        """Raises ValueError for a name that is no DNS label: it goes into regular expressions."""
        if not re.fullmatch(CLUSTER_NAME, self.name):
            raise ValueError(f"{self.name!r} is no name of a cluster: {CLUSTER_NAME_RULE}")
        if self.uid and not re.fullmatch(CLUSTER_UID, self.uid):
            raise ValueError(f"{self.uid!r} is no UID of a cluster")
        if not self.user or not self.user.isprintable():
            raise ValueError(f"cluster {self.name} has no broker user: {self.user!r}")


class Viewer(msgspec.Struct, frozen=True):
    """Somebody who reads the journal, and nothing else."""

    user: str
    """The broker user."""

    def __post_init__(self) -> None:
        """Raises ValueError for a name that is not one word: a file is named so."""
        if not re.fullmatch(_VIEWER, self.user):
            raise ValueError(f"not a viewer: {self.user!r}; use letters, digits, dots, hyphens and @")


class BrokerPermission(msgspec.Struct, frozen=True):
    """The names of queues and exchanges that a user may create and delete, write, and read, as expressions."""

    user: str
    configure: str
    write: str
    read: str


class TopicPermission(msgspec.Struct, frozen=True):
    """The routing keys that a user may publish to an exchange, and bind it by, as expressions."""

    user: str
    exchange: str
    write: str
    read: str


class UserLimits(msgspec.Struct, frozen=True):
    """How much of the broker a user may use at a time."""

    user: str
    connections: int
    channels: int


class Rights(msgspec.Struct, frozen=True):
    """The permissions and limits of users."""

    permissions: tuple[BrokerPermission, ...]
    topic_permissions: tuple[TopicPermission, ...]
    limits: tuple[UserLimits, ...]

    def __add__(self, other: "Rights") -> "Rights":
        return Rights(
            self.permissions + other.permissions,
            self.topic_permissions + other.topic_permissions,
            self.limits + other.limits,
        )


class BrokerPolicy(msgspec.Struct, frozen=True):
    """Properties of the queues with a matching name."""

    name: str
    pattern: str
    definition: dict[str, str | int]
    priority: int = _PRIORITY


class Definitions(msgspec.Struct, frozen=True):
    """Everything that one vhost of a broker has for slicebus."""

    users: tuple[str, ...]
    """The users; the manager's comes first."""
    rights: Rights
    policies: tuple[BrokerPolicy, ...]
    max_queues: int
    topology: Topology


class Action(StrEnum):
    """What a permission is for."""

    CONFIGURE = "configure"
    WRITE = "write"
    READ = "read"


class Use(msgspec.Struct, frozen=True):
    """One thing that a user does: an action on a queue or exchange, with `key` the publishing under a routing key."""

    action: Action
    name: str
    key: str | None = None

    def __str__(self) -> str:
        return f"publish {self.key} to {self.name}" if self.key is not None else f"{self.action} {self.name}"


def definitions(
    members: Iterable[Member], *, manager: str = "manager", shards: int = 1, viewers: Iterable[Viewer] = ()
) -> Definitions:
    """The definitions for a manager's user, these clusters and these viewers. Raises ValueError where two share a name
    or a user."""
    members = sorted(members, key=lambda member: member.name)
    viewers = sorted(viewers, key=lambda viewer: viewer.user)
    users = (manager, *(member.user for member in members), *(viewer.user for viewer in viewers))
    names = [member.name for member in members]
    if len(set(users)) < len(users) or len(set(names)) < len(names):
        raise ValueError(
            "every cluster has a name and a broker user of its own, and every viewer a user: "
            f"{', '.join(names)}; {', '.join(users)}"
        )
    rights, topology = manager_rights(manager, shards=shards, members=len(members)), manager_topology(shards)
    for member in members:
        rights += agent_rights(member, shards=shards)
        topology += cluster_topology(member.name)
        if member.uid:
            topology += agent_topology(member.name, member.uid)
    for viewer in viewers:
        rights += viewer_rights(viewer)
    return Definitions(
        users=users,
        rights=rights,
        policies=policies(),
        max_queues=len(manager_topology(shards).queues) + _QUEUES_BESIDE + len(members) * _QUEUES_OF_A_CLUSTER,
        topology=topology,
    )


def agent_rights(member: Member, *, shards: int = 1) -> Rights:
    """The rights of an agent: to publish to the agents' exchanges under keys of its own cluster, and to consume its own
    queues.

    The queues are those of any UID: a cluster that was made anew under its name has another, and the same rights.
    """
    user, name = member.user, member.name
    own = rf"^slicebus\.agent\.{name}\.{_UID}\.({_LANES})$"
    return Rights(
        permissions=(BrokerPermission(user, configure=NOTHING, write=_one_of(AGENT_EXCHANGES), read=own),),
        topic_permissions=(
            TopicPermission(user, UP, write=rf"^{name}\.", read=NOTHING),
            TopicPermission(user, AGENT_DEAD, write=rf"^{name}\.", read=NOTHING),
            TopicPermission(user, AGENT_DECISIONS, write=_exactly(decisions_key(name)), read=NOTHING),
            *(
                TopicPermission(user, exchange, write=NOTHING, read=NOTHING)
                for exchange in (*EXCHANGES, *shard_exchanges(shards))
                if exchange not in AGENT_EXCHANGES
            ),
        ),
        limits=(UserLimits(user, *_AGENT_LIMITS),),
    )


def manager_rights(user: str, *, shards: int = 1, members: int = 0) -> Rights:
    """The rights of the manager of so many clusters: to make the whole topology, to publish orders, and to publish
    again what is requeued, redriven or passed on.

    A dead letter keeps its key, whatever that was. A queue with a dead-letter exchange needs read on the queue itself.
    """
    of_shards, (connections, channels) = shard_exchanges(shards), _MANAGER_LIMITS
    shard = r"(\.[0-9]+)?" if of_shards else ""
    manager = rf"manager\.([0-9]+\.)?({_LANES})" if of_shards else rf"manager\.({_LANES})"
    queues = "|".join((manager, rf"agent\.{_CLUSTER}\.{_UID}\.({_LANES})", rf"cluster\.{_CLUSTER}\.({_LANES})"))
    names = "|".join(_escaped(name.removeprefix("slicebus.")) for name in (*EXCHANGES, *JOURNALS, *of_shards))
    own = rf"^slicebus\.({names}|{queues})$"
    order = rf"{_CLUSTER}\.{_TYPE}\.{_UID}"
    return Rights(
        permissions=(BrokerPermission(user, configure=own, write=own, read=own),),
        topic_permissions=(
            TopicPermission(
                user,
                UP,
                write=rf"^{_CLUSTER}\.{_TYPE}$",
                read=rf"^({_CLUSTER}\.({_TYPE}|#)|\*\.{_TYPE}{shard})$",
            ),
            TopicPermission(user, STRANGERS, write=NOTHING, read=rf"^(#|\*\.{_TYPE})$"),
            *(
                TopicPermission(user, exchange, write=rf"^{_CLUSTER}\.{_TYPE}{shard}$", read=rf"^\*\.{_TYPE}\.#$")
                for exchange in of_shards
            ),
            TopicPermission(user, DOWN, write=rf"^{order}$", read=rf"^(#|{order})$"),
            TopicPermission(user, DEAD, write=".*", read="^#$"),
            TopicPermission(user, DECISIONS, write=_exactly(decisions_key(MANAGER_KEY)), read="^#$"),
            *(TopicPermission(user, name, write=NOTHING, read="^#$") for name in (AGENT_DEAD, AGENT_DECISIONS)),
        ),
        limits=(UserLimits(user, connections, channels + members * _CHANNELS_OF_A_CLUSTER),),
    )


def viewer_rights(viewer: Viewer) -> Rights:
    """The rights of a viewer: to read the streams of the journal.

    It writes to nothing, so it neither publishes nor binds, and topic permissions would take nothing more away.
    """
    return Rights(
        permissions=(BrokerPermission(viewer.user, configure=NOTHING, write=NOTHING, read=_one_of(JOURNALS)),),
        topic_permissions=(),
        limits=(UserLimits(viewer.user, *_VIEWER_LIMITS),),
    )


def policies() -> tuple[BrokerPolicy, ...]:
    """The bounds of the queues that somebody else fills. A full queue refuses messages, and drops none, but for what
    agents dead-letter: there the oldest go, so that no agent stops another one."""
    refuse: dict[str, str | int] = {"overflow": "reject-publish"}
    dead = refuse | {"max-length-bytes": DEAD_LETTER_BYTES}
    agents = refuse | {"max-length-bytes": AGENT_QUEUE_BYTES, "expires": AGENT_QUEUE_EXPIRES_MS}
    lane = refuse | {"max-length": LANE_MESSAGES, "max-length-bytes": LANE_BYTES}
    agents_dead: dict[str, str | int] = {"overflow": "drop-head", "max-length-bytes": AGENT_DEAD_LETTER_BYTES}
    return (
        BrokerPolicy("slicebus-dead-letters", _exactly(DEAD), dead),
        BrokerPolicy("slicebus-agents-dead-letters", _exactly(AGENT_DEAD), agents_dead),
        BrokerPolicy("slicebus-agents", r"^slicebus\.agent\.", agents),
        BrokerPolicy("slicebus-clusters", r"^slicebus\.cluster\.", lane | {"expires": AGENT_QUEUE_EXPIRES_MS}),
        BrokerPolicy("slicebus-manager", r"^slicebus\.manager\.", lane),
    )


def agent_uses(cluster: ClusterName, uid: ClusterUid = _NO_CLUSTER) -> tuple[Use, ...]:
    """Everything that an agent does on the broker. Its rights are the same for every UID."""
    return (
        Use(Action.WRITE, UP, routing_key(cluster, "hello")),
        Use(Action.WRITE, AGENT_DEAD, routing_key(cluster, "relabel")),
        Use(Action.WRITE, AGENT_DECISIONS, decisions_key(cluster)),
        *(Use(Action.READ, agent_queue(cluster, lane, uid)) for lane in Lane),
    )


def manager_uses(shards: int = 1) -> tuple[Use, ...]:
    """What the manager does on the broker beside making the topology, which shows by itself whether it may."""
    example, queues = ClusterName("a"), [manager_queue(lane, shard) for shard in range(shards) for lane in Lane]
    queues += [cluster_queue(example, lane) for lane in Lane]
    return (
        Use(Action.WRITE, DOWN, routing_key(example, "resync", _NO_CLUSTER)),
        Use(Action.WRITE, UP, routing_key(example, "hello")),
        Use(Action.WRITE, DEAD, routing_key(example, "hello")),
        Use(Action.WRITE, DECISIONS, decisions_key(MANAGER_KEY)),
        *(Use(Action.WRITE, exchange, routing_key(example, "status", 1)) for exchange in shard_exchanges(shards)),
        *(Use(Action.READ, name) for name in (*DEAD_LETTERS, *JOURNALS, *queues)),
    )


def too_much(user_of: ClusterName | None) -> tuple[Use, ...]:
    """What the agent of a cluster may not do; without a cluster, the manager. Each stands for one wrong expression."""
    stranger, unknown = ClusterName(_PROBE), _PROBE
    beyond = tuple(Use(action, name) for action in Action for name in (unknown, "slicebus.probe"))
    if user_of is None:
        return (*beyond, Use(Action.WRITE, DECISIONS, decisions_key(stranger)))
    longer, uid = ClusterName(f"{user_of}-2"), _NO_CLUSTER
    names = (*EXCHANGES, *JOURNALS, *map(manager_queue, Lane), agent_queue(stranger, Lane.CONTROL, uid))
    names += (cluster_queue(user_of, Lane.CONTROL), cluster_queue(stranger, Lane.STATUS))
    names += (agent_queue(longer, Lane.CONTROL, uid),)
    own = agent_queue(user_of, Lane.CONTROL, uid)
    return (
        *beyond,
        *(Use(Action.READ, name) for name in names),
        *(Use(Action.WRITE, name) for name in (*names, own) if name not in AGENT_EXCHANGES),
        Use(Action.CONFIGURE, own),
        Use(Action.CONFIGURE, agent_queue(stranger, Lane.CONTROL, uid)),
        *(
            Use(Action.WRITE, exchange, key)
            for exchange in AGENT_EXCHANGES
            for key in _keys_of_others(stranger, longer)
        ),
    )


def _keys_of_others(*others: ClusterName) -> tuple[str, ...]:
    return (*(routing_key(other, "hello") for other in others), decisions_key(MANAGER_KEY))


def _one_of(names: Iterable[str]) -> str:
    rests = "|".join(_escaped(name.removeprefix("slicebus.")) for name in names)
    return rf"^slicebus\.({rests})$"


def _exactly(name: str) -> str:
    return f"^{_escaped(name)}$"


def _escaped(name: str) -> str:
    """The name in an expression. Names of the topology have no other special character than the dot."""
    return name.replace(".", r"\.")
