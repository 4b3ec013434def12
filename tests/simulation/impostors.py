"""What must not happen to another cluster whose agent was given the name of one of the fleet."""

from typing import Any

from simulation.violations import Violation
from slicebus.agent.state import annotations
from slicebus.agent.state.reclaim import PendingReclaim
from slicebus.kube.resources import JOB_RESOURCES, WORKLOADS
from slicebus.sandbox.apiserver.store import HistoryEntry

Manifest = dict[str, Any]
RESTORED = "simulation/restored"
"""The label of what was restored from a backup of the cluster that has the name."""
_CARRIED = {(resource.group, resource.plural) for resource in (*JOB_RESOURCES.values(), WORKLOADS)}


def check_other(cluster: str, change: HistoryEntry) -> None:
    """No order is carried out there: nothing is made, changed to a newer version, granted more, or deleted."""
    found = change.object
    if change.key[:2] not in _CARRIED or not annotations.is_ours(found):
        return
    name, before = found["metadata"]["name"], change.old
    if before is None and RESTORED not in found["metadata"]["labels"]:
        raise Violation(f"identity: {name} was made on {cluster}, which is another cluster")
    if before is None:
        return
    if change.type == "DELETED" or "deletionTimestamp" in found["metadata"]:
        raise Violation(f"identity: {name} was deleted on {cluster}, which is another cluster")
    version = annotations.spec_version(found)
    is_newer = version > annotations.spec_version(before) and version != _told_by_notice(before)
    if is_newer or _grew(annotations.granted(before), annotations.granted(found)):
        raise Violation(f"identity: an order for {name} was carried out on {cluster}, which is another cluster")


def check_name(change: HistoryEntry) -> None:
    """Who has a name keeps it."""
    before, after = ((one or {}).get("status", {}).get("clusterUID") for one in (change.old, change.object))
    if before and after != before and change.type != "DELETED":
        raise Violation(f"identity: {change.key[3]} is cluster {after}, and was {before}")


def restored(manifest: Manifest) -> Manifest:
    """An object as a backup brings it into another cluster."""
    metadata = manifest["metadata"]
    kept = {name: metadata[name] for name in ("name", "namespace", "annotations") if name in metadata}
    labels = metadata.get("labels", {}) | {RESTORED: "true"}
    whole = {name: value for name, value in manifest.items() if name != "status"}
    return whole | {"metadata": kept | {"labels": labels}}


def _told_by_notice(manifest: Manifest) -> int | None:
    """The version of the suspension that a job's notice tells of: a backup has it too, and it needs no other order."""
    notice = PendingReclaim.from_job(manifest)
    return notice.version if notice is not None and notice.suspends is not None else None


def _grew(before: dict[str, int], after: dict[str, int]) -> bool:
    return any(count > before.get(name, 0) for name, count in after.items())
