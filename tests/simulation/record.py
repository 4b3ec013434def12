"""Records the scenarios that tests/replays makes again: the same bytes from the same code.

make recordings                 all of them
make recordings ONLY=eviction   one of them
"""

import argparse
import asyncio
import gzip
import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import structlog

from simulation.beside_kueue import with_kueue
from simulation.fleet import Fleet
from simulation.loop import run
from simulation.run import Run
from simulation.schedule import Cut, Delete, Drain, Item, Join, Policy, Quota, Scale, Schedule, Submit
from slicebus.journal.export import to_line
from slicebus.manager.state.settings import AdmissionModeName

BESIDE_KUEUE = "beside-kueue"
FOLDER = Path(__file__).parents[1] / "replays"
_NEVER_S = 1e6
_SETTLED_S = 15.0
"""After the last thing that happens: longer than a pod takes to end, and than a batch waits for more records."""


def _schedule(*items: Item, inventory_s: float = _NEVER_S) -> Schedule:
    return Schedule(seed=0, standbys=(), inventory_s=inventory_s, items=items)


SCENARIOS: Mapping[str, Schedule] = {
    "life-of-a-job": _schedule(
        Submit(at_s=0.0, kind="Job", name="a"),
        Scale(at_s=4.0, api="east", pick=0, counts=(3,)),
        Scale(at_s=8.0, api="east", pick=0, counts=(20,)),
        Scale(at_s=12.0, api="east", pick=0, counts=(2,)),
        Delete(at_s=16.0, api="manager", kind="Job", pick=0),
    ),
    "eviction": _schedule(
        Join(at_s=0.0, who="batch", cohort=""),
        Quota(at_s=0.0, cpu=4),
        Quota(at_s=0.0, cpu=0, flavor="spot"),
        Policy(at_s=0.0, queue="batch", spec={"preemption": {"withinClusterQueue": "LowerPriority"}}),
        Submit(at_s=1.0, kind="Job", name="a", size=2, priority="low"),
        Scale(at_s=5.0, api="manager", pick=0, counts=(4,)),
        Submit(at_s=10.0, kind="Job", name="b", size=3, priority="high"),
        Delete(at_s=50.0, api="manager", kind="Job", pick=1),
    ),
    "ray-job": _schedule(
        Submit(at_s=0.0, kind="RayJob", name="a", ends=True),
        Scale(at_s=3.0, api="east", pick=0, counts=(3,)),
    ),
    "lost-cluster": _schedule(
        Submit(at_s=0.0, kind="Job", name="a", size=2),
        Cut(at_s=4.0, cluster="east", for_s=230.0),
        inventory_s=60.0,
    ),
    BESIDE_KUEUE: _schedule(
        Submit(at_s=0.0, kind="Job", name="a"),
        Scale(at_s=8.0, api="east", pick=0, counts=(3,)),
        Scale(at_s=16.0, api="east", pick=0, counts=(20,)),
        Scale(at_s=24.0, api="east", pick=0, counts=(2,)),
        Drain(at_s=32.0, cluster="east", for_s=60.0),
        Delete(at_s=100.0, api="manager", kind="Job", pick=0),
    ),
}


async def _play(fleet: Fleet) -> None:
    await Run(fleet).pass_by()
    await asyncio.sleep(_SETTLED_S)


def recording(name: str) -> bytes:
    """The journal of a scenario, as `slicebus journal export` writes it, compressed. Raises Violation."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    beside_kueue = name == BESIDE_KUEUE
    admission = AdmissionModeName.KUEUE if beside_kueue else AdmissionModeName.BUILTIN
    fleet = Fleet(SCENARIOS[name], skew_s=0.0, admission=admission)
    run(fleet.run(partial(with_kueue, story=_play) if beside_kueue else _play))
    lines = [to_line(record) + b"\n" for record in fleet.memory.journal]
    return gzip.compress(b"".join(lines), mtime=0)


def main() -> int:
    """Write the recordings."""
    parser = argparse.ArgumentParser(description="Record the scenarios of tests/replays anew.")
    parser.add_argument("only", nargs="*", metavar="NAME", help="these; all of them by default")
    parser.add_argument("--to", type=Path, default=FOLDER, help="the folder that they are written to")
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        parser.error("set PYTHONHASHSEED=0: sets of names have an order of their own in every process")
    for name in options.only or SCENARIOS:
        content = recording(name)
        (options.to / f"{name}.jsonl.gz").write_bytes(content)
        print(f"{name}: {len(content)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
