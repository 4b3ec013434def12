"""Measures the journal: how fast recorded decisions are made again beside decoding them, and what recording costs.

    python bench/journal.py [--jobs 20] [--blocks 21] [--rounds 9] [--no-rabbitmq]

Replay: a fleet in this process lives through resizes, and its journal is exported, compressed as tests/replays keeps
it. In each round the file is decoded, every record to what its reader gets (messages, the changes of objects, decisions
with their arguments and outcomes), and then replayed. What of both is reading the file is told beside.

Recording: two such fleets, of which one records its decisions, take turns with a block of resizes. A block is over when
the manager's jobs say that every pod that was asked for is ready. Throughput is resizes for each second of this
process, in which everything runs but RabbitMQ: also the API servers and the controllers of the Jobs. Both fleets of a
pair run one after the other, each first in turn; the median over the pairs counts. Once on the bus in this process, and
once on RabbitMQ where Debian's package is there.
"""

import argparse
import asyncio
import gc
import gzip
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
from prometheus_client import CollectorRegistry

from slicebus.agent.app import Agent
from slicebus.agent.settings import AgentSettings
from slicebus.bus.contract import Bus
from slicebus.bus.factory import connect
from slicebus.bus.memory import MemoryBroker
from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World, embedded_world, running
from slicebus.cli.recorded import records_of_file
from slicebus.cli.replay import few_collections
from slicebus.cli.replaying import MODELS
from slicebus.journal.entry import Entry
from slicebus.journal.export import to_line
from slicebus.journal.recording import Decided, Noted, Received, decode_batch
from slicebus.kube.client import MergePatch
from slicebus.kube.resources import JOBS, WORKERCLUSTERS
from slicebus.manager.app import Manager
from slicebus.manager.settings import ManagerSettings
from slicebus.process.logs import configure_logging
from slicebus.process.replay import Replayer
from slicebus.proto import codec
from slicebus.proto.messages import ClusterName
from slicebus.proto.topology import JOURNAL

EAST = ClusterName("east")
LEAST_SHARE = 0.5
MOST_COST = 0.05
_POLL_S = 0.05
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


class Fleet:
    """A manager, an agent, and jobs that can be resized."""

    def __init__(self, world: World, jobs: int) -> None:
        self.world = world
        self.names = [f"sweep-{number:03}" for number in range(jobs)]

    async def submit(self) -> None:
        for resource, manifest in objects.quota(64):
            await self.world.ensure(self.world.manager, resource, manifest)
        await asyncio.gather(*(self.world.manager.create(JOBS, a_job(name)) for name in self.names))
        await self._settled(1)

    async def resize(self, size: int) -> tuple[float, float]:
        """Every job to a size; wall and process time that it took."""
        gc.collect()
        wall, cpu = time.perf_counter(), time.process_time()
        client = self.world.workers[EAST]
        patch = MergePatch({"spec": {"parallelism": size}})
        await asyncio.gather(*(client.patch(JOBS, name, objects.NAMESPACE, patch) for name in self.names))
        await self._settled(size)
        wall = time.perf_counter() - wall
        # What comes after it belongs to it: the last reports, and the recording of all that.
        await asyncio.sleep(_QUIET_S)
        return wall, time.process_time() - cpu

    async def _settled(self, size: int) -> None:
        """The manager's jobs say that so many pods are ready."""
        while True:
            page = await self.world.manager.list(JOBS, namespace=objects.NAMESPACE)
            if len(page.items) == len(self.names) and all(
                job.get("status", {}).get("ready") == size for job in page.items
            ):
                return
            await asyncio.sleep(_POLL_S)


@asynccontextmanager
async def fleet(jobs: int, url: Callable[[str], str], *, record: bool) -> AsyncIterator[Fleet]:
    """`url` gives the address of a role."""
    async with AsyncExitStack() as stack:
        world = await stack.enter_async_context(embedded_world([EAST]))
        buses: list[Bus] = []
        for role in ("manager", EAST):
            buses.append(await connect(url(role), name=f"bench {role}"))
            stack.push_async_callback(buses[-1].aclose)
        await world.ensure(world.manager, WORKERCLUSTERS, objects.worker_cluster(EAST, broker_user=buses[1].user))
        common = {"namespace": objects.SYSTEM_NAMESPACE, "identity": "bench", "record_decisions": record}
        manager = Manager(
            ManagerSettings(amqp_url=url("manager"), **common), world.manager, buses[0], CollectorRegistry()
        )
        settings = AgentSettings(amqp_url=url(EAST), cluster=EAST, status_interval_s=0.05, **common)
        agent = Agent(settings, world.workers[EAST], buses[1], CollectorRegistry())
        started = [manager.leading, agent.leading]
        await stack.enter_async_context(running(manager.run(), agent.run(), started=started))
        made = Fleet(world, jobs)
        await made.submit()
        yield made


# --- replay ---------------------------------------------------------------------------------------------------------


async def export(jobs: int, path: Path) -> None:
    """Write the journal of a fleet that has lived through resizes."""
    broker = "bench-replay"
    async with fleet(jobs, lambda role: f"memory://{role}@{broker}", record=True) as lived:
        for size in (2, 3, 1, 2):
            await lived.resize(size)
        await asyncio.sleep(_QUIET_S)
        bus = await connect(f"memory://manager@{broker}", name="bench")
        lines = [to_line(record) async for record in bus.read_stream(JOURNAL, "first", follow=False)]
    MemoryBroker.forget(broker)
    await asyncio.to_thread(path.write_bytes, gzip.compress(b"".join(line + b"\n" for line in lines), mtime=0))


def read(path: Path) -> int:
    """The lines of the file; the number of bytes."""
    with gzip.open(path) as file:
        return sum(map(len, file))


def decode(path: Path) -> int:
    """Everything that is recorded, as its readers get it; the number of records."""
    count = 0
    for found in records_of_file(str(path)):
        entry = Entry.from_record(found)
        if not entry.is_decisions:
            assert entry.received is not None
            continue
        for record in decode_batch(entry.record.message).records:
            count += 1
            match record:
                case Received():
                    codec.decode(record.wire)
                case Decided():
                    orjson.loads(bytes(record.given))
                    orjson.loads(bytes(record.outcome))
                case Noted():
                    orjson.loads(bytes(record.key))
                    orjson.loads(bytes(record.value))
    return count


def replay(path: Path) -> int:
    """Every decision again, as `slicebus replay` makes it; the number of decisions."""
    replayer, count = Replayer(MODELS), 0
    for found in records_of_file(str(path)):
        for made in replayer.feed(found):
            assert made.same, made
            count += 1
    return count


def timed(what: Callable[[Path], int], path: Path) -> float:
    gc.collect()
    began = time.process_time()
    with few_collections():
        what(path)
    return time.process_time() - began


async def measure_replay(jobs: int, rounds: int) -> bool:
    with TemporaryDirectory() as folder:
        path = Path(folder, "life.jsonl.gz")
        await export(jobs, path)
        size, records, decisions = read(path), decode(path), replay(path)
        times = [[timed(what, path) for what in (read, decode, replay)] for _ in range(rounds)]
    reading, decoding, replaying = (statistics.median(each) for each in zip(*times, strict=True))
    share = statistics.median(decoded / replayed for _, decoded, replayed in times)
    inner = statistics.median((decoded - lines) / (replayed - lines) for lines, decoded, replayed in times)
    print(f"replay of {records:,} records, {decisions:,} of them decisions, {size:,} bytes, median of {rounds} rounds")
    print(f"  reading the file  {records / reading:>10,.0f} records/s")
    print(f"  decoding alone    {records / decoding:>10,.0f} records/s")
    print(f"  replay            {records / replaying:>10,.0f} records/s   {share:.2f} of it, target {LEAST_SHARE}")
    print(f"                    {inner:>10.2f} without the reading of the file in either")
    return share >= LEAST_SHARE


# --- recording ------------------------------------------------------------------------------------------------------


async def measure_recording(name: str, url: Callable[[str, str], str], jobs: int, blocks: int) -> bool:
    """`url` gives the address of a role of a fleet."""
    async with (
        fleet(jobs, lambda role: url("plain", role), record=False) as plain,
        fleet(jobs, lambda role: url("recording", role), record=True) as recording,
    ):
        costs, walls, rates = [], [], []
        for block in range(blocks + 1):
            size = 3 if block % 2 else 2
            order = (plain, recording) if block % 2 else (recording, plain)
            took = {each: await each.resize(size) for each in order}
            if block:  # The first warms up.
                (wall_off, cpu_off), (wall_on, cpu_on) = took[plain], took[recording]
                costs.append(1 - cpu_off / cpu_on)
                walls.append(1 - wall_off / wall_on)
                rates.append(jobs / cpu_off)
    cost = statistics.median(costs)
    low, _, high = statistics.quantiles(costs, n=4)
    print(f"recording on {name}, {blocks} pairs of blocks of {jobs} resizes")
    print(f"  without           {statistics.median(rates):>10,.1f} resizes/s of this process")
    print(
        f"  recording costs   {cost:>10.1%} of them, target {MOST_COST:.0%}; half of the pairs {low:.1%} to {high:.1%}"
    )
    print(f"                    {statistics.median(walls):>10.1%} by the clock on the wall")
    return cost < MOST_COST


@contextmanager
def rabbitmq(fleets: Sequence[str]) -> Iterator[Callable[[str, str], str]]:
    """A broker of Debian's package, with a vhost for each fleet; gives the address of a fleet's role."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from support.rabbitmq import RabbitBroker

    with TemporaryDirectory() as folder:
        broker = RabbitBroker(Path(folder))
        try:
            broker.start()
            for name in fleets:
                broker.add_vhost(name, "manager", EAST)
            yield lambda name, role: broker.url(name, role, role)
        finally:
            broker.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--blocks", type=int, default=21, help="pairs of blocks")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--no-rabbitmq", action="store_true")
    given = parser.parse_args()
    configure_logging(format="console", level="ERROR")
    fine = asyncio.run(measure_replay(given.jobs, given.rounds))
    in_process = measure_recording(
        "the bus in this process", lambda of, role: f"memory://{role}@bench-{of}", given.jobs, given.blocks
    )
    fine &= asyncio.run(in_process)
    if not given.no_rabbitmq and Path("/usr/lib/rabbitmq").exists():
        with rabbitmq(("plain", "recording")) as url:
            fine &= asyncio.run(measure_recording("RabbitMQ", url, given.jobs, given.blocks))
    raise SystemExit(0 if fine else 1)


if __name__ == "__main__":
    main()
