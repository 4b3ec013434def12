"""The job kinds: how each tells its pod sets, counts and end, and what its copy on a worker looks like.

`JobKind` is the interface; `KINDS` holds Job, RayCluster and RayJob. Both roles use these, so they live in the domain;
what needs a cluster (which pods belong to a job, which child it has) is in the agent's adapters.
"""

from slicebus.slices.jobs.registry import KINDS, kind_of

from slicebus.slices.jobs.base import JobKind, Outcome, Problem

__all__ = ["KINDS", "JobKind", "Outcome", "Problem", "kind_of"]
