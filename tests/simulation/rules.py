"""The design's rules, checked on every change of every API server, before anybody can act on it."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import orjson

from simulation import budget_rules, cycle_rules, idle_quota_rules
from simulation.activation_rules import ActivationRules
from simulation.budget_rules import BudgetRules
from simulation.definition_rules import DefinitionRules
from simulation.elastic import check_note, check_ring
from simulation.end_rules import EndRules, has_outlived
from simulation.forecast_rules import ForecastRules
from simulation.gang_rules import GROUP_KEY, GangRules
from simulation.idle_quota import GrowthRules
from simulation.impostors import check_name, check_other
from simulation.indexed import IndexRules
from simulation.notices import check_kept
from simulation.order_rules import OrderRules
from simulation.quota_rules import QuotaRules
from simulation.room_rules import RoomRules
from simulation.shard_rules import check_shard
from simulation.time_limits import TimeRules
from simulation.violations import Violation
from slicebus.agent.state import annotations
from slicebus.bus.dead_letters.headers import sender
from slicebus.kube.resources import (
    CLUSTERQUEUES,
    COHORTS,
    CRDS,
    JOB_RESOURCES,
    NAMESPACES,
    PODS,
    WORKERCLUSTERS,
    WORKLOADS,
)
from slicebus.manager.state.outbox import Dispatch
from slicebus.proto.envelope import WireMessage
from slicebus.proto.messages import Delete, Heartbeat, Status, Suspend, WorkloadSpec
from slicebus.sandbox.apiserver.api import Api
from slicebus.sandbox.apiserver.store import HistoryEntry
from slicebus.slices.admission.cycle import Decision
from slicebus.slices.admission.snapshot import Snapshot
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.kueue import Condition, FinishedReason
from slicebus.slices.jobs import KINDS
from slicebus.slices.workload.ungate import is_gated, pod_set_of
from slicebus.slices.workload.workload import Slice, SliceKey
from support.lines import one_by_one

Manifest = dict[str, Any]
_OVER = ("Succeeded", "Failed")
_MANAGER_QUEUES = ("slicebus.manager.", "slicebus.cluster.")
"""Where the manager looks at the sender of every message."""
_ORIGIN = api_names.MANAGER_UID_ANNOTATION
OWNED_BY_USER = "simulation/owned-by-user"
"""The label of what a user has made on a worker."""
_QUOTAS = {(resource.group, resource.plural): resource for resource in (CLUSTERQUEUES, COHORTS)}
_EVERY_NTH_IN_LINES = 9
"""So many cycles are decided in lines and one by one, of which a run has hundreds."""
_JOB_KINDS = {(resource.group, resource.plural) for resource in JOB_RESOURCES.values()}


class Rules:
    """Follows every change and raises Violation for one that breaks a rule."""

    def __init__(self, apis: Mapping[str, Api], *, others: Collection[str], shards: int) -> None:
        """`others` are clusters that have no part in the fleet, whatever their agents are called."""
        self._apis = {name: api for name, api in apis.items() if name not in others}
        self._unseen: deque[tuple[str, HistoryEntry]] = deque()
        for name, api in apis.items():
            api.store.subscribe(lambda change, name=name: self._unseen.append((name, change)))
        self._slices: dict[SliceKey, Slice] = {}
        self._admitted: dict[str, dict[str, int]] = {}
        """The most pods of each pod set that a slice was ever admitted with, by its name."""
        self.quota = QuotaRules(self._slices)
        self.activations = ActivationRules()
        self._room = RoomRules(self._slices, is_shared=shards > 1)
        self._growth = GrowthRules()
        self._budgets = BudgetRules(self._slices)
        self._times = TimeRules()
        self.gangs = GangRules()
        self._ends = EndRules(self._apis)
        self._definitions = DefinitionRules(self._ends)
        self._indexes = IndexRules()
        self._orders = OrderRules(self._apis["manager"])
        self.forecasts = ForecastRules()
        self._cycles = 0
        self._baselines: dict[str, list[dict[str, int]]] = {}
        """The sizes that the spec of each job of the manager has had, by UID."""
        self._edited: dict[str, list[dict[str, int]]] = {}
        """Those of them that users have set after the job was made."""
        self._deleted_by_users: set[str] = set()
        """UIDs of objects, and of the manager's jobs whose copies these were."""
        self._ordered: set[tuple[str, str]] = set()
        """Clusters, and the manager's jobs whose delete was published to them."""
        self._fences: dict[tuple[str, str], int] = {}
        """The newest delete of a manager's job that a cluster's agent has acknowledged, by its version."""
        self._suspended: dict[tuple[str, str], int] = {}
        """The newest suspension of a manager's job that was published to a cluster, by its version."""
        self._made_late: set[str] = set()
        """UIDs of copies that an agent made by an older order, since it had been stopped right before."""
        self._going: set[tuple[str, str]] = set()
        """Clusters, and their namespaces that users have deleted: with these goes what is in them."""
        self._was_held = False
        self._by = ""
        self._late: set[SliceKey] = set()
        """Slices that a manager made who had been stopped between its decision and its request."""
        self._late_copies: set[str] = set()
        """UIDs of the jobs that an agent made in the same way."""
        self.clocks: dict[str, Callable[[], datetime]] = {}
        """Those of the roles' processes, by their names."""
        self.checked = 0
        self.violation: Violation | None = None
        """The first one: whoever made the change may be dying of something else."""
        self.was_broken = asyncio.Event()

    def look(self, *, was_held: bool = False, by: str = "") -> None:
        """Check everything that has changed since the last time. `was_held`: by one who had been stopped meanwhile.
        `by` is the process that changed it, where it is one of the roles."""
        self._was_held, self._by = was_held, by
        while self._unseen:
            self.checked += 1
            with self._noting():
                self._check(*self._unseen.popleft())

    def settle(self) -> None:
        """Until now nothing has gone wrong: everybody has seen everything."""
        self._room.settle()

    def lost_by_share(self, *, since_s: float) -> list[str]:
        """The UIDs of the jobs that were preempted by fair sharing since then, the last one first."""
        lost = self.quota.lost_by_share
        return sorted((uid for uid in lost if lost[uid] >= since_s), key=lambda uid: (-lost[uid], uid))

    def user_deletes(self, manifest: Manifest) -> None:
        """A user is about to delete an object. A job whose copy this is may go after it."""
        self._deleted_by_users.add(manifest["metadata"]["uid"])
        if (origin := annotations.annotation(manifest, _ORIGIN)) is not None:
            self._deleted_by_users.add(origin)
            self._ends.user_deletes_copy(manifest)
        else:
            self._ends.user_deletes(manifest)

    def check_ends(self) -> None:
        """The faults have ended: no end is lost, and nothing is left of what users have deleted."""
        self._ends.check()
        objects = self._apis["manager"].store.objects.items()
        self._indexes.check(found for key, found in objects if key[:2] in _JOB_KINDS)

    def published(self, message: WireMessage) -> None:
        """The broker is about to have a message."""
        if message.type not in (WorkloadSpec.type, Delete.type, Suspend.type):
            return
        order, cluster = orjson.loads(message.body), message.routing_key.partition(".")[0]
        with self._noting():
            self._orders.see(message.type, cluster, order)
        if message.type == WorkloadSpec.type:
            return
        key = cluster, order["job"]["uid"]
        if message.type == Suspend.type:
            self._suspended[key] = max(order["spec_version"], self._suspended.get(key, 0))
            return
        self._ordered.add(key)
        if key[1] not in self._deleted_by_users:
            with self._noting():
                self._definitions.check_order(order)

    def decided(self, snapshot: Snapshot, decided: list[Decision]) -> None:
        """A manager has decided who gets and loses quota."""
        with self._noting():
            whole = one_by_one(snapshot)
            cycle_rules.check(whole, decided)
            idle_quota_rules.check(whole, decided)
            budget_rules.check(whole, decided)
            self.forecasts.check(snapshot, decided)
            self._cycles += 1
            if self._cycles % _EVERY_NTH_IN_LINES == 0:
                cycle_rules.check_lines(whole)

    def acknowledged(self, queue: str, message: WireMessage) -> None:
        """Whoever took a message says that its effect is durable."""
        cluster = message.routing_key.partition(".")[0]
        with self._noting():
            # Of two forged statuses or heartbeats the older is coalesced, and only the newer is handled.
            looked_at = queue.startswith(_MANAGER_QUEUES) and message.type not in (Status.type, Heartbeat.type)
            if looked_at and (by := sender(message, trusted="manager")) != cluster:
                raise Violation(f"rule 10: the manager took a {message.type} of {cluster} from {by}")
        if message.type == Delete.type:
            body = orjson.loads(message.body)
            key = cluster, body["job"]["uid"]
            self._fences[key] = max(body["spec_version"], self._fences.get(key, 0))

    @contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except Violation as violation:
            self.violation = self.violation or violation
            self.was_broken.set()
            raise

    def _check(self, cluster: str, change: HistoryEntry) -> None:
        kind = change.key[:2]
        if kind == (NAMESPACES.group, NAMESPACES.plural):
            self._see_namespace(cluster, change)
        elif kind in _JOB_KINDS and _goes(change):
            self._see_going(cluster, change)
        if cluster not in self._apis:
            check_other(cluster, change)
        elif kind == (CRDS.group, CRDS.plural):
            self._definitions.see_definition(cluster, change, goes=_goes(change))
        elif cluster == "manager":
            if kind == (WORKLOADS.group, WORKLOADS.plural):
                self._check_slice(change)
            elif kind in _QUOTAS:
                self.quota.see_quota(_QUOTAS[kind], change)
                if kind == (CLUSTERQUEUES.group, CLUSTERQUEUES.plural):
                    self._budgets.see_queue(change, None if self._was_held else self.clocks.get(self._by))
            elif kind == (WORKERCLUSTERS.group, WORKERCLUSTERS.plural):
                self._room.see_cluster(change)
                self.quota.see_cluster(change)
                _check_epoch(change)
                check_name(change)
            elif kind in _JOB_KINDS:
                self._check_manager_job(change)
        elif kind == (PODS.group, PODS.plural):
            job = self._job_of(cluster, change.object)
            self.quota.see_pod(cluster, change, annotations.annotation(job, _ORIGIN) if job else None)
            self._check_pod(cluster, change, job)
            self.gangs.see_pod(cluster, change, is_late=self._was_held)
        elif kind == GROUP_KEY:
            self.gangs.see_group(cluster, change)
        elif kind == (WORKLOADS.group, WORKLOADS.plural):
            _check_version(cluster, change)
        elif kind in _JOB_KINDS:
            self._check_worker_job(cluster, change)
            if self._by in self.clocks:
                self._check_notice(cluster, change)

    def _see_namespace(self, cluster: str, change: HistoryEntry) -> None:
        where = cluster, change.key[3]
        if _goes(change):
            self._going.add(where)
            self._ends.namespace_goes(cluster)
        elif change.type == "ADDED":
            self._going.discard(where)

    def _see_going(self, cluster: str, change: HistoryEntry) -> None:
        if (cluster, change.key[2]) in self._going:
            self.user_deletes(change.object)
            self._ends.goes_with_namespace(change.object)
        else:
            self._definitions.see_going(cluster, change, self._newest_dispatch(change.object["metadata"]["uid"]))

    def _check_slice(self, change: HistoryEntry) -> None:
        key = SliceKey(f"{change.key[2]}/{change.key[3]}")
        old = self._slices.pop(key, None)
        if change.type == "DELETED":
            self._budgets.see_slice()
            if old is not None:
                self.quota.check_running(old.job_uid)
            return
        slice = self._slices[key] = Slice.from_manifest(change.object)
        self._budgets.see_slice()
        if old is None and self._was_held:
            self._late.add(key)
        if slice.admission is not None:
            most = self._admitted.setdefault(slice.name, {})
            for name, count in slice.admission.counts.items():
                most[name] = max(most.get(name, 0), count)
        self._check_chain(slice, old)
        left = self._left_by(slice.job_uid)
        self.quota.leave(slice.job_uid, left)
        self._ends.see_slice(slice, left=left)
        is_suspended = annotations.annotation(change.object, api_names.SUSPENDED_ANNOTATION) is not None
        self.activations.see_slice(slice, old, is_suspended=is_suspended)
        self.quota.see_slice(slice, old)
        self._times.see_slice(slice, old, change.object)
        check_note(slice, old)
        check_ring(slice, old, self._slices.values())
        self._growth.see_slice(slice, old)
        self._room.see_slice(slice, old)
        check_shard(self._apis["manager"], slice, old, by=self._by, is_late=self._was_held)
        if old is not None and old.evicted and old.admission is None and slice.admission is not None:
            self._check_return(slice)
        if old is not None and old.admission is not None and slice.admission is None:
            self._check_eviction(slice)

    def _check_chain(self, slice: Slice, old: Slice | None) -> None:
        """Rule 2: at most one admitted and one pending, and the old one ends only when the new one has its quota.

        One more may pend for a moment: no API server refuses a create that was under way when its sender was stopped,
        and each size has a name of its own. Like Kueue the leader then ends all but one.
        """
        chain = [other for other in self._slices.values() if other.chain_id == slice.chain_id and not other.finished]
        waiting = [other for other in chain if other.admission is None and not other.deleting]
        pending = [other for other in waiting if other.key not in self._late]
        if len(pending) > 1:
            raise Violation(f"rule 2: {slice.chain} has two pending slices: {_names(pending)}")
        holding = [other for other in chain if other.admission is not None]
        if len(holding) > 2 or (len(holding) == 2 and not _replace_each_other(*holding)):
            raise Violation(f"rule 2: {slice.chain} has several admitted slices: {_names(holding)}")
        ended_now = slice.finished and old is not None and not old.finished
        reason = slice.conditions.get(Condition.FINISHED, {}).get("reason")
        if ended_now and reason == FinishedReason.SLICE_REPLACED and slice.admission is not None:
            successors = [other for other in chain if other.replaces == slice.key and other.admission is not None]
            if not successors:
                raise Violation(f"rule 2: {slice.name} was replaced before its successor had its quota")

    def _check_eviction(self, evicted: Slice) -> None:
        """Rule 1: an evicted slice gives its quota back when no pod of its job runs any more."""
        for cluster in sorted(self._apis.keys() - self._left_by(evicted.job_uid)):
            for pod in self._pods(cluster):
                runs = not is_gated(pod) and pod.get("status", {}).get("phase") not in _OVER
                job = self._job_of(cluster, pod) if runs else None
                if job is not None and annotations.annotation(job, _ORIGIN) == evicted.job_uid:
                    name = pod["metadata"]["name"]
                    raise Violation(f"rule 1: {evicted.name} gave its quota back, and {name} runs on {cluster}")

    def _check_return(self, admitted: Slice) -> None:
        """Rule 11: an evicted job comes back at a size that its spec has had."""
        if admitted.counts not in self._baselines.get(admitted.job_uid, []):
            raise Violation(f"rule 11: {admitted.name} comes back with {admitted.counts}, and no spec had said so")

    def _check_pod(self, cluster: str, change: HistoryEntry, job: Manifest | None) -> None:
        """Rule 1: ungated pods never pass the granted counts, at the moment when a gate goes."""
        if change.old is None or not is_gated(change.old) or is_gated(change.object) or change.type == "DELETED":
            return
        if job is None:
            raise Violation(f"rule 1: {cluster} ungated {change.key[3]}, whose job is gone")
        if cluster in self._left_by(annotations.annotation(job, _ORIGIN) or ""):
            raise Violation(f"nothing runs twice: {cluster} starts {change.key[3]}, whose job went elsewhere")
        self._check_fence(cluster, job)
        pod_set = pod_set_of(change.object)
        started = sum(
            1
            for pod in self._pods(cluster)
            if pod_set_of(pod) == pod_set
            and not is_gated(pod)
            and pod.get("status", {}).get("phase") not in _OVER
            and self._job_of(cluster, pod) is job
        )
        granted = annotations.granted(job).get(pod_set, 0)
        if started > granted:
            raise Violation(f"rule 1: {cluster} runs {started} pods of {change.key[3]}'s set, {granted} are granted")

    def _check_worker_job(self, cluster: str, change: HistoryEntry) -> None:
        job = change.object
        if not annotations.is_ours(job):
            self._check_stranger(cluster, change)
            return
        self._check_delete(cluster, change)
        self._indexes.see_copy(change, by_role=self._by in self.clocks)
        self._ends.see_copy(cluster, change, left=self._left_by(annotations.annotation(job, _ORIGIN) or ""))
        if change.type == "DELETED":
            return
        _check_version(cluster, change)
        granted, slice = annotations.granted(job), annotations.slice_of(job)
        before = annotations.granted(change.old) if change.old else {}
        for name, count in granted.items():
            if count > before.get(name, 0) and count > self._admitted.get(slice, {}).get(name, 0):
                raise Violation(f"rule 1: {cluster} grants {count} {name} to {slice}, which was never admitted so")
        if change.type == "ADDED":
            self._check_only_copy(cluster, job)

    def _check_notice(self, cluster: str, change: HistoryEntry) -> None:
        job = change.old if annotations.is_ours(change.object) else self._job_of(cluster, change.object)
        if job is None:
            return
        uid, origin = job["metadata"]["uid"], annotations.annotation(job, _ORIGIN) or ""
        notes = [slice.reclaimed for slice in self._slices.values() if slice.job_uid == origin]
        check_kept(
            change,
            job,
            now=self.clocks[self._by](),
            running=lambda: self._running(cluster, uid),
            edited=self._edited.get(origin, ()),
            words={note.id for note in notes if note is not None},
        )

    def _running(self, cluster: str, uid: str) -> Counter[str]:
        """The running pods of a job by pod set."""
        return Counter(
            pod_set_of(pod)
            for pod in self._pods(cluster)
            if not is_gated(pod)
            and pod.get("status", {}).get("phase") not in _OVER
            and (job := self._job_of(cluster, pod)) is not None
            and job["metadata"]["uid"] == uid
        )

    def _check_fence(self, cluster: str, job: Manifest) -> None:
        """Rule 3: what was deleted on the manager's order does not run again for an older message.

        It may come back for a moment: no API server refuses a create that was under way when its sender was stopped.
        """
        uid = annotations.annotation(job, _ORIGIN) or ""
        fence = self._fences.get((cluster, uid), 0)
        if _version(job) <= fence and "deletionTimestamp" not in job["metadata"]:
            name = job["metadata"]["name"]
            raise Violation(f"rule 3: {name} runs on {cluster} with version {_version(job)}, deleted at {fence}")

    def _check_delete(self, cluster: str, change: HistoryEntry) -> None:
        """Rules 6 and 8: a job goes because a user deleted it or the manager ordered it, and for no other reason.

        The agent removes a copy that comes after a suspension, if it had none when it was to suspend it. It may have
        been stopped before it could acknowledge that.
        """
        metadata, origin = change.object["metadata"], annotations.annotation(change.object, _ORIGIN) or ""
        if change.type == "ADDED" and _version(change.object) < self._suspended.get((cluster, origin), 0):
            self._made_late.add(metadata["uid"])
        if not _goes(change) or self._definitions.explains(change.object) or metadata["uid"] in self._made_late:
            return
        if metadata["uid"] not in self._deleted_by_users and (cluster, origin) not in self._ordered:
            raise Violation(f"rule 6: {metadata['name']} was deleted on {cluster}, and nobody had ordered it")

    def _check_manager_job(self, change: HistoryEntry) -> None:
        """Rule 6, on the manager: only users delete jobs, there or where they run, or by a time to live."""
        metadata, job = change.object["metadata"], change.object
        baseline, known = KINDS[job["kind"]].counts(job, job), self._baselines.setdefault(metadata["uid"], [])
        if baseline not in known:
            known.append(baseline)
        former = change.old if self._by not in self.clocks else None
        if former is not None and KINDS[job["kind"]].counts(former, former) != baseline:
            self._edited.setdefault(metadata["uid"], []).append(baseline)
        if _goes(change) and has_outlived(job):
            self.user_deletes(job)
        self._ends.see_job(change)
        self._indexes.see_job(change)
        is_asked_for = metadata["uid"] in self._deleted_by_users or self._definitions.explains(job)
        if _goes(change) and not is_asked_for:
            raise Violation(f"rule 6: {metadata['name']} was deleted on the manager, and no user had done it")

    def _check_stranger(self, cluster: str, change: HistoryEntry) -> None:
        """An agent touches only what it has made: of a user's own job nothing changes but its status."""
        if change.old is None or (change.object["metadata"].get("labels") or {}).get(OWNED_BY_USER) is None:
            return
        name = change.object["metadata"]["name"]
        if _goes(change) and change.object["metadata"]["uid"] not in self._deleted_by_users:
            raise Violation(f"only its own: {name}, a user's own, was deleted on {cluster}")
        for part in ("labels", "annotations"):
            if change.object["metadata"].get(part) != change.old["metadata"].get(part):
                raise Violation(f"only its own: the {part} of {name}, a user's own, were changed on {cluster}")
        if change.object["spec"] != change.old["spec"]:
            raise Violation(f"only its own: {name}, a user's own, was changed on {cluster}")

    def _left_by(self, job_uid: str) -> Collection[str]:
        """The clusters that were given up with a copy of a job: nothing of it may start there any more."""
        newest = self._newest_dispatch(job_uid)
        return newest.left_copies if newest else ()

    def _newest_dispatch(self, job_uid: str) -> Dispatch | None:
        """The newest dispatch that the Workloads of one of the manager's jobs say."""
        records = (
            Dispatch.from_manifest(workload)
            for key, workload in self._apis["manager"].store.objects.items()
            if key[:2] == (WORKLOADS.group, WORKLOADS.plural)
            and workload["metadata"].get("labels", {}).get(kueue.JOB_UID_LABEL) == job_uid
        )
        return max((record for record in records if record), key=lambda record: record.version, default=None)

    def _check_only_copy(self, cluster: str, job: Manifest) -> None:
        """Nothing runs twice: a job of the manager is on one cluster at a time, but where one was given up.

        No API server refuses a create that was under way when its sender was stopped, and that comes after the job has
        gone elsewhere. The agent of then removes it before a pod starts.
        """
        if self._was_held:
            self._late_copies.add(job["metadata"]["uid"])
        if job["metadata"]["uid"] in self._late_copies:
            return
        uid = annotations.annotation(job, _ORIGIN) or ""
        left = self._left_by(uid)
        for name, api in self._apis.items():
            # An order of before may make it on a cluster that was given up; its pods stay behind the gate.
            if name in left or cluster in left:
                continue
            for key, other in api.store.objects.items():
                if name in ("manager", cluster) or key[:2] not in _JOB_KINDS or not annotations.is_ours(other):
                    continue
                if annotations.annotation(other, _ORIGIN) == uid and other["metadata"]["uid"] not in self._late_copies:
                    raise Violation(f"nothing runs twice: {job['metadata']['name']} is on {name} and on {cluster}")

    def _pods(self, cluster: str) -> list[Manifest]:
        objects = self._apis[cluster].store.objects
        return [manifest for key, manifest in objects.items() if key[:2] == (PODS.group, PODS.plural)]

    def _job_of(self, cluster: str, pod: Manifest) -> Manifest | None:
        """The job of ours that a pod belongs to, through as many owners as there are."""
        store = self._apis[cluster].store
        found: Manifest | None = pod
        while found is not None:
            owners = found["metadata"].get("ownerReferences") or ()
            key = next((store.key_of_uid(owner["uid"]) for owner in owners if owner.get("controller")), None)
            found = store.objects.get(key) if key else None
            if found is not None and annotations.is_ours(found):
                return found
        return None


def _goes(change: HistoryEntry) -> bool:
    """Whether this change is the beginning of an object's end."""
    was_going = change.old is not None and "deletionTimestamp" in change.old["metadata"]
    return not was_going and (change.type == "DELETED" or "deletionTimestamp" in change.object["metadata"])


def _version(manifest: Manifest) -> int:
    return int(annotations.annotation(manifest, api_names.SPEC_VERSION_ANNOTATION) or 0)


def _check_version(cluster: str, change: HistoryEntry) -> None:
    """Rule 3: what a worker holds of a job never goes back to an older version."""
    if change.old is None or change.type == "DELETED":
        return
    before, after = _version(change.old), _version(change.object)
    if after < before and annotations.annotation(change.old, _ORIGIN) == annotations.annotation(change.object, _ORIGIN):
        raise Violation(f"rule 3: {change.key[3]} on {cluster} goes back from version {before} to {after}")


def _check_epoch(change: HistoryEntry) -> None:
    """Rule 9: once a newer epoch has spoken, no older one is listened to."""
    before, after = ((one or {}).get("status", {}).get("epoch", 0) for one in (change.old, change.object))
    if after < before and change.type != "DELETED":
        raise Violation(f"rule 9: {change.key[3]} goes back from epoch {before} to {after}")


def _replace_each_other(one: Slice, other: Slice) -> bool:
    return one.replaces == other.key or other.replaces == one.key


def _names(slices: list[Slice]) -> str:
    return ", ".join(slice.name for slice in slices)
