"""What somebody asks to have been otherwise: quota, the room of clusters, whom queues may preempt, whole objects."""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal

import msgspec

from slicebus.kube.cache import key_of
from slicebus.kube.resources import (
    CLUSTERQUEUES,
    COHORTS,
    WORKERCLUSTERS,
    WORKLOADPRIORITYCLASSES,
    Resource,
)
from slicebus.proto.messages import Manifest
from slicebus.slices.api.quantities import amount, format_amount, parse_quantity


class AmountChange(msgspec.Struct, frozen=True, kw_only=True):
    """Another amount. One of its fields is set."""

    factor: Decimal | None = None
    more: Decimal | None = None
    exactly: Decimal | None = None

    def of(self, resource: str, before: str | int | float) -> str:
        """The quantity in place of another one; never below nothing."""
        if self.exactly is not None:
            return format_amount(resource, amount(resource, str(self.exactly)))
        if self.factor is not None:
            changed = int(amount(resource, before) * self.factor)
        else:
            changed = int(amount(resource, before)) + amount(resource, str(self.more or 0))
        return format_amount(resource, max(0, changed))


class QuotaChange(msgspec.Struct, frozen=True, kw_only=True):
    """Another nominal quota of a ClusterQueue or a Cohort."""

    text: str
    queue: str
    resource: str
    flavor: str = ""
    """Empty for all."""
    amount: AmountChange


class RoomChange(msgspec.Struct, frozen=True, kw_only=True):
    """Another capacity of a worker cluster."""

    text: str
    cluster: str
    resource: str = ""
    """Empty for all."""
    flavor: str = ""
    amount: AmountChange


class PreemptionChange(msgspec.Struct, frozen=True, kw_only=True):
    """Another preemption policy of a ClusterQueue."""

    text: str
    queue: str
    field: str
    policy: str


class PolicyEdit(msgspec.Struct, frozen=True, kw_only=True):
    """Whole objects of files. What changed of them later in the past is left out."""

    text: str
    edits: tuple[tuple[Resource, Manifest], ...]
    """As they are stored: with what the file does not name."""


Hypothetical = QuotaChange | RoomChange | PreemptionChange | PolicyEdit


def altered(resource: Resource, manifest: Manifest, changes: Iterable[Hypothetical]) -> Manifest:
    """An object as it would have been."""
    for change in changes:
        match change:
            case QuotaChange() if resource in (CLUSTERQUEUES, COHORTS) and _name(manifest) == change.queue:
                manifest = _with_quota(manifest, change)
            case RoomChange() if resource == WORKERCLUSTERS and _name(manifest) == change.cluster:
                manifest = _with_room(manifest, change)
            case PreemptionChange() if resource == CLUSTERQUEUES and _name(manifest) == change.queue:
                manifest = _with_preemption(manifest, change)
            case PolicyEdit():
                manifest = _with_edit(resource, manifest, change)
            case _:
                pass
    return manifest


def added(
    policies: Sequence[tuple[Resource, Manifest]], changes: Iterable[Hypothetical]
) -> list[tuple[Resource, Manifest]]:
    """The objects of files that nothing was in place of."""
    known = {(resource, key_of(manifest)) for resource, manifest in policies}
    edits = [edit for change in changes if isinstance(change, PolicyEdit) for edit in change.edits]
    return [(resource, manifest) for resource, manifest in edits if (resource, key_of(manifest)) not in known]


def priorities(changes: Iterable[Hypothetical]) -> Mapping[str, int]:
    """The values of the WorkloadPriorityClasses of files."""
    edits = [edit for change in changes if isinstance(change, PolicyEdit) for edit in change.edits]
    return {_name(manifest): manifest["value"] for resource, manifest in edits if resource == WORKLOADPRIORITYCLASSES}


def amount_change(text: str) -> AmountChange:
    """The change of `+20%`, `-50%`, `80%`, `+8`, `-2Gi` or `64`. Raises ValueError for anything else."""
    sign = text[:1] if text[:1] in "+-" else ""
    if text.endswith("%"):
        share = parse_quantity(text[len(sign) : -1]) / 100
        factor = 1 + share if sign == "+" else 1 - share if sign == "-" else share
        if factor < 0 or not text[len(sign) : -1][:1].isdigit():
            raise ValueError(f"less than nothing: {text}")
        return AmountChange(factor=factor)
    value = parse_quantity(text)
    return AmountChange(more=value) if sign else AmountChange(exactly=value)


def _name(manifest: Manifest) -> str:
    name: str = manifest["metadata"]["name"]
    return name


def _with_quota(manifest: Manifest, change: QuotaChange) -> Manifest:
    def resource_with(quota: Manifest) -> Manifest:
        if quota["name"] != change.resource:
            return quota
        return {**quota, "nominalQuota": change.amount.of(change.resource, quota["nominalQuota"])}

    def flavor_with(flavor: Manifest) -> Manifest:
        if change.flavor not in ("", flavor["name"]):
            return flavor
        return {**flavor, "resources": [resource_with(quota) for quota in flavor["resources"]]}

    spec = manifest.get("spec", {})
    groups = [
        {**group, "flavors": [flavor_with(flavor) for flavor in group["flavors"]]}
        for group in spec.get("resourceGroups", ())
    ]
    return {**manifest, "spec": {**spec, "resourceGroups": groups}}


def _with_room(manifest: Manifest, change: RoomChange) -> Manifest:
    status = manifest.get("status", {})
    capacity = {
        flavor: {
            resource: change.amount.of(resource, value)
            if change.flavor in ("", flavor) and change.resource in ("", resource)
            else value
            for resource, value in reported.items()
        }
        for flavor, reported in status.get("capacity", {}).items()
    }
    return {**manifest, "status": {**status, "capacity": capacity}}


def _with_preemption(manifest: Manifest, change: PreemptionChange) -> Manifest:
    spec = manifest.get("spec", {})
    before = spec.get("preemption") or {}
    policy: object = change.policy
    if change.field == "borrowWithinCohort":
        policy = {**(before.get(change.field) or {}), "policy": change.policy}
    return {**manifest, "spec": {**spec, "preemption": {**before, change.field: policy}}}


def _with_edit(resource: Resource, manifest: Manifest, change: PolicyEdit) -> Manifest:
    for edited, after in change.edits:
        if edited == resource and key_of(after) == key_of(manifest):
            status = {"status": manifest["status"]} if "status" in manifest else {}
            return {**after, **status}
    return manifest
