"""Checks whether a value is a pod template, as far as slicebus reads one."""

from typing import Any, TypeGuard

from slicebus.slices.jobs.fit import misfit
from slicebus.slices.jobs.shapes import TemplateShape

Manifest = dict[str, Any]


def is_template(value: object) -> TypeGuard[Manifest]:
    """Whether it can be read as a PodTemplateSpec. Its quantities may still be none."""
    return not misfit(value, TemplateShape)
