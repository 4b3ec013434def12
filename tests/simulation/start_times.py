"""Jobs that come and go for hours, and when each of those that wait would start by the journal until then.

Only the last third of the jobs is asked about: what is known by then are the others.
"""

import asyncio
from collections.abc import Iterable
from itertools import islice
from random import Random
from typing import Any

import msgspec

from simulation.fleet import Fleet
from simulation.loop import run
from simulation.schedule import SHORT
from simulation.successes import end_due
from simulation.users import Users
from slicebus.bus.contract import Record
from slicebus.cli.cluster.reading import read
from slicebus.cli.demo import objects
from slicebus.journal.entry import Entry
from slicebus.journal.run_times import RunHistory, RunTimes
from slicebus.kube.resources import JOBS
from slicebus.kube.times import time_text
from slicebus.manager.decide.forecast.forecast import forecast
from slicebus.manager.decide.forecast.hypothesis import of_size
from slicebus.manager.decide.forecast.start_time import Estimate, StartTime
from slicebus.manager.state.annotations import job_ref
from slicebus.slices.api import kueue

Manifest = dict[str, Any]
_CORES = 20
"""Of all queues together, which borrow them from each other."""
_QUEUES = ("batch", "guest")
_SIZES = (1, 1, 2, 4)
_MEAN_RUN_S, _SPREAD = 120.0, 0.7
_ASKED_AFTER_S = 2.0
_LOOK_S = 1.0
_ROUNDS = 40


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """A job that comes, and how long its pods run."""

    name: str
    queue: str
    at_s: float
    pods: int
    run_s: float


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What was said of a job that waited, and when it began after that."""

    name: str
    said: StartTime
    waited_s: float


def submissions(seed: int, count: int, *, busy: float) -> list[Submission]:
    """Jobs of one queue, whose sizes and run times keep `busy` of its quota busy."""
    random, at_s = Random(seed), 0.0
    every_s = _MEAN_RUN_S * (sum(_SIZES) / len(_SIZES)) / (_CORES * busy)
    found = []
    for number in range(count):
        at_s += random.expovariate(1 / every_s)
        run_s = _MEAN_RUN_S * random.lognormvariate(-(_SPREAD**2) / 2, _SPREAD)
        found.append(
            Submission(
                name=f"job-{number}", queue=random.choice(_QUEUES), at_s=at_s, pods=random.choice(_SIZES), run_s=run_s
            )
        )
    return found


def play(jobs: list[Submission]) -> list[Asked]:
    """What the command says of those of the last third that wait, and what comes."""
    fleet, found = Fleet(SHORT, skew_s=0.0), list[Asked]()

    async def story(fleet: Fleet) -> None:
        found.extend(await _Story(fleet, jobs).play())

    run(fleet.run(story))
    if fleet.rules.violation is not None:
        raise fleet.rules.violation
    return found


class _Story:
    def __init__(self, fleet: Fleet, jobs: list[Submission]) -> None:
        self._fleet = fleet
        self._jobs = jobs
        self._manager = fleet.world().manager
        self._workers = list(fleet.world().workers.values())
        self._said: dict[str, tuple[float, StartTime]] = {}
        self._began: dict[str, float] = {}
        self._all_began = asyncio.Event()

    async def play(self) -> list[Asked]:
        await Users(self._fleet).set_up()
        ending = asyncio.create_task(self._end_jobs())
        known = len(self._jobs) * 2 // 3
        await asyncio.gather(*(self._submit(job, asks=number >= known) for number, job in enumerate(self._jobs)))
        await self._all_began.wait()
        ending.cancel()
        return [
            Asked(name=name, said=said, waited_s=self._began[name] - at_s) for name, (at_s, said) in self._said.items()
        ]

    async def _submit(self, job: Submission, *, asks: bool) -> None:
        await asyncio.sleep(job.at_s)
        manifest = objects.job(job.name, parallelism=job.pods)
        manifest["metadata"]["labels"][kueue.QUEUE_NAME_LABEL] = job.queue
        manifest["spec"]["completions"] = job.pods
        await self._manager.create(JOBS, manifest)
        if asks:
            await asyncio.sleep(_ASKED_AFTER_S)
            await self._ask(job.name)

    async def _ask(self, name: str) -> None:
        """What `slicebus simulate --since` says of a job that waits."""
        reading = await read(self._manager)
        job = reading.store.jobs["Job"].get(objects.NAMESPACE, name)
        if job is None or name in self._began:
            return
        moment = self._fleet.now()
        asked = of_size(reading.store, job_ref(job), {}, now=time_text(moment))
        estimate = Estimate(
            history=_history(self._fleet.memory.journal),
            choose=Random(name).choice,
            take=lambda rounds: list(islice(rounds, _ROUNDS)),
        )
        [said] = forecast(reading.store, [asked], moment=moment, suggests=False, estimate=estimate)
        if said.start is not None:
            self._said[name] = asyncio.get_running_loop().time(), said.start

    async def _end_jobs(self) -> None:
        """End each job when its pods have run for its time."""
        clock = asyncio.get_running_loop().time
        run_s = {job.name: job.run_s for job in self._jobs}
        while True:
            await asyncio.sleep(_LOOK_S)
            for worker in self._workers:
                await end_due(worker, run_s, self._began, clock=clock)
            if len(self._began) == len(self._jobs):
                self._all_began.set()


def _history(records: Iterable[Record]) -> RunHistory:
    times = RunTimes()
    for record in records:
        times.feed(Entry.from_record(record))
    return times.history
