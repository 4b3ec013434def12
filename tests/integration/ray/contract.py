"""The parts that the tests of KubeRay's contract share: a RayCluster, what happens to it, and its pods then."""

import asyncio
from collections.abc import Collection
from contextlib import suppress
from typing import Any

import msgspec

from slicebus.cli.demo import objects
from slicebus.kube.client import JsonPatch, KubeClient, MergePatch
from slicebus.kube.resources import PODS, RAYCLUSTERS
from slicebus.slices.jobs.ray import desired_replicas, groups, hosts
from support.waiting import eventually

Manifest = dict[str, Any]

HEAD = "headgroup"
"""What KubeRay calls the head's group."""
GROUP = "small-group"
OTHER = "other-group"
REPLICA = "ray.io/worker-group-replica-name"
REPLICA_INDEX = "ray.io/worker-group-replica-index"
HOST_INDEX = "ray.io/replica-host-index"
_HOLD = "contract.slicebus.dev/hold"


class Pods(msgspec.Struct, frozen=True):
    """A group's pods: those that were there at first by their number, and how many were made since."""

    stay: tuple[int, ...] = ()
    going: tuple[int, ...] = ()
    made: int = 0


class Operator(msgspec.Struct, frozen=True):
    """KubeRay or its stand-in, on a server, in a namespace."""

    client: KubeClient
    namespace: str
    is_real: bool = False
    """Whether it is KubeRay."""
    quiet_s: float = 0.5
    """For so long nothing may change that a test says is how it stays."""

    async def cluster(self, name: str, *groups: Manifest, autoscaling: bool = True) -> "RayCluster":
        """A RayCluster with all its pods."""
        spec = objects.ray_cluster_spec() | {"enableInTreeAutoscaling": autoscaling}
        template = spec["workerGroupSpecs"][0]
        spec["workerGroupSpecs"] = [template | group for group in groups]
        manifest = {
            "apiVersion": RAYCLUSTERS.api_version,
            "kind": RAYCLUSTERS.kind,
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": spec,
        }
        await self.client.create(RAYCLUSTERS, manifest)
        cluster = RayCluster(self, name)
        await cluster.note_pods({GROUP: 1} | {group.get("groupName", GROUP): _size(group) for group in groups})
        return cluster


class RayCluster:
    """One cluster. Its pods have numbers, by replica and host where they are labelled, else by name."""

    def __init__(self, operator: Operator, name: str) -> None:
        self._operator = operator
        self._client = operator.client
        self._name = name
        self._first: dict[str, list[Manifest]] = {}

    async def note_pods(self, sizes: dict[str, int]) -> None:
        """Wait for so many pods of each group and a head; these are the first ones from now on."""

        async def are_there() -> bool:
            found = {group: await self.pods(group) for group in (HEAD, *sizes)}
            self._first = found
            return {group: len(pods) for group, pods in found.items()} == {HEAD: 1} | sizes

        await eventually(are_there, f"{self._name} has the pods {sizes}")
        # The operator too has to see its own pods before anything happens to them.
        await asyncio.sleep(self._operator.quiet_s)

    async def pods(self, group: str = GROUP) -> list[Manifest]:
        """The pods of a group, in order."""
        labels = f"ray.io/cluster={self._name},ray.io/group={group}"
        found = (await self._client.list(PODS, namespace=self._operator.namespace, labels=labels)).items
        return sorted(found, key=_order)

    def names(self, *numbers: int, group: str = GROUP) -> list[str]:
        """The names of first pods."""
        return [self._first[group][number]["metadata"]["name"] for number in numbers]

    async def scale(self, replicas: int | None = None, named: Collection[str] | None = None, *, group: int = 0) -> None:
        """One patch, as Ray's autoscaler writes it: another size, the pods to delete, or both."""
        path = f"/spec/workerGroupSpecs/{group}"
        patch: list[Manifest] = []
        if replicas is not None:
            patch.append({"op": "replace", "path": f"{path}/replicas", "value": replicas})
        if named is not None:
            value = {"workersToDelete": list(named)}
            patch.append({"op": "replace", "path": f"{path}/scaleStrategy", "value": value})
        await self.patch(*patch)

    async def patch(self, *operations: Manifest) -> None:
        """Any other edit."""
        await self._client.patch(RAYCLUSTERS, self._name, self._operator.namespace, JsonPatch(list(operations)))

    async def fail(self, *numbers: int, group: str = GROUP) -> None:
        """First pods end as failed ones."""
        for name in self.names(*numbers, group=group):
            await self._client.patch(
                PODS, name, self._operator.namespace, MergePatch({"status": {"phase": "Failed"}}), subresource="status"
            )

    async def delete(self, *numbers: int) -> None:
        """Somebody else deletes first pods."""
        for name in self.names(*numbers):
            await self._client.delete(PODS, name, self._operator.namespace)

    async def hold(self, *numbers: int) -> None:
        """First pods that are deleted take until `release` to go."""
        for name in self.names(*numbers):
            body = MergePatch({"metadata": {"finalizers": [_HOLD]}})
            await self._client.patch(PODS, name, self._operator.namespace, body)

    async def release(self) -> None:
        """Let every pod go that is held."""
        page = await self._client.list(PODS, namespace=self._operator.namespace, labels=f"ray.io/cluster={self._name}")
        for pod in page.items:
            if _HOLD in pod["metadata"].get("finalizers", ()):
                body = MergePatch({"metadata": {"finalizers": None}})
                await self._client.patch(PODS, pod["metadata"]["name"], self._operator.namespace, body)

    async def expect(self, *, group: str = GROUP, **expected: Any) -> None:
        """Wait for these pods of a group, and see that they stay."""
        wanted = Pods(**expected)

        async def is_so() -> bool:
            return await self.state(group) == wanted

        with suppress(AssertionError):
            await eventually(is_so, "the pods are as expected")
        found = await self.state(group)
        assert found == wanted, f"{found} instead of {wanted}"
        await asyncio.sleep(self._operator.quiet_s)
        found = await self.state(group)
        assert found == wanted, f"{wanted} did not stay, but became {found}"

    async def until_seen(self) -> None:
        """Wait for the operator to have seen another size."""

        async def is_seen() -> bool:
            found = await self._client.get(RAYCLUSTERS, self._name, self._operator.namespace)
            wanted = sum(desired_replicas(group) * hosts(group) for group in groups(found["spec"]))
            return bool(found.get("status", {}).get("desiredWorkerReplicas", 0) == wanted)

        await eventually(is_seen, f"{self._name} is seen")

    async def generations(self) -> tuple[int, int]:
        """That of the spec, and the one that the status names."""
        found = await self._client.get(RAYCLUSTERS, self._name, self._operator.namespace)
        return found["metadata"]["generation"], found["status"]["observedGeneration"]

    async def state(self, group: str = GROUP) -> Pods:
        """What has become of a group's first pods."""
        found = {pod["metadata"]["uid"]: pod for pod in await self.pods(group)}
        first = [pod["metadata"]["uid"] for pod in self._first[group]]
        left = [number for number, uid in enumerate(first) if uid in found]
        going = tuple(number for number in left if "deletionTimestamp" in found[first[number]]["metadata"])
        stay = tuple(number for number in left if number not in going)
        return Pods(stay=stay, going=going, made=len(found) - len(left))

    async def named(self) -> list[str]:
        """What the list of pods to delete has."""
        found = await self._client.get(RAYCLUSTERS, self._name, self._operator.namespace)
        names: list[str] = found["spec"]["workerGroupSpecs"][0].get("scaleStrategy", {}).get("workersToDelete") or []
        return names

    async def remove(self) -> None:
        """Delete the cluster and its pods."""
        await self._client.delete(RAYCLUSTERS, self._name, self._operator.namespace)


def _size(group: Manifest) -> int:
    return int(group.get("replicas", 1) * group.get("numOfHosts", 1))


def _order(pod: Manifest) -> tuple[int, int, str]:
    labels = pod["metadata"]["labels"]
    return int(labels.get(REPLICA_INDEX, 0)), int(labels.get(HOST_INDEX, 0)), pod["metadata"]["name"]
