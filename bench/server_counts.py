"""Counts what everybody asks of API servers, by their own metrics."""

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from slicebus.kube.transport import HttpTransport, Request

STANDING_VERBS = ("watch", "list")
STANDING_RESOURCES = ("", "leases", "workerclusters", "namespaces", "selfsubjectaccessreviews")
"""What is asked whether anything happens or not: watches, lists, Leases, heartbeats."""
CONFLICT = "409"
_COUNTED = re.compile(r"^apiserver_request_total\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
Counts = TypeVar("Counts")
_REST_S = 1.5
_LOOKS_S = 0.3


def is_standing(verb: str, resource: str) -> bool:
    """Whether it is asked although nothing happens."""
    return verb in STANDING_VERBS or resource in STANDING_RESOURCES


async def at_rest(read: Callable[[], Awaitable[Counts]], *, looks_s: float) -> Counts:
    """What has been asked when nobody has asked for anything for a while. `read` gives what was asked so far."""
    last, since = await read(), 0.0
    while since < _REST_S:
        await asyncio.sleep(looks_s)
        now = await read()
        last, since = now, (since + looks_s if now == last else 0.0)
    return last


class ServerCounts:
    """Reads what some API servers have been asked, by the code of their answers."""

    def __init__(self, servers: Sequence[HttpTransport]) -> None:
        self._servers = servers

    async def read(self) -> Counter[str]:
        answers = [await server.request(Request(method="GET", path="/metrics")) for server in self._servers]
        return sum((_by_code(answer.body.decode()) for answer in answers), Counter())

    async def at_rest(self) -> Counter[str]:
        """What they have been asked when nobody has asked for anything for a while."""
        return await at_rest(self.read, looks_s=_LOOKS_S)

    async def during(self, step: Awaitable[float]) -> tuple[float, Counter[str]]:
        """What a step returns, and what is asked until everything is at rest again."""
        before = await self.at_rest()
        took_s = await step
        return took_s, await self.at_rest() - before


def _by_code(metrics: str) -> Counter[str]:
    counts = Counter[str]()
    for labels, value in _COUNTED.findall(metrics):
        asked = dict(_LABEL.findall(labels))
        if not is_standing(asked["verb"].lower(), asked["resource"]):
            counts[asked["code"]] += int(float(value))
    return counts
