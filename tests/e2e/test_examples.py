"""examples/: an API server takes each, a fleet runs it, and the commands of its comment resize and delete it."""

from pathlib import Path

import pytest
import yaml

from slicebus.cli.demo.world import World, real_world
from support.controlplane import ControlPlane
from support.declared.process import run_apart
from support.examples import EXAMPLES, Example, try_out
from support.kubeconfig import join_kubeconfigs, write_kubeconfig

TRIED = [
    Example("job.yaml", "Job", "example-job", 1, 5),
    Example("training.yaml", "Job", "example-training", 3, 5),
    Example("cohort.yaml", "Job", "example-research", 1, 15),
    Example("raycluster.yaml", "RayCluster", "example-raycluster", 1, 4),
    Example("rayjob.yaml", "RayJob", "example-rayjob", 1, 4),
    Example("rayservice.yaml", "RayService", "example-rayservice", 1, 4),
]


@pytest.fixture
def contexts(world: World, parts: str, kubectl: None, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A kubeconfig with a context for each cluster; the manager's is the current one."""
    if parts == "embedded":
        clients = {"manager": world.manager} | {str(name): client for name, client in world.workers.items()}
        made = {name: write_kubeconfig(tmp_path / name, client.host) for name, client in clients.items()}
    else:
        plane: ControlPlane = request.getfixturevalue("control_plane")
        made = {name: cluster.kubeconfig for name, cluster in plane.clusters.items()}
    return join_kubeconfigs(tmp_path / "contexts", made)


@pytest.mark.parametrize("example", TRIED, ids=lambda example: example.file)
async def test_it_runs_and_is_resized_as_its_comment_says(world: World, contexts: Path, example: Example) -> None:
    await try_out(world, contexts, example)


@pytest.mark.controlplane
@pytest.mark.timeout(240)
async def test_a_real_api_server_takes_each(control_plane: ControlPlane, kubectl: None) -> None:
    """By Kueue's and KubeRay's own definitions, where these are at hand."""
    cluster = control_plane.clusters["manager"]
    async with real_world(cluster.kubeconfig, {}):
        for file in ("quota.yaml", *(example.file for example in TRIED)):
            told = cluster.kubectl("apply", "--dry-run=server", "-f", str(EXAMPLES / file))
            assert "(server dry run)" in told


async def test_the_example_of_a_declared_kind_runs_by_its_declaration(kubectl: None, tmp_path: Path) -> None:
    """In a process of its own."""
    example = Example("jobset.yaml", "JobSet", "example-jobset", 2, 6)
    declared = tmp_path / "kinds.yaml"
    values = yaml.safe_load((EXAMPLES / "jobset-kind.yaml").read_text())
    declared.write_text(yaml.safe_dump(values["declaredJobKinds"]))
    await run_apart("example", example, declared=declared)
