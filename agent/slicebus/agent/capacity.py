"""What a cluster has, and what our pods use of it, for the heartbeat."""

from collections.abc import Iterable

from slicebus.proto.messages import Manifest
from slicebus.slices.quantities import add, amounts, format_amount
from slicebus.slices.resources import pod_requests

_OVER = ("Succeeded", "Failed")
_UNCOUNTED = "hugepages-"


def capacity(nodes: Iterable[Manifest]) -> dict[str, str]:
    """Allocatable of the nodes that take pods, as quantities."""
    total: dict[str, int] = {}
    for node in nodes:
        if not node.get("spec", {}).get("unschedulable") and _is_ready(node):
            total = add(total, amounts(node.get("status", {}).get("allocatable", {})))
    return _quantities(total)


def used(pods: Iterable[Manifest]) -> dict[str, str]:
    """Requests of the pods that are bound to a node and not over, as quantities."""
    total: dict[str, int] = {}
    for pod in pods:
        if pod["spec"].get("nodeName") and pod.get("status", {}).get("phase") not in _OVER:
            total = add(total, pod_requests(pod["spec"]))
    return _quantities(total)


def _quantities(total: dict[str, int]) -> dict[str, str]:
    return {
        resource: format_amount(resource, value)
        for resource, value in sorted(total.items())
        if not resource.startswith(_UNCOUNTED)
    }


def _is_ready(node: Manifest) -> bool:
    conditions = node.get("status", {}).get("conditions") or ()
    return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)
