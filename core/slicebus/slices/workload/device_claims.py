"""Reads the claims of devices that pods have by dynamic resource allocation, and what a quota is charged for them.

A claim names a DeviceClass, often by a ResourceClaimTemplate, and no amount of any resource. A mapping gives classes
the name of a resource that ClusterQueues cover, as Kueue's `deviceClassMappings` does. Devices that a DeviceClass gives
an extended resource are requested by that resource's name instead, and charged without a mapping.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any

import msgspec

from slicebus.slices.api.annotation_values import read_json
from slicebus.slices.api.quantities import amount

Manifest = dict[str, Any]
Devices = dict[str, dict[str, Annotated[int, msgspec.Meta(ge=0)]]]
"""By pod set: how many devices one pod claims, by resource, as amounts."""

REASON = "DeviceClaimsNotCharged"
"""The reason of a job that is refused for its claims."""
_EXACT_COUNT = "ExactCount"
_UNCOUNTED = ("adminAccess", "firstAvailable")


class DeviceClassMapping(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The resource by which the devices of some classes are charged."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=317)]
    """Of the resource, as ClusterQueues cover it."""
    device_class_names: Annotated[tuple[Annotated[str, msgspec.Meta(min_length=1)], ...], msgspec.Meta(min_length=1)]


class UnchargedClaimError(ValueError):
    """A claim that cannot be charged; the text is a clause about it."""


def resources_of(mappings: Iterable[DeviceClassMapping]) -> dict[str, str]:
    """The resource of each DeviceClass. Raises ValueError for a class with two."""
    resources: dict[str, str] = {}
    for mapping in mappings:
        for device_class in mapping.device_class_names:
            if (other := resources.setdefault(device_class, mapping.name)) != mapping.name:
                raise ValueError(f"DeviceClass {device_class} is mapped to {other} and to {mapping.name}")
    return resources


def claims_of(spec: Manifest) -> list[str]:
    """The names of the claims of a PodSpec and of its containers, sorted. Any manifest may be given."""
    containers = (one for field in ("containers", "initContainers") for one in _entries(spec.get(field)))
    resources = [spec.get("resources"), *(container.get("resources") for container in containers)]
    of_containers = (entry for one in resources if isinstance(one, dict) for entry in _entries(one.get("claims")))
    return sorted({str(entry.get("name", "")) for entry in (*_entries(spec.get("resourceClaims")), *of_containers)})


def sources_of(spec: Manifest) -> Counter[str]:
    """From what each claim of a PodSpec is, its ResourceClaimTemplate or its ResourceClaim, in words, and how often.
    Any manifest may be given."""
    kinds = {"resourceClaimTemplateName": "ResourceClaimTemplate", "resourceClaimName": "ResourceClaim"}
    entries = _entries(spec.get("resourceClaims"))
    return Counter(
        next((f"{kind} {entry[field]}" for field, kind in kinds.items() if entry.get(field)), "another source")
        for entry in entries
    )


def why_not_charged(claims: list[str]) -> str:
    """Why pods with these claims get no quota, as a clause."""
    named = ", ".join(claims)
    return (
        f"claims devices that no quota covers: {named}. Request them as resources, as device plugins and DeviceClasses "
        "with an extendedResourceName offer them, or map their DeviceClasses (deviceClassMappings)"
    )


def devices_of(
    spec: Manifest, resources: Mapping[str, str], template_of: Callable[[str], Manifest | None]
) -> dict[str, int]:
    """How many devices one pod of a PodSpec claims, by the resource of their classes. Any manifest may be given.

    `template_of` gives a ResourceClaimTemplate of the pod's namespace by its name. Raises UnchargedClaimError where a
    claim is not counted: it is shared by pods, its template is not there, its class has no resource, or it takes
    devices without a number of them.
    """
    total: dict[str, int] = {}
    claims = {str(entry.get("name", "")): entry for entry in _entries(spec.get("resourceClaims"))}
    for name in claims_of(spec):
        source = claims.get(name, {}).get("resourceClaimTemplateName")
        if not isinstance(source, str):
            raise UnchargedClaimError(f"claim {name} has no ResourceClaimTemplate; shared claims are not counted")
        template = template_of(source)
        if template is None:
            raise UnchargedClaimError(f"there is no ResourceClaimTemplate {source} for claim {name}")
        for request in _requests(template):
            device_class, count = _counted(request, source)
            if (resource := resources.get(device_class)) is None:
                raise UnchargedClaimError(f"DeviceClass {device_class} of ResourceClaimTemplate {source} is not mapped")
            total[resource] = total.get(resource, 0) + amount(resource, str(count))
    return total


def to_annotation(devices: Devices) -> str:
    """The annotation's value, as JSON."""
    return msgspec.json.encode(devices, order="sorted").decode()


def from_annotation(value: str | None) -> Devices:
    """The devices of an annotation; empty where there is none, or where it is unreadable."""
    return read_json(value, _DEVICES) or {}


_DEVICES = msgspec.json.Decoder(Devices)


def _requests(template: Manifest) -> Iterator[Manifest]:
    """The requests of a ResourceClaimTemplate."""
    node: object = template
    for field in ("spec", "spec", "devices"):
        node = node.get(field) if isinstance(node, dict) else None
    yield from _entries(node.get("requests") if isinstance(node, dict) else None)


def _counted(request: Manifest, template: str) -> tuple[str, int]:
    """The class of a request, and how many of its devices. In `v1` both are in `exactly`, before beside the name."""
    name, exactly = request.get("name", ""), request.get("exactly", request)
    fields = exactly if isinstance(exactly, dict) else {}
    where = f"request {name} of ResourceClaimTemplate {template}"
    if odd := [field for field in _UNCOUNTED if fields.get(field) or request.get(field)]:
        raise UnchargedClaimError(f"{where} has {odd[0]}, which is not counted")
    mode, count = fields.get("allocationMode", _EXACT_COUNT), fields.get("count", 1)
    if mode != _EXACT_COUNT or not isinstance(count, int) or count < 0:
        raise UnchargedClaimError(f"{where} has no number of devices")
    return str(fields.get("deviceClassName", "")), count


def _entries(value: object) -> list[Manifest]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
