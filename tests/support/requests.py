"""What a role has asked of its API server, by its own metric."""

from collections import Counter

from prometheus_client import CollectorRegistry

_NAMES = ("verb", "resource", "subresource", "code")


def api_requests(registry: CollectorRegistry) -> Counter[tuple[str, ...]]:
    """How many there were, by verb, resource, subresource and code."""
    samples = (sample for metric in registry.collect() for sample in metric.samples)
    found = (sample for sample in samples if sample.name == "slicebus_api_requests_total")
    return Counter({tuple(sample.labels[name] for name in _NAMES): int(sample.value) for sample in found})
