"""The quota of a run: three queues in two cohorts, two flavors, and how users change them."""

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

from slicebus.cli.demo import objects
from slicebus.kube.resources import (
    CLUSTERQUEUES,
    COHORTS,
    LOCALQUEUES,
    RESOURCEFLAVORS,
    WORKLOADPRIORITYCLASSES,
    Resource,
)

Manifest = dict[str, Any]

QUEUES = {"batch": "team", "research": "team", "guest": "all"}
"""Their cohorts."""
COHORT_PARENTS = {"team": "all", "all": ""}
FLAVORS = ("reserved", "spot")
PRIORITIES = {"low": -10, "high": 10}
_FLAVOR_LABEL = "simulation/flavor"
_MEMORY = "64Gi"
"""More than anybody needs."""
_FIRST_CPU = {
    "batch": {"reserved": 6, "spot": 4},
    "research": {"reserved": 3, "spot": 0},
    "guest": {"reserved": 1, "spot": 4},
    "team": {"reserved": 0, "spot": 1},
    "all": {"reserved": 1, "spot": 0},
}


def at_first(*, apart: bool = False) -> Iterator[tuple[Resource, Manifest]]:
    """Everything that a run begins with. `apart`: no cohort has a parent, so that there are two trees."""
    for flavor in FLAVORS:
        yield RESOURCEFLAVORS, _named(RESOURCEFLAVORS, flavor, {"spec": {"nodeLabels": node_labels(flavor)}})
    for cohort, parent in COHORT_PARENTS.items():
        yield (
            COHORTS,
            _named(
                COHORTS, cohort, {"spec": _groups(cohort) | ({"parentName": parent} if parent and not apart else {})}
            ),
        )
    for queue, cohort in QUEUES.items():
        spec = _groups(queue) | {"namespaceSelector": {}, "cohortName": cohort}
        yield CLUSTERQUEUES, _named(CLUSTERQUEUES, queue, {"spec": spec})
        yield LOCALQUEUES, _local(queue)
    for name, value in PRIORITIES.items():
        yield WORKLOADPRIORITYCLASSES, _named(WORKLOADPRIORITYCLASSES, name, {"value": value})


def own_queue(name: str, flavor: str, *, cpu: int) -> Iterator[tuple[Resource, Manifest]]:
    """A queue of its own, without a cohort: within it jobs take quota from those of a lower priority."""
    group = {"coveredResources": ["cpu", "memory"], "flavors": [_flavor(flavor, {"nominalQuota": cpu})]}
    preemption = {"withinClusterQueue": "LowerPriority"}
    spec = {"resourceGroups": [group], "namespaceSelector": {}, "preemption": preemption}
    yield CLUSTERQUEUES, _named(CLUSTERQUEUES, name, {"spec": spec})
    yield LOCALQUEUES, _local(name)


def resource_of(name: str) -> Resource:
    """Whether a name is that of a queue or of a cohort."""
    return CLUSTERQUEUES if name in QUEUES else COHORTS


def with_quota(manifest: Manifest, flavor: str, quota: Mapping[str, int | None]) -> Manifest:
    """A merge patch of a queue or a cohort that gives a flavor other limits."""
    groups = [
        group | {"flavors": [one if one["name"] != flavor else _flavor(flavor, quota) for one in group["flavors"]]}
        for group in manifest["spec"]["resourceGroups"]
    ]
    return {"spec": {"resourceGroups": groups}}


def policy_of(random: Random, *, never: Sequence[str] = ("Never",)) -> Manifest:
    """Whom a queue may preempt, and what ends its search for a flavor: that it can borrow, or preempt, or neither."""
    reclaim = random.choice((*never, "LowerPriority", "Any", "Any"))
    borrow = "Never" if reclaim == "Never" else random.choice(("Never", "LowerPriority"))
    ends_at = random.choice(("Borrow", "Borrow", "Preempt", ""))
    flavors = {f"whenCan{at}": "MayStopSearch" if at == ends_at else "TryNextFlavor" for at in ("Borrow", "Preempt")}
    within = random.choice((*never, "LowerPriority", *["LowerOrNewerEqualPriority"] * 3))
    preemption = {
        "withinClusterQueue": within,
        "reclaimWithinCohort": reclaim,
        "borrowWithinCohort": {"policy": borrow},
    }
    return {"preemption": preemption, "flavorFungibility": flavors}


def node_labels(flavor: str) -> dict[str, str]:
    """Of the flavor's nodes."""
    return {_FLAVOR_LABEL: flavor}


def flavor_of(labels: Mapping[str, str]) -> str:
    """The flavor whose nodes have these labels; empty for none."""
    return labels.get(_FLAVOR_LABEL, "")


def _local(queue: str) -> Manifest:
    local = _named(LOCALQUEUES, queue, {"spec": {"clusterQueue": queue}})
    local["metadata"]["namespace"] = objects.NAMESPACE
    return local


def _groups(name: str) -> Manifest:
    flavors = [_flavor(flavor, {"nominalQuota": cpu}) for flavor, cpu in _FIRST_CPU[name].items()]
    return {"resourceGroups": [{"coveredResources": ["cpu", "memory"], "flavors": flavors}]}


def _flavor(name: str, quota: Mapping[str, int | None]) -> Manifest:
    limits = {limit: str(cpu) for limit, cpu in quota.items() if cpu is not None}
    return {"name": name, "resources": [{"name": "cpu"} | limits, {"name": "memory", "nominalQuota": _MEMORY}]}


def _named(resource: Resource, name: str, body: Manifest) -> Manifest:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}} | body
