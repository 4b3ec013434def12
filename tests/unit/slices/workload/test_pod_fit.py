"""A pod starts only where it requests no more than its pod set is charged for."""

from typing import Any

import pytest

from slicebus.slices.jobs.ray import waiting_for_gcs
from slicebus.slices.workload.pod_fit import of_pod, of_template

Manifest = dict[str, Any]


def container(name: str = "main", *, limits: Manifest | None = None, **requests: str) -> Manifest:
    return {"name": name, "image": "i", "resources": {"requests": requests} | ({"limits": limits} if limits else {})}


def spec(*containers: Manifest, **more: Any) -> Manifest:
    return {"containers": list(containers)} | more


CHARGED = spec(container(cpu="1", memory="1Gi"), initContainers=[container("prepare", cpu="2")])
AS_CHARGED = spec(container(cpu="1", memory="1Gi"), initContainers=[container("prepare", cpu="2")])
SIDECAR = container("istio-proxy", cpu="2", memory="1Gi")

PODS: dict[str, tuple[Manifest, str]] = {
    "the same": (AS_CHARGED, ""),
    "less": (spec(container(cpu="500m", memory="1Gi")), ""),
    "more of one resource": (spec(container(cpu="30", memory="1Gi")), "cpu 30 in place of 1"),
    "more of two": (
        spec(container(cpu="1001m", memory="2Gi")),
        "cpu 1001m in place of 1 and memory 2Gi in place of 1Gi",
    ),
    "more by a limit": (spec(container(limits={"cpu": "3"}, memory="1Gi")), "cpu 3 in place of 1"),
    "more while it starts": (
        spec(container(cpu="1", memory="1Gi"), initContainers=[container("prepare", cpu="3")]),
        "cpu 3 in place of 2",
    ),
    "more as a whole": (AS_CHARGED | {"resources": {"requests": {"cpu": "9"}}}, "cpu 9 in place of 2"),
    "a sidecar of the cluster": (spec(*AS_CHARGED["containers"], SIDECAR), ""),
    "a default of the cluster": (spec(container(cpu="1", memory="1Gi", **{"ephemeral-storage": "1Gi"})), ""),
    "what KubeRay adds": (waiting_for_gcs({"spec": AS_CHARGED})["spec"], ""),
    "an amount that nobody can read": (spec(container(cpu="many", memory="1Gi")), "requests that nobody can read"),
    "a claim of devices": (
        AS_CHARGED | {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "eight"}]},
        "claims of devices by ResourceClaimTemplate eight",
    ),
}


@pytest.mark.parametrize(("pod", "why"), PODS.values(), ids=PODS.keys())
def test_pods(pod: Manifest, why: str) -> None:
    misfit = of_pod(pod, CHARGED)
    assert (misfit.text if misfit else "").startswith(why)
    assert (misfit is None) is not bool(why)


TEMPLATES: dict[str, tuple[Manifest, str]] = {
    "the same": (AS_CHARGED, ""),
    "more of one resource": (spec(container(cpu="30", memory="1Gi")), "cpu 30 in place of 2"),
    "more where another one requested less": (
        spec(container(cpu="2", memory="1Gi"), initContainers=[container("prepare", cpu="1")]),
        "cpu 2 in place of 1",
    ),
    "another container": (
        spec(*AS_CHARGED["containers"], SIDECAR),
        "cpu 3 in place of 2 and memory 2Gi in place of 1Gi",
    ),
    "another name": (spec(container("other", cpu="30")), "cpu 30 in place of 2"),
    "a resource that it had not": (
        spec(container(cpu="1", memory="1Gi", **{"nvidia.com/gpu": "1"})),
        "nvidia.com/gpu 1 in place of 0",
    ),
    "an amount that nobody can read": (spec(container(cpu="many")), "requests that nobody can read"),
}


@pytest.mark.parametrize(("template", "why"), TEMPLATES.values(), ids=TEMPLATES.keys())
def test_templates(template: Manifest, why: str) -> None:
    misfit = of_template(template, CHARGED)
    assert (misfit.text if misfit else "").startswith(why)
    assert (misfit is None) is not bool(why)


def test_what_controllers_add_is_not_compared() -> None:
    """Slices of earlier versions, and those that a Kueue makes, do not have it."""
    charged = waiting_for_gcs({"spec": AS_CHARGED})["spec"]
    assert of_pod(AS_CHARGED, charged) is None
    assert of_template(AS_CHARGED, charged) is None


ONE: Manifest = {"name": "gpu", "resourceClaimTemplateName": "one"}
CLAIMS: dict[str, tuple[list[Any], str]] = {
    "the same": ([ONE], ""),
    "none": ([], ""),
    "the same by another name": ([ONE | {"name": "device"}], ""),
    "it twice": ([ONE, ONE | {"name": "second"}], "ResourceClaimTemplate one"),
    "another": ([ONE | {"resourceClaimTemplateName": "eight"}], "ResourceClaimTemplate eight"),
    "one that pods share": ([{"name": "gpu", "resourceClaimName": "shared"}], "ResourceClaim shared"),
    "one of a newer API": ([{"name": "gpu", "podGroupResourceClaim": "x"}], "another source"),
    "none that can be read": (["gpu"], ""),
}


@pytest.mark.parametrize(("claims", "by"), CLAIMS.values(), ids=CLAIMS.keys())
def test_claims_of_devices_are_those_that_were_counted(claims: list[Any], by: str) -> None:
    charged = CHARGED | {"resourceClaims": [ONE]}
    for misfit in (
        of_pod(AS_CHARGED | {"resourceClaims": claims}, charged),
        of_template(AS_CHARGED | {"resourceClaims": claims}, charged),
    ):
        assert (misfit.text if misfit else "") == (f"claims of devices by {by}" if by else "")
