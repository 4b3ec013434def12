"""What the roles of a fleet log: every line that is about a change of a job names its chain of messages."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from slicebus.cli.demo.world import World
from slicebus.cli.journal.source import STREAM, Span
from slicebus.cli.trace.command import find
from slicebus.journal.traces import Trace, TraceOutcome
from slicebus.kube.client import KubeClient
from slicebus.proto.errors import ConflictError
from support.scenario import Scenario as Job
from support.scenario import set_quota
from support.waiting import eventually

Line = dict[str, Any]
CHAIN = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@pytest.fixture
def lines() -> Iterator[list[Line]]:
    """What is logged, as a process logs it."""
    with capture_logs(processors=[merge_contextvars]) as logged:
        yield logged


async def chain_of(url: str, title: str) -> str:
    """The correlation id of a change, once it is over."""

    async def look() -> Trace | None:
        recorded = await find("told", STREAM, Span(), amqp_url=url)
        return next((t for t in recorded.traces() if t.title == title and t.outcome is TraceOutcome.DONE), None)

    trace = await eventually(look, f"{title} is done")
    assert trace is not None
    return trace.correlation_id


async def test_what_a_resize_makes_the_roles_log_has_its_chain(
    lines: list[Line], world: World, urls: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what fails on its way, and is tried again."""
    await set_quota(world, 4)
    job = Job(world, "Job", "told")
    await job.submit()
    await job.expect_pods(running=1)
    await chain_of(urls["manager"], "start with main=1")
    lines.clear()
    refuse_until_logged(monkeypatch, lines)
    await job.scale(3)
    await job.expect_pods(running=3)
    chain = await chain_of(urls["manager"], "resize main 1 -> 3")
    [admitted] = [line for line in lines if line["event"] == "slice.admitted"]
    assert admitted["correlation"] == chain
    assert {line.get("correlation") for line in retries(lines)} == {chain}
    assert CHAIN.fullmatch(chain)


async def test_what_no_change_causes_has_no_chain(lines: list[Line], world: World) -> None:
    await set_quota(world, 4)

    async def heard() -> bool:
        return any(line["event"] == "inventory.compared" for line in lines)

    await eventually(heard, "the manager has compared an inventory")
    leading = [line for line in lines if line["event"] in ("agent.leading", "manager.leading", "lease.acquired")]
    assert not any("correlation" in line for line in leading)


def retries(lines: list[Line]) -> list[Line]:
    """What the roles log of reconciles of the job that are tried again."""
    return [line for line in lines if line["event"] == "workqueue.retry" and line["key"] == "Job/team-a/told"]


def refuse_until_logged(monkeypatch: pytest.MonkeyPatch, lines: list[Line]) -> None:
    """The writes that let pods start conflict until the work queue has tried again: with the order none says so."""
    patch = KubeClient.patch

    async def patched(
        client: KubeClient, resource: Any, name: str, namespace: str | None, body: Any, **how: Any
    ) -> Any:
        if "schedulingGates" in repr(body) and not retries(lines):
            raise ConflictError("somebody was faster")
        return await patch(client, resource, name, namespace, body, **how)

    monkeypatch.setattr(KubeClient, "patch", patched)
