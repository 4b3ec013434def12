"""Everything that is known of one worker cluster, for `slicebus fleet get`."""

from collections.abc import Iterable, Iterator

import msgspec

from slicebus.cli.fleet.rows import states_of
from slicebus.cli.jobs.rows import JobRow
from slicebus.manager.decide.cluster.worker_cluster_status import held_deletes
from slicebus.manager.state.worker_clusters import CONNECTED, WorkerCluster
from slicebus.proto.messages import Manifest
from slicebus.slices.api.conditions import conditions_of
from slicebus.slices.api.quantities import format_amount
from slicebus.slices.placement.fleet import Cluster
from slicebus.slices.quota.quota import Usage

_EVENTS = 10
"""The last Events that are shown."""


class FlavorRoom(msgspec.Struct, frozen=True, kw_only=True):
    """One resource of a flavor on a cluster; amounts as Kubernetes quantities."""

    flavor: str
    resource: str
    capacity: str
    """Empty where there is no limit."""
    others: str
    """What pods use that are not ours."""
    granted: str | None
    """What our jobs are granted there; null for who does not see all of them."""
    left: str | None
    """Empty where there is no limit; null where nobody can tell."""
    others_share: float | None
    """Of the capacity, what the others use; null where there is no limit, or no capacity."""
    granted_share: float | None
    """The same for what our jobs are granted; null where that is."""


class ClusterNotice(msgspec.Struct, frozen=True, kw_only=True):
    """A condition or an Event of the WorkerCluster."""

    at: str
    """RFC 3339."""
    reason: str
    message: str


class ClusterDetails(msgspec.Struct, frozen=True, kw_only=True):
    """One worker cluster."""

    name: str
    states: tuple[str, ...]
    """Whether it is connected, and everything that is out of the ordinary."""
    since: str
    """Since when it is connected, or silent, RFC 3339; empty where nobody knows."""
    heard: str
    """When its agent was last heard, RFC 3339; empty for never."""
    user: str
    """The broker user that may speak for it."""
    uid: str
    """The UID of the cluster that has the name; empty until one was reported."""
    epoch: int
    agent: str
    kubernetes: str
    lag_s: int
    out_of_sync: int
    held_deletes: int
    labels: dict[str, str]
    schedulers: tuple[str, ...]
    takes: str
    """Which jobs it takes, where these are not all."""
    lacking: dict[str, str]
    """The namespaces whose jobs it does not take, with the reasons."""
    room: tuple[FlavorRoom, ...]
    jobs: tuple[JobRow, ...]
    conditions: tuple[ClusterNotice, ...]
    events: tuple[ClusterNotice, ...]
    """The last ones, oldest first."""
    events_unread: str
    """Why there are no Events; empty where they were read."""


def details_of(
    manifest: Manifest,
    *,
    jobs: Iterable[JobRow],
    granted: Usage | None,
    events: Iterable[Manifest] = (),
    events_unread: str = "",
    is_known: bool = True,
) -> ClusterDetails:
    """The details of a WorkerCluster. `granted` is what our jobs are granted there, by flavor and resource; None where
    that is unknown. `events_unread`: why there are no Events. `is_known`: a manager works, who would have written that
    the cluster has fallen silent."""
    cluster, status = WorkerCluster.from_manifest(manifest), manifest.get("status", {})
    connection = next((entry for entry in conditions_of(manifest) if entry["type"] == CONNECTED), {})
    return ClusterDetails(
        name=cluster.name,
        states=tuple(states_of(cluster, status, is_known=is_known)),
        since=connection.get("lastTransitionTime", ""),
        heard=status.get("lastHeartbeatTime") or "",
        user=cluster.user,
        uid=cluster.uid or "",
        epoch=cluster.epoch,
        agent=status.get("agentVersion") or "",
        kubernetes=status.get("kubernetesVersion") or "",
        lag_s=status.get("lagSeconds") or 0,
        out_of_sync=status.get("outOfSync") or 0,
        held_deletes=sum(hold["jobs"] for hold in held_deletes(status)),
        labels=cluster.labels,
        schedulers=cluster.scheduler_backends,
        takes="; ".join(_takes(cluster)),
        lacking=cluster.lacking,
        room=tuple(_room(cluster.place, granted)),
        jobs=tuple(job for job in jobs if job.cluster == cluster.name),
        conditions=tuple(_notices(manifest)),
        events=tuple(_last(events, cluster.name)),
        events_unread=events_unread,
    )


def _takes(cluster: WorkerCluster) -> Iterator[str]:
    if cluster.cluster_queues is not None:
        yield f"only jobs of ClusterQueues {', '.join(sorted(cluster.cluster_queues)) or 'none'}"
    if cluster.namespace_selector:
        yield "only jobs of the namespaces that its namespaceSelector selects"


def _room(cluster: Cluster, granted: Usage | None) -> Iterator[FlavorRoom]:
    reported = [
        (flavor, resource)
        for flavor, resources in sorted((cluster.capacity or {}).items())
        for resource in sorted(resources)
    ]
    ours = sorted(key for key, amount in (granted or {}).items() if amount)
    for key in dict.fromkeys([*reported, *ours]):
        (flavor, resource), limit = key, cluster.limit(key)
        used = granted.get(key, 0) if granted is not None else None
        others, total = cluster.others.get(flavor, {}).get(resource, 0), cluster.total(key) if limit is not None else 0
        yield FlavorRoom(
            flavor=flavor,
            resource=resource,
            capacity=format_amount(resource, total) if limit is not None else "",
            others=format_amount(resource, others),
            granted=format_amount(resource, used) if used is not None else None,
            left=_left(resource, limit, used),
            others_share=others / total if total else None,
            granted_share=used / total if total and used is not None else None,
        )


def _left(resource: str, limit: int | None, used: int | None) -> str | None:
    if limit is None:
        return ""
    return format_amount(resource, max(0, limit - used)) if used is not None else None


def _notices(manifest: Manifest) -> Iterator[ClusterNotice]:
    for entry in conditions_of(manifest):
        yield ClusterNotice(
            at=entry.get("lastTransitionTime", ""),
            reason=f"{entry['type']}={entry['status']} {entry.get('reason', '')}",
            message=entry.get("message", ""),
        )


def _last(events: Iterable[Manifest], cluster: str) -> list[ClusterNotice]:
    about = [
        ClusterNotice(
            at=_time_of(event), reason=event.get("reason", ""), message=event.get("message") or event.get("note", "")
        )
        for event in events
        if (event.get("involvedObject") or {}).get("kind") == "WorkerCluster"
        and event["involvedObject"].get("name") == cluster
    ]
    return sorted(about, key=lambda notice: notice.at)[-_EVENTS:]


def _time_of(event: Manifest) -> str:
    times = (event.get("lastTimestamp"), event.get("eventTime"), event["metadata"].get("creationTimestamp"))
    return next(filter(None, times), "")
