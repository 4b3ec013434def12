"""Says at submission what KubeRay would refuse, in KubeRay's words.

The manager's API server accepts the object, and the worker's KubeRay would complain where nobody looks. KubeRay itself
checks what depends on the worker: what needs one of its alpha feature gates (the embedded store, TLS, network policies,
the history server). `deletionStrategy` is left out, as a worker's copy lacks it.
Source: KubeRay 1.7, `ray-operator/controllers/ray/utils/validation.go`.
"""

import re
from collections.abc import Iterator
from typing import Any

from slicebus.slices.jobs.base import Problem
from slicebus.slices.jobs.ray import autoscaler_version, autoscales, groups, head_environment
from slicebus.slices.jobs.ray_features import V2_VARIABLE, feature_messages, uses_v2

Manifest = dict[str, Any]

_CLUSTER_NAME_LENGTH = 53
"""KubeRay appends to it what its pods and Services need."""
_PARENT_NAME_LENGTH = _CLUSTER_NAME_LENGTH - 6
"""The same for a RayJob and a RayService: their RayClusters have five random characters more, and a hyphen."""
_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_NO_DNS_1035 = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    f"'{_DNS_1035.pattern}')"
)
_START_COMMAND = "KUBERAY_GEN_AUTOSCALER_START_CMD"
_INCREMENTAL = "NewClusterWithIncrementalUpgrade"
_UPGRADES = (_INCREMENTAL, "NewCluster", "None")
_INTERVAL = "intervalSeconds"
_NO_RESTART = (None, "", "Never")
_SIDECAR_LACKS = {"submitterPodTemplate": "SubmitterPodTemplate", "submitterConfig": "SubmitterConfig"}


def cluster_problems(cluster: Manifest) -> list[Problem]:
    """Why KubeRay would refuse a RayCluster."""
    messages = _name_messages("RayCluster", cluster, most=_CLUSTER_NAME_LENGTH)
    return [Problem("InvalidRayCluster", message) for message in messages] + _spec_problems(cluster["spec"], cluster)


def rayjob_problems(job: Manifest) -> list[Problem]:
    """Why KubeRay would refuse a RayJob, or slicebus cannot run it."""
    spec = job["spec"]
    messages = (*_name_messages("RayJob", job, most=_PARENT_NAME_LENGTH), *_rayjob_messages(spec))
    problems = [Problem("InvalidRayJob", message) for message in messages]
    return problems + _spec_problems(spec["rayClusterSpec"], job) if _has_own_cluster(spec) else problems


def rayservice_problems(service: Manifest) -> list[Problem]:
    """Why KubeRay would refuse a RayService."""
    names = _name_messages("RayService", service, most=_PARENT_NAME_LENGTH)
    messages = (*names, *_rayservice_messages(service["spec"]))
    problems = [Problem("InvalidRayService", message) for message in messages]
    return problems + _spec_problems(service["spec"]["rayClusterConfig"], service)


def _spec_problems(spec: Manifest, job: Manifest) -> list[Problem]:
    """Why KubeRay would refuse a cluster's spec. Its rules look at the annotations of the object that has it."""
    if messages := [*_shape(spec)]:
        return [Problem("InvalidRayCluster", message) for message in messages]
    features = feature_messages(spec, annotations=job["metadata"].get("annotations") or {})
    messages = [*_group_messages(spec), *_autoscaler_messages(spec), *features]
    return [Problem("InvalidRayCluster", message) for message in messages]


def _name_messages(kind: str, job: Manifest, *, most: int) -> Iterator[str]:
    name = job["metadata"]["name"]
    if len(name) > most:
        yield f"{kind} name should be no more than {most} characters"
    if not _DNS_1035.fullmatch(name):
        yield f"{kind} name should be a valid DNS1035 label: [{_NO_DNS_1035}]"


def _rayjob_messages(spec: Manifest) -> Iterator[str]:
    if spec.get("clusterSelector"):
        yield "a RayJob with a clusterSelector runs on a cluster that is not its own and cannot be queued"
    elif not spec.get("rayClusterSpec"):
        yield "one of RayClusterSpec or ClusterSelector must be set"
    yield from _end_messages(spec)
    yield from _mode_messages(spec)
    if _has_own_cluster(spec):
        yield from _child_messages(spec["rayClusterSpec"])


def _rayservice_messages(spec: Manifest) -> Iterator[str]:
    cluster, delay_s = spec["rayClusterConfig"], spec.get("rayClusterDeletionDelaySeconds")
    strategy = spec.get("upgradeStrategy") or {}
    if (cluster.get("authOptions") or {}).get("enableK8sTokenAuth"):
        yield "K8s token auth mode is currently not supported for RayService"
    if ((cluster["headGroupSpec"].get("headService") or {}).get("metadata") or {}).get("name"):
        yield "spec.rayClusterConfig.headGroupSpec.headService.metadata.name should not be set"
    if strategy.get("type") not in (None, *_UPGRADES):
        options = f"{_INCREMENTAL}, NewCluster, or None"
        yield f"Spec.UpgradeStrategy.Type value {strategy['type']} is invalid, valid options are {options}"
    if delay_s is not None and delay_s < 0:
        yield f"Spec.RayClusterDeletionDelaySeconds should be a non-negative integer, got {delay_s}"
    if strategy.get("type") == _INCREMENTAL:
        yield from _upgrade_messages(cluster, strategy.get("clusterUpgradeOptions"))


def _upgrade_messages(cluster: Manifest, options: Manifest | None) -> Iterator[str]:
    """About an upgrade in steps; the first that is wrong."""
    if not autoscales(cluster):
        yield f"Ray Autoscaler is required for {_INCREMENTAL}"
        return
    if options is None:
        yield f"ClusterUpgradeOptions are required for {_INCREMENTAL}"
        return
    surge, step = options.get("maxSurgePercent", 100), options.get("stepSizePercent")
    interval_s = options.get(_INTERVAL)
    if not 0 <= surge <= 100:
        yield "maxSurgePercent must be between 0 and 100"
    elif step is None or not 0 <= step <= 100:
        yield "stepSizePercent must be between 0 and 100"
    elif step > surge:
        yield "stepSizePercent must be less than or equal to maxSurgePercent"
    elif interval_s is None or interval_s <= 0:
        yield f"{_INTERVAL} must be greater than 0"
    elif not options.get("gatewayClassName"):
        yield f"gatewayClassName is required for {_INCREMENTAL}"


def _end_messages(spec: Manifest) -> Iterator[str]:
    """About shutdown, deadlines and retries."""
    ttl_s, retries = spec.get("ttlSecondsAfterFinished") or 0, spec.get("backoffLimit") or 0
    if not spec.get("shutdownAfterJobFinishes"):
        if spec.get("suspend"):
            yield "a RayJob with shutdownAfterJobFinishes set to false is not allowed to be suspended"
        if ttl_s > 0:
            yield "a RayJob with shutdownAfterJobFinishes set to false cannot have TTLSecondsAfterFinished"
    if ttl_s < 0:
        yield "TTLSecondsAfterFinished must be a non-negative integer"
    for name in ("activeDeadlineSeconds", "preRunningDeadlineSeconds"):
        if spec.get(name) is not None and spec[name] <= 0:
            yield f"{name} must be a positive integer"
    if retries < 0:
        yield "backoffLimit must be a positive integer"
    if retries > 0 and spec.get("submissionMode") == "InteractiveMode":
        yield "BackoffLimit is incompatible with InteractiveMode"


def _mode_messages(spec: Manifest) -> Iterator[str]:
    if spec.get("submissionMode") != "SidecarMode":
        return
    for field, name in _SIDECAR_LACKS.items():
        if spec.get(field) is not None:
            yield f"Currently, SidecarMode doesn't support {name}"
    if _has_own_cluster(spec) and _restarts(spec["rayClusterSpec"]["headGroupSpec"]):
        yield "restartPolicy for head Pod should be Never or unset when using SidecarMode"


def _child_messages(spec: Manifest) -> Iterator[str]:
    """About the cluster of a RayJob, as far as another cluster may have it."""
    if (spec.get("authOptions") or {}).get("enableK8sTokenAuth"):
        yield "K8s token auth mode is currently not supported for RayJob"
    if (spec.get("upgradeStrategy") or {}).get("type"):
        yield "upgradeStrategy cannot be set when RayCluster is created by RayJob"


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
        if (hosts := group.get("numOfHosts")) is not None and hosts < 1:
            yield f"worker group {name} has numOfHosts {hosts}, and no pod would be made of it"
        if least is not None and most is not None and least > most:
            yield f"worker group {name} has minReplicas {least} greater than maxReplicas {most}"
        if not scaled and (least is None or most is None):
            yield f"worker group {name} must set both minReplicas and maxReplicas when autoscaling is disabled"
        if scaled and group.get("suspend"):
            yield f"worker group {name} cannot be suspended with Autoscaler enabled"
        yield from _idle_messages(spec, group)


def _idle_messages(spec: Manifest, group: Manifest) -> Iterator[str]:
    name, idle_s = group["groupName"], group.get("idleTimeoutSeconds")
    if idle_s is None:
        return
    if idle_s < 0:
        yield f"worker group {name}: idleTimeoutSeconds must be non-negative, got {idle_s}"
    elif not uses_v2(spec):
        yield (
            f"worker group {name}: idleTimeoutSeconds is set, but autoscaler v2 is not enabled. "
            "Please set .spec.autoscalerOptions.version to 'v2' (or set RAY_enable_autoscaler_v2 environment "
            "variable to 'true' in the head pod if using KubeRay < 1.4.0)"
        )


def _autoscaler_messages(spec: Manifest) -> Iterator[str]:
    options, variable = spec.get("autoscalerOptions") or {}, head_environment(spec).get(V2_VARIABLE)
    if autoscales(spec):
        if autoscaler_version(spec) is not None and variable is not None:
            yield (
                f"both .spec.autoscalerOptions.version and head Pod env var {V2_VARIABLE} are set, "
                "please only use the former"
            )
        if autoscaler_version(spec) == "v2":
            yield from _restart_messages(spec)
    elif variable in ("1", "true"):
        yield (
            f"environment variable {V2_VARIABLE} cannot be set to '{variable}' when enableInTreeAutoscaling is false. "
            "Please set enableInTreeAutoscaling: true to use autoscaler v2"
        )
    idle_s = options.get("idleTimeoutSeconds")
    if idle_s is not None and idle_s < 0:
        yield f"autoscalerOptions.idleTimeoutSeconds must be non-negative, got {idle_s}"
    if any(entry["name"] == _START_COMMAND for entry in options.get("env") or ()):
        yield (
            f"autoscalerOptions.env must not contain {_START_COMMAND}: "
            "it is managed by KubeRay and injected automatically into the autoscaler container"
        )


def _restart_messages(spec: Manifest) -> Iterator[str]:
    """About autoscaler v2, which replaces pods: none may start again by itself."""
    if _restarts(spec["headGroupSpec"]):
        yield "restartPolicy for head Pod should be Never or unset when using autoscaler V2"
    for group in filter(_restarts, groups(spec)):
        yield (f"restartPolicy for worker group {group['groupName']} should be Never or unset when using autoscaler V2")


def _restarts(group: Manifest) -> bool:
    return group["template"].get("spec", {}).get("restartPolicy") not in _NO_RESTART


def _has_own_cluster(spec: Manifest) -> bool:
    return bool(spec.get("rayClusterSpec")) and not spec.get("clusterSelector")
