"""Ended Jobs are deleted after their TTL: by Kubernetes' own controller, and by its stand-in."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from integration.kube.contract import Api
from slicebus.ambient.clock import now
from slicebus.cli.demo import objects
from slicebus.cli.demo.world import running
from slicebus.kube.client import MergePatch
from slicebus.kube.resources import JOBS
from slicebus.kube.times import time_text
from slicebus.sandbox.controllers.ttl import TtlController

Manifest = dict[str, Any]


@pytest.fixture
async def ttl(api: Api, request: pytest.FixtureRequest) -> AsyncIterator[Api]:
    """The API with a TTL controller."""
    if request.node.callspec.params["api"] == "real":
        yield api
        return
    async with running(TtlController(api.client).run()):
        yield api


async def given_job(api: Api, name: str, *, ttl_s: int | None, ended_s: float | None = 0.0) -> None:
    """A Job that another controller manages, and that ended so long ago."""
    job = objects.job(name)
    job["metadata"]["namespace"] = api.namespace
    if ttl_s is not None:
        job["spec"]["ttlSecondsAfterFinished"] = ttl_s
    await api.client.create(JOBS, job)
    if ended_s is None:
        return
    end = time_text(now() - timedelta(seconds=ended_s))
    entry = {"status": "True", "reason": "CompletionsReached", "lastProbeTime": end, "lastTransitionTime": end}
    conditions = [entry | {"type": type} for type in ("SuccessCriteriaMet", "Complete")]
    status = {"startTime": end, "completionTime": end, "succeeded": 1, "conditions": conditions}
    await api.client.patch(JOBS, name, api.namespace, MergePatch({"status": status}), subresource="status")


async def test_a_job_is_deleted_after_its_ttl(ttl: Api) -> None:
    await given_job(ttl, "at-once", ttl_s=0)
    await given_job(ttl, "late", ttl_s=3600, ended_s=3700)
    for name in ("at-once", "late"):
        await ttl.gone(JOBS, name)


async def test_other_jobs_stay(ttl: Api) -> None:
    await given_job(ttl, "runs", ttl_s=0, ended_s=None)
    await given_job(ttl, "for-ever", ttl_s=None)
    await given_job(ttl, "not-yet", ttl_s=3600)
    await given_job(ttl, "at-once", ttl_s=0)
    await ttl.gone(JOBS, "at-once")
    assert set(await ttl.names(JOBS)) == {"runs", "for-ever", "not-yet"}


async def test_a_ttl_may_be_changed(ttl: Api) -> None:
    await given_job(ttl, "shorter", ttl_s=3600)
    await asyncio.sleep(0.1)
    await ttl.client.patch(JOBS, "shorter", ttl.namespace, MergePatch({"spec": {"ttlSecondsAfterFinished": 0}}))
    await ttl.gone(JOBS, "shorter")
