"""The first page: what is wrong, who leads, and the worker clusters with their room."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from slicebus.cli.doctor.check import Check
from slicebus.cli.fleet.details import ClusterDetails, details_of
from slicebus.cli.jobs.rows import JobRow
from slicebus.cli.queues.rows import QueueRow
from slicebus.cli.view.fleet_state import FleetState
from slicebus.cli.view.pages.jobs import job_link
from slicebus.cli.view.rendering import link
from slicebus.kube.resources import WORKERCLUSTERS
from slicebus.manager.state.shown_states import ShownState
from slicebus.proto.messages import Manifest
from slicebus.slices.workload.waiting import PODS_NOT_RUNNING, PODS_TERMINATING, REFUSED_THERE

_CONNECTED = "connected"
_TOLD_OF_JOBS = {
    ShownState.UNKNOWN: "of unknown state: nobody knows what their pods do",
    ShownState.REFUSED: "refused",
    ShownState.EVICTING: "being evicted",
}
"""The states of jobs that somebody should look at."""
_NAMED = 3
"""Jobs that an alarm names."""


class Alarm(msgspec.Struct, frozen=True):
    """Something that is not as it should be."""

    text: str
    href: str = ""
    """Where more of it stands."""


class FleetPage(msgspec.Struct, frozen=True, kw_only=True):
    """The fleet."""

    alarms: tuple[Alarm, ...]
    leading: tuple[str, ...]
    """Who leads, a sentence for each shard."""
    journal: str
    """Whether the journal is read."""
    dead_letters: str
    clusters: tuple[ClusterDetails, ...]
    clusters_hidden: bool
    """Whether the user may not see WorkerClusters."""
    jobs: tuple[tuple[ShownState, int], ...]
    """How many jobs are in each state."""


def fleet_page(
    state: FleetState, rows: Sequence[JobRow], *, queues: Iterable[QueueRow], journal: str, dead_letters: Check | None
) -> FleetPage:
    """The page. `journal` is why the journal is not read; empty where it is."""
    clusters = clusters_of(state, rows)
    counts = Counter(row.state for row in rows)
    return FleetPage(
        alarms=(*_alarms(state, clusters, counts, queues, dead_letters), *_not_running(rows)),
        leading=tuple(_leading(state.leaders.holders)),
        journal=journal,
        dead_letters=dead_letters.found if dead_letters else "not counted",
        clusters=clusters,
        clusters_hidden=WORKERCLUSTERS in state.reading.hidden,
        jobs=tuple((name, counts[name]) for name in ShownState if counts[name]),
    )


def clusters_of(state: FleetState, rows: Iterable[JobRow]) -> tuple[ClusterDetails, ...]:
    """Every worker cluster by name, without its Events."""
    store, by_cluster = state.reading.store, defaultdict[str, list[JobRow]](list)
    for row in rows:
        by_cluster[row.cluster].append(row)
    manifests = sorted(store.clusters.all(), key=lambda manifest: str(manifest["metadata"]["name"]))
    return tuple(_details(state, manifest, by_cluster) for manifest in manifests)


def _details(state: FleetState, manifest: Manifest, by_cluster: Mapping[str, Sequence[JobRow]]) -> ClusterDetails:
    name = manifest["metadata"]["name"]
    granted = state.reading.granted_on(name)
    return details_of(manifest, jobs=by_cluster.get(name, ()), granted=granted, is_known=state.is_known)


def _leading(holders: Sequence[str]) -> Iterator[str]:
    for shard, holder in enumerate(holders):
        of = f" shard {shard}" if len(holders) > 1 else ""
        yield f"{holder} leads{of}" if holder else f"nobody leads{of}"


def _alarms(
    state: FleetState,
    clusters: Iterable[ClusterDetails],
    counts: Mapping[ShownState, int],
    queues: Iterable[QueueRow],
    dead_letters: Check | None,
) -> Iterator[Alarm]:
    yield from (Alarm(problem) for problem in state.leaders.problems)
    for cluster in clusters:
        if told := [text for text in cluster.states if text != _CONNECTED]:
            yield Alarm(f"cluster {cluster.name} is {', '.join(told)}", link("clusters", cluster.name))
    if dead_letters is not None and not dead_letters.ok:
        yield Alarm(f"dead letters: {dead_letters.found}. {dead_letters.advice}")
    for name, text in _TOLD_OF_JOBS.items():
        if counts.get(name):
            yield Alarm(f"{_jobs(counts[name])} {text}", link("jobs", state=name))
    for queue in queues:
        if queue.inactive:
            yield Alarm(f"queue {queue.name} admits nothing: {queue.inactive}", queue_link(queue))


def _not_running(rows: Iterable[JobRow]) -> Iterator[Alarm]:
    """The jobs that hold quota for pods that do not run, the first few by name."""
    stuck = [row for row in rows if row.granted and row.reason in (PODS_NOT_RUNNING, PODS_TERMINATING, *REFUSED_THERE)]
    if not stuck:
        return
    names = ", ".join(f"{row.namespace}/{row.name} ({row.reason})" for row in stuck[:_NAMED])
    more = ", …" if len(stuck) > _NAMED else ""
    hold = "1 job holds" if len(stuck) == 1 else f"{len(stuck)} jobs hold"
    yield Alarm(f"{hold} quota for pods that do not run: {names}{more}", job_link(stuck[0]))


def queue_link(queue: QueueRow) -> str:
    """The page of a ClusterQueue; for a LocalQueue its jobs."""
    if queue.namespace:
        return link("jobs", namespace=queue.namespace, queue=queue.name)
    return link("queues", queue.name)


def _jobs(number: int) -> str:
    return f"{number} job" if number == 1 else f"{number} jobs"
