"""Checks whether a value is a pod template, as far as slicebus reads one."""

from typing import Any, TypeGuard

from slicebus.slices.jobs.fit import misfit
from slicebus.slices.jobs.shapes import TemplateShape

Manifest = dict[str, Any]

INVALID_POD_TEMPLATE = "InvalidPodTemplate"
"""The reason of a job with a pod template that has a field of another type than Kubernetes' API."""


def is_template(value: object) -> TypeGuard[Manifest]:
    """Whether it can be read as a PodTemplateSpec. Its quantities may still be none."""
    return not misfit(value, TemplateShape)
