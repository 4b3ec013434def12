"""The start of a role: it holds the Lease from the first moment on, and waits for what is missing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry

from slicebus.kube.client import KubeClient
from slicebus.kube.lease import LeaseLost
from slicebus.kube.resources import LEASES
from slicebus.proto.errors import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    SlicebusError,
    ThrottledError,
    UnavailableError,
)
from slicebus.proto.topology import Topology, common_topology
from slicebus.runtime.leadership import NOT_READY_ANNOTATION
from slicebus.runtime.role import Role, retry_until_available
from slicebus.runtime.settings import RoleSettings
from slicebus.sandbox.bus import MemoryBroker, MemoryBus
from support.waiting import eventually
from unit.kube.loop_time import LoopTime
from unit.kube.servers import SYSTEM


class AwayBus(MemoryBus):
    """A bus whose broker is away for a while."""

    def __init__(self) -> None:
        super().__init__(MemoryBroker(), user="u")
        self.away = asyncio.Event()
        self.refusal: SlicebusError | None = None
        self.declared = 0

    async def declare(self, topology: Topology) -> None:
        self.declared += 1
        if self.away.is_set():
            raise UnavailableError("no connection within 30 s")
        if self.refusal is not None:
            raise self.refusal
        await super().declare(topology)


class Leader(Role[RoleSettings]):
    """Leads, and that is all."""

    component = "slicebus-test"

    async def prepare(self) -> None:
        await self._bus.declare(common_topology())

    async def lead(self, epoch: int) -> None:
        self.leading.set()
        await asyncio.Event().wait()


def leader(api: KubeClient, bus: MemoryBus, identity: str = "a") -> Leader:
    settings = RoleSettings(
        amqp_url="memory://u@b", namespace=SYSTEM, identity=identity, lease_s=0.9, lease_renew_s=0.1
    )
    return Leader(settings, api, bus, CollectorRegistry())


@asynccontextmanager
async def running(role: Leader) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(role.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_leader_waits_for_an_unreachable_broker_and_keeps_its_lease(api: KubeClient) -> None:
    bus = AwayBus()
    bus.away.set()
    role = leader(api, bus)
    async with running(role) as task:

        async def renewed() -> bool:
            spec = (await api.get(LEASES, role.component, SYSTEM))["spec"]
            return bool(spec["renewTime"] > spec["acquireTime"] and bus.declared > 1)

        await eventually(renewed, "the lease is renewed while the broker is asked again")
        assert not role.leading.is_set()
        bus.away.clear()
        await role.leading.wait()
        assert not task.done()
    spec = (await api.get(LEASES, role.component, SYSTEM))["spec"]
    assert spec["holderIdentity"] == "", "given back"


async def test_a_leader_that_loses_the_lease_ends(api: KubeClient) -> None:
    role = leader(api, AwayBus())
    async with running(role) as task:
        await role.leading.wait()
        await api.delete(LEASES, role.component, SYSTEM)
        with pytest.raises(ExceptionGroup) as raised:
            await task
        assert raised.group_contains(LeaseLost)


@pytest.mark.parametrize(
    "refusal",
    [
        ForbiddenError("the broker refuses its user u this: write slicebus.up"),
        NotFoundError("exchange slicebus.up"),
        ConflictError("409: the quota of config maps has been modified"),
    ],
)
async def test_a_leader_waits_for_a_right_or_an_exchange_and_says_which(
    api: KubeClient, refusal: SlicebusError
) -> None:
    bus = AwayBus()
    bus.refusal = refusal
    role = leader(api, bus)
    async with running(role) as task:

        async def said() -> bool:
            written = (await api.get(LEASES, role.component, SYSTEM))["metadata"].get("annotations") or {}
            return bool(written.get(NOT_READY_ANNOTATION) == f"waits: {refusal}")

        await eventually(said, "the Lease says what is missing")
        assert role.not_ready() == f"waits: {refusal}"
        bus.refusal = None
        await role.leading.wait()
        assert role.not_ready() == ""
        assert not task.done()


async def test_only_transient_errors_are_retried(jumping: LoopTime) -> None:
    answers = [UnavailableError("no"), ThrottledError("no"), InvalidError("never")]

    async def call() -> None:
        raise answers.pop(0)

    with pytest.raises(InvalidError):
        await retry_until_available("try", call)
    assert not answers
