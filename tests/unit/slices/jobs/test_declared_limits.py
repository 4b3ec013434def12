"""Declared kinds whose controller makes no more pods than a limit, whatever the count."""

import copy
from typing import Any

import pytest

from slicebus.sandbox.apiserver.patches import json_patch
from slicebus.slices.jobs.declaration import Declaration
from slicebus.slices.jobs.declared import DeclaredKind
from unit.slices.jobs.declared import ENTRIES, JOBSET, a_jobset, a_replicated_job, a_train_job

Manifest = dict[str, Any]


def limited_to(completions: object, parallelism: int = 5) -> Manifest:
    """Two Jobs with these numbers."""
    replicated = a_replicated_job(parallelism=parallelism)
    replicated["template"]["spec"]["completions"] = completions
    return a_jobset(replicated)


COUNTS = {
    "fewer completions": (limited_to(2), 4),
    "as many": (limited_to(5), 10),
    "more": (limited_to(9), 10),
    "no completions": (limited_to(None), 10),
    "nothing to complete": (limited_to(0), 0),
    "no number": (limited_to("two"), 10),
}


@pytest.mark.parametrize(("job", "expected"), COUNTS.values(), ids=COUNTS.keys())
def test_no_more_pods_count_than_are_made(job: Manifest, expected: int) -> None:
    assert JOBSET.counts(job, job) == {"workers": expected}
    [pod_set] = JOBSET.pod_sets(job)
    assert pod_set["count"] == expected


def test_a_limit_that_is_no_number_is_named() -> None:
    [problem] = JOBSET.problems(limited_to("two"))
    assert problem.message == "spec.replicatedJobs[0].template.spec.completions is 'two', and no number of pods"


RESIZES = {"as many as are made": (4, (5, 2)), "fewer": (2, (1, 2)), "a size that is no whole number": (3, (1, 2))}


@pytest.mark.parametrize(("count", "expected"), RESIZES.values(), ids=RESIZES.keys())
def test_a_resize_within_the_limit(count: int, expected: tuple[int, int]) -> None:
    job = limited_to(2)
    before = copy.deepcopy(job)
    patched, changed = (
        json_patch(job, JOBSET.resize(job, {"workers": count})),
        JOBSET.with_counts(job, {"workers": count}),
    )
    for found in (patched, changed):
        spec = found["spec"]["replicatedJobs"][0]["template"]["spec"]
        assert (spec["parallelism"], spec["completions"]) == expected
    assert job == before
    assert JOBSET.resize(patched, JOBSET.counts(patched, patched)) == []


def test_a_pod_set_within_its_limit_leaves_the_number_to_those_that_share_it() -> None:
    trainers = ENTRIES["TrainJob"]["podSets"][1]
    driver = ENTRIES["TrainJob"]["podSets"][0] | {"countPath": trainers["countPath"], "countLimitPath": "spec.drivers"}
    kind = DeclaredKind(Declaration.read(ENTRIES["TrainJob"] | {"podSets": [driver, trainers]}))
    job = a_train_job(drivers=1)
    assert kind.counts(job, job) == {"driver": 1, "trainers": 3}
    grown = kind.with_counts(job, {"driver": 1, "trainers": 7})
    assert kind.counts(grown, grown) == {"driver": 1, "trainers": 7}
