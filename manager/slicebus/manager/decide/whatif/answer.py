"""Puts together what plays say: waits, losses, use of quota, how well the past is reproduced, who changes most."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import quantiles

import msgspec

from slicebus.manager.decide.whatif.chronicle import PARTS, Chronicle, JobStory
from slicebus.slices.api.quantities import in_units

CLOSE_S = 5.0
"""An admission is reproduced that comes within so many seconds of the recorded one."""
ENOUGH = 0.95
"""The part of all admissions below which an answer is to be doubted."""
MOST_CHANGED = 10
_MOMENT_S = 1.0
_SHOWN = 5
"""How many differences are named."""
_HOUR_S = 3600.0


class QueueWaits(msgspec.Struct, frozen=True, kw_only=True):
    """How long the jobs of a ClusterQueue waited for their start, in seconds. One that has not started counts with the
    time that it has waited."""

    queue: str
    jobs: int
    started: int
    p50_s: float
    p90_s: float
    p99_s: float


class FlavorUse(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a flavor was used, in hours of cores, bytes or pieces."""

    flavor: str
    resource: str
    used_hours: float
    quota_hours: float

    @property
    def share(self) -> float:
        """Of the quota; 0 where there is none."""
        return self.used_hours / self.quota_hours if self.quota_hours else 0.0

    @property
    def is_gpu(self) -> bool:
        """Whether it counts devices such as `nvidia.com/gpu`."""
        return "/" in self.resource and "gpu" in self.resource.lower()


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What became of all jobs, recorded or played."""

    name: str
    waits: tuple[QueueWaits, ...]
    preemptions: int
    """How often a job lost all its pods to others, or some."""
    pods_killed: int
    """The pods that jobs lost before their end, for whatever reason."""
    flavors: tuple[FlavorUse, ...]
    gpu_hours_idle: float
    """The quota of GPUs that nobody had."""


class Reproduction(msgspec.Struct, frozen=True, kw_only=True):
    """How well the unchanged policy, played, gives what was."""

    admissions: int
    """Of the recording."""
    played: int
    close: int
    """How many come within five seconds."""
    in_order: int
    """How many come in the same order."""
    differences: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        """Of all admissions, recorded or played."""
        most = max(self.admissions, self.played)
        return self.close / most if most else 1.0

    @property
    def order_share(self) -> float:
        """The same of the order."""
        most = max(self.admissions, self.played)
        return self.in_order / most if most else 1.0

    @property
    def is_enough(self) -> bool:
        """Whether an answer can be believed."""
        return self.share >= ENOUGH


class JobChange(msgspec.Struct, frozen=True, kw_only=True):
    """A job whose wait is another one."""

    job: str
    queue: str
    before_s: float
    after_s: float
    started_before: bool
    started_after: bool
    preemptions_before: int
    preemptions_after: int


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """One play with changes."""

    summary: Summary
    changed: tuple[JobChange, ...]
    """The jobs that change most, against the unchanged policy."""


class Curves(msgspec.Struct, frozen=True, kw_only=True):
    """What is drawn of one play, as means of equal parts of the span."""

    name: str
    waiting: Sequence[float]
    """The jobs that wait."""
    used: Mapping[str, Sequence[float]]
    """By `flavor resource`, in cores, bytes or pieces."""


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """The whole answer. Times RFC 3339."""

    since: str
    until: str
    jobs: int
    was: Summary
    unchanged: Summary
    reproduction: Reproduction
    plays: tuple[Played, ...]
    left_out: tuple[str, ...]


def summary(name: str, chronicle: Chronicle, until: float) -> Summary:
    """What became of all jobs until then."""
    by_queue: dict[str, list[JobStory]] = {}
    for story in chronicle.jobs.values():
        if not story.ran_before:
            by_queue.setdefault(story.queue, []).append(story)
    flavors = tuple(_flavors(chronicle, until))
    return Summary(
        name=name,
        waits=tuple(_waits(queue, stories, until) for queue, stories in sorted(by_queue.items())),
        preemptions=chronicle.preemptions,
        pods_killed=chronicle.pods_killed,
        flavors=flavors,
        gpu_hours_idle=round(sum(max(0.0, use.quota_hours - use.used_hours) for use in flavors if use.is_gpu), 2),
    )


def reproduction(was: Chronicle, played: Chronicle) -> Reproduction:
    """How well a play of the unchanged policy gives what was."""
    close, differences = 0, list[tuple[float, str]]()
    for chain, story in was.jobs.items():
        other = played.jobs.get(chain)
        found = other.admissions if other is not None else []
        near = sum(abs(one - two) <= CLOSE_S for one, two in zip(story.admissions, found, strict=False))
        close += near
        if near < max(len(story.admissions), len(found)):
            differences.append(_difference(story, found, was.since))
    places = {admission: place for place, admission in enumerate(was.order)}
    common = [places[admission] for admission in played.order if admission in places]
    return Reproduction(
        admissions=len(was.order),
        played=len(played.order),
        close=close,
        in_order=_longest_rise(_ties_as_recorded(common, was)),
        differences=tuple(text for _, text in sorted(differences)[:_SHOWN]),
    )


def changed(before: Chronicle, after: Chronicle, until: float) -> tuple[JobChange, ...]:
    """The jobs that change most, by their wait."""
    changes = [
        JobChange(
            job=story.job,
            queue=story.queue,
            before_s=round(_wait_s(story, until), 1),
            after_s=round(_wait_s(other, until), 1),
            started_before=story.started is not None,
            started_after=other.started is not None,
            preemptions_before=story.preemptions,
            preemptions_after=other.preemptions,
        )
        for chain, story in before.jobs.items()
        if not story.ran_before and (other := after.jobs.get(chain)) is not None
    ]
    moved = [
        each
        for each in changes
        if abs(each.after_s - each.before_s) >= 1 or each.preemptions_before != each.preemptions_after
    ]
    return tuple(sorted(moved, key=_weight, reverse=True)[:MOST_CHANGED])


def curves(name: str, chronicle: Chronicle, until: float) -> Curves:
    """What is drawn of a play."""
    waiting = [0.0] * PARTS
    for curve in chronicle.waiting.values():
        waiting = [one + two for one, two in zip(waiting, curve.means(until), strict=True)]
    used = {
        f"{flavor} {resource}": [in_units(resource, 1) * mean for mean in curve.means(until)]
        for (flavor, resource), curve in sorted(chronicle.used.items())
    }
    return Curves(name=name, waiting=waiting, used=used)


def _waits(queue: str, stories: Sequence[JobStory], until: float) -> QueueWaits:
    waits = [_wait_s(story, until) for story in stories]
    cuts = quantiles(waits, n=100, method="inclusive") if len(waits) > 1 else [waits[0]] * 99
    return QueueWaits(
        queue=queue,
        jobs=len(stories),
        started=sum(story.started is not None for story in stories),
        p50_s=round(cuts[49], 1),
        p90_s=round(cuts[89], 1),
        p99_s=round(cuts[98], 1),
    )


def _wait_s(story: JobStory, until: float) -> float:
    """How long a job waited for its start; until it was deleted, or the span ended, where it did not start."""
    ends = story.started if story.started is not None else story.ended if story.ended is not None else until
    return max(0.0, ends - story.arrived)


def _flavors(chronicle: Chronicle, until: float) -> Iterator[FlavorUse]:
    for flavor, resource in sorted({*chronicle.used, *chronicle.quota}):
        used, quota = (
            round(in_units(resource, 1) * each[flavor, resource].area(until) / _HOUR_S, 2)
            for each in (chronicle.used, chronicle.quota)
        )
        if used or quota:
            yield FlavorUse(flavor=flavor, resource=resource, used_hours=used, quota_hours=quota)


def _difference(story: JobStory, found: Sequence[float], since: float) -> tuple[float, str]:
    """When a job goes another way than it did, and how."""
    for one, two in zip(story.admissions, found, strict=False):
        if abs(one - two) > CLOSE_S:
            later = "later" if two > one else "earlier"
            return min(one, two), f"{story.job} is admitted {abs(two - one):.0f} s {later} than it was"
    if len(found) > len(story.admissions):
        first = found[len(story.admissions)]
        return first, f"{story.job} is admitted {len(found)} times, and was {len(story.admissions)} times"
    first = story.admissions[len(found)] if len(found) < len(story.admissions) else since
    return first, f"{story.job} was admitted {len(story.admissions)} times, and is {len(found)} times"


def _ties_as_recorded(places: Sequence[int], was: Chronicle) -> Iterable[int]:
    """The places of admissions, as they come. Those of one second, which one cycle may have decided, have no order
    among them."""
    times = [was.jobs[chain].admissions[number] for chain, number in was.order]
    ranks, began = list[int](), 0.0
    for place, at in enumerate(times):
        if not ranks or at - began > _MOMENT_S:
            began = at
            ranks.append(place)
        else:
            ranks.append(ranks[-1])
    return [ranks[place] for place in places]


def _longest_rise(values: Iterable[int]) -> int:
    """How many of these values can stay so that none comes before a smaller one."""
    ends = list[tuple[int, int]]()
    for index, value in enumerate(values):
        place = bisect_left(ends, (value, index))
        ends[place : place + 1] = [(value, index)]
    return len(ends)


def _weight(change: JobChange) -> tuple[float, int]:
    return abs(change.after_s - change.before_s), abs(change.preemptions_after - change.preemptions_before)
