"""Commands for people, as they call them, on a fleet with a job that runs and one that waits for quota to grow."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import yaml

from slicebus.cli.demo.world import World
from slicebus.kube.resources import CLUSTERQUEUES, WORKERCLUSTERS
from support.controlplane import ControlPlane
from support.helm import render
from support.installation import apply, kubeconfig_of, run_cli, slicebus
from support.kubeconfig import write_kubeconfig
from support.refusing import FORBIDDEN, refusing
from support.scenario import NAMESPACE, Scenario, expect_used, set_quota
from support.terminal import terminal
from support.waiting import eventually

Done = CompletedProcess[str]
ELSEWHERE = rf"^/(api/v1|apis/[^/]+/[^/]+)/(?!namespaces/{NAMESPACE}/)."
"""Every collection that is not that of the tenant's namespace."""


class Shell:
    """Runs `slicebus` with a kubeconfig of the manager's cluster."""

    def __init__(self, kubeconfig: Path) -> None:
        self.env = {"KUBECONFIG": str(kubeconfig)}

    async def __call__(self, *arguments: str, status: int = 0, stdin: str = "") -> Done:
        done = await asyncio.to_thread(run_cli, *arguments, env=self.env, stdin=stdin)
        assert done.returncode == status, done.stdout + done.stderr
        return done


@pytest.fixture
async def shell(world: World, kubeconfig: Path) -> Shell:
    """Of a fleet whose job `sweep` runs at its size, and whose job `wide` waits to grow."""
    await set_quota(world, 4)
    for name, size in (("sweep", 2), ("wide", 6)):
        job = Scenario(world, "Job", name)
        await job.submit()
        await job.expect_pods(running=1)
        await job.scale(size)
        await job.expect_pods(running=min(size, 2) if name == "sweep" else 1, gated=0 if name == "sweep" else 5)
    await expect_used(world, "3")
    return Shell(kubeconfig)


def cells(done: Done) -> list[list[str]]:
    """The lines of a table, word by word."""
    return [line.split() for line in done.stdout.splitlines()]


async def test_jobs_queues_and_clusters(shell: Shell, world: World) -> None:
    where = {name: await Scenario(world, "Job", name).cluster() for name in ("sweep", "wide")}
    titles, sweep, wide = cells(await shell("jobs", "-n", NAMESPACE))
    assert titles == ["NAME", "KIND", "STATE", "QUEUE", "CLUSTER", "WANTED", "GRANTED", "READY", "AGE", "WHY"]
    assert sweep[:8] == ["sweep", "Job", "Running", "main", where["sweep"], "2", "2", "2"]
    assert wide[:8] == ["wide", "Job", "Resizing", "main", where["wide"], "6", "1", "1"]
    assert " ".join(wide[9:]).startswith("Pending: couldn't assign flavors to pod set main")

    assert (await shell("jobs", "-A", "--state", "resizing", "-o", "name")).stdout == "job.batch/wide\n"
    none = await shell("jobs")
    assert (none.stdout, none.stderr) == ("", "no jobs in namespace default; -A for all\n")
    for filter, told in (("--queue=mian", "did you mean main?"), ("--cluster=eats", "did you mean east?")):
        assert told in (await shell("jobs", "-A", filter, status=2)).stderr

    titles, cpu, _ = cells(await shell("queues"))
    assert cpu == ["batch", "-", "default", "cpu", "4", "3", "0", "████████░░", "75%", "1", "2", "-"]
    assert cells(await shell("queues", "-n", NAMESPACE, "--no-headers"))[0][:5] == [
        "main",
        "batch",
        "default",
        "cpu",
        "3",
    ]

    details = yaml.safe_load((await shell("fleet", "get", where["wide"], "-o", "yaml")).stdout)
    assert details["states"] == ["connected"]
    assert "wide" in [job["name"] for job in details["jobs"]]
    assert ("default", "cpu") in [(room["flavor"], room["resource"]) for room in details["room"]]
    assert "did you mean east?" in (await shell("fleet", "get", "eats", status=1)).stderr
    assert cells(await shell("fleet", "list"))[0] == ["CLUSTER", "STATUS", "JOBS", "SEEN", "ROOM"]


async def test_a_queue_is_stopped_and_resumed(shell: Shell, world: World) -> None:
    async def policy() -> str:
        return str((await world.manager.get(CLUSTERQUEUES, "batch"))["spec"].get("stopPolicy", "None"))

    assert "would have stopPolicy Hold" in (await shell("queues", "stop", "batch", "--dry-run")).stdout
    assert await policy() == "None"
    await shell("queues", "stop", "batch")
    assert await policy() == "Hold"
    refused = await shell("queues", "stop", "batch", "--drain", status=2)
    assert "this stops the 2 workloads that clusterqueue.kueue.x-k8s.io/batch has admitted: --yes" in refused.stderr
    await shell("queues", "resume", "batch")
    assert await policy() == "None"
    await shell("queues", "stop", "main", "-n", NAMESPACE)
    assert cells(await shell("queues", "-n", NAMESPACE, "--no-headers"))[0][-1] == "Hold"
    assert "did you mean batch?" in (await shell("queues", "stop", "bacth", status=2)).stderr


async def test_a_drain_asks_first(shell: Shell, world: World) -> None:
    async def is_drained() -> bool:
        return bool((await world.manager.get(WORKERCLUSTERS, "east"))["spec"].get("drain"))

    async def counts_them() -> bool:
        return (await world.manager.get(WORKERCLUSTERS, "east")).get("status", {}).get("jobs", 0) == len(on_east)

    on_east = [name for name in ("sweep", "wide") if await Scenario(world, "Job", name).cluster() == "east"]
    await eventually(counts_them, "the WorkerCluster counts its jobs")
    stops = f"this stops the {len(on_east)} jobs of east; they start elsewhere, at the size of their spec"
    refused = await shell("fleet", "drain", "east", status=2)
    assert refused.stderr == f"slicebus: {stops}: --yes says that you mean it, --dry-run only shows it\n"
    dry = await shell("fleet", "drain", "east", "--dry-run")
    assert dry.stdout.startswith(f"would drain east: its {len(on_east)} jobs stop")
    assert not await is_drained()
    async with terminal("fleet", "drain", "east", env=shell.env) as asked:
        await asked.expect(f"{stops}. Go on? [y/N]:")
        asked.type("n\n")
        await asked.expect("Aborted")
        assert await asked.ends() == 1
    assert not await is_drained()
    async with terminal("fleet", "drain", "east", env=shell.env) as asked:
        await asked.expect("Go on? [y/N]:")
        asked.type("y\n")
        await asked.expect("east is being drained")
        assert await asked.ends() == 0
    assert await is_drained()
    await shell("fleet", "uncordon", "east")
    await shell("fleet", "drain", "east", "--yes")
    assert await is_drained()
    await shell("fleet", "uncordon", "east")


async def test_a_misspelled_cluster_names_the_nearest(shell: Shell) -> None:
    for command in ("cordon", "uncordon", "drain", "release", "repin"):
        done = await shell("fleet", command, "eats", status=2)
        assert done.stderr == "slicebus: there is no WorkerCluster eats; did you mean east?\n"
    done = await shell("tree", "wide", "--worker", "eats=x", status=2)
    assert done.stderr == "slicebus: there is no worker cluster eats; did you mean east?\n"
    assert "did you mean json?" in (await shell("jobs", "-o", "jsn", status=2)).stderr


async def test_top_without_a_terminal_is_one_frame(shell: Shell, world: World) -> None:
    where = {name: await Scenario(world, "Job", name).cluster() for name in ("sweep", "wide")}
    done = await shell("top")
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"slicebus top  {world.manager.host}  ")
    [sweep] = [line for line in lines if "Job/sweep" in line]
    [wide] = [line for line in lines if "Job/wide" in line]
    for text in (where["sweep"], "Running", "■■ 2 ready", "1 job-sweep-", "main=2 Admitted"):
        assert text in sweep
    for text in (where["wide"], "Resizing", "■□□□□□ 1 ready, 5 gated", "main=1 Admitted"):
        assert text in wide
    assert "main=6 Pending  couldn't assign flavors" in done.stdout
    assert "● east" in " ".join(done.stdout.split())
    assert "batch/default cpu" in done.stdout
    assert "3 of 4" in done.stdout
    assert "1 Running, 1 Resizing" in done.stdout
    assert "messages" not in done.stdout, "it has no broker's address"
    assert "\x1b" not in done.stdout
    assert "Job/wide" not in (await shell("top", "-n", "default")).stdout


async def test_top_lives_in_a_terminal(shell: Shell, world: World) -> None:
    async with terminal("top", env=shell.env) as shown:
        await shown.expect("5 gated")
        shown.forget()
        await set_quota(world, 20)
        await shown.expect("■■■■■■ 6 ready")
        await shown.expect("2 Running")
        assert "Traceback" not in shown.shown
        shown.interrupt()
        assert await shown.ends() == 130


async def test_waiting_for_a_job_and_its_tree(shell: Shell, world: World, tmp_path: Path) -> None:
    wait = ("wait", f"{NAMESPACE}/wide", "--for")
    assert "Job/team-a/wide is Resizing" in (await shell(*wait, "admitted")).stdout
    late = await shell(*wait, "resized", "--timeout", "1s", status=1)
    assert "not resized after 1 s: Job/team-a/wide is Resizing" in late.stderr
    assert "did you mean" in (await shell("wait", "wied", "--for", "running", status=2)).stderr
    assert "did you mean running?" in (await shell(*wait, "runing", status=2)).stderr

    waiting = asyncio.create_task(shell(*wait, "resized", "--size", "6", "--timeout", "80s"))
    await set_quota(world, 20)
    assert "is Running" in (await waiting).stdout

    cluster = await Scenario(world, "Job", "wide").cluster()
    worker = write_kubeconfig(tmp_path / "worker", world.workers[cluster].host)
    tree = json.loads((await shell("tree", "wide", "--worker", f"{cluster}={worker}", "-o", "json")).stdout)
    slices = [node["state"] for node in tree["children"] if node["kind"] == "Workload"]
    assert slices == ["Finished: WorkloadSliceReplaced", "Admitted"]
    [copy] = [node for node in tree["children"] if node["kind"] == "Copy"]
    assert (copy["name"], [pod["state"] for pod in copy["children"]]) == (cluster, ["Ready"] * 6)
    assert "6 of 6 ready" in (await shell("tree", "wide")).stdout


async def test_what_a_tenant_of_one_namespace_sees(shell: Shell, world: World) -> None:
    """An API server that refuses every list but those of its namespace, as RBAC does for the role `view`."""
    with refusing(world.apis[world.manager.host], FORBIDDEN, verbs="GET", path=ELSEWHERE):
        jobs = await shell("jobs", "-n", NAMESPACE)
        assert [row[:3] for row in cells(jobs)[1:]] == [["sweep", "Job", "Running"], ["wide", "Job", "Resizing"]]
        leader, unseen = jobs.stderr.splitlines()
        assert leader.startswith("whether a manager leads is unknown: ")
        assert unseen.startswith("you may not see clusterqueues, ")
        assert "whether a cluster is connected" in unseen

        told = await shell("explain", f"{NAMESPACE}/wide")
        assert "request > maximum capacity (6 > 4)" in told.stdout
        assert "doesn't exist" not in told.stdout
        assert "you see jobs of namespace team-a only" in told.stderr

        queues = await shell("queues", "-n", NAMESPACE, "--no-headers")
        assert cells(queues)[0][:5] == ["main", "batch", "default", "cpu", "3"]
        assert (await shell("wait", f"{NAMESPACE}/sweep", "--for", "running")).stdout.startswith("Job/team-a/sweep")
        assert "3 of" not in (await shell("tree", "sweep", "-n", NAMESPACE)).stdout
        top = await shell("top", "-n", NAMESPACE)
        assert "you may not see clusterqueues, " in top.stderr
        for text in ("Resizing", "main/default cpu", "3 used", "?  "):
            assert text in top.stdout
        assert "●" not in top.stdout, "nobody knows whether a cluster is connected"
        for command in (("jobs", "-A"), ("fleet", "list"), ("jobs", "-n", "team-b")):
            assert "forbidden" in (await shell(*command, status=2)).stderr


async def test_watching_jobs_prints_what_changes(shell: Shell, world: World, kubeconfig: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        slicebus(), "jobs", "-A", "-w", env={"KUBECONFIG": str(kubeconfig)}, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    async with asyncio.timeout(80):
        first = [(await process.stdout.readline()).decode().split() for _ in range(3)]
        assert [row[1] for row in first] == ["NAME", "sweep", "wide"]
        await set_quota(world, 20)
        while (row := (await process.stdout.readline()).decode().split())[6:8] != ["6", "6"]:
            assert row[1] == "wide", row
    process.terminate()
    await process.wait()


RBAC = "rbac.authorization.k8s.io"


@pytest.fixture
def tenant(world: World, control_plane: ControlPlane, helm: Path, role: str, tmp_path: Path) -> Iterator[Path]:
    """The kubeconfig of somebody with a role of Kubernetes in one namespace, with what the chart adds to it."""
    cluster = control_plane.clusters["manager"]
    rendered = render(helm, "slicebus-manager", {"amqp": {"existingSecret": {"name": "none"}}})
    added = [
        manifest
        for manifest in rendered
        if manifest["kind"] == "ClusterRole"
        and any("aggregate-to" in label for label in manifest["metadata"]["labels"])
    ]
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "dev", "namespace": NAMESPACE}}
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "dev", "namespace": NAMESPACE},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": "dev", "namespace": NAMESPACE}],
    }
    apply(cluster, *added, account, binding)
    try:
        yield kubeconfig_of(cluster, "dev", tmp_path / "dev", namespace=NAMESPACE)
    finally:
        names = [manifest["metadata"]["name"] for manifest in added]
        cluster.kubectl("delete", "clusterroles", *names, "--ignore-not-found")
        cluster.kubectl("delete", "rolebinding/dev", "serviceaccount/dev", "-n", NAMESPACE, "--ignore-not-found")


@pytest.mark.real(only=True)
@pytest.mark.helm
@pytest.mark.parametrize("role", ["view", "edit"])
async def test_the_rights_of_one_namespace_are_enough(shell: Shell, tenant: Path) -> None:
    mine = Shell(tenant)

    async def has_the_role() -> bool:
        """A controller adds the chart's rules to the role."""
        done = await asyncio.to_thread(run_cli, "queues", "-n", NAMESPACE, env={"KUBECONFIG": str(tenant)})
        return done.returncode == 0

    await eventually(has_the_role, "the role has what the chart adds")
    jobs = await mine("jobs", "-n", NAMESPACE)
    assert [row[:3] for row in cells(jobs)[1:]] == [["sweep", "Job", "Running"], ["wide", "Job", "Resizing"]]
    assert "\nyou may not see clusterqueues, cohorts, " in jobs.stderr
    told = await mine("explain", f"{NAMESPACE}/wide")
    assert "request > maximum capacity (6 > 4)" in told.stdout
    assert "you see jobs of namespace team-a only" in told.stderr
    assert cells(await mine("queues", "-n", NAMESPACE, "--no-headers"))[0][:5] == [
        "main",
        "batch",
        "default",
        "cpu",
        "3",
    ]
    assert "is Running" in (await mine("wait", f"{NAMESPACE}/sweep", "--for", "resized")).stdout
    assert "Workload job-sweep-" in (await mine("tree", "sweep", "-n", NAMESPACE)).stdout
    for command in (("jobs", "-A"), ("queues", "stop", "main", "-n", NAMESPACE), ("fleet", "get", "east")):
        assert "forbidden" in (await mine(*command, status=2)).stderr
