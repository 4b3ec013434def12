"""Leaves pods to the scheduler of the cluster, or to another one by its name, without objects."""

from typing import Any

from slicebus.slices.api import api_names
from slicebus.slices.api.resource import Resource
from slicebus.slices.jobs.base import Problem
from slicebus.slices.schedulers.base import Gang, Profile, Synced
from slicebus.slices.workload.pod_scheduling import PodScheduling

Manifest = dict[str, Any]


class Default:
    """Names the scheduler where the profile does, and nothing else."""

    name = api_names.DEFAULT_SCHEDULER
    makes: tuple[Resource, ...] = ()
    reads: tuple[Resource, ...] = ()
    writes_status = False

    def __init__(self, profile: Profile) -> None:
        self._profile = profile

    def validate(self, job: Manifest) -> list[Problem]:
        """No problem: it can schedule every job."""
        return []

    def prepare(self, job: Manifest, pod_set: str) -> PodScheduling:
        """The scheduler's name."""
        return PodScheduling(scheduler_name=self._profile.scheduler_name)

    def sync(self, gang: Gang) -> Synced:
        """No object is needed."""
        return Synced()
