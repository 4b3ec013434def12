"""Job kinds that the configuration declares: each runs, is resized both ways, drained and deleted, without code."""

from pathlib import Path

import pytest

from support.controlplane import ControlPlane
from support.declared.process import run_apart
from support.declared.round_trip import Parts
from support.declared.scenario import PODS_OF
from support.rabbitmq import RabbitBroker

KINDS_FILE = Path(__file__).parents[1] / "support" / "declared" / "kinds.yaml"
REAL = [pytest.mark.rabbitmq, pytest.mark.controlplane]


async def round_trip(parts: Parts, *, declared: Path = KINDS_FILE) -> None:
    """In a process of its own."""
    await run_apart("round_trip", parts, declared=declared)


@pytest.mark.parametrize("kind", ["JobSet", "LeaderWorkerSet"])
async def test_the_round_trip_on_embedded_servers(kind: str) -> None:
    await round_trip(Parts(kind))


async def test_wrong_paths_are_named_by_every_role_and_stop_no_other_kind(tmp_path: Path) -> None:
    text = KINDS_FILE.read_text().replace("replicaSizePath: spec.", "replicaSizePath: spec.no.")
    declared = tmp_path / "kinds.yaml"
    declared.write_text(text.replace("countPath: spec.replicas\n  managedBy", "countPath: /spec/replicas\n  managedBy"))
    wrong = [
        "LeaderWorkerSet: the declaration of LeaderWorkerSet does not fit: "
        "podSets[1].replicaSizePath: the schema has no spec.no.leaderWorkerTemplate.size",
        f"the job kind Deployment, entry 2 of {declared}, cannot be used: "
        "podSets[0].countPath: '/spec/replicas' is not a path",
    ]
    await round_trip(Parts("JobSet", left_out=wrong), declared=declared)


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=REAL) for kind in PODS_OF])
async def test_the_round_trip_on_real_servers(
    kind: str, control_plane: ControlPlane, rabbitmq: RabbitBroker, vhost: str
) -> None:
    kubeconfigs = {name: str(cluster.kubeconfig) for name, cluster in control_plane.clusters.items()}
    urls = {role: rabbitmq.url(vhost, role) for role in kubeconfigs}
    await round_trip(Parts(kind, manager=kubeconfigs.pop("manager"), workers=kubeconfigs, urls=urls))
