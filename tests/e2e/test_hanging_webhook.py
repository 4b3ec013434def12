"""A webhook on Workloads that hangs, on a real API server: it holds up the namespace that it is for, and no other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import NAMESPACES, WORKLOADS
from slicebus.slices.workload.workload import Slice
from support.scenario import ELSEWHERE, Scenario, open_elsewhere, submit_elsewhere
from support.waiting import eventually
from support.webhooks import WEBHOOKS, webhook

pytestmark = pytest.mark.real(only=True)
"""An embedded API server calls no webhooks."""


class Silent:
    """A server that takes calls and answers none."""

    def __init__(self) -> None:
        self.calls: list[asyncio.StreamWriter] = []
        self.given_up = 0
        """How many calls have ended."""

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Hold a call until its caller gives up."""
        self.calls.append(writer)
        while await reader.read(4096):
            pass
        self.given_up += 1

    def close(self) -> None:
        """Break off all calls."""
        for call in self.calls:
            call.close()


@asynccontextmanager
async def hanging(client: KubeClient, namespace: str) -> AsyncIterator[Silent]:
    """Have every write of a Workload's status in the namespace wait for half a minute, and fail."""
    silent = Silent()
    async with await asyncio.start_server(silent.take, "127.0.0.1", 0) as server:
        address, port = server.sockets[0].getsockname()
        hangs = webhook(
            "hangs",
            WORKLOADS.group,
            "workloads/status",
            url=f"https://{address}:{port}/",
            namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            timeoutSeconds=30,
        )
        await client.create(WEBHOOKS, hangs)
        try:
            yield silent
        finally:
            await client.delete(WEBHOOKS, "hangs")
            silent.close()


async def test_it_holds_up_no_job_of_another_namespace(world: World) -> None:
    await open_elsewhere(world)
    for worker in world.workers.values():
        await world.ensure(worker, NAMESPACES, objects.namespace(ELSEWHERE))
    names: list[str] = []
    async with hanging(world.manager, ELSEWHERE) as silent:

        async def is_called() -> bool:
            """An API server takes a moment to hear of a webhook: jobs that come before that are admitted."""
            name = f"sweep-{len(names)}"
            await submit_elsewhere(world, name)
            names.append(name)
            return bool(silent.calls)

        await eventually(is_called, "the webhook is called")
        other = Scenario(world, "Job", "other")
        await other.submit()
        await other.expect_pods(running=1)
        await other.scale(3)
        await other.expect_pods(running=3)
        assert silent.given_up == 0, "the other job waited for the first call to end"

    async def are_admitted() -> bool:
        page = await world.manager.list(WORKLOADS, namespace=ELSEWHERE)
        admitted = [slice for slice in map(Slice.from_manifest, page.items) if slice.admitted]
        return len(admitted) == len(names)

    await eventually(are_admitted, "the jobs of that namespace are admitted")
