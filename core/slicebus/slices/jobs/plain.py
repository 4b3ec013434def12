"""Answers for a job kind where it lacks what other kinds have."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec

from slicebus.proto.messages import Counts
from slicebus.slices.api import kueue
from slicebus.slices.jobs.base import Exposure, JobKind, Refusal
from slicebus.slices.jobs.shapes import PlainSpec, PlainStatus

Manifest = dict[str, Any]


class PlainKind:
    """A kind whose jobs carry their own counts, without children, autoscaler and objects of its own. A kind that has
    some of it overrides the method."""

    pod_sets: Callable[[Manifest], list[Manifest]]
    child_kind = ""
    pod_owners: frozenset[str] | None = None
    refusal = Refusal()
    ends_with_pods = False
    spec_shape: type[msgspec.Struct] = PlainSpec
    """The fields of a spec that the kind reads by name. A job's other parts are as its definition lets them be."""
    status_shape: type[msgspec.Struct] = PlainStatus
    """The fields of a status that the kind reads by name; a status of another shape is refused."""

    def templates(self, job: Manifest, scale_target: Manifest) -> dict[str, Manifest]:
        """Those of its pod sets: its controller adds nothing."""
        return {pod_set["name"]: pod_set["template"] for pod_set in self.pod_sets(job)}

    def pod_set_of(self, labels: dict[str, str]) -> str:
        """Nothing: its controller labels all pods alike."""
        return ""

    def most(self, job: Manifest) -> Counts:
        """Nothing: its spec has one size, and no bounds."""
        return {}

    def late_pod_sets(self, job: Manifest) -> frozenset[str]:
        """None."""
        return frozenset()

    def finished(self, job: Manifest) -> Counts:
        """None: its pods run until it ends."""
        return {}

    def succeeded(self, status: Manifest) -> Counts:
        """None: its pods run until it ends."""
        return {}

    def ready(self, status: Manifest) -> int | None:
        """Unknown: its status says nothing that every kind has."""
        return None

    def follow(self: JobKind, scale_target: Manifest, job: Manifest) -> list[list[Manifest]]:
        """The size alone."""
        patch = self.resize(scale_target, self.counts(job, job))
        return [patch] if patch else []

    def follow_next(self, job: Manifest, wanted: Manifest) -> list[Manifest]:
        """Nothing: the kind has no children."""
        return []

    def retries(self, job: Manifest) -> bool:
        """No: it keeps its scale target."""
        return False

    def as_ended(self, job: Manifest, reported: Manifest) -> Manifest:
        """The job unchanged: its status may show what was reported, whatever its size."""
        return job

    def exposure(self, job: Manifest) -> Exposure:
        """None: it makes only pods, as far as anybody knows."""
        return Exposure()

    def autoscaled(self, job: Manifest) -> Manifest:
        """The job unchanged: it has no autoscaler."""
        return job

    def children(self, job: Manifest) -> list[str] | None:
        """None: it carries its own counts."""
        return None

    def made_by(self, child: Manifest) -> str:
        """No job: the kind has no children."""
        return ""

    def own_jobs(self, job: Manifest) -> list[str]:
        """None: if anything stands between it and its pods, it is no Job."""
        return []

    def index_label(self, job: Manifest, pod_set: str) -> str:
        """None: its controller chooses by other signs."""
        return ""

    def named_for_deletion(self, scale_target: Manifest) -> frozenset[str]:
        """None: its controller chooses the pods."""
        return frozenset()

    def name_for_deletion(self, scale_target: Manifest, names: Mapping[str, Sequence[str]]) -> list[Manifest]:
        """None: its controller chooses the pods."""
        return []

    def step(self: JobKind, job: Manifest, pod_set: str) -> int:
        """The pods that start together."""
        return self.replica_size(job, pod_set)

    def cap(self, scale_target: Manifest, counts: Counts | None) -> list[Manifest]:
        """None: no autoscaler."""
        return []

    def is_capped(self, scale_target: Manifest) -> bool:
        """Never: it has no autoscaler."""
        return False

    def enforce_cap(self, scale_target: Manifest, names: Mapping[str, Sequence[str]]) -> list[Manifest]:
        """None: no autoscaler."""
        return []

    def least(self, job: Manifest) -> Counts:
        """Nothing: its spec has one size, and no bounds."""
        return {}

    def bounds(self, job: Manifest) -> Manifest:
        """None: no autoscaler."""
        return {}

    def ends_by_size(self, job: Manifest) -> bool:
        """No: its controller or its own program ends it."""
        return False

    def end_follows(self, job: Manifest) -> bool:
        """No: it does not end by its size."""
        return False

    def said_of_end(self, job: Manifest) -> str | None:
        """What the job itself says."""
        said: str | None = (job["metadata"].get("annotations") or {}).get(kueue.SYNC_COMPLETIONS_ANNOTATION)
        return said

    def with_pods(self: JobKind, job: Manifest, counts: Counts, *, present: Manifest) -> Manifest:
        """As for any other size."""
        return self.with_counts(job, counts)

    def left_at(self, job: Manifest, size: Counts) -> Counts:
        """All of them."""
        return size

    def size_for(self, job: Manifest, left: Counts, finished: Counts) -> Counts:
        """So many."""
        return left

    def set_bounds(self, target: Manifest, bounds: Manifest) -> list[Manifest]:
        """None: no autoscaler."""
        return []

    def take_over(self, job: Manifest, copy: Manifest, fields: Collection[str]) -> list[Manifest]:
        """Nothing: `bounds` names no field."""
        return []

    def is_upgrade(self, counts: Counts) -> bool:
        """Never: it carries its own counts."""
        return False

    def is_autoscaled(self, scale_target: Manifest) -> bool:
        """Never: it has no autoscaler."""
        return False
