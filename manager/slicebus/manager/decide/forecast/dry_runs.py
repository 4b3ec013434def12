"""Writes onto a job that is only asked about what would become of it.

Its user may see no more than the objects of its namespace, so it is told no name of another one.
"""

from collections.abc import Iterator
from datetime import datetime

import msgspec

from slicebus.decisions.commands import Command, Patch
from slicebus.kube.resources import JOB_RESOURCES
from slicebus.manager.decide.forecast import hypothesis
from slicebus.manager.decide.forecast.forecast import Forecast, forecast
from slicebus.manager.decide.forecast.verdict import Loss, PodSetPlace, Prospect
from slicebus.manager.decide.manifests import annotation_patch
from slicebus.manager.state.annotations import annotation, job_ref
from slicebus.manager.state.requirements import DRY_RUNS, is_dry_run
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.messages import Counts, JobRef, Manifest
from slicebus.slices.api import api_names

_LENGTH = 2000
"""Of each text: all annotations of an object share 256 KiB."""
_SHOWN = 10
"""So many losses and jobs ahead have their names."""


class ShownVerdict(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The annotation."""

    outcome: str
    """A `Prospect`."""
    size: Counts = {}
    reason: str = ""
    message: str = ""
    would_admit: str = ""
    cluster_queue: str = ""
    cluster: str = ""
    pod_sets: tuple[PodSetPlace, ...] = ()
    preempts: int = 0
    """How many jobs would lose pods or all of theirs."""
    losses: tuple[Loss, ...] = ()
    """Those of them in its namespace."""
    position: int = 0
    of: int = 0
    ahead: tuple[str, ...] = ()
    """The first of those before it in its namespace."""


def are_there(store: ManagerStore) -> bool:
    """Whether there is any such job."""
    return any(cache.keyed_by(DRY_RUNS, DRY_RUNS) for cache in store.jobs.values())


def asked(store: ManagerStore) -> Iterator[JobRef]:
    """The jobs of this shard that are only asked about, or were."""
    for cache in store.jobs.values():
        yield from (ref for ref in map(job_ref, cache.keyed_by(DRY_RUNS, DRY_RUNS).values()) if store.has(ref))


def show(store: ManagerStore, *, job: JobRef, now: str) -> list[Command]:
    """Write the verdict onto a job, or take it off one that is not asked about any more; nothing where that is so."""
    view = store.view(job)
    if view.job is None:
        return []
    is_asked = is_dry_run(view.job) and not view.is_taken and not store.beside_kueue
    shown = _verdict(store, view.job, now=now) if is_asked else None
    if annotation(view.job, api_names.VERDICT_ANNOTATION) == shown:
        return []
    body = annotation_patch(api_names.VERDICT_ANNOTATION, shown)
    return [Patch(resource=JOB_RESOURCES[job.kind], target=view.job, body=body, only_shows=True)]


def _verdict(store: ManagerStore, job: Manifest, *, now: str) -> str:
    asked_about = hypothesis.of_job(store, job, now=now)
    [found] = forecast(store, [asked_about], moment=datetime.fromisoformat(now), suggests=False)
    return msgspec.json.encode(_shown(found, namespace=job["metadata"]["namespace"]), order="sorted").decode()


def _shown(found: Forecast, *, namespace: str) -> ShownVerdict:
    verdict, own = found.verdict, f"{namespace}/"
    return ShownVerdict(
        outcome=verdict.outcome,
        size=found.size,
        reason=verdict.reason,
        message=verdict.message[:_LENGTH],
        # Whoever waits for others is admitted by their end, and that names them.
        would_admit=verdict.would_admit[:_LENGTH] if verdict.outcome is Prospect.WAITS else "",
        cluster_queue=verdict.cluster_queue,
        cluster=verdict.cluster,
        pod_sets=verdict.pod_sets,
        preempts=len(verdict.losses),
        losses=tuple(loss for loss in verdict.losses if loss.slice.startswith(own))[:_SHOWN],
        position=verdict.position,
        of=verdict.of,
        ahead=tuple(key for key in verdict.ahead if key.startswith(own))[:_SHOWN],
    )
