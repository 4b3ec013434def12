"""kubectl on both API servers: tables, apply, discovery, watching."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from integration.kube.contract import WIDGETS, Api, Manifest, pod_template
from slicebus.cli.demo import objects
from slicebus.kube.client import MergePatch
from slicebus.kube.crds import custom_resource_definitions
from slicebus.kube.resources import CONFIGMAPS, CRDS, JOBS, LEASES, NAMESPACES, PODS, SECRETS, WORKERCLUSTERS, Resource
from slicebus.kube.times import now_text
from slicebus.proto.errors import AlreadyExistsError
from support.waiting import KUBECTL_PATIENCE, PATIENCE_S, eventually


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


@pytest.fixture
async def worker_cluster(kubectl_api: Api) -> AsyncIterator[str]:
    """A WorkerCluster with a status."""
    client, name = kubectl_api.client, kubectl_api.namespace
    for definition in custom_resource_definitions():
        if definition["spec"]["group"] == WORKERCLUSTERS.group:
            with suppress(AlreadyExistsError):
                await client.create(CRDS, definition)

    async def served() -> bool:
        return await client.serves(WORKERCLUSTERS)

    await eventually(served, "WorkerClusters are served")
    await client.create(WORKERCLUSTERS, objects.worker_cluster(name))
    now = now_text()
    connected = {"type": "Connected", "status": "True", "reason": "Heartbeat", "message": "", "lastTransitionTime": now}
    known = {"jobs": 3, "room": "unlimited", "agentVersion": "0.1.0", "lastHeartbeatTime": now}
    status = {"conditions": [connected]} | known
    await client.patch(WORKERCLUSTERS, name, None, MergePatch({"status": status}), subresource="status")
    yield name
    await client.delete(WORKERCLUSTERS, name)


async def test_the_fleet_is_a_table(kubectl_api: Api, worker_cluster: str) -> None:
    header, row = rows(await kubectl_api.kubectl("get", "workerclusters", worker_cluster))
    assert header == ["NAME", "ACCEPTED", "CONNECTED", "SEEN", "CORDONED", "JOBS", "ROOM"]
    assert [*row[:3], *row[4:]] == [worker_cluster, "true", "True", "false", "3", "unlimited"]
    assert row[3].endswith("s")
    assert len(row) == 7
    [wide] = rows(await kubectl_api.kubectl("get", "wc", worker_cluster, "-o", "wide", "--no-headers"))
    assert wide[7] == "0.1.0"
    named = await kubectl_api.kubectl("get", "workercluster", worker_cluster, "-o", "name")
    assert named == f"workercluster.slicebus.dev/{worker_cluster}\n"
    waited = await kubectl_api.kubectl("wait", "--for=condition=Connected", KUBECTL_PATIENCE, f"wc/{worker_cluster}")
    assert waited.endswith("condition met\n")


async def test_columns_without_values_are_empty(kubectl_api: Api) -> None:
    await kubectl_api.widget(spec={"size": 2})
    await kubectl_api.widget("b", spec={"color": "red"})
    assert rows(await kubectl_api.kubectl("get", "widgets")) == [["NAME", "SIZE", "PHASE"], ["a", "2"], ["b", "1"]]
    wide = rows(await kubectl_api.kubectl("get", "widgets", "-o", "wide", "--sort-by=.spec.size"))
    assert wide == [["NAME", "SIZE", "PHASE", "COLOR"], ["b", "1", "red"], ["a", "2", "green"]]
    assert "No resources found" in await kubectl_api.kubectl("get", "jobs")


@pytest.mark.parametrize(
    ("resource", "fields", "header"),
    [
        (CONFIGMAPS, {}, ["NAME", "DATA", "AGE"]),
        (SECRETS, {}, ["NAME", "TYPE", "DATA", "AGE"]),
        (LEASES, {"spec": {"holderIdentity": "me"}}, ["NAME", "HOLDER", "AGE"]),
        (JOBS, {"spec": {"template": pod_template()}}, ["NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE"]),
        (PODS, pod_template(), ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]),
        (NAMESPACES, None, ["NAME", "STATUS", "AGE"]),
        (CRDS, None, ["NAME", "CREATED", "AT"]),
    ],
    ids=lambda value: value.kind if isinstance(value, Resource) else "",
)
async def test_built_in_kinds_have_their_columns(
    kubectl_api: Api, resource: Resource, fields: Manifest | None, header: list[str]
) -> None:
    if fields is not None:
        await kubectl_api.client.create(resource, kubectl_api.manifest(resource, "a", **fields))
    assert rows(await kubectl_api.kubectl("get", resource.plural))[0] == header


async def test_jobs_and_pods_are_tables(kubectl_api: Api) -> None:
    spec = {"managedBy": "example.com/nobody", "completions": 5, "template": pod_template()}
    await kubectl_api.client.create(JOBS, kubectl_api.manifest(JOBS, "a", spec=spec))
    await kubectl_api.client.create(PODS, kubectl_api.manifest(PODS, "a", spec=pod_template()["spec"]))
    [[name, state, completions, *_]] = rows(await kubectl_api.kubectl("get", "jobs", "--no-headers"))
    assert (name, state, completions) == ("a", "Running", "0/5")
    [[name, ready, state, restarts, _]] = rows(await kubectl_api.kubectl("get", "pods", "--no-headers"))
    assert (name, ready, state, restarts) == ("a", "0/1", "Pending", "0")


async def test_apply_creates_leaves_and_configures(kubectl_api: Api) -> None:
    job = kubectl_api.manifest(JOBS, "a", spec={"suspend": True, "parallelism": 1, "template": pod_template()})

    async def apply(*options: str) -> str:
        return await kubectl_api.kubectl("apply", *options, "-f", "-", stdin=json.dumps(job))

    assert await apply("--dry-run=server") == "job.batch/a created (server dry run)\n"
    assert await apply() == "job.batch/a created\n"
    assert await apply() == "job.batch/a unchanged\n"
    job["spec"]["parallelism"] = 2
    assert await apply() == "job.batch/a configured\n"
    job["spec"]["template"]["spec"]["containers"][0]["image"] = "other"
    assert "field is immutable" in await apply()
    stored = await kubectl_api.client.get(JOBS, "a", kubectl_api.namespace)
    assert stored["spec"]["parallelism"] == 2


async def test_apply_refuses_unknown_fields(kubectl_api: Api) -> None:
    widget = kubectl_api.manifest(WIDGETS, "a", spec={"size": 2, "sise": 3})
    refused = await kubectl_api.kubectl("apply", "-f", "-", stdin=json.dumps(widget))
    assert 'unknown field "spec.sise"' in refused
    assert await kubectl_api.names(WIDGETS) == []


async def test_discovery_lists_every_kind(kubectl_api: Api) -> None:
    found = {row[0]: row[1:] for row in rows(await kubectl_api.kubectl("api-resources", "--no-headers"))}
    assert found["configmaps"] == ["cm", "v1", "true", "ConfigMap"]
    assert found["namespaces"] == ["ns", "v1", "false", "Namespace"]
    assert found["jobs"] == ["batch/v1", "true", "Job"]
    assert found["leases"] == ["coordination.k8s.io/v1", "true", "Lease"]
    assert found["widgets"] == ["contract.slicebus.dev/v1", "true", "Widget"]
    verbs = await kubectl_api.kubectl(
        "api-resources", "--api-group=contract.slicebus.dev", "-o", "wide", "--no-headers"
    )
    assert sorted(verbs.split()[-1].split(",")) == [
        *("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
    ]
    assert "contract.slicebus.dev/v1" in (await kubectl_api.kubectl("api-versions")).splitlines()


async def test_watching_prints_every_change(kubectl_api: Api) -> None:
    await kubectl_api.widget(spec={})
    command = kubectl_api.kubectl_command("get", "widgets", "-w", "--output-watch-events")
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None

    async def line() -> list[str]:
        assert process.stdout is not None
        return (await asyncio.wait_for(process.stdout.readline(), PATIENCE_S)).decode().split()

    try:
        assert await line() == ["EVENT", "NAME", "SIZE", "PHASE"]
        assert await line() == ["ADDED", "a", "1"]
        await kubectl_api.client.patch(WIDGETS, "a", kubectl_api.namespace, MergePatch({"spec": {"size": 2}}))
        assert await line() == ["MODIFIED", "a", "2"]
        await kubectl_api.client.delete(WIDGETS, "a", kubectl_api.namespace)
        assert await line() == ["DELETED", "a", "2"]
    finally:
        process.kill()
        await process.communicate()


async def test_a_collection_is_deleted_by_its_labels(kubectl_api: Api) -> None:
    for name, color in {"a": "red", "b": "green", "c": "red"}.items():
        await kubectl_api.config_map(name, metadata={"labels": {"color": color}})
    await kubectl_api.kubectl("delete", "configmaps", "-l", "color=red", "--wait")
    assert await kubectl_api.names() == ["b"]
    path = f"{CONFIGMAPS.path(kubectl_api.namespace)}?fieldSelector=metadata.name%3Db"
    await kubectl_api.kubectl("delete", "--raw", path)
    assert await kubectl_api.names() == []


async def test_everyday_commands_work(kubectl_api: Api) -> None:
    kubectl = kubectl_api.kubectl
    config_map = json.dumps(kubectl_api.manifest(CONFIGMAPS, "a", data={"k": "v"}))
    assert await kubectl("create", "-f", "-", stdin=config_map) == "configmap/a created\n"
    assert await kubectl("label", "configmap", "a", "x=y") == "configmap/a labeled\n"
    assert await kubectl("annotate", "cm/a", "x=y") == "configmap/a annotated\n"
    assert await kubectl("get", "cm", "a", "-o", "jsonpath={.data.k}{.metadata.labels.x}") == "vy"
    assert (
        await kubectl("patch", "cm", "a", "--type=json", '-p=[{"op":"remove","path":"/data/k"}]')
        == "configmap/a patched\n"
    )
    assert await kubectl("delete", "cm", "a") == 'configmap "a" deleted\n'
    assert "NotFound" in await kubectl("get", "cm", "a")
    assert await kubectl("auth", "can-i", "create", "jobs") == "yes\n"
