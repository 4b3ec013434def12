"""A job that has ended while pods of it run on: what the agent reports of it, and when."""

from msgspec import structs

from slicebus.agent.decide import inventory, reconcile
from slicebus.agent.state.views import WorkerView
from slicebus.decisions.commands import Publish
from slicebus.proto.messages import Manifest, Status
from unit.agent.objects import EAST, a_job, a_pod
from unit.agent.objects import a_view as a_job_view
from unit.agent.test_ray_pods import WORKERS, a_spec, a_view, running

LATE = {"jobDeploymentStatus": "Failed", "reason": "DeadlineExceeded", "message": "too late"}


def a_rayjob(*pods: Manifest, status: Manifest = LATE, granted: int = 2) -> WorkerView:
    view = a_view(a_spec(), granted, *pods, kind="RayJob")
    assert view.job is not None
    job = view.job | {"status": status}
    assert view.reading is not None
    reading = type(view.reading).from_manifest(job)
    return structs.replace(view, job=job, reading=reading)


def told(view: WorkerView) -> Status:
    status = reconcile.status(view)
    assert status is not None
    return status


def test_the_end_of_a_rayjob_is_reported_with_the_pods_that_run_on() -> None:
    """KubeRay ends it past its deadline while its submitter's pod runs."""
    status = told(a_rayjob(running("a"), a_pod("b", phase="Failed"), a_pod("c", gated=True)))
    assert (str(status.phase), status.message, status.running) == ("Failed", "too late", {WORKERS: 1})
    assert status.has_left_pods
    assert not told(a_rayjob(a_pod("b", phase="Failed"))).has_left_pods


def test_that_of_a_job_is_reported_without_pods() -> None:
    """Kubernetes before 1.31 ends it before its pods, and an API server refuses the status of an ended Job with
    some."""
    assert reconcile.status(a_job_view(a_job(over="Failed"), pods=(a_pod("a"),))) is None


def test_the_end_and_that_no_pod_is_left_are_reported_at_once() -> None:
    def is_published(view: WorkerView, last: Status) -> bool:
        commands = reconcile.report(view, EAST, last=(last, 0.0), now_s=1.0, interval_s=5.0)
        return any(isinstance(command, Publish) for command in commands)

    runs, one, two = a_rayjob(status={}), a_rayjob(running("a")), a_rayjob(running("a"), running("b"))
    assert is_published(two, told(runs))
    assert not is_published(one, told(two)), "everything between waits its turn"
    assert is_published(a_rayjob(), told(two))


def test_an_inventory_shows_what_is_left_up_to_the_grant() -> None:
    def listed(view: WorkerView) -> str:
        item = inventory.item(view, EAST)
        assert item is not None
        return item.status_hash

    none, one, two = a_rayjob(), a_rayjob(running("a")), a_rayjob(running("a"), running("b"))
    assert len({listed(view) for view in (none, one, two)}) == 3
    past = a_rayjob(running("a"), running("b"), granted=1)
    assert listed(past) == listed(a_rayjob(running("a"), granted=1))
