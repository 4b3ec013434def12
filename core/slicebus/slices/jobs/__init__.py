"""The job kinds: how each tells its pod sets, counts and end, and what its copy on a worker looks like.

`JobKind` is the interface; `KINDS` holds Job, RayCluster and RayJob. Both roles use these, so they live in the domain.
"""

from slicebus.slices.jobs.base import JobKind, Outcome, Placement, Problem
from slicebus.slices.jobs.registry import KINDS

__all__ = ["KINDS", "JobKind", "Outcome", "Placement", "Problem"]
