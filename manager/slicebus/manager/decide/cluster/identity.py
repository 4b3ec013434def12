"""Decides which cluster has a name: the one whose UID was reported first (docs/decisions/0014). It has no other name.

Messages of another cluster with the same name are refused, and it gets no orders; so are those of a cluster under a
second name. Where two writes of one moment bound two names to one UID, the older WorkerCluster that is accepted has it.
The one that is spoken for shows the conflict.
"""

from collections.abc import Iterable
from datetime import datetime

from slicebus.decisions.commands import Command, Emit, Patch
from slicebus.kube.resources import WORKERCLUSTERS
from slicebus.manager.state.worker_clusters import pinned_uid
from slicebus.proto.envelope import Envelope
from slicebus.proto.messages import ClusterName, ClusterUid, Manifest
from slicebus.slices.api.conditions import Finding, has_finding, with_findings

NAME_CONFLICT = "NameConflict"
"""True while an agent of another cluster speaks under the name, also one that has a name."""
_OTHER = "otherCluster"
_QUIET_S = 300.0
"""A cluster that was silent for so long has another name by now, or is gone."""


def other_name(name: ClusterName, bound: Iterable[Manifest]) -> ClusterName | None:
    """The other WorkerCluster that has a UID, seen from the one with this name; None where no other has it.

    `bound` are those that are bound to the UID: of those that are accepted the one that was made first has it, of one
    second that with the lower name. Nobody is heard by a name that is not accepted: it has the UID only where no
    accepted one is bound to it.
    """
    first = min(bound, key=_order_of, default=None)
    has_it = first["metadata"]["name"] if first is not None else name
    return ClusterName(has_it) if has_it != name else None


def _order_of(cluster: Manifest) -> tuple[bool, str, str]:
    metadata, is_accepted = cluster["metadata"], cluster.get("spec", {}).get("accepted", False)
    return not is_accepted, metadata.get("creationTimestamp", ""), metadata["name"]


def conflict(cluster: Manifest, envelope: Envelope, *, now: str, other: ClusterName | None = None) -> list[Command]:
    """Commands that show that another cluster speaks under the name: which, when, and what to do. `other` is the other
    WorkerCluster that has its UID; None without one."""
    finding = _other_cluster(cluster, envelope) if other is None else _other_name(cluster, envelope, other)
    seen, note = {"clusterUID": envelope.cluster_uid, "lastSeenTime": now}, finding.message
    body = {"status": {_OTHER: seen, "conditions": with_findings(cluster, finding, now=now)}}
    write = Patch(resource=WORKERCLUSTERS, target=cluster, body=body, subresource="status")
    if has_finding(cluster, finding):
        return [write]
    return [write, Emit(regarding=cluster, reason=NAME_CONFLICT, note=note, warning=True)]


def _other_cluster(cluster: Manifest, envelope: Envelope) -> Finding:
    name, uid = cluster["metadata"]["name"], envelope.cluster_uid
    note = (
        f"Another cluster, {uid}, speaks as {name}, which is {pinned_uid(cluster)}: give its agent another name, "
        f"or if {name} was made anew: slicebus fleet repin {name}"
    )
    return Finding(NAME_CONFLICT, True, "OtherCluster", note)


def _other_name(cluster: Manifest, envelope: Envelope, other: ClusterName) -> Finding:
    name, uid = cluster["metadata"]["name"], envelope.cluster_uid
    then = f", and then slicebus fleet repin {name}" if pinned_uid(cluster) not in (None, uid) else ""
    note = (
        f"A cluster speaks as {name} whose UID, {uid}, WorkerCluster {other} is bound to. A cluster that was restored "
        f"from {other}'s backup has that UID too: if it replaces {other}, give its agent that name, or take the UID "
        f"away: slicebus fleet revoke {other}{then}"
    )
    return Finding(NAME_CONFLICT, True, "OtherName", note)


def other_uid(cluster: Manifest) -> ClusterUid | None:
    """The UID of the other cluster that last spoke under the name; None without one."""
    uid: ClusterUid | None = cluster.get("status", {}).get(_OTHER, {}).get("clusterUID")
    return uid


def settle_conflict(cluster: Manifest, envelope: Envelope, *, now: str) -> tuple[list[Finding], Manifest]:
    """The findings and status fields that end a conflict: the other cluster has the name now, or is silent."""
    conflicting = cluster.get("status", {}).get(_OTHER)
    if not conflicting:
        return [], {}
    silent = datetime.fromisoformat(now) - datetime.fromisoformat(conflicting["lastSeenTime"])
    if conflicting["clusterUID"] != envelope.cluster_uid and silent.total_seconds() < _QUIET_S:
        return [], {}
    return [Finding(NAME_CONFLICT, False, "OneCluster", "No other cluster speaks under the name")], {_OTHER: None}


def unpinned() -> Manifest:
    """The status that gives the name to nobody: the next cluster that is accepted by it has it, whatever its epochs."""
    return {"status": {"clusterUID": None, "epoch": 0, _OTHER: None}}


def repinned(uid: ClusterUid) -> Manifest:
    """The status that gives the name to another cluster. Its epochs start anew."""
    return {"status": {"clusterUID": uid, "epoch": 0}}
