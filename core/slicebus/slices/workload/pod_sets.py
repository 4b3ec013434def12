"""Reads the pod sets of a Workload: what one pod of each requests, was seen to request, and claims."""

from collections.abc import Iterable
from typing import Any, Self

import msgspec

from slicebus.slices.api.quantities import add, larger
from slicebus.slices.workload.device_claims import Devices
from slicebus.slices.workload.observed import Observed, pods_by_set
from slicebus.slices.workload.pod_requests import as_admitted, pod_requests, without_additions

Manifest = dict[str, Any]
_NOTHING = frozenset[str]()
"""One for all pod sets: an empty one takes 216 bytes."""


class PodSet(msgspec.Struct, frozen=True):
    """Pods of one template. `requests` are one pod's, as amounts."""

    name: str
    count: int
    requests: dict[str, int]
    template: Manifest
    """Its PodTemplateSpec, as far as it is read to admit it."""
    unasked: frozenset[str] = frozenset()
    """The resources that only others' additions request, such as an init container of the job's controller: they are
    charged where the quota covers them."""
    observed: dict[str, int] = {}
    """What one pod was seen to request where it runs. The larger amount is charged."""
    devices: dict[str, int] | None = None
    """How many devices the claims of one pod have, by resource; None where nobody has counted them."""

    @property
    def requested(self) -> dict[str, int]:
        """What one pod requests, as far as it is known."""
        return larger(self.requests, self.observed) if self.observed else self.requests

    @property
    def charged(self) -> dict[str, int]:
        """What one pod is charged for."""
        return add(self.requested, self.devices) if self.devices else self.requested

    def is_asked_for(self, resource: str) -> bool:
        """Whether the job itself requests a resource, so that the quota has to cover it."""
        return (resource in self.requests and resource not in self.unasked) or resource in (self.devices or ())

    @classmethod
    def from_manifest(cls, pod_set: Manifest) -> Self:
        """The pod set of a Workload's `spec.podSets[]`. Raises ValueError for a request that is not a quantity."""
        spec = pod_set["template"].get("spec", {})
        requests = pod_requests(spec)
        return cls(
            name=pod_set.get("name", "main"),
            count=pod_set.get("count", 1),
            requests=requests,
            template={"spec": as_admitted(spec)},
            unasked=frozenset(requests.keys() - pod_requests(without_additions(spec)).keys()) or _NOTHING,
        )


def observed_as(observed: Observed | None, pod_sets: Iterable[PodSet]) -> tuple[PodSet, ...]:
    """The pod sets, with what their pods were seen to request."""
    known = pods_by_set(observed)
    return tuple(
        msgspec.structs.replace(pod_set, observed=requests)
        if (requests := known[pod_set.name].requests if pod_set.name in known else {}) != pod_set.observed
        else pod_set
        for pod_set in pod_sets
    )


def with_devices(devices: Devices, pod_sets: tuple[PodSet, ...]) -> tuple[PodSet, ...]:
    """The pod sets, with the devices that were counted for them."""
    if all(devices.get(pod_set.name) == pod_set.devices for pod_set in pod_sets):
        return pod_sets
    return tuple(msgspec.structs.replace(pod_set, devices=devices.get(pod_set.name)) for pod_set in pod_sets)
