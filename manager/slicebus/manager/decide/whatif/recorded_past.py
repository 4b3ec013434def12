"""Reads from the manager's recording what a play needs: what it decided by, and what became of each job."""

from collections.abc import Collection, Iterable, Mapping
from statistics import median

import msgspec
from msgspec import Raw

from slicebus.bus.contract import Record as StreamRecord
from slicebus.decisions.recorded_cache import resource_name
from slicebus.decisions.table_reader import TableReader
from slicebus.journal.entry import Entry
from slicebus.journal.object_history import ObjectHistory
from slicebus.journal.recording_reader import malformed_refused
from slicebus.journal.shard_history import ObjectChange
from slicebus.kube.cache import key_of
from slicebus.kube.resources import (
    CLUSTERQUEUES,
    COHORTS,
    LOCALQUEUES,
    NAMESPACES,
    RESOURCEFLAVORS,
    WORKERCLUSTERS,
    WORKLOADPRIORITYCLASSES,
    WORKLOADS,
    Resource,
)
from slicebus.manager.decide.whatif.chronicle import Chronicle
from slicebus.manager.decide.whatif.recorded_jobs import RecordedJob, RecordedWorkloads, quota_of
from slicebus.manager.state.settings import AdmissionModeName, LeaderSettings, Shard
from slicebus.manager.state.store import ManagerStore
from slicebus.manager.state.tables import ManagerTable
from slicebus.manager.state.worker_clusters import WorkerCluster
from slicebus.proto.messages import Manifest
from slicebus.slices.quota.quota import ClusterQueue, Cohort, FlavorResource

POLICIES = (
    NAMESPACES,
    WORKLOADPRIORITYCLASSES,
    RESOURCEFLAVORS,
    COHORTS,
    CLUSTERQUEUES,
    LOCALQUEUES,
    WORKERCLUSTERS,
)
"""What the manager decides by beside the Workloads."""
BY_NAME = {resource_name(resource): resource for resource in (*POLICIES, WORKLOADS)}
_PARTS = ("spec", "value")
_METADATA = ("labels", "annotations")
_DELAY_S = 30.0
"""How long pods take to go where no recorded one tells: the grace period of Kubernetes."""


class PolicyChange(msgspec.Struct, frozen=True):
    """A queue, a flavor or a cluster as it is from a moment on; `gone`: it is there no longer."""

    at: float
    resource: Resource
    manifest: Manifest
    gone: bool = False


class RecordedPast(msgspec.Struct, frozen=True, kw_only=True):
    """A span of the past. Unix times."""

    since: float
    until: float
    settings: LeaderSettings
    policies: tuple[tuple[Resource, Manifest], ...]
    """The objects when the span began."""
    changes: tuple[PolicyChange, ...]
    jobs: tuple[RecordedJob, ...]
    gone_s: Mapping[str, float]
    """How long pods take to go after an eviction, by cluster: the median."""
    gone_elsewhere_s: float
    """The same, of clusters that are not named."""
    gone_known: int
    """How many of these times were recorded."""
    ready_s: float
    """How long pods take to get ready: the median. A job that is evicted earlier has none that have to go."""
    was: Chronicle
    """What became of the jobs."""
    interruptions: int
    """How often the recording lacks a part."""

    @property
    def is_beside_kueue(self) -> bool:
        """Whether a Kueue admitted."""
        return self.settings.admission is AdmissionModeName.KUEUE


class PastBuilder:
    """Puts a past together from the objects at its beginning and every change after that."""

    def __init__(self, since: float, objects: Mapping[str, Collection[Manifest]], settings: Iterable[Raw]) -> None:
        """`objects` by resource, and the entries of the table with the settings. Raises ValueError, as what follows
        does, for an object that no API server stores."""
        self._settings = LeaderSettings()
        self._policies: list[tuple[Resource, Manifest]] = []
        self._changes: list[PolicyChange] = []
        self._queue_of: dict[tuple[str, str], str] = {}
        self._nominal: dict[tuple[str, str], Mapping[FlavorResource, int]] = {}
        self._chronicle = Chronicle(since)
        self._jobs = RecordedWorkloads(self._chronicle, self._queue_of)
        reader = TableReader.for_table(ManagerStore().tables()[ManagerTable.SETTINGS])
        for value in settings:
            self._settings = msgspec.structs.replace(reader.value(value), shard=Shard())
        for of, resource in BY_NAME.items():
            if resource == WORKLOADS:
                self._jobs.begin(objects.get(of, ()))
                continue
            for manifest in objects.get(of, ()):
                self._policies.append((resource, manifest))
                self._note(resource, manifest, gone=False)
        self._chronicle.set_quota(quota_of(self._nominal.values()), since)

    def take(self, change: ObjectChange) -> None:
        """Take the next change."""
        resource = BY_NAME[change.of]
        if resource == WORKLOADS:
            self._jobs.change(change.before, change.after, change.at)
        elif _differs(resource, change.before, change.after):
            manifest, gone = change.after or change.before, change.after is None
            assert manifest is not None
            self._changes.append(PolicyChange(change.at, resource, manifest, gone))
            self._note(resource, manifest, gone=gone)
            if resource in (CLUSTERQUEUES, COHORTS):
                self._chronicle.set_quota(quota_of(self._nominal.values()), change.at)

    def past(self, until: float, *, interruptions: int) -> RecordedPast | None:
        """The span up to then; None where it has no length."""
        jobs, chronicle = self._jobs, self._chronicle
        if until <= chronicle.since:
            return None
        jobs.end(until)
        delays = [delay for known in jobs.delays_s.values() for delay in known]
        ready = [run.ready_s for job in jobs.jobs.values() for run in job.runs if run.ready_s is not None]
        return RecordedPast(
            since=chronicle.since,
            until=until,
            settings=self._settings,
            policies=tuple(self._policies),
            changes=tuple(self._changes),
            jobs=tuple(jobs.jobs.values()),
            gone_s={cluster: median(known) for cluster, known in jobs.delays_s.items()},
            gone_elsewhere_s=median(delays) if delays else _DELAY_S,
            gone_known=len(delays),
            ready_s=median(ready) if ready else 0.0,
            was=chronicle,
            interruptions=interruptions,
        )

    def _note(self, resource: Resource, manifest: Manifest, *, gone: bool) -> None:
        key = key_of(manifest)
        if resource == LOCALQUEUES:
            self._queue_of[key] = "" if gone else manifest["spec"].get("clusterQueue", "")
        elif resource in (CLUSTERQUEUES, COHORTS):
            self._nominal[resource.kind, key[1]] = {} if gone else nominal_of(resource, manifest)


class PastReader:
    """Reads a recording, from a snapshot before the span on."""

    def __init__(self, since: float | None) -> None:
        """`since`: when the span begins; None for the first moment that is known."""
        self._history = ObjectHistory("manager", BY_NAME, (ManagerTable.SETTINGS,))
        self._since = since
        self._until = 0.0
        self._builder: PastBuilder | None = None

    def feed(self, record: StreamRecord) -> None:
        """Take one record of the journal. Raises InvalidError."""
        with malformed_refused("the journal has objects", role="manager"):
            self._feed(record)

    def _feed(self, record: StreamRecord) -> None:
        was_known = self._history.is_known
        for change in self._history.feed(record):
            if self._builder is None and (self._since is None or change.at >= self._since):
                self._begin(self._since if self._since is not None and was_known else change.at, change)
            if self._builder is not None:
                self._builder.take(change)
        published = Entry.from_record(record).published
        if published is None or not self._history.is_known:
            return
        moment = published.timestamp()
        if not was_known and (self._since is None or moment > self._since):
            self._since = moment
        self._until = max(self._until, moment)
        if self._builder is None and self._since is not None and moment >= self._since:
            self._begin(self._since, None)

    def past(self) -> RecordedPast | None:
        """The span; None where the recording has nothing of it."""
        if self._builder is None:
            return None
        return self._builder.past(self._until, interruptions=self._history.interruptions)

    def _begin(self, since: float, change: ObjectChange | None) -> None:
        """Begin with the objects as they are, but for a change that is later."""
        objects = {of: dict(known) for of, known in self._history.objects.items()}
        if change is not None:
            key = key_of(change.after or change.before or {})
            if change.before is not None:
                objects[change.of][key] = change.before
            else:
                objects[change.of].pop(key, None)
        settings = self._history.tables[ManagerTable.SETTINGS].values()
        self._builder = PastBuilder(since, {of: known.values() for of, known in objects.items()}, settings)


def nominal_of(resource: Resource, manifest: Manifest) -> Mapping[FlavorResource, int]:
    """The nominal quota of a ClusterQueue or a Cohort; none where it cannot be read."""
    try:
        read = ClusterQueue if resource == CLUSTERQUEUES else Cohort
        return {key: limits.nominal for key, limits in read.from_manifest(manifest).limits.items()}
    except ValueError:
        return {}


def _differs(resource: Resource, before: Manifest | None, after: Manifest | None) -> bool:
    """Whether a change concerns a decision: most are of a status that only shows something."""
    if before is None or after is None:
        return True
    if resource == WORKERCLUSTERS:
        old, new = map(WorkerCluster.from_manifest, (before, after))
        return old.place != new.place
    return any(before.get(part) != after.get(part) for part in _PARTS) or any(
        before["metadata"].get(part) != after["metadata"].get(part) for part in _METADATA
    )
