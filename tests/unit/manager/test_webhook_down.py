"""A webhook of the manager's cluster that does not answer, or its API server that fails at one write: it is told, and
what came meanwhile is tried again."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest

from slicebus.ambient.lasting_failures import LastingFailures, Patience
from slicebus.decisions.decider import Decider
from slicebus.kube.failures import error_of
from slicebus.kube.resources import JOBS, WORKLOADS
from slicebus.manager.act.reconciler import ManagerReconciler
from slicebus.manager.decide.job import waiting
from slicebus.manager.decide.messages import message_router
from slicebus.manager.state.annotations import SizeRequest, job_ref
from slicebus.proto.errors import NotFoundError, SlicebusError, UnavailableError, WebhookError
from slicebus.proto.messages import JobRef, Pending
from slicebus.runtime.locks import Locks
from unit.manager.message_router import Manager
from unit.manager.objects import a_job
from unit.manager.test_inbox import request
from unit.manager.test_refused_writes import an_end, refusing

DOWN = WebhookError('500: Internal error occurred: failed calling webhook "jobs.example.dev": connection refused')

FAILS = error_of(500, b'{"message": "etcdserver: request is too large", "reason": ""}')


def a_reconciler(manager: Manager) -> ManagerReconciler:
    return ManagerReconciler(
        Decider(manager.store),
        manager._executor,
        locks=Locks[JobRef](),
        guard=manager.guard,
        resyncer=manager.resyncer,
        retry=manager.inbox.retry,
    )


def told(manager: Manager) -> list[str]:
    return [reason for reason, note in manager.events if note == str(DOWN)]


async def test_a_job_that_cannot_be_taken_says_so(manager: Manager, monkeypatch: pytest.MonkeyPatch) -> None:
    ref = job_ref(await manager.given(JOBS, a_job()))

    async def down(*_: object, **__: object) -> None:
        raise DOWN

    monkeypatch.setattr(manager.client, "create", down)
    with pytest.raises(WebhookError):
        await a_reconciler(manager).reconcile_job(ref)
    assert told(manager) == ["ReconcileFailed"]


async def test_a_server_that_fails_at_one_write_for_long_is_told(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref, reconciler = job_ref(await manager.given(JOBS, a_job())), a_reconciler(manager)

    async def fails(*_: object, **__: object) -> None:
        raise FAILS

    monkeypatch.setattr(manager.client, "create", fails)
    with pytest.raises(UnavailableError):
        await reconciler.reconcile_job(ref)
    assert manager.events == []
    monkeypatch.setattr(reconciler, "_failures", LastingFailures(Patience(webhook_s=0.0, server_s=0.0)))
    with pytest.raises(UnavailableError):
        await reconciler.reconcile_job(ref)
    assert manager.events == [("ReconcileFailed", str(FAILS))]


async def test_a_short_while_is_waited_for(manager: Manager) -> None:
    ref = await manager.given_job()
    with refusing(manager, DOWN, (WORKLOADS, "")):
        published = asyncio.create_task(manager.receive(request(ref, wanted=5)))
        await asyncio.sleep(0.05)
    await published
    written = SizeRequest.from_manifest(await manager.client.get(WORKLOADS, "w1", "team"))
    assert written is not None
    assert written.counts == {"main": 5}
    assert not [message for message in manager.published if isinstance(message, Pending)]


@pytest.mark.parametrize("error", [DOWN, FAILS], ids=["a webhook", "the server"])
async def test_a_request_that_waits_for_it_is_told_on_both_sides(
    manager: Manager, monkeypatch: pytest.MonkeyPatch, error: UnavailableError
) -> None:
    monkeypatch.setattr(manager.inbox._held, "_failures", LastingFailures(Patience(webhook_s=0.1, server_s=0.1)))
    ref, reconciler = await manager.given_job(), a_reconciler(manager)
    with refusing(manager, error, (WORKLOADS, "")):
        async with asyncio.timeout(5.0):
            await manager.receive(request(ref, wanted=5))
        assert manager.dead == []
        [notice] = [message for message in manager.published if isinstance(message, Pending)]
        assert (notice.reason, notice.wanted) == (waiting.REQUEST_REFUSED, {"main": 5})
        assert str(error) in notice.message
        with pytest.raises(type(error)):
            await reconciler.reconcile_job(ref)
    await reconciler.reconcile_job(ref)
    written = SizeRequest.from_manifest(await manager.client.get(WORKLOADS, "w1", "team"))
    assert written is not None
    assert written.counts == {"main": 5}
    assert not manager.store.refused_requests


@pytest.mark.parametrize("error", [FAILS, NotFoundError("404: page not found")], ids=["500", "no status is served"])
async def test_an_end_at_which_the_server_fails_for_long_frees_the_quota(
    manager: Manager, monkeypatch: pytest.MonkeyPatch, error: SlicebusError
) -> None:
    ref, reconciler = await manager.given_job(), a_reconciler(manager)
    monkeypatch.setattr(manager.inbox._held, "_failures", LastingFailures(Patience(webhook_s=5.0, server_s=0.1)))
    monkeypatch.setattr(reconciler, "_failures", LastingFailures(Patience(webhook_s=0.0, server_s=0.0)))
    with refusing(manager, error, (JOBS, "status")):
        async with asyncio.timeout(5.0):
            await manager.receive(an_end(ref))
        for _ in range(3):
            with suppress(UnavailableError):
                await reconciler.reconcile_job(ref)
        assert not manager.store.view(ref).unfinished, "its quota is free"
        assert {"EndNotShown", "ReconcileFailed"} <= {reason for reason, _ in manager.events}
    for _ in range(3):
        await reconciler.reconcile_job(ref)
    types = [entry["type"] for entry in (await manager.job_status())["conditions"]]
    assert types == ["SuccessCriteriaMet", "Complete"]


@pytest.mark.decisions_fail
async def test_a_kept_message_that_no_decision_takes_is_dropped(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager.inbox._held, "_failures", LastingFailures(Patience(webhook_s=0.0, server_s=15.0)))
    ref = await manager.given_job()
    with refusing(manager, DOWN, (WORKLOADS, "")):
        await manager.receive(request(ref, wanted=5))

    def stumbles(*_: object, **__: object) -> Callable[..., object]:
        raise KeyError("main")

    monkeypatch.setattr(message_router, "_handle_request", stumbles)
    await a_reconciler(manager).reconcile_job(ref)
    monkeypatch.undo()
    assert await manager.inbox.retry(ref) is None
    assert SizeRequest.from_manifest(await manager.client.get(WORKLOADS, "w1", "team")) is None
