"""A job that has ended while pods of it run on: what the agent reports of it, and when, and of the next of its name."""

from typing import Any

from msgspec import structs

from slicebus.agent.decide.job import inventory, reconcile
from slicebus.agent.state.views import WorkerView
from slicebus.decisions.commands import Patch, Publish
from slicebus.proto.messages import JobRef, Manifest, PodSetUse, Status
from slicebus.slices.api import api_names
from unit.agent.objects import EAST, REF, a_job, a_pod
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


EARLIER = JobRef("batch/v1", "Job", "team", "train", "uid-of-the-job-before")


def owned(name: str, by: str, **more: Any) -> Manifest:
    pod = a_pod(name, **more)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": by, "controller": True}
    pod["metadata"]["ownerReferences"] = [owner]
    return pod


def test_pods_that_an_earlier_job_left_are_not_reported_for_the_next() -> None:
    """They run until they have ended, and the earlier one is charged for them."""
    left = [owned(name, "gone", of=EARLIER, ready=True) for name in ("a", "b")]
    view = a_job_view(a_job(1), pods=(*left, owned("c", "worker-uid", of=REF, gated=True)))
    assert {name: (pods.ready, pods.total) for name, pods in told(view).pods.items()} == {"main": (0, 1)}
    item = inventory.item(view, EAST)
    assert item is not None
    assert item.pods == {}
    assert view.running == {EARLIER.uid}, "the quota of the earlier one waits for them"


def test_the_next_asks_for_its_size_while_they_run() -> None:
    left = [owned(name, "gone", of=EARLIER) for name in "abcd"]
    [request] = reconcile.request(a_job_view(a_job(3), pods=tuple(left)), EAST)
    assert isinstance(request, Patch)
    assert '"main":3' in request.body["metadata"]["annotations"][api_names.REQUESTED_ANNOTATION]


def test_a_pod_that_belongs_to_the_job_is_reported_whatever_its_label_says() -> None:
    view = a_job_view(a_job(1), pods=(owned("a", "worker-uid", of=EARLIER), a_pod("b")))
    assert told(view).running == {"main": 2}
    item = inventory.item(view, EAST)
    assert item is not None
    assert item.pods == {"main": PodSetUse(2, {"cpu": "2"})}


def test_the_end_of_a_job_does_not_wait_for_pods_of_an_earlier_one() -> None:
    view = a_job_view(a_job(over="Failed"), pods=(owned("a", "gone", of=EARLIER),))
    assert str(told(view).phase) == "Failed"
