"""The status of a WorkerCluster: its identity, whether it is connected, and what its agent last reported."""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from slicebus.decisions.commands import Command, Emit, Patch
from slicebus.kube.resources import WORKERCLUSTERS
from slicebus.manager.decide.cluster import identity
from slicebus.manager.decide.cluster.delete_breaker import Hold
from slicebus.manager.decide.manifests import merge_difference
from slicebus.manager.state.worker_clusters import CONNECTED, WorkerCluster, is_true
from slicebus.proto.envelope import Envelope
from slicebus.proto.errors import DeadReason, ProtocolError
from slicebus.proto.messages import Heartbeat, Hello, Manifest
from slicebus.slices.api.conditions import Finding, has_finding, with_findings
from slicebus.slices.jobs.cluster_policy import told_policy
from slicebus.slices.placement.fleet import describe_room
from slicebus.slices.quota.quota import FlavorResource

DELETES_HELD = "DeletesHeld"
"""True while deletes of jobs of the cluster wait for somebody to release them."""
_HELD, _HELD_BY_SHARDS = "heldDeletes", "heldDeletesByShard"
_SHOWN_EVERY_S = 30.0
"""A heartbeat that changes only what is shown is written at most this often."""
_ONLY_SHOWN = {"used", "ours", "room", "jobs", "policy"}


def hello(cluster: Manifest, message: Hello, envelope: Envelope, *, now: str) -> list[Command]:
    """Write the agent's versions and its epoch, which fences every lower one from now on."""
    reported = {
        "epoch": envelope.epoch,
        "agentVersion": message.agent_version,
        "kubernetesVersion": message.kubernetes_version,
        "schemaVersion": message.schema_version,
        "schedulerBackends": message.scheduler_backends or None,
        "clusterUID": envelope.cluster_uid,
    }
    return _report(cluster, reported, envelope, now=now)


def heartbeat(
    cluster: Manifest,
    message: Heartbeat,
    envelope: Envelope,
    *,
    now: str,
    fence_s: float | None = None,
    granted: Mapping[FlavorResource, int] = {},
) -> list[Command]:
    """Write what the agent reports on its cluster, and its epoch: the hello may have come before the acceptance.
    Nothing, where no decision depends on what is new in it and the last write was a moment ago.

    `fence_s` is the fence in the answer to it, in seconds. Where the agent keeps a fence already, the longer one is
    written, because it may go by either. `granted` is what our jobs were granted there. Raises ProtocolError for
    what is not a quantity.
    """
    reported = {
        "epoch": envelope.epoch,
        "capacity": message.capacity,
        "used": message.used,
        "ours": message.ours,
        "lackingNamespaces": message.lacking if isinstance(message.lacking, dict) and message.lacking else None,
        "schedulerBackends": message.scheduler_backends or None,
        "jobs": message.jobs,
        "lagSeconds": round(message.lag_s),
        "outOfSync": message.out_of_sync,
        "fenceSeconds": _fence_of(message, fence_s),
        "clusterUID": envelope.cluster_uid,
    }
    if isinstance(message.container_defaults, dict):
        reported["containerDefaults"] = message.container_defaults or None
    if isinstance(message.pod_overheads, dict):
        reported["podOverheads"] = message.pod_overheads or None
    if isinstance(message.policy, dict) and (rules := told_policy(message.policy)) is not None:
        reported["policy"] = msgspec.to_builtins(rules)
    after = _read(cluster, reported)
    reported["room"] = describe_room(after.place, granted)
    if _was_shown(cluster, now=now) and _is_only_shown(cluster, reported, after):
        return []
    return _report(cluster, reported, envelope, now=now)


def lost(cluster: Manifest, *, silent_s: float, now: str) -> list[Command]:
    """Show a silent cluster as not connected; its jobs run on."""
    message = f"No heartbeat for {silent_s:.0f} seconds"
    if not is_true(cluster, CONNECTED):
        return []
    finding = Finding(CONNECTED, False, "HeartbeatLost", message)
    body = {"status": {"conditions": with_findings(cluster, finding, now=now)}}
    return [
        Patch(resource=WORKERCLUSTERS, target=cluster, body=body, subresource="status"),
        Emit(regarding=cluster, reason="HeartbeatLost", note=message, warning=True),
    ]


def is_held(cluster: Manifest, *, shard: int = 0) -> bool:
    """Whether the WorkerCluster shows that a shard of the manager holds its deletes."""
    return is_true(cluster, _held_condition(shard))


def held_deletes(status: Manifest) -> list[Manifest]:
    """The id and the number of jobs of each hold that the status of a WorkerCluster shows, and of the jobs that are
    looked at after them."""
    return [hold for hold in (status.get(_HELD), *status.get(_HELD_BY_SHARDS, {}).values()) if hold]


def release_of(status: Manifest) -> str:
    """The value of the annotation that releases what the status of a WorkerCluster shows as held; empty for nothing."""
    return ",".join(hold["id"] for hold in held_deletes(status))


def deletes_held(cluster: Manifest, hold: Hold | None, *, now: str, shard: int = 0) -> list[Command]:
    """Show how many deletes a shard holds, and the id that releases them; nothing when that is shown already."""
    name, was_held, condition = cluster["metadata"]["name"], is_held(cluster, shard=shard), _held_condition(shard)
    if hold is None and not was_held:
        return []
    shown = {"id": hold.id, "jobs": len(hold.jobs), "unseen": hold.unseen} if hold else None
    if hold:
        kinds = ", ".join(sorted(hold.unserved))
        why = f", some because {kinds} was not served for a while" if kinds else " at once"
        more = f", and {hold.unseen} more are looked at after these" if hold.unseen else ""
        note = f"{len(hold.jobs)} jobs would be deleted{why}{more}: look, then `slicebus fleet release {name}`"
        finding = Finding(condition, True, "KindNotServed" if kinds else "TooManyDeletes", note)
    else:
        note = "No deletes are held any more"
        finding = Finding(condition, False, "NothingHeld", note)
    if was_held and hold and has_finding(cluster, finding) and shown in held_deletes(cluster["status"]):
        return []
    of_shard = {_HELD_BY_SHARDS: {str(shard): shown}} if shard else {_HELD: shown}
    body = {"status": of_shard | {"conditions": with_findings(cluster, finding, now=now)}}
    write = Patch(resource=WORKERCLUSTERS, target=cluster, body=body, subresource="status")
    if was_held and hold:
        return [write]
    reason = DELETES_HELD if hold else "DeletesReleased"
    return [write, Emit(regarding=cluster, reason=reason, note=note, warning=hold is not None)]


def many_strays(cluster: Manifest, *, most: int) -> list[Command]:
    """Tell that a cluster lists more jobs that do not belong there than one inventory may have deleted."""
    name = cluster["metadata"]["name"]
    note = (
        f"{name} lists more than {most} jobs that the manager does not run there. So many are deleted or held at a "
        "time, the next ones by its next inventory"
    )
    return [Emit(regarding=cluster, reason="ManyStrays", note=note, warning=True)]


def _held_condition(shard: int) -> str:
    return f"{DELETES_HELD}ByShard{shard}" if shard else DELETES_HELD


def _read(cluster: Manifest, reported: Manifest) -> WorkerCluster:
    """The cluster by what its agent has just reported."""
    status = cluster.get("status", {}) | reported
    known = {name: value for name, value in status.items() if value is not None}
    try:
        return WorkerCluster.from_manifest(cluster | {"status": known})
    except ValueError as error:
        raise ProtocolError(DeadReason.REFUSED, str(error)) from error


def _fence_of(message: Heartbeat, sent_s: float | None) -> float | None:
    return max(message.fence_s, sent_s or 0) if message.fence_s else None


def _was_shown(cluster: Manifest, *, now: str) -> bool:
    """Whether the cluster shows a recent heartbeat, and nothing that the next one ends."""
    written = cluster.get("status", {}).get("lastHeartbeatTime")
    if written is None or not is_true(cluster, CONNECTED) or identity.other_uid(cluster) is not None:
        return False
    since = datetime.fromisoformat(now) - datetime.fromisoformat(written)
    return 0 <= since.total_seconds() < _SHOWN_EVERY_S


def _is_only_shown(cluster: Manifest, reported: Manifest, after: WorkerCluster) -> bool:
    """Whether no decision depends on what is new in a report. `after` is the cluster after the report."""
    status = cluster.get("status", {})
    changed = {name for name, value in reported.items() if value != status.get(name)}
    return changed <= _ONLY_SHOWN and after == WorkerCluster.from_manifest(cluster)


def _report(cluster: Manifest, reported: Manifest, envelope: Envelope, *, now: str) -> list[Command]:
    connected = Finding(CONNECTED, True, "Connected", "The agent speaks")
    findings, cleared = identity.settle_conflict(cluster, envelope, now=now)
    known = {name: value for name, value in cluster.get("status", {}).items() if name in reported}
    # The difference, because a merge patch of the report would keep a resource that is no longer there.
    status = merge_difference(known, reported) | {
        "lastHeartbeatTime": now,
        "conditions": with_findings(cluster, connected, *findings, now=now),
        **cleared,
    }
    commands: list[Command] = [
        Patch(resource=WORKERCLUSTERS, target=cluster, body={"status": status}, subresource="status")
    ]
    if not has_finding(cluster, connected):
        note = f"The agent speaks, epoch {envelope.epoch}"
        commands.append(Emit(regarding=cluster, reason="Connected", note=note))
    return commands
