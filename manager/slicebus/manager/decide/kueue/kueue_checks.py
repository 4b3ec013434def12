"""Answers slicebus' AdmissionChecks beside a Kueue: whether each is active, and its state on a Workload.

A check is ours by its `controllerName`. A ClusterQueue whose check is inactive admits nothing. So a check is inactive
only while no cluster could run anything; a cluster that is not connected is a reason to wait.
"""

from collections.abc import Sequence

from slicebus.decisions.commands import Command, Emit, Patch
from slicebus.kube.resources import ADMISSIONCHECKS, WORKLOADS
from slicebus.manager.decide.manifests import findings_patch
from slicebus.manager.state.requirements import is_our_check
from slicebus.manager.state.worker_clusters import WorkerCluster
from slicebus.proto.messages import Manifest
from slicebus.slices.api.conditions import Finding, has_finding
from slicebus.slices.api.kueue import CheckState

ACTIVE = "Active"
_MESSAGE_LENGTH = 32_768
_KEEPS_BACK = {CheckState.READY: 0, CheckState.RETRY: 2, CheckState.REJECTED: 3}


def report(check: Manifest, clusters: Sequence[WorkerCluster], *, now: str) -> list[Command]:
    """Write onto the check whether it can be answered; nothing where it shows that already."""
    finding = _active(check, clusters)
    if not is_our_check(check) or has_finding(check, finding):
        return []
    body = findings_patch(check, finding, now=now)
    return [
        Patch(resource=ADMISSIONCHECKS, target=check, body=body, subresource="status"),
        Emit(regarding=check, reason=finding.reason, note=finding.message, warning=not finding.status),
    ]


def entry_of(workload: Manifest, checks: frozenset[str] | None) -> Manifest | None:
    """The Workload's entry of our check; of several, as for flavors of their own, that which keeps the job most from
    running. None where its ClusterQueue has no such check, or the check is gone."""
    return max(_ours(workload, checks), key=lambda entry: _KEEPS_BACK.get(entry["state"], 1), default=None)


def answer(
    workload: Manifest, checks: frozenset[str] | None, state: CheckState, message: str, *, now: str
) -> list[Command]:
    """Set the state of all our checks on a Workload, unless it is set. A merge patch replaces the whole list."""
    reported, ours = {"state": state.value, "message": message[:_MESSAGE_LENGTH]}, _ours(workload, checks)
    if all(reported.items() <= entry.items() for entry in ours):
        return []

    def answered(entry: Manifest) -> Manifest:
        since = entry["lastTransitionTime"] if entry["state"] == state else now
        return entry | reported | {"lastTransitionTime": since}

    entries = [answered(entry) if entry in ours else entry for entry in workload["status"]["admissionChecks"]]
    body = {"status": {"admissionChecks": entries}}
    return [Patch(resource=WORKLOADS, target=workload, body=body, subresource="status")]


def _ours(workload: Manifest, checks: frozenset[str] | None) -> list[Manifest]:
    entries = workload.get("status", {}).get("admissionChecks") or ()
    return [entry for entry in entries if entry["name"] in (checks or ())]


def _active(check: Manifest, clusters: Sequence[WorkerCluster]) -> Finding:
    if check.get("spec", {}).get("parameters"):
        text = "spec.parameters must be empty: the WorkerClusters name the fleet"
        return Finding(ACTIVE, False, "ParametersNotSupported", text)
    if not any(cluster.accepted for cluster in clusters):
        return Finding(ACTIVE, False, "NoWorkerCluster", "There is no WorkerCluster with spec.accepted: true")
    return Finding(ACTIVE, True, "Active", "The admission check is active")
