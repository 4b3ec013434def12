"""Builds slices, queues and snapshots with only the fields that a test needs."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from slicebus.slices.admission.cycle import Admit, cycle
from slicebus.slices.admission.snapshot import Snapshot
from slicebus.slices.api.quantities import add
from slicebus.slices.placement.fleet import Cluster
from slicebus.slices.quota.holdings import Part
from slicebus.slices.quota.ledger import Ledger
from slicebus.slices.quota.quota import ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Usage, holders, usage_by_chain
from slicebus.slices.workload.pod_sets import PodSet
from slicebus.slices.workload.workload import Admission, FlavorName, PodSetAssignment, Slice, SliceKey

Manifest = dict[str, Any]

Quota = str | tuple[str, int | None, int | None]
"""The nominal quota, or that with the most to borrow and the most to lend."""
CPU = {"cpu": 1000}
"""One pod's request: a core."""
WORKER = Cluster(name="worker", accepted=True, cordoned=False, connected=True)


def a_pod_set(name: str = "main", count: int = 1, requests: dict[str, int] = CPU, **spec: Any) -> PodSet:
    """Pods whose PodSpec has these fields."""
    return PodSet(name=name, count=count, requests=requests, template={"spec": spec})


def a_slice(name: str, count: int = 1, **changes: Any) -> Slice:
    """A pending slice of job `j`, with `count` pods of one core. Names are in the order of creation."""
    return msgspec.structs.replace(
        Slice(
            namespace="team",
            name=name,
            uid=f"uid-{name}",
            created="2026-01-01T00:00:00Z",
            job_uid="j",
            queue="lq",
            priority=0,
            active=True,
            pod_sets=(a_pod_set(count=count),),
            replaces=None,
            chain=name,
            admission=None,
            admitted=False,
            evicted=False,
            finished=False,
            deleting=False,
            cluster=None,
            conditions={},
        ),
        **changes,
    )


def admitted(slice: Slice, *, flavor: str = "default", queue: str = "cq", cluster: str | None = "worker") -> Slice:
    """The slice with its quota, all of one flavor."""
    assignments = tuple(
        PodSetAssignment(
            name=pod_set.name,
            flavors=dict.fromkeys(pod_set.requests, FlavorName(flavor)),
            usage={resource: value * pod_set.count for resource, value in pod_set.requests.items()},
            count=pod_set.count,
        )
        for pod_set in slice.pod_sets
    )
    given = Admission(cluster_queue=queue, pod_sets=assignments)
    return msgspec.structs.replace(slice, admission=given, admitted=True, cluster=cluster)


def replacement(old: Slice, name: str, count: int, **changes: Any) -> Slice:
    """A pending slice that is to take over from `old`."""
    return a_slice(name, count, **({"replaces": old.key, "chain": old.chain, "job_uid": old.job_uid} | changes))


def with_counts(slice: Slice, **counts: int) -> Slice:
    """The slice as it is after its counts were changed in place."""
    pod_sets = tuple(msgspec.structs.replace(p, count=counts.get(p.name, p.count)) for p in slice.pod_sets)
    return msgspec.structs.replace(slice, pod_sets=pod_sets)


def a_queue(name: str = "cq", quotas: Mapping[str, Mapping[str, Quota]] | None = None, **spec: Any) -> ClusterQueue:
    """A ClusterQueue with one resource group: quotas by flavor and resource, ten cores unless told."""
    quotas = quotas or {"default": {"cpu": "10"}}
    flavors = [
        {"name": flavor, "resources": [_quota(resource, quota) for resource, quota in nominal.items()]}
        for flavor, nominal in quotas.items()
    ]
    covered = list(dict.fromkeys(resource for nominal in quotas.values() for resource in nominal))
    groups = [{"coveredResources": covered, "flavors": flavors}]
    return ClusterQueue.from_manifest(
        {"metadata": {"name": name}, "spec": {"namespaceSelector": {}, "resourceGroups": groups} | spec}
    )


def _quota(resource: str, quota: Quota) -> Manifest:
    nominal, borrowing, lending = (quota, None, None) if isinstance(quota, str) else quota
    limits = {"borrowingLimit": borrowing, "lendingLimit": lending}
    return {"name": resource, "nominalQuota": nominal} | {n: v for n, v in limits.items() if v is not None}


def a_flavor(name: str = "default", **fields: Any) -> ResourceFlavor:
    return ResourceFlavor(name=FlavorName(name), **fields)


def snapshot(
    *slices: Slice,
    queues: Iterable[ClusterQueue] = (),
    cohorts: Iterable[Cohort] = (),
    flavors: Iterable[ResourceFlavor] | None = None,
    locals: Iterable[LocalQueue] | None = None,
    clusters: Iterable[Cluster] = (WORKER,),
) -> Snapshot:
    """Slices in namespace `team`, whose LocalQueue `lq` stands for the first queue; every flavor that a queue names."""
    cluster_queues = {queue.name: queue for queue in queues or (a_queue(),)}
    named = dict.fromkeys(flavor for queue in cluster_queues.values() for flavor, _ in queue.nominal)
    known = [a_flavor(name) for name in named] if flavors is None else flavors
    first = LocalQueue(namespace="team", name="lq", cluster_queue=next(iter(cluster_queues)), held=False)
    return Snapshot(
        cluster_queues=cluster_queues,
        cohorts=tuple(cohorts),
        local_queues={queue.key: queue for queue in ((first,) if locals is None else locals)},
        flavors={flavor.name: flavor for flavor in known},
        namespaces={"team": {"kubernetes.io/metadata.name": "team"}},
        part=Part.of(slices),
        clusters=tuple(clusters),
        load=loads(slices),
        granted=grants(slices),
    )


def ledger_of(*slices: Slice) -> Ledger:
    ledger = Ledger()
    for slice in slices:
        ledger.put(slice)
    return ledger


def loads(slices: Iterable[Slice]) -> dict[str, int]:
    """Chains by worker cluster."""
    return Counter(slice.cluster for slice in holders(slices).values() if slice.cluster)


def grants(slices: Iterable[Slice]) -> dict[str, Usage]:
    """What chains were admitted with, by worker cluster."""
    clusters = {chain: slice.cluster for chain, slice in holders(slices).items() if slice.cluster}
    granted: dict[str, Usage] = {}
    for (_, chain), usage in usage_by_chain(slice.without_observed() for slice in slices if not slice.finished).items():
        if chain in clusters:
            granted[clusters[chain]] = add(granted.get(clusters[chain], {}), usage)
    return granted


def apply(slices: Iterable[Slice], *admits: Admit) -> list[Slice]:
    """The slices after these admissions were written."""
    by_key: dict[SliceKey, Admit] = {admit.key: admit for admit in admits}
    return [
        msgspec.structs.replace(
            slice,
            admission=admit.admission,
            admitted=True,
            evicted=False,
            cluster=admit.cluster,
            conditions={type: found for type, found in slice.conditions.items() if type != "Preempted"},
        )
        if (admit := by_key.get(slice.key))
        else slice
        for slice in slices
    ]


def admits(world: Snapshot) -> list[Admit]:
    """What a cycle admits."""
    return [decision for decision in cycle(world) if isinstance(decision, Admit)]
