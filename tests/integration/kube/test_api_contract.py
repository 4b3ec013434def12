"""One object on an API server: create, read, change, delete. Every test runs on both servers."""

import pytest

from integration.kube.contract import UNKNOWN_UID, WIDGETS, Api, Manifest, StrategicPatch, pod_template
from slicebus.kube.client import JsonPatch, MergePatch
from slicebus.kube.resources import CONFIGMAPS, JOBS, NAMESPACES, NODES, PODS, Resource
from slicebus.proto.errors import (
    AlreadyExistsError,
    ConflictError,
    InvalidError,
    NotFoundError,
    UnavailableError,
)


async def test_a_created_object_is_read_back(api: Api) -> None:
    created = await api.config_map(data={"k": "v"})
    assert created["data"] == {"k": "v"}
    assert {"uid", "resourceVersion", "creationTimestamp"} <= created["metadata"].keys()
    assert await api.client.get(CONFIGMAPS, "a", api.namespace) == created
    page = await api.client.list(CONFIGMAPS, namespace=api.namespace, fields="metadata.name=a")
    assert page.items == [created]


async def test_what_the_server_decides_is_ignored_in_a_create(api: Api) -> None:
    server_fields = {"uid": UNKNOWN_UID, "creationTimestamp": "2020-01-01T00:00:00Z", "generation": 7, "selfLink": "/x"}
    created = await api.widget(metadata=server_fields | {"deletionTimestamp": "2020-01-01T00:00:00Z"}, spec={})
    assert created["metadata"]["uid"] != UNKNOWN_UID
    assert created["metadata"]["generation"] == 1
    assert not created["metadata"]["creationTimestamp"].startswith("2020")
    assert "deletionTimestamp" not in created["metadata"]


async def test_generate_name_makes_a_name(api: Api) -> None:
    manifest = {"metadata": {"generateName": "a-", "namespace": api.namespace}}
    names = [(await api.client.create(CONFIGMAPS, manifest))["metadata"]["name"] for _ in range(2)]
    assert all(name.startswith("a-") and len(name) == len("a-") + 5 for name in names)
    assert len(set(names)) == 2


async def test_a_taken_name_is_refused(api: Api) -> None:
    await api.config_map()
    with pytest.raises(AlreadyExistsError, match='configmaps "a" already exists'):
        await api.config_map()


async def test_a_new_object_has_no_version(api: Api) -> None:
    with pytest.raises(UnavailableError, match="500: resourceVersion should not be set on objects to be created"):
        await api.config_map(metadata={"resourceVersion": "1"})


@pytest.mark.parametrize("verb", ["get", "replace", "patch", "delete"])
async def test_a_missing_object_is_not_found(api: Api, verb: str) -> None:
    client, place = api.client, ("a", api.namespace)
    with pytest.raises(NotFoundError, match='"a" not found'):
        await {
            "get": lambda: client.get(CONFIGMAPS, *place),
            "replace": lambda: client.replace(CONFIGMAPS, api.manifest(CONFIGMAPS, "a")),
            "patch": lambda: client.patch(CONFIGMAPS, *place, MergePatch({})),
            "delete": lambda: client.delete(CONFIGMAPS, *place),
        }[verb]()


@pytest.mark.parametrize("name", ["x" * 254, "Upper", "under_score", "-a", "a-", ".a", "a..b", "a/b", ""])
async def test_names_that_are_no_dns_names_are_refused(api: Api, name: str) -> None:
    with pytest.raises(InvalidError, match=r"metadata\.name|name or generateName is required"):
        await api.config_map(name)


def named(api: Api, resource: Resource, name: str) -> Manifest:
    """The least that a kind asks for, under a name."""
    place = {"namespace": api.namespace if resource.namespaced else ""}
    fields: dict[Resource, Manifest] = {JOBS: {"spec": {"template": pod_template()}}, WIDGETS: {"spec": {}}}
    return api.manifest(resource, name, metadata=place, **fields.get(resource, {}))


@pytest.mark.parametrize(
    ("resource", "name"),
    [(CONFIGMAPS, "x" * 253), (CONFIGMAPS, "a.b"), (WIDGETS, "x" * 253), (JOBS, "x" * 63)],
    ids=lambda value: value.kind if isinstance(value, Resource) else f"{len(value)}",
)
async def test_names_may_be_so_long(api: Api, resource: Resource, name: str) -> None:
    created = await api.client.create(resource, named(api, resource, name))
    assert created["metadata"]["name"] == name


@pytest.mark.parametrize(
    ("resource", "name"),
    [(JOBS, "x" * 64), (NAMESPACES, "x" * 64), (NAMESPACES, "a.b"), (WIDGETS, "x" * 254)],
    ids=lambda value: value.kind if isinstance(value, Resource) else f"{len(value)}",
)
async def test_names_may_not_be_longer(api: Api, resource: Resource, name: str) -> None:
    with pytest.raises(InvalidError, match=r"must be no more than|must not contain dots|must consist of"):
        await api.client.create(resource, named(api, resource, name))


@pytest.mark.parametrize("labels", [{"a b": "c"}, {"a": "b c"}, {"a": "x" * 64}, {"a/b/c": "d"}])
async def test_labels_that_are_none_are_refused(api: Api, labels: dict[str, str]) -> None:
    with pytest.raises(InvalidError, match=r"metadata\.labels"):
        await api.config_map(metadata={"labels": labels})


async def test_a_stale_version_is_a_conflict(api: Api) -> None:
    stale = await api.config_map(data={"k": "1"})
    await api.client.replace(CONFIGMAPS, stale | {"data": {"k": "2"}})
    with pytest.raises(ConflictError, match="the object has been modified"):
        await api.client.replace(CONFIGMAPS, stale | {"data": {"k": "3"}})
    version = {"metadata": {"resourceVersion": stale["metadata"]["resourceVersion"]}}
    with pytest.raises(ConflictError, match="the object has been modified"):
        await api.client.patch(CONFIGMAPS, "a", api.namespace, MergePatch(version | {"data": {"k": "3"}}))
    assert (await api.client.get(CONFIGMAPS, "a", api.namespace))["data"] == {"k": "2"}


async def test_another_objects_uid_is_refused(api: Api) -> None:
    created = await api.config_map()
    with pytest.raises(ConflictError, match="UID in precondition"):
        await api.client.replace(CONFIGMAPS, created | {"metadata": created["metadata"] | {"uid": UNKNOWN_UID}})
    with pytest.raises(InvalidError, match=r"metadata\.uid: Invalid value: .*field is immutable"):
        await api.client.patch(CONFIGMAPS, "a", api.namespace, MergePatch({"metadata": {"uid": UNKNOWN_UID}}))


async def test_a_replace_without_a_version_is_for_built_in_kinds(api: Api) -> None:
    await api.config_map(data={"k": "1"})
    replaced = await api.client.replace(CONFIGMAPS, api.manifest(CONFIGMAPS, "a", data={"k": "2"}))
    assert replaced["data"] == {"k": "2"}
    await api.widget(spec={})
    with pytest.raises(
        InvalidError, match=r"metadata\.resourceVersion: Invalid value: .*must be specified for an update"
    ):
        await api.client.replace(WIDGETS, api.manifest(WIDGETS, "a", spec={}))


async def test_the_name_cannot_be_changed(api: Api) -> None:
    await api.config_map()
    with pytest.raises(InvalidError, match="name"):
        await api.client.patch(CONFIGMAPS, "a", api.namespace, MergePatch({"metadata": {"name": "b"}}))


async def test_versions_of_an_object_grow(api: Api) -> None:
    versions = [int((await api.config_map())["metadata"]["resourceVersion"])]
    for number in range(3):
        patched = await api.client.patch(CONFIGMAPS, "a", api.namespace, MergePatch({"data": {"k": str(number)}}))
        versions.append(int(patched["metadata"]["resourceVersion"]))
    assert versions == sorted(set(versions))


async def test_a_write_that_changes_nothing_keeps_the_version(api: Api) -> None:
    created = await api.widget(spec={"size": 2, "parts": [{"name": "x"}]})
    place = (WIDGETS, "a", api.namespace)
    same = {"apiVersion": created["apiVersion"], "kind": "Widget", "spec": {"size": 2, "color": None}}
    assert await api.client.replace(WIDGETS, created) == created
    assert await api.client.patch(*place, MergePatch({})) == created
    assert await api.client.patch(*place, MergePatch(same)) == created
    assert await api.client.patch(*place, JsonPatch([{"op": "replace", "path": "/spec/size", "value": 2}])) == created
    assert await api.client.patch(*place, MergePatch({"status": {"phase": "dropped"}})) == created


PATCHES = [
    pytest.param(MergePatch({"data": {"a": None, "c": "3"}}), {"b": "2", "c": "3"}, id="merge-null-removes"),
    pytest.param(MergePatch({"data": None}), None, id="merge-null-removes-all"),
    pytest.param(StrategicPatch({"data": {"a": None, "c": "3"}}), {"b": "2", "c": "3"}, id="strategic-null-removes"),
    pytest.param(
        StrategicPatch({"data": {"$patch": "replace", "c": "3"}}), {"c": "3"}, id="strategic-directive-replaces"
    ),
    pytest.param(
        JsonPatch([{"op": "test", "path": "/data/a", "value": "1"}, {"op": "remove", "path": "/data/a"}]),
        {"b": "2"},
        id="json-remove",
    ),
    pytest.param(
        JsonPatch([{"op": "move", "from": "/data/a", "path": "/data/c"}]), {"b": "2", "c": "1"}, id="json-move"
    ),
    pytest.param(
        JsonPatch([{"op": "add", "path": "/data", "value": {}}, {"op": "add", "path": "/data/c", "value": "3"}]),
        {"c": "3"},
        id="json-add-replaces",
    ),
    pytest.param(
        JsonPatch([{"op": "replace", "path": "/data/c", "value": "3"}]),
        {"a": "1", "b": "2", "c": "3"},
        id="json-replace-adds",
    ),
]


@pytest.mark.parametrize(("patch", "data"), PATCHES)
async def test_patches_change_a_part(api: Api, patch: MergePatch | JsonPatch, data: dict[str, str] | None) -> None:
    await api.config_map(data={"a": "1", "b": "2"})
    patched = await api.client.patch(CONFIGMAPS, "a", api.namespace, patch)
    assert patched.get("data") == data


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        ({"op": "test", "path": "/data/a", "value": "other"}, "the server rejected our request"),
        ({"op": "test", "path": "/data/missing", "value": "1"}, "the server rejected our request"),
        ({"op": "remove", "path": "/data/missing"}, "the server rejected our request"),
        ({"op": "add", "path": "/missing/a", "value": "1"}, "the server rejected our request"),
        ({"op": "replace", "path": "/missing/a", "value": "1"}, "the server rejected our request"),
        ({"op": "guess", "path": "/data/a"}, "4.."),
    ],
    ids=[
        "test-fails",
        "test-of-nothing",
        "remove-of-nothing",
        "add-into-nothing",
        "replace-in-nothing",
        "unknown-operation",
    ],
)
async def test_a_json_patch_that_fails_changes_nothing(api: Api, operation: Manifest, message: str) -> None:
    created = await api.config_map(data={"a": "1"})
    first = {"op": "add", "path": "/data/b", "value": "2"}
    with pytest.raises(InvalidError, match=message):
        await api.client.patch(CONFIGMAPS, "a", api.namespace, JsonPatch([first, operation]))
    assert await api.client.get(CONFIGMAPS, "a", api.namespace) == created


async def test_a_strategic_patch_merges_lists_by_key(api: Api) -> None:
    template = pod_template()
    template["spec"]["containers"].append({"name": "side", "image": "side:1", "env": [{"name": "A", "value": "1"}]})
    spec = {"suspend": True, "template": template}
    await api.client.create(JOBS, api.manifest(JOBS, "a", spec=spec, metadata={"finalizers": ["test/a"]}))
    patched = await api.client.patch(JOBS, "a", api.namespace, StrategicPatch({"metadata": {"finalizers": ["test/b"]}}))
    assert sorted(patched["metadata"]["finalizers"]) == ["test/a", "test/b"]
    directive = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["test/a", "test/b"]}}
    patched = await api.client.patch(JOBS, "a", api.namespace, StrategicPatch(directive))
    assert "finalizers" not in patched["metadata"]
    await api.client.create(PODS, api.manifest(PODS, "a", spec=template["spec"]))
    containers = [{"name": "side", "image": "side:2"}]
    patched = await api.client.patch(PODS, "a", api.namespace, StrategicPatch({"spec": {"containers": containers}}))
    found = {entry["name"]: (entry["image"], entry.get("env")) for entry in patched["spec"]["containers"]}
    assert found == {"main": ("busybox", None), "side": ("side:2", [{"name": "A", "value": "1"}])}


async def test_custom_resources_have_no_strategic_patch(api: Api) -> None:
    await api.widget(spec={})
    with pytest.raises(InvalidError, match="415"):
        await api.client.patch(WIDGETS, "a", api.namespace, StrategicPatch({"spec": {"size": 2}}))


async def test_a_namespace_does_not_show_anothers_objects(api: Api) -> None:
    await api.config_map()
    other = f"{api.namespace}-other"
    await api.client.create(NAMESPACES, {"metadata": {"name": other}})
    await api.client.create(CONFIGMAPS, {"metadata": {"name": "b", "namespace": other}})
    assert await api.names() == ["a"]
    everywhere = await api.client.list(CONFIGMAPS, fields="metadata.name=b")
    assert other in [item["metadata"]["namespace"] for item in everywhere.items]
    with pytest.raises(NotFoundError):
        await api.client.get(CONFIGMAPS, "b", api.namespace)
    await api.client.delete(NAMESPACES, other)


async def test_a_missing_namespace_takes_no_objects(api: Api) -> None:
    with pytest.raises(NotFoundError, match='namespaces "missing" not found'):
        await api.client.create(CONFIGMAPS, {"metadata": {"name": "a", "namespace": "missing"}})


async def test_a_node_keeps_the_status_that_it_was_created_with(api: Api) -> None:
    name = f"{api.namespace}-node"
    node = {"metadata": {"name": name}, "status": {"allocatable": {"cpu": "1"}, "capacity": {"cpu": "1"}}}
    assert (await api.client.create(NODES, node))["status"]["allocatable"] == {"cpu": "1"}
    await api.client.delete(NODES, name)
