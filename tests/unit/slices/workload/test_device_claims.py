"""Claims of devices by dynamic resource allocation."""

from typing import Any

import pytest

from slicebus.slices.workload.device_claims import claims_of

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
