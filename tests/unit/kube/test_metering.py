"""What a role asks of its API server is counted, in the words of RBAC."""

import pytest
from prometheus_client import CollectorRegistry

from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.metering import Target
from slicebus.kube.resources import CONFIGMAPS
from slicebus.kube.transport import Request
from slicebus.proto.errors import NotFoundError, UnavailableError
from support.requests import api_requests
from unit.kube.servers import NAMESPACE, config_map

TARGETS = {
    "a collection": ("GET", "/api/v1/namespaces/team/pods", {}, ("list", "pods", "")),
    "a collection of all namespaces": ("GET", "/apis/batch/v1/jobs", {}, ("list", "jobs", "")),
    "a watch": ("GET", "/apis/batch/v1/jobs", {"watch": "true"}, ("watch", "jobs", "")),
    "an object": ("GET", "/apis/batch/v1/namespaces/team/jobs/train", {}, ("get", "jobs", "")),
    "a status": ("PATCH", "/apis/batch/v1/namespaces/team/jobs/train/status", {}, ("patch", "jobs", "status")),
    "an object of the cluster": ("PUT", "/api/v1/nodes/one", {}, ("update", "nodes", "")),
    "a namespace": ("DELETE", "/api/v1/namespaces/team", {}, ("delete", "namespaces", "")),
    "the status of a namespace": ("PATCH", "/api/v1/namespaces/team/status", {}, ("patch", "namespaces", "status")),
    "a new namespace": ("POST", "/api/v1/namespaces", {}, ("create", "namespaces", "")),
    "discovery": ("GET", "/apis/batch/v1", {}, ("get", "", "")),
    "no resource": ("GET", "/version", {}, ("get", "", "")),
}


@pytest.mark.parametrize(("method", "path", "query", "expected"), TARGETS.values(), ids=TARGETS)
def test_what_a_request_is_about(method: str, path: str, query: dict[str, str], expected: tuple[str, str, str]) -> None:
    assert Target.from_request(Request(method=method, path=path, query=query)) == expected


async def test_each_request_is_counted_with_its_answer(api: KubeClient) -> None:
    registry = CollectorRegistry()
    client = api.metered(registry)
    await client.create(CONFIGMAPS, config_map())
    for _ in range(2):
        await client.patch(CONFIGMAPS, "one", NAMESPACE, MergePatch({"data": {"a": "b"}}))
    with pytest.raises(NotFoundError):
        await client.get(CONFIGMAPS, "two", NAMESPACE)
    version = (await client.list(CONFIGMAPS, namespace=NAMESPACE)).resource_version
    await client.delete(CONFIGMAPS, "one", NAMESPACE)
    async for event in client.watch(CONFIGMAPS, namespace=NAMESPACE, resource_version=version):
        assert event.type == "DELETED"
        break
    assert api_requests(registry) == {
        ("create", "configmaps", "", "201"): 1,
        ("patch", "configmaps", "", "200"): 2,
        ("get", "configmaps", "", "404"): 1,
        ("list", "configmaps", "", "200"): 1,
        ("delete", "configmaps", "", "200"): 1,
        ("watch", "configmaps", "", "200"): 1,
    }


async def test_a_request_without_an_answer_is_counted() -> None:
    registry = CollectorRegistry()
    async with KubeClient.from_url("http://127.0.0.1:9") as direct:
        client = direct.metered(registry)
        with pytest.raises(UnavailableError):
            await client.create(CONFIGMAPS, config_map())
        with pytest.raises(UnavailableError):
            await anext(client.watch(CONFIGMAPS, resource_version="1"))
    assert api_requests(registry) == {
        ("create", "configmaps", "", "none"): 1,
        ("watch", "configmaps", "", "none"): 1,
    }
