"""The requests of a pod, case by case."""

from typing import Any

import pytest

from slicebus.slices.workload.pod_requests import pod_requests


def container(cpu: str | None = None, *, limit: str | None = None, **fields: Any) -> dict[str, Any]:
    resources = {
        **({"requests": {"cpu": cpu}} if cpu else {}),
        **({"limits": {"cpu": limit}} if limit else {}),
    }
    return {"name": "c", "resources": resources, **fields}


def sidecar(cpu: str) -> dict[str, Any]:
    return container(cpu, restartPolicy="Always")


CASES: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
    "nothing requested": ({"containers": [{"name": "c"}]}, {}),
    "no containers": ({}, {}),
    "containers add up": ({"containers": [container("1"), container("500m")]}, {"cpu": 1500}),
    "resources apart": (
        {"containers": [container("1"), {"name": "m", "resources": {"requests": {"memory": "1Gi"}}}]},
        {"cpu": 1000, "memory": 2**30},
    ),
    "a limit is the request where there is none": ({"containers": [container(limit="2")]}, {"cpu": 2000}),
    "a request wins over its limit": ({"containers": [container("1", limit="2")]}, {"cpu": 1000}),
    "a large init container counts alone": (
        {"initContainers": [container("3")], "containers": [container("1")]},
        {"cpu": 3000},
    ),
    "init containers run one by one": (
        {"initContainers": [container("2"), container("2")], "containers": [container("1")]},
        {"cpu": 2000},
    ),
    "a small init container is covered": (
        {"initContainers": [container("1")], "containers": [container("2")]},
        {"cpu": 2000},
    ),
    "a sidecar runs beside the containers": (
        {"initContainers": [sidecar("1")], "containers": [container("2")]},
        {"cpu": 3000},
    ),
    "a sidecar runs beside the init containers after it": (
        {"initContainers": [sidecar("1"), container("5")], "containers": [container("2")]},
        {"cpu": 6000},
    ),
    "a sidecar does not run beside the init containers before it": (
        {"initContainers": [container("5"), sidecar("1")], "containers": [container("2")]},
        {"cpu": 5000},
    ),
    "overhead comes on top": ({"containers": [container("1")], "overhead": {"cpu": "250m"}}, {"cpu": 1250}),
    "a pod-level request wins over the containers": (
        {"containers": [container("1")], "resources": {"requests": {"cpu": "4"}}},
        {"cpu": 4000},
    ),
    "a pod-level limit is the request where no container has one": (
        {"containers": [{"name": "c"}], "resources": {"limits": {"cpu": "4"}}},
        {"cpu": 4000},
    ),
    "a pod-level limit leaves the containers' requests": (
        {"containers": [container("1")], "resources": {"limits": {"cpu": "4"}}},
        {"cpu": 1000},
    ),
    "overhead comes on top of a pod-level request": (
        {"containers": [], "resources": {"requests": {"cpu": "4"}}, "overhead": {"cpu": "250m"}},
        {"cpu": 4250},
    ),
}


@pytest.mark.parametrize(("spec", "expected"), CASES.values(), ids=CASES.keys())
def test_pod_requests(spec: dict[str, Any], expected: dict[str, int]) -> None:
    assert pod_requests(spec) == expected


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [container("lots")]},
        {"initContainers": [container("lots")]},
        {"overhead": {"cpu": "lots"}},
        {"resources": {"limits": {"cpu": "lots"}}},
    ],
    ids=["container", "init container", "overhead", "pod level"],
)
def test_a_request_that_is_no_quantity_is_refused(spec: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not a quantity: 'lots'"):
        pod_requests(spec)
