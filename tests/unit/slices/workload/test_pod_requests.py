"""The requests of a pod, case by case."""

from typing import Any

import pytest

from slicebus.slices.workload.device_claims import claims_of
from slicebus.slices.workload.pod_requests import as_admitted, pod_requests, requests_of


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
    "a pod-level request pays for no containers that request more": (
        {"containers": [container("8")], "resources": {"requests": {"cpu": "1"}}},
        {"cpu": 8000},
    ),
    "nor for devices, which have none": (
        {
            "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "8"}}}],
            "resources": {"requests": {"nvidia.com/gpu": "0"}},
        },
        {"nvidia.com/gpu": 8},
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


def resized(spec: str, status: str, allocated: str | None = None, *, init: bool = False) -> dict[str, Any]:
    entry = {"name": "c", "resources": {"requests": {"cpu": status}}}
    if allocated:
        entry["allocatedResources"] = {"cpu": allocated}
    own = sidecar(spec) if init else container(spec)
    containers = {"initContainers": [own], "containers": []} if init else {"containers": [own]}
    return {"spec": containers, "status": {"initContainerStatuses" if init else "containerStatuses": [entry]}}


def infeasible(pod: dict[str, Any], reason: str = "Infeasible") -> dict[str, Any]:
    """A pod whose resize the kubelet has not begun."""
    pending = {"type": "PodResizePending", "status": "True", "reason": reason}
    return pod | {"status": pod["status"] | {"conditions": [{"type": "Ready", "status": "True"}, pending]}}


def resized_as_a_whole(spec: str, status: str, allocated: str) -> dict[str, Any]:
    """A pod that has requests of its own."""
    resources = {"requests": {"cpu": spec}}
    whole = {"resources": {"requests": {"cpu": status}}, "allocatedResources": {"cpu": allocated}}
    return {"spec": {"containers": [container("1")], "resources": resources}, "status": whole}


RESIZED: dict[str, tuple[dict[str, Any], int]] = {
    "larger than any node, refused": (infeasible(resized("100", "1", "1")), 1000),
    "a sidecar's, refused": (infeasible(resized("100", "2", init=True)), 2000),
    "larger, put off": (infeasible(resized("4", "1", "1"), "Deferred"), 4000),
    "the pod's own, smaller, not yet carried out": (resized_as_a_whole("2", "4", "4"), 4000),
    "the pod's own, larger, not yet carried out": (resized_as_a_whole("8", "4", "4"), 8000),
    "the pod's own, refused": (infeasible(resized_as_a_whole("100", "4", "4")), 4000),
    "as it was": (resized("1", "1", "1"), 1000),
    "larger, not yet carried out": (resized("4", "1", "1"), 4000),
    "smaller, not yet carried out": (resized("1", "4", "4"), 4000),
    "allocated, not yet in force": (resized("1", "1", "3"), 3000),
    "a sidecar": (resized("1", "2", init=True), 2000),
    "a status without resources": (
        {"spec": {"containers": [container("1")]}, "status": {"containerStatuses": [{"name": "c"}]}},
        1000,
    ),
    "no status": ({"spec": {"containers": [container("1")]}}, 1000),
}


@pytest.mark.parametrize(("pod", "cpu"), RESIZED.values(), ids=RESIZED.keys())
def test_a_resize_in_place_keeps_what_it_had_until_it_is_carried_out(pod: dict[str, Any], cpu: int) -> None:
    assert requests_of(pod) == {"cpu": cpu}


TO_ADMIT: dict[str, dict[str, Any]] = {
    "nothing": {},
    "requests": {"containers": [{"name": "a", "env": [{"name": "A"}], "resources": {"requests": {"cpu": "1"}}}, {}]},
    "a sidecar": {
        "containers": [{"name": "a"}],
        "initContainers": [{"name": "b", "restartPolicy": "Always", "resources": {"requests": {"cpu": "2"}}}],
    },
    "the pod's own": {"containers": [{"name": "a"}], "resources": {"requests": {"cpu": "3"}}, "overhead": {"cpu": "1"}},
    "a class": {"containers": [{"name": "a"}], "runtimeClassName": "kata"},
    "claims": {
        "containers": [{"name": "a", "resources": {"claims": [{"name": "gpu"}]}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}],
    },
    "nodes": {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "c"}], "affinity": {"nodeAffinity": {}}},
}


@pytest.mark.parametrize("spec", TO_ADMIT.values(), ids=TO_ADMIT.keys())
def test_what_is_kept_to_admit_pods_says_all_of_them(spec: dict[str, Any]) -> None:
    """What a LimitRange and a RuntimeClass add to them, too."""
    kept = as_admitted(spec)
    for defaults, overhead in (({}, None), ({"cpu": 500}, {"memory": 7})):
        found = pod_requests(kept, defaults=defaults, overhead=overhead)
        assert found == pod_requests(spec, defaults=defaults, overhead=overhead)
    assert claims_of(kept) == claims_of(spec)
    for name in ("nodeSelector", "tolerations", "affinity", "runtimeClassName"):
        assert kept.get(name) == spec.get(name)
    assert all(container.keys() <= {"resources", "restartPolicy"} for container in kept.get("containers", ()))


def test_a_pod_with_a_limit_has_its_requests_before_its_containers_get_defaults() -> None:
    """`defaultPodRequests` of the API server comes before its LimitRanger."""
    defaults = {"cpu": 500, "memory": 64}
    plain, own = {"containers": [container(), container()]}, {"containers": [container("1"), container()]}
    assert pod_requests(plain, defaults=defaults) == {"cpu": 1000, "memory": 128}
    limit = {"resources": {"limits": {"cpu": "8"}}}
    assert pod_requests(plain | limit, defaults=defaults) == {"cpu": 8000, "memory": 128}
    assert pod_requests(own | limit, defaults=defaults) == {"cpu": 1000, "memory": 128}
    assert pod_requests(own | {"resources": {"limits": {"memory": "1Gi"}}}, defaults=defaults) == {
        "cpu": 1000,
        "memory": 2**30,
    }


NEGATIVE: dict[str, dict[str, Any]] = {
    "a request": {"containers": [container("4"), container("-4")]},
    "a limit": {"containers": [container(limit="-4")]},
    "of an init container": {"initContainers": [container("-1m")]},
    "of the pod": {"resources": {"requests": {"cpu": "-4"}}},
    "a limit of the pod": {"resources": {"limits": {"cpu": "-4"}}},
    "an overhead": {"overhead": {"cpu": "-4"}},
}


@pytest.mark.parametrize("spec", NEGATIVE.values(), ids=NEGATIVE.keys())
def test_no_request_is_negative(spec: dict[str, Any]) -> None:
    """Pods of one group would otherwise pay for those of another."""
    with pytest.raises(ValueError, match="a negative request of cpu: '-"):
        pod_requests(spec)
