"""Finds the jobs that a user names."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from slicebus.cli.cluster.options import JobScope
from slicebus.cli.cluster.reading import Reading, read
from slicebus.cli.cluster.showing import say_first
from slicebus.cli.names import is_asked_for, namespace_of, nearest
from slicebus.manager.state.annotations import job_ref
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.errors import ConfigurationError, NotFoundError
from slicebus.proto.messages import JobRef
from slicebus.slices.api.api_names import ORIGIN_LABEL

if TYPE_CHECKING:
    from slicebus.kube.client import KubeClient


class FoundJobs(msgspec.Struct, frozen=True):
    """The jobs of a name, and everything that was read with them."""

    reading: Reading
    refs: list[JobRef]


async def find_jobs(client: "KubeClient", job: str, scope: JobScope) -> FoundJobs:
    """The jobs that are named so, in the namespace of the scope or in every one that the user may see; what has to be
    said first is said. Raises NotFoundError with similar names."""
    only = scope.only
    reading = await read(client, fallback=only or namespace_of(job) or client.namespace)
    known = [ref for ref in job_refs(reading.store) if only in (None, ref.namespace)]
    refs = [ref for ref in known if is_asked_for(ref.key, job)]
    if copies := copies_among(reading.store, refs):
        raise refusal(copies[0])
    say_first(reading)
    if not refs:
        raise _no_job(job, known, only or reading.confined_to)
    return FoundJobs(reading, refs)


def jobs_then(store: ManagerStore, job: str, scope: JobScope) -> list[JobRef]:
    """The jobs that were named so at a moment of the past. Raises NotFoundError with similar names."""
    known = [ref for ref in job_refs(store) if scope.only in (None, ref.namespace)]
    if refs := [ref for ref in known if is_asked_for(ref.key, job)]:
        return refs
    raise _no_job(job, known, scope.only)


def _no_job(job: str, known: Iterable[JobRef], namespace: str | None) -> NotFoundError:
    where = f" in namespace {namespace}" if namespace else ""
    return NotFoundError(f"there is no job {job}{where}{nearest(job, [ref.key for ref in known])}")


def copies_among(store: ManagerStore, refs: Iterable[JobRef]) -> list[JobRef]:
    """Those that an agent has made. Who may not read Leases learns by them that this is a worker."""
    jobs = ((ref, store.view(ref).job) for ref in refs)
    return [ref for ref, job in jobs if job is not None and ORIGIN_LABEL in (job["metadata"].get("labels") or {})]


def refusal(copy: JobRef) -> ConfigurationError:
    """What to say of the copy of a job."""
    return ConfigurationError(f"{copy.key} is an agent's copy: this is a worker; run it on the manager's cluster")


def job_refs(store: ManagerStore) -> list[JobRef]:
    """Every job that exists, whether slicebus runs it or not."""
    return [job_ref(manifest) for cache in store.jobs.values() for manifest in cache.all()]
