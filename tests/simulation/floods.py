"""Users of a cluster's broker user who flood the manager: with what nobody can read, and with reports of jobs that are
not there."""

from collections.abc import Iterable, Iterator
from random import Random

import msgspec

from simulation.later import with_later
from simulation.schedule import WORKERS, Moment, Schedule
from slicebus.proto.envelope import WireMessage
from slicebus.proto.headers import SUBJECT
from slicebus.proto.messages import ScaleRequest, Status

_MANY = (50, 150)
_LARGE_BYTES = 20_000
_NAME = "flood-"
"""Of the jobs that are not there."""
_TYPES = (Status.type, ScaleRequest.type)
_WHAT = ("unreadable", "unknown", "large")


class Flood(Moment):
    """A cluster's user says many messages at once, like some that its agent has said: such that nobody can read, such
    of jobs that are not there, or large ones of these."""

    by: str
    pick: int
    count: int
    what: str


def with_floods(schedule: Schedule) -> Schedule:
    """The same run, on one of eight with such a user."""
    return with_later(schedule, "floods", _floods)


def flood_of(said: Iterable[WireMessage], item: Flood) -> Iterator[WireMessage]:
    """The messages; none where the agent has said nothing about a job yet."""
    reports = [message for message in said if message.type in _TYPES]
    for number in range(item.count if reports else 0):
        message = reports[(item.pick + number) % len(reports)]
        name = f"{_NAME}{number}"
        body = msgspec.json.decode(message.body)
        body["job"] |= {"name": name, "uid": name}
        if item.what == "large":
            body["more"] = "x" * _LARGE_BYTES
        yield msgspec.structs.replace(
            message,
            user_id=item.by,
            headers=message.headers | {SUBJECT: name},
            body=b"{" if item.what == "unreadable" else msgspec.json.encode(body),
        )


def is_of_flood(message: WireMessage) -> bool:
    """Whether no agent has said a message."""
    return message.headers.get(SUBJECT, "").startswith(_NAME)


def _floods(random: Random, run_s: float) -> Iterator[Flood]:
    if random.random() > 1 / 8:
        return
    for _ in range(random.choice((1, 2, 4))):
        at_s, by, pick = round(random.uniform(1, max(2.0, run_s)), 2), random.choice(WORKERS), random.randrange(1000)
        yield Flood(at_s=at_s, by=by, pick=pick, count=random.choice(_MANY), what=random.choice(_WHAT))
