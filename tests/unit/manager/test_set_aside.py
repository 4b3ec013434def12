"""A job whose decision raises: it says so, and no longer once a decision succeeds."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from slicebus.decisions.decider import Decider
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import JOBS, RAYJOBS
from slicebus.kube.workqueue import WorkQueue
from slicebus.manager.act.reconciler import ManagerReconciler
from slicebus.manager.decide import modes
from slicebus.manager.state.annotations import job_ref
from slicebus.proto.errors import ConflictError, DecisionError
from slicebus.proto.messages import JobRef
from slicebus.runtime.executor import Executor
from slicebus.runtime.locks import Locks
from slicebus.slices.api import api_names
from slicebus.slices.jobs import KINDS
from unit.manager.message_router import Manager
from unit.manager.objects import a_job
from unit.slices.jobs.manifests import a_rayjob

pytestmark = pytest.mark.decisions_fail


class Reconciling:
    """The reconciler of a manager whose decisions stumble over some jobs."""

    def __init__(self, manager: Manager, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[tuple[str, str]] = []
        self.stumbles: set[str] = set()
        store, reconcile = manager.store, modes.Builtin.reconcile

        def stumbling(mode: Any, store: Any, view: Any, now: str) -> Any:
            if view.ref.name in self.stumbles:
                raise KeyError("main")
            return reconcile(mode, store, view, now)

        monkeypatch.setattr(modes.Builtin, "reconcile", stumbling)
        executor = Executor(
            client=manager.client,
            caches=store.cache_of,
            tables=store.tables(),
            publish=manager._publish,
            requeue=lambda job, delay_s: None,
            component="slicebus-manager",
            record=lambda regarding, **event: self.events.append((regarding["metadata"]["name"], event["reason"])),
        )
        locks = Locks[JobRef]()
        self.reconciler = ManagerReconciler(
            Decider(store),
            executor,
            locks=locks,
            guard=manager.guard,
            resyncer=manager.resyncer,
            retry=manager.inbox.retry,
        )


@pytest.fixture
def reconciling(manager: Manager, monkeypatch: pytest.MonkeyPatch) -> Reconciling:
    return Reconciling(manager, monkeypatch)


async def shown(client: KubeClient, ref: JobRef) -> tuple[str | None, list[str]]:
    """The annotation, and the reasons of our conditions."""
    job = await client.get(KINDS[ref.kind].resource, ref.name, ref.namespace)
    conditions = job.get("status", {}).get("conditions", ())
    accepted = [entry["reason"] for entry in conditions if entry["type"] == api_names.ACCEPTED_CONDITION]
    return job["metadata"].get("annotations", {}).get(api_names.SET_ASIDE_ANNOTATION), accepted


async def test_it_shows_so_once_and_no_longer_when_a_decision_succeeds(
    manager: Manager, reconciling: Reconciling
) -> None:
    ref = job_ref(await manager.given(JOBS, a_job()))
    reconciling.stumbles = {"train"}
    for _ in range(3):
        with pytest.raises(DecisionError) as caught:
            await reconciling.reconciler.reconcile_job(ref)
    assert await shown(manager.client, ref) == (str(caught.value), ["SetAside"])
    assert reconciling.events == [("train", "SetAside")]
    reconciling.stumbles = set()
    await asyncio.wait_for(_until_done(reconciling, ref), timeout=10)
    assert await shown(manager.client, ref) == (None, [])


async def test_a_kind_without_conditions_shows_it_in_an_annotation(manager: Manager, reconciling: Reconciling) -> None:
    job = a_rayjob()
    job["metadata"] = a_job()["metadata"]
    ref = job_ref(await manager.given(RAYJOBS, job))
    reconciling.stumbles = {"train"}
    with pytest.raises(DecisionError) as caught:
        await reconciling.reconciler.reconcile_job(ref)
    assert await shown(manager.client, ref) == (str(caught.value), [])


async def test_the_other_jobs_go_on(manager: Manager, reconciling: Reconciling) -> None:
    refs = []
    for name in ("train", "other"):
        job = a_job()
        job["metadata"]["name"] = name
        refs.append(job_ref(await manager.given(JOBS, job)))
    reconciling.stumbles = {"train"}
    queue: WorkQueue[JobRef] = WorkQueue("jobs")
    for ref in refs:
        queue.add(ref)
    running = asyncio.create_task(queue.run(reconciling.reconciler.reconcile_job, workers=1))
    async with asyncio.timeout(10):
        while not manager.store.workloads.all():  # noqa: ASYNC110 over an in-process server
            await asyncio.sleep(0.01)
    assert not running.done()
    assert [*queue.set_aside] == [refs[0]]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def _until_done(reconciling: Reconciling, ref: JobRef) -> None:
    """Reconcile as the queue does, which handles a conflict again."""
    for _ in range(10):
        with suppress(ConflictError):
            await reconciling.reconciler.reconcile_job(ref)
            return
