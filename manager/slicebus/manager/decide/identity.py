"""Which cluster has a name: the one whose UID was said first (docs/decisions/0014).

Another one that was given the same name is not listened to, gets no orders, and is told of on the WorkerCluster.
"""

from datetime import datetime

from slicebus.decisions.commands import Command, Emit, Patch
from slicebus.kube.resources import WORKERCLUSTERS
from slicebus.manager.state.worker_clusters import pinned_uid
from slicebus.proto.envelope import Envelope
from slicebus.proto.messages import ClusterUid, Manifest
from slicebus.slices.conditions import Finding, has_finding, with_findings

NAME_CONFLICT = "NameConflict"
"""True while an agent of another cluster speaks under the name."""
_OTHER = "otherCluster"
_QUIET_S = 300.0
"""Who has said nothing for so long has another name by now, or is gone."""


def reported(envelope: Envelope) -> Manifest:
    """What a message of the agent that is listened to says of its cluster, for the status."""
    uid = envelope.cluster_uid
    return {"ownQueues": True, "clusterUID": uid} if uid else {"ownQueues": False}


def conflict(cluster: Manifest, envelope: Envelope, *, now: str) -> list[Command]:
    """Another cluster speaks under the name: since when, which, and what to do."""
    name, uid = cluster["metadata"]["name"], envelope.cluster_uid
    note = (
        f"Another cluster, {uid}, speaks as {name}, which is {pinned_uid(cluster)}: give its agent another name, "
        f"or if {name} was made anew: slicebus fleet repin {name}"
    )
    finding = Finding(NAME_CONFLICT, True, "OtherCluster", note)
    other = {"clusterUID": uid, "lastSeenTime": now}
    body = {"status": {_OTHER: other, "conditions": with_findings(cluster, finding, now=now)}}
    write = Patch(resource=WORKERCLUSTERS, target=cluster, body=body, subresource="status")
    if has_finding(cluster, finding):
        return [write]
    return [write, Emit(regarding=cluster, reason=NAME_CONFLICT, note=note, warning=True)]


def other(cluster: Manifest) -> ClusterUid | None:
    """The UID of the cluster that spoke under the name last, and was not listened to."""
    uid: ClusterUid | None = cluster.get("status", {}).get(_OTHER, {}).get("clusterUID")
    return uid


def settle_conflict(cluster: Manifest, envelope: Envelope, *, now: str) -> tuple[list[Finding], Manifest]:
    """What ends a conflict, and for the status: the other one has the name now, or has fallen silent."""
    conflicting = cluster.get("status", {}).get(_OTHER)
    if not conflicting:
        return [], {}
    silent = datetime.fromisoformat(now) - datetime.fromisoformat(conflicting["lastSeenTime"])
    if conflicting["clusterUID"] != envelope.cluster_uid and silent.total_seconds() < _QUIET_S:
        return [], {}
    return [Finding(NAME_CONFLICT, False, "OneCluster", "No other cluster speaks under the name")], {_OTHER: None}


def repinned(uid: ClusterUid) -> Manifest:
    """The status that gives the name to another cluster, whose epochs are not those of the one before."""
    return {"status": {"clusterUID": uid, "epoch": 0}}
