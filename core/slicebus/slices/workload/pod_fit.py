"""Compares a pod, and the template that pods are made of, with what their pod set is charged for.

Whoever may edit a job on its worker may edit its pod templates. The quota was given for those of the slice.
"""

from typing import Any

import msgspec

from slicebus.slices.api.quantities import amounts, format_amount
from slicebus.slices.workload.pod_requests import container_resources, pod_requests, without_additions

Manifest = dict[str, Any]


class PodMisfit(msgspec.Struct, frozen=True, order=True):
    """Why a pod may not start under a pod set's grant. The text is the same for pods of one template."""

    text: str


def of_template(spec: Manifest, charged: Manifest) -> PodMisfit | None:
    """Why no pod of a template may start where the pod set is charged for `charged`, both PodSpecs; None if they may.

    The template is that of the job itself, without what controllers add.
    """
    try:
        asked, granted = pod_requests(spec), pod_requests(charged)
    except ValueError as error:
        return PodMisfit(f"requests that nobody can read: {error}")
    return _exceeding(asked, granted) or _of_containers(spec, charged)


def of_pod(spec: Manifest, charged: Manifest) -> PodMisfit | None:
    """Why a pod may not start, as `of_template`.

    A cluster's admission adds containers to pods, and defaults where a container names nothing: that is charged when it
    runs. What the pod set's template names is compared container by container.
    """
    try:
        return _of_containers(spec, charged) or _exceeding(_requests(spec), pod_requests(charged))
    except ValueError as error:
        return PodMisfit(f"requests that nobody can read: {error}")


def _of_containers(spec: Manifest, charged: Manifest) -> PodMisfit | None:
    present, known = container_resources(spec), container_resources(without_additions(charged))
    for name, resources in known.items():
        if name not in present:
            continue
        granted, asked = _requests({"resources": resources}), _requests({"resources": present[name]})
        if misfit := _exceeding({resource: asked[resource] for resource in asked.keys() & granted.keys()}, granted):
            return misfit
    return None


def _exceeding(asked: dict[str, int], granted: dict[str, int]) -> PodMisfit | None:
    more = [
        f"{resource} {format_amount(resource, value)} in place of {format_amount(resource, granted.get(resource, 0))}"
        for resource, value in sorted(asked.items())
        if value > granted.get(resource, 0)
    ]
    return PodMisfit(" and ".join(more)) if more else None


def _requests(of: Manifest) -> dict[str, int]:
    """The requests of a container, or those of a pod as a whole."""
    resources = of.get("resources") or {}
    return amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})
