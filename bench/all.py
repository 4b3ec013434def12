"""Runs every benchmark, each in a process of its own, and puts their figures together: a table, and a file of JSON.

    python bench/all.py [--quick] [--only NAME ...] [--json FILE | --update]

Every script beside this one is a benchmark, but for those in `SHARED`. One at a time: they would take the processors
from each other. The status is 1 where one cannot run; a target that is missed is only shown. Without `--json` the file
is results/latest.json, and docs/benchmarks.md shows the same; none is written then with `--quick`, whose sizes show
that everything runs and no more, nor with `--only`. `--update` writes both there too: the figures of these benchmarks
in place of those that they had.
"""

import argparse
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import figures
import msgspec
from broker import rabbitmq_in_words
from figures import Figure
from page import page

BENCH = Path(__file__).parent
RESULTS = BENCH / "results" / "latest.json"
PAGE = BENCH.parent / "docs" / "benchmarks.md"
SHARED = {
    "all.py",
    "bare.py",
    "broker.py",
    "contention.py",
    "copies.py",
    "figures.py",
    "installation.py",
    "light_agents.py",
    "page.py",
    "recorders.py",
    "roles.py",
    "server_counts.py",
    "user.py",
    "watched.py",
}
"""Modules that are no benchmarks, whether they are there or not."""
QUICK: dict[str, tuple[str, ...]] = {
    "admission.py": ("--pending", "500", "1000", "--running", "100", "1000", "--cached", "1000"),
    "api_requests.py": ("--rounds", "1"),
    "beside_kueue.py": ("--rounds", "1", "--jobs", "3", "--resizes", "1"),
    "bus.py": ("--messages", "50", "--single", "5", "--rounds", "1"),
    "dispatch.py": ("--rounds", "1", "--jobs", "4", "--resizes", "2", "--pods", "10"),
    "pending.py": ("--pending", "60", "600"),
    "fleet.py": (
        *("--clusters", "1", "2", "--workloads", "10", "--rate", "2", "--seconds", "2"),
        *("--settle", "3", "--idle", "1", "--idle-jobs", "3"),
    ),
    "flood.py": (
        "--clusters",
        "2",
        "--workloads",
        "10",
        "--rate",
        "2",
        "--seconds",
        "2",
        "--settle",
        "3",
        "--before",
        "1",
    ),
    "journal.py": ("--jobs", "1", "--resizes", "2", "--blocks", "4", "--rounds", "1", "--no-rabbitmq"),
    "ledger.py": ("--jobs", "2", "--resizes", "2", "--slices", "1000"),
    "memory.py": ("--jobs", "50", "--hostile", "2"),
    "raycluster.py": ("--resizes", "1", "--clusters", "2"),
    "reclaim.py": ("--seeds", "2"),
    "restart.py": ("--workloads", "20", "--agent-jobs", "5", "--messages", "50", "--rounds", "1"),
    "resync.py": ("--jobs", "20", "--rounds", "1"),
    "shards.py": (
        *("--clusters", "2", "--workloads", "10", "--rate", "2", "--seconds", "2"),
        *("--settle", "3", "--idle", "1", "--rounds", "1"),
    ),
    "simulated_runs.py": ("--first", "8", "--seeds", "2"),
    "whatif.py": ("--jobs", "100", "--clusters", "2"),
}
"""Options with which a benchmark takes seconds, or little more than its servers need to start. One that is not here has
its own sizes with `--quick` too, and no test runs it."""
NEEDS = {"beside_kueue.py": ("KUEUE_BINARY", "KUEUE_CRDS")}
"""Variables of the environment that name a peer. Without them its benchmark is left out."""
_TARGET_MISSED = 1
_LOG_TAIL = 4000


class Result(Figure, frozen=True, kw_only=True):
    """A figure of one of the benchmarks, which its name begins with."""

    machine: str


def benchmarks(folder: Path = BENCH) -> list[str]:
    """The names of their files, in order."""
    return sorted(path.name for path in folder.glob("*.py") if path.name not in SHARED)


def with_what_they_need(names: Sequence[str]) -> list[str]:
    """Without those whose peer nobody names, after saying so."""
    found = []
    for name in names:
        missing = [variable for variable in NEEDS.get(name, ()) if not os.environ.get(variable)]
        if missing:
            print(f"{name} is left out: {' and '.join(missing)} not set", file=sys.stderr)
        else:
            found.append(name)
    return found


def run(script: Path, *options: str) -> list[Figure]:
    """What it has measured; nothing where it cannot run, after printing why."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "figures.json")
        command = [sys.executable, str(script), *options, "--json", str(path)]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode in (0, _TARGET_MISSED) and path.exists():
            found = msgspec.json.decode(path.read_bytes(), type=list[Figure])
            if found:
                return found
    print(f"{script.name} has no figures, status {done.returncode}: {done.stderr[-_LOG_TAIL:]}", file=sys.stderr)
    return []


def results(script: str, measured: Sequence[Figure], machine: str) -> list[Result]:
    """The figures of a benchmark, by its file's name, as they stand beside those of others."""
    name = script.removesuffix(".py")
    return [
        Result(**msgspec.structs.asdict(figure) | {"name": f"{name}: {figure.name}"}, machine=machine)
        for figure in measured
    ]


def renewed(latest: Sequence[Result], found: Sequence[Result]) -> list[Result]:
    """The latest figures, with those of the benchmarks that have run again in place of what these had."""
    again = {_benchmark_of(result) for result in found}
    return sorted([*(each for each in latest if _benchmark_of(each) not in again), *found], key=_benchmark_of)


def _benchmark_of(result: Result) -> str:
    return result.name.partition(":")[0]


def keep(found: Sequence[Result]) -> None:
    """Write the latest figures, and the page that shows them."""
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_bytes(figures.to_json(found))
    PAGE.write_text(page_of(found))


def page_of(found: Sequence[Result]) -> str:
    """The page of figures that were measured on one machine, or on several."""
    return page(found, " and ".join(dict.fromkeys(each.machine for each in found)))


def machine_of(cpuinfo: str, *, cores: int, memory_bytes: int) -> str:
    """A machine in words, by what its kernel tells of its processors, and the version of this Python."""
    models = (line.partition(":")[2].strip() for line in cpuinfo.splitlines() if line.startswith("model name"))
    processor, memory = next(models, platform.machine()), f"{memory_bytes / 1e9:.1f} GB"
    return f"{processor}, {cores} cores, {memory}, Python {platform.python_version()}"


def this_machine() -> str:
    """With the cores that this process may use, and the RabbitMQ that the benchmarks start."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cpuinfo = Path("/proc/cpuinfo").read_text()
    machine = machine_of(cpuinfo, cores=len(os.sched_getaffinity(0)), memory_bytes=memory_bytes)
    return f"{machine}, {rabbitmq_in_words()}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=benchmarks())
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--json", type=Path, metavar="FILE", help="where the figures go")
    where.add_argument("--update", action="store_true", help="renew these figures in the latest ones")
    given = parser.parse_args()
    if given.quick and given.update:
        parser.error("--quick: its figures say nothing, and are not kept")
    found, failed, machine = list[Result](), False, this_machine()
    for name in given.only or with_what_they_need(benchmarks()):
        print(f"{name} …", file=sys.stderr, flush=True)
        measured = run(BENCH / name, *(QUICK.get(name, ()) if given.quick else ()))
        failed |= not measured
        found += results(name, measured, machine)
    figures.report(found, json=given.json)
    if given.update:
        keep(renewed(msgspec.json.decode(RESULTS.read_bytes(), type=list[Result]), found))
    elif given.json is None and not given.quick and given.only is None:
        keep(found)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
