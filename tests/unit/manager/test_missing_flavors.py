"""A ResourceFlavor that goes while jobs use it: no copy is made without its nodes, and what waits says so."""

import pytest

from slicebus.decisions.commands import Command, Emit, Patch, Publish
from slicebus.kube.resources import JOBS, PODS, RESOURCEFLAVORS, WORKLOADS
from slicebus.manager.decide.admission import builtin
from slicebus.manager.decide.cluster import relocation
from slicebus.manager.decide.job import waiting
from slicebus.manager.decide.modes import mode_of
from slicebus.manager.state.job_changes import on_job_change
from slicebus.manager.state.outbox import LOST
from slicebus.manager.state.store import ManagerStore
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import JobRef, Manifest, WorkloadSpec
from slicebus.slices.api.api_names import APPLIED_ANNOTATION, DISPATCHED_CONDITION
from slicebus.slices.api.conditions import conditions_of
from slicebus.slices.workload.waiting import Waiting
from unit.manager.objects import REF, SPOT, a_job, a_view, a_workload, condition
from unit.properties.world import started
from unit.slices.jobs.manifests import a_job as a_job_of_somebody
from unit.slices.jobs.manifests import a_template

NOW = "2026-01-31T12:00:00Z"
FIRST = {
    "new": a_workload(admitted=1),
    "written": a_workload(admitted=1, dispatched=1),
    "lost": a_workload(admitted=1, dispatched=3, hash=LOST),
}
SHOWN = condition(DISPATCHED_CONDITION, False, "FlavorNotFound", "ResourceFlavor spot does not exist")


def unplaced(workload: Manifest) -> JobView:
    """A job whose copy is to be made, without the flavor that it was given."""
    return a_view(a_job(), workload, flavors={})


def decided(view: JobView) -> list[Command]:
    return builtin.reconcile(view, NOW)


def told(commands: list[Command]) -> Manifest:
    [patch] = [command for command in commands if isinstance(command, Patch)]
    assert patch.subresource == "status"
    assert isinstance(patch.body, dict)
    [found] = [entry for entry in conditions_of(patch.body) if entry["type"] == SHOWN["type"]]
    return dict(found)


def shown(workload: Manifest, condition: Manifest) -> Manifest:
    status = workload.get("status", {})
    return workload | {"status": status | {"conditions": [*status.get("conditions", ()), condition]}}


@pytest.mark.parametrize("workload", FIRST.values(), ids=FIRST.keys())
def test_an_order_that_would_make_a_copy_waits_and_says_so_once(workload: Manifest) -> None:
    commands = decided(unplaced(workload))
    assert not [command for command in commands if isinstance(command, Publish)]
    found = told(commands)
    assert (found["status"], found["reason"]) == ("False", "FlavorNotFound")
    assert found["message"].startswith("ResourceFlavor spot does not exist: the pods on cluster east would run on any")
    [event] = [command for command in commands if isinstance(command, Emit)]
    assert (event.regarding["kind"], event.reason, event.note) == ("Job", "FlavorNotFound", found["message"])
    assert decided(unplaced(shown(workload, found))) == [], "once is enough"


def test_the_job_says_what_it_waits_for() -> None:
    [annotated] = waiting.reconcile(unplaced(shown(a_workload(admitted=1), SHOWN)))
    assert isinstance(annotated, Patch)
    assert isinstance(annotated.body, dict)
    said = Waiting.from_manifest(annotated.body)
    assert said is not None
    assert (said.reason, said.message, said.granted) == (SHOWN["reason"], SHOWN["message"], {"main": 1})


def test_an_order_goes_out_when_the_flavor_is_there_again() -> None:
    workload = a_workload(admitted=1)
    found = told(decided(a_view(a_job(), shown(workload, SHOWN))))
    assert (found["status"], found["reason"]) == ("True", "Dispatched")
    commands = decided(a_view(a_job(), shown(workload, found)))
    [spec] = [command.message for command in commands if isinstance(command, Publish)]
    assert isinstance(spec, WorkloadSpec)
    assert waiting.reconcile(a_view(a_job(), shown(workload, found))) == []


def test_orders_for_a_copy_that_is_there_go_on() -> None:
    view = a_view(a_job(2), a_workload(count=2, admitted=2, dispatched=1, applied=1), flavors={})
    [spec] = [command.message for command in decided(view) if isinstance(command, Publish)]
    assert isinstance(spec, WorkloadSpec)
    assert spec.flavors == {}, "where that copy is lost meanwhile, the pods of the next one stay gated"


def test_what_was_said_ends_with_a_copy_that_was_made_all_the_same() -> None:
    """The order that made it had gone out before."""
    there = shown(a_workload(admitted=1), SHOWN)
    written = next(
        command for command in decided(a_view(a_job(), a_workload(admitted=1))) if isinstance(command, Patch)
    )
    assert isinstance(written.body, dict)
    there["metadata"]["annotations"] |= written.body["metadata"]["annotations"] | {APPLIED_ANNOTATION: "1"}
    found = told(decided(unplaced(there)))
    assert (found["status"], found["reason"]) == ("True", "Dispatched")


def test_no_cluster_has_refused_what_waits() -> None:
    assert not relocation.is_refused(shown(a_workload(admitted=1, dispatched=1), SHOWN))


def test_a_job_that_waits_is_reconciled_when_the_flavor_is_there() -> None:
    store, requeued = ManagerStore(), list[JobRef]()
    on_job_change(store, requeued.append, when=mode_of(store).needs_reconcile)
    store.jobs["Job"].put(a_job())
    store.workloads.put(shown(a_workload(admitted=1), SHOWN))
    requeued.clear()
    store.flavors.put(SPOT)
    assert requeued == [REF]


def test_no_pod_runs_anywhere_else_than_its_flavor_says() -> None:
    world, ref = started(
        a_job_of_somebody(suspend=False, parallelism=2, template=a_template("1", restartPolicy="Never"))
    )

    def waits() -> Waiting | None:
        job = world.here.get(JOBS, ref.name)
        assert job is not None
        return Waiting.from_manifest(job)

    world.go_on(1)
    world._manage()
    [workload] = world.here.all(WORKLOADS)
    assert workload["status"]["admission"], "and nothing is published yet"
    [flavor] = world.here.all(RESOURCEFLAVORS)
    world.here.delete(RESOURCEFLAVORS, flavor)
    world.go_on()
    assert world.there.all(PODS) == []
    said = waits()
    assert said is not None
    assert said.reason == "FlavorNotFound"
    labelled = {"metadata": {"name": "default"}, "spec": {"nodeLabels": {"pool": "spot"}}}
    world.here.create(RESOURCEFLAVORS, flavor | labelled)
    world.go_on()
    assert [pod["spec"]["nodeSelector"] for pod in world.there.all(PODS)] == [{"pool": "spot"}] * 2
    assert waits() is None
