"""What the worker's API server refuses of what a job needs: said on the job, told to the manager, and tried again."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec import UNSET

from slicebus.agent.act.reconciler import _SHOW_AGAIN_S
from slicebus.agent.decide.cluster.reach import Unreached
from slicebus.agent.decide.job import reconcile
from slicebus.ambient.lasting_failures import LastingFailures, Patience
from slicebus.kube.client import MergePatch
from slicebus.kube.failures import error_of
from slicebus.kube.resources import JOBS, PODS, Resource
from slicebus.proto.errors import ForbiddenError, InvalidError, SlicebusError, UnavailableError, WebhookError
from slicebus.proto.messages import JobPhase, Status, Waits
from slicebus.slices.api import api_names
from slicebus.slices.workload.waiting import MANAGER_NOT_REACHED, WRITE_REFUSED, shown_on
from unit.agent.objects import KEY, a_job, a_pod, an_end
from unit.agent.test_reconciler import given_job, given_pods, patch_job
from unit.agent.worker import Worker, types
from unit.kube.servers import NAMESPACE

POLICY = InvalidError('422: jobs "train" is forbidden: ValidatingAdmissionPolicy "frozen" denied request: frozen')
DOWN = WebhookError('500: failed calling webhook "jobs.example.dev": connection refused')
REFUSALS = [POLICY, ForbiddenError("403: exceeded quota"), DOWN]


@contextmanager
def refusing(worker: Worker, error: Exception, refused: Resource) -> Iterator[None]:
    patch = worker.client.patch

    async def refuse(resource: Resource, *args: Any, **more: Any) -> Any:
        if resource == refused:
            raise error
        return await patch(resource, *args, **more)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(worker.client, "patch", refuse)
        yield


async def refused(worker: Worker, error: SlicebusError) -> list[Any]:
    """The messages of a reconcile that ends with this refusal."""
    before = len(worker.published)
    with pytest.raises(type(error)):
        await worker.reconciler.reconcile_job(KEY)
    return worker.published[before:]


def waits(message: Any) -> Waits | None:
    assert isinstance(message, Status)
    return message.waits if isinstance(message.waits, Waits) else None


@pytest.mark.parametrize("error", REFUSALS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("what", [JOBS, PODS], ids=["a request", "a gate"])
async def test_what_is_refused_is_told_once_and_no_longer_when_it_is_taken(
    worker: Worker, error: SlicebusError, what: Resource
) -> None:
    if what == JOBS:
        await given_job(worker)
        await patch_job(worker, {"spec": {"parallelism": 5}})
    else:
        await given_job(worker, granted=1)
        await given_pods(worker, a_pod("a", gated=True))
    with refusing(worker, error, what):
        [status] = await refused(worker, error)
        told = waits(status)
        assert told is not None
        assert told.reason == WRITE_REFUSED
        assert str(error) in told.message
        events = [(name, event["reason"]) for name, event in worker.events]
        assert events == [("train", WRITE_REFUSED)]
        assert await refused(worker, error) == []
    await worker.reconcile_job()
    assert KEY not in worker.store.refused_writes
    status = reconcile.status(worker.store.view(KEY))
    assert status is not None
    assert status.waits is UNSET
    assert not worker.queue.idle, "the next report says that it waits no longer"


async def test_an_end_is_told_although_something_else_is_refused(worker: Worker) -> None:
    await given_job(worker)
    await patch_job(worker, {"spec": {"parallelism": 5}})
    with refusing(worker, POLICY, JOBS):
        await refused(worker, POLICY)
    await worker.client.patch(JOBS, "train", NAMESPACE, MergePatch({"status": an_end()}), subresource="status")
    await worker.sync()
    [status] = await worker.reconcile_job()
    assert isinstance(status, Status)
    assert status.phase is JobPhase.SUCCEEDED


async def test_numbers_and_names_in_the_text_are_no_news(worker: Worker) -> None:
    await given_job(worker)
    await patch_job(worker, {"spec": {"parallelism": 5}})
    for number in (2, 4):
        error = ForbiddenError(f"403: pods train-x7k{number}p is forbidden: exceeded quota, used: {number}")
        with refusing(worker, error, JOBS):
            await refused(worker, error)
    assert len(worker.events) == 1


async def test_what_is_only_unavailable_is_not_told(worker: Worker) -> None:
    await given_job(worker)
    await patch_job(worker, {"spec": {"parallelism": 5}})
    with refusing(worker, UnavailableError("503"), JOBS):
        assert await refused(worker, UnavailableError("503")) == []
    assert worker.events == []


async def test_what_the_server_fails_at_for_long_is_told(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    await given_job(worker)
    await patch_job(worker, {"spec": {"parallelism": 5}})
    error = error_of(500, b'{"message": "etcdserver: request is too large", "reason": ""}')
    with refusing(worker, error, JOBS):
        assert await refused(worker, error) == []
        monkeypatch.setattr(worker.reconciler, "_failures", LastingFailures(Patience(webhook_s=0.0, server_s=0.0)))
        [status] = await refused(worker, error)
        told = waits(status)
        assert told is not None
        assert (told.reason, str(error) in told.message) == (WRITE_REFUSED, True)
        assert await refused(worker, error) == []
    await worker.reconcile_job()
    assert KEY not in worker.store.refused_writes


async def test_a_job_that_is_not_ours_is_told_nothing(worker: Worker) -> None:
    await worker.create(JOBS, {**a_job(ours=False), "metadata": {"name": "train", "namespace": NAMESPACE}})
    await worker.reconciler._tell_refused(KEY, POLICY)
    assert (worker.events, types(worker.published)) == ([], [])


@pytest.mark.parametrize("error", REFUSALS, ids=lambda error: type(error).__name__)
async def test_what_cannot_be_shown_holds_up_nothing_and_is_shown_later(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, error: SlicebusError
) -> None:
    await given_job(worker)
    await patch_job(worker, {"spec": {"parallelism": 5}})
    worker.unreached = Unreached(MANAGER_NOT_REACHED, "no manager leads", "2026-01-31T12:00:00Z")
    patch, delays = worker.client.patch, []

    async def refuse(resource: Resource, name: str, namespace: str | None, body: Any, **more: Any) -> Any:
        if api_names.WAITING_ANNOTATION in body.body["metadata"].get("annotations", {}):
            raise error
        return await patch(resource, name, namespace, body, **more)

    monkeypatch.setattr(worker.client, "patch", refuse)
    monkeypatch.setattr(worker.queue, "add_after", lambda key, delay_s: delays.append((key, delay_s)))
    assert types(await worker.reconcile_job()) == ["scale-request", "status"]
    assert (KEY, _SHOW_AGAIN_S) in delays
    assert shown_on(await worker.job() or {}) is None
    monkeypatch.setattr(worker.client, "patch", patch)
    await worker.reconcile_job()
    assert MANAGER_NOT_REACHED in (shown_on(await worker.job() or {}) or "")
