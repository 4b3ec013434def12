"""What a watch, the broker and the manager's log tell of jobs, and when: pods that may run, specs, admissions."""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial

import aio_pika
from aio_pika.abc import AbstractIncomingMessage

from slicebus.cli.demo import objects
from slicebus.cli.demo.world import running
from slicebus.kube.cache import Cache, Change
from slicebus.kube.client import KubeClient
from slicebus.kube.reflector import Reflector
from slicebus.kube.resources import PODS
from slicebus.proto.headers import SUBJECT
from slicebus.proto.messages import ClusterName
from slicebus.proto.topology import DOWN
from slicebus.slices.jobs.batch import JOB_NAME_LABEL
from slicebus.slices.workload.ungate import is_gated

_SPECS = "*.workload-spec.#"
PATIENCE_S = 300.0


class Pods:
    """The pods of jobs on all workers, by the job's name: the value of one of their labels."""

    def __init__(self, label: str) -> None:
        self._label = label
        self.gated: dict[str, set[str]] = defaultdict(set)
        self.free: dict[str, set[str]] = defaultdict(set)
        """Those that no gate holds. A pod that is being deleted is in neither."""
        self.place: dict[str, ClusterName] = {}
        """Where a job has, or has had, pods."""
        self._waiting: dict[str, list[asyncio.Future[None]]] = defaultdict(list)

    @classmethod
    @asynccontextmanager
    async def watched(
        cls, workers: Mapping[ClusterName, KubeClient], *, label: str = JOB_NAME_LABEL
    ) -> AsyncIterator["Pods"]:
        """Watch until the context is left."""
        pods, reflectors, synced = cls(label), [], []
        for name, client in workers.items():
            cache = Cache()
            cache.subscribe(partial(pods._changed, name))
            reflectors.append(Reflector(client, PODS, cache, namespace=objects.NAMESPACE).run())
            synced.append(cache.synced)
        async with running(*reflectors, started=synced):
            yield pods

    async def until_free(self, job: str, count: int) -> float:
        """When it has exactly so many pods that may run, and none that wait, by `time.perf_counter`."""
        return await self._until(job, lambda: len(self.free[job]) == count and not self.gated[job])

    async def until_gated(self, job: str, count: int) -> set[str]:
        """The pods that wait, once they are so many."""
        await self._until(job, lambda: len(self.gated[job]) == count)
        return set(self.gated[job])

    async def _until(self, job: str, reached: Callable[[], bool]) -> float:
        async with asyncio.timeout(PATIENCE_S):
            while not reached():
                changed = asyncio.get_running_loop().create_future()
                self._waiting[job].append(changed)
                await changed
        return time.perf_counter()

    def _changed(self, cluster: ClusterName, change: Change) -> None:
        metadata = (change.new or change.old or {})["metadata"]
        job, name = metadata["labels"].get(self._label, ""), metadata["name"]
        self.place[job] = cluster
        self.gated[job].discard(name)
        self.free[job].discard(name)
        if change.new is not None and "deletionTimestamp" not in metadata:
            (self.gated if is_gated(change.new) else self.free)[job].add(name)
        for waiting in self._waiting.pop(job, ()):
            if not waiting.done():
                waiting.set_result(None)


class Publications:
    """When the first spec of each job was published, by the job's name: seconds since 1970."""

    def __init__(self) -> None:
        self.at: dict[str, float] = {}

    @classmethod
    @asynccontextmanager
    async def watched(cls, amqp_url: str) -> AsyncIterator["Publications"]:
        """Listen until the context is left. The user at the broker may bind a queue to the exchange."""
        found = cls()
        async with await aio_pika.connect(amqp_url) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(exclusive=True)
            await queue.bind(DOWN, _SPECS)
            await queue.consume(found._take, no_ack=True)
            yield found

    def since(self, admissions: Mapping[str, float]) -> list[float]:
        """The seconds from admission to publication, of each job that is in both."""
        return [at - admissions[job] for job, at in self.at.items() if job in admissions]

    async def _take(self, message: AbstractIncomingMessage) -> None:
        _, _, job = str(message.headers[SUBJECT]).rpartition("/")
        self.at.setdefault(job, time.time())


def admissions(log: Sequence[Mapping[str, object]]) -> dict[str, float]:
    """When the first slice of each Job was admitted, by the Job's name: seconds since 1970. The manager's log has a
    line as soon as the API server has answered."""
    found: dict[str, float] = {}
    for line in log:
        if line["event"] == "slice.admitted":
            job, _, _ = str(line["slice"]).rpartition("/")[2].removeprefix("job-").rpartition("-")
            found.setdefault(job, datetime.fromisoformat(str(line["timestamp"])).timestamp())
    return found
