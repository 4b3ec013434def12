"""Collections on both API servers: selectors, pages and watches."""

import asyncio
from typing import Any

import pytest

from integration.kube.contract import WIDGETS, Api, Manifest
from slicebus.kube.client import KubeClient, MergePatch, WatchEvent
from slicebus.kube.resources import CONFIGMAPS, PODS, SECRETS, Resource
from slicebus.proto.errors import ExpiredError, InvalidError, SlicebusError
from slicebus.sandbox.apiserver import EmbeddedApiServer
from support.waiting import eventually


async def change(api: Api, name: str = "a", **data: str) -> Manifest:
    return await api.client.patch(CONFIGMAPS, name, api.namespace, MergePatch({"data": data}))


async def label(api: Api, name: str = "a", **labels: str | None) -> Manifest:
    return await api.client.patch(CONFIGMAPS, name, api.namespace, MergePatch({"metadata": {"labels": labels}}))


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("color=red", ["a"]),
        ("color==red", ["a"]),
        ("color!=red", ["b", "c"]),
        ("color", ["a", "b"]),
        ("!color", ["c"]),
        ("color in (red, green)", ["a", "b"]),
        ("color notin (red)", ["b", "c"]),
        ("color,size=2", ["b"]),
        ("color in (red,green),size!=2", ["a"]),
        ("size>1", ["b", "c"]),
        ("size<2", ["a"]),
        ("color=", []),
    ],
)
async def test_label_selectors(api: Api, selector: str, names: list[str]) -> None:
    for name, labels in {"a": {"color": "red", "size": "1"}, "b": {"color": "green", "size": "2"}}.items():
        await api.config_map(name, metadata={"labels": labels})
    await api.config_map("c", metadata={"labels": {"size": "3"}})
    found = await api.client.list(CONFIGMAPS, namespace=api.namespace, labels=selector)
    assert [item["metadata"]["name"] for item in found.items if item["metadata"].get("labels")] == names


@pytest.mark.parametrize("selector", ["a=b=c", "a in b", "a b", "=", "a=b c"])
async def test_a_label_selector_that_is_none_is_refused(api: Api, selector: str) -> None:
    with pytest.raises(InvalidError, match="400"):
        await api.client.list(CONFIGMAPS, namespace=api.namespace, labels=selector)


@pytest.mark.parametrize(
    ("resource", "selector", "names"),
    [
        (CONFIGMAPS, "metadata.name=a", ["a"]),
        (CONFIGMAPS, "metadata.name!=a", ["b"]),
        (CONFIGMAPS, "metadata.name==a,metadata.namespace=elsewhere", []),
        (WIDGETS, "metadata.name=a", ["a"]),
        (PODS, "spec.nodeName=", ["a", "b"]),
        (PODS, "status.phase=Pending,metadata.name!=a", ["b"]),
        (PODS, "status.phase!=Pending", []),
    ],
)
async def test_field_selectors(api: Api, resource: Resource, selector: str, names: list[str]) -> None:
    containers: dict[Resource, Any] = {PODS: {"containers": [{"name": "main", "image": "busybox"}]}}
    for name in ("a", "b"):
        spec = {"spec": containers.get(resource, {})} if resource != CONFIGMAPS else {}
        await api.client.create(resource, api.manifest(resource, name, **spec))
    assert await api.names(resource, fields=selector) == names


@pytest.mark.parametrize("resource", [CONFIGMAPS, WIDGETS], ids=lambda resource: resource.kind)
async def test_a_field_that_is_not_selectable_is_refused(api: Api, resource: Resource) -> None:
    with pytest.raises(
        InvalidError,
        match=r"^400: .*(field label not supported: status\.phase|\"status\.phase\" is not a known field selector)",
    ):
        await api.client.list(resource, namespace=api.namespace, fields="status.phase=Pending")


async def test_pages_follow_each_other_and_show_one_moment(api: Api) -> None:
    for name in "abcde":
        await api.widget(name, spec={})
    names, versions = [], []
    async for page in api.client.pages(WIDGETS, namespace=api.namespace, limit=2):
        names.append([item["metadata"]["name"] for item in page.items])
        versions.append(page.resource_version)
        if len(names) == 1:
            await api.widget("cc", spec={})
            await api.client.delete(WIDGETS, "d", api.namespace)
    assert names == [["a", "b"], ["c", "d"], ["e"]]
    assert len(set(versions)) == 1
    assert await api.names(WIDGETS) == ["a", "b", "c", "cc", "e"]


async def test_pages_of_what_a_selector_finds(api: Api) -> None:
    for name in "abcde":
        await api.widget(name, spec={}, metadata={"labels": {"odd": str(name in "ace")}})
    page = await api.client.list(WIDGETS, namespace=api.namespace, labels="odd=True", limit=2)
    rest = await api.client.list(
        WIDGETS, namespace=api.namespace, labels="odd=True", limit=2, continue_token=page.continue_token
    )
    assert [item["metadata"]["name"] for item in page.items + rest.items] == ["a", "c", "e"]
    assert not rest.continue_token


async def test_a_continuation_that_is_none_is_refused(api: Api) -> None:
    with pytest.raises(InvalidError, match="continue key is not valid"):
        await api.client.list(CONFIGMAPS, namespace=api.namespace, limit=1, continue_token="nonsense")


async def test_a_list_names_the_version_to_watch_from(api: Api) -> None:
    await api.config_map()
    page = await api.client.list(CONFIGMAPS, namespace=api.namespace)
    await api.config_map("b")
    seen = await api.events(1, since={"metadata": {"resourceVersion": page.resource_version}})
    assert [(event.type, event.object["metadata"]["name"]) for event in seen] == [("ADDED", "b")]


async def test_a_watch_brings_every_change_in_order(api: Api) -> None:
    first = await api.config_map()
    written = [await api.config_map("b"), await change(api, "b", k="1"), await change(api, k="1")]
    await change(api, k="1")
    await api.client.delete(CONFIGMAPS, "b", api.namespace)
    written.append(await api.config_map("c"))
    seen = await api.events(5, since=first)
    assert [(event.type, event.object["metadata"]["name"]) for event in seen] == [
        ("ADDED", "b"),
        ("MODIFIED", "b"),
        ("MODIFIED", "a"),
        ("DELETED", "b"),
        ("ADDED", "c"),
    ]
    assert [event.object for event in seen if event.type != "DELETED"] == written
    versions = [int(event.object["metadata"]["resourceVersion"]) for event in seen]
    assert versions == sorted(set(versions))
    assert seen[3].object["data"] == {"k": "1"}


async def test_a_watch_brings_changes_while_it_lasts(api: Api) -> None:
    first = await api.config_map()
    watching = asyncio.create_task(api.events(2, since=first))
    await change(api, k="1")
    await api.client.delete(CONFIGMAPS, "a", api.namespace)
    assert [event.type for event in await watching] == ["MODIFIED", "DELETED"]


async def test_a_watch_brings_a_held_deletion_as_a_change(api: Api) -> None:
    first = await api.widget(spec={}, metadata={"finalizers": ["test/hold"]})
    await api.client.delete(WIDGETS, "a", api.namespace)
    await api.client.patch(WIDGETS, "a", api.namespace, MergePatch({"metadata": {"finalizers": None}}))
    seen = await api.events(2, since=first, resource=WIDGETS)
    assert [event.type for event in seen] == ["MODIFIED", "DELETED"]
    assert all("deletionTimestamp" in event.object["metadata"] for event in seen)


async def test_a_selector_turns_changes_into_additions_and_deletions(api: Api) -> None:
    first = await api.config_map()
    for mark in ("in", "in", "out", "in"):
        await label(api, mark=mark, other=None if mark == "out" else "x")
    await change(api, k="1")
    await api.client.delete(CONFIGMAPS, "a", api.namespace)
    seen = []
    watch = api.client.watch(
        CONFIGMAPS,
        resource_version=first["metadata"]["resourceVersion"],
        namespace=api.namespace,
        labels="mark=in",
        timeout_s=20,
    )
    async for event in watch:
        seen += [event.type] if event.type != "BOOKMARK" else []
        if len(seen) == 5:
            break
    await watch.aclose()  # type: ignore[attr-defined]
    assert seen == ["ADDED", "DELETED", "ADDED", "MODIFIED", "DELETED"]


async def test_a_watch_from_zero_begins_with_what_is_there(api: Api) -> None:
    await api.widget(spec={})
    await api.widget("b", spec={})
    seen = await api.events(2, since={"metadata": {"resourceVersion": "0"}}, resource=WIDGETS)
    assert sorted((event.type, event.object["metadata"]["name"]) for event in seen) == [("ADDED", "a"), ("ADDED", "b")]


async def test_a_watch_ends_in_time_and_with_a_bookmark(api: Api) -> None:
    first = await api.widget(spec={})
    await api.widget("b", spec={})
    version = first["metadata"]["resourceVersion"]

    async def watched() -> list[WatchEvent]:
        """A server that is busy for two seconds ends the watch without a bookmark."""
        watch = api.client.watch(WIDGETS, resource_version=version, namespace=api.namespace, timeout_s=4)
        events = [event async for event in watch]
        return events if events[-1].type == "BOOKMARK" else []

    seen = await eventually(watched, "a watch has ended with a bookmark")
    assert [event.type for event in seen[:2]] == ["ADDED", "BOOKMARK"]
    last = seen[-1].object
    assert (last["apiVersion"], last["kind"]) == (WIDGETS.api_version, WIDGETS.kind)
    assert int(last["metadata"]["resourceVersion"]) >= int(seen[0].object["metadata"]["resourceVersion"])
    assert not last.get("spec")


async def test_a_watch_from_before_the_history_has_expired(api: Api) -> None:
    """A server watched no widgets before they were defined."""
    await api.config_map()
    with pytest.raises(ExpiredError, match="too old resource version"):
        await api.events(1, since={"metadata": {"resourceVersion": "1"}}, resource=WIDGETS)


async def test_each_resource_has_a_history_of_its_own() -> None:
    """Only the embedded server: how much the real one remembers is its own affair."""
    async with EmbeddedApiServer(history=2) as server, KubeClient.from_url(server.url) as client:
        began = (await client.list(SECRETS)).resource_version
        for name in "abc":
            await client.create(CONFIGMAPS, {"metadata": {"name": name, "namespace": "default"}})
        await client.create(SECRETS, {"metadata": {"name": "d", "namespace": "default"}})
        assert (await anext(client.watch(SECRETS, resource_version=began))).object["metadata"]["name"] == "d"
        with pytest.raises(ExpiredError, match="too old resource version"):
            await anext(client.watch(CONFIGMAPS, resource_version=began))


async def test_a_continuation_from_before_the_history_has_expired() -> None:
    """Only the embedded server: the real one says so only after a compaction, which comes every five minutes."""
    async with EmbeddedApiServer(history=2) as server, KubeClient.from_url(server.url) as client:
        for name in "abc":
            await client.create(CONFIGMAPS, {"metadata": {"name": name, "namespace": "default"}})
        page = await client.list(CONFIGMAPS, namespace="default", limit=1)
        for name in "def":
            await client.create(CONFIGMAPS, {"metadata": {"name": name, "namespace": "default"}})
        with pytest.raises(ExpiredError):
            await client.list(CONFIGMAPS, namespace="default", limit=1, continue_token=page.continue_token)


@pytest.mark.parametrize("version", ["nonsense", "-1"])
async def test_a_version_that_is_none_is_refused(api: Api, version: str) -> None:
    with pytest.raises(SlicebusError, match="resourceVersion: Invalid value"):
        await api.events(1, since={"metadata": {"resourceVersion": version}})
    with pytest.raises(InvalidError, match=r"^400: .*resourceVersion: Invalid value"):
        await api.client.list(CONFIGMAPS, namespace=api.namespace, resource_version=version)
