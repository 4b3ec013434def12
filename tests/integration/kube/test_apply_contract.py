"""Server-side apply on both API servers: field owners and conflicts."""

from typing import Any

import pytest

from integration.kube.contract import WIDGETS, Api, Manifest
from slicebus.kube.client import MergePatch
from slicebus.proto.errors import ConflictError, InvalidError, NotFoundError


async def applied(api: Api, manager: str, *, force: bool = False, **fields: Any) -> Manifest:
    manifest = api.manifest(WIDGETS, "a", **fields)
    return await api.apply(manifest, manager=manager, force=force)


async def test_an_apply_creates_and_changes(api: Api) -> None:
    created = await applied(api, "one", spec={"size": 2})
    assert created["spec"] == {"size": 2, "color": "green"}
    assert await applied(api, "one", spec={"size": 2}) == created
    assert (await applied(api, "one", spec={"size": 3}))["spec"]["size"] == 3


async def test_an_apply_takes_back_what_it_no_longer_says(api: Api) -> None:
    await applied(api, "one", spec={"note": "mine", "labels": {"a": "1", "b": "1"}})
    await applied(api, "two", spec={"labels": {"b": "1", "c": "1"}})
    left = await applied(api, "one", spec={"labels": {}})
    assert left["spec"] == {"size": 1, "color": "green", "labels": {"b": "1", "c": "1"}}


async def test_fields_of_another_manager_are_a_conflict_unless_forced(api: Api) -> None:
    await applied(api, "one", spec={"size": 2, "note": "one"})
    with pytest.raises(ConflictError, match=r'Apply failed with 1 conflict: conflict with "one": \.spec\.size'):
        await applied(api, "two", spec={"size": 3})
    assert (await applied(api, "two", spec={"size": 2}))["spec"]["size"] == 2
    assert (await applied(api, "three", force=True, spec={"size": 4}))["spec"]["size"] == 4
    with pytest.raises(ConflictError, match='conflict with "three"'):
        await applied(api, "one", spec={"size": 2, "note": "one"})
    assert (await applied(api, "one", spec={"note": "one"}))["spec"]["size"] == 4


async def test_a_plain_write_owns_what_it_changes(api: Api) -> None:
    await api.widget(spec={"size": 2})
    with pytest.raises(ConflictError, match=r'conflict with "slicebus" using contract\.slicebus\.dev/v1: \.spec\.size'):
        await applied(api, "one", spec={"size": 3})
    await applied(api, "one", force=True, spec={"size": 3, "note": "one"})
    await api.client.patch(WIDGETS, "a", api.namespace, MergePatch({"spec": {"note": "other"}}))
    with pytest.raises(ConflictError, match=r"\.spec\.note"):
        await applied(api, "one", spec={"size": 3, "note": "one"})


async def test_entries_of_a_keyed_list_have_their_own_owners(api: Api) -> None:
    await applied(api, "one", spec={"parts": [{"name": "x", "weight": 1}], "tags": ["one"]})
    both = await applied(api, "two", spec={"parts": [{"name": "y", "weight": 2}]})
    assert both["spec"]["parts"] == [{"name": "x", "weight": 1}, {"name": "y", "weight": 2}]
    with pytest.raises(ConflictError, match=r'\.spec\.parts\[name="x"\]\.weight'):
        await applied(api, "two", spec={"parts": [{"name": "x", "weight": 3}]})
    with pytest.raises(ConflictError, match=r"\.spec\.tags"):
        await applied(api, "two", spec={"parts": [{"name": "y", "weight": 2}], "tags": ["two"]})
    assert (await applied(api, "one", spec={}))["spec"]["parts"] == [{"name": "y", "weight": 2}]


async def test_an_apply_of_the_status_leaves_the_rest(api: Api) -> None:
    await applied(api, "one", spec={"size": 2})
    manifest = api.manifest(WIDGETS, "a", spec={"size": 3}, status={"phase": "Ready"})
    done = await api.apply(manifest, manager="two", force=True, subresource="status")
    assert (done["spec"]["size"], done["status"]) == (2, {"phase": "Ready"})
    assert (await applied(api, "one", spec={"size": 4}))["status"] == {"phase": "Ready"}


async def test_an_apply_of_a_part_of_what_is_invalid_is_refused(api: Api) -> None:
    with pytest.raises(InvalidError, match=r"spec\.size"):
        await applied(api, "one", spec={"size": 0})
    with pytest.raises(NotFoundError):
        await api.client.get(WIDGETS, "a", api.namespace)


async def test_a_create_owns_its_defaults(api: Api) -> None:
    created = await api.widget(spec={"size": 2}, metadata={"labels": {"a": "b"}})
    [entry] = created["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"], entry["apiVersion"]) == ("slicebus", "Update", WIDGETS.api_version)
    assert entry["fieldsV1"]["f:spec"].keys() - {"."} == {"f:size", "f:color"}
    assert entry["fieldsV1"]["f:metadata"]["f:labels"].keys() - {"."} == {"f:a"}


async def test_a_status_has_owners_of_its_own(api: Api) -> None:
    await api.widget(spec={})
    status = MergePatch({"status": {"phase": "Ready"}})
    changed = await api.client.patch(WIDGETS, "a", api.namespace, status, subresource="status")
    entry = next(entry for entry in changed["metadata"]["managedFields"] if entry.get("subresource"))
    assert (entry["subresource"], entry["operation"]) == ("status", "Update")
    assert entry["fieldsV1"].keys() == {"f:status"}
    manifest = api.manifest(WIDGETS, "a", status={"phase": "Other"})
    with pytest.raises(ConflictError, match=r'with subresource "status" using .*: \.status\.phase'):
        await api.apply(manifest, manager="one", subresource="status")
