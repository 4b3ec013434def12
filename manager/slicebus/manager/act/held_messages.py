"""Keeps the reports on jobs whose writes the API server refuses, or for which a webhook does not answer it: they are no
dead letters, and are tried again.

A right, a policy or a webhook may be mended at any time, and the worker does not say the same twice. Whoever starts
again has none of these: it asks every cluster for its inventory, and is told again what it does not know.
"""

import asyncio
from collections.abc import Iterator

from slicebus.ambient.lasting_failures import MESSAGE_PATIENCE, LastingFailures
from slicebus.decisions.decider import Incoming
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.errors import PermanentError, UnavailableError
from slicebus.proto.messages import ClusterName, JobRef, Report, job_of


class HeldMessages:
    """The newest refused message of each type, by job: a job of a cluster may hold some, and no cluster more."""

    def __init__(self, store: ManagerStore) -> None:
        self._store = store
        self._held: dict[JobRef, dict[str, Incoming[Report]]] = {}
        self.refused_clusters: dict[ClusterName, str] = {}
        """The clusters whose status the API server refuses to write, with its words, until it takes one."""
        self._failures = LastingFailures[JobRef | ClusterName](MESSAGE_PATIENCE)

    def is_kept(self, incoming: Incoming[Report], error: PermanentError | UnavailableError) -> bool:
        """Whether a report is kept, and that is told: it is refused, or a webhook has not answered, or the API server
        has failed at it, for so long that it counts as refused. That the server is away says nothing of a report."""
        return self._is_kept(job_of(incoming.message) or incoming.envelope.cluster, error)

    def note_unshown(self, incoming: Incoming[Report], error: PermanentError | UnavailableError) -> None:
        """Note why a cluster cannot show what a message says that nobody acts on. Raises the error while it may end
        in a moment."""
        if not self._is_kept(incoming.envelope.cluster, error):
            raise error
        self.hold(None, incoming, error)

    def _is_kept(self, about: JobRef | ClusterName, error: PermanentError | UnavailableError) -> bool:
        return self._failures.has_lasted(about, error, now_s=asyncio.get_running_loop().time())

    def hold(self, job: JobRef | None, incoming: Incoming[Report], error: PermanentError | UnavailableError) -> None:
        """Keep a message in place of an older one of its type; of one on the cluster itself, which comes again by
        itself, only why it is refused."""
        if job is None:
            self.refused_clusters[incoming.envelope.cluster] = str(error)
            return
        self._held.setdefault(job, {})[incoming.message.type] = incoming

    def of(self, job: JobRef) -> Iterator[Incoming[Report]]:
        """The messages of a job, oldest first."""
        held = self._held.get(job, {}).values()
        return iter(sorted(held, key=lambda incoming: incoming.number))

    def settle(self, job: JobRef | None, incoming: Incoming[Report]) -> None:
        """Drop what a message that was handled is, or has superseded. One that comes late supersedes nothing."""
        self._failures.forget(job or incoming.envelope.cluster)
        if job is None:
            self.refused_clusters.pop(incoming.envelope.cluster, None)
            return
        held = self._held.get(job)
        if held is None or _is_older(incoming, held.get(incoming.message.type)):
            return
        held.pop(incoming.message.type, None)
        if not held:
            self.forget(job)

    def forget(self, job: JobRef) -> None:
        """Drop everything of a job."""
        self._held.pop(job, None)
        self._failures.forget(job)
        self._store.refused_requests.pop(job, None)


def _is_older(incoming: Incoming[Report], kept: Incoming[Report] | None) -> bool:
    """Whether a message was published before the one that is kept, by the same cluster."""
    if kept is None or kept.envelope.agent != incoming.envelope.agent:
        return False
    first, second = incoming.envelope, kept.envelope
    return (first.epoch, first.sequence) < (second.epoch, second.sequence)
