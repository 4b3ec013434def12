"""Decides whether an agent reaches its manager, from looks at the way there: the broker, and who reads what it sends.

An agent whose manager has gone hears nothing, as one whose manager has nothing to say. The broker knows: a manager that
leads consumes the queue of what the cluster sends (docs/decisions/0082).
"""

import msgspec

from slicebus.slices.workload.waiting import BROKER_NOT_REACHED, MANAGER_NOT_REACHED

BROKER_S = 10.0
"""So long the broker is away before that counts: a node of several, or a connection, is replaced sooner."""
MANAGER_S = 15.0
"""The same for the manager: a standby leads after 14 s at the latest."""
_UNREAD = "nobody reads what this cluster sends"


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
    """Says what is not reached, and since when."""

    reason: str
    message: str
    since: str
    """RFC 3339."""


class Way(msgspec.Struct, frozen=True):
    """What the looks have shown so far."""

    read: Moment
    """When somebody was last seen to read; at first the moment when the agent began."""
    unread: Moment | None = None
    """The first look since then that saw nobody, while the broker was reached."""
    away: Moment | None = None
    """The first look at which the broker was not reached; None while it is."""
    broker: str = ""
    """Why it is not."""


def after(way: Way, look: Look, now: Moment) -> Way:
    """What is known after one more look. While the broker is away nobody knows of the manager: it has its time again
    once the broker is back, as it has to come back too."""
    if look.broker:
        return Way(way.read, away=way.away or now, broker=look.broker)
    if look.is_read:
        return Way(now)
    is_unread = look.is_read is False
    return Way(way.read, unread=(way.unread or now) if is_unread else way.unread)


def unreached(way: Way, now_s: float) -> Unreached | None:
    """What is not reached, where that has lasted for longer than a failover takes; None where all is well."""
    if way.away is not None:
        since = way.away.text
        message = f"broker not reached since {since}: {way.broker}"
        return Unreached(BROKER_NOT_REACHED, message, since) if now_s - way.away.at_s >= BROKER_S else None
    if way.unread is None or now_s - way.unread.at_s < MANAGER_S:
        return None
    since = way.read.text
    return Unreached(MANAGER_NOT_REACHED, f"manager not reached since {since}: {_UNREAD}", since)
