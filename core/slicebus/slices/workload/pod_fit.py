"""Compares a pod, and the template that pods are made of, with what their pod set is charged for.

Whoever may edit a job on its worker may edit its pod templates. The quota was given for those of the slice.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from slicebus.slices.api.quantities import amounts, format_amount
from slicebus.slices.workload.device_claims import sources_of
from slicebus.slices.workload.pod_requests import container_resources, pod_requests, without_additions

Manifest = dict[str, Any]
_POD = ""
_CONTAINERS = ("containers", "initContainers")


class PodMisfit(msgspec.Struct, frozen=True, order=True):
    """Why a pod may not start under a pod set's grant. The text is the same for pods of one template."""

    text: str


Named = Mapping[str, Collection[str]]
"""The resources that pod templates have named, by container; under the empty name the RuntimeClasses."""


def named_in(spec: Manifest) -> dict[str, list[str]]:
    """What a pod template names, as `Named`."""
    found = {name: sorted(_given(resources)) for name, resources in container_resources(spec).items()}
    return found | ({_POD: [runtime]} if (runtime := spec.get("runtimeClassName")) else {})


def charged_beside(spec: Manifest) -> tuple[str, Counter[str]]:
    """What a pod is charged for beside its requests: its RuntimeClass, and its claims of devices by their sources."""
    return spec.get("runtimeClassName") or "", sources_of(spec)


def of_template(spec: Manifest, charged: Manifest) -> PodMisfit | None:
    """Why no pod of a template may start where the pod set is charged for `charged`, both PodSpecs; None if they may.

    The template is that of the job itself, without what controllers add.
    """
    try:
        asked, granted = pod_requests(spec), pod_requests(charged)
        misfit = _exceeding(asked, granted) or _of_containers(spec, charged)
    except ValueError as error:
        return PodMisfit(f"requests that nobody can read: {error}")
    return misfit or _of_claims(spec, charged) or _of_runtime(spec, charged, named_in(spec))


def of_pod(spec: Manifest, charged: Manifest, named: Mapping[str, Collection[str]] = {}) -> PodMisfit | None:
    """Why a pod may not start, as `of_template`. `named` is what templates of its pod set have named since they were
    edited.

    A cluster's admission adds containers to pods, and defaults where a container names nothing: that is charged when it
    runs. What the pod set's template names is compared container by container, and in sum with what an edited one
    has named for a while. Claims of devices request no amount by which they could be charged then: whoever has added
    them, such a pod does not start.
    """
    try:
        misfit = (
            _of_containers(spec, charged)
            or _exceeding(_requests(spec), pod_requests(charged))
            or _of_named(spec, without_additions(charged), named)
        )
    except ValueError as error:
        return PodMisfit(f"requests that nobody can read: {error}")
    return misfit or _of_claims(spec, charged) or _of_runtime(spec, charged, named)


def _of_named(spec: Manifest, charged: Manifest, named: Named) -> PodMisfit | None:
    """Why the containers that templates have named are too large in sum; the others are of the cluster."""
    known = {name: _given(resources) for name, resources in container_resources(charged).items()}
    present = container_resources(spec)
    counted = {name: known.get(name, set()).union(named.get(name, ())) for name in present if name in {*known, *named}}
    asked = {
        field: [
            container | {"resources": _only(container.get("resources") or {}, counted[container["name"]])}
            for container in spec.get(field) or ()
            if container["name"] in counted
        ]
        for field in _CONTAINERS
    }
    return _exceeding(pod_requests(asked), pod_requests({field: charged.get(field) for field in _CONTAINERS}))


def _of_claims(spec: Manifest, charged: Manifest) -> PodMisfit | None:
    """Why a pod with other claims of devices may not start, or with more of them."""
    more = sources_of(spec) - sources_of(charged)
    return PodMisfit(f"claims of devices by {' and '.join(sorted(more))}") if more else None


def _of_runtime(spec: Manifest, charged: Manifest, named: Named) -> PodMisfit | None:
    """Why a pod whose RuntimeClass is a template's may not start: it adds to what the pod requests."""
    runtime, granted = spec.get("runtimeClassName"), charged.get("runtimeClassName")
    if not runtime or runtime == granted or runtime not in named.get(_POD, ()):
        return None
    return PodMisfit(f"RuntimeClass {runtime} in place of {granted or 'none'}")


def _given(resources: Manifest) -> set[str]:
    """The names of the resources that a container requests or limits."""
    return {*(resources.get("limits") or {}), *(resources.get("requests") or {})}


def _only(resources: Manifest, names: Collection[str]) -> Manifest:
    """The resources with these names."""
    return {
        field: {name: value for name, value in (resources.get(field) or {}).items() if name in names}
        for field in ("limits", "requests")
    }


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
