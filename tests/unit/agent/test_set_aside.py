"""A worker's job whose decision raises: it says so, and no longer once a decision succeeds; the others go on."""

from typing import Any

import pytest

from slicebus.agent.act.inventory import InventoryPublisher
from slicebus.agent.decide.job import reconcile
from slicebus.agent.state.views import JobKey
from slicebus.kube.resources import JOBS, PODS
from slicebus.proto.errors import DecisionError
from slicebus.proto.messages import Inventory
from slicebus.slices.api import api_names
from slicebus.slices.workload.ungate import is_gated
from unit.agent.objects import a_job, a_pod
from unit.agent.test_reconciler import given_job, given_pods, plain
from unit.agent.worker import SETTINGS, Worker
from unit.kube.servers import NAMESPACE

pytestmark = pytest.mark.decisions_fail
OTHER = JobKey("Job", NAMESPACE, "other")


@pytest.fixture
def stumbles(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of the jobs whose status cannot be made."""
    names, status = set[str](), reconcile.status

    def stumbling(view: Any) -> Any:
        if view.key.name in names:
            raise TypeError("no number")
        return status(view)

    monkeypatch.setattr(reconcile, "status", stumbling)
    return names


async def test_it_shows_so_once_and_no_longer_when_a_decision_succeeds(worker: Worker, stumbles: set[str]) -> None:
    await given_job(worker)
    stumbles.add("train")
    for _ in range(3):
        with pytest.raises(DecisionError) as caught:
            await worker.reconcile_job()
    assert await note(worker) == str(caught.value)
    assert [(name, event["reason"]) for name, event in worker.events] == [("train", "SetAside")]
    stumbles.clear()
    await worker.reconcile_job()
    await worker.reconcile_job()
    assert await note(worker) is None


async def test_an_inventory_lists_all_others(worker: Worker, stumbles: set[str]) -> None:
    await given_job(worker)
    other = plain(a_job())
    other["metadata"]["name"] = "other"
    await worker.create(JOBS, other)
    published: list[Inventory] = []

    async def publish(message: Any) -> None:
        published.append(message)

    listed: list[JobKey] = []
    inventories = InventoryPublisher(SETTINGS, store=worker.store, publish=publish, listed=listed.append)
    stumbles.add("train")
    await inventories.publish()
    assert [item.name for page in published for item in page.items] == ["other"]
    assert listed == [OTHER]


async def test_the_pods_of_the_other_jobs_are_taken_over(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    take_over = reconcile.take_over_pods

    def stumbling(view: Any, *, epoch: int) -> Any:
        if view.key.name == "other":
            raise KeyError("main")
        return take_over(view, epoch=epoch)

    monkeypatch.setattr(reconcile, "take_over_pods", stumbling)
    await given_job(worker)
    other = plain(a_job())
    other["metadata"]["name"] = "other"
    await worker.create(JOBS, other)
    await given_pods(worker, a_pod("p", gated=True))
    await worker.reconciler.take_over_pods(7)
    pod = (await worker.client.list(PODS, namespace=NAMESPACE)).items[0]
    assert pod["metadata"]["annotations"][api_names.EPOCH_ANNOTATION] == "7"
    assert is_gated(pod)


async def note(worker: Worker) -> str | None:
    job = await worker.job()
    assert job is not None
    text: str | None = job["metadata"].get("annotations", {}).get(api_names.SET_ASIDE_ANNOTATION)
    return text
