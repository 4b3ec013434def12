"""Measures the journal: how fast recorded decisions are made again beside decoding them, and what recording costs.

    python bench/journal.py [--jobs 20] [--resizes 40] [--blocks 24] [--rounds 15] [--no-rabbitmq]

Replay: a fleet in this process lives through resizes, and its journal is exported, compressed as tests/replays keeps
it. Another process, as `slicebus replay` is one of its own, reads that file. In each round it is decoded, everything in
it to what its reader gets (messages, and of recordings the messages, the changes of objects, decisions with their
arguments and outcomes), and then replayed. A replay passes over the messages that lie between the recordings: how it
compares with decoding the recordings alone is told beside.

Recording: this process has a manager and an agent, and nothing else. Another one has their API servers, the Job
controllers, and a user who resizes every job again as soon as its pods are ready. Recording is on in blocks of resizes,
in the order on, off, off, on. What counts is the recorders' part of the processor time that the fleet takes in a block,
which is that of both processes; the broker's is left out. What part it is of a manager and an agent alone is told
beside. It lacks what the AMQP library does in tasks of its own. A resize with recording is also compared with one
without, in pairs of blocks. That lacks nothing, but blocks differ by more than recording costs: what comes together in
time is looked at together.
"""

import argparse
import asyncio
import gc
import gzip
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import islice
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import figures
import orjson
from broker import rabbitmq
from figures import Figure, Target
from prometheus_client import CollectorRegistry
from recorders import MeasuredAgent, MeasuredManager, MeasuredRecorder

from slicebus.agent.settings import AgentSettings
from slicebus.bus.contract import Bus
from slicebus.bus.factory import connect
from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World, embedded_world, running
from slicebus.cli.journal.source import records_of_file
from slicebus.cli.replay.command import few_collections
from slicebus.cli.replay.page import MODELS
from slicebus.decisions.replay import WINDOW, Replayer
from slicebus.journal.entry import Entry
from slicebus.journal.export import to_line
from slicebus.journal.recording import Decided, Noted, Received, decode_batch
from slicebus.journal.streams import read_journals
from slicebus.kube.cache import Cache, Change
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.reflector import Reflector
from slicebus.kube.resources import JOBS, WORKERCLUSTERS
from slicebus.manager.settings import ManagerSettings
from slicebus.proto import codec
from slicebus.proto.messages import ClusterName
from slicebus.runtime.logs import configure_logging
from slicebus.sandbox.bus import MemoryBroker
from support.rabbitmq_releases import releases

EAST = ClusterName("east")
LEAST_SHARE = Target(0.5, is_least=True, of_ratio=True)
MOST_COST = Target(5)
"""Percent."""
_POLL_S = 0.02
_PATIENCE_S = 120.0
_VOLUMES = ("datasets", "checkpoints", "shared-memory", "credentials", "logs")
_QUIET_S = 0.5


def a_job(name: str) -> dict[str, Any]:
    """A job with what the pods of training jobs have beside an image: about 4 KB, as much as a Ray worker's."""
    job = objects.job(name)
    spec = job["spec"]["template"]["spec"]
    [container] = spec["containers"]
    names = [f"TRAINING_OPTION_{number:02}" for number in range(20)]
    container["env"] = [{"name": each, "value": f"value of {each.lower()}"} for each in names]
    container["env"] += [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    container["volumeMounts"] = [{"name": each, "mountPath": f"/mnt/{each}", "readOnly": True} for each in _VOLUMES]
    container["ports"] = [{"name": f"port-{port}", "containerPort": port} for port in (6379, 8000, 8265, 10001)]
    probe = {"exec": {"command": ["bash", "-c", "wget -T 2 -q -O- http://localhost:52365/api/local_raylet_healthz"]}}
    container |= {"livenessProbe": probe | {"periodSeconds": 5}, "readinessProbe": probe | {"periodSeconds": 10}}
    container["securityContext"] = {"runAsNonRoot": True, "runAsUser": 1000, "capabilities": {"drop": ["ALL"]}}
    spec["volumes"] = [{"name": each, "persistentVolumeClaim": {"claimName": f"{each}-claim"}} for each in _VOLUMES]
    spec["tolerations"] = [{"key": each, "operator": "Exists", "effect": "NoSchedule"} for each in ("gpu", "spot")]
    terms = [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["large", "larger"]}]
    required = {"nodeSelectorTerms": [{"matchExpressions": terms}]}
    spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return job


class Progress(NamedTuple):
    """What the other process tells of itself."""

    resizes: "Synchronized[int]"
    cpu_s: "Synchronized[float]"


class User:
    """Has jobs, and resizes them."""

    def __init__(self, world: World, jobs: int) -> None:
        self._world = world
        self._names = [f"sweep-{number:03}" for number in range(jobs)]

    async def submit(self) -> None:
        for resource, manifest in objects.quota(64):
            await self._world.ensure(self._world.manager, resource, manifest)
        await asyncio.gather(*(self._world.manager.create(JOBS, a_job(name)) for name in self._names))
        await self._settled(1)

    async def resize_all(self, size: int) -> None:
        """Every job, and wait until the manager's jobs say that so many pods are ready."""
        await asyncio.gather(*(self._resize(name, size) for name in self._names))
        await self._settled(size)

    async def keep_resizing(self, progress: "Progress") -> None:
        """Every job again as soon as it has its size; never ends."""
        sizes, due = dict.fromkeys(self._names, 1), asyncio.Queue[str]()

        def changed(change: Change) -> None:
            assert change.new is not None
            name = change.new["metadata"]["name"]
            if change.new.get("status", {}).get("ready") == sizes[name]:
                sizes[name] = 3 if sizes[name] == 2 else 2
                due.put_nowait(name)

        cache = Cache()
        cache.subscribe(changed)
        async with running(Reflector(self._world.manager, JOBS, cache, namespace=objects.NAMESPACE).run()):
            while True:
                name = await due.get()
                progress.resizes.value += 1
                progress.cpu_s.value = time.process_time()
                await self._resize(name, sizes[name])

    async def _resize(self, name: str, size: int) -> None:
        patch = MergePatch({"spec": {"parallelism": size}})
        await self._world.workers[EAST].patch(JOBS, name, objects.NAMESPACE, patch)

    async def _settled(self, size: int) -> None:
        while True:
            page = await self._world.manager.list(JOBS, namespace=objects.NAMESPACE)
            ready = [job.get("status", {}).get("ready") for job in page.items]
            if ready == [size] * len(self._names):
                return
            await asyncio.sleep(_POLL_S)


@asynccontextmanager
async def fleet(world: World, url: Callable[[str], str]) -> AsyncIterator[None]:
    """A manager and an agent that record. `url` gives the address of a role."""
    async with AsyncExitStack() as stack:
        buses: list[Bus] = []
        for role in ("manager", EAST):
            buses.append(await connect(url(role), name=f"bench {role}"))
            stack.push_async_callback(buses[-1].aclose)
        await world.ensure(world.manager, WORKERCLUSTERS, objects.worker_cluster(EAST, broker_user=buses[1].user))
        common: dict[str, Any] = {"namespace": objects.SYSTEM_NAMESPACE, "identity": "bench"}
        manager = MeasuredManager(
            ManagerSettings(amqp_url=url("manager"), **common), world.manager, buses[0], CollectorRegistry()
        )
        own: dict[str, Any] = {"cluster": EAST, "manager_user": buses[0].user, "status_interval_s": 0.05}
        settings = AgentSettings(amqp_url=url(EAST), **own, **common)
        agent = MeasuredAgent(settings, world.workers[EAST], buses[1], CollectorRegistry())
        await stack.enter_async_context(running(manager.run(), agent.run(), started=[manager.leading, agent.leading]))
        yield


# --- replay ---------------------------------------------------------------------------------------------------------


async def export(jobs: int, path: Path) -> None:
    """Write the journal of a fleet that has lived through resizes."""
    broker = "bench-replay"
    async with embedded_world([EAST]) as world, fleet(world, lambda role: f"memory://{role}@{broker}"):
        user = User(world, jobs)
        await user.submit()
        for size in (2, 3, 1, 2):
            await user.resize_all(size)
        await asyncio.sleep(_QUIET_S)
        bus = await connect(f"memory://manager@{broker}", name="bench")
        lines = [to_line(record) async for record in read_journals(bus, "first", follow=False)]
    MemoryBroker.forget(broker)
    await asyncio.to_thread(path.write_bytes, gzip.compress(b"".join(line + b"\n" for line in lines), mtime=0))


def read(path: Path) -> int:
    """The lines of the file; the number of bytes."""
    with gzip.open(path) as file:
        return sum(map(len, file))


def decode(path: Path, *, messages: bool = True) -> int:
    """Everything that is recorded, as its readers get it; the number of records."""
    count = 0
    for found in records_of_file(str(path)):
        entry = Entry.from_record(found)
        if not entry.is_decisions:
            assert not messages or entry.received is not None
            continue
        for record in decode_batch(found.message).records:
            count += 1
            match record:
                case Received():
                    codec.decode(record.wire)
                case Decided():
                    orjson.loads(bytes(record.arguments))
                    orjson.loads(bytes(record.outcome))
                case Noted():
                    orjson.loads(bytes(record.key))
                    orjson.loads(bytes(record.value))
                case _:
                    pass
    return count


def replay(path: Path) -> int:
    """Every decision again, as `slicebus replay` makes it; the number of decisions."""
    replayer, count = Replayer(MODELS), 0
    found = records_of_file(str(path))
    while window := list(islice(found, WINDOW)):
        for made in replayer.feed_together(window):
            assert made.same, made
            count += 1
    return count


def timed(what: Callable[[Path], int], path: Path) -> float:
    """Its processor time in seconds, without tidying up after it."""
    gc.collect()
    with few_collections():
        began = time.process_time()
        what(path)
        return time.process_time() - began


class Rounds(NamedTuple):
    """What a file has, and the times of each round: to read, to decode, to decode the recordings alone, to replay."""

    size: int
    records: int
    decisions: int
    times: list[list[float]]


def rounds_of(path: Path, rounds: int) -> Rounds:
    """Measured in this process."""
    measured = (read, decode, partial(decode, messages=False), replay)
    size, records, decisions = read(path), decode(path), replay(path)
    return Rounds(size, records, decisions, [[timed(what, path) for what in measured] for _ in range(rounds)])


async def measure_replay(jobs: int, rounds: int) -> list[Figure]:
    with TemporaryDirectory() as folder, ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        path = Path(folder, "life.jsonl.gz")
        await export(jobs, path)
        size, records, decisions, times = await asyncio.wrap_future(pool.submit(rounds_of, path, rounds))
    reading, decoding, inner, replaying = (statistics.median(each) for each in zip(*times, strict=True))
    rate, all_rate, inner_rate = (records / took_s for took_s in (replaying, decoding, inner))
    return [
        Figure.of("records replayed", rate, "/s", beside="decoding all", beside_value=all_rate, target=LEAST_SHARE),
        Figure.of("records replayed, of recordings alone", rate, "/s", beside="decoding them", beside_value=inner_rate),
        Figure.of("records in that journal", records, "records"),
        Figure.of("reading that journal", records / reading, "/s"),
        Figure.of("decisions in that journal", decisions, "decisions"),
        Figure.of("size of that journal", size / 1e6, "MB"),
    ]


# --- recording ------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def world_elsewhere(jobs: int, progress: Progress) -> AsyncIterator[tuple[World, Connection]]:
    """A world in another process, where a user begins to resize jobs when told, and counts."""
    spawn = get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=live, args=(jobs, there, progress), daemon=True)
    process.start()
    manager, worker = await asyncio.to_thread(here.recv)
    async with KubeClient.from_url(manager) as of_manager, KubeClient.from_url(worker) as of_worker:
        yield World(manager=of_manager, workers={EAST: of_worker}), here
    here.send("end")
    process.join()


def live(jobs: int, pipe: Connection, progress: Progress) -> None:
    """The other process."""
    configure_logging(format="console", level="ERROR")

    async def resize() -> None:
        async with embedded_world([EAST]) as world:
            pipe.send((world.manager.host, world.workers[EAST].host))
            await asyncio.to_thread(pipe.recv)
            user = User(world, jobs)
            await user.submit()
            async with running(user.keep_resizing(progress)):
                await asyncio.to_thread(pipe.recv)

    asyncio.run(resize())


async def measure_recording(name: str, url: Callable[[str], str], given: argparse.Namespace) -> list[Figure]:
    """`url` gives the address of a role."""
    spawn = get_context("spawn")
    progress = Progress(spawn.Value("i", 0), spawn.Value("d", 0.0))
    of_fleet: list[float] = []
    of_roles: list[float] = []
    times: dict[bool, list[float]] = {True: [], False: []}
    async with world_elsewhere(given.jobs, progress) as (world, other), fleet(world, url):
        other.send("begin")
        await _resizes(progress, 2 * given.jobs)
        for block in range(given.blocks):
            MeasuredRecorder.on = block % 4 in (0, 3)
            began = _times(progress)
            resizes = await _resizes(progress, given.resizes)
            took, roles, fleet_took = (now - before for now, before in zip(_times(progress), began, strict=True))
            times[MeasuredRecorder.on].append(fleet_took / resizes)
            if MeasuredRecorder.on:
                of_fleet.append(took / fleet_took)
                of_roles.append(took / roles)
    differences = [1 - off / on for on, off in zip(times[True], times[False], strict=True)]
    what = f"recording on {name}"
    return [
        Figure.of(f"{what}: resizes without it, a second of the processor", 1 / statistics.median(times[False]), "/s"),
        *spread(f"{what}: recorders' part of the fleet's processor time", of_fleet, target=MOST_COST),
        *spread(f"{what}: recorders' part of that of manager and agent", of_roles),
        *spread(f"{what}: processor time with it, less without it", differences),
    ]


def spread(name: str, shares: Sequence[float], *, target: Target | None = None) -> list[Figure]:
    """The median in percent, and the bounds of the half around it."""
    low, median, high = (100 * each for each in statistics.quantiles(shares, n=4))
    ends = [Figure.of(f"{name}, {which} quartile", value, "%") for which, value in (("lower", low), ("upper", high))]
    return [Figure.of(name, median, "%", target=target), *ends]


def _times(progress: Progress) -> tuple[float, float, float]:
    """Processor seconds: of the recorders, of this process with them, and of both processes."""
    here = time.process_time()
    return MeasuredRecorder.took_s, here, here + progress.cpu_s.value


async def _resizes(progress: Progress, least: int) -> int:
    """Wait for so many more; how many there were. Raises TimeoutError when the fleet does not resize."""
    count = progress.resizes
    before = count.value
    async with asyncio.timeout(_PATIENCE_S):
        while count.value < before + least:  # noqa: ASYNC110 another process counts
            await asyncio.sleep(_POLL_S)
    return count.value - before


async def measure(given: argparse.Namespace) -> list[Figure]:
    found = await measure_replay(given.jobs, given.rounds)
    found += await measure_recording("the bus in this process", lambda role: f"memory://{role}@bench", given)
    if not given.no_rabbitmq and releases():
        with rabbitmq(EAST) as url:
            found += await measure_recording("RabbitMQ", url, given)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--resizes", type=int, default=40, help="in a block, of all jobs")
    parser.add_argument("--blocks", type=int, default=24, help="a multiple of 4")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--no-rabbitmq", action="store_true")
    return figures.run(parser, measure)


if __name__ == "__main__":
    sys.exit(main())
