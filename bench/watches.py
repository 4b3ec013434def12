"""What comes through in a fleet, as the watches of a bench show it."""

import asyncio
import time
from collections.abc import Coroutine, Iterable, Iterator
from datetime import datetime
from functools import partial
from typing import Any

from slicebus.bus.contract import Bus
from slicebus.cli.demo.world import World
from slicebus.kube.cache import Cache, Change
from slicebus.kube.client import KubeClient
from slicebus.kube.reflector import Reflector
from slicebus.kube.resources import PODS, WORKLOADS
from slicebus.proto.codec import decode
from slicebus.proto.messages import WorkloadSpec
from slicebus.proto.topology import JOURNAL

Manifest = dict[str, Any]
_PATIENCE_S = 600.0


class Seen:
    """When each thing was first seen, and a wait for it. Times are of `time.perf_counter`, in seconds."""

    def __init__(self) -> None:
        self.at: dict[str, float] = {}
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    def note(self, name: str, *, since: datetime | None = None) -> None:
        """It is there, by now or since then."""
        if name not in self.at:
            self.at[name] = time.perf_counter() - (time.time() - since.timestamp() if since else 0.0)
            task = asyncio.create_task(self._tell())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def all_of(self, names: Iterable[str]) -> float:
        """Return when all are seen: the time of the last."""
        wanted = set(names)
        async with asyncio.timeout(_PATIENCE_S), self._changed:
            await self._changed.wait_for(lambda: wanted <= self.at.keys())
        return max(self.at[name] for name in wanted)

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()


class Watches:
    """Jobs by name, which no two have, and their pods."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.pods, self.admitted, self.ordered, self.gone = Seen(), Seen(), Seen(), Seen()
        """Of `pods` the name is `NAME COUNT` when so many pods of a job have no gate, `gated NAME COUNT` when so many
        have one."""
        self.where: dict[str, KubeClient] = {}
        """The worker that has pods of a job."""
        self.gated: dict[str, dict[str, Manifest]] = {}
        """The pods of a job that have a gate, by UID."""
        self._ungated: dict[str, set[str]] = {}

    def running(self, bus: Bus) -> Iterator[Coroutine[Any, Any, None]]:
        """What has to run meanwhile."""
        workloads = Cache()
        workloads.subscribe(self._workload_changed)
        yield Reflector(self._world.manager, WORKLOADS, workloads).run()
        for worker in self._world.workers.values():
            pods = Cache()
            pods.subscribe(partial(self._pod_changed, worker))
            yield Reflector(worker, PODS, pods).run()
        yield self._follow(bus)

    def _pod_changed(self, worker: KubeClient, change: Change) -> None:
        pod = change.new or change.old
        assert pod is not None
        name, uid = (pod["metadata"].get("labels") or {}).get("job-name", ""), pod["metadata"]["uid"]
        self.where[name] = worker
        gates = pod["spec"].get("schedulingGates") or ()
        if change.new is None or not gates:
            self.gated.get(name, {}).pop(uid, None)
        if change.new is None:
            self._ungated.get(name, set()).discard(uid)
        elif gates:
            self.gated.setdefault(name, {})[uid] = pod
            self.pods.note(f"gated {name} {len(self.gated[name])}")
        else:
            self._ungated.setdefault(name, set()).add(uid)
            self.pods.note(f"{name} {len(self._ungated[name])}")

    def _workload_changed(self, change: Change) -> None:
        workload = change.new or change.old
        assert workload is not None
        job = next((owner["name"] for owner in workload["metadata"].get("ownerReferences") or ()), "")
        if change.new is None:
            self.gone.note(job)
        elif workload.get("status", {}).get("admission"):
            self.admitted.note(job)

    async def _follow(self, bus: Bus) -> None:
        async for record in bus.read_stream(JOURNAL, "next", follow=True):
            if record.message.type == WorkloadSpec.type:
                received = decode(record.message)
                assert isinstance(received.message, WorkloadSpec)
                self.ordered.note(received.message.job.name, since=datetime.fromisoformat(received.envelope.time))
