"""Deletion on both API servers: finalizers, preconditions, namespaces, and owned objects."""

from typing import Any

import pytest

from integration.kube.contract import UNKNOWN_UID, WIDGETS, Api, Manifest, pod_template
from slicebus.kube.client import MergePatch, Propagation
from slicebus.kube.resources import CONFIGMAPS, NAMESPACES, PODS
from slicebus.proto.errors import ConflictError, ForbiddenError, InvalidError, NotFoundError
from support.waiting import eventually


async def test_a_finalizer_holds_a_deletion(api: Api) -> None:
    created = await api.widget(metadata={"finalizers": ["test/hold"]}, spec={})
    await api.client.delete(WIDGETS, "a", api.namespace)
    held = await api.client.get(WIDGETS, "a", api.namespace)
    assert held["metadata"]["deletionTimestamp"]
    assert held["metadata"]["deletionGracePeriodSeconds"] == 0
    assert held["metadata"]["generation"] == created["metadata"]["generation"] + 1
    await api.client.delete(WIDGETS, "a", api.namespace)
    assert await api.client.get(WIDGETS, "a", api.namespace) == held
    more = MergePatch({"metadata": {"finalizers": ["test/hold", "test/more"]}})
    with pytest.raises(InvalidError, match="no new finalizers can be added if the object is being deleted"):
        await api.client.patch(WIDGETS, "a", api.namespace, more)
    await api.client.patch(WIDGETS, "a", api.namespace, MergePatch({"metadata": {"deletionTimestamp": None}}))
    last = await api.client.patch(WIDGETS, "a", api.namespace, MergePatch({"metadata": {"finalizers": None}}))
    assert last["metadata"]["uid"] == created["metadata"]["uid"]
    with pytest.raises(NotFoundError):
        await api.client.get(WIDGETS, "a", api.namespace)


async def test_a_deletion_with_another_uid_is_a_conflict(api: Api) -> None:
    created = await api.config_map()
    with pytest.raises(ConflictError, match="UID in the precondition"):
        await api.client.delete(CONFIGMAPS, "a", api.namespace, uid=UNKNOWN_UID)
    await api.client.delete(CONFIGMAPS, "a", api.namespace, uid=created["metadata"]["uid"])
    await api.gone(CONFIGMAPS, "a")


async def test_a_deletion_of_an_older_version_is_a_conflict(kubectl_api: Api) -> None:
    """The client has no such precondition; kubectl sends what it is given."""
    api = kubectl_api
    created = await api.config_map()
    path = CONFIGMAPS.path(api.namespace, "a")
    options = '{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"resourceVersion":"%s"}}'
    refused = await api.kubectl("delete", "--raw", path, "-f", "-", stdin=options % "1")
    assert "ResourceVersion in the precondition" in refused
    await api.kubectl("delete", "--raw", path, "-f", "-", stdin=options % created["metadata"]["resourceVersion"])
    await api.gone(CONFIGMAPS, "a")


async def test_a_namespace_ends_after_its_objects(api: Api) -> None:
    name = f"{api.namespace}-ending"
    await api.client.create(NAMESPACES, {"metadata": {"name": name}})
    held = {"metadata": {"name": "a", "namespace": name, "finalizers": ["test/hold"]}}
    await api.client.create(CONFIGMAPS, held)
    await api.client.delete(NAMESPACES, name)
    space = await api.client.get(NAMESPACES, name)
    assert space["metadata"]["deletionTimestamp"]
    assert space["status"]["phase"] == "Terminating"
    with pytest.raises(ForbiddenError, match="being terminated"):
        await api.client.create(CONFIGMAPS, {"metadata": {"name": "b", "namespace": name}})
    await api.client.patch(CONFIGMAPS, "a", name, MergePatch({"metadata": {"finalizers": None}}))
    await api.gone(NAMESPACES, name)


def owned_by(*owners: Manifest, block: bool = False, **metadata: Any) -> Manifest:
    references = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": block,
        }
        for owner in owners
    ]
    return {"ownerReferences": references, **metadata}


async def test_owned_objects_go_with_their_owner(api: Api) -> None:
    owner = await api.config_map("owner")
    child = await api.config_map("child", metadata=owned_by(owner))
    await api.config_map("grandchild", metadata=owned_by(child))
    await api.config_map("other")
    await api.client.delete(CONFIGMAPS, "owner", api.namespace)
    await api.gone(CONFIGMAPS, "grandchild")
    await api.gone(CONFIGMAPS, "child")
    assert await api.names() == ["other"]


async def test_an_object_of_two_owners_goes_with_the_last(api: Api) -> None:
    one, two = await api.config_map("one"), await api.config_map("two")
    await api.config_map("child", metadata=owned_by(one, two))
    await api.client.delete(CONFIGMAPS, "one", api.namespace)

    async def is_let_go() -> bool:
        child = await api.client.get(CONFIGMAPS, "child", api.namespace)
        return [owner["name"] for owner in child["metadata"]["ownerReferences"]] == ["two"]

    await eventually(is_let_go, "the child has one owner")
    await api.client.delete(CONFIGMAPS, "two", api.namespace)
    await api.gone(CONFIGMAPS, "child")


async def test_an_object_of_an_owner_that_has_gone_goes_too(api: Api) -> None:
    owner = await api.config_map("owner")
    await api.client.delete(CONFIGMAPS, "owner", api.namespace)
    await api.config_map("child", metadata=owned_by(owner))
    await api.gone(CONFIGMAPS, "child")


@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
async def test_a_finalizer_of_what_is_owned_holds_the_owner_in_the_foreground(
    api: Api, propagation: Propagation
) -> None:
    owner = await api.config_map("owner")
    await api.config_map("child", metadata=owned_by(owner, block=True, finalizers=["test/hold"]))
    await api.client.delete(CONFIGMAPS, "owner", api.namespace, propagation=propagation)

    async def child_is_marked() -> bool:
        return "deletionTimestamp" in (await api.client.get(CONFIGMAPS, "child", api.namespace))["metadata"]

    await eventually(child_is_marked, "the child is being deleted")
    if propagation == "Foreground":
        held = await api.client.get(CONFIGMAPS, "owner", api.namespace)
        assert held["metadata"]["finalizers"] == ["foregroundDeletion"]
    else:
        await api.gone(CONFIGMAPS, "owner")
    await api.client.patch(CONFIGMAPS, "child", api.namespace, MergePatch({"metadata": {"finalizers": None}}))
    await api.gone(CONFIGMAPS, "child")
    await api.gone(CONFIGMAPS, "owner")


async def test_what_is_made_while_its_owner_goes_in_the_foreground_goes_too(api: Api) -> None:
    owner = await api.config_map("owner")
    await api.config_map("child", metadata=owned_by(owner, block=True, finalizers=["test/hold"]))
    await api.client.delete(CONFIGMAPS, "owner", api.namespace, propagation="Foreground")
    await api.config_map("late", metadata=owned_by(owner, block=True))
    await api.client.patch(CONFIGMAPS, "child", api.namespace, MergePatch({"metadata": {"finalizers": None}}))
    for name in ("child", "late", "owner"):
        await api.gone(CONFIGMAPS, name)


async def test_an_orphan_stays(api: Api) -> None:
    owner = await api.config_map("owner")
    await api.config_map("child", metadata=owned_by(owner))
    await api.client.delete(CONFIGMAPS, "owner", api.namespace, propagation="Orphan")
    await api.gone(CONFIGMAPS, "owner")
    child = await api.client.get(CONFIGMAPS, "child", api.namespace)
    assert "ownerReferences" not in child["metadata"]


async def a_pod(api: Api, *, on: str | None, **spec: Any) -> Manifest:
    node = {"nodeName": on} if on else {}
    return await api.client.create(PODS, api.manifest(PODS, "a", spec=pod_template(**node, **spec)["spec"]))


async def test_a_pod_without_a_node_goes_at_once(api: Api) -> None:
    await a_pod(api, on=None, schedulingGates=[{"name": "test/gate"}])
    await api.client.delete(PODS, "a", api.namespace)
    await api.gone(PODS, "a")


@pytest.mark.parametrize(("own_s", "given_s"), [(None, 30), (300, 300)])
async def test_a_pod_that_has_a_node_stays_for_its_grace(api: Api, own_s: int | None, given_s: int) -> None:
    made = await a_pod(api, on="nowhere", **({"terminationGracePeriodSeconds": own_s} if own_s else {}))
    await api.client.delete(PODS, "a", api.namespace)
    going = (await api.client.get(PODS, "a", api.namespace))["metadata"]
    assert going["deletionGracePeriodSeconds"] == given_s
    assert going["deletionTimestamp"] > made["metadata"]["creationTimestamp"]
    await api.client.delete(PODS, "a", api.namespace)
    await api.client.delete(PODS, "a", api.namespace, grace_s=1000)
    status = {"status": {"message": "it ends"}}
    still = await api.client.patch(PODS, "a", api.namespace, MergePatch(status), subresource="status")
    assert still["metadata"]["deletionTimestamp"] == going["deletionTimestamp"]
    await api.client.delete(PODS, "a", api.namespace, grace_s=10)
    shorter = (await api.client.get(PODS, "a", api.namespace))["metadata"]
    assert shorter["deletionGracePeriodSeconds"] == 10
    assert shorter["deletionTimestamp"] < going["deletionTimestamp"]
    await api.client.delete(PODS, "a", api.namespace, grace_s=0)
    await api.gone(PODS, "a")


async def test_a_pod_that_has_ended_goes_at_once(api: Api) -> None:
    await a_pod(api, on="nowhere")
    body = MergePatch({"status": {"phase": "Succeeded"}})
    await api.client.patch(PODS, "a", api.namespace, body, subresource="status")
    await api.client.delete(PODS, "a", api.namespace)
    await api.gone(PODS, "a")


@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
async def test_a_pod_outlives_its_owner_unless_that_goes_in_the_foreground(api: Api, propagation: Propagation) -> None:
    owner = await api.config_map("owner")
    pod = api.manifest(PODS, "a", metadata=owned_by(owner, block=True), spec=pod_template(nodeName="nowhere")["spec"])
    await api.client.create(PODS, pod)
    await api.client.delete(CONFIGMAPS, "owner", api.namespace, propagation=propagation)

    async def is_going() -> bool:
        return "deletionTimestamp" in (await api.client.get(PODS, "a", api.namespace))["metadata"]

    await eventually(is_going, "the pod is being deleted")
    if propagation == "Foreground":
        held = await api.client.get(CONFIGMAPS, "owner", api.namespace)
        assert held["metadata"]["finalizers"] == ["foregroundDeletion"]
    else:
        await api.gone(CONFIGMAPS, "owner")
    await api.client.delete(PODS, "a", api.namespace, grace_s=0)
    await api.gone(PODS, "a")
    await api.gone(CONFIGMAPS, "owner")
