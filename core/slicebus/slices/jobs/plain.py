"""Answers for a job kind where it lacks what other kinds have."""

from collections.abc import Collection
from typing import Any

from slicebus.proto.messages import Counts
from slicebus.slices.jobs.base import Exposure, Refusal

Manifest = dict[str, Any]


class PlainKind:
    """A kind whose jobs carry their own counts, without children, autoscaler and objects of its own. A kind that has
    some of it overrides the method."""

    child_kind = ""
    late_pod_sets = frozenset[str]()
    refusal = Refusal()

    def finished(self, job: Manifest) -> Counts:
        """None: its pods run until it ends."""
        return {}

    def succeeded(self, status: Manifest) -> Counts:
        """None: its pods run until it ends."""
        return {}

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

    def named_for_deletion(self, scale_target: Manifest) -> frozenset[str]:
        """None: its controller chooses the pods."""
        return frozenset()

    def bounds(self, job: Manifest) -> Manifest:
        """None: no autoscaler."""
        return {}

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
