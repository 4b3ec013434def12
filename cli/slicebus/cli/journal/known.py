"""Tells a filter that names nothing from one that finds nothing: an unknown cluster or job is an error that names the
nearest."""

from contextlib import aclosing
from datetime import timedelta

import typer

from slicebus.ambient.clock import now
from slicebus.bus.contract import Bus
from slicebus.cli import screen
from slicebus.cli.broker.connection import bus_of
from slicebus.cli.cluster.filters import unknown
from slicebus.cli.names import nearest
from slicebus.journal.entry import Entry, Filter
from slicebus.journal.streams import read_journals
from slicebus.proto.errors import ConfigurationError, NotFoundError
from slicebus.proto.messages import ClusterName, Lane
from slicebus.proto.topology import cluster_queue

_RECENT = timedelta(minutes=10)
"""In which every connected cluster has said something."""


class Recorded:
    """The clusters and jobs of what was read."""

    def __init__(self) -> None:
        self.clusters: set[str] = set()
        self.jobs: set[str] = set()

    def noting(self, wanted: Filter) -> Filter:
        """A filter that lets the same entries through, and notes all of them."""

        def noted(entry: Entry) -> bool:
            self.clusters.add(entry.cluster)
            if entry.subject:
                self.jobs.add(entry.subject)
            return wanted(entry)

        return noted

    async def explain(self, cluster: str | None, job: str | None, *, amqp_url: str | None) -> None:
        """Say why nothing was found. `amqp_url` is that of the broker that was read; None for a file.

        Raises ConfigurationError for an unknown cluster, and ends the command with status 1 for an unknown job.
        """
        if cluster is not None:
            await check_cluster(cluster, self.clusters, amqp_url=amqp_url)
        if job is not None and not any(known == job or known.endswith(f"/{job}") for known in self.jobs):
            screen.fail(f"slicebus: nothing is recorded about a job {job}{nearest(job, self.jobs)}")
            raise typer.Exit(1)
        screen.warn("no such message is recorded")


async def check_cluster(cluster: str, recorded: set[str], *, amqp_url: str | None) -> None:
    """Raise ConfigurationError for a cluster that is neither recorded nor has a queue on the broker."""
    if cluster in recorded:
        return
    if amqp_url is not None:
        async with bus_of(amqp_url, name="slicebus journal") as bus:
            if await has_queue(bus, cluster):
                return
    raise ConfigurationError(unknown(cluster, "cluster", recorded))


async def check_followed(cluster: str, *, amqp_url: str) -> None:
    """The same for a cluster whose messages are followed: recorded is what was said in the last minutes."""
    recent = Recorded()
    async with bus_of(amqp_url, name="slicebus journal") as bus:
        if await has_queue(bus, cluster):
            return
        note = recent.noting(lambda entry: False)
        async with aclosing(read_journals(bus, now() - _RECENT, follow=False)) as records:
            async for record in records:
                note(Entry.from_record(record))
    await check_cluster(cluster, recent.clusters, amqp_url=None)


async def has_queue(bus: Bus, cluster: str) -> bool:
    """Whether the manager has a queue for a cluster: it was accepted, and is not revoked."""
    try:
        await bus.depth(cluster_queue(ClusterName(cluster), Lane.CONTROL))
    except NotFoundError:
        return False
    return True
