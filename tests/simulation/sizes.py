"""What jobs say of their size, and users who have some job say something else."""

from collections.abc import Callable, Mapping
from typing import Any

from slicebus.cli.demo import objects
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.resources import JOB_RESOURCES
from slicebus.slices.jobs import KINDS

Manifest = dict[str, Any]


def said(job: Manifest, annotation: str, size: Callable[[int], int]) -> dict[str, str]:
    """The annotation by which a job says a size, made of its count, for each pod set that its user sizes."""
    sizes = KINDS[job["kind"]].counts(job, job)
    named = {name: size(count) for name, count in sizes.items() if name not in ("head", "submitter")}
    return {annotation: ",".join(f"{name}={count}" for name, count in named.items())}


async def annotate(client: KubeClient, pick: int, said_by: Callable[[Manifest], Mapping[str, str | None]]) -> None:
    """Give some job annotations, of which None removes one; nothing where there is no job."""
    if jobs := [job for resource in JOB_RESOURCES.values() for job in (await client.list(resource)).items]:
        job = jobs[pick % len(jobs)]
        body = MergePatch({"metadata": {"annotations": {**said_by(job)}}})
        await client.patch(JOB_RESOURCES[job["kind"]], job["metadata"]["name"], objects.NAMESPACE, body)
