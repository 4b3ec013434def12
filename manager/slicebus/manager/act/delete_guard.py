"""Keeps a delete breaker for each cluster. Every inferred delete has to pass it (`endings`).

The WorkerCluster shows held deletes as a condition, an Event and an id. Writing the id into the annotation
`slicebus.dev/release-deletes` releases the jobs of that hold, and no others. A manager that starts goes on holding
where the condition is True.
"""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress

import structlog
from prometheus_client import CollectorRegistry, Gauge

from slicebus.ambient.timers import Timers
from slicebus.decisions.decider import Decider
from slicebus.decisions.guard import guarded
from slicebus.kube.cache import Change
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import NAMESPACES
from slicebus.kube.times import now_text
from slicebus.manager.decide import catalog
from slicebus.manager.decide.cluster import strays, worker_cluster_status
from slicebus.manager.decide.cluster.delete_breaker import DeleteBreaker, DeleteLimits, Hold
from slicebus.manager.decide.job import endings
from slicebus.manager.decide.job.endings import Ending
from slicebus.manager.decide.modes import mode_of
from slicebus.manager.state.annotations import annotation, job_ref
from slicebus.manager.state.job_changes import on_job_change
from slicebus.manager.state.store import ManagerStore
from slicebus.manager.state.views import JobView
from slicebus.proto.errors import (
    ConflictError,
    DecisionError,
    NotFoundError,
    NotServedError,
    PermanentError,
    TransientError,
    UnavailableError,
)
from slicebus.proto.messages import ClusterName, JobRef, Manifest
from slicebus.runtime.executor import Executor
from slicebus.slices.api import api_names

_log = structlog.get_logger()
_REFUSED_S = 30.0
"""How much later a write that the API server has refused is tried again."""
_WRITE_S = 0.5
"""Holds are written at most once in this time: a terminating namespace is hundreds of changes."""


class DeleteGuard:
    """Decides by the breakers which deletes may go. `requeue` has a job reconciled when its delete is released."""

    def __init__(
        self,
        limits: DeleteLimits,
        *,
        client: KubeClient,
        decide: Decider[ManagerStore],
        executor: Executor,
        requeue: Callable[[JobRef], None],
        registry: CollectorRegistry,
    ) -> None:
        self._limits = limits
        self._client = client
        self._decide = decide
        self._store = decide.state
        self._shard = decide.state.shards.own
        self._executor = executor
        self._requeue = requeue
        self._breakers: dict[ClusterName, DeleteBreaker] = {}
        self._shown: dict[ClusterName, Hold] = {}
        self._since: dict[ClusterName, str] = {}
        self._strays: dict[ClusterName, dict[JobRef, int]] = {}
        self._settled: dict[ClusterName, dict[JobRef, bool]] = {}
        """The strays of each cluster that were settled, the oldest first, and that an inventory may still list: whether
        a delete went out."""
        self._changed = asyncio.Event()
        self._refused = Timers[ClusterName](lambda _: self._changed.set())
        self._held = Gauge("slicebus_deletes_held", "Jobs whose deletes are held.", ["cluster"], registry=registry)

    def watch(self) -> None:
        """Count every delete as soon as it is known, before the first one is carried out."""
        for jobs in self._store.jobs.values():
            jobs.on_deleted(self._note_deleted)
        on_job_change(self._store, self._count, when=mode_of(self._store).needs_reconcile)
        self._store.namespaces.subscribe(self._namespace_changed)
        self._store.clusters.subscribe(self._cluster_changed)
        self._changed.set()

    async def holds(self, ref: JobRef) -> bool:
        """Whether the delete of a job is held now.

        Kubernetes marks a namespace as terminating before it deletes anything in it. Another watch reports that, and
        may be later, so the namespace is read from the API server.
        """
        view = guarded(self._store.view, ref)
        cluster, ending = view.cluster, self._ending(view)
        if cluster is None or ending is Ending.NONE:
            return False
        if ending is Ending.ASKED or self._store.namespaces.get(None, ref.namespace) is None:
            await self._read_namespace(ref.namespace)
            ending = self._ending(self._store.view(ref))
        if ending.is_inferred:
            return not self._may_go(cluster, ref)
        self._breaker(cluster).remove(ref)
        return False

    def hold_missing(self, kind: str) -> None:
        """Hold the deletes of the missing jobs of a kind that is served again, however few they are: they went with its
        definition, or while nobody watched. All jobs of the kind are reconciled, because they were left alone
        meanwhile."""
        for ref in [ref for ref in dict.fromkeys(self._store.refs()) if ref.kind == kind]:
            with suppress(DecisionError):  # It is set aside when it is reconciled.
                view = guarded(self._store.view, ref)
                if view.cluster is not None and self._ending(view).is_inferred:
                    self._breaker(view.cluster).hold_unserved(ref)
            self._requeue(ref)
        self._changed.set()

    def in_turn(self, cluster: ClusterName, listed: Collection[JobRef]) -> list[JobRef]:
        """The jobs of an inventory in the order in which they are looked at."""
        waiting, settled = self._strays.get(cluster, {}), self._settled.get(cluster, {})
        return strays.in_turn(listed, waiting=waiting, settled=settled)

    def set_strays(self, cluster: ClusterName, found: dict[JobRef, int], *, unseen: Collection[JobRef]) -> int:
        """Replace the strays of a cluster: each with the spec version that it holds. Return how many of the `unseen`,
        which the inventory lists and nobody has looked at, have not been settled before: they count as waiting."""
        breaker, settled = self._breaker(cluster), self._settled.pop(cluster, {})
        ordered = {ref for ref, is_ordered in settled.items() if is_ordered}
        before, listed = self._strays.get(cluster, {}).keys() | ordered, found.keys() | unseen
        self._strays[cluster] = found
        self._settled[cluster] = {ref: is_ordered for ref, is_ordered in settled.items() if ref in listed}
        breaker.unseen = len(unseen) - len(settled.keys() & unseen)
        for ref in before - listed:
            breaker.remove(ref)
        for ref in found:
            breaker.add(ref)
        for ref in found:
            self._requeue(ref)
        self._changed.set()
        return breaker.unseen

    def strays(self, ref: JobRef) -> list[tuple[ClusterName, int]]:
        """The clusters where a job is a stray that may be deleted now, with the spec version that each holds."""
        holders = [(cluster, held[ref]) for cluster, held in self._strays.items() if ref in held]
        return [(cluster, version) for cluster, version in holders if self._may_go(cluster, ref)]

    def settle(self, cluster: ClusterName, ref: JobRef, *, ordered: bool) -> None:
        """Stop counting a stray: its delete went out, or it turned out to be none.

        An inventory that is on its way may list an ordered one again. Its release stays until an inventory no longer
        lists it.
        """
        self._strays.get(cluster, {}).pop(ref, None)
        settled = self._settled.setdefault(cluster, {})
        settled.pop(ref, None)
        settled[ref] = ordered
        if not ordered:
            self._breaker(cluster).remove(ref)
        self._changed.set()

    def wants_inventory(self, cluster: ClusterName) -> bool:
        """Whether every stray of a cluster that was looked at is settled, and its inventory had more."""
        return self._breaker(cluster).unseen > 0 and not self._strays.get(cluster)

    async def run(self) -> None:
        """Write the holds onto the WorkerClusters until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            for cluster in self._store.clusters.all():
                await self._show(cluster)
            await asyncio.sleep(_WRITE_S)

    async def _show(self, cluster: Manifest) -> None:
        name = ClusterName(cluster["metadata"]["name"])
        breaker = self._breaker(name)
        breaker.lift()
        hold = breaker.hold(self._since.setdefault(name, now_text())) if breaker.held else None
        self._held.labels(name).set(len(hold.jobs) if hold else 0)
        if hold is None:
            self._since.pop(name, None)
            self._shown.pop(name, None)
        else:
            self._shown[name] = hold
        try:
            shown = worker_cluster_status.deletes_held(cluster, hold, now=now_text(), shard=self._shard.index)
            await self._executor.run(shown)
        except (ConflictError, TransientError) as error:
            _log.info("hold.unwritten", cluster=name, error=str(error))
            self._changed.set()
        except PermanentError as error:
            _log.warning("hold.refused", cluster=name, error=str(error))
            self._refused.start(name, _REFUSED_S)

    def _may_go(self, cluster: ClusterName, ref: JobRef) -> bool:
        if ref.kind in self._store.unserved:
            return False
        breaker = self._breaker(cluster)
        was_held = breaker.held
        # Not what its agent says: a stolen one would have as many jobs as it takes to let all deletes go.
        size = self._store.quotas.ledger.load[cluster]
        # Every shard counts its own deletes: together they let no more go than a single one would.
        may_go = breaker.may_go(ref, jobs=size // self._shard.count, now=asyncio.get_running_loop().time())
        if not may_go:
            self._changed.set()
            if not was_held:
                _log.warning("deletes.held", cluster=cluster, jobs=len(breaker.waiting), of=size)
        return may_go

    def _breaker(self, cluster: ClusterName) -> DeleteBreaker:
        if cluster not in self._breakers:
            manifest = self._store.clusters.get(None, cluster)
            is_held = manifest is not None and worker_cluster_status.is_held(manifest, shard=self._shard.index)
            self._breakers[cluster] = DeleteBreaker(self._limits, held=is_held)
        return self._breakers[cluster]

    def _ending(self, view: JobView) -> Ending:
        """Why a job is deleted on its worker. Why a job is deleted on its worker. Only jobs that end are decided
        through the `Decider`: nobody needs the others recorded."""
        return self._decide(catalog.ending, job=view.ref) if guarded(endings.is_ending, view) else Ending.NONE

    async def _read_namespace(self, name: str) -> None:
        known = self._store.namespaces.get(None, name)
        try:
            self._store.namespaces.put(await self._client.get(NAMESPACES, name))
        except NotServedError as error:
            raise UnavailableError(f"namespaces are not served now: {error}") from error
        except NotFoundError:
            if known is not None:
                self._store.namespaces.remove(known)

    def _note_deleted(self, job: Manifest) -> None:
        """Note that a watch has seen a job's delete. The job may have counted as missing before."""
        self._store.note_deleted(job)
        ref = job_ref(job)
        if ref.uid in self._store.deleted and self._store.has(ref):
            self._count(ref)
            self._requeue(ref)

    def _namespace_changed(self, change: Change) -> None:
        """Count deletes that seemed to be asked for as inferred, once their namespace is terminating."""
        namespace = change.new or change.old
        if namespace is not None and (change.new is None or "deletionTimestamp" in namespace["metadata"]):
            name = namespace["metadata"]["name"]
            for ref in [ref for ref in dict.fromkeys(self._store.refs()) if ref.namespace == name]:
                self._count(ref)

    def _count(self, ref: JobRef) -> None:
        view = self._store.view(ref)
        if view.cluster is None or ref.kind in self._store.unserved:
            return
        breaker = self._breaker(view.cluster)
        if self._ending(view).is_inferred:
            breaker.add(ref)
            changed = breaker.held
        else:
            changed = breaker.remove(ref)
        if changed:
            self._changed.set()

    def _cluster_changed(self, change: Change) -> None:
        """Release a hold when the annotation has the id that the status shows, also among other ids."""
        if change.new is None:
            return
        name = ClusterName(change.new["metadata"]["name"])
        hold = self._shown.get(name)
        released = (annotation(change.new, api_names.RELEASE_ANNOTATION) or "").split(",")
        if hold is not None and hold.id in released:
            self._release(name, self._breaker(name).release(hold))

    def _release(self, cluster: ClusterName, released: Collection[JobRef]) -> None:
        del self._shown[cluster]
        _log.info("deletes.released", cluster=cluster, jobs=len(released))
        self._changed.set()
        for ref in released:
            self._requeue(ref)
