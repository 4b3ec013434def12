"""Rule 1: what is admitted, and what runs on all workers together, stays within the quota.

It is held in two parts, which together say it of the whole fleet. An admission takes no queue and no cohort past its
limits, counting a chain once; and of every job at most that runs which its chain is charged for. So what runs passes
the quota only where somebody has lowered that since, and then nothing is admitted that makes it worse.

A pod that is terminating counts: it runs until its node says that it has ended.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from simulation import additions
from simulation.limits import excess, grown
from simulation.turns import Turns
from simulation.versions import Versions
from simulation.violations import Violation
from slicebus.kube.resources import CLUSTERQUEUES, COHORTS, Resource
from slicebus.manager.state.worker_clusters import CONNECTED, is_true
from slicebus.sandbox.apiserver.store import HistoryEntry, Key
from slicebus.slices.admission.preemption import preempting_queue
from slicebus.slices.api.kueue import Condition, PreemptionReason
from slicebus.slices.api.quantities import larger
from slicebus.slices.quota.policies import Preemption, Whom
from slicebus.slices.quota.quota import ClusterQueue, Cohort, Usage, usage_by_chain
from slicebus.slices.workload.ungate import is_gated
from slicebus.slices.workload.workload import Slice, SliceKey
from support.usage import total_by_queue

Manifest = dict[str, Any]
_OVER = ("Succeeded", "Failed")
_TURNS = 20
"""No job has so many others that could preempt it in a run."""
_READ = {CLUSTERQUEUES: ClusterQueue.from_manifest, COHORTS: Cohort.from_manifest}


class QuotaRules:
    """Raises Violation for an admission or a start that breaks the rule."""

    def __init__(self, slices: Mapping[SliceKey, Slice]) -> None:
        self._slices = slices
        """Of the manager, as they are now."""
        self._versions: dict[tuple[str, str], Versions[ClusterQueue | Cohort]] = {}
        self._running: dict[tuple[str, Key], tuple[str, Usage]] = {}
        """The job of each pod that runs, and what it uses."""
        self._left: dict[str, set[str]] = {}
        self._silent: set[str] = set()
        """The clusters that are not connected."""
        """The clusters that each job has left without their answer."""
        self._used: dict[str, Counter[tuple[Any, str]]] = {}
        """What runs of each job on all workers."""
        self.lost_by_share: dict[str, float] = {}
        """By job UID: when it was last preempted by fair sharing."""
        self.has_additions = False
        """Whether pods may request more than their templates."""
        self.freed = 0
        """How often a slice has given quota back."""
        self._turns = Turns()

    def see_quota(self, resource: Resource, change: HistoryEntry) -> None:
        """A ClusterQueue or a Cohort has changed."""
        if change.type == "DELETED":
            return
        said = self._versions.setdefault((resource.kind, change.key[3]), Versions())
        said.say(asyncio.get_running_loop().time(), _READ[resource](change.object))

    def see_slice(self, slice: Slice, old: Slice | None) -> None:
        """A slice has changed: it may have been admitted, or have given quota back."""
        if slice.admission is not None and (old is None or old.admission is None):
            _check_counts(slice, slice.admission.counts)
            self._check_admission(slice, old)
        if slice.observed is not None and not self.has_additions:
            raise Violation(f"charge: {slice.name} is charged for {slice.observed}, and no pod requests more")
        if slice.admission is not None and old is not None and old.admission is not None:
            _check_charge(slice, old)
        if old is not None and old.usage not in ({}, slice.usage):
            self.freed += 1
        if slice.condition(Condition.PREEMPTED) and not (old and old.condition(Condition.PREEMPTED)):
            self._check_preemption(slice)
        self.check_running(slice.job_uid)

    def leave(self, job_uid: str, clusters: Collection[str]) -> None:
        """A job went elsewhere, and took its quota along: what these clusters, which were given up, still run of it
        cannot be stopped from the manager. Nor can what one runs of a job that has ended there."""
        clusters = {*clusters, *self._ended_on_lost(job_uid)}
        self._left[job_uid] = clusters
        for key, (uid, usage) in list(self._running.items()):
            if uid == job_uid and key[0] in clusters:
                del self._running[key]
                self._used[uid].subtract(usage)

    def see_cluster(self, change: HistoryEntry) -> None:
        """A WorkerCluster of the manager has changed."""
        name = change.key[3]
        (self._silent.discard if is_true(change.object, CONNECTED) else self._silent.add)(name)

    def _ended_on_lost(self, job_uid: str) -> Iterator[str]:
        """The clusters that were given up with pods of a job that had ended: it goes nowhere, and its quota is free.
        Its slice may have been evicted before, for another reason. That a cluster is given up is shown later: nothing
        else ends a slice there of which nobody hears."""
        for slice in self._slices.values():
            if slice.job_uid == job_uid and slice.finished and slice.evicted and slice.cluster in self._silent:
                yield slice.cluster

    def see_pod(self, cluster: str, change: HistoryEntry, job_uid: str | None) -> None:
        """A pod of a job, by the job's UID on the manager, has changed."""
        key = cluster, change.key
        if key in self._running:
            # The job may be gone before its pods are.
            job_uid, usage = self._running.pop(key)
            self._used[job_uid].subtract(usage)
        if job_uid is not None and _runs(change) and cluster not in self._left.get(job_uid, ()):
            usage = additions.of_template(change.object)
            self._running[key] = job_uid, usage
            self._used.setdefault(job_uid, Counter()).update(usage)
            self.check_running(job_uid)

    def check_running(self, job_uid: str) -> None:
        """Of a job at most that runs which its chain is charged for."""
        used = self._used.get(job_uid)
        if not used:
            return
        charged = _charged(slice for slice in self._slices.values() if slice.job_uid == job_uid)
        past = {key: value for key, value in used.items() if value > charged.get(key, 0)}
        if past:
            name = next((slice.chain for slice in self._slices.values() if slice.job_uid == job_uid), job_uid)
            raise Violation(f"rule 1: of {name} runs {past}, it is charged for {charged}")

    def _check_preemption(self, victim: Slice) -> None:
        """Whoever is preempted holds quota, for a job of another chain, by a policy that its queue had lately; and two
        do not take turns."""
        condition, now_s = victim.conditions[Condition.PREEMPTED], asyncio.get_running_loop().time()
        by_share = condition["reason"] == PreemptionReason.IN_COHORT_FAIR_SHARING
        if self._turns.lose(victim.chain_id, by_share=by_share) > _TURNS:
            raise Violation(f"preemption: {victim.name} is preempted again and again")
        if by_share:
            # Where it comes back in between, its condition says so no more.
            self.lost_by_share[victim.job_uid] = now_s
        if victim.admission is None or f"JobUID: {victim.job_uid})" in condition["message"]:
            raise Violation(f"preemption: {victim.name} is no victim: {condition['message']}")
        versions = self._versions[CLUSTERQUEUES.kind, preempting_queue(condition["message"])].lately(now_s)
        policies = [queue.preemption for queue in versions if isinstance(queue, ClusterQueue)]
        if not any(_allows(policy, condition["reason"]) for policy in policies):
            raise Violation(f"preemption: {victim.name} by no policy: {condition['message']}")

    def _check_admission(self, slice: Slice, old: Slice | None) -> None:
        others = [other for other in self._slices.values() if other.key != slice.key]
        if self.has_additions:
            # The manager may have learned of them when the admission was on its way.
            slice, *others = map(Slice.without_observed, (slice, *others))
        before = total_by_queue(usage_by_chain([*others, old] if old else others))
        after = total_by_queue(usage_by_chain([*others, slice]))
        now_s = asyncio.get_running_loop().time()
        worse = {}
        # The manager's watches may be at different moments of the past.
        for nodes in itertools.product(*(versions.lately(now_s) for versions in self._versions.values())):
            queues = [node for node in nodes if isinstance(node, ClusterQueue)]
            cohorts = [node for node in nodes if isinstance(node, Cohort)]
            worse = grown(excess(queues, cohorts, before), excess(queues, cohorts, after))
            if not worse:
                return
        raise Violation(f"rule 1: {slice.name} was admitted past the quota: {worse}")


def _allows(policy: Preemption, reason: str) -> bool:
    if reason == PreemptionReason.IN_CLUSTER_QUEUE:
        return policy.within_queue is not Whom.NEVER
    if reason == PreemptionReason.IN_COHORT_RECLAIM_WHILE_BORROWING and policy.borrow is Whom.NEVER:
        return False
    return policy.reclaim is not Whom.NEVER


def _check_counts(slice: Slice, admitted: Mapping[str, int]) -> None:
    """Nobody gets more than was asked for, and less only who said so and grows."""
    less = [name for name, count in slice.counts.items() if admitted.get(name, 0) < count]
    more = [name for name, count in admitted.items() if count > slice.counts.get(name, 0)]
    if more or (less and not (slice.partial and slice.replaces)):
        raise Violation(f"rule 1: {slice.name} asks for {slice.counts} and was admitted with {admitted}")


def _check_charge(slice: Slice, old: Slice) -> None:
    """Whoever has been admitted is never admitted with more after that: nobody looks whether the quota has it."""
    before, after = old.admitted_usage, slice.admitted_usage
    more = {key: value - before.get(key, 0) for key, value in after.items() if value > before.get(key, 0)}
    if more:
        raise Violation(f"rule 1: {slice.name} is charged for {more} more, and was not admitted with it")


def _runs(change: HistoryEntry) -> bool:
    pod = change.object
    return not (change.type == "DELETED" or is_gated(pod) or pod.get("status", {}).get("phase") in _OVER)


def _charged(chain: Iterable[Slice]) -> Usage:
    charged: Usage = {}
    for slice in chain:
        charged = larger(charged, slice.usage)
    return charged
