"""Runs every benchmark, each in a process of its own, and puts their figures together: a table, and a file of JSON.

    python bench/all.py [--quick] [--only NAME ...] [--json FILE]

One at a time: they would take the processors from each other. The status is 1 where one cannot run; a target that is
missed is only shown. `--quick` takes sizes that show that everything runs, and no more: without `--json` no file is
written then.
"""

import argparse
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, Self

import figures
import msgspec
from figures import Figure

BENCH = Path(__file__).parent
RESULTS = BENCH / "results" / "latest.json"
_GB = 1e9
_LOG_TAIL = 4000


class Script(NamedTuple):
    """A benchmark. It takes `--json`, writes its figures there, and ends with 1 where a target is missed."""

    name: str
    quick: tuple[str, ...]
    """Options with which it takes seconds, or little more than its servers need to start."""
    on_servers: bool = False
    """Whether it needs what `make servers` installs."""


SCRIPTS = (
    Script("admission.py", ("--pending", "500", "1000", "--cached", "1000")),
    Script("resync.py", ("--jobs", "20", "--rounds", "1")),
    Script("journal.py", ("--jobs", "1", "--resizes", "2", "--blocks", "4", "--rounds", "1", "--no-rabbitmq")),
    Script("api_requests.py", ("--rounds", "1"), on_servers=True),
    Script("dispatch.py", ("--rounds", "1", "--jobs", "4", "--resizes", "2", "--pods", "10"), on_servers=True),
    Script("bus.py", ("--messages", "50", "--single", "5", "--rounds", "1"), on_servers=True),
    Script(
        "restart.py", ("--workloads", "20", "--agent-jobs", "5", "--messages", "50", "--rounds", "1"), on_servers=True
    ),
    Script(
        "fleet.py",
        (
            "--clusters",
            "1",
            "2",
            "--workloads",
            "10",
            "--rate",
            "2",
            "--seconds",
            "2",
            "--idle",
            "1",
            "--idle-jobs",
            "3",
        ),
        on_servers=True,
    ),
)


class Machine(msgspec.Struct, frozen=True):
    """What the figures were measured on."""

    processor: str
    cores: int
    """Those that this process may use."""
    memory_gb: float
    python: str

    @classmethod
    def here(cls) -> Self:
        """This one."""
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return cls(_processor(), len(os.sched_getaffinity(0)), round(memory / _GB, 1), platform.python_version())


class Result(Figure, frozen=True, kw_only=True):
    """A figure of one of the benchmarks, which its name begins with."""

    machine: Machine


def results(script: str, measured: Sequence[Figure], machine: Machine) -> list[Result]:
    """The figures of a benchmark, by its file's name, as they stand beside those of others."""
    name = script.removesuffix(".py")
    return [
        Result(**msgspec.structs.asdict(figure) | {"name": f"{name}: {figure.name}"}, machine=machine)
        for figure in measured
    ]


def run(script: Script, *, quick: bool) -> list[Figure] | None:
    """What it has measured; None where it cannot run, after printing why."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "figures.json")
        options = script.quick if quick else ()
        command = [sys.executable, str(BENCH / script.name), *options, "--json", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if path.exists():
            return msgspec.json.decode(path.read_bytes(), type=list[Figure])
    print(f"{script.name} ended with {done.returncode}: {done.stderr[-_LOG_TAIL:]}", file=sys.stderr)
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[script.name for script in SCRIPTS])
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the figures go")
    given = parser.parse_args()
    found, failed, machine = list[Result](), list[str](), Machine.here()
    for script in SCRIPTS:
        if given.only and script.name not in given.only:
            continue
        print(f"{script.name} …", file=sys.stderr, flush=True)
        measured = run(script, quick=given.quick)
        if measured is None:
            failed.append(script.name)
        else:
            found += results(script.name, measured, machine)
    path = given.json or (None if given.quick else RESULTS)
    if path is not None:
        path.parent.mkdir(exist_ok=True)
    figures.report(found, json=path)
    return 1 if failed else 0


def _processor() -> str:
    """The model, as the kernel names it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())


if __name__ == "__main__":
    sys.exit(main())
