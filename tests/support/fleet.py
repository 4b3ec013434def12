"""A fleet of processes on a real broker and real API servers, and what shall be true of it.

A role that ends is started again at once, as a kubelet does, unless the test holds it down.
"""

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from slicebus.agent.act.identity import cluster_uid
from slicebus.bus.access.address import Access
from slicebus.bus.factory import connect
from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.resources import CLUSTERQUEUES, JOBS, LEASES, PODS, WORKERCLUSTERS, WORKLOADS
from slicebus.proto.errors import ConflictError, SlicebusError, TransientError
from slicebus.proto.messages import ClusterName, Lane
from slicebus.proto.topology import DEAD_LETTERS, agent_queue, cluster_queue, manager_queue
from slicebus.slices.api import api_names, kueue
from slicebus.slices.workload.ungate import is_gated
from slicebus.slices.workload.workload import Slice
from support.controlplane import Cluster, ControlPlane
from support.installation import Role
from support.scenario import NAMESPACE
from support.waiting import eventually

Manifest = dict[str, Any]
_KUBELET_S = 0.2
_LINES = 40
"""Of a log, where a test fails."""
_OVER = ("Succeeded", "Failed")


async def queues_of(world: World) -> list[str]:
    """The queues of the manager and of every agent."""
    uids = {name: await cluster_uid(client) for name, client in world.workers.items()}
    agents = [agent_queue(name, lane, uid) for name, uid in uids.items() for lane in Lane]
    clusters = [cluster_queue(name, lane) for name in uids for lane in Lane]
    return [*map(manager_queue, Lane), *clusters, *agents]


async def nothing_is_left(url: str, queues: list[str], *, access: Access = Access()) -> None:  # noqa: B008
    """Wait until the queues are empty; no message was given up."""
    bus = await connect(url, name="test", access=access)
    try:
        for queue in queues:

            async def empty(queue: str = queue) -> bool:
                return (await bus.depth(queue)).ready == 0

            await eventually(empty, f"{queue} is empty")
        assert [(await bus.depth(queue)).ready for queue in DEAD_LETTERS] == [0, 0]
    finally:
        await bus.aclose()


class Fleet:
    """Roles by name."""

    def __init__(self, folder: Path) -> None:
        self.roles: dict[str, Role] = {}
        self.held: set[str] = set()
        """Roles that are not started again."""
        self._folder = folder

    def add(self, name: str, command: str, *, url: str, kubeconfig: Path, **variables: str) -> Role:
        """A role; `name` is its identity."""
        given = {
            "AMQP_URL": url,
            "KUBECONFIG": str(kubeconfig),
            "SLICEBUS_NAMESPACE": objects.SYSTEM_NAMESPACE,
            "SLICEBUS_IDENTITY": name,
            "SLICEBUS_HEARTBEAT_SECONDS": "1",
            "SLICEBUS_MANAGER_USER": "manager",
        }
        role = Role(name, command, given | variables, log=self._folder / f"{name}.log")
        self.roles[name] = role
        return role

    def add_all(
        self,
        plane: ControlPlane,
        url: Callable[[str], str],
        variables: Callable[[str], Mapping[str, str]] = lambda name: {},
    ) -> None:
        """The manager, and an agent for each worker. What they differ in goes by their names."""
        for name, cluster in plane.clusters.items():
            command, own = ("manager", {}) if name == "manager" else ("agent", {"SLICEBUS_CLUSTER": name})
            self.add(name, command, url=url(name), kubeconfig=cluster.kubeconfig, **own, **variables(name))

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Keep every role running until the context is left, then print the end of each log, which pytest shows of a
        test that failed."""
        keeping = asyncio.create_task(self._keep(), name="kubelet")
        try:
            yield
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            for name, role in self.roles.items():
                role.kill()
                end = role.process.log_text().splitlines()[-_LINES:]
                sys.stdout.write("\n".join([f"--- {name}", *end, ""]))

    async def ready(self) -> None:
        """Wait until every role says that it is."""
        for name, role in self.roles.items():

            async def look(role: Role = role) -> bool:
                return await asyncio.to_thread(role.is_ready)

            await eventually(look, f"{name} is ready")

    def crash(self, name: str) -> None:
        """SIGKILL."""
        self.roles[name].kill()

    def expect_no_tracebacks(self) -> None:
        """Fail where a programming error has ended a role, with what it printed. What libraries log of theirs is a
        line."""
        for name, role in self.roles.items():
            text = role.process.log_text()
            if match := re.search(r"^(  \+ Exception Group )?Traceback", text, re.MULTILINE):
                raise AssertionError(f"{name} ended:\n{text[match.start() :][:20_000]}")

    async def _keep(self) -> None:
        while True:
            for name, role in self.roles.items():
                if name not in self.held and not role.process.is_running:
                    role.launch()
            await asyncio.sleep(_KUBELET_S)


def kubeconfig_through(cluster: Cluster, port: int, path: Path) -> Path:
    """The cluster's kubeconfig, by way of another port."""
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
    path.write_text(yaml.safe_dump(config))
    return path


async def holder(world: World, component: str, *, cluster: ClusterName | None = None) -> Manifest:
    """The spec of a role's Lease."""
    client = world.workers[cluster] if cluster else world.manager
    spec: Manifest = (await client.get(LEASES, component, objects.SYSTEM_NAMESPACE))["spec"]
    return spec


async def connected(world: World, name: str) -> bool:
    """Whether the manager hears a cluster."""
    found = (await world.manager.get(WORKERCLUSTERS, name)).get("status", {})
    return any(entry["type"] == "Connected" and entry["status"] == "True" for entry in found.get("conditions", ()))


class Jobs:
    """Elastic Jobs that a user resizes, and whether everybody agrees on them."""

    def __init__(self, world: World, names: list[str]) -> None:
        self._world = world
        self.wanted = dict.fromkeys(names, 1)
        self.cluster: dict[str, ClusterName] = {}

    async def submit(self) -> None:
        """Create them, and wait until each runs."""
        for name in self.wanted:
            await self._world.manager.create(JOBS, objects.job(name))

        async def placed() -> bool:
            slices = await self._slices()
            self.cluster = {name: c for name, found in slices.items() for slice in found if (c := slice.cluster)}
            return set(self.cluster) == set(self.wanted)

        await eventually(placed, "every job has a cluster")
        await self.agreed()

    async def place(self, name: str) -> ClusterName:
        """Where a job runs, as soon as it has quota."""

        async def look() -> ClusterName | None:
            return next((c for slice in (await self._slices()).get(name, ()) if (c := slice.cluster)), None)

        return await eventually(look, f"{name} has a cluster") or ClusterName("")

    async def resize(self, name: str, size: int) -> None:
        """As a user does it on the worker, who tries again while the API server is away."""
        patch = MergePatch({"spec": {"parallelism": size}})
        self.wanted[name] = size
        while True:
            try:
                await self._world.workers[self.cluster[name]].patch(JOBS, name, NAMESPACE, patch)
                return
            except (TransientError, ConflictError):
                await asyncio.sleep(0.2)

    async def agreed(self) -> None:
        """Wait until manager and workers hold what the user wanted last, and no more."""
        last: list[str] = []

        async def look() -> bool:
            last[:] = await self.disagreements()
            return not last

        try:
            await eventually(look, "everybody agrees")
        except AssertionError as error:
            error.add_note("; ".join(last))
            raise

    async def disagreements(self) -> list[str]:
        """What is not as the user wants it, in words."""
        found = []
        slices = await self._slices()
        for name, size in self.wanted.items():
            unfinished = [slice for slice in slices.get(name, ()) if not slice.finished]
            counts = [(slice.counts["main"], slice.admitted) for slice in unfinished]
            if counts != [(size, True)]:
                found.append(f"{name} wants {size}, its slices have {counts}")
        for cluster, client in self._world.workers.items():
            jobs = {job["metadata"]["name"]: job for job in (await client.list(JOBS, namespace=NAMESPACE)).items}
            expected = {name for name, where in self.cluster.items() if where == cluster}
            if set(jobs) != expected:
                found.append(f"{cluster} has {sorted(set(jobs) ^ expected)} or lacks it")
            pods = (await client.list(PODS, namespace=NAMESPACE)).items
            for name in expected & set(jobs):
                found += self._on_worker(jobs[name], [pod for pod in pods if pod_of(pod) == name], slices.get(name, []))
        queue = (await self._world.manager.get(CLUSTERQUEUES, objects.CLUSTER_QUEUE)).get("status", {})
        used = [resource for flavor in queue.get("flavorsUsage", ()) for resource in flavor["resources"]]
        if {"name": "cpu", "total": str(sum(self.wanted.values()))} not in used:
            found.append(f"{used} is used for {sum(self.wanted.values())} pods")
        return found

    def _on_worker(self, job: Manifest, pods: list[Manifest], slices: list[Slice]) -> list[str]:
        name, annotations = job["metadata"]["name"], job["metadata"]["annotations"]
        size = self.wanted[name]
        running = [pod for pod in pods if pod["status"].get("phase") == "Running" and not is_gated(pod)]
        holds = {
            "parallelism": (job["spec"]["parallelism"], size),
            "granted": (annotations.get(api_names.GRANTED_ANNOTATION), f'{{"main":{size}}}'),
            "slice": (annotations.get(kueue.PREBUILT_NAME), next((s.name for s in slices if not s.finished), None)),
            "pods": (len(pods), size),
            "running": (len(running), size),
        }
        found = [f"{name}: {what} is {has}, not {shall}" for what, (has, shall) in holds.items() if has != shall]
        return [*found, *map(_in_words, pods)] if found else []

    async def _slices(self) -> dict[str, list[Slice]]:
        found: dict[str, list[Slice]] = {}
        for workload in (await self._world.manager.list(WORKLOADS, namespace=NAMESPACE)).items:
            owner = workload["metadata"]["ownerReferences"][0]["name"]
            found.setdefault(owner, []).append(Slice.from_manifest(workload))
        return found


class QuotaWatch:
    """Looks again and again whether more pods run than the quota has room for."""

    def __init__(self, world: World, quota: int) -> None:
        self._workers = list(world.workers.values())
        self._quota = quota
        self.most = 0
        self.looks = 0
        self.violations: list[str] = []

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Look until the context is left."""
        task = asyncio.create_task(self._watch(), name="quota-watch")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            with suppress(SlicebusError):
                await self._look()
            await asyncio.sleep(0.1)

    async def _look(self) -> None:
        """What was there before and after the other list was made was there together with it."""
        first, *others = self._workers
        before = await self._ungated(first)
        between = [await self._ungated(other) for other in others]
        after = await self._ungated(first)
        together = len(before & after) + sum(map(len, between))
        self.looks += 1
        self.most = max(self.most, together)
        if together > self._quota:
            self.violations.append(f"{together} pods of {self._quota}")

    async def _ungated(self, client: KubeClient) -> set[str]:
        page = await client.list(PODS, namespace=NAMESPACE)
        return {
            pod["metadata"]["uid"]
            for pod in page.items
            if not is_gated(pod)
            and "deletionTimestamp" not in pod["metadata"]
            and pod.get("status", {}).get("phase") not in _OVER
        }


def _in_words(pod: Manifest) -> str:
    """What holds a pod where it is."""
    metadata = pod["metadata"]
    is_going, finalizers = "deletionTimestamp" in metadata, metadata.get("finalizers", [])
    return f"{metadata['name']} is {pod['status'].get('phase')}, {is_gated(pod)=}, {is_going=}, {finalizers=}"


def pod_of(pod: Manifest) -> str:
    """The job that a pod is of."""
    name: str = pod["metadata"]["labels"].get("job-name", "")
    return name
