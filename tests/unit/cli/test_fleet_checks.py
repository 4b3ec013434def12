"""What doctor says of a worker cluster."""

import pytest

from slicebus.cli.doctor.checks import _fleet_member
from slicebus.manager.state.worker_clusters import WorkerCluster

CONNECTED = {"conditions": [{"type": "Connected", "status": "True"}], "epoch": 7}


@pytest.mark.parametrize(
    ("lacking", "found"),
    [
        ({}, "connected, epoch 7"),
        ({"b": "NotFound", "a": "Terminating"}, "connected, epoch 7; takes no jobs of a (Terminating), b (NotFound)"),
        (
            dict.fromkeys("abcde", "NotFound"),
            "connected, epoch 7; takes no jobs of a (NotFound), b (NotFound), c (NotFound) and 2 more",
        ),
    ],
)
def test_it_names_the_namespaces_that_a_cluster_lacks(lacking: dict[str, str], found: str) -> None:
    """Nothing has to be done: its jobs go elsewhere."""
    status = CONNECTED | {"lackingNamespaces": lacking}
    cluster = WorkerCluster.from_manifest({"metadata": {"name": "east"}, "spec": {"accepted": True}, "status": status})
    check = _fleet_member(cluster, leader_passes=True)
    assert (check.found, check.ok) == (found, True)
