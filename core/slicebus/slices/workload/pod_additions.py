"""What a worker cluster adds to the requests of pods, as far as its agent knows before there are any.

A LimitRange of the namespace gives containers requests that they do not have, and a RuntimeClass adds its overhead to
each pod.
"""

from collections.abc import Iterable

import msgspec

from slicebus.slices.api.quantities import Amounts, larger
from slicebus.slices.workload.pod_requests import Manifest, pod_requests
from slicebus.slices.workload.pod_sets import PodSet
from slicebus.slices.workload.workload import Slice


class PodAdditions(msgspec.Struct, frozen=True):
    """The additions of one cluster."""

    container_defaults: dict[str, dict[str, int]] = {}
    """By namespace: what a container requests that has neither a request nor a limit of its own, as amounts."""
    overheads: dict[str, dict[str, int]] = {}
    """By RuntimeClass: what a pod of it takes beside its containers, as amounts."""

    def charged(self, slice: Slice) -> Slice:
        """The slice with what its pods will request on the cluster; the same slice where nothing is added."""
        if not (self.container_defaults or self.overheads):
            return slice
        return with_requests(slice, (self._requests(slice.namespace, pod_set) for pod_set in slice.pod_sets))

    def _requests(self, namespace: str, pod_set: PodSet) -> Amounts:
        spec: Manifest = pod_set.template.get("spec") or {}
        defaults = self.container_defaults.get(namespace, {})
        overhead = self.overheads.get(spec.get("runtimeClassName") or "")
        if not defaults and overhead is None:
            return {}
        return pod_requests(spec, defaults=defaults, overhead=overhead)


def with_requests(slice: Slice, requests: Iterable[Amounts]) -> Slice:
    """The slice with pods that request at least this, pod set by pod set; the same slice where they do anyway."""
    pod_sets = tuple(map(_with_requests, slice.pod_sets, requests))
    return slice if pod_sets == slice.pod_sets else msgspec.structs.replace(slice, pod_sets=pod_sets)


def _with_requests(pod_set: PodSet, requests: Amounts) -> PodSet:
    known = pod_set.requested
    if all(value <= known.get(resource, 0) for resource, value in requests.items()):
        return pod_set
    return msgspec.structs.replace(pod_set, observed=larger(pod_set.observed, requests))


def least(slices: list[Slice]) -> Slice:
    """Of several versions of a slice, on one cluster each, the one whose pods request the least on any of them."""
    first, *others = slices
    if all(other is first for other in others):
        return first
    pod_sets = []
    for versions in zip(*(slice.pod_sets for slice in slices), strict=True):
        amounts = [pod_set.requested for pod_set in versions]
        common = {resource: min(one.get(resource, 0) for one in amounts) for resource in amounts[0]}
        extra = {resource: value for resource, value in common.items() if value > versions[0].requests.get(resource, 0)}
        pod_sets.append(msgspec.structs.replace(versions[0], observed=extra))
    return msgspec.structs.replace(first, pod_sets=tuple(pod_sets))
