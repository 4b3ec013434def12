"""Strays: jobs that a worker lists in its inventory, and that the manager does not run there."""

from collections.abc import Collection
from enum import StrEnum

from slicebus.decisions.commands import Command, Publish
from slicebus.manager.state.outbox import MOST_BELIEVED
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import ClusterName, Delete, JobRef


class Whereabouts(StrEnum):
    """Where the manager runs a job, seen from one cluster."""

    HERE = "here"
    ELSEWHERE = "elsewhere"
    UNKNOWN = "unknown"
    """The caches place it nowhere. They may lack the job: the API server has to be asked (rule 6)."""


def whereabouts(view: JobView, cluster: ClusterName) -> Whereabouts:
    """Where the manager runs a job."""
    if view.cluster is None:
        return Whereabouts.UNKNOWN
    return Whereabouts.HERE if view.cluster == cluster else Whereabouts.ELSEWHERE


def is_stray(view: JobView, cluster: ClusterName, *, reported_since: bool) -> bool:
    """Whether a listed job should not be there. One that was reported after the list was made, or whose copy is being
    recalled anyway, is no stray."""
    if cluster in view.left_copies or reported_since:
        return False
    return whereabouts(view, cluster) is not Whereabouts.HERE


def in_turn(listed: Collection[JobRef], *, waiting: Collection[JobRef], settled: Collection[JobRef]) -> list[JobRef]:
    """The jobs of an inventory in the order in which they are looked at, as only some of many are.

    First those whose delete waits: a hold keeps its id. Last those that were settled, the oldest first, so that one
    that stays there keeps no other from its turn.
    """
    held = (ref for ref in waiting if ref in listed and ref not in settled)
    new = (ref for ref in listed if ref not in waiting and ref not in settled)
    return [*held, *new, *(ref for ref in settled if ref in listed)]


def delete(view: JobView, cluster: ClusterName, *, version: int, stored_uid: str | None) -> list[Command]:
    """The delete of a stray; nothing where the job belongs there after all.

    `version` is what the worker holds: the tombstone is above it, so that no older message brings the job back.
    `stored_uid` is the UID under the job's name on the API server, None where there is none; it is asked for only where
    the whereabouts are unknown.
    """
    where = whereabouts(view, cluster)
    if where is Whereabouts.HERE or (where is Whereabouts.UNKNOWN and stored_uid == view.ref.uid):
        return []
    message = Delete(job=view.ref, spec_version=min(version, MOST_BELIEVED) + 1, reason="UnknownJob")
    return [Publish(cluster=cluster, message=message)]
