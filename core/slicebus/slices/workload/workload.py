"""Reads a Workload as the domain sees it: one slice of a job's chain.

`Slice.from_manifest` reads what the API server holds. Nothing here writes. Fields that no decision needs stay in the
manifest.
"""

from collections.abc import Mapping
from typing import Annotated, Any, NewType, Self

import msgspec
from propcache.api import cached_property

from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.annotation_values import read_json
from slicebus.slices.api.fingerprints import content_hash
from slicebus.slices.api.kueue import Condition
from slicebus.slices.api.owners import job_uid_of
from slicebus.slices.api.quantities import amounts, format_amount
from slicebus.slices.workload import device_claims
from slicebus.slices.workload.avoided_clusters import avoided_now
from slicebus.slices.workload.elasticity import RIGID, Elasticity, in_whole
from slicebus.slices.workload.observed import Observed, observed_of
from slicebus.slices.workload.pod_sets import PodSet, observed_as, with_devices
from slicebus.slices.workload.reclaimed import Reclaimed

Manifest = dict[str, Any]
Counts = dict[str, int]
FlavorName = NewType("FlavorName", str)
SliceKey = NewType("SliceKey", str)
"""`namespace/name`, as in the replacement annotation."""
LocalQueueKey = tuple[str, str]
"""Namespace and name."""
_NOTHING = frozenset[str]()
"""One for all slices: an empty one takes 216 bytes."""
_OVER = (Condition.EVICTED, Condition.FINISHED)
_REPLICA_SIZES = msgspec.json.Decoder(dict[str, Annotated[int, msgspec.Meta(ge=1)]])


class PodSetAssignment(msgspec.Struct, frozen=True):
    """The admission of one pod set. `usage` is that of all its pods, as amounts, at the time of admission."""

    name: str
    flavors: dict[str, FlavorName]
    """By resource; empty for a pod set that has had no pods yet."""
    usage: dict[str, int]
    count: int

    @property
    def of_one(self) -> dict[str, int]:
        """What one of its pods was admitted with; empty without pods."""
        return {resource: -(-value // self.count) for resource, value in self.usage.items()} if self.count else {}

    def at_most(self, count: int) -> "PodSetAssignment":
        """The assignment of at most so many of its pods."""
        if count >= self.count:
            return self
        usage = {resource: value * count // self.count for resource, value in self.usage.items()}
        return PodSetAssignment(name=self.name, flavors=self.flavors, usage=usage, count=count)

    def to_manifest(self) -> Manifest:
        """An entry of a Workload's `status.admission.podSetAssignments`."""
        return {
            "name": self.name,
            "flavors": dict(self.flavors),
            "resourceUsage": {resource: format_amount(resource, value) for resource, value in self.usage.items()},
            "count": self.count,
        }


class Admission(msgspec.Struct, frozen=True, dict=True):
    """Quota that a slice holds."""

    cluster_queue: str
    pod_sets: tuple[PodSetAssignment, ...]

    @property
    def counts(self) -> Counts:
        """Pods by pod set, as admitted."""
        return {assignment.name: assignment.count for assignment in self.pod_sets}

    @cached_property
    def flavors_hash(self) -> str:
        """A hash of the flavors by pod set and resource."""
        return content_hash({assignment.name: assignment.flavors for assignment in self.pod_sets})

    def flavors_of(self, pod_set: str) -> Mapping[str, FlavorName]:
        """The flavors of one pod set by resource; empty for one that was not admitted."""
        return next((assignment.flavors for assignment in self.pod_sets if assignment.name == pod_set), {})

    def is_placed(self, pod_set: str) -> bool:
        """Whether it says where a pod set runs. It does not for a pod set that has had no pods yet."""
        return any(
            assignment.name == pod_set and (assignment.count > 0 or assignment.flavors) for assignment in self.pod_sets
        )

    def within(self, counts: Mapping[str, int]) -> "Admission":
        """The admission of at most so many pods of each pod set; a pod set without a count keeps its own."""
        pod_sets = [assignment.at_most(counts.get(assignment.name, assignment.count)) for assignment in self.pod_sets]
        return Admission(cluster_queue=self.cluster_queue, pod_sets=tuple(pod_sets))

    def to_manifest(self) -> Manifest:
        """A Workload's `status.admission`."""
        return {
            "clusterQueue": self.cluster_queue,
            "podSetAssignments": [assignment.to_manifest() for assignment in self.pod_sets],
        }

    @classmethod
    def from_manifest(cls, admission: Manifest) -> Self:
        """A Workload's `status.admission`."""
        return cls(
            cluster_queue=admission["clusterQueue"],
            pod_sets=tuple(
                PodSetAssignment(
                    name=assignment.get("name", "main"),
                    flavors={resource: FlavorName(name) for resource, name in assignment.get("flavors", {}).items()},
                    usage=amounts(assignment.get("resourceUsage", {})),
                    count=assignment.get("count", 0),
                )
                for assignment in admission.get("podSetAssignments", ())
            ),
        )


class Slice(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One Workload. Slices of one job form a chain by `job_uid`."""

    namespace: str
    name: str
    uid: str
    created: str
    """RFC 3339, so that text order is time order."""
    job_uid: str
    queue: str
    priority: int
    active: bool
    pod_sets: tuple[PodSet, ...]
    replaces: SliceKey | None
    chain: str
    """The name of the chain's first slice."""
    admission: Admission | None
    admitted: bool
    """Whether it has quota, and is neither evicted nor finished. The condition `Admitted` comes with the quota. Where a
    Kueue admits, it comes when every check is ready."""
    evicted: bool
    finished: bool
    deleting: bool
    cluster: str | None
    reclaimable: Counts = {}
    """Pods by pod set that have ended and in whose place none comes (`status.reclaimablePods`): they use no quota."""
    elastic: bool = True
    """Whether its job may be resized while it has quota."""
    partial: bool = False
    """Whether a replacement may be admitted with fewer pods than it asks for. One that waits for what was taken back
    may."""
    replica_sizes: dict[str, int] = {}
    """How many pods of a pod set are admitted together, where that is more than one."""
    cluster_selector: str = ""
    """The job's label selector of the clusters that it may run on; empty for all."""
    scheduler: str = ""
    """The scheduler backend that its job chooses; empty for that of the cluster."""
    avoids: frozenset[str] = frozenset()
    """The clusters that it does not go to now: its pods did not get ready there."""
    conditions: dict[str, Manifest]
    """By type."""
    observed: Observed | None = None
    """The pods that are charged for more than was admitted."""
    elasticity: Elasticity = RIGID
    """What its job says of its size."""
    reclaimed: Reclaimed | None = None
    """The pods that were taken back from its job."""
    queued_since: str = ""
    """When its job was first admitted, RFC 3339, where it waits for what was taken back from that; else empty."""

    grown_at: str = ""
    """When its job was last given more than somebody asked for while this slice had its quota, RFC 3339; or empty."""

    @cached_property
    def key(self) -> SliceKey:
        """`namespace/name`."""
        return SliceKey(f"{self.namespace}/{self.name}")

    @property
    def local_queue(self) -> LocalQueueKey:
        """The LocalQueue that it names, which may not exist."""
        return self.namespace, self.queue

    @cached_property
    def chain_id(self) -> str:
        """The same for all slices of one job: `namespace/UID`, so that no slice joins a chain of another namespace.

        A Workload without a job is a chain of its own.
        """
        return chain_id(self.namespace, self.job_uid or self.uid)

    @cached_property
    def counts(self) -> Counts:
        """Pods by pod set, as in the spec."""
        return {pod_set.name: pod_set.count for pod_set in self.pod_sets}

    @cached_property
    def unfinished_counts(self) -> Counts:
        """Pods by pod set, as in the spec, without those that are reclaimable."""
        return {name: max(0, count - self.reclaimable.get(name, 0)) for name, count in self.counts.items()}

    @cached_property
    def granted(self) -> Counts:
        """Pods by pod set that may run: min(admitted, spec), without reclaimable ones; empty while nothing is
        admitted."""
        return self.held_counts if self.admitted else {}

    @cached_property
    def held_counts(self) -> Counts:
        """Pods by pod set that it holds quota for, also while it is evicted; empty without an admission."""
        if self.admission is None:
            return {}
        wanted = self.unfinished_counts
        return {name: min(count, wanted.get(name, 0)) for name, count in self.admission.counts.items()}

    @cached_property
    def shrinks_to(self) -> Counts | None:
        """The pods by pod set that are left of those that it holds quota for when those are gone that were taken back;
        None where none are to go."""
        return self.reclaimed.left_of(self.held_counts) if self.reclaimed is not None and self.keeps_quota else None

    @cached_property
    def asked_counts(self) -> Counts | None:
        """The pods by pod set that it holds quota for without the opportunistic ones, in whole replicas; None where it
        has none of those."""
        asked = self.reclaimed.asked if self.reclaimed is not None and self.keeps_quota else {}
        kept = {
            name: min(held, in_whole(asked.get(name, held), self.replica_sizes.get(name, 1)))
            for name, held in self.held_counts.items()
        }
        return kept if asked and kept != self.held_counts else None

    @property
    def grows_unasked(self) -> bool:
        """Whether it waits for quota that nobody else wants, for more pods than somebody asked for."""
        is_waiting = self.admission is None and self.replaces is not None and not (self.evicted or self.queued_since)
        return is_waiting and self.reclaimed is not None and bool(self.reclaimed.asked)

    @property
    def restores(self) -> bool:
        """Whether it waits for what was taken back from its job, which runs."""
        return bool(self.queued_since) and self.admission is None and not self.evicted

    @property
    def ranked_since(self) -> str:
        """The time by which it is ranked among others of its priority, RFC 3339."""
        return self.queued_since or self.created

    @property
    def evicting(self) -> bool:
        """Whether it is evicted and still holds its quota: its worker may have pods of it left."""
        return self.evicted and self.admission is not None and not self.finished

    @property
    def waits_for_pods(self) -> bool:
        """Whether its job has ended while pods of it run on: it is charged for those."""
        return self.conditions.get(api_names.PODS_GONE_CONDITION, {}).get("status") == "False"

    @property
    def lacks_quota(self) -> bool:
        """Whether it is unfinished and has no quota."""
        return self.admission is None and not (self.finished or self.deleting)

    @property
    def keeps_quota(self) -> bool:
        """Whether it holds quota, and nothing takes that away yet."""
        return self.admission is not None and not (self.finished or self.evicted or self.deleting)

    @property
    def pending(self) -> bool:
        """Whether it wants quota and has none. After its eviction it does again."""
        return self.active and self.lacks_quota

    @property
    def deactivated(self) -> bool:
        """Whether it would be pending if it were active."""
        return not self.active and self.lacks_quota

    def at_most(self, counts: Mapping[str, int]) -> Self:
        """The slice as it is when it holds quota for at most so many pods of each pod set."""
        pod_sets = tuple(
            msgspec.structs.replace(pods, count=min(pods.count, counts[pods.name] + self.reclaimable.get(pods.name, 0)))
            if pods.name in counts
            else pods
            for pods in self.pod_sets
        )
        return msgspec.structs.replace(self, pod_sets=pod_sets)

    def with_observed(self, observed: Observed | None) -> Self:
        """The slice with other observed pods."""
        pod_sets = observed_as(observed, self.pod_sets)
        return msgspec.structs.replace(self, pod_sets=pod_sets, observed=observed)

    def without_observed(self) -> Self:
        """The slice as it was admitted, whatever its pods request."""
        return self.with_observed(None) if self.observed is not None else self

    def condition(self, type: Condition) -> bool:
        """Whether the condition of that type is True."""
        return self.conditions.get(type, {}).get("status") == "True"

    @classmethod
    def from_manifest(
        cls, manifest: Manifest, *, pod_sets: tuple[PodSet, ...] = (), admission: Admission | None = None
    ) -> Self:
        """The slice of a Workload. Raises ValueError for a pod request that is not a quantity.

        `pod_sets` and `admission` spare reading those, where the caller has them of this very manifest.
        """
        metadata, spec, status = manifest["metadata"], manifest.get("spec", {}), manifest.get("status", {})
        annotations = metadata.get("annotations", {})
        conditions = {condition["type"]: condition for condition in status.get("conditions", ())}
        cluster = annotations.get(api_names.CLUSTER_ANNOTATION, status.get("clusterName"))
        observed = observed_of(annotations, conditions, cluster=cluster)
        true = {type for type, condition in conditions.items() if condition.get("status") == "True"}
        queued_since = annotations.get(api_names.QUEUED_SINCE_ANNOTATION, "")
        pods = with_devices(
            device_claims.from_annotation(annotations.get(api_names.DEVICES_ANNOTATION)),
            observed_as(observed, pod_sets or map(PodSet.from_manifest, spec.get("podSets", ()))),
        )
        return cls(
            namespace=metadata["namespace"],
            name=metadata["name"],
            uid=metadata.get("uid", ""),
            created=metadata.get("creationTimestamp", ""),
            job_uid=job_uid_of(manifest),
            queue=spec.get("queueName", ""),
            priority=spec.get("priority", 0),
            active=spec.get("active", True),
            pod_sets=pods,
            replaces=annotations.get(kueue.REPLACEMENT_FOR_ANNOTATION),
            chain=annotations.get(kueue.SLICE_NAME_ANNOTATION, metadata["name"]),
            admission=admission or (Admission.from_manifest(status["admission"]) if status.get("admission") else None),
            admitted=Condition.QUOTA_RESERVED in true and true.isdisjoint(_OVER),
            evicted=Condition.EVICTED in true,
            finished=Condition.FINISHED in true,
            deleting="deletionTimestamp" in metadata,
            cluster=cluster,
            reclaimable={entry["name"]: entry["count"] for entry in status.get("reclaimablePods") or ()},
            elastic=annotations.get(kueue.ELASTIC_ANNOTATION) == "true",
            partial=bool(queued_since) or annotations.get(api_names.PARTIAL_SCALE_UP_ANNOTATION) == "true",
            replica_sizes=read_json(annotations.get(api_names.REPLICA_SIZES_ANNOTATION), _REPLICA_SIZES) or {},
            cluster_selector=annotations.get(api_names.CLUSTER_SELECTOR_ANNOTATION, ""),
            scheduler=annotations.get(api_names.SCHEDULER_LABEL, ""),
            avoids=avoided_now(manifest) or _NOTHING,
            conditions=conditions,
            observed=observed,
            elasticity=Elasticity.from_annotations(annotations, {pod_set.name: pod_set.count for pod_set in pods}),
            reclaimed=Reclaimed.from_annotation(annotations.get(api_names.RECLAIMED_ANNOTATION)),
            queued_since=queued_since,
            grown_at=annotations.get(api_names.GROWN_AT_ANNOTATION, ""),
        )

    @cached_property
    def admitted_usage(self) -> Mapping[tuple[FlavorName, str], int]:
        """What this slice was admitted with and has not given back, by (flavor, resource): per pod set min(admitted
        count, spec count without reclaimable pods) times one pod's requests."""
        used: dict[tuple[FlavorName, str], int] = {}
        if self.admission is None or self.finished:
            return used
        for assignment in self.admission.within(self.unfinished_counts).pod_sets:
            for resource, flavor in assignment.flavors.items():
                value = assignment.usage.get(resource, 0) if assignment.count else 0
                used[flavor, resource] = used.get((flavor, resource), 0) + value
        return used

    @cached_property
    def usage(self) -> Mapping[tuple[FlavorName, str], int]:
        """What this slice holds of its ClusterQueue's quota, by (flavor, resource): what it was admitted with, or what
        its pods request where they run, whichever is more."""
        if self.admission is None or self.finished or self.observed is None:
            return self.admitted_usage
        used = dict(self.admitted_usage)
        assignments = {one.name: one for one in self.admission.within(self.unfinished_counts).pod_sets}
        for name, pods in self.observed.pod_sets.items():
            assignment = assignments.get(name) or PodSetAssignment(name=name, flavors={}, usage={}, count=0)
            for resource, flavor in (pods.flavors | assignment.flavors).items():
                admitted = assignment.usage.get(resource, 0) if assignment.count else 0
                each = max(pods.requests.get(resource, 0), assignment.of_one.get(resource, 0))
                key = FlavorName(flavor), resource
                more = max(assignment.count, pods.count) * each - admitted
                if more > 0:
                    used[key] = used.get(key, 0) + more
        return used

    @property
    def beyond_admission(self) -> Mapping[tuple[FlavorName, str], int]:
        """What its pods request beyond what it was admitted with, by (flavor, resource): the rest of `usage`. Their
        cluster reports that as used by others."""
        admitted = self.admitted_usage
        return {key: more for key, amount in self.usage.items() if (more := amount - admitted.get(key, 0)) > 0}


def chain_id(namespace: str, uid: str) -> str:
    """The chain of a job by its UID."""
    return f"{namespace}/{uid}"
