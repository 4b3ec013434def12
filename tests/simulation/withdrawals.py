"""A job of high priority that comes when everything agrees, and goes as soon as another is told to make room for it.

Nobody waits for that any more then: who was told keeps quota and pods.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from simulation.jobs import slices_of, submit_job
from simulation.schedule import Item
from simulation.violations import Violation
from slicebus.cli.demo import objects
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import JOBS
from slicebus.slices.admission.preemption import preemptor_job
from slicebus.slices.api.kueue import Condition
from slicebus.slices.workload.workload import Slice

Manifest = dict[str, Any]
_LOOK_S = 0.2
_LOOKS = 20
_OVER_S = 20.0
"""Longer than any notice."""
_SIZES = (2, 5, 9)
"""Somebody has to make room for one of them, whatever is free."""


class Relent(Item):
    """A job that is told, and those that come and go, in one queue."""

    queue: str
    least: int | None
    """How many of its two pods the job keeps, where it can lose some."""


async def check_withdrawn(manager: KubeClient, item: Relent, note_delete: Callable[[Manifest], None]) -> bool:
    """Play it: whether the job was told. Raises Violation where it loses something for one that has gone."""

    submit = partial(submit_job, manager, item.queue)

    async def delete(job: Manifest) -> None:
        note_delete(job)
        await manager.delete(JOBS, job["metadata"]["name"], objects.NAMESPACE)

    job = await submit("told", 2, "low", notice="1h", least=item.least)
    told = False
    if await _becomes(manager, job, lambda slice: slice.admitted):
        for size in _SIZES:
            preemptor = await submit(f"relents-{size}", size, "high")
            uid = preemptor["metadata"]["uid"]
            told = await _becomes(manager, job, lambda slice, uid=uid: _loses(slice, uid))
            await delete(preemptor)
            await asyncio.sleep(_OVER_S)
            if told:
                if await _becomes(manager, job, lambda slice, uid=uid: _loses(slice, uid)):
                    raise Violation(f"withdrawn: {job['metadata']['name']} goes for one that has gone")
                break
    await delete(job)
    return told


async def _becomes(manager: KubeClient, job: Manifest, condition: Callable[[Slice], bool]) -> bool:
    """Whether that soon holds for a slice of the job."""
    for _ in range(_LOOKS):
        await asyncio.sleep(_LOOK_S)
        if any(map(condition, await slices_of(manager, job))):
            return True
    return False


def _loses(slice: Slice, preemptor_uid: str) -> bool:
    """Whether a slice goes or shrinks for that job, or has."""
    preempted, note = slice.conditions.get(Condition.PREEMPTED, {}), slice.reclaimed
    if preempted.get("status") == "True" and preemptor_job(preempted["message"]) == preemptor_uid:
        return True
    if note is None or preemptor_uid not in {each.job_uid for each in note.beneficiaries}:
        return False
    return slice.shrinks_to is not None or slice.held_counts != note.before
