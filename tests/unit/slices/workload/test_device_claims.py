"""Claims of devices by dynamic resource allocation."""

from typing import Any

import pytest

from slicebus.slices.workload.device_claims import (
    DeviceClassMapping,
    UnchargedClaimError,
    claims_of,
    devices_of,
    from_annotation,
    resources_of,
    to_annotation,
)

Manifest = dict[str, Any]
GPU, NIC = "example.com/gpu", "example.com/nic"
RESOURCES = {"gpu.example.com": GPU, "big-gpu.example.com": GPU, "nic.example.com": NIC}

CASES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "none": ({"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}, []),
    "nothing": ({}, []),
    "of the pod": ({"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]}, ["gpu"]),
    "by an existing claim": ({"resourceClaims": [{"name": "shared", "resourceClaimName": "a"}]}, ["shared"]),
    "of a container": ({"containers": [{"name": "c", "resources": {"claims": [{"name": "gpu"}]}}]}, ["gpu"]),
    "of an init container": ({"initContainers": [{"name": "c", "resources": {"claims": [{"name": "nic"}]}}]}, ["nic"]),
    "each once": (
        {
            "resourceClaims": [{"name": "gpu"}, {"name": "nic"}],
            "containers": [{"name": "c", "resources": {"claims": [{"name": "gpu", "request": "big"}]}}],
        },
        ["gpu", "nic"],
    ),
    "an empty list": ({"resourceClaims": [], "containers": [{"name": "c", "resources": {"claims": []}}]}, []),
    "of another type": ({"resourceClaims": "gpu", "containers": [{"name": "c", "resources": {"claims": 1}}, 2]}, []),
    "without a name": ({"resourceClaims": [{}]}, [""]),
}


@pytest.mark.parametrize(("spec", "claims"), CASES.values(), ids=CASES.keys())
def test_the_claims_of_a_pod(spec: dict[str, Any], claims: list[str]) -> None:
    assert claims_of(spec) == claims


def exactly(device_class: str = "gpu.example.com", **fields: Any) -> Manifest:
    return {"name": "r", "exactly": {"deviceClassName": device_class} | fields}


def template(*requests: object) -> Manifest:
    return {"spec": {"spec": {"devices": {"requests": list(requests)}}}}


TEMPLATES: dict[str, Manifest] = {
    "one": template(exactly()),
    "two": template(exactly(count=2, allocationMode="ExactCount")),
    "both": template(exactly("big-gpu.example.com"), exactly("nic.example.com", count=3)),
    "old": template({"name": "r", "deviceClassName": "gpu.example.com", "count": 4}),
    "none": template(),
    "all": template(exactly(allocationMode="All")),
    "first": template({"name": "r", "firstAvailable": [{"name": "a", "deviceClassName": "gpu.example.com"}]}),
    "admin": template(exactly(adminAccess=True)),
    "unmapped": template(exactly("fpga.example.com")),
    "negative": template(exactly(count=-1)),
    "wrong": template(exactly(count="two")),
    "odd": {"spec": {"spec": {"devices": "x"}}},
}


def pod(*names: str) -> Manifest:
    claims = [{"name": f"c{number}", "resourceClaimTemplateName": name} for number, name in enumerate(names)]
    return {"resourceClaims": claims, "containers": [{"name": "c", "resources": {"claims": [{"name": "c0"}]}}]}


@pytest.mark.parametrize(
    ("spec", "devices"),
    [
        (pod("one"), {GPU: 1}),
        (pod("two", "one"), {GPU: 3}),
        (pod("both"), {GPU: 1, NIC: 3}),
        (pod("old"), {GPU: 4}),
        (pod("none"), {}),
        (pod("odd"), {}),
        ({}, {}),
    ],
    ids=str,
)
def test_devices_are_counted_by_the_resource_of_their_class(spec: Manifest, devices: dict[str, int]) -> None:
    assert devices_of(spec, RESOURCES, TEMPLATES.get) == devices


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (pod("gone"), "there is no ResourceClaimTemplate gone for claim c0"),
        (pod("all"), "has no number of devices"),
        (pod("negative"), "has no number of devices"),
        (pod("wrong"), "has no number of devices"),
        (pod("first"), "has firstAvailable, which is not counted"),
        (pod("admin"), "has adminAccess, which is not counted"),
        (pod("unmapped"), "DeviceClass fpga.example.com of ResourceClaimTemplate unmapped is not mapped"),
        ({"resourceClaims": [{"name": "a", "resourceClaimName": "b"}]}, "claim a has no ResourceClaimTemplate"),
        ({"containers": [{"resources": {"claims": [{"name": "a"}]}}]}, "claim a has no ResourceClaimTemplate"),
        ({"resourceClaims": [{"name": "a", "resourceClaimTemplateName": 7}]}, "claim a has no ResourceClaimTemplate"),
    ],
    ids=str,
)
def test_a_claim_that_cannot_be_counted_says_why(spec: Manifest, words: str) -> None:
    with pytest.raises(UnchargedClaimError, match=words):
        devices_of(spec, RESOURCES, TEMPLATES.get)


def test_a_class_has_one_resource() -> None:
    mapping = DeviceClassMapping(GPU, ("a", "b"))
    assert resources_of([mapping, DeviceClassMapping(NIC, ("c",))]) == {"a": GPU, "b": GPU, "c": NIC}
    with pytest.raises(ValueError, match="DeviceClass b is mapped to "):
        resources_of([mapping, DeviceClassMapping(NIC, ("b",))])


@pytest.mark.parametrize(
    "text", [None, "", "{", "[]", '{"main": 1}', '{"main": {"gpu": "x"}}', '{"main": {"gpu": -1}}']
)
def test_any_bytes_may_be_in_the_annotation(text: str | None) -> None:
    assert from_annotation(text) == {}
    assert from_annotation(to_annotation({"main": {GPU: 2}})) == {"main": {GPU: 2}}
