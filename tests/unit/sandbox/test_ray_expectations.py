"""When KubeRay's stand-in goes on with a group. What shows in pods is in tests/integration/ray."""

from typing import Any

import pytest

from slicebus.kube.cache import Cache
from slicebus.sandbox.controllers.ray_expectations import CREATE_S, Expectations
from unit.kube.loop_time import LoopTime

UID, GROUP = "u1", "small"
POD = ("team", "p1")


def manifest(version: str = "1") -> dict[str, Any]:
    return {"metadata": {"namespace": POD[0], "name": POD[1], "uid": "p", "resourceVersion": version}}


@pytest.fixture
def pods() -> Cache:
    return Cache()


@pytest.fixture
def expectations(pods: Cache) -> Expectations:
    return Expectations(pods)


async def test_a_create_is_met_when_the_pod_is_seen(expectations: Expectations, pods: Cache) -> None:
    expectations.expect_create(UID, GROUP, POD)
    assert not expectations.are_met(UID, GROUP)
    pods.put(manifest())
    assert expectations.are_met(UID, GROUP)
    pods.remove(manifest("2"))
    assert expectations.are_met(UID, GROUP), "once is enough"


async def test_a_create_that_nobody_sees_is_given_up(loop_time: LoopTime, expectations: Expectations) -> None:
    expectations.expect_create(UID, GROUP, POD)
    await loop_time.advance(CREATE_S)
    assert not expectations.are_met(UID, GROUP)
    await loop_time.advance(0.1)
    assert expectations.are_met(UID, GROUP)


async def test_a_delete_is_met_when_the_pod_has_gone(
    loop_time: LoopTime, expectations: Expectations, pods: Cache
) -> None:
    pods.put(manifest())
    expectations.expect_delete(UID, GROUP, POD)
    await loop_time.advance(10 * CREATE_S)
    assert not expectations.are_met(UID, GROUP)
    pods.remove(manifest("2"))
    assert expectations.are_met(UID, GROUP)


async def test_another_group_and_another_cluster_wait_for_nothing(expectations: Expectations) -> None:
    expectations.expect_create(UID, GROUP, POD)
    assert expectations.are_met(UID, "other")
    assert expectations.are_met("u2", GROUP)


async def test_a_cluster_that_has_gone_is_forgotten(expectations: Expectations) -> None:
    expectations.expect_create(UID, GROUP, POD)
    expectations.forget(UID)
    assert expectations.are_met(UID, GROUP)
