"""`slicebus simulate` as a user calls it, and what becomes of the same job when it is submitted."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from slicebus.ambient.clock import now
from slicebus.cli.demo.objects import FLAVOR, NAMESPACE
from slicebus.cli.demo.world import World
from slicebus.journal.export import to_line
from slicebus.kube.client import MergePatch
from slicebus.kube.resources import JOBS, WORKERCLUSTERS, WORKLOADS
from slicebus.proto.messages import JobPhase, JobRef
from slicebus.slices.api import api_names
from support.installation import run_cli
from support.recordings import exported
from support.scenario import Scenario, set_quota, sized
from support.waiting import eventually
from unit.journal.records import record
from unit.journal.test_run_times import spec, status

Manifest = dict[str, Any]


async def simulate(kubeconfig: Path, *arguments: str, status: int) -> str:
    env = {"KUBECONFIG": str(kubeconfig)}
    done = await asyncio.to_thread(run_cli, "simulate", "-n", NAMESPACE, *arguments, env=env)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


async def expect_room(world: World) -> None:
    """Wait until every cluster has reported its room in the flavor, and its policy."""

    async def look() -> bool:
        statuses = [cluster.get("status", {}) for cluster in (await world.manager.list(WORKERCLUSTERS)).items]
        return all(FLAVOR in status.get("capacity", {}) and "policy" in status for status in statuses)

    await eventually(look, "the agents tell of their room and their policies")


async def workload(world: World, job: str) -> Manifest:
    """The status of the job's Workload, once a cycle has decided about it."""
    found = Scenario(world, "Job", job)

    async def look() -> Manifest | None:
        chain = await found.chain()
        if not chain:
            return None
        manifest = await world.manager.get(WORKLOADS, chain[-1].name, NAMESPACE)
        return manifest["status"] if manifest.get("status", {}).get("conditions") else None

    return await eventually(look, f"{job} is decided about") or {}


async def test_what_it_says_is_what_comes(world: World, kubeconfig: Path, tmp_path: Path) -> None:
    await set_quota(world, 4)
    running = Scenario(world, "Job", "runs")
    await running.submit()
    await running.expect_pods(running=1)
    file = tmp_path / "jobs.yaml"
    file.write_text(yaml.safe_dump_all([sized("fits", 3), sized("waits", 2)]))

    told = await simulate(kubeconfig, "-f", str(file), "-o", "json", status=3)
    fits, waits = map(json.loads, told.splitlines())
    assert (fits["job"], fits["verdict"]["outcome"]) == (f"Job/{NAMESPACE}/fits", "Admitted")
    assert (waits["job"], waits["verdict"]["outcome"]) == (f"Job/{NAMESPACE}/waits", "Waits")
    jobs = (await world.manager.list(JOBS, namespace=NAMESPACE)).items
    assert [job["metadata"]["name"] for job in jobs] == ["runs"], "nothing is written"

    for name, pods in (("fits", 3), ("waits", 2)):
        await world.manager.create(JOBS, sized(name, pods))
        await workload(world, name)
    admission = (await workload(world, "fits"))["admission"]
    chosen = {each["name"]: each["flavors"] for each in admission["podSetAssignments"]}
    assert chosen == {each["name"]: each["flavors"] for each in fits["verdict"]["pod_sets"]}
    assert await Scenario(world, "Job", "fits").cluster() == fits["verdict"]["cluster"]
    [reserved] = [each for each in (await workload(world, "waits"))["conditions"] if each["type"] == "QuotaReserved"]
    assert (reserved["reason"], reserved["message"]) == (waits["verdict"]["reason"], waits["verdict"]["message"])


async def test_what_the_workers_policy_would_refuse(world: World, kubeconfig: Path, tmp_path: Path) -> None:
    await set_quota(world, 4)
    job = sized("mounts", 1)
    job["spec"]["template"]["spec"]["volumes"] = [{"name": "etc", "hostPath": {"path": "/etc"}}]
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(job))

    await expect_room(world)
    text = await simulate(kubeconfig, "-f", str(file), status=1)
    assert f"✗ Job/{NAMESPACE}/mounts would be refused with main=1 on cluster" in text
    assert "does not allow in pod set main hostPathVolumes" in text

    await world.manager.create(JOBS, job)
    told = await Scenario(world, "Job", "mounts").expect_event("PodSecurity", on=world.manager)
    assert "hostPathVolumes" in told


async def test_a_resize_of_each_kind(world: World, kubeconfig: Path) -> None:
    await set_quota(world, 8)
    for kind, name, pod_set in (("Job", "plain", "main"), ("RayCluster", "ray", "small-group")):
        scenario = Scenario(world, kind, name)
        await scenario.submit()
        await scenario.expect_pods(running=1)
        text = await simulate(kubeconfig, f"{kind}/{NAMESPACE}/{name}", "--size", f"{pod_set}=2", status=0)
        assert f"✓ {kind}/{NAMESPACE}/{name} would run" in text
        text = await simulate(kubeconfig, name, "--size", f"{pod_set}=15", status=3)
        assert "would wait" in text
        assert "more quota of flavor default in ClusterQueue batch" in text


async def test_a_job_of_a_few_options(world: World, kubeconfig: Path) -> None:
    await set_quota(world, 4)
    await expect_room(world)
    text = await simulate(kubeconfig, "--queue", "main", "--pods", "2", "--request", "cpu=1", status=0)
    assert f"✓ Job/{NAMESPACE}/simulated would run with main=2 on cluster" in text
    assert "gets main=2: cpu of flavor default" in text
    text = await simulate(kubeconfig, "--queue", "main", "--pods", "8", "--request", "cpu=1,memory=1Gi", status=3)
    assert "would run with main=4 instead of 8" in text
    refused = await simulate(kubeconfig, "--queue", "main", "--priority", "none", status=1)
    assert "WorkloadPriorityClass none doesn't exist" in refused


@pytest.mark.real(only=True)
async def test_the_api_server_refuses_what_it_would_not_store(world: World, kubeconfig: Path) -> None:
    await set_quota(world, 4)
    refused = await simulate(kubeconfig, "--queue", "main", "--request", "cpu=-1", status=1)
    assert f"✗ Job/{NAMESPACE}/simulated would be refused" in refused
    assert "must be greater than or equal to 0" in refused


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n", "v1 Pod is no kind that slicebus runs"),
        ("", "has no job"),
        ("a: [", "is no YAML"),
        ("- 1\n", "has something that is no Kubernetes object"),
    ],
    ids=["another kind", "nothing", "no yaml", "no object"],
)
async def test_a_file_that_has_no_jobs(world: World, kubeconfig: Path, tmp_path: Path, content: str, told: str) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(content)
    done = await asyncio.to_thread(run_cli, "simulate", "-f", str(file), env={"KUBECONFIG": str(kubeconfig)})
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1


async def verdict_of(world: World, name: str) -> Manifest | None:
    job = await world.manager.get(JOBS, name, NAMESPACE)
    text = job["metadata"].get("annotations", {}).get(api_names.VERDICT_ANNOTATION)
    return json.loads(text) if text else None


async def expect_verdict(world: World, name: str, outcome: str) -> Manifest:
    async def look() -> Manifest | None:
        found = await verdict_of(world, name)
        return found if found and found["outcome"] == outcome else None

    return await eventually(look, f"{name} is told {outcome}") or {}


async def test_the_manager_answers_a_job_that_only_asks(world: World) -> None:
    """It is told again whenever the answer changes, never runs, and runs as any other when it asks no more."""
    await set_quota(world, 4)
    asking = sized("asks", 3)
    asking["metadata"]["annotations"][api_names.DRY_RUN_ANNOTATION] = "true"
    await world.manager.create(JOBS, asking)
    told = await expect_verdict(world, "asks", "Admitted")
    assert (told["size"], told["clusterQueue"]) == ({"main": 3}, "batch")
    assert told["podSets"] == [{"name": "main", "count": 3, "flavors": {"cpu": "default"}}]

    await world.manager.create(JOBS, sized("other", 2))
    told = await expect_verdict(world, "asks", "Waits")
    assert "insufficient unused quota for cpu in flavor default, 1 more needed" in told["message"]
    await set_quota(world, 9)
    await expect_verdict(world, "asks", "Admitted")
    scenario = Scenario(world, "Job", "asks")
    assert await scenario.chain() == []

    body = MergePatch({"metadata": {"annotations": {api_names.DRY_RUN_ANNOTATION: None}}})
    await world.manager.patch(JOBS, "asks", NAMESPACE, body)
    await scenario.expect_pods(running=3)

    async def is_off() -> bool:
        return await verdict_of(world, "asks") is None

    await eventually(is_off, "the verdict is taken off")


async def test_a_job_that_runs_goes_on_when_somebody_has_it_ask(world: World) -> None:
    await set_quota(world, 4)
    scenario = Scenario(world, "Job", "runs")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    body = MergePatch({"metadata": {"annotations": {api_names.DRY_RUN_ANNOTATION: "true"}}})
    await world.manager.patch(JOBS, "runs", NAMESPACE, body)
    await scenario.scale(2)
    await scenario.expect_pods(running=2)
    job = await world.manager.get(JOBS, "runs", NAMESPACE)
    assert f'{api_names.DRY_RUN_ANNOTATION}: "true"' in job["metadata"]["annotations"][api_names.UNHEEDED_ANNOTATION]
    assert await verdict_of(world, "runs") is None


async def test_the_verdict_of_a_moment_of_the_past_is_what_was_said_then(
    world: World, urls: dict[str, str], kubeconfig: Path, tmp_path: Path
) -> None:
    """By the journal alone: a new job, and another size, before the quota is raised."""
    await set_quota(world, 4)
    running = Scenario(world, "Job", "runs")
    await running.submit()
    await running.expect_pods(running=1)
    await expect_room(world)
    plain = ("--queue", "main", "--pods", "4", "--request", "cpu=1", "-o", "json")
    other = ("runs", "--size", "main=7", "-o", "json")
    # An agent reports its room again now and then, and a record of the manager has the time of its decision.
    await asyncio.sleep(1)
    said = [json.loads(await simulate(kubeconfig, *asked, status=3)) for asked in (plain, other)]
    moment = now().isoformat()
    await asyncio.sleep(1)
    await set_quota(world, 20)
    await running.scale(2)
    await running.expect_pods(running=2)
    assert json.loads(await simulate(kubeconfig, *plain, status=0))["verdict"]["outcome"] == "Admitted"
    file = tmp_path / "journal.jsonl"

    async def has_all() -> bool:
        await exported(urls["manager"], file)
        done = await asyncio.to_thread(run_cli, "jobs", "-A", "--at", moment, "--from", str(file), env={})
        return done.returncode == 0

    await eventually(has_all, "the journal has a record after the moment")
    for asked, before in zip((plain, other), said, strict=True):
        told = json.loads(await simulate(kubeconfig, *asked, "--at", moment, "--from", str(file), status=3))
        assert {name: told[name] for name in before} == before


async def test_when_a_job_that_waits_would_start(world: World, kubeconfig: Path, tmp_path: Path) -> None:
    """By the run times of a journal: ten jobs of the queue ran for a minute and ten for an hour."""
    await set_quota(world, 4)
    running = Scenario(world, "Job", "runs")
    await running.submit()
    await running.expect_pods(running=1)
    journal = tmp_path / "journal.jsonl"
    lines = list[bytes]()
    for number in range(20):
        job = JobRef("batch/v1", "Job", NAMESPACE, f"before-{number}", f"uid-{number}")
        ran_s = 60 if number % 2 else 3600
        for at_s, message in ((0, spec(1, job=job)), (ran_s, status(JobPhase.SUCCEEDED, job=job))):
            lines.append(to_line(record(message, offset=len(lines), at_s=at_s)))
    journal.write_bytes(b"\n".join(lines) + b"\n")

    plain = ("--queue", "main", "--pods", "4", "--request", "cpu=1", "--since", "7d")
    told = json.loads(await simulate(kubeconfig, *plain, "--from", str(journal), "-o", "json", status=3))["start"]
    assert told["run_times"] == 20
    assert told["rounds"] > 1
    assert 0 < told["p50_s"] <= told["p90_s"] <= 3600
    text = await simulate(kubeconfig, *plain, "--from", str(journal), status=3)
    assert "half of the time, and nine times of ten within" in text
    assert "by 20 run times of its ClusterQueue" in text

    journal.write_bytes(b"\n".join(lines[:8]) + b"\n")
    few = json.loads(await simulate(kubeconfig, *plain, "--from", str(journal), "-o", "json", status=3))
    assert few["start"] is None
    env = {"KUBECONFIG": str(kubeconfig)}
    without = await asyncio.to_thread(run_cli, "simulate", *plain[:-2], "--from", str(journal), env=env)
    assert without.returncode == 2
    assert "--from is for --since" in without.stderr
