"""Measures how fast jobs are dispatched and resized, beside a client that makes only the writes that nobody can save.

    python bench/dispatch.py [--rounds 3] [--jobs 100] [--resizes 20] [--pods 300]

On real API servers, Job controllers and RabbitMQ; manager and agents are processes of their own with the settings that
users have. In each round they start anew, do what is measured here, and end. After them the bare client does the same
on the same servers (bare.py).

Burst: so many elastic Jobs of one pod are created at once. The rate counts until the pod of the last one may run. A
spec counts as published when another consumer has it from the broker, and the time before begins when the API server
has answered the admission. The processor time of the roles counts until the manager's Jobs show all pods ready.

Resizes: a user sets the parallelism of the worker's Job from 1 to 5, one at a time. It counts until the fifth pod may
run. The bare client waits for the same pods.

Large: one job from 1 pod to many, in the last round. Meanwhile another job on the same worker is resized as above. The
Job controller may make 200 requests a second for both.

A rate is the median of the rounds; percentiles are over the resizes, or the jobs, of all rounds.
"""

import argparse
import asyncio
import itertools
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import figures
import msgspec
from bare import BareClient, Models
from broker import MANAGER
from figures import Figure, Target, percentile
from installation import WORKERS, Installation, installation
from user import User, manifest_of
from watched import Pods, Publications, admissions

from support.fleet import Fleet

_MODEL = "model-job"
_SIZE = 5
_SMALL_CPU = "10m"
"""Of pods that shall all fit on the nodes."""
_QUIET_S = 1.0
_AT_REST_S = 5.0


Large = tuple[float, list[float]]
"""Seconds of one resize, and of those of another job meanwhile."""


class Measured(msgspec.Struct):
    """Of all rounds. Times in seconds."""

    rates: list[float] = []
    """Jobs a second, of each round."""
    bare_rates: list[float] = []
    waits: list[float] = []
    """From admission to publication, of each job."""
    resizes: list[float] = []
    bare_resizes: list[float] = []
    cpu: dict[str, list[float]] = {}
    """For each dispatch, by role, of each round."""
    resident_mb: dict[str, list[float]] = {}
    large: float = 0.0
    others: list[float] = []
    """Of another job while one grows large."""
    bare_large: float = 0.0
    bare_others: list[float] = []


async def measure_burst(made: Installation, fleet: Fleet, pods: Pods, jobs: int, found: Measured) -> None:
    user, names = User(made.world, pods), [f"burst-{number:04}" for number in range(jobs)]
    async with Publications.watched(made.admin_url) as publications:
        cpu_before = _cpu_s(fleet)
        began = time.perf_counter()
        await user.create(*names)
        found.rates.append(jobs / (time.perf_counter() - began))
        await user.all_ready()
        for role, cpu_s in _cpu_s(fleet).items():
            found.cpu.setdefault(role, []).append((cpu_s - cpu_before[role]) / jobs)
        found.waits += publications.since(admissions(fleet.roles[MANAGER].log()))
    await made.clear()


async def measure_resizes(user: User, job: str, count: int, found: list[float]) -> None:
    """One at a time. Between them everything comes to rest."""
    for _ in range(count):
        found.append(await user.resize(job, _SIZE))
        await user.resize(job, 1)
        await asyncio.sleep(_QUIET_S)


async def measure_large(user: User, pods: Pods, count: int, found: Measured) -> None:
    names = [f"large-{number}" for number in range(len(WORKERS) + 1)]
    await user.create(*names, cpu=_SMALL_CPU)
    by_place: dict[str, list[str]] = {}
    for name in names:
        by_place.setdefault(pods.place[name], []).append(name)
    large, other = max(by_place.values(), key=len)[:2]

    async def resize_other() -> float:
        took = await user.resize(other, _SIZE)
        await user.resize(other, 1)
        return took

    found.large, found.others = await meanwhile(user.resize(large, count), resize_other)


async def meanwhile(large: Coroutine[Any, Any, float], other: Callable[[], Awaitable[float]]) -> Large:
    """What one gives, and what another one gives again and again meanwhile."""
    growing, others = asyncio.create_task(large, name="large"), list[float]()
    while not growing.done():
        others.append(await other())
    return await growing, others


class BareUser:
    """Resizes jobs with the bare client, each time by another slice."""

    def __init__(self, bare: BareClient, user: User) -> None:
        self._bare = bare
        self._user = user
        self._numbers = itertools.count(2)

    async def grow(self, job: str, count: int) -> float:
        """The seconds from 1 pod to so many that may run."""
        began = time.perf_counter()
        await self._bare.grow(job, WORKERS[0], count=count, number=next(self._numbers))
        return time.perf_counter() - began

    async def resize(self, job: str) -> float:
        """Grow, and shrink again; the seconds until it had grown."""
        took = await self.grow(job, _SIZE)
        await self._user.resize(job, 1)
        return took


async def measure_bare(
    made: Installation, pods: Pods, models: Models, given: argparse.Namespace, found: Measured, *, is_last: bool
) -> None:
    bare = BareClient(made.world, pods, models)
    user = BareUser(bare, User(made.world, pods))
    began = time.perf_counter()
    manifests = [manifest_of(f"burst-{number:04}") for number in range(given.jobs)]
    await asyncio.gather(*map(bare.dispatch, manifests, itertools.cycle(WORKERS)))
    found.bare_rates.append(given.jobs / (time.perf_counter() - began))
    await made.clear(without_fleet=True)
    await bare.dispatch(manifest_of("resized"), WORKERS[0])
    for _ in range(given.resizes):
        found.bare_resizes.append(await user.resize("resized"))
        await asyncio.sleep(_QUIET_S)
    if is_last:
        for name in ("large", "other"):
            await bare.dispatch(manifest_of(name, _SMALL_CPU), WORKERS[0])
        growing = user.grow("large", given.pods)
        found.bare_large, found.bare_others = await meanwhile(growing, lambda: user.resize("other"))
    await made.clear(without_fleet=True)


async def measure_round(
    made: Installation, pods: Pods, given: argparse.Namespace, found: Measured, *, is_last: bool
) -> None:
    user = User(made.world, pods)
    async with made.fleet() as fleet:
        # What is done for the first time takes longer.
        await user.create(_MODEL)
        await asyncio.sleep(_AT_REST_S)
        models = await Models.of(made.world, _MODEL, pods.place[_MODEL])
        for role, process in fleet.roles.items():
            found.resident_mb.setdefault(role, []).append(process.process.memory_bytes() / 1e6)
        await user.resize(_MODEL, _SIZE)
        await made.clear()
        await measure_burst(made, fleet, pods, given.jobs, found)
        await user.create("resized")
        await user.all_ready()
        await measure_resizes(user, "resized", given.resizes, found.resizes)
        if is_last:
            await measure_large(user, pods, given.pods, found)
        await made.clear()
    await measure_bare(made, pods, models, given, found, is_last=is_last)


async def measure(given: argparse.Namespace) -> list[Figure]:
    found = Measured()
    async with installation() as made, Pods.watched(made.world.workers) as pods:
        for number in range(given.rounds):
            await measure_round(made, pods, given, found, is_last=number == given.rounds - 1)
    return [*dispatch_figures(found, given.jobs), *resize_figures(found, given.pods), *role_figures(found)]


def dispatch_figures(found: Measured, jobs: int) -> list[Figure]:
    rate, bare_rate = statistics.median(found.rates), statistics.median(found.bare_rates)
    bare, most = Target(0.6, is_least=True, of_ratio=True), Target(0.3)
    name = f"dispatch of {jobs} jobs made at once"
    return [
        Figure.of(name, rate, "/s", beside="bare client", beside_value=bare_rate, target=bare),
        Figure.of("from admission to publication then, p50", percentile(found.waits, 50), "s", target=most),
        Figure.of("from admission to publication then, max", max(found.waits), "s", target=most),
    ]


def resize_figures(found: Measured, pods: int) -> list[Figure]:
    name, of_floor, of_p50 = f"resize from 1 pod to {_SIZE}", Target(1.5, of_ratio=True), Target(4, of_ratio=True)
    floor, p50, p99 = percentile(found.bare_resizes, 50), percentile(found.resizes, 50), percentile(found.resizes, 99)
    other, bare_other = percentile(found.others, 50), percentile(found.bare_others, 50)
    bare = "bare client"
    return [
        Figure.of(f"{name}, p50", p50, "s", beside=bare, beside_value=floor, target=of_floor),
        Figure.of(f"{name}, p99", p99, "s", beside="p50", beside_value=p50, target=of_p50),
        Figure.of(f"resize from 1 pod to {pods}", found.large, "s", beside=bare, beside_value=found.bare_large),
        Figure.of(f"{name} of another job meanwhile, p50", other, "s", beside=bare, beside_value=bare_other),
    ]


def role_figures(found: Measured) -> list[Figure]:
    cpu_ms = {role: 1000 * statistics.median(each) for role, each in found.cpu.items()}
    resident_mb = {role: statistics.median(each) for role, each in found.resident_mb.items()}
    agents_ms, agent_mb = sum(cpu_ms[name] for name in WORKERS), max(resident_mb[name] for name in WORKERS)
    return [
        Figure.of("processor time of the manager, a dispatch", cpu_ms[MANAGER], "ms", target=Target(8)),
        Figure.of("processor time of the agents together, a dispatch", agents_ms, "ms", target=Target(7)),
        Figure.of("resident memory of the manager at rest", resident_mb[MANAGER], "MB", target=Target(90)),
        Figure.of("resident memory of an agent at rest", agent_mb, "MB", target=Target(60)),
    ]


def _cpu_s(fleet: Fleet) -> dict[str, float]:
    return {role: process.process.cpu_s() for role, process in fleet.roles.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=100, help="in the burst")
    parser.add_argument("--resizes", type=int, default=20, help="in a round")
    parser.add_argument("--pods", type=int, default=300, help="of the large job; up to 1,000")
    return figures.run(parser, measure)


if __name__ == "__main__":
    sys.exit(main())
