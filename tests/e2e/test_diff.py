"""`slicebus diff` as a reviewer calls it, and what becomes of the jobs when the edit is applied."""

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from slicebus.cli.cluster.reading import read
from slicebus.cli.demo.objects import NAMESPACE, SYSTEM_NAMESPACE
from slicebus.cli.demo.world import World
from slicebus.cli.difference.edits import checked, merged
from slicebus.kube.client import MergePatch
from slicebus.kube.resources import (
    CLUSTERQUEUES,
    COHORTS,
    JOB_RESOURCES,
    JOBS,
    LEASES,
    LOCALQUEUES,
    NAMESPACES,
    RESOURCEFLAVORS,
    WORKERCLUSTERS,
    WORKLOADPRIORITYCLASSES,
    WORKLOADS,
)
from slicebus.manager.permissions import lease_of
from slicebus.slices.api.api_names import SETTINGS_ANNOTATION
from support.installation import run_cli
from support.scenario import Scenario, set_quota, sized
from support.waiting import eventually

Manifest = dict[str, Any]
_WITH_THEM = (COHORTS, LOCALQUEUES, NAMESPACES, RESOURCEFLAVORS, WORKERCLUSTERS, WORKLOADS)
LOWER = {"withinClusterQueue": "LowerPriority"}


async def diff(*arguments: str, kubeconfig: Path | None = None) -> subprocess.CompletedProcess[str]:
    env = {"KUBECONFIG": str(kubeconfig) if kubeconfig else "/nowhere"}
    return await asyncio.to_thread(run_cli, "diff", *arguments, env=env)


async def the_queue(world: World, **spec: Any) -> Manifest:
    """The manifest that a pull request has of the queue, with an edit."""
    queue = await world.manager.get(CLUSTERQUEUES, "batch")
    head = {"apiVersion": queue["apiVersion"], "kind": "ClusterQueue", "metadata": {"name": "batch"}}
    return {**head, "spec": queue["spec"] | spec}


def written(path: Path, *manifests: Manifest) -> str:
    path.write_text(yaml.safe_dump_all(manifests))
    return str(path)


async def crowded(world: World) -> tuple[Scenario, Scenario]:
    """A job that has the whole quota, and one of a higher priority that waits."""
    await set_quota(world, 4)
    high = {"apiVersion": WORKLOADPRIORITYCLASSES.api_version, "kind": "WorkloadPriorityClass", "value": 10}
    await world.manager.create(WORKLOADPRIORITYCLASSES, {**high, "metadata": {"name": "high"}})
    await world.manager.create(JOBS, sized("runs", 3))
    runs, waits = Scenario(world, "Job", "runs"), Scenario(world, "Job", "waits")
    await runs.expect_pods(running=3)
    await world.manager.create(JOBS, sized("waits", 3, "high"))
    await waits.expect_event("Pending", on=world.manager)

    async def says_how_it_is_set() -> bool:
        lease = await world.manager.get(LEASES, lease_of(0), SYSTEM_NAMESPACE)
        return SETTINGS_ANNOTATION in lease["metadata"].get("annotations", {})

    await eventually(says_how_it_is_set, "the manager has renewed its Lease once")
    return runs, waits


async def test_what_it_says_is_what_comes(world: World, kubeconfig: Path, tmp_path: Path) -> None:
    runs, waits = await crowded(world)
    edit = written(tmp_path / "queue.yaml", await the_queue(world, preemption=LOWER))
    done = await diff("-f", edit, "-o", "json", kubeconfig=kubeconfig)
    assert (done.returncode, done.stderr) == (3, "")
    lost, later = json.loads(done.stdout)["effects"]
    assert (lost["fate"], lost["job"], lost["pods"]) == ("Evicted", f"Job/{NAMESPACE}/runs", {"main": 3})
    assert (later["fate"], later["job"], later["pods"]) == ("AdmittedLater", f"Job/{NAMESPACE}/waits", {"main": 3})
    allowed = await diff("-f", edit, "--allow-preemption", kubeconfig=kubeconfig)
    assert allowed.returncode == 0
    assert f"✗ Job/{NAMESPACE}/runs would lose all its pods, main=3 on cluster" in allowed.stdout
    assert allowed.stdout.endswith("Lose pods: 1. Admitted: 1. Wait for something else: 0.\n")
    kept = (await world.manager.get(CLUSTERQUEUES, "batch"))["spec"]
    assert kept["preemption"]["withinClusterQueue"] == "Never", "nothing is written"

    await world.manager.patch(CLUSTERQUEUES, "batch", None, MergePatch({"spec": {"preemption": LOWER}}))
    await waits.expect_pods(running=3)
    assert await waits.cluster() == later["cluster"]
    assert not any(slice.admission for slice in await runs.chain())


async def test_an_edit_without_an_effect(world: World, kubeconfig: Path, tmp_path: Path) -> None:
    await crowded(world)
    same = await diff("-f", written(tmp_path / "queue.yaml", await the_queue(world)), kubeconfig=kubeconfig)
    assert (same.returncode, same.stderr) == (0, "")
    assert same.stdout == "Nobody loses pods, nobody is admitted, and nobody waits for anything else.\n"


async def test_an_object_that_goes(world: World, kubeconfig: Path) -> None:
    _, waits = await crowded(world)
    done = await diff("--without", "ClusterQueue/batch", "-o", "json", kubeconfig=kubeconfig)
    assert (done.returncode, done.stderr) == (0, "")
    [effect] = json.loads(done.stdout)["effects"]
    assert (effect["fate"], effect["job"]) == ("Waits", f"Job/{NAMESPACE}/waits")

    await world.manager.delete(CLUSTERQUEUES, "batch")

    async def waits_for_that() -> bool:
        [slice] = await waits.chain()
        return bool(slice.conditions["QuotaReserved"]["message"] == effect["message"])

    await eventually(waits_for_that, "the job waits for what was told")


async def test_an_export_in_place_of_a_cluster(world: World, kubeconfig: Path, tmp_path: Path) -> None:
    """A pipeline without rights on the cluster compares with what somebody has exported."""
    await crowded(world)
    exported = list[Manifest]()
    for resource in (CLUSTERQUEUES, WORKLOADPRIORITYCLASSES, *JOB_RESOURCES.values(), *_WITH_THEM):
        for manifest in (await world.manager.list(resource)).items:
            exported.append({"apiVersion": resource.api_version, "kind": resource.kind, **manifest})
    export = tmp_path / "export.yaml"
    edit = written(tmp_path / "queue.yaml", await the_queue(world, preemption=LOWER))
    queues, others = exported[: len(exported) // 2], exported[len(exported) // 2 :]
    export.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": queues}))
    rest = written(tmp_path / "rest.yaml", *others)
    of_export = await diff("-f", edit, "--on", str(export), "--on", rest, "--markdown")
    of_cluster = await diff("-f", edit, "--markdown", kubeconfig=kubeconfig)
    assert of_export.stdout == of_cluster.stdout
    assert of_export.returncode == of_cluster.returncode == 3
    assert "this goes by the defaults" in of_export.stderr
    assert f"| ✗ | `Job/{NAMESPACE}/runs` | would lose all its pods, main=3 on cluster" in of_export.stdout


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("apiVersion: batch/v1\nkind: Job\nmetadata: {name: p}\n", "batch/v1 Job is none of ClusterQueue, Cohort"),
        ("", "there is nothing in these files"),
        ("apiVersion: kueue.x-k8s.io/v1beta2\nkind: Cohort\nmetadata: {}\n", "there is a Cohort without a name"),
    ],
    ids=["a job", "nothing", "no name"],
)
async def test_a_file_with_something_else(
    world: World, kubeconfig: Path, tmp_path: Path, content: str, told: str
) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(content)
    done = await diff("-f", str(file), kubeconfig=kubeconfig)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr


async def test_an_edit_that_the_api_server_refuses(world: World, kubeconfig: Path, tmp_path: Path) -> None:
    await set_quota(world, 4)
    queue = await the_queue(world, queueingStrategy="Whatever")
    done = await diff("-f", written(tmp_path / "queue.yaml", queue), kubeconfig=kubeconfig)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert "✗ refused: " in done.stderr
    assert "queueingStrategy" in done.stderr


async def test_an_object_that_somebody_writes_meanwhile(world: World) -> None:
    """The manager writes the status of a queue up to twice a second, and each write is another version."""
    await set_quota(world, 4)
    store = (await read(world.manager)).store
    edits = list(merged(store, [(CLUSTERQUEUES, await the_queue(world, preemption=LOWER))]))
    await world.manager.patch(CLUSTERQUEUES, "batch", None, MergePatch({"metadata": {"labels": {"by": "another"}}}))
    [(_, stored)] = await checked(world.manager, store, edits)
    assert stored["spec"]["preemption"]["withinClusterQueue"] == LOWER["withinClusterQueue"]
