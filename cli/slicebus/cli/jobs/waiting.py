"""`slicebus wait`: returns when a job is where a script needs it."""

import asyncio
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from slicebus.cli import screen
from slicebus.cli.cluster.access import run
from slicebus.cli.cluster.filters import option_of
from slicebus.cli.cluster.options import ClusterAccess, JobScope, ManagerPlace, with_options
from slicebus.cli.durations import duration
from slicebus.cli.leaders import say_leaders
from slicebus.manager.state.shown_states import ShownState
from slicebus.proto.errors import ConfigurationError

if TYPE_CHECKING:
    from slicebus.cli.cluster.finding import FoundJobs
    from slicebus.cli.jobs.rows import JobRow
    from slicebus.kube.client import KubeClient
    from slicebus.proto.messages import JobRef


class Goal(StrEnum):
    """What to wait for."""

    ADMITTED = "admitted"
    """It has quota, or had some and has ended."""
    RUNNING = "running"
    """Pods of it are ready, or it has succeeded."""
    RESIZED = "resized"
    """It is granted the size that it wants, and as many pods are ready."""
    FINISHED = "finished"
    """It has succeeded."""


Reached = Callable[["JobRow | None"], bool | None]
"""As `is_reached` of one goal."""


def is_reached(row: "JobRow | None", goal: Goal, size: int | None = None) -> bool | None:
    """Whether a job is there; None while it is not yet, and False once it cannot be any more. No row is a job that is
    gone. `size` is how many pods a resized job shall have; None for as many as it wants."""
    if row is None or row.state is ShownState.DELETING:
        return False
    if row.state is ShownState.FAILED:
        return goal is Goal.ADMITTED
    if row.state is ShownState.SUCCEEDED:
        return True
    match goal:
        case Goal.ADMITTED:
            return row.state.has_quota or None
        case Goal.RUNNING:
            return row.state in (ShownState.RUNNING, ShownState.RESIZING) or None
        case Goal.RESIZED:
            granted = sum(row.granted.values())
            is_whole = row.ready is not None and row.ready >= granted and size in (None, granted)
            return (row.state is ShownState.RUNNING and is_whole) or None
        case Goal.FINISHED:
            return None


def told(name: str, row: "JobRow | None") -> str:
    """The state of a job in one line."""
    if row is None:
        return f"{name} is gone"
    ready = "?" if row.ready is None else row.ready
    size = f"wants {sum(row.wanted.values())}, granted {sum(row.granted.values())}, ready {ready}"
    where = f" on {row.cluster}" if row.cluster else ""
    return f"{name} is {row.state}{where}, {size}" + (f": {row.why}" if row.why else "")


@with_options
def wait(
    job: Annotated[str, typer.Argument(help="name, namespace/name or Kind/namespace/name.")],
    goal: Annotated[
        Goal,
        option_of(Goal, "goal", "--for", help=f"One of {', '.join(Goal)}."),
    ],
    size: Annotated[
        int | None,
        typer.Option(min=0, help="With --for resized: so many pods, which the manager may have yet to hear of."),
    ] = None,
    timeout: Annotated[str | None, typer.Option(help="How long at most: 90s, 10m, 2h. By default for ever.")] = None,
    *,
    scope: JobScope,
    access: ClusterAccess,
    managers: ManagerPlace,
) -> None:
    """Wait until a job is admitted, runs, has its size, or has ended.

    Exit status 0: it is. 1: it is not by the timeout, or cannot be any more, as it has failed or is gone. 2: the
    question cannot be asked, as of an unknown job. The states in between go to standard error.
    Where no manager works it says so, and waits for one too.
    """
    within_s = duration(timeout, option="--timeout").total_seconds() if timeout else None
    if size is not None and goal is not Goal.RESIZED:
        raise ConfigurationError("--size is for --for resized")
    reached = partial(is_reached, goal=goal, size=size)

    async def look(client: "KubeClient") -> bool:
        await say_leaders(client, managers.manager_namespace)
        return await _wait(client, job, goal, reached, within_s, scope)

    if not run(access, look):
        raise typer.Exit(1)


async def _wait(
    client: "KubeClient", job: str, goal: Goal, reached: Reached, within_s: float | None, scope: JobScope
) -> bool:
    from slicebus.cli.cluster.finding import find_jobs

    found = await find_jobs(client, job, scope)
    if len(found.refs) > 1:
        named = ", ".join(ref.key for ref in found.refs)
        raise ConfigurationError(f"{len(found.refs)} jobs are named {job}: {named}; say which")
    [ref] = found.refs
    try:
        async with asyncio.timeout(within_s):
            return await _follow(client, found, ref, goal, reached)
    except TimeoutError:
        screen.warn(f"not {goal} after {timeout_text(within_s)}: {told(ref.key, _row(found, ref))}")
        return False


async def _follow(client: "KubeClient", found: "FoundJobs", ref: "JobRef", goal: Goal, reached: Reached) -> bool:
    from slicebus.cli.cluster.reading import followed, settled

    last = ""
    async with followed(client, found.reading) as news:
        while True:
            row = _row(found, ref)
            now, is_there = told(ref.key, row), reached(row)
            if is_there is not None:
                screen.say(now) if is_there else screen.warn(f"not {goal}, and will not be: {now}")
                return is_there
            if now != last:
                screen.warn(now)
            last = now
            await settled(news)


def _row(found: "FoundJobs", ref: "JobRef") -> "JobRow | None":
    from slicebus.cli.jobs.rows import JobRow

    store = found.reading.store
    return JobRow.of(store, ref, found.reading.sight) if store.view(ref).job is not None else None


def timeout_text(within_s: float | None) -> str:
    """`90 s`."""
    return f"{within_s or 0:.0f} s"
