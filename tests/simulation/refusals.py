"""API servers that refuse a part of what the roles ask for, for a while, and the rule that no message is lost for it.

A token rotates, a right comes late, a policy or a webhook refuses what it should not, a definition is upgraded.
"""

import asyncio
import re
from collections.abc import Iterator
from random import Random
from typing import Literal, NamedTuple

from simulation.later import with_later
from simulation.schedule import WORKERS, Moment, Schedule
from simulation.violations import Violation
from slicebus.bus.dead_letters.headers import DETAIL_HEADER
from slicebus.kube.transport import Request
from slicebus.proto.topology import DEAD_LETTERS
from slicebus.sandbox.apiserver.status import ApiError
from slicebus.sandbox.bus import MemoryBroker

Code = Literal[401, 403, 404, 422, 500]
_TEXTS: dict[int, str] = {
    401: "Unauthorized",
    403: "jobs is forbidden: User cannot do that",
    404: "the server could not find the requested resource",
    422: "ValidatingAdmissionPolicy denied request: not on a Friday",
    500: "Internal error occurred: failed calling webhook: connection refused",
}
_ALL, _WRITES = "GET POST PUT PATCH DELETE", "POST PUT PATCH DELETE"
_PATHS = ("/jobs", "/workloads", "/pods/", "/workerclusters", "/configmaps", "/ray", "/status$")
_FOR_S = (1.0, 8.0, 30.0)
_OF_A_TOKEN_S = (1.0, 4.0)
_ANSWER = re.compile(r"(401|403|404|422|500): ")


class Refuse(Moment):
    """An API server refuses these requests of the roles for a while."""

    api: str
    code: Code
    verbs: str
    path: str
    for_s: float


class _Refused(NamedTuple):
    verbs: tuple[str, ...]
    path: str
    error: ApiError


class Refusals:
    """What one API server refuses now."""

    def __init__(self) -> None:
        self._refused: list[_Refused] = []

    def of(self, request: Request) -> ApiError | None:
        """The error of a request; None for one that is taken."""
        return next(
            (
                refused.error
                for refused in self._refused
                if request.method in refused.verbs and re.search(refused.path, request.path)
            ),
            None,
        )

    async def refuse(self, item: Refuse) -> None:
        """Refuse something for a while."""
        refused = _Refused(tuple(item.verbs.split()), item.path, ApiError(item.code, _TEXTS[item.code]))
        self._refused.append(refused)
        await asyncio.sleep(item.for_s)
        self._refused.remove(refused)


def with_refusals(schedule: Schedule) -> Schedule:
    """The same run, on one of four with such servers."""
    return with_later(schedule, "refusals", _refusals)


def check_dead_letters(broker: MemoryBroker) -> None:
    """Raises Violation where a message is a dead letter because an API server has refused what it asks for."""
    dead = (entry.message for name in DEAD_LETTERS for entry in broker.queues[name].ready)
    details = [message.headers.get(DETAIL_HEADER, "") for message in dead]
    if refused := [detail for detail in details if _ANSWER.match(detail)]:
        raise Violation(f"refusals: {len(refused)} messages are dead letters for an answer of a moment: {refused[0]}")


def _refusals(random: Random, run_s: float) -> Iterator[Refuse]:
    if random.random() > 1 / 4:
        return
    for _ in range(random.choice((1, 2, 4))):
        at_s, api = round(random.uniform(0, run_s), 2), random.choice(("manager", "manager", *WORKERS))
        code: Code = random.choice((401, 403, 403, 404, 422, 422, 500))
        if code == 401:
            yield Refuse(at_s=at_s, api=api, code=code, verbs=_ALL, path="", for_s=random.choice(_OF_A_TOKEN_S))
            continue
        path = "/status$" if code == 404 else random.choice(_PATHS)
        verbs = _ALL if code == 403 and random.random() < 0.3 else _WRITES
        yield Refuse(at_s=at_s, api=api, code=code, verbs=verbs, path=path, for_s=random.choice(_FOR_S))
