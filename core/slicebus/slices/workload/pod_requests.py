"""Counts what one pod requests, as the scheduler does."""

from collections.abc import Mapping
from typing import Any

from slicebus.slices.api.quantities import Amounts, add, amounts, larger

Manifest = dict[str, Any]
_CONTAINERS = ("containers", "initContainers")
_TO_ADMIT = (
    *("nodeSelector", "affinity", "tolerations"),
    *("resources", "overhead", "runtimeClassName", "resourceClaims"),
)
_TO_ADMIT_OF_A_CONTAINER = ("resources", "restartPolicy")
_PLAIN: Manifest = {}
"""One for all containers that request nothing."""
GCS_WAIT, COLLECTOR = "wait-gcs-ready", "collector"
_RESIZE, _INFEASIBLE = "PodResizePending", "Infeasible"
"""The condition of a pod whose resize in place waits, and its reason where the node can never have it."""
_POD = ""
"""In place of a container's name: the pod as a whole."""
ADDITIONS = {GCS_WAIT: {"cpu": "200m", "memory": "256Mi"}, COLLECTOR: {"cpu": "50m", "memory": "64Mi"}}
"""What the containers request that KubeRay adds to pods and that no field of the job gives resources, by name."""


def pod_requests(
    spec: Manifest,
    *,
    statuses: Mapping[str, Manifest] = {},
    is_infeasible: bool = False,
    defaults: Mapping[str, int] = {},
    overhead: Amounts | None = None,
) -> dict[str, int]:
    """The requests of a PodSpec, as amounts. Raises ValueError for one that is not a quantity, or negative.

    The larger of the containers' sum and the peak of initialisation, plus overhead. A sidecar (an init container that
    restarts) counts from its start on. A limit without a request is the request. A pod-level request counts where it is
    more than the containers' sum: an API server refuses a smaller one, and one before Kubernetes 1.34 drops it and runs
    the containers. A pod-level limit is the request where neither the pod nor a container has one.
    `statuses` are those of containers by name, and of the pod itself under the empty name: a resize in place keeps what
    it had until the kubelet has carried it out, and one that `is_infeasible` asks for nothing. `defaults` are requests
    of containers that have none, but for what a pod with a limit of its own has by then; and `overhead` is that of the
    pod's RuntimeClass, where its spec does not tell.
    Source: https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/#resource-sharing-within-containers
    """
    if defaults and (limits := (spec.get("resources") or {}).get("limits")):
        # The API server gives such a pod its requests before it gives its containers theirs.
        known = {*limits, *pod_requests(spec | {"overhead": {}})}
        defaults = {name: default for name, default in defaults.items() if name not in known}

    def requested(container: Manifest) -> dict[str, int]:
        resources = container.get("resources") or {}
        wanted = {**defaults, **_counted({**(resources.get("limits") or {}), **(resources.get("requests") or {})})}
        return _in_force(wanted, statuses.get(container.get("name") or "-"), is_infeasible=is_infeasible)

    running: dict[str, int] = {}
    for container in spec.get("containers") or ():
        running = add(running, requested(container))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        requests = requested(container)
        if container.get("restartPolicy") == "Always":
            sidecars = add(sidecars, requests)
            peak = larger(peak, sidecars)
        else:
            peak = larger(peak, add(sidecars, requests))
    total = larger(add(running, sidecars), peak)
    if pod_level := spec.get("resources"):
        wanted = _counted(pod_level.get("requests") or {})
        whole = _in_force(wanted, statuses.get(_POD), is_infeasible=is_infeasible)
        total = larger(
            _counted(pod_level.get("limits") or {}) | total, {name: whole[name] for name in wanted if name in whole}
        )
    return add(total, _counted(spec["overhead"]) if spec.get("overhead") else overhead or {})


def _counted(quantities: Mapping[str, str | int | float]) -> dict[str, int]:
    """Requests as amounts. Definitions such as KubeRay's take negative ones, which would pay for other pods."""
    counted = amounts(quantities)
    for resource, value in counted.items():
        if value < 0:
            raise ValueError(f"a negative request of {resource}: {quantities[resource]!r}")
    return counted


def requests_of(pod: Manifest) -> dict[str, int]:
    """What a pod requests, as the scheduler counts it: also while a resize in place is under way, and after the kubelet
    has refused one that its node can never have.

    Source: `k8s.io/component-helpers/resource`, `PodRequests` with `UseStatusResources`.
    """
    status = pod.get("status") or {}
    entries = (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ()))
    statuses = {entry["name"]: entry for entry in entries if "resources" in entry}
    whole = {_POD: status} if "resources" in status else {}
    pending: Manifest = next((entry for entry in status.get("conditions") or () if entry.get("type") == _RESIZE), {})
    return pod_requests(pod["spec"], statuses=statuses | whole, is_infeasible=pending.get("reason") == _INFEASIBLE)


def as_admitted(spec: Manifest) -> Manifest:
    """What of a PodSpec is read to admit its pods: the nodes that it may run on, what it requests, and its claims. The
    rest may be as large as an object may be."""
    kept = {name: spec[name] for name in _TO_ADMIT if name in spec}
    containers = {name: [*map(_as_admitted, spec[name])] for name in _CONTAINERS if spec.get(name)}
    return kept | containers


def _as_admitted(container: Manifest) -> Manifest:
    return {name: container[name] for name in _TO_ADMIT_OF_A_CONTAINER if container.get(name)} or _PLAIN


def without_additions(spec: Manifest) -> Manifest:
    """A PodSpec without the containers that the controllers of jobs add."""
    if not any(_is_addition(container) for containers in _CONTAINERS for container in spec.get(containers) or ()):
        return spec
    return spec | {
        containers: [container for container in spec[containers] if not _is_addition(container)]
        for containers in _CONTAINERS
        if containers in spec
    }


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


def _is_addition(container: Manifest) -> bool:
    """Whether a controller adds such a container. A name alone proves nothing: users name theirs as they like."""
    added = ADDITIONS.get(container.get("name", ""))
    return added is not None and (container.get("resources") or {}).get("requests") == added


def _in_force(wanted: dict[str, int], status: Manifest | None, *, is_infeasible: bool) -> dict[str, int]:
    """What of the requests that are wanted counts, by the status of a container or of the pod."""
    if status is None:
        return wanted
    actual = amounts((status.get("resources") or {}).get("requests") or {})
    known = larger(actual, amounts(status.get("allocatedResources") or {}))
    return known if is_infeasible else larger(wanted, known)
