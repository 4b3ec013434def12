"""No pod of a gang is let go before its PodGroup is there, and as many pods as that has for its minimum.

This is what its scheduler sees. What an agent goes by may be a little older: a pod, or a PodGroup, that went a moment
ago counts.
"""

import asyncio
from collections import defaultdict
from typing import Any

from simulation.violations import Violation
from slicebus.kube.resources import PODS
from slicebus.sandbox.apiserver.store import HistoryEntry
from slicebus.slices.schedulers.kai import POD_GROUPS
from slicebus.slices.workload.ungate import is_gated, is_over

Manifest = dict[str, Any]
_GROUP, _SUBGROUP = "pod-group-name", "kai.scheduler/subgroup-name"
_LATELY_S = 60.0
"""A watch that is cut, and an agent that is slow, are as late as that."""
GROUP_KEY = POD_GROUPS.group, POD_GROUPS.plural


class GangRules:
    """Raises Violation for a pod that starts without its gang."""

    def __init__(self) -> None:
        self._members: defaultdict[tuple[str, str], dict[tuple[str, str], float]] = defaultdict(dict)
        """The pods of each PodGroup of each cluster, by subgroup and name, with when they were there last."""
        self._groups: dict[tuple[str, str], tuple[Manifest, float]] = {}
        """The PodGroups of each cluster, and when they were there last."""
        self.started = 0
        """How many pods of gangs were let go."""

    def see_group(self, cluster: str, change: HistoryEntry) -> None:
        """A PodGroup has changed."""
        self._groups[cluster, change.object["metadata"]["name"]] = change.object, self._until(change)

    def see_pod(self, cluster: str, change: HistoryEntry, *, is_late: bool) -> None:
        """A pod has changed. `is_late`: by an agent that had been stopped between its decision and its request."""
        pod = change.object
        group = (pod["metadata"].get("annotations") or {}).get(_GROUP)
        if group is None:
            return
        members = self._members[cluster, group]
        members[pod["metadata"]["labels"][_SUBGROUP], pod["metadata"]["name"]] = self._until(change)
        starts = change.old is not None and is_gated(change.old) and not is_gated(pod) and change.type != "DELETED"
        if starts and not is_late:
            self._check(cluster, group, pod["metadata"]["name"])

    def _check(self, cluster: str, group: str, pod: str) -> None:
        self.started += 1
        since_s = asyncio.get_running_loop().time() - _LATELY_S
        found, there_s = self._groups.get((cluster, group), ({}, -1.0))
        if there_s < since_s:
            raise Violation(f"gang: {cluster} starts {pod}, and there is no PodGroup {group}")
        for subgroup in found["spec"]["subGroups"]:
            members = self._members[cluster, group].items()
            there = sum(name == subgroup["name"] and at_s >= since_s for (name, _), at_s in members)
            if there < subgroup["minMember"]:
                least = f"{subgroup['minMember']} {subgroup['name']}"
                raise Violation(f"gang: {cluster} starts {pod} of {group}, which has {there} of {least}")

    @staticmethod
    def _until(change: HistoryEntry) -> float:
        """When an object was there last: now, where it has just gone; else for ever."""
        is_there = change.type != "DELETED" and "deletionTimestamp" not in change.object["metadata"]
        stays = is_there and not (change.key[:2] == (PODS.group, PODS.plural) and is_over(change.object))
        return float("inf") if stays else asyncio.get_running_loop().time()
