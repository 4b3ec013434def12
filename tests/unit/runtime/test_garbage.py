"""When a role's process collects garbage."""

import asyncio
import gc
from collections.abc import Iterator

import pytest

from slicebus.runtime.garbage import spared
from unit.kube.loop_time import LoopTime, settle


@pytest.fixture(autouse=True)
def frozen_nothing() -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.enable()


async def test_nothing_is_collected_while_a_role_begins_and_what_it_has_read_never() -> None:
    begun, leading = asyncio.Event(), asyncio.Event()
    async with spared(begun=begun, leading=leading):
        await settle()
        assert gc.isenabled()
        begun.set()
        await settle()
        assert not gc.isenabled()
        frozen = gc.get_freeze_count()
        leading.set()
        await settle()
        assert gc.isenabled()
        assert gc.get_freeze_count() > frozen


async def test_a_role_that_does_not_come_to_work_collects_again(jumping: LoopTime) -> None:
    begun, leading = asyncio.Event(), asyncio.Event()
    begun.set()
    frozen = gc.get_freeze_count()
    async with spared(begun=begun, leading=leading):
        await asyncio.sleep(599)
        assert not gc.isenabled()
        await asyncio.sleep(2)
        assert gc.isenabled()
    assert gc.get_freeze_count() == frozen


async def test_a_role_that_ends_before_it_leads_leaves_the_collector_on() -> None:
    begun, leading = asyncio.Event(), asyncio.Event()
    begun.set()
    async with spared(begun=begun, leading=leading):
        await settle()
        assert not gc.isenabled()
    assert gc.isenabled()
