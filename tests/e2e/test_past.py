"""What `jobs --at` and `queues --at` show is what `jobs` and `queues` printed then."""

import asyncio
import json
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from slicebus.ambient.clock import now
from slicebus.cli.demo.world import World
from support.recordings import exported
from support.scenario import NAMESPACE, Scenario, set_quota
from support.waiting import eventually
from unit.cli.hostile import call

SHOWN: Mapping[str, tuple[str, ...]] = {
    "jobs": ("jobs", "-A", "-o", "json"),
    "jobs as a table": ("jobs", "-A", "-o", "wide"),
    "jobs of a namespace": ("jobs", "-n", NAMESPACE),
    "queues": ("queues", "-o", "json"),
    "queues as a table": ("queues", "-o", "wide"),
    "local queues": ("queues", "-A", "-o", "json"),
}
AGE = re.compile(r"^\d+[smhd]$|^AGE$")


class Moment(msgspec.Struct, frozen=True):
    """What was printed, and when."""

    at: datetime
    printed: dict[str, object]


def without_ages(text: str) -> list[Any]:
    """A document without its moment, or the cells of a table without the line that names it and without ages."""
    if text.startswith("{"):
        items: list[Any] = json.loads(text)["items"]
        return items
    lines = [re.split(r" {3,}", line) for line in text.splitlines() if not line.startswith("AT ")]
    return [[cell for cell in line if not AGE.match(cell)] for line in lines]


async def printed(*more: str) -> dict[str, object]:
    """What each command prints, with what it says beside it. The fleet in this process logs nothing in between."""
    found: dict[str, object] = {}
    with capture_logs():
        for name, arguments in SHOWN.items():
            done = await asyncio.to_thread(call, *arguments, *more)
            assert done.status == 0, done
            found[name] = without_ages(done.out), done.err
    return found


def states(shown: dict[str, Any]) -> list[str]:
    """The states of the jobs."""
    return [job["state"] for job in shown["jobs"][0]]


async def noted(*expected: str) -> Moment:
    """A moment at which the jobs were in these states, and before and after which the same was printed."""

    async def is_at_rest() -> Moment | None:
        before = await printed()
        await asyncio.sleep(0.5)
        at = now()
        is_same = states(before) == [*expected] and await printed() == before
        return Moment(at, before) if is_same else None

    moment = await eventually(is_at_rest, f"the jobs are {expected}, and nothing changes")
    assert moment is not None
    return moment


async def test_the_tables_of_a_fleets_life_are_those_that_were_printed_then(
    world: World, urls: dict[str, str], kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    await set_quota(world, 4)
    first, second, third = (Scenario(world, "Job", name) for name in ("first", "second", "third"))
    moments = [await noted()]
    await first.submit()
    await first.expect_pods(running=1)
    moments.append(await noted("Running"))
    await first.scale(3)
    await first.expect_pods(running=3)
    await third.submit()
    await third.expect_pods(running=1)
    moments.append(await noted("Running", "Running"))
    await second.submit()
    await first.scale(6)
    await first.expect_pods(running=3, gated=3)
    moments.append(await noted("Resizing", "Pending", "Running"))
    await world.manager.delete(first.resource, first.name, NAMESPACE)
    await first.expect_nothing_left()
    await second.expect_pods(running=1)
    moments.append(await noted("Running", "Running"))
    file = tmp_path / "life.jsonl"

    async def has_all() -> bool:
        await exported(urls["manager"], file)
        done = await asyncio.to_thread(call, "jobs", "-A", "--at", moments[-1].at.isoformat(), "--from", str(file))
        return done.status == 0

    await eventually(has_all, "the journal has a record after the last moment")
    for moment in moments:
        assert await printed("--at", moment.at.isoformat(), "--from", str(file)) == moment.printed
