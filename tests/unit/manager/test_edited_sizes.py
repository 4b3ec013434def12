"""Somebody edits the replicas of an autoscaled cluster on the manager."""

from typing import Any

import pytest
from msgspec import structs

from slicebus.decisions.commands import Emit, Patch
from slicebus.manager.decide import unmanaged
from slicebus.manager.state.requirements import SIZE_EDITED
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Counts
from slicebus.slices import own_api
from unit.manager.objects import a_view
from unit.manager.test_groups import BEFORE, WANTED, a_job, admitted, first_slice, resized

Manifest = dict[str, Any]
EDITED = {"head": 1, "left": 8, "right": 1}


def autoscaled(job: Manifest) -> Manifest:
    return job | {"spec": job["spec"] | {"enableInTreeAutoscaling": True}}


def without_request(job: Manifest) -> Manifest:
    annotations = {k: v for k, v in job["metadata"]["annotations"].items() if k != own_api.REQUESTED_ANNOTATION}
    return job | {"metadata": job["metadata"] | {"annotations": annotations}}


RUNS = admitted(first_slice(autoscaled(a_job())))


def edited(*, asks: bool = False, autoscales: bool = True) -> JobView:
    """A cluster that runs with four, and whose spec says eight now."""
    job = a_job(replicas=8) if asks else without_request(a_job(replicas=8))
    return a_view(autoscaled(job) if autoscales else job, RUNS)


def test_it_is_no_resize() -> None:
    assert edited().desired.counts == BEFORE
    assert resized(edited()) == ([], [])


def test_what_the_autoscaler_has_asked_for_stands() -> None:
    view = edited(asks=True)
    assert view.desired.counts == WANTED
    assert view.desired.own == EDITED, "the worker is to know what it says"


def shown(view: JobView) -> list[str]:
    assert view.job is not None
    commands = unmanaged.run_on(view, view.job)
    assert [type(command) for command in commands] in ([], [Patch, Emit])
    return [command.reason for command in commands if isinstance(command, Emit)]


def test_its_user_is_told_once() -> None:
    view = edited()
    assert shown(view) == [SIZE_EDITED]
    assert view.job is not None
    [patch, event] = unmanaged.run_on(view, view.job)
    assert isinstance(patch, Patch)
    assert isinstance(event, Emit)
    assert event.note == (
        "Ray's autoscaler owns its size, and wants head=1 left=4 right=1 now: "
        "the replicas of its spec are for its next start"
    )
    annotations = view.job["metadata"]["annotations"] | {own_api.UNHEEDED_ANNOTATION: event.note}
    told = view.job | {"metadata": view.job["metadata"] | {"annotations": annotations}}
    assert shown(a_view(told, RUNS)) == []


@pytest.mark.parametrize(
    ("view", "counts"),
    [
        (edited(autoscales=False), EDITED),
        (structs.replace(edited(), checks=frozenset({"slicebus"})), EDITED),
        (a_view(autoscaled(without_request(a_job(replicas=8)))), EDITED),
        (a_view(autoscaled(without_request(a_job())), RUNS), BEFORE),
        (a_view(autoscaled(a_job()), RUNS), WANTED),
    ],
    ids=[
        "no autoscaler",
        "a Kueue reads it",
        "it does not run",
        "nothing was edited",
        "its autoscaler has asked since",
    ],
)
def test_otherwise_the_spec_or_the_last_request_counts(view: JobView, counts: Counts) -> None:
    assert view.desired.counts == counts
    assert shown(view) == []
