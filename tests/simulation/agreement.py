"""What must be true when everything has calmed down: manager, workers and broker agree on every job."""

from collections import Counter
from typing import Any

from simulation.activation_rules import ActivationRules
from simulation.additions import check_charge
from simulation.defaults import charged
from simulation.elastic import check_restored, is_refused
from simulation.idle_quota import as_asked
from simulation.indexed import is_indexed
from simulation.limits import fitting
from simulation.refusals import check_dead_letters
from simulation.schedule import WORKERS
from simulation.services import edited
from simulation.tenants import has_bytes
from simulation.time_limits import has_run_out
from simulation.violations import Violation
from slicebus.agent.state import annotations
from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import CLUSTERQUEUES, COHORTS, JOB_RESOURCES, LOCALQUEUES, PODS, RAYCLUSTERS, WORKLOADS
from slicebus.manager.state.annotations import reported_status
from slicebus.manager.state.requirements import is_managed
from slicebus.proto.errors import SlicebusError
from slicebus.proto.messages import ClusterName, JobPhase
from slicebus.proto.topology import DEAD_LETTERS
from slicebus.sandbox.bus import MemoryBroker
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.api_names import RESIZABLE_CONDITION
from slicebus.slices.api.kueue import Condition
from slicebus.slices.jobs import KINDS
from slicebus.slices.quota.quota import ClusterQueue, Cohort
from slicebus.slices.workload.chain import oldest_first
from slicebus.slices.workload.ungate import is_gated
from slicebus.slices.workload.waiting import Waiting, lacks
from slicebus.slices.workload.workload import Slice

Manifest = dict[str, Any]
_OVER = ("Succeeded", "Failed")


class UnderWay(Violation):
    """What there is to agree about is changing: quota is being freed, for which the next job is then decided, or a job
    has just gone."""


class Agreement:
    """Whether manager and workers agree on every job."""

    def __init__(
        self, world: World, broker: MemoryBroker, activations: ActivationRules, *, fixed_jobs: bool = False
    ) -> None:
        self._manager = world.manager
        self._workers = world.workers
        self._broker = broker
        self._activations = activations
        self._fixed_jobs = fixed_jobs

    async def check(self) -> None:
        """Raise Violation for the first thing that two sides see differently; UnderWay while that may still change."""
        workloads = [Slice.from_manifest(found) for found in (await self._manager.list(WORKLOADS)).items]
        await self._check_under_way(workloads)
        known = set()
        for kind, resource in JOB_RESOURCES.items():
            for job in (await self._manager.list(resource)).items:
                chain = oldest_first(slice for slice in workloads if slice.job_uid == job["metadata"]["uid"])
                known.add(job["metadata"]["uid"])
                await self._check_job(kind, job, [slice for slice in chain if not slice.finished])
        await self._check_waiting(workloads)
        orphans = [slice.name for slice in workloads if slice.job_uid not in known]
        if orphans:
            # A job may have outlived its time to live just now: the garbage collector comes next.
            raise UnderWay(f"converged: slices without a job are left: {orphans}")
        for name, client in self._workers.items():
            await self._check_worker(name, client, known)
        self._check_queues()

    async def _check_under_way(self, workloads: list[Slice]) -> None:
        """No slice is being evicted or has notice, and no pod is ending."""
        evicting = [slice.name for slice in workloads if slice.evicting]
        if evicting:
            raise UnderWay(f"converged: evictions are under way: {evicting}")
        told = [slice.name for slice in workloads if slice.shrinks_to and slice.reclaimed and slice.reclaimed.notice_s]
        if told:
            # The clocks of two agents may differ by minutes.
            raise UnderWay(f"converged: jobs have notice: {told}")
        for cluster, client in self._workers.items():
            pods = (await client.list(PODS, namespace=objects.NAMESPACE)).items
            ending = [pod["metadata"]["name"] for pod in pods if "deletionTimestamp" in pod["metadata"]]
            if ending:
                raise UnderWay(f"converged: pods are ending on {cluster}: {ending}")

    async def _check_job(self, kind: str, job: Manifest, chain: list[Slice]) -> None:
        name = f"{kind} {job['metadata']['name']}"
        if KINDS[kind].outcome(job).phase is not JobPhase.RUNNING:
            if chain and not await self._runs_what_is_charged(job, chain):
                raise Violation(f"converged: {name} is over and has slices {[slice.name for slice in chain]}")
            return
        if any(map(self._activations.has_unknown_end, chain)):
            await self._check_unknown_end(name, kind, job, chain)
            return
        if any(not slice.active and has_run_out(slice) for slice in chain):
            if [(slice.active, slice.admission) for slice in chain] != [(False, None)]:
                raise Violation(f"converged: {name} has had its time, and slices {[slice.name for slice in chain]}")
            return
        if not (chain or (is_managed(job, fixed_jobs=self._fixed_jobs) and not is_refused(job))):
            return
        holders, waiting = [s for s in chain if s.admission], [s for s in chain if s.pending]
        if len(holders) > 1 or len(waiting) > 1 or len(holders) + len(waiting) != len(chain) or not chain:
            raise Violation(f"converged: {name} has unfinished slices {[(s.name, bool(s.admission)) for s in chain]}")
        for slice in waiting:
            if not slice.conditions.get(Condition.QUOTA_RESERVED, {}).get("message"):
                raise Violation(f"converged: {slice.name} waits and does not say why")
        if holders:
            await self._check_copy(name, kind, job, holders[0], waiting)
        else:
            await self._check_rest(name, kind, job)

    async def _runs_what_is_charged(self, job: Manifest, chain: list[Slice]) -> bool:
        """Whether a job that is over has one slice left, which says so, for the pods of it that run on."""
        [slice, *others] = chain
        says_so = slice.conditions.get(api_names.PODS_GONE_CONDITION, {}).get("status") == "False"
        client = self._workers.get(ClusterName(slice.cluster or ""))
        if others or not says_so or client is None:
            return False
        running = await self._running(client, job)
        return bool(running) and running == Counter({name: n for name, n in slice.granted.items() if n})

    async def _check_unknown_end(self, name: str, kind: str, job: Manifest, chain: list[Slice]) -> None:
        """A job that may have ended unseen is nowhere, holds no quota, and is not started again."""
        if [(slice.active, slice.admission) for slice in chain] != [(False, None)]:
            raise Violation(f"converged: the end of {name} is unknown, and it may run again: {chain}")
        for cluster, client in self._workers.items():
            for copy in (await client.list(JOB_RESOURCES[kind], namespace=objects.NAMESPACE)).items:
                if annotations.annotation(copy, "slicebus.dev/manager-uid") == job["metadata"]["uid"]:
                    raise Violation(f"converged: the end of {name} is unknown, and it is on {cluster}")

    async def _check_waiting(self, workloads: list[Slice]) -> None:
        """What waits does not fit, or has no LocalQueue: that may have gone with its namespace."""
        queues = [ClusterQueue.from_manifest(found) for found in (await self._manager.list(CLUSTERQUEUES)).items]
        cohorts = [Cohort.from_manifest(found) for found in (await self._manager.list(COHORTS)).items]
        local = {each["metadata"]["name"] for each in (await self._manager.list(LOCALQUEUES)).items}
        workloads = as_asked(workloads)
        waiting = (each for each in workloads if each.pending and each.queue in local)
        for slice in await charged(self._manager, waiting):
            if slice.avoids >= {*WORKERS}:
                raise UnderWay(f"converged: {slice.name} is about to be tried on a cluster again")
            if (found := fitting(slice, workloads, queues, cohorts)) is not None:
                raise Violation(f"converged: {slice.name} waits although it fits: {found}")

    async def _check_copy(self, name: str, kind: str, job: Manifest, holder: Slice, waiting: list[Slice]) -> None:
        client = self._workers[ClusterName(holder.cluster or "")]
        try:
            copy = await client.get(JOB_RESOURCES[kind], job["metadata"]["name"], objects.NAMESPACE)
        except SlicebusError as error:
            if holder.conditions.get(RESIZABLE_CONDITION, {}).get("status") == "False":
                # Somebody has edited its pods after it got its quota, and before it was made.
                return
            raise Violation(f"converged: {name} is admitted to {holder.cluster} and not there: {error}") from error
        if KINDS[kind].outcome(copy).phase is not JobPhase.RUNNING and await self._running(client, job):
            # The manager hears of the end when the last pod is gone: the quota is given back with it.
            raise UnderWay(f"converged: {name} is over on {holder.cluster}, and has pods that keep its quota")
        children = KINDS[kind].children(copy)
        clusters = {found["metadata"]["name"]: found for found in (await client.list(RAYCLUSTERS)).items}
        targets = [copy] if children is None else [clusters[child] for child in children if child in clusters]
        if not targets:
            raise Violation(f"converged: {name} on {holder.cluster} has no cluster of its own")
        scale_target, ended, total = targets[0], KINDS[kind].finished(copy), Counter[str]()
        for target in targets:
            total.update(KINDS[kind].counts(copy, target))
        wanted = {pod_set: count - ended.get(pod_set, 0) for pod_set, count in total.items()}
        asked = waiting[0].counts if waiting else holder.unfinished_counts
        # What waits for pods that were taken back is the manager's wish: the worker has what is left.
        restores = bool(waiting and (waiting[0].queued_since or waiting[0].grows_unasked))
        there_asked = holder.granted if restores else asked
        check_restored(name, holder, waiting, ended)
        there, granted = annotations.granted(copy), holder.granted
        if not holder.elastic:
            # Whatever it wants, it keeps its size; where it wants less for a while, it grants itself no more.
            asked = there_asked = wanted
            granted = {
                pod_set: min(count, max(there.get(pod_set, 0), wanted.get(pod_set, 0)))
                for pod_set, count in holder.granted.items()
            }
        told = {
            "its slice": (annotations.slice_of(copy), holder.name),
            "the size it wants": (wanted, there_asked),
            "what is granted": (there, granted),
            "its bounds lack": (
                [] if is_indexed(job) else KINDS[kind].set_bounds(scale_target, KINDS[kind].bounds(job)),
                [],
            ),
            "what it takes over": (edited(copy), edited(job)) if kind == "RayService" else ("", ""),
        }
        if not has_bytes(job):
            told["its status"] = copy.get("status", {}), reported_status(job)
        for what, (is_there, is_here) in told.items():
            if is_there != is_here:
                raise Violation(
                    f"converged: {name} on {holder.cluster}: {what} is {is_there}, the manager says {is_here}"
                )
        _check_shown(name, job, [copy, *targets], lacking=lacks(asked, granted), restores=restores)
        await self._check_pods(name, client, job, holder.granted)
        check_charge(name, await self._running_pods(client, job), holder.usage)

    async def _check_rest(self, name: str, kind: str, job: Manifest) -> None:
        """What has no quota is nowhere, or suspended without pods."""
        for cluster, client in self._workers.items():
            for copy in (await client.list(JOB_RESOURCES[kind], namespace=objects.NAMESPACE)).items:
                if annotations.annotation(copy, "slicebus.dev/manager-uid") != job["metadata"]["uid"]:
                    continue
                if not (annotations.is_suspended(copy) and copy["spec"].get("suspend")):
                    raise Violation(f"converged: {name} has no quota and is not suspended on {cluster}")
                await self._check_pods(name, client, job, {})

    async def _check_pods(self, name: str, client: KubeClient, job: Manifest, granted: dict[str, int]) -> None:
        for pod_set, count in (await self._running(client, job)).items():
            if count > granted.get(pod_set, 0):
                raise Violation(f"converged: {name} runs {count} {pod_set}, {granted} are granted")

    async def _running(self, client: KubeClient, job: Manifest) -> Counter[str]:
        """The pods of a job that run on a worker, those that are going too, by pod set."""
        pods = await self._running_pods(client, job)
        return Counter(pod["metadata"]["labels"].get(kueue.POD_SET_LABEL, "") for pod in pods)

    async def _running_pods(self, client: KubeClient, job: Manifest) -> list[Manifest]:
        return [
            pod
            for pod in (await client.list(PODS, namespace=objects.NAMESPACE)).items
            if not is_gated(pod) and pod.get("status", {}).get("phase") not in _OVER
            if pod["metadata"].get("labels", {}).get(api_names.MANAGER_UID_LABEL) == job["metadata"]["uid"]
        ]

    async def _check_worker(self, name: str, client: KubeClient, known: set[str]) -> None:
        for resource in (*JOB_RESOURCES.values(), WORKLOADS):
            for found in (await client.list(resource)).items:
                if (
                    annotations.is_ours(found)
                    and annotations.annotation(found, "slicebus.dev/manager-uid") not in known
                ):
                    raise Violation(f"converged: {found['metadata']['name']} is left on {name} without a job")

    def _check_queues(self) -> None:
        """Rule 4: every message was applied, coalesced with a newer one, or dead-lettered."""
        check_dead_letters(self._broker)
        left = {name: len(queue.ready) for name, queue in self._broker.queues.items() if queue.ready}
        left = {name: count for name, count in left.items() if name not in DEAD_LETTERS}
        if left:
            raise Violation(f"converged: messages are left in {left}")


def _check_shown(name: str, job: Manifest, copies: list[Manifest], *, lacking: bool, restores: bool) -> None:
    """Every object of a job shows the same, and shows that pods are lacking while they are. Its worker does not lack
    those that were taken back."""
    here = Waiting.from_manifest(job)
    for copy in copies:
        there = Waiting.from_manifest(copy)
        if restores and (there is None or there.reason == api_names.RECLAIMED):
            continue
        if there != here and not (here and here.says_same(there)):
            raise Violation(f"converged: {name}: the manager's shows {here}, its {copy['kind']} {there}")
    if lacking != (here is not None and lacks(here.wanted, here.granted)):
        raise Violation(f"converged: {name} shows {here}, {'and' if lacking else 'but no'} pods are lacking")
