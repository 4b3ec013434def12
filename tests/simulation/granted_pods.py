"""Counts the pods that hold quota at the manager's API server, as it changes: what a ledger has to come to."""

from collections import defaultdict
from typing import Any

from simulation.fleet import MANAGER, Fleet
from slicebus.sandbox.apiserver.store import HistoryEntry

Manifest = dict[str, Any]


class GrantedPods:
    """Pod-seconds with quota by job, from the Workloads alone."""

    def __init__(self, fleet: Fleet) -> None:
        """Count from now on, before the fleet begins."""
        self._fleet = fleet
        self._slices: dict[str, tuple[str, int, int]] = {}
        """By UID: the job, when it was first seen, and the pods that it holds quota for."""
        self._counted: list[tuple[str, float, float, int]] = []
        """Jobs, spans in Unix time, and pods."""
        self._since_s: dict[str, float] = {}
        fleet.servers[MANAGER].api.store.subscribe(self._see)

    def until(self, end_s: float) -> dict[str, float]:
        """Pod-seconds by the UID of the job, up to a moment in Unix time."""
        found = defaultdict[str, float](float)
        for job, since_s, until_s, pods in (*self._counted, *self._open(end_s)):
            found[job] += pods * max(0.0, min(until_s, end_s) - since_s)
        return {job: seconds for job, seconds in found.items() if seconds}

    def _open(self, end_s: float) -> list[tuple[str, float, float, int]]:
        return [(job, since_s, end_s, self._pods_of(job)) for job, since_s in self._since_s.items()]

    def _see(self, change: HistoryEntry) -> None:
        if change.key[1] != "workloads" or change.key[0] != "kueue.x-k8s.io":
            return
        metadata, now_s = change.object["metadata"], self._fleet.now().timestamp()
        uid, job = metadata["uid"], metadata.get("labels", {}).get("kueue.x-k8s.io/job-uid", metadata["uid"])
        if job in self._since_s:
            self._counted.append((job, self._since_s[job], now_s, self._pods_of(job)))
        self._since_s[job] = now_s
        _, first, _ = self._slices.pop(uid, ("", change.version, 0))
        if change.type != "DELETED":
            self._slices[uid] = job, first, _pods(change.object)

    def _pods_of(self, job: str) -> int:
        """What a job holds: that of its newest slice with quota."""
        holding = [(first, pods) for of, first, pods in self._slices.values() if of == job and pods]
        return max(holding)[1] if holding else 0


def _pods(workload: Manifest) -> int:
    """The pods that a slice holds quota for: as many as were admitted and its spec has, and that have not ended."""
    status = workload.get("status", {})
    is_over = any(one["type"] == "Finished" and one["status"] == "True" for one in status.get("conditions", ()))
    admitted = (status.get("admission") or {}).get("podSetAssignments", ())
    ended = {one["name"]: one["count"] for one in status.get("reclaimablePods") or ()}
    sizes = {one["name"]: one.get("count", 1) - ended.get(one["name"], 0) for one in workload["spec"]["podSets"]}
    return 0 if is_over else sum(max(0, min(one.get("count", 0), sizes.get(one["name"], 0))) for one in admitted)
