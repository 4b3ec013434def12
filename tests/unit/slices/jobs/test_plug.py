"""Job kinds that other packages bring."""

from importlib.metadata import EntryPoint
from typing import Any

import pytest

from slicebus.slices.api.conditions import Finding
from slicebus.slices.api.resource import Resource
from slicebus.slices.jobs import KINDS, LEFT_OUT, Refusal
from slicebus.slices.jobs.batch import BatchJob
from slicebus.slices.jobs.registry import ENTRY_POINTS, load

OWN = ["Job", "RayCluster", "RayJob", "RayService"]
FINDING = Finding("slicebus.dev/Accepted", False, "TooManyPodSets", "a job has at most 18 pod sets")


class Train(BatchJob):
    """A kind from elsewhere."""

    resource = Resource("example.dev", "v1", "trainjobs", "TrainJob")


class Another(Train):
    """Of a name that is taken."""


class Orphan(Train):
    """Of a child that nobody knows."""

    resource = Resource("example.dev", "v1", "orphans", "Orphan")
    child_kind = "JobSet"


class Misnamed(Train):
    """Of a resource that is only a name."""

    resource: Any = "trainjobs"


class Half:
    """Not whole."""

    resource = Train.resource


class Failing(Train):
    """Not to be made."""

    def __init__(self) -> None:
        raise RuntimeError("no GPU")


def entry(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, f"{__name__}:{value}" if ":" not in value else value, ENTRY_POINTS)


def test_a_kind_comes_by_its_entry_point_after_slicebus_own() -> None:
    kinds, left_out = load([entry("train", "Train")])
    assert list(kinds) == [*OWN, "TrainJob"]
    assert kinds["TrainJob"].resource.path("team") == "/apis/example.dev/v1/namespaces/team/trainjobs"
    assert left_out == {}


def test_without_other_packages_there_are_slicebus_own() -> None:
    assert list(KINDS) == OWN
    assert LEFT_OUT == {}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("nowhere.at:All", "nowhere.at:All does not load: ModuleNotFoundError: No module named 'nowhere'"),
        ("Failing", f"{__name__}:Failing does not load: RuntimeError: no GPU"),
        ("BatchJob", f"{__name__}:BatchJob has the name Job, as batch/v1 has it"),
        ("Orphan", f"{__name__}:Orphan has children of the kind JobSet, which is no job kind"),
        ("Misnamed", f"{__name__}:Misnamed is no job kind: its resource is not a Resource"),
    ],
)
def test_a_kind_that_does_not_load_stops_no_other(value: str, told: str) -> None:
    kinds, left_out = load([entry("train", "Train"), entry("broken", value)])
    assert list(kinds) == [*OWN, "TrainJob"]
    assert left_out == {"broken": told}


def test_a_kind_that_lacks_a_part_is_told_which() -> None:
    kinds, left_out = load([entry("half", "Half")])
    assert list(kinds) == OWN
    assert left_out["half"].startswith(
        f"{__name__}:Half is no job kind: it has no as_ended, autoscaled, bounds, cap, child_kind, children, "
    )


def test_of_two_with_one_name_the_first_by_its_entry_points_name_is_run() -> None:
    kinds, left_out = load([entry("b", "Another"), entry("a", "Train")])
    assert type(kinds["TrainJob"]).__name__ == "Train"
    assert left_out == {"b": f"{__name__}:Another has the name TrainJob, as example.dev/v1 has it"}


def test_a_refusal_is_a_condition_or_two_fields_of_the_status() -> None:
    job: dict[str, Any] = {"metadata": {"generation": 3}}
    [condition] = Refusal().status(job, FINDING, now="now")["conditions"]
    assert (condition["type"], condition["status"], condition["message"]) == (FINDING.type, "False", FINDING.message)
    shown = job | {"status": {"conditions": [condition]}}
    assert Refusal().status(shown, FINDING, now="later") == shown["status"]
    assert Refusal(conditions=False).status(job, FINDING, now="now") == {
        "message": FINDING.message,
        "reason": FINDING.reason,
    }
