"""Counts what one pod requests, as the scheduler does."""

from collections.abc import Mapping
from typing import Any

from slicebus.slices.api.quantities import add, amounts, larger

Manifest = dict[str, Any]
_CONTAINERS = ("containers", "initContainers")


def pod_requests(spec: Manifest) -> dict[str, int]:
    """The requests of a PodSpec, as amounts. Raises ValueError for one that is not a quantity.

    The larger of the containers' sum and the peak of initialisation, plus overhead. A sidecar (an init container that
    restarts) counts from its start on. A limit without a request is the request. A pod-level request
    wins over the containers' sum; a pod-level limit is the request where neither the pod nor a container has one.
    Source: https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/#resource-sharing-within-containers
    """
    running: dict[str, int] = {}
    for container in spec.get("containers", ()):
        running = add(running, _container_requests(container))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.get("initContainers", ()):
        requests = _container_requests(container)
        if container.get("restartPolicy") == "Always":
            sidecars = add(sidecars, requests)
            peak = larger(peak, sidecars)
        else:
            peak = larger(peak, add(sidecars, requests))
    total = larger(add(running, sidecars), peak)
    if pod_level := spec.get("resources"):
        total = amounts(pod_level.get("limits", {})) | total | amounts(pod_level.get("requests", {}))
    return add(total, amounts(spec["overhead"])) if "overhead" in spec else total


def container_resources(spec: Manifest) -> dict[str, Manifest]:
    """The `resources` of every container of a PodSpec, verbatim, by container name."""
    return {
        container["name"]: container.get("resources") or {}
        for containers in _CONTAINERS
        for container in spec.get(containers, ())
    }


def with_container_resources(spec: Manifest, resources: Mapping[str, Manifest]) -> Manifest:
    """The container lists of a PodSpec, where each container that `resources` names gets its own."""
    return {
        containers: [
            container | ({"resources": resources[container["name"]]} if container["name"] in resources else {})
            for container in spec[containers]
        ]
        for containers in _CONTAINERS
        if containers in spec
    }


def _container_requests(container: Manifest) -> dict[str, int]:
    resources = container.get("resources", {})
    return amounts({**resources.get("limits", {}), **resources.get("requests", {})})
