"""Asks the manager's code what would become of jobs and sizes, by the objects of its cluster."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from itertools import islice, takewhile
from typing import Any

from slicebus.ambient import clock
from slicebus.cli import screen
from slicebus.cli.cluster.deciding import asked
from slicebus.cli.journal.source import records
from slicebus.cli.journal.turns import in_turns
from slicebus.journal.entry import Entry
from slicebus.journal.run_times import RunHistory, RunTimes
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import JOB_RESOURCES
from slicebus.kube.times import time_text
from slicebus.manager.decide.forecast import forecast as forecasts
from slicebus.manager.decide.forecast import hypothesis
from slicebus.manager.decide.forecast.forecast import Forecast
from slicebus.manager.decide.forecast.hypothesis import Hypothesis
from slicebus.manager.decide.forecast.start_time import Estimate
from slicebus.manager.state.annotations import job_ref
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.errors import AlreadyExistsError, ForbiddenError, InvalidError
from slicebus.proto.messages import JobRef
from slicebus.slices.jobs import Problem

Manifest = dict[str, Any]
_ROUNDS = 200
_PATIENCE_S = 5.0
"""For the rounds of one job."""
_INVALID = "Invalid"


async def of_job(client: KubeClient, store: ManagerStore, job: Manifest) -> Hypothesis:
    """A job as the API server would store it: what that refuses is refused. Who may not create it is answered by the
    manifest alone."""
    try:
        stored = await client.create(JOB_RESOURCES[job["kind"]], job, dry_run=True)
    except (InvalidError, AlreadyExistsError) as error:
        reason = _INVALID if isinstance(error, InvalidError) else hypothesis.ALREADY_EXISTS
        return Hypothesis(job=job_ref(_with_uid(job)), problems=(Problem(reason, str(error)),))
    except ForbiddenError as error:
        screen.warn(f"not checked by the API server: {error}")
        stored = job
    return of_manifest(store, stored)


def of_manifest(store: ManagerStore, job: Manifest) -> Hypothesis:
    """A job by its manifest alone: no API server checks it, or gives it its defaults. Raises ConfigurationError."""
    metadata = job["metadata"]
    with asked("simulate", f"{job['kind']}/{metadata['namespace']}/{metadata['name']}"):
        return hypothesis.of_job(store, _with_uid(job), now=time_text(clock.now()))


def of_size(store: ManagerStore, ref: JobRef, counts: Mapping[str, int]) -> Hypothesis:
    """A job that exists, at another size. Raises ConfigurationError."""
    with asked("simulate", ref.key):
        return hypothesis.of_size(store, ref, counts, now=time_text(clock.now()))


def forecast(
    store: ManagerStore, hypotheses: Sequence[Hypothesis], history: RunHistory | None = None
) -> list[Forecast]:
    """What the next cycle decides about them, and when those start that wait, if a history is given. Raises
    ConfigurationError."""
    estimate = Estimate(history=history, choose=clock.randomness().choice, take=_in_time) if history else None
    with asked("simulate"):
        return forecasts.forecast(store, hypotheses, moment=clock.now(), estimate=estimate)


async def history_of(source: str, since: datetime, *, amqp_url: str | None) -> RunHistory:
    """The jobs that the journal of a broker has since then, or all of an exported one. Raises ConfigurationError
    and InvalidError."""
    times = RunTimes()
    async with aclosing(in_turns(records(source, since, amqp_url=amqp_url))) as read:
        async for record in read:
            times.feed(Entry.from_record(record))
    return times.history


def _in_time(rounds: Iterator[float]) -> list[float]:
    """As many rounds as there is time for, and no more than are of use."""
    ends_at = time.monotonic() + _PATIENCE_S
    return list(takewhile(lambda _: time.monotonic() < ends_at, islice(rounds, _ROUNDS)))


def _with_uid(job: Manifest) -> Manifest:
    return {**job, "metadata": {"uid": f"{job['metadata']['name']}-simulated", "generation": 1, **job["metadata"]}}
