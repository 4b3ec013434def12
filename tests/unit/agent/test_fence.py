"""The stored fence of a cluster, and what it is after heartbeats and restarts."""

import asyncio

import pytest

from slicebus.agent.act.fence import NAME, Fence
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.resources import CONFIGMAPS
from slicebus.proto.messages import Heard
from unit.kube.servers import SYSTEM

EPOCH = 3


def now_s() -> float:
    return asyncio.get_running_loop().time()


async def test_without_a_fence_pods_may_start(api: KubeClient) -> None:
    fence = Fence(api, SYSTEM, epoch=EPOCH)
    await fence.load()
    assert not fence.closed


async def test_a_fence_is_closed_until_the_manager_has_heard(api: KubeClient) -> None:
    fence = Fence(api, SYSTEM, epoch=EPOCH)
    await fence.keep(60.0)
    assert fence.closed
    fence.hear(Heard(epoch=EPOCH, said_s=now_s() - 50))
    assert not fence.closed
    fence.hear(Heard(epoch=EPOCH, said_s=now_s() - 55))
    assert not fence.closed, "an older heartbeat closes nothing"


@pytest.mark.parametrize(
    ("epoch", "age_s"), [(EPOCH, 61.0), (EPOCH - 1, 1.0)], ids=["heard too long ago", "published by another agent"]
)
async def test_heartbeats_that_leave_the_fence_closed(api: KubeClient, epoch: int, age_s: float) -> None:
    fence = Fence(api, SYSTEM, epoch=EPOCH)
    await fence.keep(60.0)
    fence.hear(Heard(epoch=epoch, said_s=now_s() - age_s))
    assert fence.closed


async def test_an_agent_that_restarts_keeps_the_fence(api: KubeClient) -> None:
    first = Fence(api, SYSTEM, epoch=EPOCH)
    await first.keep(60.0)
    first.hear(Heard(epoch=EPOCH, said_s=now_s()))
    second = Fence(api, SYSTEM, epoch=EPOCH + 1)
    await second.load()
    assert second.seconds == 60.0
    assert second.closed


async def test_a_lifted_fence_stays_lifted_after_a_restart(api: KubeClient) -> None:
    fence = Fence(api, SYSTEM, epoch=EPOCH)
    await fence.keep(60.0)
    await fence.keep(0.0)
    assert not fence.closed
    again = Fence(api, SYSTEM, epoch=EPOCH + 1)
    await again.load()
    assert not again.closed


async def test_an_unreadable_fence_is_closed(api: KubeClient) -> None:
    fence = Fence(api, SYSTEM, epoch=EPOCH)
    await fence.keep(60.0)
    await api.patch(CONFIGMAPS, NAME, SYSTEM, MergePatch({"data": {"fenceSeconds": "soon"}}))
    again = Fence(api, SYSTEM, epoch=EPOCH + 1)
    await again.load()
    assert again.closed
