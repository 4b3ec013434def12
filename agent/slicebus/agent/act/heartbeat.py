"""Publishes a heartbeat every few seconds: it shows that the agent is alive, and how much room its cluster has."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import msgspec
import structlog
from msgspec import UNSET, UnsetType

from slicebus.agent.act.fence import Fence
from slicebus.agent.act.pod_additions import Additions
from slicebus.agent.decide.cluster.capacity import CapacityFigures, Granted, PodUse, room, within_grant
from slicebus.agent.state.policy import Policy
from slicebus.agent.state.store import POLICY, AgentStore
from slicebus.agent.state.views import JobKey
from slicebus.decisions.guard import guarded
from slicebus.proto.errors import DecisionError, PermanentError, TransientError
from slicebus.proto.messages import POLICY_BYTES, Heard, Heartbeat, Manifest, Message, Terms
from slicebus.slices.jobs.cluster_policy import ToldPolicy

_log = structlog.get_logger()


class Heartbeats:
    """Publishes heartbeats with `publish`. When the fence opens, passes every job to `requeue`.

    `lacking` gives the namespaces that take no jobs, None before that is known. `additions` gives what the cluster adds
    to pods.
    `waiting_since` gives, for each queue of work, since when its oldest entry waits (the loop's time); None if empty.
    """

    def __init__(
        self,
        store: AgentStore,
        fence: Fence,
        *,
        publish: Callable[[Message], Awaitable[None]],
        requeue: Callable[[JobKey], None],
        waiting_since: Callable[[], Iterable[float | None]],
        lacking: Callable[[], dict[str, str] | None],
        additions: Callable[[], Additions],
        interval_s: float,
    ) -> None:
        self._store = store
        self._fence = fence
        self._publish = publish
        self._requeue = requeue
        self._waiting_since = waiting_since
        self._lacking = lacking
        self._additions = additions
        self._interval_s = interval_s
        self._use = PodUse(store.pods, store.foreign_pods)
        self._terms: Terms | None = None
        self._kept: str | UnsetType = UNSET
        """The version of the terms whose fence is stored: the manager sends others again."""
        self._changed = asyncio.Event()

    async def accept(self, terms: Terms) -> None:
        """Keep these terms from now on; publish a heartbeat at once where they are new. Raises what storing the fence
        raises. The fence before it then stays, and opens all the same when the manager has heard; the flavors count."""
        was_closed, kept = self._fence.closed, self._kept
        if self._terms is None or self._terms.version != terms.version:
            _log.info("terms.accepted", version=terms.version, flavors=[flavor.name for flavor in terms.flavors])
            self._terms, self._kept = terms, UNSET
            self.beat_now()
        try:
            await self._fence.keep(terms.fence_s if isinstance(terms.fence_s, float) else 0.0)
        finally:
            if isinstance(terms.heard, Heard):
                self._fence.hear(terms.heard)
            if was_closed and not self._fence.closed:
                for key in self._store.our_jobs():
                    self._requeue(key)
        if kept != terms.version:
            self._kept = terms.version
            self.beat_now()

    def beat_now(self) -> None:
        """Publish a heartbeat without waiting for its time."""
        self._changed.set()

    async def run(self) -> None:
        """Publish heartbeats until cancelled. One that cannot be published is skipped; of several, the first is
        logged."""
        fails = False
        while True:
            self._changed.clear()
            try:
                await self._publish(self._beat())
                fails = False
            except (TransientError, PermanentError) as error:
                if not fails:
                    _log.warning("heartbeat.failed", error=str(error))
                fails = True
            try:
                async with asyncio.timeout(self._interval_s):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _beat(self) -> Heartbeat:
        room_now, lacking, now_s = self._room(), self._lacking(), asyncio.get_running_loop().time()
        defaults, overheads = self._additions()
        return Heartbeat(
            capacity=room_now.capacity,
            used=room_now.used,
            ours=room_now.ours,
            terms=self._kept,
            said_s=now_s,
            fence_s=self._fence.seconds,
            lacking=UNSET if lacking is None else lacking,
            container_defaults=defaults,
            pod_overheads=overheads,
            policy=told_of_policy(self._store.policy.get(POLICY)),
            scheduler_backends=self._store.schedulers.usable,
            jobs=sum(1 for _ in self._store.our_jobs()),
            lag_s=lag_s(self._waiting_since(), now_s),
            out_of_sync=self._store.behind(),
        )

    def _room(self) -> CapacityFigures:
        store = self._store
        return room(
            self._terms.flavors if self._terms else (),
            nodes=store.nodes(),
            use=self._use.by_node,
            granted=(pod for key in store.our_jobs() for pod in self._granted(key)),
        )

    def _granted(self, key: JobKey) -> list[Granted]:
        """The pods of a job within its grant. Those of a job that cannot be read count as foreign."""
        try:
            return guarded(lambda: [*within_grant(self._store.view(key))])
        except DecisionError as error:
            _log.error("job.uncounted", job=str(key), error=str(error))
            return []


def told_of_policy(policy: Policy | None) -> Manifest | UnsetType:
    """What a heartbeat says of a policy; not set for one that is too long."""
    if policy is None:
        return UNSET
    told_of = [name for name in ToldPolicy.__struct_fields__ if name != "create_as"]
    rules = ToldPolicy(**{name: getattr(policy, name) for name in told_of})
    encoded = msgspec.json.encode(rules)
    told: Manifest = msgspec.json.decode(encoded)
    return told if len(encoded) <= POLICY_BYTES else UNSET


def lag_s(waiting_since: Iterable[float | None], now_s: float) -> float:
    """The age of the agent's oldest pending work in seconds; 0 when nothing waits.

    `waiting_since` has a time for each kind of work, by the clock of `now_s`; None where none waits.
    """
    return max((now_s - since_s for since_s in waiting_since if since_s is not None), default=0.0)
