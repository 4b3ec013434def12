"""Says of every field of the definitions what becomes of it where slicebus admits: it is honored, or told.

A path is written as in `spec.resourceGroups[].flavors[].name`; `[]` stands for every entry of a list. What lies below a
field of the table belongs to it. A test compares the table with the definitions, so that no field is forgotten, and the
page `docs/fields.md` is made of both.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from slicebus.slices.api import kueue


class FieldUse(StrEnum):
    """What becomes of a field."""

    HONORED = "honored"
    """Decisions depend on it."""
    TOLD = "told"
    """Nothing depends on it, and the object says what happens instead."""
    DESCRIBES = "describes"
    """Nothing depends on it, in Kueue neither."""
    WRITTEN = "written"
    """slicebus writes it."""
    UNUSED = "unused"
    """A part of a status that slicebus neither writes nor reads."""


class Field(msgspec.Struct, frozen=True):
    """What becomes of one field."""

    use: FieldUse
    instead: str = ""
    """What happens instead, as a clause; only where it is told."""


Fields = Mapping[str, Field]
HONORED, DESCRIBES, WRITTEN, UNUSED = (
    Field(FieldUse.HONORED),
    Field(FieldUse.DESCRIBES),
    Field(FieldUse.WRITTEN),
    Field(FieldUse.UNUSED),
)
UNKNOWN: Final = "slicebus does not know it, and decides as if it were not there"
"""What happens instead of a field that Kueue's own definitions may have, and slicebus' have not."""


def _all(field: Field, *paths: str) -> dict[str, Field]:
    return dict.fromkeys(paths, field)


def _told(instead: str) -> Field:
    return Field(FieldUse.TOLD, instead)


def _below(path: str, names: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{path}.{name}" for name in names)


_ANY_NODES = "pods go to any nodes of their flavor, whatever their rack or block"
_QUOTA = (
    "spec.resourceGroups[].coveredResources[]",
    "spec.resourceGroups[].flavors[].name",
    *_below("spec.resourceGroups[].flavors[].resources[]", ("name", "nominalQuota", "borrowingLimit", "lendingLimit")),
)
_CONDITIONS = _below(
    "status.conditions[]", ("type", "status", "observedGeneration", "lastTransitionTime", "reason", "message")
)
_COUNTS = _below("status", ("pendingWorkloads", "reservingWorkloads", "admittedWorkloads"))
_USAGE = tuple(
    f"status.{usage}[].{name}"
    for usage in ("flavorsReservation", "flavorsUsage")
    for name in ("name", "resources[].name", "resources[].total", "resources[].borrowed")
)

FIELDS: Final[Mapping[str, Fields]] = {
    "ClusterQueue": {
        **_all(HONORED, *_QUOTA, "spec.cohortName", "spec.queueingStrategy", "spec.namespaceSelector"),
        **_all(HONORED, "spec.stopPolicy", "spec.fairSharing.weight"),
        **_all(HONORED, *_below("spec.preemption", ("withinClusterQueue", "reclaimWithinCohort"))),
        **_all(HONORED, *_below("spec.preemption.borrowWithinCohort", ("policy", "maxPriorityThreshold"))),
        **_all(HONORED, *_below("spec.flavorFungibility", ("whenCanBorrow", "whenCanPreempt", "preference"))),
        "spec.admissionChecksStrategy": _told("workloads are admitted without these checks"),
        "spec.admissionScope.admissionMode": HONORED,
        **_all(WRITTEN, *_CONDITIONS, *_COUNTS, *_USAGE, "status.fairSharing.weightedShare"),
    },
    "Cohort": {
        **_all(HONORED, "spec.parentName", *_QUOTA, "spec.fairSharing.weight"),
        "status": WRITTEN,
    },
    "LocalQueue": {
        **_all(HONORED, "spec.clusterQueue", "spec.stopPolicy"),
        "spec.fairSharing.weight": HONORED,
        **_all(WRITTEN, *_CONDITIONS, *_COUNTS, "status.flavorsReservation[]", "status.flavorsUsage[]"),
        **_all(WRITTEN, "status.fairSharing.weightedShare"),
        **_all(WRITTEN, *_below("status.fairSharing.admissionFairSharingStatus", ("consumedResources", "lastUpdate"))),
    },
    "ResourceFlavor": {
        **_all(HONORED, "spec.nodeLabels", *_below("spec.nodeTaints[]", ("key", "value", "effect"))),
        "spec.nodeTaints[].timeAdded": DESCRIBES,
        **_all(HONORED, *_below("spec.tolerations[]", ("key", "operator", "value", "effect", "tolerationSeconds"))),
        "spec.topologyName": _told(_ANY_NODES),
        "status": WRITTEN,
    },
    "WorkloadPriorityClass": {"value": HONORED, "description": DESCRIBES},
    "Workload": {
        **_all(HONORED, "spec.active", "spec.queueName", "spec.priority"),
        **_all(WRITTEN, *_below("spec.priorityClassRef", ("group", "kind", "name"))),
        "spec.maximumExecutionTimeSeconds": HONORED,
        **_all(HONORED, *_below("spec.podSets[]", ("name", "count", "template"))),
        "spec.podSets[].minCount": _told("it is admitted with all its pods, or waits"),
        "spec.podSets[].topologyRequest": _told(_ANY_NODES),
        **_all(WRITTEN, *_CONDITIONS, "status.clusterName", "status.admission.clusterQueue"),
        **_all(
            WRITTEN,
            *_below("status.admission.podSetAssignments[]", ("name", "flavors", "resourceUsage", "count")),
            *_below("status.reclaimablePods[]", ("name", "count")),
        ),
        **_all(UNUSED, "status.nominatedClusterNames[]", "status.admissionChecks[]", "status.requeueState"),
        **_all(UNUSED, "status.resourceRequests[]", "status.schedulingStats"),
        "status.accumulatedPastExecutionTimeSeconds": WRITTEN,
    },
    "WorkerCluster": {
        **_all(HONORED, *_below("spec", ("accepted", "cordoned", "drain", "brokerUser", "labels", "weight"))),
        **_all(HONORED, *_below("spec", ("priority", "capacity", "flavorCapacity", "namespaceSelector", "maxRoom"))),
        "spec.clusterQueues[]": HONORED,
        **_all(WRITTEN, *_CONDITIONS, *_below("status", ("lastHeartbeatTime", "epoch", "clusterUID", "agentVersion"))),
        **_all(WRITTEN, *_below("status.otherCluster", ("clusterUID", "lastSeenTime"))),
        **_all(WRITTEN, *_below("status", ("schemaVersion", "kubernetesVersion", "capacity", "used", "ours", "room"))),
        **_all(WRITTEN, *_below("status", ("fenceSeconds", "jobs", "lackingNamespaces", "schedulerBackends[]"))),
        **_all(WRITTEN, *_below("status", ("containerDefaults", "podOverheads", "policy"))),
        **_all(WRITTEN, *_below("status", ("lagSeconds", "outOfSync"))),
        **_all(WRITTEN, *_below("status.heldDeletes", ("id", "jobs", "unseen"))),
        "status.heldDeletesByShard": WRITTEN,
    },
}
"""Every field of slicebus' definitions, by kind."""

_OF_TOPOLOGIES = (
    "podset-required-topology",
    "podset-preferred-topology",
    "podset-unconstrained-topology",
    "podset-slice-required-topology",
    "podset-slice-required-topology-constraints",
    "podset-slice-size",
    "podset-group-name",
)
JOB_KEYS: Final[Fields] = {
    **_all(
        HONORED,
        kueue.QUEUE_NAME_LABEL,
        kueue.PRIORITY_CLASS_LABEL,
        kueue.ELASTIC_ANNOTATION,
        kueue.MAX_EXECUTION_TIME_LABEL,
        kueue.PARTIAL_PREEMPTION_ANNOTATION,
        kueue.SYNC_COMPLETIONS_ANNOTATION,
        # Without partial preemption it is refused with the job.
        kueue.MIN_PARALLELISM_ANNOTATION,
    ),
    **_all(WRITTEN, kueue.PREBUILT_NAME, kueue.SLICE_NAME_ANNOTATION, kueue.JOB_UID_LABEL, kueue.POD_SET_LABEL),
    **_all(WRITTEN, kueue.REPLICA_SIZES_ANNOTATION, kueue.RAYCLUSTER_GENERATION_ANNOTATION),
    f"{kueue.GROUP}/admission-gated-by": _told("it is admitted as soon as there is quota"),
    f"{kueue.GROUP}/priority-boost": _told("its priority is that of its class"),
    **_all(_told(_ANY_NODES), *(f"{kueue.GROUP}/{name}" for name in _OF_TOPOLOGIES)),
}
"""Kueue's labels and annotations on jobs and their pod templates."""
