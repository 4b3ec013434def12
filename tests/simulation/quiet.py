"""Runs without faults, in which jobs compete for quota: what `slicebus whatif` says of them is known by another run."""

import asyncio
from random import Random
from unittest.mock import patch

from simulation import users
from simulation.fleet import Fleet
from simulation.jobs import job_of
from simulation.loop import run
from simulation.queues import QUEUES, Manifest
from simulation.run import Run
from simulation.schedule import Item, Policy, Quota, Schedule, Submit
from slicebus.bus.contract import Record
from slicebus.sandbox.controllers.pods import RUN_SECONDS_ANNOTATION

QUOTA = 5
"""Cores of the queue that gets 20% more."""
_JOBS, _SUBMITTED_S, _SETTLED_S = 40, 300, 500.0
_RUN_S = (20.0, 120.0)
_NEVER_S = 1e6
_PREEMPTS = {"preemption": {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}}


def journal_of(seed: int, *, cpu: int, preempts: bool, shards: int = 1) -> list[Record]:
    """The journal of a run whose queue `batch` has so many reserved cores from the start. `preempts`: jobs have
    priorities, and queues take their quota back."""

    def with_run_time(item: Submit) -> Manifest:
        job = job_of(item)
        run_s = Random(f"{seed}/{item.name}/run").uniform(*_RUN_S)
        job["spec"]["template"]["metadata"]["annotations"][RUN_SECONDS_ANNOTATION] = f"{run_s:.1f}"
        job["spec"]["completions"] = item.size
        return job

    async def play(fleet: Fleet) -> None:
        await Run(fleet).pass_by()
        await asyncio.sleep(_SETTLED_S)

    fleet = Fleet(_schedule(seed, cpu, preempts=preempts, shards=shards), skew_s=0.0)
    with patch.object(users, "job_of", with_run_time):
        run(fleet.run(play))
    return fleet.memory.journal


def _schedule(seed: int, cpu: int, *, preempts: bool, shards: int) -> Schedule:
    random = Random(f"{seed}/quiet")
    policies = [Policy(at_s=0.0, queue=queue, spec=_PREEMPTS) for queue in QUEUES] if preempts else []
    # Of jobs of one second the UID decides who is first: that is another one in another run.
    moments = random.sample(range(1, _SUBMITTED_S), _JOBS)
    submitted = [
        Submit(
            at_s=moments[number] + 0.5,
            kind="Job",
            name=str(number),
            size=random.choice((1, 2, 3, 4)),
            ends=True,
            queue=random.choice(("batch", "batch", "research", "guest")),
            priority=random.choice(("", "", "low", "high")) if preempts else "",
        )
        for number in range(_JOBS)
    ]
    items: list[Item] = [Quota(at_s=0.0, cpu=cpu), *policies, *sorted(submitted, key=lambda item: item.at_s)]
    return Schedule(seed=seed, standbys=(), inventory_s=_NEVER_S, shards=shards, items=tuple(items))
