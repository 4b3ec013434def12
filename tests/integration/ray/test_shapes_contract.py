"""Clusters, jobs and services as people write them: KubeRay makes the pods that slicebus charges for, and none that
requests more.

The shapes are those of KubeRay's samples, in words of our own. Each goes the way of a job: what its kind says of it is
asked first, and the copy that an agent would make is created. The stand-in has to pass on every machine; a real
operator where `KUBERAY_BINARY` and `KUBERAY_CRDS` name one.
"""

import itertools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from integration.ray.contract import Operator
from slicebus.cli.demo import objects
from slicebus.kube.resources import EVENTS, JOB_RESOURCES, PODS
from slicebus.slices.api import kueue
from slicebus.slices.jobs import KINDS
from slicebus.slices.workload.pod_requests import pod_requests
from support.waiting import eventually

Manifest = dict[str, Any]
_numbers = itertools.count(1)
GPU, TPU = "nvidia.com/gpu", "google.com/tpu"


def pod(requests: Manifest | None = None, limits: Manifest | None = None, **spec: Any) -> Manifest:
    """A template with one Ray container."""
    resources = {"requests": requests or {}, "limits": limits or {}}
    container = {"name": "ray", "image": objects.RAY_IMAGE, "resources": {k: v for k, v in resources.items() if v}}
    return {"spec": {"containers": [container], **spec}}


def group(name: str, template: Manifest, **fields: Any) -> Manifest:
    sizes = {"replicas": 1, "minReplicas": 1, "maxReplicas": 4, "rayStartParams": {}}
    return sizes | {"groupName": name, "template": template} | fields


def cluster(*groups: Manifest, head: Manifest | None = None, **fields: Any) -> Manifest:
    """The spec of a RayCluster; its head requests a core."""
    of_head = {"rayStartParams": {"dashboard-host": "0.0.0.0"}, "template": head or pod({"cpu": "1", "memory": "2Gi"})}
    return {"rayVersion": "2.50.0", "headGroupSpec": of_head, "workerGroupSpecs": list(groups), **fields}


SMALL = pod({"cpu": "500m", "memory": "1Gi"}, {"cpu": "1", "memory": "2Gi"})
BESIDE = {"name": "logs", "image": "fluent-bit", "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}
SCRATCH = {"volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}}]}
LIVE_RESIZE = {"version": "v2", "idleTimeoutSeconds": 30, "upscalingMode": "Conservative"}
SIZED_AUTOSCALER = {"resources": {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"cpu": "1"}}}
SHAPES: dict[str, Manifest] = {
    "one-group": cluster(group("workers", SMALL)),
    "a-head-alone": cluster(),
    "several-groups": cluster(group("cpu", SMALL, replicas=2), group("more", SMALL, replicas=0, minReplicas=0)),
    "limits-only": cluster(group("workers", pod(limits={"cpu": "1", "memory": "1Gi"}))),
    "no-resources": cluster(group("workers", pod()), head=pod()),
    "accelerators": cluster(group("gpu", pod({"cpu": "1", GPU: "1"}, {GPU: "1"}), replicas=2)),
    "slices-of-hosts": cluster(group("tpu", pod({"cpu": "1"}, {TPU: "4"}), numOfHosts=2, replicas=2)),
    "a-sidecar": cluster(group("workers", {"spec": {"containers": [*SMALL["spec"]["containers"], BESIDE]}})),
    "an-init-container": cluster(
        group("workers", pod({"cpu": "1"}, initContainers=[BESIDE | {"resources": {"requests": {"cpu": "3"}}}]))
    ),
    "volumes-and-places": cluster(
        group(
            "workers", pod({"cpu": "1"}, nodeSelector={"disk": "ssd"}, tolerations=[{"operator": "Exists"}], **SCRATCH)
        )
    ),
    "autoscaler": cluster(group("workers", SMALL), enableInTreeAutoscaling=True),
    "autoscaler-of-its-own-size": cluster(
        group("workers", SMALL), enableInTreeAutoscaling=True, autoscalerOptions=SIZED_AUTOSCALER
    ),
    "autoscaler-v2": cluster(group("workers", SMALL), enableInTreeAutoscaling=True, autoscalerOptions=LIVE_RESIZE),
    "outside-redis": cluster(
        group("workers", SMALL),
        gcsFaultToleranceOptions={"redisAddress": "redis:6379", "externalStorageNamespace": "a"},
    ),
    "sizes-that-do-not-fit": cluster(group("workers", SMALL, replicas=9), enableInTreeAutoscaling=True),
}
FIELDS = {"RayCluster": "", "RayJob": "rayClusterSpec", "RayService": "rayClusterConfig"}
"""Where each kind has the spec of its cluster."""
SUBMITTER = {"spec": {"restartPolicy": "Never", **pod({"cpu": "200m"}, {"cpu": "400m"})["spec"]}}
RUNTIME = "pip: [requests]\nenv_vars:\n  STEP: one\n"
APPLICATIONS = (
    "applications:\n- name: text\n  import_path: app.graph\n  route_prefix: /text\n- name: image\n  import_path: b:c\n"
)
OF_KIND: dict[str, dict[str, Manifest]] = {
    "RayJob": {
        "a-submitter-of-its-own": {"submitterPodTemplate": SUBMITTER, "submitterConfig": {"backoffLimit": 0}},
        "http-mode": {"submissionMode": "HTTPMode"},
        "sidecar-mode": {"submissionMode": "SidecarMode"},
        "an-environment": {"runtimeEnvYAML": RUNTIME, "metadata": {"owner": "team"}},
        "resources-of-the-entrypoint": {"entrypointNumCpus": 1, "entrypointResources": '{"accelerator": 1}'},
        "an-end": {"shutdownAfterJobFinishes": True, "ttlSecondsAfterFinished": 60, "activeDeadlineSeconds": 3600},
        "more-tries": {"backoffLimit": 2},
        "a-job-id": {"jobId": "nightly-1"},
    },
    "RayService": {
        "several-applications": {"serveConfigV2": APPLICATIONS},
        "a-new-cluster-for-each-upgrade": {"upgradeStrategy": {"type": "NewCluster"}},
        "no-upgrade": {"upgradeStrategy": {"type": "None"}},
        "a-head-that-serves-nothing": {"excludeHeadPodFromServeSvc": True},
        "an-old-cluster-that-stays-a-while": {"rayClusterDeletionDelaySeconds": 120},
        "thresholds": {"serviceUnhealthySecondThreshold": 300, "deploymentUnhealthySecondThreshold": 300},
    },
}
BASE: dict[str, Manifest] = {
    "RayCluster": {},
    "RayJob": {"entrypoint": "python train.py"},
    "RayService": {"serveConfigV2": "applications: []"},
}
CASES = [
    *(pytest.param(kind, shape, {}, id=f"{kind}-{name}") for kind in FIELDS for name, shape in SHAPES.items()),
    *(
        pytest.param(kind, SHAPES["one-group"], fields, id=f"{kind}-{name}")
        for kind, named in OF_KIND.items()
        for name, fields in named.items()
    ),
]


def job_of(kind: str, spec: Manifest, fields: Manifest) -> Manifest:
    """A job of a kind; `fields` are beside the spec of its cluster."""
    field = FIELDS[kind]
    metadata = {"name": f"shape{next(_numbers)}", "namespace": "", "annotations": {kueue.ELASTIC_ANNOTATION: "true"}}
    whole = BASE[kind] | fields | ({field: spec} if field else spec)
    return {"apiVersion": "ray.io/v1", "kind": kind, "metadata": metadata, "spec": whole}


Make = Callable[[Manifest], Awaitable[None]]


@pytest.fixture
async def make(operator: Operator) -> AsyncIterator[Make]:
    """Creates the copy of a job, which is deleted at the end: an operator has one namespace for all tests."""
    made: list[Manifest] = []

    async def create(job: Manifest) -> None:
        copy = KINDS[job["kind"]].worker_copy(job, {})
        copy["metadata"]["namespace"] = operator.namespace
        made.append(await operator.client.create(JOB_RESOURCES[job["kind"]], copy))

    yield create
    for one in made:
        await operator.client.delete(JOB_RESOURCES[one["kind"]], one["metadata"]["name"], operator.namespace)


async def pods_of(operator: Operator, job: Manifest) -> list[Manifest]:
    """The pods of a RayCluster, or of the clusters of a RayJob or RayService."""
    name = job["metadata"]["name"]
    found = (await operator.client.list(PODS, namespace=operator.namespace, labels="ray.io/cluster")).items
    return [one for one in found if f"{one['metadata']['labels']['ray.io/cluster']}-".startswith(f"{name}-")]


@pytest.mark.parametrize(("kind", "shape", "fields"), CASES)
async def test_the_pods_are_those_that_are_charged(
    operator: Operator, make: Make, kind: str, shape: Manifest, fields: Manifest
) -> None:
    """Those behind their gates: a submitter comes once the cluster is ready."""
    job = job_of(kind, shape, fields)
    assert KINDS[kind].problems(job) == []
    charged = {pod_set["name"]: pod_set for pod_set in KINDS[kind].pod_sets(job)}
    at_once = charged.keys() - KINDS[kind].late_pod_sets(job)
    await make(job)

    async def pods() -> list[Manifest] | None:
        found = await pods_of(operator, job)
        wanted = {name: charged[name]["count"] for name in at_once if charged[name]["count"]}
        counts = Counter(one["metadata"]["labels"][kueue.POD_SET_LABEL] for one in found)
        return found if counts == wanted else None

    made = await eventually(pods, "every pod set has its pods")
    assert made is not None
    for one in made:
        name = one["metadata"]["labels"][kueue.POD_SET_LABEL]
        requested, allowed = pod_requests(one["spec"]), pod_requests(charged[name]["template"]["spec"])
        past = {resource: value for resource, value in requested.items() if value > allowed.get(resource, 0)}
        assert not past, f"a pod of {name} requests {requested}, and is charged {allowed}"
        if operator.is_real:
            assert requested == {resource: value for resource, value in allowed.items() if resource in requested}


REFUSED = {"tlsOptions": {}}


async def test_a_refused_one_has_no_pods_and_an_event(operator: Operator, make: Make) -> None:
    """With the operator's gate for it off, as it is by default. KubeRay 1.5 has no such field."""
    job = job_of("RayCluster", cluster(group("workers", SMALL)) | REFUSED, {})
    await make(job)
    made = await operator.client.get(JOB_RESOURCES["RayCluster"], job["metadata"]["name"], operator.namespace)
    if not REFUSED.keys() <= made["spec"].keys():
        pytest.skip("this KubeRay has no tlsOptions")

    async def told() -> bool:
        about = f"involvedObject.name={job['metadata']['name']},type=Warning"
        found = (await operator.client.list(EVENTS, namespace=operator.namespace, fields=about)).items
        return any(event["reason"] == "InvalidRayClusterSpec" for event in found)

    await eventually(told, "an Event says that it is refused")
    assert not await pods_of(operator, job)
