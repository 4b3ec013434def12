"""Every kind that slicebus runs."""

from slicebus.slices.jobs.base import JobKind
from slicebus.slices.jobs.batch import BatchJob
from slicebus.slices.jobs.raycluster import RayCluster
from slicebus.slices.jobs.rayjob import RayJob

KINDS: dict[str, JobKind] = {kind.kind: kind for kind in (BatchJob(), RayCluster(), RayJob())}
"""By kind name."""
