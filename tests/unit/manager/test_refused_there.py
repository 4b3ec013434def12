"""A job that is refused where it has quota: what shows it, and when its quota is given back."""

from typing import Any

import pytest

from slicebus.decisions.commands import Command, Emit, Patch, Requeue
from slicebus.manager.decide.admission import builtin, refused_there
from slicebus.manager.decide.job import status_mirror
from slicebus.manager.decide.problems import problems
from slicebus.manager.state.annotations import reported_status
from slicebus.manager.state.store import ManagerStore
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import JobPhase, Manifest, Status, Waits
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.api import api_names
from slicebus.slices.api.kueue import EvictionReason
from slicebus.slices.workload import avoided_clusters
from slicebus.slices.workload.waiting import CONTROLLER_REFUSED, PODS_REFUSED, SPEC_REFUSED, SURPLUS, Waiting
from unit.manager.objects import REF, a_job, a_view, a_workload

SINCE, AFTER_599_S, AFTER_600_S = "2026-01-31T12:00:00Z", "2026-01-31T12:09:59Z", "2026-01-31T12:10:00Z"
TOLD = "Its controller refuses the job, and 1 pod holds its quota: InvalidSpec: no"
SIZE = {"main": 1}


def waits(reason: str = CONTROLLER_REFUSED, message: str = TOLD) -> Waits:
    return Waits(wanted=SIZE, reason=reason, message=message, since="2020-01-01T00:00:00Z")


def said(manifest: Manifest) -> tuple[str, str, str] | None:
    conditions = manifest.get("status", {}).get("conditions", ())
    found = (entry for entry in conditions if entry["type"] == api_names.RUNS_CONDITION)
    return next(((entry["status"], entry["reason"], entry["message"]) for entry in found), None)


class World:
    """A job with quota, and what is written onto it."""

    def __init__(self, waits: Waits | None = None, *, after_s: float = 600.0, **how: Any) -> None:
        self.job = a_job()
        self.workload = a_workload(**({"admitted": 1, "dispatched": 1, "applied": 1} | how))
        self.waits = waits
        self.after_s = after_s

    @property
    def view(self) -> JobView:
        return a_view(self.job, self.workload, waits=self.waits, refused_s=self.after_s)

    def show(self, now: str = SINCE) -> list[Command]:
        commands = refused_there.show(self.view, self.job, now=now)
        for command in commands:
            assert isinstance(command, Patch)
            assert isinstance(command.body, dict)
            if command.target is self.job:
                self.job = merge_patch(self.job, command.body)
            else:
                self.workload = merge_patch(self.workload, command.body)
        return commands


@pytest.mark.parametrize("reason", [CONTROLLER_REFUSED, SPEC_REFUSED, PODS_REFUSED])
def test_it_is_shown_on_the_job_and_its_workload_until_it_is_over(reason: str) -> None:
    world = World(waits(reason))
    world.show()
    assert said(world.job) == said(world.workload) == ("False", reason, TOLD)
    assert world.show() == []
    world.waits = None
    world.show()
    assert said(world.job) == said(world.workload) == ("True", "CarriedOut", "Nothing refuses the job any more")
    assert world.show() == []


@pytest.mark.parametrize("told", [None, waits(SURPLUS)], ids=["nothing", "anything else"])
def test_other_jobs_say_nothing(told: Waits | None) -> None:
    assert World(told).show() == []


def test_a_manager_that_starts_goes_by_what_the_job_shows() -> None:
    world = World()
    text = Waiting.of(SIZE, SIZE, reason=CONTROLLER_REFUSED, message=TOLD, since=SINCE).to_annotation()
    world.job["metadata"]["annotations"][api_names.WAITING_ANNOTATION] = text
    world.show()
    assert said(world.workload) == ("False", CONTROLLER_REFUSED, TOLD)


def test_a_job_without_quota_is_refused_nowhere() -> None:
    world = World(waits())
    world.show()
    del world.workload["status"]["admission"]
    world.workload["status"]["conditions"] = world.workload["status"]["conditions"][2:]
    world.show()
    assert said(world.workload) == ("True", "CarriedOut", "Nothing refuses the job any more")


def test_a_report_of_the_worker_keeps_it() -> None:
    """The worker's status knows nothing of the manager's condition."""
    world = World(waits())
    world.show()
    lied = {"type": api_names.RUNS_CONDITION, "status": "True", "reason": "Lie", "message": ""}
    theirs = {"type": "Suspended", "status": "False", "reason": "x", "message": ""}
    report = Status(
        job=REF, workload="w1", spec_version=1, phase=JobPhase.RUNNING, job_status={"conditions": [theirs, lied]}
    )
    for command in status_mirror._mirror(world.job, report.job_status):
        assert isinstance(command, Patch)
        assert isinstance(command.body, dict)
        world.job = merge_patch(world.job, command.body)
    assert said(world.job) == ("False", CONTROLLER_REFUSED, TOLD)
    assert reported_status(world.job)["conditions"] == [theirs]
    bare = {**world.job, "status": {"conditions": [world.job["status"]["conditions"][-1]]}}
    assert reported_status(bare) == {}


def refused(reason: str = CONTROLLER_REFUSED, **how: Any) -> World:
    world = World(waits(reason), **how)
    world.show()
    return world


def test_then_it_avoids_the_cluster_and_is_evicted() -> None:
    world = refused()
    assert refused_there.reconcile(world.view, now=AFTER_599_S) == []
    [delay] = refused_there.requeue_after(world.view, now=AFTER_599_S)
    assert isinstance(delay, Requeue)
    assert delay.delay_s == 2.0
    [avoids] = builtin.reconcile(world.view, AFTER_600_S)
    assert isinstance(avoids, Patch)
    world.workload = merge_patch(world.workload, avoids.body)  # type: ignore[arg-type]
    assert avoided_clusters.avoided_now(world.workload) == {"east"}
    patch, *events = builtin.reconcile(world.view, AFTER_600_S)
    assert isinstance(patch, Patch)
    evicted = {entry["type"]: entry for entry in patch.body["status"]["conditions"]}["Evicted"]  # type: ignore[index]
    assert (evicted["reason"], evicted["message"]) == (EvictionReason.REFUSED, f"On cluster east: {TOLD}")
    assert {event.reason for event in events if isinstance(event, Emit)} == {"EvictedDueToRefusedOnWorkerCluster"}


KEPT: dict[str, World] = {
    "with 0": refused(after_s=0),
    "whose pods cannot be made": refused(PODS_REFUSED),
    "that runs as it was": refused(SPEC_REFUSED),
    "that nobody refuses": World(),
}


@pytest.mark.parametrize("world", KEPT.values(), ids=KEPT.keys())
def test_any_other_job_keeps_its_quota(world: World) -> None:
    assert refused_there.reconcile(world.view, now="2026-09-01T00:00:00Z") == []
    assert refused_there.requeue_after(world.view, now=SINCE) == []


def test_another_text_does_not_begin_the_time_anew() -> None:
    world = refused()
    world.waits = waits(message=TOLD + "!")
    world.show(AFTER_599_S)
    assert said(world.workload) == ("False", CONTROLLER_REFUSED, TOLD + "!")
    assert refused_there.reconcile(world.view, now=AFTER_600_S) != []


@pytest.mark.parametrize("reason", [SPEC_REFUSED, PODS_REFUSED])
def test_the_time_begins_when_its_controller_refuses_the_whole_job(reason: str) -> None:
    """Not before: a job whose edit is refused has no pod for a moment when they are replaced."""
    world = refused(reason)
    world.waits = waits()
    world.show(AFTER_600_S)
    assert said(world.workload) == ("False", CONTROLLER_REFUSED, TOLD)
    assert refused_there.reconcile(world.view, now="2026-01-31T12:19:59Z") == []
    assert refused_there.reconcile(world.view, now="2026-01-31T12:20:00Z") != []


def test_explain_says_it_once() -> None:
    world = refused()
    found = list(problems(ManagerStore(), world.view))
    assert found.count(f"{CONTROLLER_REFUSED}: {TOLD}") == 1
