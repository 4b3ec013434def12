"""Jobs of declared kinds, and what a test does with one."""

from typing import Any

from slicebus.cli.demo import objects
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.resources import PODS, WORKLOADS
from slicebus.manager.state.annotations import reported_status
from slicebus.slices.api import kueue
from slicebus.slices.api.api_names import ACCEPTED_CONDITION
from slicebus.slices.api.conditions import conditions_of
from slicebus.slices.workload.ungate import is_gated
from slicebus.slices.workload.workload import Slice
from support.scenario import NAMESPACE, Scenario
from support.waiting import eventually

Manifest = dict[str, Any]

SIZE = 2
"""Pods of a group, and Jobs of a JobSet."""
_GATE = {"schedulingGates": [{"name": kueue.ELASTIC_GATE}]}


def jobset(replicas: int, template: Manifest) -> Manifest:
    job = {"parallelism": replicas, "completions": replicas, "template": template}
    replicated = {"name": "workers", "replicas": SIZE, "template": {"spec": job}}
    return {"managedBy": kueue.MANAGED_BY_MULTIKUEUE, "replicatedJobs": [replicated]}


def groups(replicas: int, template: Manifest) -> Manifest:
    gated = template | {"spec": template["spec"] | _GATE}
    return {"replicas": replicas, "leaderWorkerTemplate": {"size": SIZE, "workerTemplate": gated}}


def deployment(replicas: int, template: Manifest) -> Manifest:
    labels = {"app": "served"}
    spec = template["spec"] | {"restartPolicy": "Always"}
    labelled = {"metadata": template["metadata"] | {"labels": labels}, "spec": spec}
    # A pod more than the quota has room for would wait for the one that it replaces.
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    own = {"paused": True, "replicas": replicas, "strategy": strategy}
    return own | {"selector": {"matchLabels": labels}, "template": labelled}


SPECS = {"JobSet": jobset, "LeaderWorkerSet": groups, "Deployment": deployment}
PODS_OF = {"JobSet": SIZE, "LeaderWorkerSet": SIZE, "Deployment": 1}
"""By which a size of one more is more."""
STATUS = {"JobSet": ("active", 4), "Deployment": ("readyReplicas", 2)}
"""What the worker's status says of two replicas."""


def resized(kind: str, spec: Manifest, replicas: int) -> MergePatch:
    """As a user, or an autoscaler, writes another size."""
    if kind == "JobSet":
        [replicated] = spec["replicatedJobs"]
        job = replicated["template"]["spec"] | {"parallelism": replicas, "completions": replicas}
        return MergePatch({"spec": {"replicatedJobs": [replicated | {"template": {"spec": job}}]}})
    return MergePatch({"spec": {"replicas": replicas}})


class DeclaredScenario(Scenario):
    """One job in a world. Sizes are replicas, or the parallelism of a JobSet's Jobs."""

    @property
    def pods_of_one(self) -> int:
        return PODS_OF[self.kind]

    def manifest(self, replicas: int = 1, **annotations: str) -> Manifest:
        made = objects.job(self.name)
        spec = made["spec"]["template"]["spec"]
        own = {name: value for name, value in annotations.items() if name.startswith("pod/")}
        template = {"metadata": {"annotations": {name[4:]: value for name, value in own.items()}}, "spec": spec}
        noted = made["metadata"]["annotations"] | {n: value for n, value in annotations.items() if n not in own}
        named = {"apiVersion": self.resource.api_version, "kind": self.kind}
        metadata = made["metadata"] | {"annotations": noted}
        return named | {"metadata": metadata, "spec": SPECS[self.kind](replicas, template)}

    async def submit(self, replicas: int = 1, **annotations: str) -> None:
        await self.world.manager.create(self.resource, self.manifest(replicas, **annotations))

    async def scale(self, workers: int) -> None:
        await self._resize(await self.worker(), workers)

    async def scale_on_the_manager(self, workers: int) -> None:
        await self._resize(self.world.manager, workers)

    async def _resize(self, client: KubeClient, replicas: int) -> None:
        job = await client.get(self.resource, self.name, NAMESPACE)
        await client.patch(self.resource, self.name, NAMESPACE, resized(self.kind, job["spec"], replicas))

    async def suspend(self, client: KubeClient, suspended: bool = True) -> None:
        """As a user does on a cluster."""
        await client.patch(self.resource, self.name, NAMESPACE, MergePatch({"spec": {"suspend": suspended}}))

    def workers_of(self, slice: Slice) -> int:
        return sum(slice.counts.values()) // self.pods_of_one

    async def expect(self, *, running: int, gated: int = 0) -> None:
        await self.expect_pods(running=running * self.pods_of_one, gated=gated * self.pods_of_one)

    async def of_the_manager(self) -> Manifest:
        return await self.world.manager.get(self.resource, self.name, NAMESPACE)

    async def expect_no_pod_of_the_manager_runs(self) -> None:
        """A LeaderWorkerSet has pods there, which wait for ever."""
        page = await self.world.manager.list(PODS, namespace=NAMESPACE)
        assert all(is_gated(pod) for pod in page.items)
        assert bool(page.items) is (self.kind == "LeaderWorkerSet")

    async def expect_status_of_the_worker(self, name: str, value: object) -> None:
        """Wait until the manager's job shows a field of the worker's status, in its own or in the annotation."""

        async def shown() -> bool:
            return reported_status(await self.of_the_manager()).get(name) == value

        await eventually(shown, f"{name} of {self.name} is {value}")

    async def expect_left_alone(self, why: str) -> None:
        """Wait until the manager's job says why slicebus does not run it."""

        async def told() -> bool:
            conditions = conditions_of(await self.of_the_manager())
            said = [entry["message"] for entry in conditions if entry["type"] == ACCEPTED_CONDITION]
            return said == [f"slicebus leaves it alone: {why}"]

        await eventually(told, f"{self.name} says that {why}")

    async def expect_nothing_on_the_worker(self) -> None:
        worker = await self.worker()

        async def cleaned() -> bool:
            lists = [await worker.list(resource, namespace=NAMESPACE) for resource in (self.resource, WORKLOADS, PODS)]
            return not any(page.items for page in lists)

        await eventually(cleaned, f"the worker has nothing left of {self.name}")
