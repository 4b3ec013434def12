"""Elastic Indexed Jobs: their completions are as many as their pods at a time, and change with them (KEP-3715).

Whoever resizes one writes both, where it runs or on the manager. It ends with the completions that its copy had then.
"""

from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

from simulation.later import with_later
from simulation.schedule import WORKERS, Moment, Schedule, Submit, Succeed
from simulation.violations import Violation
from slicebus.agent.state import annotations
from slicebus.cli.demo import objects
from slicebus.kube.client import JsonPatch, KubeClient
from slicebus.kube.resources import JOBS
from slicebus.proto.messages import JobPhase
from slicebus.sandbox.apiserver.store import HistoryEntry
from slicebus.slices.api import api_names, kueue
from slicebus.slices.jobs import KINDS

Manifest = dict[str, Any]
NAME = "i"
_MOST = 5


class Tandem(Moment):
    """The elastic Indexed Job of a run gets another size, where it runs or on the manager."""

    api: str
    count: int


def with_indexed(schedule: Schedule) -> Schedule:
    """The same run, on one of five with such a Job."""
    return with_later(schedule, "indexed", _indexed)


async def resize(client: KubeClient, item: Tandem) -> None:
    """Play it, where there is such a Job."""
    for job in (await client.list(JOBS)).items:
        if is_elastic(job):
            same = {"op": "test", "path": "/metadata/uid", "value": job["metadata"]["uid"]}
            fields = ("parallelism", "completions")
            body = [same, *({"op": "add", "path": f"/spec/{field}", "value": item.count} for field in fields)]
            await client.patch(JOBS, job["metadata"]["name"], objects.NAMESPACE, JsonPatch(body))
            return


def is_elastic(job: Manifest) -> bool:
    """Whether the completions of a Job follow its parallelism."""
    return is_indexed(job) and job["spec"].get("completions") == job["spec"].get("parallelism")


def is_indexed(job: Manifest) -> bool:
    """Whether each pod of a Job has an index. What its completions are where it runs, they stay there."""
    return job["kind"] == JOBS.kind and job["spec"].get("completionMode") == "Indexed"


class IndexRules:
    """An Indexed Job is complete on the manager when its copy is, and has the completions of that in the end. Where its
    indexes are shares of the work, only users change how many there are."""

    def __init__(self) -> None:
        self._completed: dict[str, set[int]] = {}
        """The completions of each copy that has completed, by the UID of the manager's job."""
        self._said: dict[str, set[int]] = {}
        """The completions that users have given each of the manager's jobs, there or where it runs, by UID."""

    def see_copy(self, change: HistoryEntry, *, by_role: bool) -> None:
        """A worker's copy has changed; `by_role` tells whether one of the roles has done it. Raises Violation."""
        job = change.object
        uid = annotations.annotation(job, api_names.MANAGER_UID_ANNOTATION)
        if uid is None or not is_indexed(job):
            return
        said, number = self._said.setdefault(uid, set()), job["spec"]["completions"]
        if not by_role:
            said.add(number)
        elif annotations.annotation(job, kueue.SYNC_COMPLETIONS_ANNOTATION) == "false" and number not in said:
            raise Violation(f"shares: {job['metadata']['name']} has {number} indexes, and its users gave it {said}")
        if _is_complete(job):
            self._completed.setdefault(uid, set()).add(number)

    def see_job(self, change: HistoryEntry) -> None:
        """One of the manager's jobs has changed. Raises Violation."""
        job = change.object
        if is_indexed(job):
            self._said.setdefault(job["metadata"]["uid"], set()).add(job["spec"]["completions"])
        if _is_complete(job) and job["metadata"]["uid"] not in self._completed:
            raise Violation(f"completions: {job['metadata']['name']} is complete on the manager, and no copy is")

    def check(self, jobs: Iterable[Manifest]) -> None:
        """The faults have ended: raise Violation for a job of the manager with other completions than its copy had. The
        end is shown first, and the completions come next."""
        for job in filter(_is_complete, jobs):
            has, had = job["spec"]["completions"], self._completed.get(job["metadata"]["uid"], set())
            if has not in had:
                raise Violation(f"completions: {job['metadata']['name']} is complete with {has}, its copy with {had}")


def _is_complete(job: Manifest) -> bool:
    return is_indexed(job) and KINDS[JOBS.kind].outcome(job).phase is JobPhase.SUCCEEDED


def _indexed(random: Random, run_s: float) -> Iterator[Moment]:
    if random.random() > 1 / 5:
        return
    began_s, size = random.uniform(0, run_s / 3), random.randint(1, 3)
    yield Submit(at_s=round(began_s, 2), kind=JOBS.kind, name=NAME, size=size, completions=size, indexed=True)
    for _ in range(random.randint(1, 4)):
        at_s, api = round(random.uniform(began_s, run_s), 2), random.choice(("manager", *WORKERS))
        yield Tandem(at_s=at_s, api=api, count=random.randint(1, _MOST))
    for _ in range(random.choice((0, 4, 12))):
        at_s = round(random.uniform(began_s, run_s), 2)
        yield Succeed(at_s=at_s, pick=random.randrange(12), count=random.choice((1, 2)))
