"""Runs the admission cycle whenever one of its inputs has changed.

A tree of quota has one admitter: that of the manager that holds the Lease; of several, that of the shard that has the
tree. Its cache has every admission before the next cycle. An admission whose write got no answer may have been written
or not. The slice counts as admitted, and the same write is tried again, until the object is seen at another version.
Where its quota or its worker cluster was edited meanwhile, it is called off instead: the slice still counts as admitted
until that is written, and is decided again after it. A slice also counts as admitted while its write takes long: the
next cycles do not wait for that.

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
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta

import msgspec
import structlog
from prometheus_client import CollectorRegistry, Histogram

from slicebus.ambient.cancellation import TaskGroup
from slicebus.ambient.clock import now
from slicebus.ambient.lasting_failures import OBJECT_PATIENCE, LastingFailures
from slicebus.decisions.commands import Emit
from slicebus.decisions.decider import Decider
from slicebus.kube.times import now_text, time_text
from slicebus.manager.act.dirty_trees import DirtyTrees
from slicebus.manager.act.refused_writes import RefusedWrites
from slicebus.manager.act.shard_keeper import ShardKeeper
from slicebus.manager.act.slice_writes import SliceWrites
from slicebus.manager.decide import catalog
from slicebus.manager.decide.admission import admission_writes
from slicebus.manager.state.owners import job_of
from slicebus.manager.state.quota_trees import NOWHERE
from slicebus.manager.state.reclaims import RING
from slicebus.manager.state.store import ManagerStore, Uncertain, owner_ref
from slicebus.proto.errors import (
    ConflictError,
    DecisionError,
    PermanentError,
    SlicebusError,
    TransientError,
    WebhookError,
)
from slicebus.proto.messages import JobRef, Manifest
from slicebus.runtime.executor import Executor
from slicebus.runtime.locks import Locks
from slicebus.slices.admission.cycle import Admit, Decision, Evict, Grow, Shrink, Wait
from slicebus.slices.admission.growth_limit import is_limited
from slicebus.slices.workload.workload import Slice, SliceKey

_log = structlog.get_logger()
_GIVE_AGAIN_S = 3.0
"""More than the pause between two renewals of a Lease."""
_ASIDE_S = 60.0
"""After so long a tree whose decision raised is decided again, changed or not."""
_TURN_S = 0.5
"""The longest wait for a job's lock. Work under it takes some milliseconds, unless it waits for the broker."""
_REFUSED = "AdmissionRefused"
_REFUSED_S = 30.0
"""How much later it is decided anew about a slice whose write the API server has refused."""
_TAKING = (Evict, Shrink)
"""The decisions that take quota from its holder."""
_LOOKS = 10
"""How often in its time a growth that is limited is decided again, and idle quota given away."""
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
"""Seconds."""


class Admitter:
    """The only task that admits slices."""

    def __init__(
        self,
        decide: Decider[ManagerStore],
        executor: Executor,
        *,
        locks: Locks[JobRef],
        registry: CollectorRegistry,
        writers: int,
        admitted: Callable[[JobRef], None],
        keeper: ShardKeeper | None = None,
        logged: Callable[[str], AbstractContextManager[object]] = lambda _: nullcontext(),
    ) -> None:
        """`writers` is the number of decisions that are written at once. `admitted` gets the job of each slice that was
        admitted: its order goes out before the jobs of a burst that wait for quota are reconciled again. `keeper` gives
        other shards their queues between the cycles; None where there are no other shards. `logged` is the context of
        what is logged about a job, `Kind/namespace/name`."""
        store = decide.state
        self._decide = decide
        self._store = store
        self._executor = executor
        self._locks = locks
        self._admitted = admitted
        self._keeper = keeper
        self._logged = logged
        self._dirty = DirtyTrees(store)
        self._times = Histogram(
            "slicebus_admission_cycle_seconds",
            "How long an admission cycle took, with the writes of what it decided that did not take long.",
            buckets=_BUCKETS,
            registry=registry,
        )
        self.set_aside: set[str] = set()
        """The trees of quota whose decision raises: nothing is admitted there."""
        self._writes = SliceWrites(self._write, at_once=writers, is_long=self._assume, due=self._decide_again)
        self._failures = LastingFailures[SliceKey](OBJECT_PATIENCE)
        self._unadmitted = RefusedWrites(self._decide_again)
        """The slices whose admission is refused."""
        self._unevicted = RefusedWrites(self._decide_again)
        """The quota holders whose eviction or loss of pods is refused."""
        self._assumed: set[SliceKey] = set()
        """The slices that count as admitted only because that write takes long."""
        self._limited: set[SliceKey] = set()
        """The growths that wait for time to pass (`growth_limit`)."""
        self._willing: set[SliceKey] = set()
        """The quota holders that take quota which nobody waits for (`idle_quota`)."""
        self._gives_idle = False
        """Whether the next cycle gives such quota away."""
        self._idle_timer: asyncio.TimerHandle | None = None
        store.quotas.on_slice_change(self._slice_changed)

    async def run(self) -> None:
        """Decide until cancelled."""
        async with TaskGroup() as group:
            while True:
                await self._dirty.pending.wait()
                self._call_off_outdated()
                trees = self._store.shards.trees(self._dirty.take())
                concerned = self._keeper is None or trees or self._store.uncertain
                if concerned:
                    await self._cycle(trees, group)
                if self._keeper is not None and not await self._keeper.give_away():
                    self._dirty.add_after((), _GIVE_AGAIN_S)

    def _slice_changed(self, old: Slice | None, new: Slice | None) -> None:
        """Follow the growths that wait for time to pass. While there are any, everything is decided again at times.
        Forget the failures of a slice that is gone."""
        was_none = not self._limited
        if old is not None:
            self._limited.discard(old.key)
        if old is not None and new is None:
            self._writes.forget(old.key)
            self._failures.forget(old.key)
        if old is not None and (new is None or new.pod_sets != old.pod_sets):
            self._unadmitted.forget(old.key)
            self._unevicted.forget(old.key)
        if new is not None and is_limited(new):
            self._limited.add(new.key)
        if was_none and self._limited:
            self._decide_later()
        if old is not None:
            self._willing.discard(old.key)
        if new is not None and new.keeps_quota and new.elasticity.most and self._idle_growth_s:
            self._willing.add(new.key)
            if self._idle_timer is None:
                self._give_idle_later()

    @property
    def _idle_growth_s(self) -> float:
        return 0.0 if self._store.beside_kueue else self._store.settings.idle_growth_s

    def _give_idle_later(self) -> None:
        """Have idle quota given away at times, as long as anybody would take any."""
        self._idle_timer = asyncio.get_running_loop().call_later(self._idle_growth_s / _LOOKS, self._give_idle)

    def _give_idle(self) -> None:
        self._idle_timer = None
        if self._willing and self._idle_growth_s:
            self._gives_idle = True
            self._dirty.add(None)
            self._give_idle_later()

    def _decide_later(self) -> None:
        delay_s = self._store.settings.growth_window_s / _LOOKS
        asyncio.get_running_loop().call_later(delay_s, self._decide_limited)

    def _decide_limited(self) -> None:
        if self._limited:
            self._dirty.add(None)
            self._decide_later()

    def decide_anew(self) -> None:
        """Have every tree decided: this shard's trees have changed, or what is left of a budget."""
        self._dirty.add(None)

    async def _cycle(self, trees: Sequence[str] | None, group: asyncio.TaskGroup) -> None:
        """Run one cycle over some trees of quota.

        Most changes of a slice come while nobody waits for quota of its tree. Then there is nothing to decide.
        """
        self._forget_certain()
        if self._store.quotas.is_settled(trees) and not (self._store.uncertain or self._gives_idle):
            return
        with self._times.time():
            decided = [(one, self._store.version_of(one.key)) for one in self._decide_trees(trees)]
            is_again = any(
                isinstance(one[0], _TAKING) and self._unevicted.has_turn_again(one[0].key) for one in decided
            )
            tried = [one for one in decided if not self._rests(one[0], is_again=is_again)]
            await self._writes.carry_out(tried, group)

    def _rests(self, decision: Decision, *, is_again: bool) -> bool:
        """Whether a decision would be written too soon after it was refused. `is_again`: a victim is tried again that
        could not be evicted, and those that would go with it wait for how that ends."""
        refused = self._refused_like(decision)
        waits = is_again and refused is self._unevicted and not self._unevicted.has_turn_again(decision.key)
        return waits or (refused is not None and refused.rests(decision.key))

    def _refused_like(self, decision: Decision) -> RefusedWrites | None:
        """The slices about which such a decision was refused."""
        match decision:
            case Admit():
                return self._unadmitted
            case Evict() | Shrink():
                return self._unevicted
            case Wait() | Grow():
                return None

    def _decide_again(self, key: SliceKey) -> None:
        self._dirty.add([self._tree_of(key)])

    def _tree_of(self, key: SliceKey) -> str:
        slice = self._store.slices.get(key)
        return self._store.quotas.tree_of(slice.local_queue) if slice is not None else NOWHERE

    def _decide_trees(self, trees: Sequence[str] | None) -> list[Decision]:
        """The decisions about some trees. Where they raise, each tree is decided alone, and those that raise are set
        aside: they are decided again with their next change, and after a while."""
        times = {
            "preemption_cycles_since": time_text(now() - RING),
            "growth_since": time_text(now() - timedelta(seconds=self._store.settings.growth_window_s)),
            "now": now_text(),
        }
        refused, unevictable = self._unadmitted.keys, self._unevicted.keys
        if self._gives_idle:
            self._gives_idle = False
            times["idle_since"] = time_text(now() - timedelta(seconds=self._idle_growth_s))
        try:
            decided = self._decide(catalog.cycle, trees=trees, refused=refused, unevictable=unevictable, **times)
        except DecisionError as error:
            _log.error("admission.undecided", trees=trees, error=str(error), exc_info=error)
        else:
            self.set_aside.difference_update([*self.set_aside] if trees is None else trees)
            return decided
        decided = []
        for tree in sorted({*self._store.quotas.trees.values(), NOWHERE}) if trees is None else trees:
            try:
                decided += self._decide(catalog.cycle, trees=[tree], refused=refused, unevictable=unevictable, **times)
                self.set_aside.discard(tree)
            except DecisionError as error:
                _log.error("tree.set_aside", tree=tree, error=str(error))
                self.set_aside.add(tree)
                self._dirty.add_after((tree,), _ASIDE_S)
        return decided

    def _job(self, decision: Decision) -> JobRef | None:
        """The job that a decision is about."""
        return job_of(self._store, decision.key)

    def _workload(self, decision: Decision) -> Manifest | None:
        namespace, _, name = decision.key.partition("/")
        return self._store.workloads.get(namespace, name)

    async def _write(self, decision: Decision, version: str) -> SlicebusError | None:
        """Write a decision that was made from this resourceVersion. The error is that for which it is tried again."""
        ref = self._job(decision)
        turn = self._locks.of_within(ref, _TURN_S) if ref is not None else nullcontext(enter_result=False)
        async with turn as in_turn:
            with self._logged(ref.key if ref is not None else ""):
                failure = await self._carry_out(decision, version, in_turn=in_turn)
        if decision.key in self._assumed:
            # It was answered.
            self._assumed.remove(decision.key)
            self._store.uncertain.pop(decision.key, None)
            self._dirty.add([self._tree_of(decision.key)])
        return failure

    async def _carry_out(self, decision: Decision, version: str, *, in_turn: bool) -> SlicebusError | None:
        if self._is_outdated(decision):
            # What makes it so has made its tree dirty.
            return None
        workload = self._workload(decision)
        try:
            commands = self._decide(
                catalog.apply_decision, decision=decision, version=version, in_turn=in_turn, now=now_text()
            )
            if workload is None or not commands:
                return None
            await self._executor.run(commands)
        except ConflictError as error:
            return error
        except WebhookError as error:
            # Nothing was written. It may be admitted as soon as the webhook is back.
            _log.warning("admission.refused", slice=decision.key, error=str(error))
            if self._writes.has_failed(decision.key):
                self._note_refused(decision, rests=False)
                await self._say_refused(decision, error)
            return error
        except TransientError as error:
            _log.warning("admission.unanswered", slice=decision.key, error=str(error))
            self._assumed.discard(decision.key)
            self._note_unanswered(decision, version)
            if self._failures.has_lasted(decision.key, error, now_s=asyncio.get_running_loop().time()):
                await self._say_refused(decision, error)
            return error
        except PermanentError as error:
            # One object that the server refuses must not end the admission of all others, nor hold them up.
            _log.error("admission.refused", slice=decision.key, error=str(error))
            self._note_refused(decision, rests=True)
            await self._say_refused(decision, error)
            self._dirty.add_after((self._tree_of(decision.key),), _REFUSED_S)
            return None
        except DecisionError as error:
            _log.error("admission.failed", slice=decision.key, error=str(error), exc_info=error)
            return None
        self._failures.forget(decision.key)
        if (refused := self._refused_like(decision)) is not None:
            refused.forget(decision.key)
        slice = self._store.slices.get(decision.key)
        if isinstance(decision, Admit) and slice is not None and slice.admission is not None:
            _log.info("slice.admitted", slice=decision.key, cluster=decision.cluster)
            if (ref := owner_ref(workload)) is not None:
                self._admitted(ref)
        elif isinstance(decision, Evict):
            _log.info("slice.evicted", slice=decision.key, reason=decision.reason)
        return None

    def _assume(self, decision: Decision, version: str) -> None:
        """Count a slice as admitted while that write takes long."""
        if self._note_unanswered(decision, version):
            _log.warning("admission.takes_long", slice=decision.key)
            self._assumed.add(decision.key)

    def _note_unanswered(self, decision: Decision, version: str) -> bool:
        """Count a slice as admitted from here on, where its write may have happened. False where it counts already."""
        noted, workload = self._store.uncertain.get(decision.key), self._workload(decision)
        if not isinstance(decision, Admit) or (noted is not None and noted.resource_version == version):
            return False
        if workload is None or admission_writes.was_elsewhere(workload, decision):
            return False
        self._store.uncertain[decision.key] = Uncertain(decision, version)
        return True

    def _note_refused(self, decision: Decision, *, rests: bool) -> None:
        """Keep from nobody what an admission that was not written would have, or what such an eviction would free."""
        refused = self._refused_like(decision)
        if refused is not None and refused.note(decision.key, rests=rests):
            self._decide_again(decision.key)

    async def _say_refused(self, decision: Decision, error: SlicebusError) -> None:
        """Say on the job that the API server refuses what was decided about it."""
        workload = self._workload(decision)
        ref = owner_ref(workload) if workload is not None else None
        job = self._store.view(ref).job if ref is not None else None
        regarding = job or workload
        if regarding is not None:
            await self._executor.run([Emit(regarding=regarding, reason=_REFUSED, note=str(error), warning=True)])

    def _is_outdated(self, decision: Decision) -> bool:
        """Whether somebody has edited the quota or the cluster since the cycle was decided."""
        match decision:
            case Admit(admission=admission, cluster=cluster):
                return self._dirty.is_edited(admission.cluster_queue, cluster)
            case Evict(key=key) | Shrink(key=key) | Grow(key=key):
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
