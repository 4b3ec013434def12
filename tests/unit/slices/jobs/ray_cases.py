"""Ray objects that KubeRay refuses, with what it says, and some that it takes.

They are whole objects, so that a real operator can be given the same, without `managedBy`: it says the first message,
perhaps with more words around it.
"""

from typing import Any

from unit.slices.jobs.manifests import a_cluster, a_cluster_spec, a_group, a_rayjob, a_rayservice, a_template

Manifest = dict[str, Any]

AUTOSCALED = {"enableInTreeAutoscaling": True}
V1 = AUTOSCALED | {"autoscalerOptions": {"version": "v1"}}
V2 = AUTOSCALED | {"autoscalerOptions": {"version": "v2"}}
FAULT_TOLERANT = {"gcsFaultToleranceOptions": {"redisAddress": "redis:6379"}}


def a_head(**variables: str) -> Manifest:
    """A head's template with these variables."""
    template = a_template("2")
    template["spec"]["containers"][0]["env"] = [{"name": name, "value": value} for name, value in variables.items()]
    return template


def a_v2_head(value: str, **spec: Any) -> Manifest:
    """A head whose environment sets the autoscaler's version."""
    template = a_head(RAY_enable_autoscaler_v2=value)
    return template | {"spec": template["spec"] | spec}


def with_head(*, cluster: Manifest | None = None, **fields: Any) -> Manifest:
    """A cluster whose headGroupSpec has these fields."""
    cluster = cluster or a_cluster()
    cluster["spec"]["headGroupSpec"] |= fields
    return cluster


def named(job: Manifest, name: str) -> Manifest:
    return job | {"metadata": job["metadata"] | {"name": name}}


def annotated(job: Manifest, **annotations: str) -> Manifest:
    """With annotations of KubeRay, by the part after `ray.io/`, in Python's spelling."""
    given = {f"ray.io/{name.replace('_', '-')}": value for name, value in annotations.items()}
    return job | {"metadata": job["metadata"] | {"annotations": job["metadata"]["annotations"] | given}}


def restarting(**fields: Any) -> Manifest:
    """A group whose pods start again by themselves."""
    return a_group(template=a_template(restartPolicy="Always"), **fields)


_BOUNDS = "worker group small must set both minReplicas and maxReplicas when autoscaling is disabled"
_IDLE = (
    "worker group small: idleTimeoutSeconds is set, but autoscaler v2 is not enabled. Please set "
    ".spec.autoscalerOptions.version to 'v2' (or set RAY_enable_autoscaler_v2 environment variable to 'true' in the "
    "head pod if using KubeRay < 1.4.0)"
)
_BOTH = (
    "both .spec.autoscalerOptions.version and head Pod env var RAY_enable_autoscaler_v2 are set, "
    "please only use the former"
)
_OFF = (
    "environment variable RAY_enable_autoscaler_v2 cannot be set to '{}' when enableInTreeAutoscaling is false. Please "
    "set enableInTreeAutoscaling: true to use autoscaler v2"
)
_LABEL = (
    "[a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')]"
)
_TWICE = "resource fields should not be set in both rayStartParams and Resources for {} group; please use only one"
_INSTEAD = "cannot set {} when GcsFaultToleranceOptions is enabled - use GcsFaultToleranceOptions.{} instead"
_USERNAME = (
    "cannot set redis username in rayStartParams or environment variables - "
    "use GcsFaultToleranceOptions.RedisUsername instead"
)
_TOKEN = {"mode": "token"}
_KUBERNETES = {"mode": "token", "enableK8sTokenAuth": True}

REFUSED_CLUSTERS: dict[str, tuple[Manifest, list[str]]] = {
    "a long name": (named(a_cluster(), "a" * 54), ["RayCluster name should be no more than 53 characters"]),
    "a name that is no label": (
        named(a_cluster(), "a.b"),
        [f"RayCluster name should be a valid DNS1035 label: {_LABEL}"],
    ),
    "a name that begins with a digit": (
        named(a_cluster(), "1a"),
        [f"RayCluster name should be a valid DNS1035 label: {_LABEL}"],
    ),
    "minimum above maximum": (
        a_cluster(a_group(minReplicas=5, maxReplicas=3)),
        ["worker group small has minReplicas 5 greater than maxReplicas 3"],
    ),
    "a negative minimum": (a_cluster(a_group(minReplicas=-2)), ["worker group small has negative minReplicas -2"]),
    "a negative maximum": (
        a_cluster(a_group(minReplicas=-2, maxReplicas=-1)),
        ["worker group small has negative minReplicas -2", "worker group small has negative maxReplicas -1"],
    ),
    "no minimum": (a_cluster(a_group(minReplicas=None)), [_BOUNDS]),
    "no maximum": (a_cluster(a_group(maxReplicas=None)), [_BOUNDS]),
    "a suspended group": (
        a_cluster(a_group(suspend=True), **AUTOSCALED),
        ["worker group small cannot be suspended with Autoscaler enabled"],
    ),
    "the version said twice": (a_cluster(head=a_v2_head("1"), **V2), [_BOTH]),
    "the version said twice, to the contrary": (a_cluster(head=a_v2_head("0"), **V1), [_BOTH]),
    "version 2 by its variable, without the autoscaler": (a_cluster(head=a_v2_head("1")), [_OFF.format("1")]),
    "version 2 by its variable in words, without the autoscaler": (
        a_cluster(head=a_v2_head("true")),
        [_OFF.format("true")],
    ),
    "a negative time-out": (
        a_cluster(**AUTOSCALED, autoscalerOptions={"idleTimeoutSeconds": -1}),
        ["autoscalerOptions.idleTimeoutSeconds must be non-negative, got -1"],
    ),
    "a group's negative time-out": (
        a_cluster(a_group(idleTimeoutSeconds=-5), **V2),
        ["worker group small: idleTimeoutSeconds must be non-negative, got -5"],
    ),
    "a group's negative time-out without v2": (
        a_cluster(a_group(idleTimeoutSeconds=-5)),
        ["worker group small: idleTimeoutSeconds must be non-negative, got -5"],
    ),
    "a group's time-out without v2": (a_cluster(a_group(idleTimeoutSeconds=5), **AUTOSCALED), [_IDLE]),
    "a group's time-out with v1": (a_cluster(a_group(idleTimeoutSeconds=5), **V1), [_IDLE]),
    "a head that restarts": (
        a_cluster(head=a_template(restartPolicy="Always"), **V2),
        ["restartPolicy for head Pod should be Never or unset when using autoscaler V2"],
    ),
    "workers that restart": (
        a_cluster(a_group("one"), restarting(groupName="two"), **V2),
        ["restartPolicy for worker group two should be Never or unset when using autoscaler V2"],
    ),
    "the autoscaler's own command": (
        a_cluster(
            **AUTOSCALED, autoscalerOptions={"env": [{"name": "KUBERAY_GEN_AUTOSCALER_START_CMD", "value": "ray"}]}
        ),
        [
            "autoscalerOptions.env must not contain KUBERAY_GEN_AUTOSCALER_START_CMD: "
            "it is managed by KubeRay and injected automatically into the autoscaler container"
        ],
    ),
    "the head's resources said twice": (
        with_head(resources={"CPU": "1"}, rayStartParams={"num-cpus": "1"}),
        [_TWICE.format("Head")],
    ),
    "a group's resources said twice": (
        a_cluster(a_group(resources={"CPU": "1"}, rayStartParams={"resources": "{}"})),
        [_TWICE.format("small")],
    ),
    "labels as a parameter": (
        with_head(rayStartParams={"labels": "a=b"}),
        ["rayStartParams['labels'] is not supported for Head group; please use the top-level Labels field instead"],
    ),
    "a label's key": (
        a_cluster(a_group(labels={"a b": "c"})),
        ["invalid label key for small group: 'a b'"],
    ),
    "a label's prefix": (with_head(labels={"A.b/c": "d"}), ["invalid label key for Head group: 'A.b/c'"]),
    "a label's value": (
        a_cluster(a_group(labels={"a": "b c"})),
        ["invalid label value for key 'a' in small group: 'b c'"],
    ),
    "a priority without a version": (
        a_cluster(a_group(priority=3), **V2),
        [
            "worker group small: priority is set, but RayVersion was not specified. "
            "Ray version 2.56.0 or later is required"
        ],
    ),
    "a priority with a version that is none": (
        a_cluster(a_group(priority=3), **V2, rayVersion="nightly"),
        [
            "worker group small: priority is set, but RayVersion format is invalid: nightly, "
            'could not parse "nightly" as version'
        ],
    ),
    "a priority with half a version": (
        a_cluster(a_group(priority=3), **V2, rayVersion="3"),
        ['worker group small: priority is set, but RayVersion format is invalid: 3, illegal version string "3"'],
    ),
    "a priority with a version of too many digits": (
        a_cluster(a_group(priority=3), **V2, rayVersion=f"2.{'9' * 5000}"),
        [
            f"worker group small: priority is set, but RayVersion format is invalid: 2.{'9' * 5000}, "
            f'illegal non-numeric version component "{"9" * 5000}" in "2.{"9" * 5000}"'
        ],
    ),
    "a priority with an old version": (
        a_cluster(a_group(priority=3), **V2, rayVersion="2.55.9"),
        ["worker group small: priority is set, but minimum Ray version is 2.56.0, got 2.55.9"],
    ),
    "a priority without v2": (
        a_cluster(a_group(priority=3), **AUTOSCALED, rayVersion="2.56.0"),
        [
            "worker group small: priority is set to 3, but autoscaler v2 is not enabled. "
            "Priority is only supported with autoscaler v2 enabled"
        ],
    ),
    "fault tolerance said twice": (
        annotated(a_cluster(**FAULT_TOLERANT), ft_enabled="true"),
        [
            "ray.io/ft-enabled annotation and GcsFaultToleranceOptions are both set. "
            "Please use only GcsFaultToleranceOptions to configure GCS fault tolerance"
        ],
    ),
    "Redis without fault tolerance": (
        annotated(a_cluster(head=a_head(RAY_REDIS_ADDRESS="redis:6379")), ft_enabled="false"),
        [
            "RAY_REDIS_ADDRESS is set which implicitly enables GCS fault tolerance, but GcsFaultToleranceOptions is "
            "not set. Please set GcsFaultToleranceOptions to enable GCS fault tolerance"
        ],
    ),
    "a password as a parameter": (
        with_head(cluster=a_cluster(**FAULT_TOLERANT), rayStartParams={"redis-password": "x"}),
        [_INSTEAD.format("`redis-password` in rayStartParams", "RedisPassword")],
    ),
    "a password as a variable": (
        a_cluster(head=a_head(REDIS_PASSWORD="x"), **FAULT_TOLERANT),
        [_INSTEAD.format("`REDIS_PASSWORD` env var in head Pod", "RedisPassword")],
    ),
    "an address as a variable": (
        a_cluster(head=a_head(RAY_REDIS_ADDRESS="redis:6379"), **FAULT_TOLERANT),
        [_INSTEAD.format("`RAY_REDIS_ADDRESS` env var in head Pod", "RedisAddress")],
    ),
    "the namespace in Redis as an annotation": (
        annotated(a_cluster(**FAULT_TOLERANT), external_storage_namespace="mine"),
        [_INSTEAD.format("`ray.io/external-storage-namespace` annotation", "ExternalStorageNamespace")],
    ),
    "a volume for Redis": (
        a_cluster(gcsFaultToleranceOptions={"redisAddress": "redis:6379", "storage": {"claimName": "gcs"}}),
        [
            "cannot set GcsFaultToleranceOptions.Storage when backend is 'redis' - "
            "it only applies to the 'rocksdb' backend"
        ],
    ),
    "a username as a parameter": (with_head(rayStartParams={"redis-username": "x"}), [_USERNAME]),
    "a username as a variable": (a_cluster(head=a_head(REDIS_USERNAME="x")), [_USERNAME]),
    "tokens without a version": (
        a_cluster(authOptions=_TOKEN),
        ["authOptions.mode is 'token' but RayVersion was not specified. Ray version 2.52.0 or later is required"],
    ),
    "tokens with a version that is none": (
        a_cluster(authOptions=_TOKEN, rayVersion="02.52"),
        [
            "authOptions.mode is 'token' but RayVersion format is invalid: 02.52, "
            'illegal zero-prefixed version component "02" in "02.52"'
        ],
    ),
    "tokens with an old version": (
        a_cluster(authOptions=_TOKEN, rayVersion="2.51.2"),
        ["authOptions.mode is 'token' but minimum Ray version is 2.52.0, got 2.51.2"],
    ),
    "Kubernetes' tokens with an old version": (
        a_cluster(authOptions=_KUBERNETES, rayVersion="2.54.0"),
        ["authOptions.enableK8sTokenAuth is enabled but minimum Ray version is 2.55.0, got 2.54.0"],
    ),
    "Kubernetes' tokens and a secret": (
        a_cluster(authOptions=_KUBERNETES | {"secretName": "token"}, rayVersion="2.55.0"),
        ["authOptions.enableK8sTokenAuth is enabled and authOptions.secretName is also set"],
    ),
    "Kubernetes' tokens without tokens": (
        a_cluster(authOptions={"enableK8sTokenAuth": True}),
        ["authOptions.enableK8sTokenAuth is enabled but authOptions.mode not set to 'token'"],
    ),
    "everything at once": (
        a_cluster(a_group("a", minReplicas=None), a_group("b", minReplicas=9)),
        [
            "worker group a must set both minReplicas and maxReplicas when autoscaling is disabled",
            "worker group b has minReplicas 9 greater than maxReplicas 8",
        ],
    ),
}

ACCEPTED_CLUSTERS: dict[str, Manifest] = {
    "plain": a_cluster(),
    "the longest name": named(a_cluster(), "a" * 53),
    "no bounds, with the autoscaler": a_cluster(a_group(minReplicas=None, maxReplicas=None), **AUTOSCALED),
    "equal bounds": a_cluster(a_group(minReplicas=3, maxReplicas=3)),
    "a suspended group without the autoscaler": a_cluster(a_group(suspend=True)),
    "version 2": a_cluster(**V2),
    "version 2 by its variable": a_cluster(head=a_v2_head("1"), **AUTOSCALED),
    "not version 2, by its variable, without the autoscaler": a_cluster(head=a_v2_head("0")),
    "the version said twice of an autoscaler that is off": a_cluster(
        head=a_v2_head("0"), autoscalerOptions={"version": "v1"}
    ),
    "no time-out": a_cluster(**AUTOSCALED, autoscalerOptions={"idleTimeoutSeconds": 0}),
    "a group's time-out with v2": a_cluster(a_group(idleTimeoutSeconds=5), **V2),
    "a group's time-out with v2 by its variable": a_cluster(
        a_group(idleTimeoutSeconds=5), head=a_v2_head("true"), **AUTOSCALED
    ),
    "a head that may restart with v1": a_cluster(head=a_template(restartPolicy="Always"), **AUTOSCALED),
    "a head that may restart, v2 by its variable": a_cluster(head=a_v2_head("1", restartPolicy="Always"), **AUTOSCALED),
    "a head that does not restart": a_cluster(head=a_template(restartPolicy="Never"), **V2),
    "workers that restart with v1": a_cluster(restarting(), **V1),
    "workers that restart, v2 without the autoscaler": a_cluster(restarting(), autoscalerOptions={"version": "v2"}),
    "workers that do not restart": a_cluster(a_group(template=a_template(restartPolicy="Never")), **V2),
    "resources in one place": with_head(resources={"CPU": "1"}, rayStartParams={"dashboard-host": "0.0.0.0"}),
    "labels": a_cluster(a_group(labels={"example.com/zone": "a_1", "tier": ""})),
    "a priority": a_cluster(a_group(priority=3), **V2, rayVersion="2.56.0rc1"),
    "no priority": a_cluster(a_group(priority=0)),
    "fault tolerance": a_cluster(**FAULT_TOLERANT),
    "fault tolerance by annotation": annotated(
        a_cluster(head=a_head(RAY_REDIS_ADDRESS="redis:6379")), ft_enabled="true"
    ),
    "tokens": a_cluster(authOptions=_TOKEN, rayVersion="v2.52"),
    "Kubernetes' tokens": a_cluster(authOptions=_KUBERNETES, rayVersion="2.55.0"),
}

_NO_SUSPENSION = "a RayJob with shutdownAfterJobFinishes set to false is not allowed to be suspended"

REFUSED_RAYJOBS: dict[str, tuple[Manifest, list[str]]] = {
    "a long name": (named(a_rayjob(), "a" * 48), ["RayJob name should be no more than 47 characters"]),
    "a name that is no label": (
        named(a_rayjob(), "a.b"),
        [f"RayJob name should be a valid DNS1035 label: {_LABEL}"],
    ),
    "suspended without a shutdown": (a_rayjob(shutdownAfterJobFinishes=False), [_NO_SUSPENSION]),
    "a time to live without a shutdown": (
        a_rayjob(suspend=False, shutdownAfterJobFinishes=False, ttlSecondsAfterFinished=5),
        ["a RayJob with shutdownAfterJobFinishes set to false cannot have TTLSecondsAfterFinished"],
    ),
    "a negative time to live": (
        a_rayjob(ttlSecondsAfterFinished=-1),
        ["TTLSecondsAfterFinished must be a non-negative integer"],
    ),
    "no time": (a_rayjob(activeDeadlineSeconds=0), ["activeDeadlineSeconds must be a positive integer"]),
    "no time to begin": (
        a_rayjob(preRunningDeadlineSeconds=0),
        ["preRunningDeadlineSeconds must be a positive integer"],
    ),
    "negative retries": (a_rayjob(backoffLimit=-1), ["backoffLimit must be a positive integer"]),
    "retries of a user's own submissions": (
        a_rayjob(submissionMode="InteractiveMode", backoffLimit=2),
        ["BackoffLimit is incompatible with InteractiveMode"],
    ),
    "a sidecar with a template": (
        a_rayjob(submissionMode="SidecarMode", submitterPodTemplate=a_template()),
        ["Currently, SidecarMode doesn't support SubmitterPodTemplate"],
    ),
    "a sidecar with retries of its own": (
        a_rayjob(submissionMode="SidecarMode", submitterConfig={"backoffLimit": 2}),
        ["Currently, SidecarMode doesn't support SubmitterConfig"],
    ),
    "a sidecar of a head that restarts": (
        a_rayjob(submissionMode="SidecarMode", cluster=a_cluster_spec(head=a_template(restartPolicy="OnFailure"))),
        ["restartPolicy for head Pod should be Never or unset when using SidecarMode"],
    ),
    "no cluster": (
        a_rayjob(rayClusterSpec=None),
        ["one of RayClusterSpec or ClusterSelector must be set"],
    ),
    "Kubernetes' tokens": (
        a_rayjob(cluster=a_cluster_spec(authOptions=_KUBERNETES, rayVersion="2.55.0")),
        ["K8s token auth mode is currently not supported for RayJob"],
    ),
    "a cluster that KubeRay would refuse": (
        a_rayjob(a_group(minReplicas=5, maxReplicas=3)),
        ["worker group small has minReplicas 5 greater than maxReplicas 3"],
    ),
    "a cluster that the job's annotations forbid": (
        annotated(a_rayjob(cluster=a_cluster_spec(**FAULT_TOLERANT)), external_storage_namespace="mine"),
        [_INSTEAD.format("`ray.io/external-storage-namespace` annotation", "ExternalStorageNamespace")],
    ),
}

REFUSED_CHILDREN: dict[str, tuple[Manifest, list[str]]] = {
    "an upgrade": (
        a_rayjob(cluster=a_cluster_spec(upgradeStrategy={"type": "Recreate"})),
        ["upgradeStrategy cannot be set when RayCluster is created by RayJob"],
    ),
}
"""RayJobs that KubeRay takes, and then refuses the RayCluster that it makes for them."""

ACCEPTED_RAYJOBS: dict[str, Manifest] = {
    "plain": a_rayjob(),
    "the longest name": named(a_rayjob(), "a" * 47),
    "kept, not suspended": a_rayjob(suspend=False, shutdownAfterJobFinishes=False, ttlSecondsAfterFinished=0),
    "with a time to live": a_rayjob(ttlSecondsAfterFinished=5),
    "with a deadline": a_rayjob(activeDeadlineSeconds=1, preRunningDeadlineSeconds=1),
    "with retries": a_rayjob(backoffLimit=2),
    "without a submitter": a_rayjob(submissionMode="HTTPMode"),
    "a user's own submissions": a_rayjob(submissionMode="InteractiveMode", backoffLimit=0),
    "a submitter of its own": a_rayjob(submitterPodTemplate=a_template(), submitterConfig={"backoffLimit": 2}),
    "a sidecar": a_rayjob(submissionMode="SidecarMode"),
    "a sidecar of a head that does not restart": a_rayjob(
        submissionMode="SidecarMode", cluster=a_cluster_spec(head=a_template(restartPolicy="Never"))
    ),
    "a head that restarts": a_rayjob(cluster=a_cluster_spec(head=a_template(restartPolicy="Always"))),
}


def upgraded(**options: Any) -> Manifest:
    """A service that is upgraded in steps, with these options beside those that it needs."""
    needed = {"stepSizePercent": 10, "intervalSeconds": 30, "gatewayClassName": "istio"}
    strategy = {"type": "NewClusterWithIncrementalUpgrade", "clusterUpgradeOptions": needed | options}
    return a_rayservice(cluster=a_cluster_spec(**AUTOSCALED), upgradeStrategy=strategy)


REFUSED_RAYSERVICES: dict[str, tuple[Manifest, list[str]]] = {
    "a long name": (named(a_rayservice(), "s" * 48), ["RayService name should be no more than 47 characters"]),
    "token authentication": (
        a_rayservice(
            cluster=a_cluster_spec(authOptions={"mode": "token", "enableK8sTokenAuth": True}, rayVersion="2.55.0")
        ),
        ["K8s token auth mode is currently not supported for RayService"],
    ),
    "a name for the head's Service": (
        a_rayservice(
            cluster=with_head(headService={"metadata": {"name": "own"}})["spec"],
        ),
        ["spec.rayClusterConfig.headGroupSpec.headService.metadata.name should not be set"],
    ),
    "an unknown upgrade": (
        a_rayservice(upgradeStrategy={"type": "Recreate"}),
        [
            "Spec.UpgradeStrategy.Type value Recreate is invalid, valid options are NewClusterWithIncrementalUpgrade, "
            "NewCluster, or None"
        ],
    ),
    "a negative delay": (
        a_rayservice(rayClusterDeletionDelaySeconds=-1),
        ["Spec.RayClusterDeletionDelaySeconds should be a non-negative integer, got -1"],
    ),
    "steps without the autoscaler": (
        a_rayservice(upgradeStrategy={"type": "NewClusterWithIncrementalUpgrade"}),
        ["Ray Autoscaler is required for NewClusterWithIncrementalUpgrade"],
    ),
    "steps without options": (
        a_rayservice(
            cluster=a_cluster_spec(**AUTOSCALED), upgradeStrategy={"type": "NewClusterWithIncrementalUpgrade"}
        ),
        ["ClusterUpgradeOptions are required for NewClusterWithIncrementalUpgrade"],
    ),
    "too much of a surge": (upgraded(maxSurgePercent=101), ["maxSurgePercent must be between 0 and 100"]),
    "no step": (upgraded(stepSizePercent=None), ["stepSizePercent must be between 0 and 100"]),
    "steps larger than the surge": (
        upgraded(maxSurgePercent=5),
        ["stepSizePercent must be less than or equal to maxSurgePercent"],
    ),
    "no time between steps": (upgraded(intervalSeconds=0), ["intervalSeconds must be greater than 0"]),
    "no gateway": (
        upgraded(gatewayClassName=""),
        ["gatewayClassName is required for NewClusterWithIncrementalUpgrade"],
    ),
    "a cluster that KubeRay would refuse": (
        a_rayservice(a_group(minReplicas=3, maxReplicas=1)),
        ["worker group small has minReplicas 3 greater than maxReplicas 1"],
    ),
}
ACCEPTED_RAYSERVICES: dict[str, Manifest] = {
    "a plain one": a_rayservice(),
    "the longest name": named(a_rayservice(), "s" * 47),
    "another cluster for an upgrade": a_rayservice(upgradeStrategy={"type": "NewCluster"}),
    "no upgrades": a_rayservice(upgradeStrategy={"type": "None"}, rayClusterDeletionDelaySeconds=0),
    "an upgrade in steps": upgraded(maxSurgePercent=50),
}
