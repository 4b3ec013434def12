"""What a job says of its size: read where it makes sense, and named where it does not."""

import pytest

from slicebus.slices.api import api_names
from slicebus.slices.workload.elasticity import (
    INVALID_MAX_SIZE,
    INVALID_MIN_SIZE,
    INVALID_NOTICE,
    RIGID,
    Elasticity,
    least_problem,
    most_problem,
    notice_problem,
    problems,
)

MIN, MAX, NOTICE = api_names.MIN_SIZE_ANNOTATION, api_names.MAX_SIZE_ANNOTATION, api_names.NOTICE_ANNOTATION
SIZES = {"head": 1, "workers": 8, "gpu": 2}
FIXED = ("head",)

SIZE_TEXTS: dict[str, tuple[str, dict[str, int]]] = {
    "one": ("workers=2", {"workers": 2}),
    "several": ("workers=2,gpu=1", {"workers": 2, "gpu": 1}),
    "spaces": (" workers = 2 , gpu=1 ", {"workers": 2, "gpu": 1}),
    "its size": ("workers=8", {"workers": 8}),
    "the head at its size": ("head=1,workers=3", {"head": 1, "workers": 3}),
}
BAD_SIZES: dict[str, tuple[str, str]] = {
    "empty": ("", "is not of the form gpu=2"),
    "only a number": ("3", "is not of the form gpu=2"),
    "JSON": ('{"workers":3}', "is not of the form gpu=2"),
    "no name": ("=3", "is not of the form gpu=2"),
    "a comma too many": ("workers=2,", "is not of the form gpu=2"),
    "unknown pod set": ("wrkers=2", "names the pod set wrkers, and the job has only head, workers, gpu"),
    "no number": ("workers=two", "has no number of pods for workers"),
    "no count": ("workers=", "has no number of pods for workers"),
    "a part of a pod": ("workers=1.5", "has no number of pods for workers"),
    "other digits": ("workers=٣", "has no number of pods for workers"),
    "far too many": ("workers=" + "9" * 5000, "has no number of pods for workers"),
    "negative": ("workers=-1", "has a negative number of pods for workers"),
    "twice": ("workers=2,workers=2", "names the pod set workers twice"),
    "the head below its size": ("head=0", "gives head another size than 1, which it always has"),
}


@pytest.mark.parametrize(("text", "sizes"), SIZE_TEXTS.values(), ids=SIZE_TEXTS.keys())
def test_sizes_that_make_sense(text: str, sizes: dict[str, int]) -> None:
    assert least_problem(text, SIZES, fixed=FIXED) == most_problem(text, SIZES, fixed=FIXED) == ""
    read = Elasticity.from_annotations({MIN: text, MAX: text}, SIZES)
    assert (read.least, read.most, read.notice_s) == (sizes, sizes, 0.0)


@pytest.mark.parametrize(("text", "problem"), BAD_SIZES.values(), ids=BAD_SIZES.keys())
def test_sizes_that_make_no_sense(text: str, problem: str) -> None:
    assert least_problem(text, SIZES, fixed=FIXED) == f"the annotation {MIN} {problem}"
    assert most_problem(text, SIZES, fixed=FIXED) == f"the annotation {MAX} {problem}"


@pytest.mark.parametrize("text", [text for text, _ in BAD_SIZES.values() if text != "head=0"])
def test_what_stands_on_a_workload_and_is_bad_counts_as_not_given(text: str) -> None:
    read = Elasticity.from_annotations({MIN: text, MAX: text, NOTICE: "soon"}, SIZES)
    assert read == RIGID


def test_a_bad_value_leaves_the_others() -> None:
    read = Elasticity.from_annotations({MIN: "workers=-2", MAX: "workers=20", NOTICE: "1m"}, SIZES)
    assert (read.least, read.most, read.notice_s) == ({}, {"workers": 20}, 60.0)


def test_the_bounds_of_both_sizes() -> None:
    assert least_problem("workers=9", SIZES) == f"the annotation {MIN} has more pods of workers than the job: 8"
    assert least_problem("workers=0", SIZES) == ""
    assert most_problem("workers=0", SIZES) == f"the annotation {MAX} leaves workers no pod"
    assert most_problem("workers=3", SIZES) == most_problem("workers=900", SIZES) == ""
    assert most_problem("head=2", SIZES, fixed=FIXED).endswith("gives head another size than 1, which it always has")


NOTICES: dict[str, tuple[str, float]] = {
    "seconds": ("120s", 120.0),
    "minutes": ("2m", 120.0),
    "several units": ("1h2m3s", 3723.0),
    "a fraction": ("1.5m", 90.0),
    "milliseconds": ("500ms", 0.5),
    "nothing": ("0", 0.0),
    "no second": ("0s", 0.0),
    "spaces around": (" 10s ", 10.0),
}


@pytest.mark.parametrize(("text", "seconds"), NOTICES.values(), ids=NOTICES.keys())
def test_notices(text: str, seconds: float) -> None:
    assert notice_problem(text) == ""
    assert Elasticity.from_annotations({NOTICE: text}, SIZES).notice_s == seconds


@pytest.mark.parametrize("text", ["", "120", "-5s", "s", "5 s", "1d", "5S", "٣s", "1e9s", "9" * 5000 + "s", "1s\n2s"])
def test_no_notices(text: str) -> None:
    assert notice_problem(text) == f"the annotation {NOTICE} is no duration such as 90s, 5m or 1h30m"
    assert Elasticity.from_annotations({NOTICE: text}, SIZES) == RIGID


def test_problems_have_the_reasons_of_their_fields() -> None:
    found = problems({MIN: "x", MAX: "workers=0", NOTICE: "x"}, SIZES, fixed=FIXED)
    reasons = {MIN: INVALID_MIN_SIZE, MAX: INVALID_MAX_SIZE, NOTICE: INVALID_NOTICE}
    assert {name: reason for name, reason, _ in found} == reasons
    assert all(name in message for name, _, message in found)
    assert problems({MIN: "workers=1"}, SIZES) == problems({}, SIZES) == []


FLOORS: dict[str, tuple[str, str | None, int, int | None]] = {
    "the least": ("workers=2", None, 1, 2),
    "whole replicas": ("workers=3", None, 4, 4),
    "no pod": ("workers=0", None, 4, 0),
    "a gang": ("workers=2", '{"workers":5}', 1, 5),
    "a smaller gang": ("workers=6", '{"workers":5}', 1, 6),
    "a gang in whole replicas": ("workers=2", '{"workers":5}', 2, 6),
    "another pod set": ("gpu=1", None, 1, None),
    "a gang that nobody can read": ("workers=2", '{"workers":-1}', 1, 2),
}


@pytest.mark.parametrize(("text", "gang", "step", "floor"), FLOORS.values(), ids=FLOORS.keys())
def test_the_pods_that_always_stay(text: str, gang: str | None, step: int, floor: int | None) -> None:
    annotations = {MIN: text} | ({api_names.GANG_ANNOTATION: gang} if gang else {})
    assert Elasticity.from_annotations(annotations, SIZES).floor("workers", step=step) == floor


GANGS: dict[str, tuple[str, str | None, int | None]] = {
    "its worker has not told": ("kai", None, None),
    "its worker has told": ("kai", '{"head":1,"workers":5}', 5),
    "nobody can read it": ("kai", "[]", None),
    "only its head starts together": ("kube", '{"head":1}', 2),
    "it is no gang": ("kube", "{}", 2),
    "the default one": ("default", None, 2),
    "none is named": ("", None, 2),
    "the agent chooses": ("", '{"workers":5}', 5),
}


@pytest.mark.parametrize(("scheduler", "gang", "floor"), GANGS.values(), ids=GANGS.keys())
def test_a_job_of_which_nobody_knows_how_many_start_together_keeps_all(
    scheduler: str, gang: str | None, floor: int | None
) -> None:
    annotations = {MIN: "workers=2", api_names.SCHEDULER_LABEL: scheduler}
    annotations |= {api_names.GANG_ANNOTATION: gang} if gang is not None else {}
    assert Elasticity.from_annotations(annotations, SIZES).floor("workers") == floor
