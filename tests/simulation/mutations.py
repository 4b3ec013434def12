"""What each safeguard is good for: switch one off, and the simulation has to notice."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

import msgspec

from simulation.faults import FaultyBus
from simulation.jobs import SECOND_GROUP
from slicebus.agent import app
from slicebus.agent.act import inventory
from slicebus.agent.act.fence import Fence
from slicebus.agent.decide import catalog
from slicebus.agent.decide.job import earlier_words, gangs, reconcile
from slicebus.agent.decide.order import notices, triage
from slicebus.agent.decide.pods import next_pods
from slicebus.agent.state import annotations
from slicebus.agent.state.departures import Departure
from slicebus.agent.state.views import WorkerJobReading, WorkerView
from slicebus.cli.difference import edits
from slicebus.kube.informers import Informers
from slicebus.manager.decide.admission import admission_writes, snapshots
from slicebus.manager.decide.cluster.delete_breaker import DeleteBreaker
from slicebus.manager.decide.forecast import verdict
from slicebus.manager.decide.job import charges, execution_time, reclaims, withdrawals
from slicebus.manager.decide.order import record_copies
from slicebus.manager.state import budgets, store
from slicebus.manager.state.annotations import SizeRequest
from slicebus.manager.state.outbox import Outbox
from slicebus.manager.state.shards import Shards, belongs_to
from slicebus.manager.state.views import JobView
from slicebus.manager.state.worker_clusters import Sender
from slicebus.slices.admission import cycle, idle_quota, snapshot
from slicebus.slices.admission.budget_limit import SpentBudgets
from slicebus.slices.admission.decisions import Decision
from slicebus.slices.admission.lines import Behind
from slicebus.slices.admission.preemption_cycles import PreemptionCycles
from slicebus.slices.admission.snapshot import IdleGrowth, Snapshot
from slicebus.slices.admission.trials import Trial
from slicebus.slices.admission.usage import QuotaUse
from slicebus.slices.admission.waiting_queue import WaitingQueue
from slicebus.slices.jobs import copies
from slicebus.slices.jobs.batch import BatchJob
from slicebus.slices.placement.fleet import Fleet
from slicebus.slices.workload.elasticity import Elasticity
from slicebus.slices.workload.ungate import PodSets, to_ungate
from slicebus.slices.workload.workload import Slice

Manifest = dict[str, Any]

_POD_SETS = ("main", "head", "small-group", SECOND_GROUP, "submitter")


def _everything_may_start(pod_sets: PodSets, granted: Mapping[str, int], **how: Any) -> list[Manifest]:
    return to_ungate(pod_sets, dict.fromkeys(_POD_SETS, 1000), **how)


def _has_ended(_store: Any, _message: Any) -> bool:
    """As the agent's function of this name, without looking at the tombstones."""
    return False


def _removes_tombstoned(_store: Any, _key: Any, _view: Any) -> list[Any]:
    """As the agent's function of this name, without looking at the tombstones."""
    return []


@contextmanager
def _without_tombstones() -> Iterator[None]:
    with (
        patch.object(triage, "_has_ended", _has_ended),
        patch.object(catalog, "_removes_tombstoned", _removes_tombstoned),
    ):
        yield


@contextmanager
def _by_own_records() -> Iterator[None]:
    """A Workload that stays knows only the versions of its own orders."""
    with (
        patch.object(record_copies, "_outdated", lambda *_: []),
        patch.object(Outbox, "seen", property(lambda outbox: outbox.record.version)),
    ):
        yield


def _request_of_the_job(view: JobView) -> SizeRequest | None:
    """As the view's property, where it believes what a tenant has written onto the job."""
    left = view.reading.left_request if view.reading is not None else None
    kept = view.requests[view.keeper.name] if view.keeper is not None else None
    return left if left is not None and left.asks_for_size else kept


async def _one_uid_for_all(_client: Any) -> str:
    """As the agent's function that reads it, of clusters that cannot be told apart."""
    return "one"


def _as_deleted_by_a_user(job: WorkerJobReading, _final: Any) -> Departure:
    """As the agent's function of this name, without looking at how the job was seen last."""
    return Departure(job.manifest["metadata"]["uid"], seen=True)


async def _accept_absence(_informers: Any, _resource: Any, _owners: Any, _leaving: Any) -> None:
    """As the informers' method of this name, without looking whether the definition still stands."""


_sender_of = Sender.from_manifest


def _sender_without_epoch(cluster: Manifest) -> Sender:
    return msgspec.structs.replace(_sender_of(cluster), epoch=0)


def _cycle_without_clusters(snapshot: Snapshot) -> list[Decision]:
    """As the function of a forecast, without looking at the fleet."""
    return cycle.cycle(msgspec.structs.replace(snapshot, clusters=()))


def _trees_by_hash(shards: Shards, only: Any) -> Any:
    """As the method of this name, without looking whose the queues are."""
    if shards.is_alone:
        return only
    own = {root for root in shards._quotas.trees.values() if belongs_to(root, shards.own.count) == shards.own.index}
    return sorted(own if only is None else own.intersection(only))


_decided = cycle._Cycle.decide


def _growth_as_any_claim(one: cycle._Cycle, pending: Iterable[Slice], behind: Iterable[Behind]) -> Iterator[Any]:
    """As the cycle's method of this name, where nobody asks for more than somebody did."""
    return _decided(
        one,
        [msgspec.structs.replace(slice, reclaimed=None) if slice.grows_unasked else slice for slice in pending],
        behind,
    )


_floor = Elasticity.floor


def _floor_without_gang(said: Elasticity, pod_set: str, *, step: int = 1) -> int | None:
    return _floor(msgspec.structs.replace(said, gang={}), pod_set, step=step)


MUTATIONS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "versions": lambda: patch.object(annotations, "spec_version", lambda _: 0),
    "epoch fence": lambda: patch.object(store.Sender, "from_manifest", _sender_without_epoch),
    "tombstones": _without_tombstones,
    "confirms": lambda: patch.object(FaultyBus, "confirms", False),
    "delta charging": lambda: patch.object(QuotaUse, "own", lambda *_: {}),
    "identity": lambda: patch.object(app, "cluster_uid", _one_uid_for_all),
    "fence": lambda: patch.object(Fence, "closed", False),
    "unanswered requests": lambda: patch.object(inventory, "unanswered", lambda _: None),
    "claims": lambda: patch.object(reconcile, "take_over_pods", lambda *_, **__: []),
    "last pod": lambda: patch.object(WorkerView, "running", frozenset()),
    "room": lambda: patch.object(Fleet, "short", lambda *_, **__: {}),
    "stale decisions": lambda: patch.object(admission_writes, "ensure_unchanged", lambda *_: None),
    "lifetimes": lambda: patch.object(copies, "_LIFETIME_FIELDS", ()),
    "ends": lambda: patch.object(Departure, "of", _as_deleted_by_a_user),
    "orphans": lambda: patch.object(store, "_former_owner", lambda _: None),
    "definitions": lambda: patch.object(Informers, "_check_with", _accept_absence),
    "release": lambda: patch.object(DeleteBreaker, "release", lambda *_: []),
    "ungate cap": lambda: patch.object(next_pods, "to_ungate", _everything_may_start),
    "shards": lambda: patch.object(Shards, "trees", _trees_by_hash),
    "gangs": lambda: patch.object(gangs, "_are_there", lambda *_: True),
    "tenants": lambda: patch.object(JobView, "requested", property(_request_of_the_job)),
    "observed pods": lambda: patch.object(charges, "take", lambda *_, **__: []),
    "least sizes": lambda: patch.object(Elasticity, "floor", lambda *_, **__: 0),
    "gang minimums": lambda: patch.object(Elasticity, "floor", _floor_without_gang),
    "trimming": lambda: patch.object(Trial, "trim", lambda *_: None),
    "lines": lambda: patch.object(WaitingQueue, "resume", lambda *_, **__: False),
    "sparing": lambda: patch.object(cycle, "enough_of", lambda victims, _: victims),
    "pods that go": lambda: patch.object(reclaims, "with_kept_quota", lambda view: view.desired),
    "completions": lambda: patch.object(BatchJob, "as_ended", lambda _self, job, _reported: job),
    "shares": lambda: patch.object(BatchJob, "end_follows", BatchJob.ends_by_size),
    "notices": lambda: patch.object(notices, "_is_over", lambda *_, **__: True),
    "copied versions": _by_own_records,
    "earlier words": lambda: patch.object(earlier_words, "note", lambda *_: {}),
    "withdrawals": lambda: patch.object(withdrawals, "withdraw_eviction", lambda *_, **__: []),
    "shrink withdrawals": lambda: patch.object(withdrawals, "withdraw", lambda *_: []),
    "spared pods": lambda: patch.object(withdrawals, "spare", lambda _: []),
    "edits": lambda: patch.object(edits, "_STATUS", ""),
    "forecasts": lambda: patch.object(verdict, "cycle", _cycle_without_clusters),
    "rank": lambda: patch.object(Slice, "ranked_since", property(lambda slice: slice.created)),
    "rings": lambda: patch.object(PreemptionCycles, "_shrunk_for", {}),
    "opportunistic pods": lambda: patch.object(cycle, "with_opportunistic", lambda _: []),
    "growth last": lambda: patch.object(cycle._Cycle, "decide", _growth_as_any_claim),
    "growth time": lambda: patch.object(idle_quota, "_changed", lambda _: ""),
    "budgets": lambda: patch.object(SpentBudgets, "refuse", lambda *_: None),
    "drained budgets": lambda: patch.object(SpentBudgets, "why_drained", lambda *_: ""),
    "spending": lambda: patch.object(budgets, "spending_said", lambda _: None),
    "time before an eviction": lambda: patch.object(execution_time, "given_back", lambda *_: {}),
    "time before a resize": lambda: patch.object(execution_time, "said_by", lambda *_: {}),
    "past use": lambda: patch.object(snapshot, "by_usage", lambda slices, _: list(slices)),
    "headroom": lambda: patch.object(snapshots, "IdleGrowth", lambda since, _, **more: IdleGrowth(since, 0.0, **more)),
}
"""Each switches one safeguard off for as long as the context lasts."""
SHARDED = {"shards"}
"""Those that only several shards need."""


@contextmanager
def mutated(name: str | None) -> Iterator[None]:
    """The product without one of its safeguards; as it is without a name."""
    if name is None:
        yield
        return
    with MUTATIONS[name]():
        yield
