"""docs/moving-from-multikueue.md: its manifests and its blocks, with a job that MultiKueue would take."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from simulation.kueue import FLAVOR, Kueue
from simulation.kueue import definition as definition_of_checks
from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.kube.client import MergePatch
from slicebus.kube.resources import CLUSTERQUEUES, CRDS, JOBS
from slicebus.manager.state.settings import AdmissionModeName, ManagerDecisionSettings
from support import roles
from support.documents import TOP, to_run
from support.kubeconfig import write_kubeconfig
from support.processes import COMMAND_S
from support.scenario import Scenario
from support.waiting import eventually

PAGE = TOP / "docs" / "moving-from-multikueue.md"
MOVE, BACK, AWAY, KEEP, APPLY, RESUME = to_run(PAGE)
Manifest = dict[str, Any]


def manifests() -> list[Manifest]:
    """What the page has: MultiKueue's objects, and the check of slicebus."""
    blocks = [part.partition("\n```")[0] for part in PAGE.read_text().split("```yaml\n")[1:]]
    return [manifest for block in blocks for manifest in yaml.safe_load_all(block)]


def definition(plural: str, kind: str) -> Manifest:
    """Of a kind that only a Kueue brings; its fields are not checked."""
    of_checks = definition_of_checks()
    names = {"plural": plural, "singular": kind.lower(), "kind": kind}
    metadata = {"name": f"{plural}.{of_checks['spec']['group']}"}
    return of_checks | {"metadata": metadata, "spec": of_checks["spec"] | {"names": names}}


class Shell:
    """Runs blocks as a user of the manager's cluster, in a folder."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._env = os.environ | {"KUBECONFIG": str(kubeconfig), "PATH": path, "COLUMNS": "200"}
        self._folder = folder

    async def run(self, block: str, stdin: str = "") -> str:
        done = await asyncio.to_thread(
            subprocess.run,
            ["bash", "-euo", "pipefail", "-c", block],
            cwd=self._folder,
            env=self._env,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        assert done.returncode == 0, f"{block}{done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture
async def cluster(bare_east: World, kubectl: None, tmp_path: Path) -> tuple[World, Shell]:
    """A manager's cluster with the definitions that a Kueue brings, and a worker."""
    manager = bare_east.manager
    for plural, kind in (
        ("admissionchecks", "AdmissionCheck"),
        ("multikueueconfigs", "MultiKueueConfig"),
        ("multikueueclusters", "MultiKueueCluster"),
    ):
        await manager.create(CRDS, definition(plural, kind))
    return bare_east, Shell(write_kubeconfig(tmp_path / "kubeconfig", manager.host), tmp_path)


async def queue_of(world: World) -> tuple[str, list[str]]:
    """The stop policy of the queue, and the checks that it names."""
    spec = (await world.manager.get(CLUSTERQUEUES, "batch"))["spec"]
    checks = (spec.get("admissionChecksStrategy") or {}).get("admissionChecks", [])
    return spec.get("stopPolicy", "None"), [check["name"] for check in checks]


async def nothing_is_admitted(world: World) -> None:
    """Kueue's part."""
    status = MergePatch({"status": {"admittedWorkloads": 0}})
    await world.manager.patch(CLUSTERQUEUES, "batch", None, status, subresource="status")


async def test_a_queue_is_moved_and_moved_back(cluster: tuple[World, Shell]) -> None:
    world, shell = cluster
    await shell.run("kubectl apply -f -", yaml.safe_dump_all(manifests()))
    assert await queue_of(world) == ("None", ["multikueue"])

    moving = asyncio.create_task(shell.run(MOVE))

    async def stopped() -> bool:
        return (await queue_of(world))[0] == "Hold"

    await eventually(stopped, "the queue admits nothing")
    await nothing_is_admitted(world)
    await moving
    assert await queue_of(world) == ("None", ["slicebus"])
    await shell.run(BACK)
    assert await queue_of(world) == ("None", ["multikueue"])
    await shell.run(MOVE)
    await shell.run(AWAY)
    assert await shell.run("kubectl get admissionchecks,multikueueconfigs,multikueueclusters -o name") == (
        "admissioncheck.kueue.x-k8s.io/slicebus\n"
    )


async def test_the_queues_are_kept_and_applied_without_checks(cluster: tuple[World, Shell]) -> None:
    world, shell = cluster
    await shell.run("kubectl apply -f -", yaml.safe_dump_all(manifests()))
    await shell.run("slicebus queues stop batch")
    await shell.run(KEEP)
    await shell.run("kubectl delete clusterqueue batch")
    # The embedded API server describes no List, which kubectl would ask it for.
    await shell.run(APPLY.replace("kubectl apply", "kubectl apply --validate=false"))
    assert await queue_of(world) == ("None", [])
    await world.manager.create(JOBS, objects.job("waits") | {"spec": objects.job("waits")["spec"] | {"suspend": True}})
    await shell.run(RESUME)
    assert (await world.manager.get(JOBS, "waits", objects.NAMESPACE))["spec"]["suspend"] is False


@pytest.fixture
async def beside_kueue(cluster: tuple[World, Shell], broker_name: str) -> AsyncIterator[tuple[World, Shell]]:
    """The same, with the manager beside a stand-in for a Kueue, and an agent."""
    world, shell = cluster
    urls = {role: f"memory://{role}@{broker_name}" for role in ("manager", "east")}
    decisions = ManagerDecisionSettings(admission=AdmissionModeName.KUEUE)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(roles.manager(world, urls, decisions=decisions))
        await stack.enter_async_context(roles.agent(world, urls, "east"))
        kueue = asyncio.ensure_future(Kueue(world.manager).run())
        yield world, shell
        kueue.cancel()
        await asyncio.gather(kueue, return_exceptions=True)


async def test_a_job_that_multikueue_would_take_runs_and_is_resized(beside_kueue: tuple[World, Shell]) -> None:
    world, shell = beside_kueue
    flavor = {"apiVersion": CLUSTERQUEUES.api_version, "kind": "ResourceFlavor", "metadata": {"name": FLAVOR}}
    await shell.run(f"kubectl apply -f {TOP}/examples/quota.yaml")
    await shell.run("kubectl apply -f -", yaml.safe_dump_all([flavor, *manifests()]))
    await nothing_is_admitted(world)
    await shell.run(MOVE)
    await shell.run(f"kubectl apply -f {TOP}/examples/job.yaml")
    job = Scenario(world, "Job", "example-job")
    await job.expect_pods(running=1)
    await job.scale(3)
    await job.expect_pods(running=3)
