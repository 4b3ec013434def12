"""What KubeRay makes of a RayService before any cluster serves, whose edits decide which cluster it prepares.

The stand-in has to pass on every machine; a real operator where `KUBERAY_BINARY` and `KUBERAY_CRDS` name one. Nothing
runs a pod here: no head gets ready, and no applications are deployed.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from integration.ray.contract import Operator
from slicebus.cli.demo import objects
from slicebus.kube.client import JsonPatch
from slicebus.kube.resources import RAYCLUSTERS, RAYSERVICES
from slicebus.proto.errors import NotFoundError
from slicebus.sandbox.controllers.ray_services import FINALIZER
from slicebus.slices.api.conditions import conditions_of
from slicebus.slices.jobs import KINDS
from support.waiting import eventually

Manifest = dict[str, Any]
NAME = "chat"
VERSION = "ray.io/kuberay-version"
CLUSTER = "/spec/rayClusterConfig"
GROUP = f"{CLUSTER}/workerGroupSpecs/0"
POD = f"{GROUP}/template/spec"


class Service:
    """One RayService, which an operator of the contract runs."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self.first: str = ""
        """The cluster that was prepared first."""

    async def make(self) -> None:
        manifest = objects.ray_service(NAME)
        spec = {name: value for name, value in manifest["spec"].items() if name != "managedBy"}
        metadata = {
            "name": NAME,
            "namespace": self._operator.namespace,
            "annotations": {"a": "b"},
            "labels": {"c": "d"},
        }
        await self._operator.client.create(RAYSERVICES, manifest | {"metadata": metadata, "spec": spec})
        [self.first] = await self.expect_clusters(lambda names: len(names) == 1, "a cluster")

    async def get(self) -> Manifest:
        return await self._operator.client.get(RAYSERVICES, NAME, self._operator.namespace)

    async def edit(self, *operations: Manifest) -> None:
        await self._operator.client.patch(
            RAYSERVICES, NAME, self._operator.namespace, JsonPatch([{"op": "add"} | each for each in operations])
        )

    async def delete(self) -> None:
        await self._operator.client.delete(RAYSERVICES, NAME, self._operator.namespace)

    async def clusters(self) -> dict[str, Manifest]:
        """By name, those that are being deleted left out."""
        found = (await self._operator.client.list(RAYCLUSTERS, namespace=self._operator.namespace)).items
        return {each["metadata"]["name"]: each for each in found if "deletionTimestamp" not in each["metadata"]}

    async def named(self) -> list[str]:
        """The clusters that its status names."""
        return KINDS["RayService"].children(await self.get()) or []

    async def expect_clusters(self, are: Any, what: str) -> list[str]:
        """Wait until its status names such clusters, and they are there."""
        found: list[str] = []

        async def look() -> bool:
            found[:] = await self.named()
            return bool(are(found)) and set(found) <= (await self.clusters()).keys()

        await eventually(look, what)
        return found

    async def needs(self, major: int, minor: int) -> None:
        """Skip the test beside an older KubeRay: its clusters say which one it is, those of a stand-in say nothing."""
        said = (await self.clusters())[self.first]["metadata"].get("annotations", {}).get(VERSION, "")
        found = re.match(r"v(\d+)\.(\d+)", said)
        if found and (int(found[1]), int(found[2])) < (major, minor):
            pytest.skip(f"KubeRay {said} does not do this yet, {major}.{minor} does")

    async def settle(self) -> None:
        """For as long as an operator that does something would have begun."""
        await asyncio.sleep(self._operator.quiet_s)


@pytest.fixture
async def service(operator: Operator) -> AsyncIterator[Service]:
    made = Service(operator)
    await made.make()
    yield made
    try:
        await made.delete()
    except NotFoundError:
        return
    await expect_gone(made)


async def expect_gone(service: Service) -> None:
    async def is_gone() -> bool:
        try:
            await service.get()
        except NotFoundError:
            return not await service.clusters()
        return False

    await eventually(is_gone, "nothing of the service is left")


async def test_it_keeps_the_service_and_makes_a_cluster_of_it(service: Service) -> None:
    cluster = (await service.clusters())[service.first]
    assert KINDS["RayService"].made_by(cluster) == NAME
    assert (cluster["metadata"]["annotations"]["a"], cluster["metadata"]["labels"]["c"]) == ("b", "d")
    assert (await service.get())["status"]["pendingServiceStatus"]["rayClusterName"] == service.first
    await service.delete()
    await expect_gone(service)


async def test_it_holds_the_service_until_its_clusters_have_gone(service: Service) -> None:
    await service.needs(1, 7)
    assert FINALIZER in (await service.get())["metadata"]["finalizers"]


MUTED: dict[str, Manifest] = {
    "its applications": {"path": "/spec/serveConfigV2", "value": "applications: [{name: a, import_path: b.c}]"},
    "a size": {"path": f"{GROUP}/replicas", "value": 3},
    "a minimum": {"path": f"{GROUP}/minReplicas", "value": 1},
    "a maximum": {"path": f"{GROUP}/maxReplicas", "value": 9},
    "a name for deletion": {"path": f"{GROUP}/scaleStrategy", "value": {"workersToDelete": ["a"]}},
    "a gate": {"path": f"{POD}/schedulingGates", "value": [{"name": "example.dev/gate"}]},
    "a toleration": {"path": f"{POD}/tolerations", "value": [{"key": "a", "operator": "Exists"}]},
    "how it is upgraded": {"path": "/spec/upgradeStrategy", "value": {"type": "NewCluster"}},
}
MUTED_SINCE_1_7 = [MUTED["a gate"], MUTED["a toleration"]]
"""An older KubeRay prepares another cluster."""


@pytest.mark.parametrize("edit", MUTED.values(), ids=MUTED.keys())
async def test_an_edit_that_leaves_the_cluster(service: Service, edit: Manifest) -> None:
    if edit in MUTED_SINCE_1_7:
        await service.needs(1, 7)
    before = (await service.clusters())[service.first]["spec"]
    await service.edit(edit)
    await service.settle()
    assert await service.named() == [service.first]
    assert (await service.clusters())[service.first]["spec"] == before


NEW: dict[str, list[Manifest]] = {
    "an image": [{"path": f"{POD}/containers/0/image", "value": "ray:next"}],
    "how the head starts": [{"path": f"{CLUSTER}/headGroupSpec/rayStartParams", "value": {"num-cpus": "1"}}],
    "an idle time": [{"path": f"{CLUSTER}/autoscalerOptions", "value": {"idleTimeoutSeconds": 5}}],
    "nodes": [{"path": f"{POD}/nodeSelector", "value": {"a": "b"}}],
    "a group before the others": [
        {"op": "copy", "from": GROUP, "path": GROUP},
        {"op": "replace", "path": f"{GROUP}/groupName", "value": "more"},
    ],
    "no group": [{"op": "remove", "path": GROUP}],
}


@pytest.mark.parametrize("edit", NEW.values(), ids=NEW.keys())
async def test_an_edit_that_prepares_another_cluster(service: Service, edit: list[Manifest]) -> None:
    await service.edit(*edit)
    [other] = await service.expect_clusters(lambda names: names != [service.first], "another cluster")
    assert len((await service.clusters())[other]["spec"].get("workerGroupSpecs") or []) == (
        2 if "copy" in str(edit) else "remove" not in str(edit)
    )


async def test_a_service_that_is_not_upgraded_keeps_its_cluster(service: Service) -> None:
    await service.edit({"path": "/spec/upgradeStrategy", "value": {"type": "None"}}, *NEW["an image"])
    await service.settle()
    assert await service.named() == [service.first]


async def test_a_group_at_the_end_is_added_in_place_with_the_sizes_of_the_service(service: Service) -> None:
    await service.edit(
        {"op": "copy", "from": GROUP, "path": f"{CLUSTER}/workerGroupSpecs/-"},
        {"op": "replace", "path": f"{CLUSTER}/workerGroupSpecs/1/groupName", "value": "more"},
        {"path": f"{GROUP}/replicas", "value": 2},
    )
    found: list[Any] = []

    async def has_both() -> bool:
        groups = (await service.clusters())[service.first]["spec"]["workerGroupSpecs"]
        found[:] = [(group["groupName"], group["replicas"]) for group in groups]
        return len(found) == 2

    await eventually(has_both, "the cluster has both groups")
    assert (found[0][1], found[1][0]) == (2, "more")
    assert await service.named() == [service.first]


async def test_it_is_suspended_to_the_end_before_it_is_resumed(service: Service) -> None:
    await service.needs(1, 7)

    async def is_suspended(wanted: bool) -> bool:
        conditions = {each["type"]: each["status"] == "True" for each in conditions_of(await service.get())}
        return conditions.get("Suspended", False) is wanted and not conditions.get("Suspending", False)

    await service.edit({"path": "/spec/suspend", "value": True})
    await eventually(lambda: is_suspended(True), "it is suspended")
    assert (await service.named(), await service.clusters()) == ([], {})
    await service.edit({"path": "/spec/suspend", "value": False})
    await eventually(lambda: is_suspended(False), "it is resumed")
    assert await service.expect_clusters(lambda names: len(names) == 1, "a cluster") != [service.first]
