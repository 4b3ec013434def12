"""Hours of a fleet whose jobs come, are resized and end, while its processes are killed, and what its ledger says.

The journal is read each hour, and forgotten then.
"""

import asyncio
from random import Random

from simulation.fleet import MANAGER, Fleet
from simulation.granted_pods import GrantedPods
from simulation.ledger_sums import LedgerSums
from simulation.loop import run
from simulation.schedule import SHORT, WORKERS, Scale
from simulation.successes import end_due
from simulation.users import Users
from slicebus.cli.demo import objects
from slicebus.kube.resources import JOBS
from slicebus.proto.topology import JOURNALS
from slicebus.slices.api import kueue

_HOUR_S = 3600.0
_JOB_EVERY_S, _RUN_S, _SPREAD = 1500.0, 7200.0, 0.8
_KEPT_S = 1800
"""How long a job stays after its end: everything that is there is looked at again and again."""
_RESIZE_EVERY_S, _KILL_EVERY_S = 600.0, 900.0
_SIZES, _MOST_PODS = (1, 1, 2, 4), 6
_QUEUES = ("batch", "guest")
_LOOK_S = 60.0


class LedgerHours:
    """Plays so many hours of a seed."""

    def __init__(self, seed: int, *, hours: float) -> None:
        self.sums = LedgerSums()
        """By the ledger."""
        self.kills = 0
        """Of a manager."""
        self._fleet = Fleet(SHORT, skew_s=0.0)
        self._granted = GrantedPods(self._fleet)
        self._random = Random(seed)
        self._end_s = hours * _HOUR_S
        self._run_s: dict[str, float] = {}
        self._began: dict[str, float] = {}

    def play(self) -> dict[str, float]:
        """The pod-seconds by job that the API server had, up to when the ledger knows."""
        run(self._fleet.run(self._pass))
        if self._fleet.rules.violation is not None:
            raise self._fleet.rules.violation
        return self._granted.until(self.sums.known_s)

    async def _pass(self, fleet: Fleet) -> None:
        users = Users(fleet)
        await users.set_up()
        tasks = [
            asyncio.create_task(each)
            for each in (self._submit_jobs(), self._resize(users), self._kill(), self._end_jobs(), self._read())
        ]
        await asyncio.wait(tasks, timeout=self._end_s, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result
        self._take_journal()

    async def _submit_jobs(self) -> None:
        manager, random, number = self._fleet.client(MANAGER), self._random, 0
        while True:
            await asyncio.sleep(random.expovariate(1 / _JOB_EVERY_S))
            job, number = f"job-{number}", number + 1
            self._run_s[job] = _RUN_S * random.lognormvariate(-(_SPREAD**2) / 2, _SPREAD)
            manifest = objects.job(job, parallelism=random.choice(_SIZES))
            manifest["spec"] |= {"completions": _MOST_PODS, "ttlSecondsAfterFinished": _KEPT_S}
            manifest["metadata"]["labels"][kueue.QUEUE_NAME_LABEL] = random.choice(_QUEUES)
            await manager.create(JOBS, manifest)

    async def _resize(self, users: Users) -> None:
        while True:
            await asyncio.sleep(self._random.expovariate(1 / _RESIZE_EVERY_S))
            where, size = self._random.choice((MANAGER, *WORKERS)), self._random.randint(1, _MOST_PODS)
            pick = self._random.randrange(100)
            await users.scale(Scale(at_s=0.0, api=where, pick=pick, counts=(size,)))

    async def _kill(self) -> None:
        while True:
            await asyncio.sleep(self._random.expovariate(1 / _KILL_EVERY_S))
            process = self._random.choice(self._fleet.processes)
            process.kill()
            self.kills += process.role == MANAGER

    async def _end_jobs(self) -> None:
        """End the pods of each job when it has run for its time."""
        clock, workers = asyncio.get_running_loop().time, list(map(self._fleet.client, WORKERS))
        while True:
            await asyncio.sleep(_LOOK_S)
            for worker in workers:
                await end_due(worker, self._run_s, self._began, clock=clock)

    async def _read(self) -> None:
        while True:
            await asyncio.sleep(_HOUR_S)
            self._take_journal()

    def _take_journal(self) -> None:
        self.sums.feed(self._fleet.memory.journal)
        for name in JOURNALS:
            self._fleet.memory.streams[name].records.clear()
