"""Writes down what happens to jobs over a span of time, be it recorded or played: the same for both."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

import msgspec

from slicebus.slices.quota.quota import FlavorResource, Usage

PARTS = 96
"""Of a curve that is drawn: a quarter of an hour each of a day."""


class Curve:
    """A value over time."""

    def __init__(self, since: float) -> None:
        self._points = [(since, 0)]

    @property
    def value(self) -> int:
        """The last value."""
        return self._points[-1][1]

    def set(self, at: float, value: int) -> None:
        """Have another value from then on. Times never go back."""
        self._points.append((max(at, self._points[-1][0]), value))

    def means(self, until: float, parts: int = PARTS) -> list[float]:
        """The mean of each of equal parts of the time until then."""
        since = self._points[0][0]
        part_s, areas = max(until - since, 1e-9) / parts, [0.0] * parts
        for began, ended, value in self._steps(until):
            first, last = (min(int((at - since) / part_s), parts - 1) for at in (began, ended))
            for part in range(first, last + 1):
                lasted = min(ended, since + (part + 1) * part_s) - max(began, since + part * part_s)
                areas[part] += value * max(0.0, lasted)
        return [area / part_s for area in areas]

    def area(self, until: float) -> float:
        """The value times the seconds that it lasted."""
        return sum(value * (ended - began) for began, ended, value in self._steps(until))

    def _steps(self, until: float) -> Iterator[tuple[float, float, int]]:
        ends = [*(at for at, _ in self._points[1:]), until]
        for (began, value), ended in zip(self._points, ends, strict=True):
            if value and began < min(ended, until):
                yield began, min(ended, until), value


class JobStory(msgspec.Struct, kw_only=True):
    """What becomes of one job."""

    job: str
    """`Kind/namespace/name`."""
    queue: str
    """Its ClusterQueue."""
    arrived: float
    ran_before: bool = False
    """Whether it had quota when the span began: its wait is over."""
    admissions: list[float] = []
    """When it got quota, for its start, and for more of it."""
    started: float | None = None
    """When it first got quota."""
    ended: float | None = None
    preemptions: int = 0
    pods_lost: int = 0


class Chronicle:
    """Everything that is compared, of the jobs that wait in a span or arrive in it. Unix times, that never go back."""

    def __init__(self, since: float) -> None:
        self.since = since
        self.jobs: dict[str, JobStory] = {}
        """By chain."""
        self.order: list[tuple[str, int]] = []
        """Every admission, as it came: the chain, and the how manieth of it."""
        self.preemptions = 0
        """Jobs that lost all their pods to others, or some."""
        self.pods_killed = 0
        """Pods that jobs lost before their end."""
        self.used: defaultdict[FlavorResource, Curve] = defaultdict(self._curve)
        self.quota: defaultdict[FlavorResource, Curve] = defaultdict(self._curve)
        self.waiting: defaultdict[str, Curve] = defaultdict(self._curve)
        """The jobs without quota, by ClusterQueue."""
        self._uses: dict[str, Usage] = {}
        """By chain."""
        self._waits: dict[str, str] = {}
        """The queues of the chains that wait."""

    def arrive(self, chain: str, job: str, queue: str, at: float, *, holds: bool = False) -> None:
        """A job is there. `holds`: it has quota already."""
        self.jobs[chain] = JobStory(job=job, queue=queue, arrived=at, ran_before=holds)
        if not holds:
            self.wait(chain, max(at, self.since))

    def wait(self, chain: str, at: float) -> None:
        """A job has no quota."""
        if chain not in self._waits:
            queue = self._waits[chain] = self.jobs[chain].queue
            self.waiting[queue].set(at, self.waiting[queue].value + 1)

    def admit(self, chain: str, at: float) -> None:
        """A job got quota, or more of it."""
        story = self.jobs[chain]
        self.order.append((chain, len(story.admissions)))
        story.admissions.append(at)
        if story.started is None and not story.ran_before:
            story.started = at
        self._end_wait(chain, at)

    def use(self, chain: str, usage: Usage, at: float) -> None:
        """A job uses this much quota from now on."""
        before = self._uses.get(chain, {})
        if usage == before:
            return
        for key in before.keys() | usage.keys():
            if difference := usage.get(key, 0) - before.get(key, 0):
                curve = self.used[key]
                curve.set(at, curve.value + difference)
        if usage:
            self._uses[chain] = usage
        else:
            self._uses.pop(chain, None)

    def lose(self, chain: str, pods: int, *, to_others: bool) -> None:
        """A job loses pods before its end."""
        story = self.jobs[chain]
        story.pods_lost += pods
        self.pods_killed += pods
        if to_others:
            story.preemptions += 1
            self.preemptions += 1

    def leave(self, chain: str, at: float) -> None:
        """A job is over."""
        self.use(chain, {}, at)
        self._end_wait(chain, at)
        self.jobs[chain].ended = at

    def set_quota(self, quota: Mapping[FlavorResource, int], at: float) -> None:
        """The sum of all quota from now on."""
        for key in self.quota.keys() | quota.keys():
            if (value := quota.get(key, 0)) != self.quota[key].value:
                self.quota[key].set(at, value)

    def _end_wait(self, chain: str, at: float) -> None:
        queue = self._waits.pop(chain, None)
        if queue is not None:
            self.waiting[queue].set(at, self.waiting[queue].value - 1)

    def _curve(self) -> Curve:
        return Curve(self.since)
