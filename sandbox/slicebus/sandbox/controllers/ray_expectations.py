"""Remembers what KubeRay's stand-in has done to a group and not seen yet: until then it leaves the group alone.

Source of the rules: KubeRay 1.7, `ray-operator/controllers/ray/expectations/scale_expectations.go`.
"""

import asyncio
from collections import defaultdict

import msgspec

from slicebus.kube.cache import Cache

HEAD = ""
"""The group of the head."""
CREATE_S = 30.0
"""A create counts as seen after so long: something else may have deleted the pod at once."""


class _Create(msgspec.Struct, frozen=True):
    until_s: float
    """In the loop's time."""


class _Delete(msgspec.Struct, frozen=True):
    """Seen when the pod has gone, however long that takes."""


class Expectations:
    """The pods created and deleted, by the cluster's UID and the group's name, until a cache shows them."""

    def __init__(self, pods: Cache) -> None:
        self._pods = pods
        self._open: defaultdict[tuple[str, str], dict[tuple[str, str], _Create | _Delete]] = defaultdict(dict)

    def expect_create(self, cluster_uid: str, group: str, pod: tuple[str, str]) -> None:
        """Expect to see a pod that was created. `pod` is its namespace and name."""
        until_s = asyncio.get_running_loop().time() + CREATE_S
        self._open[cluster_uid, group][pod] = _Create(until_s)

    def expect_delete(self, cluster_uid: str, group: str, pod: tuple[str, str]) -> None:
        """Expect to see that a deleted pod has gone. `pod` is its namespace and name."""
        self._open[cluster_uid, group][pod] = _Delete()

    def are_met(self, cluster_uid: str, group: str) -> bool:
        """Whether everything done to a group has been seen."""
        key = cluster_uid, group
        left = {
            pod: expectation
            for pod, expectation in self._open.pop(key, {}).items()
            if not self._is_seen(pod, expectation)
        }
        if left:
            self._open[key] = left
        return not left

    def forget(self, cluster_uid: str) -> None:
        """Forget a cluster that has gone."""
        for key in [key for key in self._open if key[0] == cluster_uid]:
            del self._open[key]

    def _is_seen(self, pod: tuple[str, str], expectation: _Create | _Delete) -> bool:
        is_there = self._pods.get(*pod) is not None
        match expectation:
            case _Create(until_s):
                return is_there or until_s < asyncio.get_running_loop().time()
            case _Delete():
                return not is_there
