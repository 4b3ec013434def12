"""A day beside the stand-in for a Kueue, and what has to be so in the end."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

from simulation.fleet import MANAGER, Fleet
from simulation.kueue import Kueue
from simulation.run import Run
from simulation.schedule import WORKERS, Scale, Schedule, Submit
from simulation.violations import Violation
from slicebus.kube.resources import JOBS, PODS, WORKLOADS
from slicebus.slices.api.kueue import Condition
from slicebus.slices.workload.ungate import is_gated
from slicebus.slices.workload.workload import Slice

Manifest = dict[str, Any]
DAY = Schedule(
    seed=0,
    standbys=(),
    inventory_s=1e6,
    items=(
        Submit(at_s=0.0, kind="Job", name="a"),
        Scale(at_s=6.0, api="east", pick=0, counts=(3,)),
        Scale(at_s=12.0, api="manager", pick=0, counts=(5,)),
    ),
)
"""One job's life, with a growth that begins on each side."""
_CALM_S = 120.0
_LOOK_S = 5.0


async def with_kueue(fleet: Fleet, story: Callable[[Fleet], Awaitable[None]]) -> None:
    """Tell a story while a Kueue runs on the manager's cluster. Raises what either raises."""
    kueue = Kueue(fleet.client(MANAGER))
    await kueue.install()
    running, playing = asyncio.ensure_future(kueue.run()), asyncio.ensure_future(story(fleet))
    try:
        await asyncio.wait((running, playing), return_when=asyncio.FIRST_COMPLETED)
        (running if running.done() else playing).result()
    finally:
        running.cancel()
        playing.cancel()
        await asyncio.gather(running, playing, return_exceptions=True)


async def play(fleet: Fleet) -> None:
    """Raises Violation when the fleet does not agree in the end."""
    await with_kueue(fleet, _play)


async def _play(fleet: Fleet) -> None:
    await Run(fleet).pass_by()
    await fleet.calm_down()
    found = [await _disagreements(fleet)]
    for _ in range(int(_CALM_S / _LOOK_S)):
        await asyncio.sleep(_LOOK_S)
        found.append(await _disagreements(fleet))
        if any(not before and not now for before, now in pairwise(found)):
            return
    raise Violation(f"beside a Kueue: {'; '.join(found[-1])}")


async def _disagreements(fleet: Fleet) -> list[str]:
    """What is not as the manager's jobs are, in words."""
    manager, found = fleet.client(MANAGER), list[str]()
    workloads, jobs = (await manager.list(WORKLOADS)).items, (await manager.list(JOBS)).items
    if not jobs:
        found.append("the job is gone")
    for job in jobs:
        name, wanted = job["metadata"]["name"], job["spec"]["parallelism"]
        pods = [pod for worker in WORKERS for pod in (await fleet.client(worker).list(PODS)).items]
        running = [pod for pod in pods if not is_gated(pod) and pod["status"].get("phase") == "Running"]
        if (len(pods), len(running)) != (wanted, wanted):
            found.append(f"{name} wants {wanted} pods, has {len(pods)}, and {len(running)} run")
        slices = [Slice.from_manifest(each) for each in workloads]
        granted = [slice.granted for slice in slices if not slice.finished and slice.condition(Condition.ADMITTED)]
        if granted != [{"main": wanted}]:
            found.append(f"{name} wants {wanted} pods, and is granted {granted}")
    return found
