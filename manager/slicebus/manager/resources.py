"""The resource of each job kind."""

from slicebus.kube.resources import JOBS, RAYCLUSTERS, RAYJOBS, Resource

JOB_RESOURCES: dict[str, Resource] = {resource.kind: resource for resource in (JOBS, RAYCLUSTERS, RAYJOBS)}
