"""Describes the job kinds: how each tells its pod sets, counts and end, and what its copy on a worker looks like.

`JobKind` is the interface, and `PlainKind` says for every kind what it lacks. `KINDS` holds slicebus' own, what other
packages bring by the entry points `slicebus.job_kinds`, and what the configuration declares; `LEFT_OUT` says which of
those cannot be used. Both roles use these, so they live in the domain.
"""

from slicebus.slices.jobs.base import Exposure, JobKind, Outcome, Placement, Problem, Refusal
from slicebus.slices.jobs.plain import PlainKind
from slicebus.slices.jobs.registry import KINDS, LEFT_OUT, fitting, spec_shape_of, status_shape_of

__all__ = [
    "KINDS",
    "LEFT_OUT",
    "Exposure",
    "JobKind",
    "Outcome",
    "Placement",
    "PlainKind",
    "Problem",
    "Refusal",
    "fitting",
    "spec_shape_of",
    "status_shape_of",
]
