"""Jobs as a user writes them for the manager."""

from typing import Any

Manifest = dict[str, Any]

GATE = {"name": "kueue.x-k8s.io/elastic-job"}
POD_SET = "kueue.x-k8s.io/podset"
NAMED_OF_A_CLUSTER: Manifest = {
    "runtimeClassName": "kata",
    "priorityClassName": "batch",
    "serviceAccountName": "default",
    "schedulerName": "default-scheduler",
    "tolerations": [{"key": "spot", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}],
    "volumes": [{"name": "data", "csi": {"driver": "csi.example.dev"}}, {"name": "scratch", "emptyDir": {}}],
}
"""What a pod names that belongs to its cluster."""
ODD_NAMES: dict[str, tuple[Manifest, str]] = {
    "a RuntimeClass": ({"runtimeClassName": ["kata"]}, "runtimeClassName"),
    "a PriorityClass": ({"priorityClassName": ["x"]}, "priorityClassName"),
    "a service account": ({"serviceAccountName": 7}, "serviceAccountName"),
    "the older name of that": ({"serviceAccount": {}}, "serviceAccount"),
    "a scheduler": ({"schedulerName": []}, "schedulerName"),
    "tolerations": ({"tolerations": "all"}, "tolerations"),
    "the key of a taint": ({"tolerations": [{"key": ["x"]}]}, "tolerations[0].key"),
    "volumes": ({"volumes": "odd"}, "volumes"),
    "a volume": ({"volumes": ["odd"]}, "volumes[0]"),
    "a driver": ({"volumes": [{"csi": {"driver": {}}}]}, "volumes[0].csi.driver"),
    "what a driver mounts": ({"volumes": [{"flexVolume": "x"}]}, "volumes[0].flexVolume"),
}
"""Fields of a PodSpec of another type than Kubernetes' API, and the paths that are named."""


def metadata(name: str = "demo", **annotations: str) -> Manifest:
    """What has to go, and what has to stay, on the way to a worker."""
    return {
        "name": name,
        "namespace": "team",
        "uid": "u1",
        "generation": 3,
        "resourceVersion": "17",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "ownerReferences": [{"kind": "CronJob"}],
        "finalizers": ["example.com/keep"],
        "labels": {"app": "demo", "kueue.x-k8s.io/queue-name": "lq", "kueue.x-k8s.io/priority-class": "high"},
        "annotations": {
            "note": "kept",
            "kueue.x-k8s.io/elastic-job": "true",
            "kubectl.kubernetes.io/last-applied-configuration": "{}",
            "slicebus.dev/requested": "{}",
            "slicebus.dev/dispatched": "{}",
            "slicebus.dev/applied": "1",
        }
        | annotations,
    }


def a_template(cpu: str = "1", **spec: Any) -> Manifest:
    resources = {"requests": {"cpu": cpu}}
    return {"spec": {"containers": [{"name": "main", "image": "demo:1", "resources": resources}]} | spec}


def a_job(**spec: Any) -> Manifest:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(),
        "spec": {
            "parallelism": 3,
            "suspend": True,
            "managedBy": "kueue.x-k8s.io/multikueue",
            "template": a_template(restartPolicy="Never"),
        }
        | spec,
        "status": {"active": 0},
    }


def a_group(name: str = "small", **fields: Any) -> Manifest:
    return {
        "groupName": name,
        "replicas": 2,
        "minReplicas": 1,
        "maxReplicas": 8,
        "numOfHosts": 1,
        "template": a_template(),
    } | fields


def a_cluster_spec(*groups: Manifest, head: Manifest | None = None, **fields: Any) -> Manifest:
    return {
        "headGroupSpec": {"rayStartParams": {}, "template": head or a_template("2")},
        "workerGroupSpecs": list(groups),
    } | fields


def a_cluster(*groups: Manifest, **fields: Any) -> Manifest:
    own = {"suspend": True, "managedBy": "kueue.x-k8s.io/multikueue"}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": metadata(),
        "spec": own | a_cluster_spec(*(groups or (a_group(),)), **fields),
        "status": {"state": "suspended"},
    }


def a_rayjob(*groups: Manifest, cluster: Manifest | None = None, **spec: Any) -> Manifest:
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": metadata(),
        "spec": {
            "entrypoint": "python demo.py",
            "shutdownAfterJobFinishes": True,
            "suspend": True,
            "managedBy": "kueue.x-k8s.io/multikueue",
            "rayClusterSpec": cluster or a_cluster_spec(*(groups or (a_group(),))),
        }
        | spec,
        "status": {},
    }


def a_rayservice(*groups: Manifest, cluster: Manifest | None = None, **spec: Any) -> Manifest:
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayService",
        "metadata": metadata(),
        "spec": {
            "serveConfigV2": "applications: []",
            "managedBy": "kueue.x-k8s.io/multikueue",
            "rayClusterConfig": cluster or a_cluster_spec(*(groups or (a_group(),))),
        }
        | spec,
        "status": {},
    }
