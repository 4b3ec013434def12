"""What the admission of an API server changes in a new pod: its webhooks, LimitRanges and RuntimeClasses.

The webhooks stand in for service meshes and policies. They go by annotations of the pod's namespace.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from slicebus.kube.resources import LIMITRANGES, NAMESPACES, RUNTIMECLASSES

Manifest = dict[str, Any]
Objects = Mapping[tuple[str, str, str, str], Manifest]
"""By group, plural, namespace and name."""

SIDECAR_ANNOTATION = "sandbox.slicebus.dev/sidecar"
"""On a namespace: the cpu that a container requests which is injected into each of its pods."""
SIDECAR_NAME = "injected"
NO_GATES_ANNOTATION = "sandbox.slicebus.dev/no-gates"
"""On a namespace: "true" where a policy removes the scheduling gates of its pods."""
_CONTAINERS = ("containers", "initContainers")


def admitted(pod: Manifest, namespace: str, objects: Objects) -> Manifest:
    """The pod as the server stores it. The server's own plugins run again after a webhook has changed a pod."""
    space = objects.get((NAMESPACES.group, NAMESPACES.plural, "", namespace)) or {}
    annotations = (space.get("metadata") or {}).get("annotations") or {}
    spec = dict(pod.get("spec") or {})
    if cpu := annotations.get(SIDECAR_ANNOTATION):
        sidecar = {"name": SIDECAR_NAME, "image": "sidecar:1", "resources": {"requests": {"cpu": cpu}}}
        spec["containers"] = [*(spec.get("containers") or ()), sidecar]
    if annotations.get(NO_GATES_ANNOTATION) == "true":
        spec.pop("schedulingGates", None)
    ranges = (manifest for key, manifest in objects.items() if key[1:3] == (LIMITRANGES.plural, namespace))
    for defaults in _defaults(ranges):
        for field in _CONTAINERS:
            if field in spec:
                spec[field] = [_with_defaults(container, defaults) for container in spec[field]]
    name = spec.get("runtimeClassName")
    runtime = objects.get((RUNTIMECLASSES.group, RUNTIMECLASSES.plural, "", name)) if name else None
    if overhead := ((runtime or {}).get("overhead") or {}).get("podFixed"):
        spec["overhead"] = overhead
    return pod | {"spec": spec}


def complete_limit_range(manifest: Manifest) -> Manifest:
    """A LimitRange with the server's defaults: a default limit is the default request where there is none."""
    limits = (manifest.get("spec") or {}).get("limits") or ()
    return manifest | {"spec": {"limits": [_completed(item) if _is_of_container(item) else item for item in limits]}}


def _completed(item: Manifest) -> Manifest:
    limits = (item.get("max") or {}) | (item.get("default") or {})
    requests = (item.get("min") or {}) | limits | (item.get("defaultRequest") or {})
    return item | {"default": limits, "defaultRequest": requests}


def _is_of_container(item: Manifest) -> bool:
    return bool(item.get("type") == "Container")


def _defaults(ranges: Iterable[Manifest]) -> Iterator[Manifest]:
    for manifest in ranges:
        yield from filter(_is_of_container, manifest["spec"]["limits"])


def _with_defaults(container: Manifest, defaults: Manifest) -> Manifest:
    resources = container.get("resources") or {}
    own_limits, own_requests = resources.get("limits") or {}, resources.get("requests") or {}
    limits = (defaults.get("default") or {}) | own_limits
    requests = (defaults.get("defaultRequest") or {}) | own_limits | own_requests
    return container | {"resources": resources | {"limits": limits, "requests": requests}}
