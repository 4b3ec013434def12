"""A job as it is played: which of its runs it is in, and how long that takes."""

from collections.abc import Iterable, Iterator
from math import inf
from statistics import median

from slicebus.journal.run_times import LEAST, are_alike
from slicebus.manager.decide.whatif.recorded_jobs import CountsAt, RecordedJob, RecordedRun, RunEnd
from slicebus.manager.decide.whatif.recorded_past import RecordedPast
from slicebus.proto.messages import Counts

_MARGIN_S = 1.0
"""How much longer than it went on a run takes at least that had not ended."""


class PlayedJob:
    """What changes of a job while it is played."""

    def __init__(self, recorded: RecordedJob) -> None:
        self.recorded = recorded
        self.chain = recorded.chain
        self.is_there = True
        self.run = 0
        """Counts its runs, and the ends of them."""
        self.plans = 0
        """Counts how often its end was planned."""
        self.slices = 0
        """How many were made for it."""
        self.baseline: Counts = recorded.slice.counts
        """The size at which it comes back after an eviction."""
        self.wanted: Counts = recorded.slice.counts
        self.began = 0.0
        """When its last run began."""
        self._starts = self._shrinks = 0
        self._left = inf
        self._rate = 0
        self._since = 0.0

    def start(self, at: float, length: float) -> None:
        """Begin a run. `length` is in seconds, or in pod-seconds."""
        self.run += 1
        self._starts += 1
        self.began = at
        self._left, self._rate, self._since = length, 0, at

    def stop(self) -> None:
        """End a run: what it has done is lost."""
        self.run += 1
        self._left, self._rate = inf, 0

    def go_on(self, at: float, rate: int) -> None:
        """Go on at another rate: so much of its length a second."""
        if self._left != inf:
            self._left = max(0.0, self._left - self._rate * (at - self._since))
        self._rate, self._since = rate, at
        self.plans += 1

    @property
    def ends_at(self) -> float:
        """When it ends at this rate; `inf` for never."""
        return self._since + self._left / self._rate if self._rate and self._left != inf else inf

    @property
    def sizes_apart(self) -> Iterator[CountsAt]:
        """The sizes that were wanted while it did not run."""
        return (size for size in self.recorded.sizes if _run_at(self.recorded, size.at) is None)

    def sizes_of_run(self) -> Iterator[tuple[float, CountsAt]]:
        """The sizes that are wanted in this run, and how many seconds after its begin."""
        yield from self._in_run(self.recorded.sizes)

    def reclaimable_of_run(self) -> Iterator[tuple[float, CountsAt]]:
        """The pods that end for good before this run does, and how many seconds after its begin."""
        yield from self._in_run(self.recorded.reclaimable)

    def _in_run(self, moments: Iterable[CountsAt]) -> Iterator[tuple[float, CountsAt]]:
        if (recorded := self._recorded_run) is not None:
            for each in moments:
                if _run_at(self.recorded, each.at) is recorded:
                    yield each.at - recorded.began, each

    def failure_s(self) -> float | None:
        """How many seconds after its begin this run fails; None where it does not."""
        run = self._recorded_run
        is_own = self._starts <= len(self.recorded.runs)
        return run.ended - run.began if run is not None and is_own and run.end is RunEnd.FAILED and run.ended else None

    def next_shrink_s(self) -> float | None:
        """How long the pods of its next shrink take to go; None where none of that number was recorded."""
        self._shrinks += 1
        known = self.recorded.shrinks_s
        return known[self._shrinks - 1] if self._shrinks <= len(known) else None

    def unended_s(self) -> float:
        """How long the recorded run of the number that begins next went on without an end; 0 where it ended."""
        runs = self.recorded.runs
        run = runs[self._starts] if self._starts < len(runs) else None
        return run.ended - run.began if run is not None and run.ended and run.end is not RunEnd.ENDED else 0.0

    @property
    def recorded_gone_s(self) -> float | None:
        """How long it kept its quota when it was evicted from the run of this number; None where it was not."""
        runs = self.recorded.runs
        return runs[self._starts - 1].gone_s if 0 < self._starts <= len(runs) else None

    @property
    def _recorded_run(self) -> RecordedRun | None:
        runs = self.recorded.runs
        return runs[min(self._starts, len(runs)) - 1] if runs else None


class RunLengths:
    """How long the runs of jobs take, by what was recorded of them and of others."""

    def __init__(self, past: RecordedPast, *, constant_work: bool) -> None:
        self.constant_work = constant_work
        self.estimated: set[str] = set()
        """The jobs of which nobody knows how long they run: others like them tell."""
        self.endless: set[str] = set()
        """Those of which nobody like them has ended."""
        self._past = past
        self._known: dict[str, list[tuple[int, float]]] = {}
        """Pods and seconds of the runs that ended, by ClusterQueue."""
        for job in past.jobs:
            if (run_s := job.run_s) is not None:
                queue = past.was.jobs[job.chain].queue
                self._known.setdefault(queue, []).append((job.runs[-1].most_pods, run_s))

    def of(self, job: PlayedJob, *, began: float, now: float) -> float:
        """The rest of a run that began then, in seconds, or in pod-seconds; `inf` where it does not end."""
        recorded, since = job.recorded, self._past.since
        if (run_s := recorded.run_s) is not None:
            last = recorded.runs[-1]
            if not self.constant_work:
                # A run that lost pods may have gone on for longer than the last one took.
                unended_s = job.unended_s()
                return max(0.0, max(run_s, unended_s + _MARGIN_S if unended_s else 0.0) - (now - began))
            if len(recorded.runs) == 1:
                return last.pod_seconds
            done = (now - began) / run_s if began < since else 0.0
            return last.pod_seconds * max(0.0, 1.0 - done)
        return self._estimate(job, began=began, now=now)

    def _estimate(self, job: PlayedJob, *, began: float, now: float) -> float:
        """The median of those like it that ran longer than it has."""
        recorded = job.recorded
        pods = sum(recorded.slice.counts.values())
        known = self._known.get(self._past.was.jobs[recorded.chain].queue, [])
        alike = [each for each in known if are_alike(pods, each[0])]
        ran_s = recorded.ran_s(self._past.until)
        longer = [seconds for _, seconds in (alike if len(alike) >= LEAST else known) if seconds > ran_s]
        if not longer:
            self.endless.add(recorded.chain)
            return inf
        self.estimated.add(recorded.chain)
        rest_s = max(0.0, median(longer) - (now - began))
        return rest_s * (max(pods, 1) if self.constant_work else 1)


def _run_at(recorded: RecordedJob, at: float) -> RecordedRun | None:
    """The run in which something happened."""
    return next((run for run in recorded.runs if run.began <= at and (run.ended is None or at <= run.ended)), None)
