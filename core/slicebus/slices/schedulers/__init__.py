"""Describes the scheduler backends: what each gives the pods of a job, and which objects it needs beside them.

`SchedulerBackend` is the interface: pure functions of the job and of the objects that are there. The agent carries out
what they return. No backend does I/O, and none knows what another makes.
"""

from slicebus.slices.schedulers.base import Gang, Profile, SchedulerBackend, SchedulingObject, Synced, object_name
from slicebus.slices.schedulers.registry import (
    NAMES,
    NO_PROFILES,
    chosen_by,
    every_resource,
    every_version,
    init,
    is_gang,
    profiles_of,
)

__all__ = [
    "NAMES",
    "NO_PROFILES",
    "Gang",
    "Profile",
    "SchedulerBackend",
    "SchedulingObject",
    "Synced",
    "chosen_by",
    "every_resource",
    "every_version",
    "init",
    "is_gang",
    "object_name",
    "profiles_of",
]
