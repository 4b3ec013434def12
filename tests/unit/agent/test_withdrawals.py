"""Ray's autoscaler takes a size back that waits, and asks for it again: the request stands meanwhile."""

from typing import Any

import pytest
from msgspec import structs

from slicebus.agent.decide.job import reconcile, withdrawals
from slicebus.agent.decide.job.withdrawals import STANDS_S
from slicebus.agent.state import annotations
from slicebus.agent.state.annotations import PendingRequest, PendingRequests
from slicebus.agent.state.tables import AgentTable
from slicebus.agent.state.views import JobKey, Withdrawn, WorkerJobReading, WorkerView
from slicebus.decisions.commands import Forget, Patch, Remember, Requeue
from slicebus.proto.messages import Counts, JobRef
from slicebus.slices.api import api_names
from unit.agent.objects import EAST

WORKERS = "workers"
TEMPLATE = {"spec": {"containers": [{"name": "ray", "image": "i"}]}}
REF = JobRef("ray.io/v1", "RayCluster", "team", "train", "manager-uid")


def counts(workers: int) -> Counts:
    return {"head": 1, WORKERS: workers}


def a_view(
    wanted: int,
    *,
    requested: int = 5,
    granted: int = 1,
    waits: bool = True,
    autoscales: bool = True,
    withdrawn: Withdrawn | None = None,
    **changes: Any,
) -> WorkerView:
    """A RayCluster that has asked for five workers, has one, and wants so many now."""
    at = annotations.job_metadata(REF, workload="w1", version=1, grant=counts(granted))
    last = PendingRequest("uid-1", 2, counts(requested))
    request = PendingRequests("uid-1", 2, last.wanted, instead_of=counts(1), unanswered=(last,) if waits else ())
    at["annotations"][api_names.REQUESTED_ANNOTATION] = structs.replace(request, **changes).to_annotation()
    own = {"name": "train", "namespace": "team", "uid": "uid-1", "resourceVersion": "10", "generation": 3}
    group = {"groupName": WORKERS, "replicas": wanted, "template": TEMPLATE}
    spec = {
        "enableInTreeAutoscaling": autoscales,
        "headGroupSpec": {"template": TEMPLATE},
        "workerGroupSpecs": [group],
    }
    job = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": own | at, "spec": spec}
    return WorkerView(
        key=JobKey("RayCluster", "team", "train"),
        job=job,
        reading=WorkerJobReading.from_manifest(job),
        scale_target=job,
        published=request.key,
        withdrawn=withdrawn,
    )


def noted(view: WorkerView, now_s: float) -> WorkerView:
    """The view after what was noted of it."""
    for command in withdrawals.reconcile(view, now_s=now_s):
        assert isinstance(command, Remember | Forget)
        assert (command.table, command.key) == (AgentTable.WITHDRAWN, view.key)
        view = structs.replace(view, withdrawn=command.value if isinstance(command, Remember) else None)
    return view


HELD = Withdrawn(counts(5), counts(1), since_s=100.0)


def test_a_request_stands_when_it_was_just_taken_back() -> None:
    view = noted(a_view(1), 100.0)
    assert view.withdrawn == HELD
    assert view.desired == counts(5)
    assert reconcile.request(view, EAST) == []
    assert noted(view, 129.0) == view


def test_it_is_looked_at_again_when_its_time_is_over() -> None:
    view = a_view(1, withdrawn=HELD)
    [again] = withdrawals.requeue_after(view, now_s=110.0)
    assert isinstance(again, Requeue)
    assert STANDS_S - 10 < again.delay_s < STANDS_S - 9
    [late] = withdrawals.requeue_after(view, now_s=100.0 + STANDS_S)
    assert isinstance(late, Requeue)
    assert late.delay_s > 0
    over = noted(view, 100.0 + STANDS_S)
    assert withdrawals.requeue_after(over, now_s=100.0 + STANDS_S) == []
    assert over.desired == counts(1)
    assert noted(over, 200.0) == over, "its time begins once"
    [note] = reconcile.request(over, EAST)
    assert isinstance(note, Patch)


def test_any_number_of_flaps_is_no_request() -> None:
    for number in range(20):
        taken_back = noted(a_view(1), 300.0 * number)
        assert reconcile.request(taken_back, EAST) == []
        asked_again = noted(a_view(5, withdrawn=taken_back.withdrawn), 300.0 * number + 5)
        assert (asked_again.withdrawn, asked_again.desired) == (None, counts(5))
        assert reconcile.request(asked_again, EAST) == []


def test_a_grant_that_comes_meanwhile_is_kept() -> None:
    """Others may have lost their quota for it."""
    view = noted(a_view(1, granted=5, waits=False, withdrawn=HELD), 110.0)
    assert view.withdrawn == HELD
    assert reconcile.request(view, EAST) == []
    later = noted(view, 100.0 + STANDS_S)
    [lower] = reconcile.request(later, EAST)
    assert isinstance(lower, Patch)
    assert isinstance(lower.body, dict)
    assert lower.body["metadata"]["annotations"][api_names.GRANTED_ANNOTATION] == annotations.encode_counts(counts(1))


@pytest.mark.parametrize(
    "view",
    [
        a_view(0),
        a_view(6),
        a_view(1, granted=5, waits=False),
        a_view(1, autoscales=False),
        a_view(1, overruled=True),
        a_view(1, worker_uid="another"),
        structs.replace(a_view(1), scale_target=None),
        structs.replace(a_view(1), reading=None),
    ],
    ids=[
        "a shrink of what runs",
        "a larger size",
        "it was granted before",
        "a user scales",
        "the manager has overruled it",
        "of an earlier child",
        "no child",
        "no job",
    ],
)
def test_other_changes_are_asked_for_at_once(view: WorkerView) -> None:
    assert withdrawals.reconcile(view, now_s=100.0) == []
    assert withdrawals.requeue_after(view, now_s=100.0) == []


def test_a_shrink_ends_what_was_taken_back() -> None:
    view = noted(a_view(0, withdrawn=HELD), 101.0)
    assert view.desired == counts(0)
    [note] = reconcile.request(view, EAST)
    assert isinstance(note, Patch)


@pytest.mark.parametrize(
    "view",
    [a_view(6), a_view(1, autoscales=False), a_view(1, overruled=True), structs.replace(a_view(1), reading=None)],
    ids=["a larger size", "the autoscaler is off", "the manager has overruled it", "no job"],
)
def test_what_no_longer_holds_is_forgotten(view: WorkerView) -> None:
    assert noted(structs.replace(view, withdrawn=HELD), 101.0).withdrawn is None
