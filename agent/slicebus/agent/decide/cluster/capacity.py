"""The capacity of a cluster and its use by flavor, for the heartbeat.

Nodes count when they are ready and schedulable; pods count when they are bound to such a node and have not ended. The
use of our jobs within their grants is reported separately: the manager counts its grants instead.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from slicebus.agent.state import annotations
from slicebus.agent.state.views import WorkerView
from slicebus.kube.cache import Cache, Change
from slicebus.proto.messages import Flavor, Manifest
from slicebus.slices.api.conditions import is_ready
from slicebus.slices.api.quantities import Amounts, amounts, format_amount
from slicebus.slices.placement.suitability import forbids
from slicebus.slices.workload.pod_requests import requests_of
from slicebus.slices.workload.ungate import is_over, pod_set_of
from slicebus.slices.workload.workload import FlavorName

Quantities = dict[str, dict[str, str]]
"""Kubernetes quantities by flavor and resource."""
_PODS = "pods"
_WHOLE = ""
"""In place of a flavor name: the whole cluster."""


class CapacityFigures(msgspec.Struct, frozen=True):
    """The figures of a heartbeat."""

    capacity: Quantities
    used: Quantities
    ours: Quantities


class Granted(msgspec.Struct, frozen=True):
    """A pod within the grant of its job."""

    pod: Manifest
    flavors: Mapping[str, FlavorName]
    """The pod's flavor by resource."""
    charged: Amounts | None = None
    """What it was admitted with; None where nobody knows."""

    @property
    def requests(self) -> Amounts:
        """What it requests, as far as it was admitted with that: the manager counts no more of it."""
        requests = _requests(self.pod)
        if self.charged is None:
            return requests
        return {name: min(value, self.charged.get(name, value)) for name, value in requests.items()}


class PodUse:
    """Sums up the requests of the bound pods that have not ended, by node."""

    def __init__(self, *caches: Cache) -> None:
        self.by_node: dict[str, dict[str, int]] = {}
        for cache in caches:
            cache.subscribe(self._follow)

    def _follow(self, change: Change) -> None:
        for pod, sign in ((change.old, -1), (change.new, 1)):
            if pod is not None and (node := _node_of(pod)):
                total = self.by_node.setdefault(node, {})
                _add(total, _requests(pod), sign)
                if not total[_PODS]:
                    del self.by_node[node]


def room(
    flavors: Iterable[Flavor],
    *,
    nodes: Iterable[Manifest],
    use: Mapping[str, Amounts],
    granted: Iterable[Granted],
) -> CapacityFigures:
    """Capacity and use, for the whole cluster and for each flavor. `use` has the requests of all pods by node."""
    ready = {_name(node): node for node in nodes if _takes_pods(node)}
    members: dict[str, Collection[str]] = {_WHOLE: ready}
    members |= {flavor.name: {name for name, node in ready.items() if _is_of(node, flavor)} for flavor in flavors}
    capacity, used, ours = ({flavor: dict[str, int]() for flavor in members} for _ in range(3))
    for flavor, names in members.items():
        for name in names:
            _add(capacity[flavor], _allocatable(ready[name]))
            _add(used[flavor], use.get(name, {}))
    for grant in granted:
        node, requests = _node_of(grant.pod), grant.requests
        for flavor, names in members.items():
            if node in names:
                _add(ours[flavor], requests if flavor == _WHOLE else _in_flavor(requests, grant.flavors, flavor))
    return CapacityFigures(_quantities(capacity), _quantities(used), _quantities(ours))


def within_grant(view: WorkerView) -> Iterator[Granted]:
    """The pods of a job within its grant.

    A pod beyond it (one that is still terminating, one that cleans up, a stranger's) counts as foreign use: nobody's
    quota covers it. So does what a pod requests beyond what it was admitted with, by which the manager counts grants.
    """
    job = view.reading
    if job is None:
        return
    copy = view.copy_of(job.slice)
    flavors = annotations.flavors(copy) if copy is not None else None
    if flavors is None:
        return
    left, admitted = dict(job.granted), annotations.charged(copy) if copy is not None else {}
    charged = (pod.manifest for pod in view.known_pods if not pod.cleans_up)
    for pod in sorted(filter(_node_of, charged), key=_stays_first):
        pod_set = pod_set_of(pod)
        if left.get(pod_set, 0) > 0:
            left[pod_set] -= 1
            yield Granted(pod, flavors.get(pod_set, {}), admitted.get(pod_set))


def slim(pod: Manifest) -> Manifest:
    """A foreign pod with only the fields that count: a cluster may have a hundred thousand."""
    kept = ("name", "namespace", "uid", "resourceVersion")
    requests = {name: format_amount(name, value) for name, value in requests_of(pod).items()}
    return {
        "metadata": {name: pod["metadata"][name] for name in kept},
        "spec": {"nodeName": pod["spec"].get("nodeName"), "resources": {"requests": requests}},
        "status": {"phase": pod.get("status", {}).get("phase")},
    }


def _is_of(node: Manifest, flavor: Flavor) -> bool:
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in flavor.node_labels.items()):
        return False
    taints: Sequence[Manifest] = node.get("spec", {}).get("taints") or ()
    return not any(forbids(taint, flavor.tolerations) and not _is_named(taint, flavor) for taint in taints)


def _is_named(taint: Manifest, flavor: Flavor) -> bool:
    """Whether the flavor lists the taint among its node taints: then only pods that tolerate it are admitted to the
    flavor."""
    parts = ("key", "value", "effect")
    return any(all((named.get(part) or "") == (taint.get(part) or "") for part in parts) for named in flavor.taints)


def _takes_pods(node: Manifest) -> bool:
    return not node.get("spec", {}).get("unschedulable") and is_ready(node)


def _stays_first(pod: Manifest) -> tuple[bool, str]:
    return "deletionTimestamp" in pod["metadata"], pod["metadata"]["name"]


def _node_of(pod: Manifest) -> str | None:
    """The node of a pod; None where the pod is not bound or has ended."""
    if is_over(pod):
        return None
    node: str | None = pod["spec"].get("nodeName")
    return node


def _allocatable(node: Manifest) -> Amounts:
    return amounts(node.get("status", {}).get("allocatable", {}))


def _requests(pod: Manifest) -> dict[str, int]:
    return requests_of(pod) | {_PODS: 1}


def _in_flavor(requests: Amounts, flavors: Mapping[str, FlavorName], flavor: str) -> Amounts:
    return {name: value for name, value in requests.items() if flavors.get(name) == flavor}


def _add(total: dict[str, int], more: Amounts, sign: int = 1) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + sign * value


def _name(node: Manifest) -> str:
    name: str = node["metadata"]["name"]
    return name


def _quantities(totals: Mapping[str, Amounts]) -> Quantities:
    """What is not 0: every node has huge pages of several sizes, and most have none of them."""
    return {
        flavor: {resource: format_amount(resource, value) for resource, value in sorted(total.items()) if value}
        for flavor, total in totals.items()
    }
