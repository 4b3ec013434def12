"""Reads whether a job is suspended, and makes the patch that suspends or resumes it, as its kind says."""

from typing import Any

from slicebus.slices.jobs.paths import merge_patch, value_at
from slicebus.slices.jobs.registry import KINDS

Manifest = dict[str, Any]


def can_suspend(kind: str) -> bool:
    """Whether jobs of a kind can be suspended. The others leave their worker when they lose their quota."""
    return KINDS[kind].suspend_path is not None


def is_suspended(job: Manifest) -> bool:
    """Whether a job's spec says that it is suspended."""
    path = KINDS[job["kind"]].suspend_path
    return path is not None and bool(value_at(job, path))


def suspension(kind: str, suspended: bool) -> Manifest:
    """The JSON merge patch that suspends or resumes a job of a kind; empty where it cannot be suspended."""
    path = KINDS[kind].suspend_path
    return {} if path is None else merge_patch(path, suspended)


def to_suspend(job: Manifest) -> Manifest:
    """The merge patch that suspends a job; empty where it is suspended."""
    return {} if is_suspended(job) else suspension(job["kind"], True)


def to_resume(job: Manifest) -> Manifest:
    """The merge patch that resumes a job; empty where it runs."""
    return suspension(job["kind"], False) if is_suspended(job) else {}
