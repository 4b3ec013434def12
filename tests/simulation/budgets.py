"""Budgets that users give queues and cohorts for a while."""

import asyncio
from collections.abc import Iterator, Mapping
from random import Random

import orjson

from simulation.later import with_later
from simulation.queues import COHORT_PARENTS, QUEUES
from simulation.schedule import Moment, Schedule
from slicebus.cli.demo import objects
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.resources import CLUSTERQUEUES, COHORTS, LOCALQUEUES
from slicebus.proto.errors import TransientError
from slicebus.slices.api import api_names

_TEXTS = ("0.004h/30s", "0.01h/60s", "0.03h/120s", "0.1h/300s")
"""Of cores: a run has some tens of them."""
_MODES = ("soft", "hard", "hard", "drain", "drain")
_AGAIN_S = 1.0


class GiveBudget(Moment):
    """A queue or a cohort has a budget for a while."""

    kind: str
    name: str
    text: str
    mode: str
    for_s: float


def with_budgets(schedule: Schedule) -> Schedule:
    """The same run, on one of eight with budgets."""
    return with_later(schedule, "budgets", _budgets)


async def give(client: KubeClient, item: GiveBudget) -> None:
    """Play it. It is taken away whatever happens: nobody may go on without quota."""
    text = orjson.dumps({"cpu": item.text}).decode()
    await _annotate(client, item, {api_names.BUDGET_ANNOTATION: text, api_names.BUDGET_MODE_ANNOTATION: item.mode})
    await asyncio.sleep(item.for_s)
    while True:
        try:
            await _annotate(client, item, {api_names.BUDGET_ANNOTATION: None, api_names.BUDGET_MODE_ANNOTATION: None})
        except TransientError:
            await asyncio.sleep(_AGAIN_S)
        else:
            return


async def _annotate(client: KubeClient, item: GiveBudget, annotations: Mapping[str, str | None]) -> None:
    resource = next(one for one in (CLUSTERQUEUES, LOCALQUEUES, COHORTS) if one.kind == item.kind)
    namespace = objects.NAMESPACE if resource is LOCALQUEUES else None
    await client.patch(resource, item.name, namespace, MergePatch({"metadata": {"annotations": annotations}}))


def _budgets(random: Random, run_s: float) -> Iterator[Moment]:
    if not 1 / 4 < random.random() <= 3 / 8:
        return
    for _ in range(random.randint(1, 4)):
        kind = random.choice((CLUSTERQUEUES, CLUSTERQUEUES, LOCALQUEUES, COHORTS)).kind
        at_s = round(random.uniform(0, run_s / 2), 2)
        yield GiveBudget(
            at_s=at_s,
            kind=kind,
            name=random.choice([*COHORT_PARENTS] if kind == COHORTS.kind else [*QUEUES]),
            text=random.choice(_TEXTS),
            mode=random.choice(_MODES),
            for_s=round(random.uniform(run_s / 4, run_s), 2),
        )
