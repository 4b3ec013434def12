"""The manager's caches, and the views of them that decisions are made from."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from slicebus.decisions.table import Table
from slicebus.kube.cache import Cache, Change
from slicebus.kube.readings import Readings
from slicebus.kube.resources import (
    ADMISSIONCHECKS,
    CLUSTERQUEUES,
    COHORTS,
    JOB_RESOURCES,
    LOCALQUEUES,
    NAMESPACES,
    RESOURCECLAIMTEMPLATES,
    RESOURCEFLAVORS,
    WORKERCLUSTERS,
    WORKLOADPRIORITYCLASSES,
    WORKLOADS,
    Resource,
)
from slicebus.manager.state import reclaims
from slicebus.manager.state.annotations import SizeRequest, job_ref
from slicebus.manager.state.demand import Demand
from slicebus.manager.state.job_reading import JobReading
from slicebus.manager.state.outbox import Outbox
from slicebus.manager.state.quota_trees import Quotas
from slicebus.manager.state.requirements import DRY_RUNS, dry_runs, is_managed, is_of_concern, is_our_check
from slicebus.manager.state.settings import AdmissionModeName, LeaderSettings
from slicebus.manager.state.shards import Shards
from slicebus.manager.state.tables import ManagerTable
from slicebus.manager.state.unshown_end import UnshownEnd
from slicebus.manager.state.views import JobView, Readiness, ReportedPods, cluster_of, place_of
from slicebus.manager.state.worker_clusters import BY_UID, Sender, connected_since, pinned_uids
from slicebus.proto.messages import ClusterName, JobRef, Manifest, Status, Waits, is_job_name
from slicebus.slices.admission.cycle import Admit
from slicebus.slices.api.owners import Owner, job_name_of, job_uid_of
from slicebus.slices.jobs import fitting
from slicebus.slices.workload import device_claims
from slicebus.slices.workload.workload import LocalQueueKey, Slice, SliceKey, chain_id

_BY_CHAIN, _BY_NAMESPACE = "chain", "namespace"
_OWN, _JOB_INDEXES = "slicebus.dev/", {DRY_RUNS: dry_runs}


def _chains(workload: Manifest) -> Iterable[str]:
    uid = job_uid_of(workload)
    return [chain_id(workload["metadata"]["namespace"], uid)] if uid else []


class Uncertain(msgspec.Struct, frozen=True):
    """An admission that was sent and not answered."""

    decision: Admit
    resource_version: str
    outdated: bool = False
    """Whether its quota or its cluster was edited since. It counts until it is called off, and is not sent again."""


class ManagerStore:
    """Every object and table that the manager decides by. Only the manager writes it; watches bring other changes."""

    def __init__(self) -> None:
        self.jobs = {kind: Cache(indexes=_JOB_INDEXES, fitting=fitting(kind), packs=True) for kind in JOB_RESOURCES}
        self.workloads = Cache(indexes={_BY_CHAIN: _chains}, packs=True)
        self.cluster_queues = Cache()
        self.cohorts = Cache()
        self.namespaces = Cache()
        self.priority_classes = Cache()
        self.local_queues = Cache()
        self.flavors = Cache()
        self.clusters = Cache(indexes={BY_UID: pinned_uids})
        self.admission_checks = Cache()
        self.claim_templates = Cache(indexes={_BY_NAMESPACE: lambda found: [found["metadata"]["namespace"]]})
        self.settings = LeaderSettings()
        """What decisions depend on beside objects and messages. `configure` changes it."""
        self._configured: Table[str, LeaderSettings] = Table(str, LeaderSettings)
        self.published: Table[JobRef, int] = Table(JobRef, int)
        """The newest spec version published since the worker's agent last said hello."""
        self.last_status: Table[tuple[str, str], tuple[int, int]] = Table(tuple[str, str], tuple[int, int])
        """Epoch and sequence of the last status of each job, by `Envelope.agent` and the job's UID."""
        self.last_heartbeat: Table[str, tuple[int, int]] = Table(str, tuple[int, int])
        """Epoch and sequence of the last heartbeat of each cluster, by `Envelope.agent`."""
        self.uncertain: Table[SliceKey, Uncertain] = Table(str, Uncertain)
        """Admissions whose write got no answer."""
        self.reported: Table[JobRef, Status] = Table(JobRef, Status)
        """The last status of each job, where a Kueue admits."""
        self.notices: Table[JobRef, str] = Table(JobRef, str)
        """The last notice of each job to its worker (`waiting.notice_key`)."""
        self.would_admit: Table[SliceKey, str] = Table(str, str)
        """What would admit the slices that wait, in words, as far as an admission cycle has said it."""
        self.waits: Table[JobRef, Waits] = Table(JobRef, Waits)
        """Why jobs do not have their size, as far as only their workers know: by their last reports."""
        self.reported_pods: Table[JobRef, ReportedPods] = Table(JobRef, ReportedPods)
        """Why granted pods of jobs do not run, by the last reports of their workers."""
        self.given_up: Table[ClusterName, bool] = Table(str, bool)
        """The clusters whose jobs go elsewhere: they were silent for too long, and are not back yet."""
        self.deleted: Table[str, bool] = Table(str, bool)
        """The UIDs of jobs whose delete a watch has seen, until their last Workload is gone."""
        self.recalled: Table[tuple[ClusterName, JobRef], int] = Table(tuple[str, JobRef], int)
        """The version of the last delete of a copy left on a given-up cluster, since its agent last said hello."""
        self.unserved: Table[str, str] = Table(str, str)
        """The job kinds that the API server does not serve now, and why. Nobody knows which of their jobs exist."""
        self.definitions: Table[str, str] = Table(str, str)
        """The UID of the definition of each custom job kind; empty when it has gone."""
        self.held: Table[str, bool] = Table(str, bool)
        """The ClusterQueues that this shard of several decides about."""
        self.heard_epochs: Table[str, int] = Table(str, int)
        """The newest epoch in what a shard beside the first has heard, by `Envelope.agent`."""
        self.adopted: Table[int, bool] = Table(int, bool)
        """The shards that no longer exist, and whose place this one has taken."""
        self.unshown_ends: Table[JobRef, UnshownEnd] = Table(JobRef, UnshownEnd)
        """The ends that the API server has just refused to show, until their Workloads have them."""
        self.refused_requests: Table[JobRef, Waits] = Table(JobRef, Waits)
        """The requests of workers that the API server refuses to write, and why."""
        self.ends: Table[JobRef, str] = Table(JobRef, str)
        """When an end that is still to be written onto a job was tried last, as RFC 3339."""
        self.late: Table[str, tuple[str, str]] = Table(str, tuple[str, str])
        """When the last message of an `Envelope.agent` that came late was sent and received, by both `clocks`."""
        self.quotas = Quotas(
            workloads=self.workloads,
            cluster_queues=self.cluster_queues,
            cohorts=self.cohorts,
            local_queues=self.local_queues,
            flavors=self.flavors,
            namespaces=self.namespaces,
            clusters=self.clusters,
        )
        self.shards = Shards(self.held, self.adopted, quotas=self.quotas, cluster_queues=self.cluster_queues)
        self._senders = Readings(self.clusters, Sender.from_manifest)
        self._jobs = {kind: Readings(cache, JobReading) for kind, cache in self.jobs.items()}
        self._copies_left: defaultdict[str, dict[str, Manifest]] = defaultdict(dict)
        """By cluster and UID: the Workloads of jobs that went elsewhere and may have left a copy."""
        self._outboxes = Readings(self.workloads, Outbox.from_manifest, on_change=self._outbox_changed)
        self._requests = Readings(self.workloads, SizeRequest.from_manifest)
        for cache in (self.flavors, self.priority_classes, self.admission_checks):
            cache.subscribe(self._read_common)
        self.workloads.subscribe(self._forget_deleted)
        self._device_resources: dict[str, str] = {}
        self._configured.observe(self._take_settings)
        self._read_common()

    def configure(self, settings: LeaderSettings) -> None:
        """Decide by these settings from now on. Call it before the first decision."""
        self._configured[ManagerTable.SETTINGS] = settings  # The only key.

    def _take_settings(self, _: str, settings: LeaderSettings) -> None:
        self.settings = settings
        self._device_resources = device_claims.resources_of(settings.device_class_mappings)
        self.shards.become(settings.shard)

    @property
    def slices(self) -> Mapping[SliceKey, Slice]:
        """Every Workload that can be read, as a slice."""
        return self.quotas.ledger.slices

    def version_of(self, key: SliceKey) -> str:
        """The resourceVersion of a slice's Workload; empty where it is gone."""
        namespace, _, name = key.partition("/")
        workload = self.workloads.get(namespace, name)
        return workload["metadata"]["resourceVersion"] if workload else ""

    @property
    def beside_kueue(self) -> bool:
        """Whether a Kueue admits, rather than the manager."""
        return self.settings.admission is AdmissionModeName.KUEUE

    def caches(self) -> Iterator[tuple[Resource, Cache]]:
        """Each resource that the manager watches, with its cache."""
        left_to_kueue = (CLUSTERQUEUES, COHORTS, WORKLOADPRIORITYCLASSES, LOCALQUEUES)
        unwatched = left_to_kueue if self.beside_kueue else (ADMISSIONCHECKS,)
        if self.beside_kueue or not self.settings.device_class_mappings:
            unwatched = (*unwatched, RESOURCECLAIMTEMPLATES)
        return ((resource, cache) for resource, cache in self.decides_by() if resource not in unwatched)

    def decides_by(self) -> Iterator[tuple[Resource, Cache]]:
        """Each resource with its cache."""
        for kind, cache in self.jobs.items():
            yield JOB_RESOURCES[kind], cache
        yield WORKLOADS, self.workloads
        yield CLUSTERQUEUES, self.cluster_queues
        yield COHORTS, self.cohorts
        yield NAMESPACES, self.namespaces
        yield WORKLOADPRIORITYCLASSES, self.priority_classes
        yield LOCALQUEUES, self.local_queues
        yield RESOURCEFLAVORS, self.flavors
        yield WORKERCLUSTERS, self.clusters
        yield ADMISSIONCHECKS, self.admission_checks
        yield RESOURCECLAIMTEMPLATES, self.claim_templates

    def tables(self) -> Mapping[str, Table[Any, Any]]:
        """The tables beside the caches, by name."""
        return {
            ManagerTable.PUBLISHED: self.published,
            ManagerTable.LAST_STATUS: self.last_status,
            ManagerTable.LAST_HEARTBEAT: self.last_heartbeat,
            ManagerTable.UNCERTAIN: self.uncertain,
            ManagerTable.SETTINGS: self._configured,
            ManagerTable.REPORTED: self.reported,
            ManagerTable.NOTICES: self.notices,
            ManagerTable.WOULD_ADMIT: self.would_admit,
            ManagerTable.WAITS: self.waits,
            ManagerTable.REPORTED_PODS: self.reported_pods,
            ManagerTable.GIVEN_UP: self.given_up,
            ManagerTable.RECALLED: self.recalled,
            ManagerTable.DELETED: self.deleted,
            ManagerTable.UNSERVED: self.unserved,
            ManagerTable.DEFINITIONS: self.definitions,
            ManagerTable.HELD: self.held,
            ManagerTable.HEARD_EPOCHS: self.heard_epochs,
            ManagerTable.ADOPTED: self.adopted,
            ManagerTable.UNSHOWN_ENDS: self.unshown_ends,
            ManagerTable.REFUSED_REQUESTS: self.refused_requests,
            ManagerTable.ENDS: self.ends,
            ManagerTable.LATE: self.late,
        }

    def is_foreign(self, resource: Resource, manifest: Manifest) -> bool:
        """Whether an object is a job that is neither managed nor ever was, as far as it and the Workloads show."""
        if resource.kind not in self.jobs or is_of_concern(manifest):
            return False
        metadata = manifest["metadata"]
        marks = (*(metadata.get("annotations") or ()), *(metadata.get("finalizers") or ()))
        return not self.has_workloads(manifest) and not any(mark.startswith(_OWN) for mark in marks)

    def cache_of(self, resource: Resource) -> Cache | None:
        """The cache of a resource; None for one that is not cached."""
        return next((cache for cached, cache in self.decides_by() if cached == resource), None)

    def sender(self, cluster: ClusterName) -> Sender | None:
        """Who may speak for a cluster; None where there is no such WorkerCluster."""
        return self._senders.values.get(("", cluster))

    def view(self, ref: JobRef, *, deletes_held: bool = False) -> JobView:
        """Everything that belongs to one job. `deletes_held`: whether the breaker of its cluster holds its delete."""
        cached = self._jobs[ref.kind].values.get((ref.namespace, ref.name))
        reading = cached if cached is not None and cached.manifest["metadata"]["uid"] == ref.uid else None
        id = chain_id(ref.namespace, ref.uid)
        chain = self.quotas.ledger.chain(id)
        workloads = self.workloads.keyed_by(_BY_CHAIN, id)
        outboxes = [self._outboxes.values.get(key) for key in workloads]
        outbox = Outbox.newest(outboxes, left=reading.outbox if reading else None)
        cluster = cluster_of(chain, outbox)
        copies, fleet = outbox.record.left_copies.items() if outbox else (), self.clusters
        left_copies = {ClusterName(name): version for name, version in copies if fleet.get(None, name) is not None}
        demand = Demand(self.quotas, chain)
        return JobView(
            ref=ref,
            reading=reading,
            workloads={name: workload for (_, name), workload in workloads.items()},
            slices=chain,
            requests={key[1]: self._requests.values[key] for key in workloads if key in self._requests.values},
            outbox=outbox,
            cluster=cluster,
            flavors=self._flavors_by_name,
            priority_classes=self._priorities,
            in_fleet=cluster is not None and self.clusters.get(None, cluster) is not None,
            deletes_held=deletes_held,
            given_up=cluster in self.given_up,
            left_copies=left_copies,
            recalled={name: self.recalled.get((name, ref), 0) for name in left_copies},
            published=self.published.get(ref, 0),
            checks=self._checks if self._checks or self.beside_kueue else None,
            device_resources=self._device_resources,
            claim_templates=self.claim_templates.keyed_by(_BY_NAMESPACE, ref.namespace),
            reported=self.reported.get(ref),
            last_notice=self.notices.get(ref, ""),
            would_admit=self.would_admit,
            waits=self.waits.get(ref),
            reported_pods=self.reported_pods.get(ref),
            refused_request=self.refused_requests.get(ref),
            end_tried_at=self.ends.get(ref),
            message_bytes=self.settings.message_bytes,
            readiness=self._readiness(place_of(chain)),
            fixed_jobs=self.settings.fixed_jobs,
            refused_s=self.settings.refused_requeue_s,
            is_awaited=reclaims.is_awaited(chain, demand.chain, demand.waits, drains=demand.drains, outbox=outbox),
            gone=reclaims.gone(chain, demand.chain),
            allowed=reclaims.allowed(self.quotas.queue_of(chain), self.settings, beside_kueue=self.beside_kueue),
        )

    def _readiness(self, cluster: ClusterName | None) -> Readiness | None:
        settings = self.settings
        if not settings.waits_for_pods:
            return None
        manifest = self.clusters.get(None, cluster) if cluster else None
        return Readiness(
            start_s=settings.pods_ready_s,
            recovery_s=settings.pods_recovery_s,
            scale_up_s=settings.scale_up_ready_s,
            counts_from=settings.leads_since,
            connected_since=connected_since(manifest) if manifest is not None else None,
        )

    def note_deleted(self, job: Manifest) -> None:
        """Note that a watch has seen a job's delete. A job without a Workload needs no note."""
        ref = job_ref(job)
        if self.workloads.keyed_by(_BY_CHAIN, chain_id(ref.namespace, ref.uid)):
            self.deleted[ref.uid] = True

    def _forget_deleted(self, change: Change) -> None:
        if change.old is None or change.new is not None:
            return
        metadata = change.old["metadata"]
        self.would_admit.pop(SliceKey(f"{metadata['namespace']}/{metadata['name']}"), None)
        for chain in _chains(change.old):
            if not self.workloads.keyed_by(_BY_CHAIN, chain):
                self.deleted.pop(job_uid_of(change.old), None)

    def _read_common(self, *_: object) -> None:
        """Read the parts that all views share. They seldom change."""
        self._flavors_by_name = {flavor["metadata"]["name"]: flavor for flavor in self.flavors.all()}
        self._priorities = {entry["metadata"]["name"]: entry["value"] for entry in self.priority_classes.all()}
        ours = filter(is_our_check, self.admission_checks.all())
        self._checks = frozenset(check["metadata"]["name"] for check in ours)

    def _outbox_changed(self, old: Outbox | None, new: Outbox | None) -> None:
        if old is not None:
            for cluster in old.record.left_copies:
                del self._copies_left[cluster][old.recorded_on["metadata"]["uid"]]
        if new is not None:
            for cluster in new.record.left_copies:
                self._copies_left[cluster][new.recorded_on["metadata"]["uid"]] = new.recorded_on

    def jobs_left_on(self, cluster: ClusterName) -> list[JobRef]:
        """The jobs that went elsewhere without the cluster's answer, and may still have a copy there."""
        owners = dict.fromkeys(map(owner_ref, self._copies_left.get(cluster, {}).values()))
        return [ref for ref in owners if ref is not None and cluster in self.view(ref).left_copies]

    def has_leaving_jobs(self, cluster: ClusterName) -> bool:
        """Whether jobs of the cluster are about to go elsewhere."""
        return any(
            view.cluster == cluster and (view.evicted or view.place != cluster) and not view.is_withdrawn
            for view in map(self.view, dict.fromkeys(self.refs()))
        )

    def jobs_on(self, cluster: ClusterName) -> list[JobRef]:
        """The jobs whose copy a cluster has, or shall have."""
        return [view.ref for view in map(self.view, dict.fromkeys(self.refs())) if view.cluster == cluster]

    def shard_of(self, ref: JobRef) -> int:
        """The shard of the manager that has a job."""
        return 0 if self.shards.is_alone else self.shards.of_queue(self._local_queue_of(ref))

    def cluster_queue_of(self, ref: JobRef) -> str:
        """The ClusterQueue of a job; empty where its LocalQueue names none."""
        return self.quotas.cluster_queue_of(self._local_queue_of(ref))

    def _local_queue_of(self, ref: JobRef) -> LocalQueueKey:
        """The queue as in `JobView.queue`, without the view, which most jobs do not need."""
        chain = self.quotas.ledger.chain(chain_id(ref.namespace, ref.uid))
        unfinished = next((slice for slice in reversed(chain) if not slice.finished), None)
        return unfinished.local_queue if unfinished is not None else (ref.namespace, self.view(ref).queue)

    def refs(self) -> Iterator[JobRef]:
        """Every managed job of this shard, and the job of every Workload. A job may come several times."""
        return filter(self.has, self._every_ref())

    def has(self, ref: JobRef) -> bool:
        """Whether this shard of the manager has a job."""
        return self.shards.is_alone or self.shard_of(ref) == self.shards.own.index

    def has_workload(self, workload: Manifest) -> bool:
        """Whether this shard has the job of a Workload."""
        metadata, spec = workload["metadata"], workload.get("spec", {})
        return self.shards.has_queue((metadata["namespace"], spec.get("queueName", "")))

    def has_workloads(self, job: Manifest) -> bool:
        """Whether any Workload belongs to a job."""
        return bool(self.workloads.keyed_by(_BY_CHAIN, chain_id(job["metadata"]["namespace"], job["metadata"]["uid"])))

    def _every_ref(self) -> Iterator[JobRef]:
        for cache in self.jobs.values():
            yield from (job_ref(job) for job in cache.all() if is_managed(job, fixed_jobs=self.settings.fixed_jobs))
        yield from filter(None, map(owner_ref, self.workloads.all()))


def owner_ref(workload: Manifest) -> JobRef | None:
    """The job that owns a Workload, or did until it was orphaned, when it is of a kind that slicebus runs."""
    metadata = workload["metadata"]
    owner = Owner.from_metadata(metadata)
    if owner is None:
        return _former_owner(workload)
    if owner.kind not in JOB_RESOURCES:
        return None
    return JobRef(namespace=metadata["namespace"], **msgspec.structs.asdict(owner))


def _former_owner(workload: Manifest) -> JobRef | None:
    """The job that an orphaned Workload names (`endings.record_owner`). An agent's copies have no such label."""
    metadata = workload["metadata"]
    uid, (kind, name) = job_uid_of(workload), job_name_of(metadata)
    if not uid or kind not in JOB_RESOURCES or not is_job_name(name):
        return None
    api_version, namespace = JOB_RESOURCES[kind].api_version, metadata["namespace"]
    return JobRef(api_version=api_version, kind=kind, namespace=namespace, name=name, uid=uid)
