"""A missing job whose definition is missing too, or was: it counts as deleted only where that is certain."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from slicebus.agent.decide.job import inventory, reconcile
from slicebus.agent.decide.order import orders
from slicebus.agent.decide.order.refusals import RefusedOrder
from slicebus.agent.state.departures import Departure
from slicebus.agent.state.views import WorkerView
from slicebus.kube.resources import CRDS, GONE, PODS, RAYCLUSTERS, WORKLOADS, Resource
from slicebus.proto.errors import ForbiddenError, UnavailableError
from slicebus.proto.messages import (
    Applied,
    Delete,
    JobPhase,
    JobRef,
    Message,
    Pending,
    Refused,
    Relabel,
    Status,
    Suspend,
)
from slicebus.slices.api import api_names
from unit.agent.objects import EAST, KEY, NOW, REF, a_copy, a_job, a_pod, a_spec, a_view
from unit.agent.test_inbox import Manager, receiving
from unit.agent.test_reconciler import delete_job, given_job, linked_copy
from unit.agent.worker import Worker

MISSING = {"Job": "the definition is missing"}


@pytest.fixture
async def manager(worker: Worker) -> AsyncIterator[Manager]:
    async with receiving(worker):
        yield Manager(worker)


def made_by(definition: str | None) -> dict[str, Any]:
    """A copy that knows its job, made while that definition stood; None where nothing was known of it."""
    copy = a_copy(linked="worker-uid", version=3)
    if definition:
        copy["metadata"]["annotations"][api_names.DEFINITION_ANNOTATION] = definition
    return copy


def seen(copy: dict[str, Any], **how: Any) -> WorkerView:
    return msgspec.structs.replace(a_view(None, copy), **how)


ABSENT: dict[str, tuple[WorkerView, bool, bool]] = {
    "it stands": (seen(made_by("d1"), definition="d1"), True, False),
    "nothing is known of it": (seen(made_by("d1")), True, False),
    "it stands, and was unknown when the copy was linked": (seen(made_by(None), definition="d1"), True, False),
    "it is missing": (seen(made_by("d1"), definition=GONE, unserved=MISSING), False, True),
    "it is missing, and was unknown when the copy was linked": (
        seen(made_by(None), definition=GONE, unserved=MISSING),
        False,
        True,
    ),
    "it was replaced": (seen(made_by("d1"), definition="d2"), False, True),
    "it may not be read": (seen(made_by("d1"), definition="d1", unserved=MISSING), False, False),
}
"""A job that is not there: is it reported as deleted, and do its copies forget it?"""


@pytest.mark.parametrize(("view", "is_gone", "is_forgotten"), ABSENT.values(), ids=ABSENT.keys())
def test_only_what_is_missing_under_its_own_definition_was_deleted(
    view: WorkerView, is_gone: bool, is_forgotten: bool
) -> None:
    gone = reconcile.gone_report(view, departed={REF.uid: Departure("worker-uid", seen=True)})
    assert (gone is not None) is is_gone
    item = inventory.item(view, EAST)
    assert item is not None
    if is_forgotten:
        [patch] = reconcile.unlink_copies(view)
        annotations = {api_names.JOB_UID_ANNOTATION: None, api_names.DEFINITION_ANNOTATION: None}
        assert (patch.resource, patch.body) == (WORKLOADS, {"metadata": {"annotations": annotations}})
        assert item.spec_hash == api_names.ABSENT, "the manager sends it anew"
    else:
        assert reconcile.unlink_copies(view) == []
        assert item.spec_hash == "", "its end is being reported, or not known"


def test_a_copy_knows_by_which_definition_its_job_was_made() -> None:
    view = msgspec.structs.replace(a_view(a_job(), a_copy()), definition="d1")
    [patch] = reconcile.link_copies(view)
    assert patch.body["metadata"]["annotations"][api_names.DEFINITION_ANNOTATION] == "d1"


@pytest.mark.parametrize("kinds", [{"RayJob": "why"}, {"RayCluster": "why"}], ids=["its own", "that of its cluster"])
def test_an_order_for_a_kind_that_is_not_served_is_refused_by_name(kinds: dict[str, str]) -> None:
    view = msgspec.structs.replace(a_view(None), unserved=kinds)
    with pytest.raises(RefusedOrder, match=f"it does not serve {next(iter(kinds))}: why") as refused:
        orders.next_step(orders.steps(a_spec(1), EAST), 0, view)
    assert refused.value.reason == "KindNotServed"


def test_a_rayjob_needs_rayclusters(worker: Worker) -> None:
    worker.store.unserved["RayCluster"] = "why"
    key = msgspec.structs.replace(KEY, kind="RayJob")
    assert (worker.store.view(key).unserved, worker.store.view(KEY).unserved) == ({"RayCluster": "why"}, {})


async def test_a_refusal_is_published_and_nothing_is_created(worker: Worker, manager: Manager) -> None:
    worker.store.unserved["Job"] = "why"
    await manager.order(a_spec(1))
    [refused] = worker.published
    assert isinstance(refused, Refused)
    assert (refused.reason, refused.message) == ("KindNotServed", "it does not serve Job: why")
    assert (await worker.job(), await worker.copies(), manager.dead) == (None, [], [])


TRAIN_JOB = JobRef("example.dev/v1", "TrainJob", "team", "train", REF.uid)
"""Of a kind that a package brings, which this agent does not have."""
NO_PACKAGE = "it does not serve TrainJob: its agent has no package for this job kind"
NOT_SERVED = Refused(job=TRAIN_JOB, workload="w1", spec_version=3, reason="KindNotServed", message=NO_PACKAGE)
NOTICE = Pending(
    job=TRAIN_JOB,
    workload="w1",
    worker_uid="u",
    worker_generation=1,
    wanted={},
    reason="Pending",
    message="no quota",
    since=NOW,
)
ENDED = Applied(job=TRAIN_JOB, workload="", spec_version=3, deleted=True)
WITHOUT_PACKAGE: dict[str, tuple[Message, list[Message], bool]] = {
    "a spec": (msgspec.structs.replace(a_spec(3), job=TRAIN_JOB), [NOT_SERVED], False),
    "a relabel": (Relabel(job=TRAIN_JOB, spec_version=3, from_workload="w1", to_workload="w2", granted={}), [], False),
    "a notice": (NOTICE, [], False),
    "a suspend": (Suspend(job=TRAIN_JOB, spec_version=3, workload="w1"), [ENDED], True),
    "a delete": (Delete(job=TRAIN_JOB, spec_version=3), [ENDED], True),
}
"""An order, what is reported, and whether the job has a tombstone afterwards."""


@pytest.mark.parametrize(("order", "reports", "has_ended"), WITHOUT_PACKAGE.values(), ids=WITHOUT_PACKAGE.keys())
async def test_an_order_for_a_kind_without_a_package_is_answered(
    worker: Worker, manager: Manager, order: Message, reports: list[Message], has_ended: bool
) -> None:
    await manager.order(order)
    assert (worker.published, manager.dead) == (reports, [])
    assert (REF.uid in worker.store.tombstones) is has_ended
    assert (worker.requeued, worker.store.behind()) == ([], 0)


async def test_an_order_for_a_kind_without_a_package_is_no_dead_letter_where_its_end_cannot_be_stored(
    worker: Worker, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: Any, **__: Any) -> Any:
        raise ForbiddenError("403: cannot patch configmaps")

    monkeypatch.setattr(worker.client, "patch", refuse)
    await manager.order(Delete(job=TRAIN_JOB, spec_version=3))
    [refused] = worker.published
    assert isinstance(refused, Refused)
    assert (refused.reason, refused.message, manager.dead) == ("Forbidden", "403: cannot patch configmaps", [])


LEFT_BEHIND: dict[str, tuple[Resource, dict[str, Any]]] = {
    "its Workload": (WORKLOADS, a_copy()),
    "a pod": (PODS, a_pod("p1", of=REF)),
}


@pytest.mark.parametrize(("resource", "manifest"), LEFT_BEHIND.values(), ids=LEFT_BEHIND.keys())
async def test_a_job_without_a_package_counts_as_ended_only_when_nothing_of_it_is_here(
    worker: Worker, manager: Manager, resource: Resource, manifest: dict[str, Any]
) -> None:
    cache = worker.store.cache_of(resource)
    assert cache is not None
    cache.put(manifest)
    await manager.order(Delete(job=TRAIN_JOB, spec_version=3))
    [(reason, detail)] = manager.dead
    assert (reason, worker.published, dict(worker.store.tombstones)) == ("refused", [], {})
    assert "no package brings the job kind 'TrainJob', and objects of TrainJob/team/train are here" in detail


async def test_a_job_that_went_with_its_definition_leads_to_an_inventory_and_no_report(worker: Worker) -> None:
    await given_job(worker)
    await linked_copy(worker)
    await worker.reconcile_job()
    worker.store.definitions["Job"], worker.store.unserved["Job"] = GONE, "why"
    await delete_job(worker)
    assert dict(worker.store.departed) == {}
    assert await worker.reconcile_job() == []
    assert worker.inventory_requests == 1
    await worker.sync()
    del worker.store.unserved["Job"]
    worker.store.definitions["Job"] = "d2"
    assert await worker.reconcile_job() == []


async def test_nothing_is_reported_on_a_job_while_its_kind_may_not_be_read(worker: Worker, manager: Manager) -> None:
    await given_job(worker)
    await linked_copy(worker)
    await worker.reconcile_job()
    worker.store.unserved["Job"] = "why"
    await delete_job(worker)
    worker.published.clear()
    await manager.order(Suspend(job=REF, spec_version=2, workload="w1", reason="Preempted", message="because"))
    assert await worker.reconcile_job() == []
    assert (worker.published, dict(worker.store.tombstones)) == ([], {}), "it may be there after all"
    del worker.store.unserved["Job"]
    [gone] = await worker.reconcile_job()
    assert isinstance(gone, Status)
    assert gone.phase is JobPhase.GONE


async def test_an_unknown_definition_is_read_before_a_job_counts_as_gone(worker: Worker) -> None:
    key = msgspec.structs.replace(KEY, kind="RayCluster")
    copy = a_copy(linked="worker-uid")
    copy["metadata"]["annotations"][api_names.JOB_ANNOTATION] = f"RayCluster/{KEY.name}"
    await worker.create(
        WORKLOADS,
        {**copy, "metadata": {n: v for n, v in copy["metadata"].items() if n not in ("uid", "resourceVersion")}},
    )
    await worker.client.delete(CRDS, RAYCLUSTERS.definition)
    with pytest.raises(UnavailableError, match="is missing"):
        await worker.reconciler.reconcile_job(key)
    assert worker.published == []


async def test_a_delete_is_reported_although_the_definition_is_gone(worker: Worker) -> None:
    await given_job(worker)
    await delete_job(worker)
    worker.store.definitions["Job"], worker.store.unserved["Job"] = GONE, "why"
    await worker.tombstones.add(REF, 2)
    assert await worker.reconcile_job() == [Applied(job=REF, workload="", spec_version=2, deleted=True)]
