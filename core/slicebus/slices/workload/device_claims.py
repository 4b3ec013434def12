"""Finds the claims of devices that pods have by dynamic resource allocation.

A claim names a DeviceClass and no amount of any resource, so no quota covers it. Devices that a DeviceClass gives an
extended resource are requested by that resource's name instead, and charged.
"""

from typing import Any

Manifest = dict[str, Any]

REASON = "DeviceClaimsNotCharged"
"""The reason of a job that is refused for its claims."""


def claims_of(spec: Manifest) -> list[str]:
    """The names of the claims of a PodSpec and of its containers, sorted. Any manifest may be given."""
    containers = (one for field in ("containers", "initContainers") for one in _entries(spec.get(field)))
    resources = [spec.get("resources"), *(container.get("resources") for container in containers)]
    of_containers = (entry for one in resources if isinstance(one, dict) for entry in _entries(one.get("claims")))
    return sorted({str(entry.get("name", "")) for entry in (*_entries(spec.get("resourceClaims")), *of_containers)})


def why_not_charged(claims: list[str]) -> str:
    """Why pods with these claims get no quota, as a clause."""
    named = ", ".join(claims)
    return (
        f"claims devices that no quota covers: {named}. Request them as resources, as device plugins and DeviceClasses "
        "with an extendedResourceName offer them"
    )


def _entries(value: object) -> list[Manifest]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
