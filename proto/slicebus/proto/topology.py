"""Exchanges, queues and bindings, as data. The manager declares all of them, idempotently; an agent declares none."""

import re
from collections.abc import Iterable

import msgspec

from slicebus.proto.messages import MESSAGES, ClusterName, ClusterUid, Direction, JobMessage, Lane

UP = "slicebus.up"
DOWN = "slicebus.down"
STRANGERS = "slicebus.strangers"
"""Where the broker puts what is published to `slicebus.up` for a cluster that has no queues there."""
DEAD = "slicebus.dead"
"""The dead-letter exchange of the manager, and the queue bound to it."""
AGENT_DEAD = "slicebus.agent-dead"
"""The same for what agents dead-letter. They fill neither the manager's queue nor, when it is full, each other's way:
the oldest go first."""
DEAD_LETTERS = (DEAD, AGENT_DEAD)
JOURNAL = "slicebus.journal"
"""The stream of what the manager says and decides. No agent can publish into it."""
AGENT_JOURNAL = "slicebus.agent-journal"
"""The stream of what the agents say and decide."""
JOURNALS = (JOURNAL, AGENT_JOURNAL)
DECISIONS = "slicebus.decisions"
"""The exchange of the manager's recorded decisions: only its journal is bound to it."""
AGENT_DECISIONS = "slicebus.agent-decisions"
"""The same for the agents'."""
DECISIONS_TYPE = "decisions"
MANAGER_KEY = "manager"
"""The first word of the manager's routing key in recordings; an agent's is its cluster."""

MOST_SHARDS = 16
"""The most shards of the manager."""
DELIVERY_LIMIT = 20
"""RabbitMQ 4.0 drops a message silently after 20 redeliveries where no limit and no dead-letter exchange are set."""
UNREACHABLE_LIMIT = 2**31 - 1
"""The delivery limit of the dead-letter queue, which delivers its messages every time somebody browses it. RabbitMQ 4
drops a message after 20 deliveries by default. -1 means no limit from 4.0 on, but 3.10 would drop a message returned
once."""
JOURNAL_MAX_AGE = "7D"
JOURNAL_MAX_BYTES = 2 * 1024**3
_SEGMENTS = 16
_SEGMENT_MOST_BYTES = 500_000_000
"""RabbitMQ's default for the size of a segment. It drops whole segments of a stream, and only when one is full: the
smaller they are, the closer it keeps to age and size."""

_AGENT_PREFIX = "slicebus.agent."
_CLUSTER_PREFIX = "slicebus.cluster."
_EVERY = ClusterName("*")
_ANY = "#"
"""The pattern for any number of words, also none."""

QueueArgument = str | int | bool


class Exchange(msgspec.Struct, frozen=True):
    """A durable topic exchange."""

    name: str
    alternate: str = ""
    """The exchange that gets what no queue of this one takes."""

    @property
    def arguments(self) -> dict[str, QueueArgument]:
        """RabbitMQ's arguments of its declaration."""
        return {"alternate-exchange": self.alternate} if self.alternate else {}


class Queue(msgspec.Struct, frozen=True):
    """A durable queue; `arguments` are RabbitMQ's `x-` arguments."""

    name: str
    arguments: dict[str, QueueArgument]
    kept: bool = False
    """Whether an existing queue is used with whatever arguments it has: they cannot be changed afterwards."""


class Binding(msgspec.Struct, frozen=True):
    """The messages of an exchange that a queue gets."""

    exchange: str
    queue: str
    routing_key: str


class Topology(msgspec.Struct, frozen=True):
    """Exchanges first, then queues, then bindings: declared in this order."""

    exchanges: tuple[Exchange, ...]
    queues: tuple[Queue, ...]
    bindings: tuple[Binding, ...]

    def __add__(self, other: "Topology") -> "Topology":
        return Topology(
            exchanges=tuple(dict.fromkeys(self.exchanges + other.exchanges)),
            queues=tuple({queue.name: queue for queue in self.queues + other.queues}.values()),
            bindings=tuple(dict.fromkeys(self.bindings + other.bindings)),
        )


def exchange_of(direction: Direction) -> str:
    """The exchange that messages of this direction are published to."""
    return {Direction.UP: UP, Direction.DOWN: DOWN}[direction]


def routing_key(cluster: ClusterName, message_type: str, addressee: str | int | None = None) -> str:
    """`<cluster>.<type>`, or `<cluster>.<type>.<addressee>`: of an order the cluster's UID; of what an agent publishes
    the shard of the manager, from 1 on. Cluster names are DNS labels, so the dot separates."""
    return f"{cluster}.{message_type}.{addressee}" if addressee else f"{cluster}.{message_type}"


def words(key: str) -> tuple[ClusterName, str, str | None]:
    """The words of any routing key."""
    cluster, _, rest = key.partition(".")
    message_type, _, addressee = rest.partition(".")
    return ClusterName(cluster), message_type, addressee or None


def decisions_key(source: str) -> str:
    """The routing key of recorded decisions: a cluster's, or the manager's."""
    return f"{source}.{DECISIONS_TYPE}"


def manager_queue(lane: Lane, shard: int = 0) -> str:
    """The queue of a lane of one shard of the manager. The first one has what the agents address to no other."""
    return f"slicebus.manager.{shard}.{lane}" if shard else f"slicebus.manager.{lane}"


def of_first_shard(queue: str) -> str:
    """The first shard's queue of strangers in place of a cluster's, or of another shard's, whose messages it has passed
    on; any other queue unchanged."""
    return re.sub(r"^slicebus\.(?:manager\.[0-9]+|cluster\.[^.]+)\.", "slicebus.manager.", queue)


def shard_exchange(shard: int) -> str:
    """The exchange where other shards publish what they pass on to this one, unchanged. A shard that is alone has
    none."""
    return f"slicebus.shard.{shard}"


def shard_exchanges(shards: int) -> tuple[str, ...]:
    """The exchanges of so many shards; none where there is one."""
    return tuple(map(shard_exchange, range(shards if shards > 1 else 0)))


def agent_queue(cluster: ClusterName, lane: Lane, uid: ClusterUid) -> str:
    """An agent's queue of a lane. Two clusters of one name have queues of their own (docs/decisions/0014)."""
    return f"{_AGENT_PREFIX}{cluster}.{uid}.{lane}"


def cluster_queue(cluster: ClusterName, lane: Lane) -> str:
    """The manager's queue of what a cluster's agent publishes on a lane. Each cluster has its own, so that none
    delays another (docs/decisions/0065)."""
    return f"{_CLUSTER_PREFIX}{cluster}.{lane}"


def queues_of_cluster(cluster: ClusterName, names: Iterable[str]) -> list[str]:
    """The names that are queues to or from agents with this cluster's name, whatever their UID."""
    endings = tuple(f".{lane}" for lane in Lane)
    beginnings = (f"{_AGENT_PREFIX}{cluster}.", f"{_CLUSTER_PREFIX}{cluster}.")
    return [name for name in names if name.startswith(beginnings) and name.endswith(endings)]


def dead_letters_of(queue: str) -> str:
    """The dead-letter exchange of a queue's consumer."""
    return AGENT_DEAD if queue.startswith(_AGENT_PREFIX) else DEAD


def common_topology() -> Topology:
    """What both sides use: the exchanges, the dead-letter queues and the journals.

    A dead-letter queue comes before any queue that dead-letters into it: at-least-once dead-lettering retries only
    every few minutes when its target is missing.
    """
    return Topology(
        exchanges=(
            *map(Exchange, (*DEAD_LETTERS, STRANGERS)),
            Exchange(UP, alternate=STRANGERS),
            *map(Exchange, (DOWN, DECISIONS, AGENT_DECISIONS)),
        ),
        queues=(*map(_dead_letter_queue, DEAD_LETTERS), *journal_queues()),
        bindings=(
            *(Binding(name, name, _ANY) for name in DEAD_LETTERS),
            Binding(DOWN, JOURNAL, _ANY),
            Binding(DECISIONS, JOURNAL, _ANY),
            Binding(STRANGERS, AGENT_JOURNAL, _ANY),
            Binding(AGENT_DECISIONS, AGENT_JOURNAL, _ANY),
        ),
    )


def _dead_letter_queue(name: str) -> Queue:
    return Queue(name, {"x-queue-type": "quorum", "x-delivery-limit": UNREACHABLE_LIMIT}, kept=True)


def journal_queues(*, max_age: str = JOURNAL_MAX_AGE, max_bytes: int = JOURNAL_MAX_BYTES) -> tuple[Queue, ...]:
    """The streams of all messages and decisions, each with these limits of age and size, give or take a sixteenth."""
    arguments: dict[str, QueueArgument] = {
        "x-queue-type": "stream",
        "x-max-age": max_age,
        "x-max-length-bytes": max_bytes,
        "x-stream-max-segment-size-bytes": min(max_bytes // _SEGMENTS, _SEGMENT_MOST_BYTES),
    }
    return tuple(Queue(name, arguments, kept=True) for name in JOURNALS)


def manager_topology(shards: int = 1) -> Topology:
    """The common topology, and the queues of so many shards of the manager. The first one's have what comes from
    clusters without queues of their own. What agents address to another one comes there by `addressed`."""
    topology = common_topology() + _lanes(STRANGERS, _manager_queues(0))
    for shard, exchange in enumerate(shard_exchanges(shards)):
        topology += Topology((Exchange(exchange),), (), ()) + _lanes(exchange, _manager_queues(shard), addressee=_ANY)
    return topology


def cluster_topology(cluster: ClusterName) -> Topology:
    """The manager's queues of what a cluster's agent publishes, beside the common topology. The manager declares them
    for each cluster that it accepts, and removes the bindings of others."""
    recorded = Topology((), (), (Binding(UP, AGENT_JOURNAL, f"{cluster}.{_ANY}"),))
    return recorded + _lanes(UP, {lane: cluster_queue(cluster, lane) for lane in Lane}, cluster)


def addressed(shard: int, *, taken_by: int) -> tuple[Binding, ...]:
    """The bindings that bring what agents address to one shard of the manager to that one, or to another."""
    queues = _manager_queues(taken_by)
    return tuple(
        Binding(UP, queues[message.lane], routing_key(_EVERY, message.type, shard))
        for message in MESSAGES.values()
        if message.direction is Direction.UP and issubclass(message, JobMessage)
    )


def _manager_queues(shard: int) -> dict[Lane, str]:
    return {lane: manager_queue(lane, shard) for lane in Lane}


def agent_topology(cluster: ClusterName, uid: ClusterUid) -> Topology:
    """The common topology and one agent's queues. The manager declares it before its first message."""
    queues = {lane: agent_queue(cluster, lane, uid) for lane in Lane}
    return common_topology() + _lanes(DOWN, queues, cluster, addressee=uid)


def _lanes(
    exchange: str, queues: dict[Lane, str], cluster: ClusterName = _EVERY, *, addressee: str | None = None
) -> Topology:
    direction = Direction.DOWN if exchange == DOWN else Direction.UP
    return Topology(
        exchanges=(),
        queues=tuple(_lane_queue(name) for name in queues.values()),
        bindings=tuple(
            Binding(exchange, queues[message.lane], routing_key(cluster, message.type, addressee))
            for message in MESSAGES.values()
            if message.direction is direction
        ),
    )


def _lane_queue(name: str) -> Queue:
    return Queue(
        name,
        {
            "x-queue-type": "quorum",
            "x-delivery-limit": DELIVERY_LIMIT,
            "x-dead-letter-exchange": dead_letters_of(name),
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
            "x-single-active-consumer": True,
        },
    )
