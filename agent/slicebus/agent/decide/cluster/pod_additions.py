"""What this cluster adds to the requests of pods, for the heartbeat: defaults of LimitRanges, overheads of
RuntimeClasses."""

from collections.abc import Collection, Iterable

from slicebus.agent.decide.cluster.capacity import Quantities
from slicebus.proto.messages import Manifest
from slicebus.slices.api.quantities import amount

_CONTAINER = "Container"


def container_defaults(limit_ranges: Iterable[Manifest], namespaces: Collection[str]) -> Quantities:
    """By namespace what a container requests that requests nothing itself; without namespaces that add nothing.

    The API server has filled in `defaultRequest` from `default`, `max` and `min`. Which of several LimitRanges counts
    is not said anywhere, so the larger does. Raises ValueError for what is not a quantity.
    """
    defaults: Quantities = {}
    for limit_range in limit_ranges:
        namespace = limit_range["metadata"]["namespace"]
        for item in (limit_range.get("spec") or {}).get("limits") or ():
            if item.get("type") != _CONTAINER or namespace not in namespaces:
                continue
            known = defaults.get(namespace, {})
            wanted = (item.get("default") or {}) | (item.get("defaultRequest") or {})
            if merged := {name: _larger(name, known.get(name), text) for name, text in wanted.items()}:
                defaults[namespace] = known | merged
    return {namespace: dict(sorted(defaults[namespace].items())) for namespace in sorted(defaults)}


def pod_overheads(runtime_classes: Iterable[Manifest]) -> Quantities:
    """By RuntimeClass what each of its pods takes beside its containers; without those that take nothing."""
    named = {one["metadata"]["name"]: (one.get("overhead") or {}).get("podFixed") or {} for one in runtime_classes}
    return {name: dict(sorted(fixed.items())) for name, fixed in sorted(named.items()) if fixed}


def _larger(resource: str, known: str | None, text: str) -> str:
    return text if known is None or amount(resource, text) > amount(resource, known) else known
