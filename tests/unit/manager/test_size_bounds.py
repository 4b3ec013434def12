"""A worker's request for more than the job itself allows is refused, and told on both sides."""

from typing import Any

import pytest

from slicebus.cli.demo import objects
from slicebus.decisions.commands import Emit, Publish, Remember
from slicebus.manager.decide.job import size_bounds, waiting
from slicebus.proto.messages import Counts, Pending, ScaleRequest
from slicebus.slices.api import api_names
from slicebus.slices.jobs import KINDS
from unit.manager.objects import NOW, REF, a_job, a_view, a_workload, an_envelope

Manifest = dict[str, Any]


def bounded(make: Any, *, most: int | None = None, hosts: int = 1, max_size: str = "") -> Manifest:
    """A Ray job with one worker in its group."""
    job: Manifest = make("grid")
    spec = job["spec"].get("rayClusterSpec") or job["spec"].get("rayClusterConfig") or job["spec"]
    group = spec["workerGroupSpecs"][0] | {"numOfHosts": hosts}
    group.pop("maxReplicas", None)
    spec["workerGroupSpecs"] = [group | ({"maxReplicas": most} if most is not None else {})]
    job["metadata"]["annotations"] |= {api_names.MAX_SIZE_ANNOTATION: max_size} if max_size else {}
    return job


MOST: dict[str, tuple[Manifest, int, Counts]] = {
    "a Job, by the factor": (a_job(3), 100, {"main": 300}),
    "a Job of no pods": (a_job(0), 100, {"main": 100}),
    "no factor": (a_job(3), 0, {}),
    "its own word": (a_job(3, annotations={api_names.MAX_SIZE_ANNOTATION: "8"}), 100, {"main": 8}),
    "more than the factor": (a_job(3, annotations={api_names.MAX_SIZE_ANNOTATION: "900"}), 100, {"main": 900}),
    "less than it has": (a_job(3, annotations={api_names.MAX_SIZE_ANNOTATION: "1"}), 100, {"main": 3}),
    "by pod set": (a_job(3, annotations={api_names.MAX_SIZE_ANNOTATION: '{"main":5}'}), 100, {"main": 5}),
    "of another pod set": (a_job(3, annotations={api_names.MAX_SIZE_ANNOTATION: '{"other":5}'}), 100, {"main": 300}),
    "a RayCluster": (bounded(objects.ray_cluster, most=5), 100, {"head": 1, "small-group": 5}),
    "its hosts": (bounded(objects.ray_cluster, most=5, hosts=2), 100, {"head": 1, "small-group": 10}),
    "without a bound": (bounded(objects.ray_cluster), 10, {"head": 1, "small-group": 10}),
    "with KubeRay's default": (bounded(objects.ray_cluster, most=2**31 - 1), 10, {"head": 1, "small-group": 10}),
    "the smaller of both": (
        bounded(objects.ray_cluster, most=5, max_size='{"small-group":3,"head":9}'),
        100,
        {"head": 1, "small-group": 3},
    ),
    "a RayJob": (bounded(objects.ray_job, most=5), 100, {"head": 1, "small-group": 5, "submitter": 1}),
    "a RayService, which has two clusters during an upgrade": (
        bounded(objects.ray_service, most=5),
        100,
        {"head": 2, "small-group": 10},
    ),
}


@pytest.mark.parametrize(("job", "factor", "most"), MOST.values(), ids=MOST.keys())
def test_what_a_job_allows(job: Manifest, factor: int, most: Counts) -> None:
    own = KINDS[job["kind"]].counts(job, job)
    assert size_bounds.most_of(job, own, factor=factor) == most


def ask(**wanted: int) -> ScaleRequest:
    return ScaleRequest(
        job=REF, workload="w1", worker_uid="w-1", worker_generation=3, granted={"main": 2}, wanted=wanted
    )


PROBLEMS: dict[str, tuple[int, int, bool]] = {
    "as much as it allows": (1, 8, False),
    "more": (1, 9, True),
    "more, as is granted": (9, 9, False),
    "less than is granted": (12, 9, False),
    "more than is granted": (9, 10, True),
}


@pytest.mark.parametrize(("granted", "wanted", "is_past"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_a_request_for_more(granted: int, wanted: int, is_past: bool) -> None:
    job = a_job(annotations={api_names.MAX_SIZE_ANNOTATION: "8"})
    view = a_view(job, a_workload(count=granted, admitted=granted, dispatched=1, applied=1))
    problem = size_bounds.problem(view, ask(main=wanted), factor=100)
    assert bool(problem) is is_past
    assert not is_past or f"asks for main={wanted}, and the job allows main=8" in problem


def test_it_is_told_once_on_both_sides() -> None:
    view, request = a_view(a_job(), a_workload(admitted=1, dispatched=1, applied=1)), ask(main=900)
    problem = size_bounds.problem(view, request, factor=100)
    commands = waiting.note_past_bounds(view, request, an_envelope(), problem, now=NOW)
    assert [each.reason for each in commands if isinstance(each, Emit)] == ["PastBounds"]
    [notice] = [each.message for each in commands if isinstance(each, Publish)]
    assert isinstance(notice, Pending)
    assert (notice.reason, notice.message, notice.wanted) == ("PastBounds", problem, {"main": 900})
    [noted] = [each.value for each in commands if isinstance(each, Remember)]
    told = a_view(a_job(), a_workload(admitted=1, dispatched=1, applied=1), refused_request=noted)
    assert waiting.note_past_bounds(told, request, an_envelope(), problem, now=NOW) == []
    shown = waiting.reason_for(told)
    assert shown is not None
    assert (shown.shown.reason, shown.shown.wanted) == ("PastBounds", {"main": 900})


@pytest.mark.parametrize("text", ["many", "-1", "1.5", "[]", '{"main":-1}', '{"main":"5"}', "{}", "900000"])
def test_an_annotation_that_makes_no_sense_is_told(text: str) -> None:
    job = a_job(annotations={api_names.MAX_SIZE_ANNOTATION: text})
    [problem] = size_bounds.problems(job)
    assert problem.reason == "InvalidMaxSize"
    assert size_bounds.most_of(job, {"main": 1}, factor=100) == {"main": 100}


@pytest.mark.parametrize("text", ["8", '{"main":8}', None])
def test_any_other_is_not(text: str | None) -> None:
    assert size_bounds.problems(a_job(annotations={api_names.MAX_SIZE_ANNOTATION: text} if text else {})) == []
