"""Gives ClusterQueues to the shards that they belong to, and takes over those that this shard was given.

While a queue goes from one shard to another nobody decides about it, and its jobs run on. The shard that gives it away
writes no admission meanwhile, and has none of that queue unanswered. The shard that gets it first reads every Workload:
its watch of them may be behind that of the queues (docs/decisions/0057).
"""

import asyncio
import math
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial

import structlog

from slicebus.ambient.backoff import Backoff
from slicebus.ambient.retries import repeated
from slicebus.bus.contract import Bus
from slicebus.decisions.decider import Decider
from slicebus.kube.cache import Change
from slicebus.kube.client import KubeClient
from slicebus.kube.lease import LeaderElection, LeaseDeleted
from slicebus.kube.resources import LEASES, WORKLOADS
from slicebus.manager.act.resyncer import Resyncer
from slicebus.manager.act.router import take_addressed
from slicebus.manager.decide.admission import sharding
from slicebus.manager.permissions import lease_of
from slicebus.manager.state.shards import claim_of
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.errors import (
    ConflictError,
    DecisionError,
    ExpiredError,
    ForbiddenError,
    NotFoundError,
    PermanentError,
    TransientError,
)
from slicebus.proto.messages import ClusterName, Lane
from slicebus.proto.topology import manager_queue
from slicebus.runtime.executor import Executor

_log = structlog.get_logger()
_GATHER_S = 0.2
"""A shard waits so long for further queues before it reads Workloads: one that begins gets many, one after the
other."""
_PAGE = 500
_LOOK_S = 5.0
_REFUSED_S = 60.0
"""The pause after a refused write. It is long, because each time the shard takes the queue back and reads every
Workload."""
_BACKOFF = Backoff(first_s=0.2, most_s=5.0)
_UNREAD = (TransientError, PermanentError, ExpiredError)
"""The answers after which Workloads are read again: the watch of them tells what may not be read, and a long list may
outlive the server's memory of where it began."""


class ShardKeeper:
    """Moves the queues of one shard. Of several, `prepare` comes before anything but ClusterQueues is read."""

    def __init__(
        self,
        *,
        client: KubeClient,
        namespace: str,
        election: Callable[[str], LeaderElection],
        decide: Decider[ManagerStore],
        executor: Executor,
        resyncer: Resyncer,
        bus: Bus,
        once: int,
        adopted: Callable[[int, asyncio.TaskGroup], None],
        waits: Callable[[str], None],
    ) -> None:
        """`namespace` is that of the Leases; `election` makes this process a candidate for one. `once` is how many
        shards there were. `adopted` is called with each of them that no longer exists, and whose place this one takes.
        `waits` is called with what this shard waits for, empty for nothing."""
        self._client = client
        self._namespace = namespace
        self._election = election
        self._decide = decide
        self._store = decide.state
        self._executor = executor
        self._resyncer = resyncer
        self._bus = bus
        self._adopted = adopted
        self._waits = waits
        self.left = set(range(self._store.shards.own.count, once))
        """The shards that no longer exist, and that may have left messages."""
        self._given_at: dict[str, str] = {}
        """The version at which each queue was given away, until the queue shows another."""
        self._leases: dict[int, str] = {}
        """The version of each other shard's Lease when it was last read."""
        self._known: set[str] = set()
        """The queues that were this shard's before it read any Workload."""
        self._moved: set[str] = set()
        """The queues that have changed hands since Workloads were last read for some."""
        self._again_at = -math.inf
        """When to give something away again that the API server has refused, in the loop's time."""
        self._refused: set[int] = set()
        """The shards that no longer exist, and whose messages the broker does not let this one have."""
        self._changed = asyncio.Event()

    def prepare(self) -> None:
        """Note which queues are this shard's. Every Workload that is read from now on shows their admissions."""
        self._known = set(self._store.shards.unheld())
        self._store.cluster_queues.subscribe(self._follow)

    async def begin(self, group: asyncio.TaskGroup) -> None:
        """Return when this shard may decide: about the queues that have been its own since `prepare`, and about all
        where it is alone. The shards of before have ended when it has their Leases."""
        shards = self._store.shards
        if shards.is_alone and (orphaned := self._orphaned):
            self._waits(f"waits for the end of {', '.join(map(lease_of, orphaned))}: there is one manager now")
            for shard in orphaned:
                await self._adopt(shard, group)
            await repeated(self._read_workloads, on=_UNREAD, wait=_BACKOFF)
            self._waits("")
        elif not shards.is_alone:
            await self._executor.run(self._decide(sharding.hold, queues=sorted(self._known)))
            self._known.clear()
            self._changed.set()

    async def run(self, taken: Callable[[], None], group: asyncio.TaskGroup) -> None:
        """Take over the queues that this shard is given, until cancelled. `taken` is called each time."""
        adopting = set[int]()
        while True:
            await self._changed.wait()
            self._changed.clear()
            await asyncio.sleep(_GATHER_S)
            for shard in self._orphaned if self._store.shards.own.index == 0 else ():
                if shard in adopting:
                    continue
                adopting.add(shard)
                group.create_task(self._adopt(shard, group), name=f"adopt:{shard}")
            if not (queues := self._given_to_us()):
                continue
            self._moved.clear()
            await repeated(self._read_workloads, on=_UNREAD, wait=_BACKOFF)
            still = set(self._given_to_us()) - self._moved
            held = [name for name in queues if name in still]
            if not held:
                continue
            _log.info("shard.took", queues=held)
            await self._executor.run(self._decide(sharding.hold, queues=held))
            for cluster in self._store.quotas.worker_clusters:
                self._resyncer.forget(ClusterName(cluster.name))
            self._changed.set()
            taken()

    @property
    def _orphaned(self) -> list[int]:
        """The shards that no longer exist, whose place nobody has taken, and that have left anything."""
        return sorted({*self._store.shards.orphaned, *self.left} - self._store.shards.adopted)

    async def _adopt(self, shard: int, group: asyncio.TaskGroup) -> None:
        """Take the place of a shard that no longer exists, once nobody else has it."""
        election = self._election(lease_of(shard))
        await election.acquire()
        group.create_task(_keep(election, shard), name=f"lease:{shard}")
        self._store.adopted[shard] = True
        self._adopted(shard, group)
        self._changed.set()
        group.create_task(self._settle(shard), name=f"settle:{shard}")

    async def _take_addressed(self, shard: int) -> None:
        """Have what agents address to a shard come here. Raises TransientError, and ForbiddenError, which it also
        logs."""
        try:
            await take_addressed(self._bus, shard, by=0)
        except ForbiddenError as error:
            self._refused.add(shard)
            self._waits(f"cannot get what agents address to {lease_of(shard)}: {error}")
            raise
        if shard in self._refused:
            self._refused.remove(shard)
            self._waits("")

    async def _settle(self, shard: int) -> None:
        """Return when nothing comes to the queues of a shard that no longer exists, and nothing is left in them, or
        they do not exist."""
        await repeated(partial(self._take_addressed, shard), on=(TransientError, ForbiddenError), wait=_BACKOFF)
        look = partial(self._has_messages, shard)
        while await repeated(look, on=TransientError, wait=_BACKOFF):  # noqa: ASYNC110 a broker tells nobody
            await asyncio.sleep(_LOOK_S)
        self.left.discard(shard)

    async def _has_messages(self, shard: int) -> bool:
        ready = 0
        for lane in Lane:
            with suppress(NotFoundError, ForbiddenError):
                ready += (await self._bus.depth(manager_queue(lane, shard))).ready
        return ready > 0

    async def give_away(self) -> bool:
        """Give what belongs to other shards to them. False where some of it has to be tried again.

        Call it while no admission is being written, but for those that take long: these count as unanswered.
        """
        misplaced, clock = self._store.shards.misplaced(), asyncio.get_running_loop().time
        if not misplaced or clock() < self._again_at:
            return not misplaced
        try:
            at_work = await self._at_work(set(misplaced.values()))
            for name, shard in misplaced.items():
                if shard in at_work:
                    await self._give(name, shard)
        except TransientError as error:
            _log.warning("shard.unknown", error=str(error))
        except (DecisionError, PermanentError) as error:
            self._again_at = clock() + _REFUSED_S
            self._waits(f"cannot give queues to the shards that they belong to: {error}")
        else:
            if self._again_at > -math.inf:
                self._again_at = -math.inf
                self._waits("")
        return not self._store.shards.misplaced()

    async def _give(self, name: str, shard: int) -> None:
        commands = self._decide(sharding.give_away, queue=name, to=shard)
        queue = self._store.cluster_queues.get(None, name)
        if not commands or queue is None:
            return
        # Whether the write is answered or not: while the queue has this version, it may still come about.
        self._given_at[name] = queue["metadata"]["resourceVersion"]
        try:
            await self._executor.run(commands)
        except (ConflictError, TransientError) as error:
            _log.info("shard.kept", queue=name, error=str(error))
        except PermanentError:
            # The write will not come about, so this shard goes on deciding about the queue.
            del self._given_at[name]
            self._changed.set()
            raise
        else:
            _log.info("shard.gave", queue=name, shard=shard)

    async def _at_work(self, shards: Collection[int]) -> set[int]:
        """The shards whose Lease is held, and was renewed since it was last read. Clocks are not compared: they may
        differ."""
        at_work = set()
        for shard in shards:
            try:
                lease = await self._client.get(LEASES, lease_of(shard), self._namespace)
            except NotFoundError:
                continue
            version, before = lease["metadata"]["resourceVersion"], self._leases.get(shard)
            self._leases[shard] = version
            if lease["spec"].get("holderIdentity") and before not in (None, version):
                at_work.add(shard)
        return at_work

    async def _read_workloads(self) -> None:
        """Read every Workload, so that the cache is at least as new as now."""
        async for page in self._client.pages(WORKLOADS, limit=_PAGE):
            for workload in page.items:
                self._store.workloads.put(workload)

    def _given_to_us(self) -> list[str]:
        return [name for name in self._store.shards.unheld() if not self._may_go(name)]

    def _may_go(self, name: str) -> bool:
        """Whether a queue was given away at the version that it shows."""
        queue = self._store.cluster_queues.get(None, name)
        return queue is not None and self._given_at.get(name) == queue["metadata"]["resourceVersion"]

    def _follow(self, change: Change) -> None:
        old, new = (claim_of(queue) if queue else None for queue in (change.old, change.new))
        if old != new:
            name = (change.new or change.old or {})["metadata"]["name"]
            self._moved.add(name)
            if old is not None:
                self._known.discard(name)
                self._store.held.pop(name, None)
        self._changed.set()


async def _keep(election: LeaderElection, shard: int) -> None:
    """Hold the Lease of a shard whose place this one has, until cancelled. It is made anew where somebody deletes it:
    nobody else has it then. Raises LeaseLost where another process has taken it."""
    while True:
        try:
            await election.hold()
        except LeaseDeleted as error:
            _log.warning("shard.lease_deleted", shard=shard, error=str(error))
            await election.make_anew()
