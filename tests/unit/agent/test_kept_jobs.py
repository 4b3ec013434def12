"""Jobs that have been deleted, and stay for a finalizer of somebody else."""

from typing import Any

import pytest

from slicebus.agent.decide.job import kept_jobs
from slicebus.agent.decide.order import orders
from slicebus.agent.state.annotations import is_kept_by_others
from slicebus.agent.state.views import Tombstone, WorkerView
from slicebus.decisions.commands import Publish, Remember
from slicebus.proto.messages import JobPhase, Status
from unit.agent.objects import EAST, REF, a_copy, a_job, a_pod, a_view

Manifest = dict[str, Any]


def kept(*finalizers: str, **how: Any) -> Manifest:
    job = a_job(**({"deleting": True} | how))
    job["metadata"]["finalizers"] = [*(finalizers or ("example.com/audit",))]
    return job


FINALIZERS = {
    "none": ([], False),
    "the garbage collector's": (["foregroundDeletion", "orphan"], False),
    "KubeRay's": (["ray.io/rayjob-finalizer"], False),
    "somebody else's": (["example.com/audit"], True),
    "both": (["ray.io/rayjob-finalizer", "example.com/audit"], True),
}


@pytest.mark.parametrize(("finalizers", "expected"), FINALIZERS.values(), ids=FINALIZERS.keys())
def test_whose_finalizer_keeps_a_job(finalizers: list[str], expected: bool) -> None:
    job = a_job()
    job["metadata"]["finalizers"] = finalizers
    assert is_kept_by_others(job) is expected
    [removed] = orders.removes(a_view(job), REF, up_to=1)
    assert removed.foreground is expected


def reported(view: WorkerView, **how: Any) -> list[Status]:
    commands = kept_jobs.report(view, EAST, **({"tombstone": None, "last": None, "now_s": 0.0} | how))
    assert all(isinstance(command, Publish | Remember) for command in commands)
    return [command.message for command in commands if isinstance(command, Publish)]  # type: ignore[misc]


def test_it_is_gone_when_its_last_pod_has_ended() -> None:
    running = a_pod("a", of=REF)
    assert reported(a_view(kept(), pods=(running,))) == []
    [gone] = reported(a_view(kept(version=2), a_copy(version=3), pods=(a_pod("a", phase="Succeeded", of=REF),)))
    assert (gone.phase, gone.seen, gone.spec_version) == (JobPhase.GONE, True, 3)
    assert reported(a_view(kept(version=2), a_copy(version=3)), last=(gone, 0.0)) == [], "it is reported once"


def test_its_end_is_reported_where_it_has_ended() -> None:
    [end] = reported(a_view(kept(over="Failed")))
    assert end.phase is JobPhase.FAILED


OTHERS: dict[str, tuple[WorkerView, dict[str, Any]]] = {
    "it is not deleted": (a_view(kept(deleting=False)), {}),
    "it goes by itself": (a_view(a_job(deleting=True)), {}),
    "it is deleted by order": (a_view(kept(version=2)), {"tombstone": Tombstone(REF, 2, 0)}),
    "it is not ours": (a_view(kept(ours=False)), {}),
    "there is none": (a_view(None), {}),
}


@pytest.mark.parametrize(("view", "how"), OTHERS.values(), ids=OTHERS.keys())
def test_of_others_nothing_is_reported(view: WorkerView, how: dict[str, Any]) -> None:
    assert reported(view, **how) == []


def test_one_that_was_made_again_after_an_order_to_delete_it_is_reported() -> None:
    assert len(reported(a_view(kept(version=5)), tombstone=Tombstone(REF, 2, 0))) == 1
