"""How many pods of a job are ready, by the status of each kind."""

from typing import Any

import pytest

from slicebus.slices.jobs import KINDS

RAY: dict[str, Any] = {"readyWorkerReplicas": 2, "conditions": [{"type": "HeadPodReady", "status": "True"}]}

OF_A_SERVICE = {"rayClusterStatus": RAY}


@pytest.mark.parametrize(
    ("kind", "status", "ready"),
    [
        ("Job", {}, None),
        ("Job", {"active": 3, "ready": 2}, 2),
        ("RayCluster", {}, None),
        ("RayCluster", {"state": ""}, 0),
        ("RayCluster", {"readyWorkerReplicas": 2}, 2),
        ("RayCluster", RAY, 3),
        ("RayCluster", {"readyWorkerReplicas": 0, "state": "ready"}, 1),
        ("RayJob", {}, None),
        ("RayJob", {"rayClusterStatus": RAY}, 3),
        ("RayService", {}, None),
        ("RayService", {"activeServiceStatus": OF_A_SERVICE}, 3),
        ("RayService", {"activeServiceStatus": OF_A_SERVICE, "pendingServiceStatus": OF_A_SERVICE}, 6),
    ],
)
def test_ready_pods(kind: str, status: dict[str, Any], ready: int | None) -> None:
    assert KINDS[kind].ready(status) == ready
