"""Checks whether pods can run on the nodes of a flavor."""

from collections.abc import Iterable, Mapping
from typing import Any

from slicebus.slices.api.selectors import matches
from slicebus.slices.quota.quota import ResourceFlavor, ResourceGroup
from slicebus.slices.workload.pod_sets import PodSet

Manifest = dict[str, Any]
_FORBIDDING = ("NoSchedule", "NoExecute")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def unsuitable(
    pod_set: PodSet, flavor: ResourceFlavor, group: ResourceGroup, flavors: Mapping[str, ResourceFlavor]
) -> str | None:
    """Why the pods cannot run on the flavor's nodes; None when they can."""
    spec = pod_set.template.get("spec", {})
    tolerations = [*(spec.get("tolerations") or ()), *flavor.tolerations]
    for taint in flavor.taints:
        if forbids(taint, tolerations):
            return f"untolerated taint {taint['key']} in flavor {flavor.name}"
    keys = {key for quota in group.flavors if quota.name in flavors for key in flavors[quota.name].node_labels}
    if not _selects(spec, flavor.node_labels, keys):
        return f"flavor {flavor.name} doesn't match node affinity"
    return None


def node_choice(spec: Manifest) -> Manifest:
    """What of a PodSpec decides on which nodes, and so in which flavors, its pods can run."""
    node_affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    choice = {name: spec.get(name) for name in ("nodeSelector", "tolerations")} | {
        _REQUIRED: node_affinity.get(_REQUIRED)
    }
    return {name: value for name, value in choice.items() if value}


def forbids(taint: Manifest, tolerations: Iterable[Manifest]) -> bool:
    """Whether a taint keeps pods with these tolerations off its node."""
    return taint.get("effect") in _FORBIDDING and not any(_tolerates(taint, entry) for entry in tolerations)


def _tolerates(taint: Manifest, toleration: Manifest) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("key") not in (None, "", taint["key"]):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(toleration.get("key")) and (toleration.get("value") or "") == taint.get("value", "")


def _selects(spec: Manifest, labels: Mapping[str, str], keys: Iterable[str]) -> bool:
    """Whether node selector and required affinity allow these labels. Only keys of the flavors count."""
    known = set(keys)
    selector = {key: value for key, value in spec.get("nodeSelector", {}).items() if key in known}
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    affinity = spec.get("affinity", {}).get("nodeAffinity", {}).get(_REQUIRED)
    terms = (affinity or {}).get("nodeSelectorTerms", ())
    return not terms or any(
        all(matches(entry, labels) for entry in term.get("matchExpressions", ()) if entry["key"] in known)
        for term in terms
    )
