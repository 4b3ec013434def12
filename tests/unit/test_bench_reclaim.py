"""The benchmark of reclaims plays a few jobs as they would run, so that its figures can be worked out by hand."""

from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any

import msgspec
import pytest
from contention import CORES, HIGH, Job, Play, jobs_of
from reclaim import WAYS, compared, played

LEAST, WHOLE = WAYS


def a_job(name: str, pods: int = CORES, **changes: Any) -> Job:
    fields: dict[str, Any] = {"queue": "q", "priority": 0, "least": 4, "runs_s": 1000, "at_s": 0, "ends_s": 10}
    return Job(name=name, pods=pods, **(fields | changes))


def high(pods: int = 8, name: str = "high", **changes: Any) -> Job:
    return a_job(name, pods, **({"priority": HIGH, "least": None, "runs_s": 100, "at_s": 500} | changes))


@dataclass
class Expected:
    killed: int = 0
    lost_s: int = 0
    evicted: int = 0
    waits_s: list[int] = field(default_factory=list)
    took_s: list[int] = field(default_factory=list)


CASES = {
    "alone nobody loses anything": ([a_job("low")], LEAST, Expected(took_s=[1000])),
    # At 610 it has 24 of 32 pods for 100 s, and none of 8 for 10 s: 8 * 500 are to be done again, by 32 pods from then.
    "one gives as many as are missing": (
        [a_job("low"), high()],
        LEAST,
        Expected(killed=8, lost_s=8 * 500, waits_s=[10], took_s=[1153]),
    ),
    # At 610 it begins anew.
    "without a least size it loses all": (
        [a_job("low"), high()],
        WHOLE,
        Expected(killed=32, lost_s=32 * 500, evicted=1, waits_s=[10], took_s=[1610]),
    ),
    "below its least size it loses all": (
        [a_job("low"), high(30)],
        LEAST,
        Expected(killed=32, lost_s=32 * 500, evicted=1, waits_s=[10], took_s=[1610]),
    ),
    # The second one comes while pods end: the first one waits until the last of them are gone.
    "two take pods of one": (
        [a_job("low"), high(), high(4, at_s=505, name="higher")],
        LEAST,
        Expected(killed=12, lost_s=8 * 500 + 4 * 505, waits_s=[15, 10], took_s=[1231]),
    ),
}


@pytest.mark.parametrize(("jobs", "way", "expected"), CASES.values(), ids=CASES)
def test_what_becomes_of_a_few_jobs(jobs: list[Job], way: str, expected: Expected) -> None:
    found = msgspec.structs.asdict(Play(jobs, WAYS[way]).play())
    assert {name: found[name] for name in asdict(expected)} == asdict(expected)


def test_both_ways_play_the_same_jobs() -> None:
    assert jobs_of(Random(1)) == jobs_of(Random(1))
    found = played(range(2))
    least, whole = found[LEAST], found[WHOLE]
    assert len(least.waits_s) == len(whole.waits_s) > 0
    assert len(least.took_s) == len(whole.took_s) > 0
    assert {figure.name: figure.value for figure in compared(found)}["pods killed"] == least.killed
