"""Asks the manager's code what would become of jobs and sizes, by the objects of its cluster."""

from collections.abc import Mapping, Sequence
from typing import Any

from slicebus.ambient import clock
from slicebus.cli import screen
from slicebus.cli.cluster.deciding import asked
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import JOB_RESOURCES
from slicebus.kube.times import time_text
from slicebus.manager.decide.forecast import forecast as forecasts
from slicebus.manager.decide.forecast import hypothesis
from slicebus.manager.decide.forecast.forecast import Forecast
from slicebus.manager.decide.forecast.hypothesis import Hypothesis
from slicebus.manager.state.annotations import job_ref
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.errors import AlreadyExistsError, ForbiddenError, InvalidError
from slicebus.proto.messages import JobRef
from slicebus.slices.jobs import Problem

Manifest = dict[str, Any]
_INVALID = "Invalid"
_EXISTS = "AlreadyExists"


async def of_job(client: KubeClient, store: ManagerStore, job: Manifest) -> Hypothesis:
    """A job as the API server would store it: what that refuses is refused. Who may not create it is answered by the
    manifest alone."""
    try:
        stored = await client.create(JOB_RESOURCES[job["kind"]], job, dry_run=True)
    except (InvalidError, AlreadyExistsError) as error:
        reason = _INVALID if isinstance(error, InvalidError) else _EXISTS
        return Hypothesis(job=job_ref(_with_uid(job)), problems=(Problem(reason, str(error)),))
    except ForbiddenError as error:
        screen.warn(f"not checked by the API server: {error}")
        stored = job
    with asked("simulate"):
        return hypothesis.of_job(store, _with_uid(stored), now=time_text(clock.now()))


def of_size(store: ManagerStore, ref: JobRef, counts: Mapping[str, int]) -> Hypothesis:
    """A job that exists, at another size. Raises DecisionError."""
    with asked("simulate"):
        return hypothesis.of_size(store, ref, counts, now=time_text(clock.now()))


def forecast(store: ManagerStore, hypotheses: Sequence[Hypothesis]) -> list[Forecast]:
    """What the next cycle decides about them. Raises DecisionError."""
    with asked("simulate"):
        return forecasts.forecast(store, hypotheses, moment=clock.now())


def _with_uid(job: Manifest) -> Manifest:
    return {**job, "metadata": {"uid": f"{job['metadata']['name']}-simulated", "generation": 1, **job["metadata"]}}
