"""A job that is nested deeper than a message may be is not taken: no order could say it."""

from typing import Any

import pytest

from slicebus.slices.api.levels import MOST_LEVELS
from slicebus.slices.jobs import KINDS
from unit.slices.jobs.manifests import a_cluster, a_group, a_job, a_rayjob, a_rayservice

JOBS = {"Job": a_job(), "RayCluster": a_cluster(a_group()), "RayJob": a_rayjob(), "RayService": a_rayservice()}


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": [value]}
    return value


@pytest.mark.parametrize("kind", JOBS)
def test_it_says_so(kind: str) -> None:
    job = JOBS[kind]
    assert not KINDS[kind].problems(job)
    assert not KINDS[kind].problems(job | {"spec": job["spec"] | {"open": nested(MOST_LEVELS // 2 - 1)}})
    for levels in (MOST_LEVELS, 300):
        problems = KINDS[kind].problems(job | {"spec": job["spec"] | {"open": nested(levels)}})
        assert [problem.reason for problem in problems] == ["TooDeep"]
