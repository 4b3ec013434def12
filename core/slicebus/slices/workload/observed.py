"""What the pods of a slice request where they run, where that is more than it was admitted with.

A template does not show what others add: defaults of the namespace, containers that a webhook injects, a resize of a
pod in place. The agents report it, and the manager records it on the slice that holds the quota.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Self

import msgspec

from slicebus.slices.api import api_names
from slicebus.slices.api.annotation_values import read_json

Manifest = dict[str, Any]
QUOTA_GIVEN_BACK = "QuotaGivenBack"
"""The reason of the condition ChargedMore where no pod is left of those that the record is about. An API server drops
changes of metadata that come with a status, so the record itself stays until the next report."""

Amount = Annotated[int, msgspec.Meta(ge=0)]


class ObservedPods(msgspec.Struct, frozen=True, omit_defaults=True):
    """The pods of one pod set, by the last report of their worker."""

    requests: dict[str, Amount] = {}
    """What one of them requests, on the average, as amounts rounded up."""
    count: Amount = 0
    """How many run, where that is more than are granted."""
    flavors: dict[str, str] = {}
    """The flavors that are charged for resources which the admission does not name."""


class Observed(msgspec.Struct, frozen=True):
    """The pods of a slice that are charged for more than it was admitted with."""

    cluster: str
    """Where they run."""
    pod_sets: dict[str, ObservedPods]
    """By name. The empty name stands for pods that belong to no pod set of the slice."""

    def to_annotation(self) -> str:
        """The annotation's value, as JSON."""
        return msgspec.json.encode(self, order="sorted").decode()

    def without_counts(self) -> Self:
        """What holds for another slice of the chain too: what its pods request, not how many run."""
        known = {
            name: msgspec.structs.replace(pods, count=0, flavors={}) for name, pods in self.pod_sets.items() if name
        }
        return msgspec.structs.replace(self, pod_sets=known)

    @classmethod
    def from_annotation(cls, value: str | None) -> "Observed | None":
        """The record of an annotation; None where there is none, or where it is unreadable."""
        return read_json(value, _OBSERVED)


_OBSERVED = msgspec.json.Decoder(Observed)


def observed_of(
    annotations: Mapping[str, str], conditions: Mapping[str, Manifest], *, cluster: str | None
) -> Observed | None:
    """What counts of a Workload's record. Nothing does of a cluster that its slice is not on, nor of pods that had gone
    when it gave its quota back: no pod could disprove it."""
    observed = Observed.from_annotation(annotations.get(api_names.OBSERVED_ANNOTATION))
    is_elsewhere = observed is not None and cluster not in (None, observed.cluster)
    is_over = conditions.get(api_names.CHARGED_MORE_CONDITION, {}).get("reason") == QUOTA_GIVEN_BACK
    return None if is_elsewhere or is_over else observed


def pods_by_set(observed: Observed | None) -> Mapping[str, ObservedPods]:
    """The observed pods by pod set; empty where nothing was observed."""
    return observed.pod_sets if observed is not None else {}
