"""What KubeRay would refuse, in KubeRay's words.

Said at submission: the manager's API server accepts the object, and the worker's KubeRay would complain where nobody
looks.
Source: KubeRay 1.7, `ray-operator/controllers/ray/utils/validation.go`.
"""

from collections.abc import Iterator
from typing import Any

from slicebus.slices.jobs.base import Problem
from slicebus.slices.jobs.ray import autoscales, groups

Manifest = dict[str, Any]

_REASON = "InvalidRayCluster"
_V2_VARIABLE = "RAY_enable_autoscaler_v2"


def cluster_problems(spec: Manifest) -> list[Problem]:
    """Why KubeRay would refuse a cluster's spec."""
    messages = [*_shape(spec)] or [*_group_messages(spec), *_autoscaler_messages(spec)]
    return [Problem(_REASON, message) for message in messages]


def rayjob_problems(spec: Manifest) -> list[Problem]:
    """Why KubeRay would refuse a RayJob's spec, or slicebus cannot run it."""
    messages = []
    if spec.get("clusterSelector"):
        messages.append("a RayJob with a clusterSelector runs on a cluster that is not its own and cannot be queued")
    elif not spec.get("rayClusterSpec"):
        messages.append("one of rayClusterSpec or clusterSelector must be set")
    if spec.get("suspend") and not spec.get("shutdownAfterJobFinishes"):
        messages.append("a RayJob with shutdownAfterJobFinishes set to false is not allowed to be suspended")
    found = [Problem("InvalidRayJob", message) for message in messages]
    return found or cluster_problems(spec["rayClusterSpec"])


def _shape(spec: Manifest) -> Iterator[str]:
    if not spec["headGroupSpec"]["template"].get("spec", {}).get("containers"):
        yield "headGroupSpec should have at least one container"
    for group in groups(spec):
        if not group["template"].get("spec", {}).get("containers"):
            yield f"workerGroupSpec {group['groupName']} should have at least one container"


def _group_messages(spec: Manifest) -> Iterator[str]:
    scaled = autoscales(spec)
    for group in groups(spec):
        name, least, most = group["groupName"], group.get("minReplicas"), group.get("maxReplicas")
        for field, value in (("minReplicas", least), ("maxReplicas", most)):
            if value is not None and value < 0:
                yield f"worker group {name} has negative {field} {value}"
        if least is not None and most is not None and least > most:
            yield f"worker group {name} has minReplicas {least} greater than maxReplicas {most}"
        if not scaled and (least is None or most is None):
            yield f"worker group {name} must set both minReplicas and maxReplicas when autoscaling is disabled"
        if scaled and group.get("suspend"):
            yield f"worker group {name} cannot be suspended with Autoscaler enabled"
        if group.get("idleTimeoutSeconds") is not None and not (_version(spec) == "v2" or _v2_by_variable(spec)):
            yield (
                f"worker group {name}: idleTimeoutSeconds is set, but autoscaler v2 is not enabled. "
                "Please set .spec.autoscalerOptions.version to 'v2' (or set RAY_enable_autoscaler_v2 environment "
                "variable to 'true' in the head pod if using KubeRay < 1.4.0)"
            )


def _autoscaler_messages(spec: Manifest) -> Iterator[str]:
    options, head = spec.get("autoscalerOptions") or {}, spec["headGroupSpec"]["template"]["spec"]
    if autoscales(spec) and _version(spec) is not None and _V2_VARIABLE in _head_environment(spec):
        yield (
            "both .spec.autoscalerOptions.version and head Pod env var RAY_enable_autoscaler_v2 are set, "
            "please only use the former"
        )
    idle = options.get("idleTimeoutSeconds")
    if idle is not None and idle < 0:
        yield f"autoscalerOptions.idleTimeoutSeconds must be non-negative, got {idle}"
    if autoscales(spec) and _version(spec) == "v2" and head.get("restartPolicy", "Never") not in ("", "Never"):
        yield "restartPolicy for head Pod should be Never or unset when using autoscaler V2"


def _version(spec: Manifest) -> str | None:
    """The explicit version, the only one that counts for KubeRay; None leaves it to Ray."""
    version: str | None = (spec.get("autoscalerOptions") or {}).get("version")
    return version


def _v2_by_variable(spec: Manifest) -> bool:
    return _head_environment(spec).get(_V2_VARIABLE) in ("1", "true")


def _head_environment(spec: Manifest) -> dict[str, str]:
    container = spec["headGroupSpec"]["template"]["spec"]["containers"][0]
    return {entry["name"]: entry.get("value", "") for entry in container.get("env") or ()}
