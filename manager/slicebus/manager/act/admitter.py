"""Runs the admission cycle whenever one of its inputs has changed.

A tree of quota has one admitter: that of the manager that holds the Lease; of several, that of the shard that has the
tree. Its cache has every admission before the next cycle. An admission whose write got no answer may have been written
or not. The slice counts as admitted, and the same write is tried again, until the object is seen at another version.
Where its quota or its worker cluster was edited meanwhile, it is called off instead: the slice still counts as admitted
until that is written, and is decided again after it.

A cycle may decide more than can be written at once. Each decision carries the resourceVersion of the Workload that it
was made from. If the Workload has another version when its write comes up, it is decided again in the next cycle. A
decision that waits is also decided again when somebody edits its quota or its worker cluster. Every other change only
frees quota: nobody else admits, and an admission was charged with everything that its chain will use.

An admission carries the order that follows from it, above every order that the job has had. So it waits for the job's
lock: the order of an earlier slice may be under way. If the lock is not free in 0.5 s, the admission is written without
the order.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import timedelta

import msgspec
import structlog

from slicebus.ambient.clock import now
from slicebus.decisions.decider import Decider
from slicebus.kube.times import now_text, time_text
from slicebus.manager.act.dirty_trees import DirtyTrees
from slicebus.manager.act.shard_keeper import ShardKeeper
from slicebus.manager.decide import catalog
from slicebus.manager.decide.admission import admission_writes
from slicebus.manager.state.store import ManagerStore, Uncertain, owner_ref
from slicebus.proto.errors import ConflictError, PermanentError, TransientError
from slicebus.proto.messages import JobRef, Manifest
from slicebus.runtime.executor import Executor
from slicebus.runtime.locks import Locks
from slicebus.slices.admission.cycle import Admit, Decision, Evict, Wait

_log = structlog.get_logger()
_RETRY_S = 0.2
_GIVE_AGAIN_S = 3.0
"""More than the pause between two renewals of a Lease."""
_TURN_S = 0.5
"""The longest wait for a job's lock. Work under it takes some milliseconds, unless it waits for the broker."""
_RING = timedelta(minutes=10)
"""Workloads that have preempted each other in turn within this time do not begin again."""


class Admitter:
    """The only task that admits slices."""

    def __init__(
        self,
        decide: Decider[ManagerStore],
        executor: Executor,
        *,
        locks: Locks[JobRef],
        writers: int,
        admitted: Callable[[JobRef], None],
        keeper: ShardKeeper | None = None,
    ) -> None:
        """`writers` is the number of decisions that are written at once. `admitted` gets the job of each slice that was
        admitted: its order goes out before the jobs of a burst that wait for quota are reconciled again. `keeper` gives
        other shards their queues between the cycles; None where there are no other shards."""
        store = decide.state
        self._decide = decide
        self._store = store
        self._executor = executor
        self._locks = locks
        self._writers = writers
        self._admitted = admitted
        self._keeper = keeper
        self._dirty = DirtyTrees(store)

    async def run(self) -> None:
        """Decide until cancelled."""
        while True:
            await self._dirty.pending.wait()
            self._call_off_outdated()
            trees = self._store.shards.trees(self._dirty.take())
            concerned = self._keeper is None or trees or self._store.uncertain
            if concerned and not await self._cycle(trees):
                await asyncio.sleep(_RETRY_S)
                self._dirty.add(trees)
            if self._keeper is not None and not await self._keeper.give_away():
                asyncio.get_running_loop().call_later(_GIVE_AGAIN_S, self._dirty.add, ())

    def decide_anew(self) -> None:
        """Have every tree decided, because this shard's trees have changed."""
        self._dirty.add(None)

    async def _cycle(self, trees: Sequence[str] | None) -> bool:
        """Run one cycle over some trees of quota. False when it has to run again although nothing changes.

        Most changes of a slice come while nobody waits for quota of its tree. Then there is nothing to decide.
        """
        self._forget_certain()
        if self._store.quotas.is_settled(trees) and not self._store.uncertain:
            return True
        decided = self._decide(catalog.cycle, trees=trees, preemption_cycles_since=time_text(now() - _RING))
        free = asyncio.Semaphore(self._writers)

        async def carry_out(decision: Decision, version: str) -> bool:
            async with free, self._turn_of(decision) as in_turn:
                return await self._carry_out(decision, version, in_turn=in_turn)

        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(
                    carry_out(decision, self._store.version_of(decision.key)), name=f"admit:{decision.key}"
                )
                for decision in decided
            ]
        return all(task.result() for task in tasks)

    def _turn_of(self, decision: Decision) -> AbstractAsyncContextManager[bool]:
        """Hold the lock of the job that a decision is about; yields whether it was free in time."""
        workload = self._workload(decision)
        ref = owner_ref(workload) if workload is not None else None
        return self._locks.of_within(ref, _TURN_S) if ref is not None else nullcontext(enter_result=False)

    def _workload(self, decision: Decision) -> Manifest | None:
        namespace, _, name = decision.key.partition("/")
        return self._store.workloads.get(namespace, name)

    async def _carry_out(self, decision: Decision, version: str, *, in_turn: bool) -> bool:
        """Write a decision that was made from this resourceVersion; False when it has to be decided again."""
        if self._is_outdated(decision):
            return False
        workload = self._workload(decision)
        try:
            commands = self._decide(
                catalog.verdict, decision=decision, version=version, in_turn=in_turn, now=now_text()
            )
            if workload is None or not commands:
                return True
            await self._executor.run(commands)
        except ConflictError:
            return False
        except TransientError as error:
            _log.warning("admission.unanswered", slice=decision.key, error=str(error))
            if workload and isinstance(decision, Admit) and not admission_writes.was_elsewhere(workload, decision):
                self._store.uncertain[decision.key] = Uncertain(decision, version)
            return False
        except PermanentError as error:
            # One object that the server refuses must not end the admission of all others.
            _log.error("admission.refused", slice=decision.key, error=str(error))
            return True
        slice = self._store.slices.get(decision.key)
        if isinstance(decision, Admit) and slice is not None and slice.admission is not None:
            _log.info("slice.admitted", slice=decision.key, cluster=decision.cluster)
            if (ref := owner_ref(workload)) is not None:
                self._admitted(ref)
        elif isinstance(decision, Evict):
            _log.info("slice.evicted", slice=decision.key, reason=decision.reason)
        return True

    def _is_outdated(self, decision: Decision) -> bool:
        """Whether somebody has edited the quota or the cluster since the cycle was decided."""
        match decision:
            case Admit(admission=admission, cluster=cluster):
                return self._dirty.is_edited(admission.cluster_queue, cluster)
            case Evict(key=key):
                slice = self._store.slices.get(key)
                held = slice.admission if slice else None
                return held is not None and self._dirty.is_edited(held.cluster_queue, None)
            case Wait():
                return False

    def _call_off_outdated(self) -> None:
        """Note which unanswered admissions depend on what was edited since the last cycle."""
        for key, uncertain in list(self._store.uncertain.items()):
            if self._is_outdated(uncertain.decision):
                self._store.uncertain[key] = msgspec.structs.replace(uncertain, outdated=True)

    def _forget_certain(self) -> None:
        """Forget the unanswered admissions of objects with another version: the old version fenced the write, so it can
        no longer happen."""
        for key, uncertain in list(self._store.uncertain.items()):
            if self._store.version_of(key) != uncertain.resource_version:
                del self._store.uncertain[key]
