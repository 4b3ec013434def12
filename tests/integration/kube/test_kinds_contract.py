"""Kinds on both API servers: status, schemas, rules and definitions."""

import json
from collections.abc import AsyncIterator

import msgspec
import pytest

from integration.kube.contract import WIDGETS, Api, Manifest, pod_template, widget_definition
from slicebus.kube.client import MergePatch
from slicebus.kube.resources import CONFIGMAPS, CRDS, JOBS, Resource
from slicebus.proto.errors import ConflictError, ForbiddenError, InvalidError, NotFoundError
from support.definitions import until_usable
from support.waiting import eventually

GADGETS = msgspec.structs.replace(WIDGETS, plural="gadgets", kind="Gadget")


async def test_status_is_written_through_its_subresource_only(api: Api) -> None:
    created = await api.widget(spec={"size": 2}, status={"phase": "dropped"})
    assert "status" not in created
    place = (WIDGETS, "a", api.namespace)
    body = {"metadata": {"labels": {"x": "y"}}, "spec": {"size": 3}, "status": {"phase": "Ready"}}
    with_status = await api.client.patch(*place, MergePatch(body), subresource="status")
    assert with_status["status"] == {"phase": "Ready"}
    assert with_status["spec"]["size"] == 2
    assert "labels" not in with_status["metadata"]
    replaced = await api.client.replace(WIDGETS, with_status | {"spec": {"size": 4}, "status": {"phase": "dropped"}})
    assert (replaced["spec"]["size"], replaced["status"]) == (4, {"phase": "Ready"})
    emptied = {name: value for name, value in replaced.items() if name != "status"}
    assert "status" not in await api.client.replace(WIDGETS, emptied, subresource="status")


async def test_the_generation_counts_changes_of_the_spec(api: Api) -> None:
    def generation(manifest: Manifest) -> int:
        return int(manifest["metadata"]["generation"])

    place = (WIDGETS, "a", api.namespace)
    assert generation(await api.widget(spec={})) == 1
    assert generation(await api.client.patch(*place, MergePatch({"metadata": {"labels": {"a": "b"}}}))) == 1
    status = MergePatch({"status": {"phase": "Ready"}})
    assert generation(await api.client.patch(*place, status, subresource="status")) == 1
    assert generation(await api.client.patch(*place, MergePatch({"spec": {"size": 2}}))) == 2
    assert generation(await api.client.patch(*place, MergePatch({"spec": {"size": 2}}))) == 2
    assert "generation" not in (await api.config_map())["metadata"]


async def test_a_stale_status_is_a_conflict(api: Api) -> None:
    stale = await api.widget(spec={})
    await api.client.patch(WIDGETS, "a", api.namespace, MergePatch({"spec": {"size": 2}}))
    with pytest.raises(ConflictError):
        await api.client.replace(WIDGETS, stale | {"status": {"phase": "Ready"}}, subresource="status")


async def test_a_kind_without_status_has_no_such_subresource(api: Api) -> None:
    await api.config_map()
    with pytest.raises(NotFoundError):
        await api.client.patch(CONFIGMAPS, "a", api.namespace, MergePatch({}), subresource="status")


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ({}, {"size": 1, "color": "green"}),
        ({"size": None, "color": "red"}, {"size": 1, "color": "red"}),
        ({"size": 2, "unknown": 1, "parts": [{"name": "x", "unknown": 1}]}, {"size": 2, "parts": [{"name": "x"}]}),
        ({"free": {"anything": [1, {"a": None}]}}, {"free": {"anything": [1, {"a": None}]}}),
        ({"labels": {"a": "b"}, "tags": ["x", "x"]}, {"labels": {"a": "b"}, "tags": ["x", "x"]}),
    ],
    ids=["defaults", "null-is-default", "unknown-is-pruned", "free-is-kept", "maps-and-lists"],
)
async def test_a_schema_completes_what_is_stored(api: Api, given: Manifest, stored: Manifest) -> None:
    created = await api.widget(spec=given)
    assert created["spec"] == {"size": 1, "color": "green"} | stored
    assert await api.client.get(WIDGETS, "a", api.namespace) == created


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, r"spec: Required value"),
        ({"spec": {"size": 0}}, r"spec\.size: Invalid value: 0: .*should be greater than or equal to 1"),
        ({"spec": {"size": 10}}, r"spec\.size: Invalid value: 10: .*should be less than or equal to 9"),
        ({"spec": {"size": "2"}}, r'spec\.size: Invalid value: "string": .*must be of type integer: "string"'),
        ({"spec": {"size": 2.5}}, r'.*spec\.size: Invalid value: "number": .*must be of type integer: "number"'),
        ({"spec": []}, r'spec: Invalid value: "array": .*must be of type object: "array"'),
        ({"spec": {"color": "blue"}}, r'spec\.color: Unsupported value: "blue": supported values: "red", "green"'),
        ({"spec": {"note": "x" * 9}}, r"spec\.note: Too long: may not be more than 8 bytes"),
        ({"spec": {"note": "X"}}, r"spec\.note: Invalid value: \"X\": .*should match '\^\[a-z\]\*\$'"),
        ({"spec": {"tags": [1]}}, r'spec\.tags\[0\]: Invalid value: "integer": .*must be of type string: "integer"'),
        ({"spec": {"labels": {"a": True}}}, r'spec\.labels\.a: Invalid value: "boolean": .*must be of type string'),
        ({"spec": {"parts": [{"weight": 1}]}}, r"spec\.parts\[0\]\.name: Required value"),
        ({"spec": {"parts": [{"name": "x"}, {"name": "x"}]}}, r"spec\.parts\[1\]: Duplicate value: .*\"x\""),
        ({"spec": {"size": 0, "note": "X"}}, r"\[spec\.(size|note): .*, spec\.(size|note): .*\]"),
    ],
    ids=lambda value: None if isinstance(value, str) else json.dumps(value)[:40],
)
async def test_a_schema_refuses_and_says_where(api: Api, fields: Manifest, message: str) -> None:
    with pytest.raises(InvalidError, match=rf'^422: Widget\.contract\.slicebus\.dev "a" is invalid: {message}'):
        await api.widget(**fields)


async def test_a_change_is_held_to_the_schema_too(api: Api) -> None:
    created = await api.widget(spec={})
    with pytest.raises(InvalidError, match=r"spec\.size"):
        await api.client.patch(WIDGETS, "a", api.namespace, MergePatch({"spec": {"size": 0}}))
    with pytest.raises(InvalidError, match=r"status\.phase"):
        await api.client.patch(WIDGETS, "a", api.namespace, MergePatch({"status": {"phase": 1}}), subresource="status")
    assert await api.client.get(WIDGETS, "a", api.namespace) == created


@pytest.mark.parametrize(
    ("resource", "spec", "message"),
    [
        (JOBS, {"template": pod_template(), "parallelism": -1}, r"spec\.parallelism: Invalid value: -1"),
        (JOBS, {"template": pod_template(containers=[])}, r"spec\.template\.spec\.containers: Required value"),
        (JOBS, {"template": pod_template(restartPolicy="Always")}, r"spec\.template\.spec\.restartPolicy"),
        (JOBS, {}, r"spec\.template"),
    ],
)
async def test_built_in_kinds_refuse_too(api: Api, resource: Resource, spec: Manifest, message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        await api.client.create(resource, api.manifest(resource, "a", spec=spec))


@pytest.mark.parametrize(
    ("suspend", "change", "message"),
    [
        (False, {"parallelism": 3}, None),
        (False, {"template": {"spec": {"nodeSelector": {"a": "b"}}}}, r"spec\.template: Invalid value: .*immutable"),
        (True, {"template": {"spec": {"nodeSelector": {"a": "b"}}}}, None),
        (True, {"template": {"metadata": {"annotations": {"a": "b"}}}}, None),
        (
            True,
            {"template": {"spec": {"restartPolicy": "OnFailure"}}},
            r"spec\.template\.spec: Invalid value: .*immutable",
        ),
        (False, {"managedBy": "example.com/other"}, r"spec\.managedBy: Invalid value: .*immutable"),
        (False, {"completions": 7}, r"spec\.completions: Invalid value: .*immutable"),
        (False, {"suspend": True, "backoffLimit": 1}, None),
    ],
)
async def test_which_fields_of_a_job_may_change(api: Api, suspend: bool, change: Manifest, message: str | None) -> None:
    spec = {"suspend": suspend, "template": pod_template(), "completions": 5}
    await api.client.create(JOBS, api.manifest(JOBS, "a", spec=spec | {"managedBy": "example.com/nobody"}))
    patch = MergePatch({"spec": change})
    if message is None:
        assert (await api.client.patch(JOBS, "a", api.namespace, patch))["metadata"]["generation"] == 2
        return
    with pytest.raises(InvalidError, match=message):
        await api.client.patch(JOBS, "a", api.namespace, patch)


INDEXED_RULES: dict[str, tuple[Manifest, str]] = {
    "more may fail than there are": (
        {"backoffLimitPerIndex": 1, "maxFailedIndexes": 4},
        r"spec\.maxFailedIndexes: Invalid value: 4: must be less than or equal to completions",
    ),
    "the success of an index that is gone": (
        {"successPolicy": {"rules": [{"succeededIndexes": "0,3"}]}},
        r"spec\.successPolicy\.rules\[0\]\.succeededIndexes: .*too large index",
    ),
    "the success of more than there are": (
        {"successPolicy": {"rules": [{"succeededCount": 4}]}},
        r"spec\.successPolicy\.rules\[0\]\.succeededCount: Invalid value: 4: must be less than or equal to 3",
    ),
}


@pytest.mark.parametrize(("fields", "message"), INDEXED_RULES.values(), ids=INDEXED_RULES.keys())
async def test_what_a_job_says_of_its_indexes_bounds_its_completions(api: Api, fields: Manifest, message: str) -> None:
    spec = {"template": pod_template(), "completionMode": "Indexed", "completions": 4, "parallelism": 4} | fields
    await api.client.create(JOBS, api.manifest(JOBS, "a", spec=spec | {"managedBy": "example.com/nobody"}))
    fewer = MergePatch({"spec": {"completions": 3, "parallelism": 3}})
    with pytest.raises(InvalidError, match=message):
        await api.client.patch(JOBS, "a", api.namespace, fewer)


AT = "2026-01-31T1{}:00:00Z".format


def ends(*types: str) -> Manifest:
    """The conditions of a Job's end."""
    return {"conditions": [{"type": type, "status": "True", "lastTransitionTime": AT(5)} for type in types]}


BEGAN = {"startTime": AT(1), "active": 2}
OVER = {"startTime": AT(1), "completionTime": AT(5), "active": 0}
STATUSES: dict[str, tuple[Manifest, Manifest, str | None]] = {
    "ends well": (BEGAN, OVER | ends("SuccessCriteriaMet", "Complete"), None),
    "ends well as in 1.30": (BEGAN, OVER | ends("Complete"), "without the SuccessCriteriaMet=true condition"),
    "fails": (BEGAN, {"active": 0} | ends("FailureTarget", "Failed"), None),
    "fails as in 1.30": (BEGAN, {"active": 0} | ends("Failed"), "without the FailureTarget=true condition"),
    "ends both ways": (
        BEGAN,
        OVER | ends("SuccessCriteriaMet", "Complete", "FailureTarget", "Failed"),
        "cannot set Complete=True and Failed=true conditions",
    ),
    "ends with pods": (BEGAN, OVER | ends("SuccessCriteriaMet", "Complete") | {"active": 1}, "active>0 is invalid"),
    "ends with pods that end": (
        BEGAN,
        OVER | ends("SuccessCriteriaMet", "Complete") | {"terminating": 1},
        "terminating>0 is invalid",
    ),
    "ends with uncounted pods": (
        BEGAN,
        OVER | ends("SuccessCriteriaMet", "Complete") | {"uncountedTerminatedPods": {"succeeded": ["u"]}},
        "must be empty for finished job",
    ),
    "ends and never began": (
        {"active": 1},
        ends("FailureTarget", "Failed") | {"active": 0},
        "startTime is required for finished job",
    ),
    "ends before it began": (
        {"startTime": AT(7), "active": 1},
        {"completionTime": AT(5), "active": 0} | ends("SuccessCriteriaMet", "Complete"),
        "must be equal to or after `startTime`",
    ),
    "ends without a time": (
        BEGAN,
        {"active": 0} | ends("SuccessCriteriaMet", "Complete"),
        "completionTime is required for Complete jobs",
    ),
    "has a time and no end": (BEGAN, {"completionTime": AT(5)}, "no Complete=True condition"),
    "begins at another time": (BEGAN, {"startTime": AT(2)}, "field is immutable for unsuspended job once set"),
    "takes a mark back": (BEGAN | ends("FailureTarget"), {"conditions": []}, "cannot disable the terminal"),
    "has other indexes": (BEGAN, {"completedIndexes": "0,2-4"}, None),
    "has an index too large": (BEGAN, {"completedIndexes": "0,2-5"}, "error parsing completedIndexes"),
    "has indexes out of order": (BEGAN, {"completedIndexes": "2,1"}, "error parsing completedIndexes"),
    "has failed indexes": (BEGAN, {"failedIndexes": "1"}, "cannot set non-null failedIndexes"),
    "has more ready than active": (BEGAN, {"ready": 3}, "cannot set more ready pods than active"),
    "counts down": (BEGAN | {"failed": 2}, {"failed": 1}, "cannot decrease the failed counter"),
    "counts below zero": (BEGAN, {"active": -1}, "must be greater than or equal to 0"),
}


@pytest.mark.parametrize(("before", "after", "message"), STATUSES.values(), ids=STATUSES.keys())
async def test_which_statuses_of_a_job_are_taken(
    api: Api, before: Manifest, after: Manifest, message: str | None
) -> None:
    spec = {"template": pod_template(), "completions": 5, "parallelism": 2, "completionMode": "Indexed"}
    await api.client.create(JOBS, api.manifest(JOBS, "a", spec=spec | {"managedBy": "example.com/nobody"}))

    async def show(status: Manifest) -> None:
        await api.client.patch(JOBS, "a", api.namespace, MergePatch({"status": status}), subresource="status")

    await show(before)
    if message is None:
        await show(after)
        return
    with pytest.raises(InvalidError, match=message):
        await show(after)


@pytest.fixture
async def gadgets(api: Api) -> AsyncIterator[str]:
    """A kind that the test may change and take away."""
    await api.client.create(CRDS, widget_definition("gadgets", "Gadget"))
    await until_usable(api.client, GADGETS)
    yield f"gadgets.{GADGETS.group}"
    try:
        await api.client.delete(CRDS, f"gadgets.{GADGETS.group}")
    except NotFoundError:
        return
    await api.gone(CRDS, f"gadgets.{GADGETS.group}")


async def test_a_definition_that_is_going_takes_no_new_objects(api: Api, gadgets: str) -> None:
    held = api.manifest(GADGETS, "a", metadata={"finalizers": ["test/hold"]}, spec={})
    await api.client.create(GADGETS, held)
    await api.client.delete(CRDS, gadgets)

    async def refused() -> bool:
        try:
            await api.client.create(GADGETS, api.manifest(GADGETS, "b", spec={}))
        except ForbiddenError as error:
            return "create not allowed while custom resource definition is terminating" in str(error)
        await api.client.delete(GADGETS, "b", api.namespace)
        return False

    await eventually(refused, "no new gadget is taken")
    await api.client.patch(GADGETS, "a", api.namespace, MergePatch({"metadata": {"finalizers": None}}))
    await api.gone(CRDS, gadgets)


async def test_a_definition_takes_its_objects_along(api: Api, gadgets: str) -> None:
    gadget = await api.client.create(GADGETS, api.manifest(GADGETS, "a", spec={}))
    await api.client.delete(CRDS, gadgets)
    await api.gone(CRDS, gadgets)

    async def unserved() -> bool:
        return not await api.client.serves(GADGETS)

    await eventually(unserved, "gadgets are not served")
    with pytest.raises(NotFoundError):
        await api.client.get(GADGETS, "a", api.namespace)
    owner = {"apiVersion": gadget["apiVersion"], "kind": "Gadget", "name": "a", "uid": gadget["metadata"]["uid"]}
    await api.config_map("late", metadata={"ownerReferences": [owner]})
    await api.client.create(CRDS, widget_definition("gadgets", "Gadget"))

    async def empty() -> bool:
        return await api.client.serves(GADGETS) and await api.names(GADGETS) == []

    await eventually(empty, "gadgets are served again, and there is none")
    # Only now can anybody know that the owner is missing. The real collector looks again after up to a minute.
    await api.gone(CONFIGMAPS, "late")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"group": "other.slicebus.dev"}, "must be spec.names.plural|immutable"),
        ({"scope": "Cluster"}, r"spec\.scope: Invalid value: .*immutable"),
        ({"names": {"plural": "others"}}, "must be spec.names.plural|immutable"),
        ({"names": {"kind": "Other"}}, r"spec\.names\.kind: Invalid value: .*immutable"),
    ],
    ids=["group", "scope", "plural", "kind"],
)
async def test_names_of_a_definition_stay(api: Api, gadgets: str, change: Manifest, message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        await api.client.patch(CRDS, gadgets, None, MergePatch({"spec": change}))


async def test_a_definition_is_named_for_what_it_defines(api: Api) -> None:
    misnamed = widget_definition("misnamed", "Misnamed") | {"metadata": {"name": "other.contract.slicebus.dev"}}
    with pytest.raises(
        InvalidError, match=r'metadata\.name: Invalid value: .*must be spec\.names\.plural\+"\."\+spec\.group'
    ):
        await api.client.create(CRDS, misnamed)


# --- the status of a Job that another controller keeps --------------------------------------------------------------

BEGAN, LATER = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
SHOWN = {"startTime": BEGAN, "active": 1, "succeeded": 2, "failed": 1}
REFUSED_STATUSES: dict[str, tuple[Manifest, str]] = {
    "another start": ({"startTime": LATER}, r"status\.startTime"),
    "no start": ({"startTime": None}, r"status\.startTime"),
    "less succeeded": ({"succeeded": 1}, r"status\.succeeded"),
    "none failed": ({"failed": None}, r"status\.failed"),
}


async def kept_job(api: Api, *, suspend: bool) -> None:
    spec = {"template": pod_template(), "managedBy": "kueue.x-k8s.io/multikueue"}
    await api.client.create(JOBS, api.manifest(JOBS, "a", spec=spec))
    await api.client.patch(JOBS, "a", api.namespace, MergePatch({"status": SHOWN}), subresource="status")
    await api.client.patch(JOBS, "a", api.namespace, MergePatch({"spec": {"suspend": suspend}}))


@pytest.mark.parametrize(("change", "text"), REFUSED_STATUSES.values(), ids=REFUSED_STATUSES.keys())
async def test_the_status_of_a_job_does_not_go_back(api: Api, change: Manifest, text: str) -> None:
    await kept_job(api, suspend=False)
    with pytest.raises(InvalidError, match=text):
        await api.client.patch(JOBS, "a", api.namespace, MergePatch({"status": change}), subresource="status")
    grown = MergePatch({"status": {"active": 0, "succeeded": 3, "failed": 2}})
    shown = await api.client.patch(JOBS, "a", api.namespace, grown, subresource="status")
    assert (shown["status"]["startTime"], shown["status"]["succeeded"]) == (BEGAN, 3)


@pytest.mark.parametrize("start", [LATER, None], ids=["another", "none"])
async def test_only_the_start_of_a_suspended_job_may_be_another(api: Api, start: str | None) -> None:
    await kept_job(api, suspend=True)
    with pytest.raises(InvalidError, match=r"status\.succeeded"):
        await api.client.patch(JOBS, "a", api.namespace, MergePatch({"status": {"succeeded": 1}}), subresource="status")
    change = MergePatch({"status": {"startTime": start}})
    shown = await api.client.patch(JOBS, "a", api.namespace, change, subresource="status")
    assert shown["status"].get("startTime") == start
