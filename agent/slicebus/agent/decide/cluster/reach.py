"""Decides whether an agent reaches its manager, from looks at the way there: the broker, and who reads what it sends.

An agent whose manager has gone hears nothing, as one whose manager has nothing to say. The broker knows: a manager that
leads consumes the queue of what the cluster sends (docs/decisions/0082).
"""

import msgspec
from msgspec.structs import replace

from slicebus.slices.workload.waiting import BROKER_NOT_REACHED, MANAGER_NOT_REACHED

BROKER_S = 10.0
"""So long the broker is away before that counts: a node of several, or a connection, is replaced sooner."""
MANAGER_S = 15.0
"""The same for the manager: a standby leads after 14 s at the latest."""


class Moment(msgspec.Struct, frozen=True):
    """A moment by the loop's clock, in seconds, and for people, RFC 3339."""

    at_s: float
    text: str


class Look(msgspec.Struct, frozen=True):
    """One look at the way to the manager."""

    broker: str = ""
    """Why the broker is not reached; empty where it is."""
    is_read: bool | None = None
    """Whether somebody reads what this cluster sends; None where nobody answered."""


class Unreached(msgspec.Struct, frozen=True):
    """Says what is not reached, since when, and how that shows."""

    reason: str
    """Empty where that is not known yet: what is shown stays."""
    why: str = ""
    since: str = ""
    """RFC 3339."""

    @property
    def message(self) -> str:
        """The same for people."""
        return f"{_SUBJECTS[self.reason]} not reached since {self.since}: {self.why}" if self.reason else ""


_SUBJECTS = {BROKER_NOT_REACHED: "broker", MANAGER_NOT_REACHED: "manager"}
NOT_KNOWN = Unreached("")
"""What an agent that has just begun knows."""


class Way(msgspec.Struct, frozen=True):
    """What the looks have shown so far."""

    read: Moment
    """When somebody was last seen to read; at first the moment when the agent began."""
    is_known: bool = False
    """Whether anybody was ever seen to read."""
    unread: Moment | None = None
    """The first look since then that saw nobody. While the broker is away, only where that had lasted for long."""
    away: Moment | None = None
    """The first look at which the broker was not reached; None while it is."""
    broker: str = ""
    """Why it is not."""


def after(way: Way, look: Look, now: Moment) -> Way:
    """What is known after one more look. While the broker is away nobody knows of the manager: it has its time again
    once the broker is back, as it has to come back too, unless it had gone before."""
    if look.broker:
        unread = way.unread if way.away is not None or _is_overdue(way, now.at_s) else None
        return replace(way, unread=unread, away=way.away or now, broker=look.broker)
    if look.is_read:
        return Way(now, is_known=True)
    is_unread = look.is_read is False
    return replace(way, unread=(way.unread or now) if is_unread else way.unread, away=None, broker="")


def unreached(way: Way, now_s: float, *, shard: int = 0) -> Unreached | None:
    """What is not reached on the way to a shard of the manager, where that has lasted for longer than a failover takes;
    None where all is well."""
    if way.away is not None and now_s - way.away.at_s >= BROKER_S:
        return Unreached(BROKER_NOT_REACHED, way.broker, way.away.text)
    if _is_overdue(way, now_s):
        to = f" to shard {shard} of the manager" if shard else ""
        return Unreached(MANAGER_NOT_REACHED, f"nobody reads what this cluster sends{to}", way.read.text)
    return None if way.is_known else NOT_KNOWN


def _is_overdue(way: Way, now_s: float) -> bool:
    """Whether nobody has read for longer than a failover takes."""
    return way.unread is not None and (way.away is not None or now_s - way.unread.at_s >= MANAGER_S)
