"""Measures the memory of the manager's caches: of usual jobs, and of one that a tenant has made large.

    python bench/memory.py [--jobs 10000] [--hostile 20]

An embedded fleet runs one job; its Job and Workload, with everything that slicebus has written onto them, are the
template. A process of its own takes copies into the manager's store, as a list brings them, and reads its
resident memory before and after. Beside the store it measures the same objects as plain trees.

A hostile job has 410 KB of environment variables of a few bytes each, and so has its Workload. The figure for 50,000
jobs is what one takes here and in the rest of a role, times that, and what a role takes at rest: both by
`bench/restart.py`, which measures the whole role, with 2,000 and with 10,000 jobs.
"""

import argparse
import asyncio
import gc
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import figures
import orjson
from broker import MANAGER
from copies import Copies, template
from figures import Figure, Target

from slicebus.cli.broker.connection import bus_of
from slicebus.cli.demo.world import embedded_world, fleet
from slicebus.kube.cache import Manifest
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.messages import ClusterName
from slicebus.sandbox.bus import MemoryBroker
from support.scenario import set_quota

EAST = ClusterName("east")
MIB = 1024**2
REST_MB = 90
"""A manager at rest (`bench/restart.py`)."""
BESIDE_BYTES = 2_900
"""What it keeps of a job beside its caches: 17.5 KB are a job's in all."""
LIMIT_MB = 1024
"""The limit of the manager's chart."""
MANY = 50_000
"""Jobs that one manager holds within its limit."""
_HOSTILE_BYTES = 410 * 1024
_STORE, _TREES = "store", "trees"


def resident_bytes() -> int:
    """What this process has resident."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def objects(path: Path) -> Iterator[Manifest]:
    """The objects of a file, decoded one after the other, as those of a list."""
    with path.open("rb") as file:
        for line in file:
            yield orjson.loads(line)


async def hold(path: Path, how: str) -> int:
    """Take the objects of a file into memory; the bytes that this takes."""
    store, kept = ManagerStore(), list[Manifest]()
    gc.disable()
    before = resident_bytes()
    caches = {"Job": store.jobs["Job"], "Workload": store.workloads}
    for manifest in objects(path):
        kept.append(manifest if how == _TREES else caches[manifest["kind"]].kept(manifest))
    if how == _STORE:
        for kind, cache in caches.items():
            await cache.replace([each for each in kept if each["kind"] == kind], "1")
        kept.clear()
    gc.collect()
    return resident_bytes() - before


async def measured(path: Path, how: str) -> int:
    """The same in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "--hold", str(path), "--how", how, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    return int(json.loads(out))


async def copies() -> Copies:
    """Copies of the objects of a job that runs."""
    broker = "bench-memory"
    async with embedded_world([EAST]) as world:
        await set_quota(world, 100)
        async with (
            fleet(world, {role: f"memory://{role}@{broker}" for role in (MANAGER, EAST)}),
            bus_of(f"memory://{MANAGER}@{broker}", name="bench") as bus,
        ):
            made = Copies(await template(world, EAST, bus))
    MemoryBroker.forget(broker)
    return made


def write(path: Path, of: Copies, count: int, *, hostile: bool = False) -> None:
    """Write the objects of so many jobs, one a line."""
    with path.open("wb") as file:
        for number in range(1, count + 1):
            for version, manifest in enumerate(of.of_manager(number, EAST), start=1):
                manifest["metadata"]["resourceVersion"] = str(version)
                if hostile:
                    enlarge(manifest)
                file.write(orjson.dumps(manifest) + b"\n")


def enlarge(manifest: Manifest) -> None:
    """Give the pods of an object very many variables."""
    spec = manifest["spec"]
    templates = [spec["template"]] if "template" in spec else [each["template"] for each in spec["podSets"]]
    entry = len(b'{"name":"V00000","value":"1"},')
    variables = [{"name": f"V{number:05}", "value": "1"} for number in range(_HOSTILE_BYTES // entry)]
    for each in templates:
        each["spec"]["containers"][0]["env"] = variables


async def measure(given: argparse.Namespace) -> list[Figure]:
    """What a job takes, usual and hostile."""
    of = await copies()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "objects"
        write(path, of, given.jobs)
        store, trees = [await measured(path, how) / given.jobs for how in (_STORE, _TREES)]
        write(path, of, given.hostile, hostile=True)
        large, large_trees = [await measured(path, how) / given.hostile for how in (_STORE, _TREES)]
    many = REST_MB * 1e6 / MIB + MANY * (store + BESIDE_BYTES) / MIB
    return [
        Figure.of("a job with its Workload", store / 1024, "KB", beside="as trees", beside_value=trees / 1024),
        Figure.of(f"{MANY:,} jobs and a manager at rest", many, "MB", target=Target(LIMIT_MB)),
        Figure.of(
            "a job of 410 KB in small fields, with its Workload",
            large / MIB,
            "MB",
            beside="as trees",
            beside_value=large_trees / MIB,
            target=Target(3.0),
        ),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--hostile", type=int, default=20, help="large jobs")
    parser.add_argument("--hold", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--how", choices=(_STORE, _TREES), help=argparse.SUPPRESS)
    given, _ = parser.parse_known_args()
    if given.hold is not None:
        sys.stdout.write(json.dumps(asyncio.run(hold(given.hold, given.how))))
        return 0
    return figures.run(parser, measure)


if __name__ == "__main__":
    sys.exit(main())
