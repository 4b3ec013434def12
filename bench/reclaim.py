"""What least sizes spare where jobs compete: pods killed and their work, the use of quota, and how long the important
ones wait.

    python bench/reclaim.py [--first 0] [--seeds 1000]

The jobs of a seed are decided twice, with the least sizes that they name (`slicebus.dev/min-size`) and without
(`contention.py`). The clock is simulated, so the figures do not depend on the machine.
"""

import argparse
import sys
from collections.abc import Callable, Mapping
from random import Random

import figures
import msgspec
from contention import MAIN, Job, Outcome, Play, jobs_of
from figures import Figure, Target, percentile

from slicebus.slices.workload.elasticity import RIGID, Elasticity

FEWER, BUSY, NO_LONGER = Target(1 / 3, of_ratio=True), Target(95, is_least=True), Target(1.0, of_ratio=True)
WAYS: Mapping[str, Callable[[Job], Elasticity]] = {
    "with least sizes": lambda job: Elasticity(least={MAIN: job.least}) if job.least is not None else RIGID,
    "without": lambda _job: RIGID,
}
"""What the jobs of a seed say of their size, each time that they are played."""


def played(seeds: range) -> dict[str, Outcome]:
    """What became of the jobs of these seeds, by the way in which they were played."""
    found = {way: Outcome() for way in WAYS}
    for seed in seeds:
        jobs = jobs_of(Random(seed))
        for way, says in WAYS.items():
            for name, value in msgspec.structs.asdict(Play(jobs, says).play()).items():
                setattr(found[way], name, getattr(found[way], name) + value)
    return found


def compared(found: Mapping[str, Outcome]) -> list[Figure]:
    """What was decided with least sizes, beside the same without."""
    (_, least), (beside, whole) = found.items()

    def figure(name: str, of: Callable[[Outcome], float], unit: str, target: Target | None = None) -> Figure:
        return Figure.of(name, of(least), unit, beside=beside, beside_value=of(whole), target=target)

    return [
        figure("pods killed", lambda of: of.killed, "pods", FEWER),
        figure("pods that those lacked whom others lost pods for", lambda of: of.lacked, "pods"),
        figure("pods killed for each of these", lambda of: of.killed / max(1, of.lacked), "pods"),
        figure("pods killed of jobs that can do with fewer", lambda of: of.killed_of_elastic, "pods"),
        figure("pods killed for a high priority", lambda of: of.killed_for_high, "pods"),
        figure("work lost with them", lambda of: of.lost_s / 3600, "pod-hours"),
        figure("jobs that lost all pods at once", lambda of: of.evicted, "jobs"),
        Figure.of(
            "use of the quota while a job wants pods back", 100 * least.used_s / least.wanted_s, "%", target=BUSY
        ),
        figure("use of the quota while anybody waits", lambda of: 100 * of.ran_s / of.quota_s, "%"),
        figure("wait of a high priority, p50", lambda of: percentile(of.waits_s, 50), "s", NO_LONGER),
        figure("wait of a high priority, p99", lambda of: percentile(of.waits_s, 99), "s", NO_LONGER),
        figure("time from submission to end of the others, p50", lambda of: percentile(of.took_s, 50), "s"),
        figure("time from submission to end of the others, p99", lambda of: percentile(of.took_s, 99), "s"),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1000)
    figures.add_argument(parser)
    given = parser.parse_args()
    return figures.report(compared(played(range(given.first, given.first + given.seeds))), json=given.json)


if __name__ == "__main__":
    sys.exit(main())
