"""What a leaked token of the agent can do on its worker cluster, and what a tenant can: on a real API server, with the
roles and the ValidatingAdmissionPolicies of the agent's chart."""

import copy
import json
import re
from typing import Any

import pytest

from slicebus.cli.demo import objects
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.resources import WORKLOADS
from slicebus.proto.errors import ForbiddenError
from slicebus.slices.api import api_names, kueue
from support.accounts import OTHER_NAMESPACE, TENANT_NAMESPACE, Account, Refused, Worker, child_of, copy_of, pod_of
from support.helm import NAMESPACE as SYSTEM_NAMESPACE
from support.helm import Manifest

pytestmark = [pytest.mark.helm, pytest.mark.controlplane]

HERE = ("-n", TENANT_NAMESPACE)
SYSTEM = ("-n", SYSTEM_NAMESPACE)


def remove(path: str) -> list[Manifest]:
    """A JSON patch."""
    return [{"op": "remove", "path": path}]


UNGATE = remove("/spec/schedulingGates/0")
POD = "POD"
"""Stands for a gated pod of the Job `sweep`."""
ORIGIN = {api_names.ORIGIN_LABEL: api_names.ORIGIN}
GATE = {"name": kueue.ELASTIC_GATE}
IMAGE = {"spec": {"containers": [{"name": "main", "image": "evil"}]}}
BARE: Manifest = {"metadata": {}, "spec": {"containers": [{"name": "main", "image": "busybox"}]}}
FOREIGN = "touches only objects with the label slicebus.dev/origin=slicebus"


def patch(kind: str, name: str, body: object, *more: str) -> tuple[str, ...]:
    """`kubectl patch`."""
    type = "json" if isinstance(body, list) else "strategic" if kind == "pod" else "merge"
    return ("patch", kind, name, *HERE, f"--type={type}", "-p", json.dumps(body), *more)


def labelled(name: str, value: str | None) -> Manifest:
    """A patch of one label."""
    return {"metadata": {"labels": {name: value}}}


def noted(name: str, value: str | None) -> Manifest:
    """A patch of one annotation."""
    return {"metadata": {"annotations": {name: value}}}


def job(name: str, **metadata: Any) -> Manifest:
    """A plain Job, suspended: nobody runs it."""
    made = objects.job(name)
    spec = {key: value for key, value in made["spec"].items() if key != "managedBy"} | {"suspend": True}
    return made | {"metadata": {"name": name, "namespace": TENANT_NAMESPACE, **metadata}, "spec": spec}


def held(**pod: Any) -> Manifest:
    """A Job of the agent's, with these fields in its pod template."""
    made = job("held", labels=ORIGIN)
    template = made["spec"]["template"]
    return made | {"spec": made["spec"] | {"template": template | {"spec": template["spec"] | pod}}}


def ours(made: Manifest, path: str, value: Any) -> Manifest:
    """A job of the agent's, with this value in its spec."""
    made = copy_of(made)
    *above, last = path.split(".")
    target = made["spec"]
    for name in above:
        target = target[name]
    target[last] = value
    return made


def labelling(made: Manifest, labels: dict[str, str]) -> Manifest:
    """A tenant's own RayCluster or RayJob, whose worker pods get these labels by their group."""
    spec = copy.deepcopy(made["spec"])
    spec.get("rayClusterSpec", spec)["workerGroupSpecs"][0]["labels"] = labels
    return made | {"metadata": {"name": made["metadata"]["name"], "namespace": TENANT_NAMESPACE}, "spec": spec}


def config_map(name: str) -> Manifest:
    """In the agent's namespace."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": SYSTEM_NAMESPACE}}


def event(name: str, *, by: str) -> Manifest:
    """An Event."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": TENANT_NAMESPACE},
        "involvedObject": {"apiVersion": "batch/v1", "kind": "Job", "name": "sweep", "namespace": TENANT_NAMESPACE},
        "reason": "Pending",
        "message": "waits",
        "type": "Normal",
        "reportingComponent": by,
        "reportingInstance": "",
    }


def workload(name: str, **metadata: Any) -> Manifest:
    """A Workload."""
    template = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}
    return {
        "apiVersion": kueue.API_VERSION,
        "kind": "Workload",
        "metadata": {"name": name, "namespace": TENANT_NAMESPACE, **metadata},
        "spec": {"podSets": [{"name": "main", "count": 1, "template": template}]},
    }


CHAT = copy_of(objects.ray_service("chat"))
CRITICAL: Manifest = {
    "metadata": copy_of(objects.ray_service("chat"))["spec"]["rayClusterConfig"]["headGroupSpec"]["template"][
        "metadata"
    ],
    "spec": {"priorityClassName": "system-cluster-critical"},
}
AGENT_CANNOT: dict[str, tuple[tuple[str, ...] | Manifest, str]] = {
    "read another namespace's secrets": (("get", "secrets", "-n", OTHER_NAMESPACE), "cannot list"),
    "read its own namespace's secrets": (("get", "secret", "slicebus-amqp", *SYSTEM), "cannot get"),
    "read other ConfigMaps": (("get", "configmap", "kube-root-ca.crt", *SYSTEM), "cannot get"),
    "list ConfigMaps": (("get", "configmaps", *SYSTEM), "cannot list"),
    "make other ConfigMaps": (config_map("other"), "writes only the ConfigMaps slicebus-fence"),
    "read other Leases": (("get", "lease", "slicebus-manager", *SYSTEM), "cannot get"),
    "act as somebody else": (("get", "pods", *HERE, "--as=admin"), "cannot impersonate"),
    "run a command in a pod": (("exec", POD, *HERE, "--", "true"), "cannot create resource"),
    "make a pod": (pod_of(BARE, name="p", owner=None), "cannot create resource"),
    "delete a pod": (("delete", "pod", POD, *HERE), "cannot delete"),
    "change a pod's image": (patch("pod", POD, IMAGE), "only the scheduling gate"),
    "end a pod": (patch("pod", POD, {"spec": {"activeDeadlineSeconds": 1}}), "only the scheduling gate"),
    "change a pod's nodes": (patch("pod", POD, {"spec": {"nodeSelector": {"a": "b"}}}), "only the scheduling gate"),
    "change the image of a pod without a flavor": (patch("pod", "unplaced", IMAGE), "only the scheduling gate"),
    "say that a pod has no flavor": (patch("pod", POD, labelled(api_names.UNPLACED_LABEL, "true")), "only annotations"),
    "label a pod": (patch("pod", POD, labelled("app", "other")), "only annotations"),
    "own a pod's end": (patch("pod", POD, {"metadata": {"finalizers": ["example.dev/mine"]}}), "only annotations"),
    "annotate a pod": (patch("pod", POD, noted("example.dev/a", "b")), "of a pod's annotations"),
    "open another gate": (
        ("patch", "pod", "two-gates", *HERE, "--type=json", "-p", json.dumps(UNGATE)),
        "removes the scheduling gate kueue.x-k8s.io/elastic-job and no other",
    ),
    "ungate a foreign pod": (patch("pod", "foreign", UNGATE), "only pods of jobs that it has made"),
    "annotate a foreign pod": (patch("pod", "foreign", noted(api_names.EPOCH_ANNOTATION, "9")), "only pods of jobs"),
    "change a foreign job": (patch("job", "foreign", {"spec": {"parallelism": 9}}), FOREIGN),
    "take a foreign job over": (patch("job", "foreign", {"metadata": {"labels": ORIGIN}}), FOREIGN),
    "delete a foreign job": (("delete", "job", "foreign", *HERE), FOREIGN),
    "delete a foreign Workload": (("delete", "workload", "foreign", *HERE), FOREIGN),
    "change a foreign Workload": (patch("workload", "foreign", {"spec": {"active": False}}), FOREIGN),
    "change a foreign RayCluster": (patch("raycluster", "foreign", {"spec": {"suspend": True}}), FOREIGN),
    "make a job without our label": (job("bare"), FOREIGN),
    "give a job away": (patch("job", "sweep", labelled(api_names.ORIGIN_LABEL, None)), "off nothing"),
    "make a job in kube-system": (
        job("system", labels=ORIGIN) | {"metadata": {"name": "x", "namespace": "kube-system", "labels": ORIGIN}},
        "in a namespace of the cluster",
    ),
    "make a job beside itself": (
        job("beside", labels=ORIGIN) | {"metadata": {"name": "x", "namespace": SYSTEM_NAMESPACE, "labels": ORIGIN}},
        "or in its own",
    ),
    "name a class of the cluster": (
        held(priorityClassName="system-node-critical"),
        "this PriorityClass (priorityClasses)",
    ),
    "tolerate every taint": (held(tolerations=[{"operator": "Exists"}]), "this toleration (tolerationKeys)"),
    "tolerate the control plane": (
        held(tolerations=[{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}]),
        "this toleration (tolerationKeys)",
    ),
    "name another scheduler": (held(schedulerName="mine"), "this scheduler (schedulerNames)"),
    "mount a driver": (held(volumes=[{"name": "v", "csi": {"driver": "mine"}}]), "of this driver (csiDrivers)"),
    "make an Ingress": (
        ours(objects.ray_cluster("open"), "headGroupSpec.enableIngress", True),
        "an Ingress or a Gateway (ingress)",
    ),
    "make a Gateway": (
        ours(objects.ray_service("open"), "upgradeStrategy", {"type": "NewClusterWithIncrementalUpgrade"}),
        "an Ingress or a Gateway (ingress)",
    ),
    "name another's Service": (
        ours(objects.ray_service("open"), "serveService", {"metadata": {"name": "postgres"}}),
        "a Service of this name (serviceNames)",
    ),
    "name another's Service for a head": (
        ours(objects.ray_cluster("open"), "headGroupSpec.headService", {"metadata": {"name": "postgres"}}),
        "a Service of this name (serviceNames)",
    ),
    "put a class of the cluster into a RayService that runs": (
        patch("rayservice", "chat", {"spec": {"rayClusterConfig": {"headGroupSpec": {"template": CRITICAL}}}}),
        "this PriorityClass (priorityClasses)",
    ),
    "report as somebody else": (event("forged", by="kubelet"), "only Events that it reports itself"),
    "turn the policies off": (("get", "validatingadmissionpolicies"), "cannot list"),
}
AGENT_CAN: dict[str, tuple[str, ...] | Manifest] = {
    "write its tombstones": config_map("slicebus-tombstones"),
    "report": event("own", by="slicebus-agent"),
    "take a pod over": patch("pod", POD, noted(api_names.EPOCH_ANNOTATION, "9")),
    "take a pod over whose annotations are full": patch("pod", POD, labelled(api_names.EPOCH_ANNOTATION, "9")),
    "open our gate": patch("pod", POD, UNGATE, "--dry-run=server"),
    "place a pod without a flavor, and open its gate": patch(
        "pod",
        "unplaced",
        [
            *UNGATE,
            {"op": "add", "path": "/spec/nodeSelector", "value": {"pool": "spot"}},
            {"op": "add", "path": "/spec/tolerations/-", "value": {"key": "spot", "operator": "Exists"}},
        ],
        "--dry-run=server",
    ),
    "grant": patch("job", "sweep", noted(api_names.GRANTED_ANNOTATION, '{"main":1}')),
    "suspend": patch("job", "sweep", {"spec": {"suspend": True}}, "--dry-run=server"),
    "make a Workload": workload("sweep-3", labels=ORIGIN),
    "make a job with a class, a taint and a runtime": held(
        priorityClassName="", tolerations=[{"key": "gpu", "operator": "Exists"}], schedulerName="default-scheduler"
    ),
    "make a RayService with KubeRay's own names": ours(
        objects.ray_service("named"), "serveService", {"metadata": {"name": "named-serve-svc"}}
    ),
    "resize what KubeRay made of its RayJob": patch(
        "raycluster", "tune-older", [{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": 3}]
    ),
    "resize what KubeRay made of its RayService": patch(
        "raycluster", "chat-older", [{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": 3}]
    ),
    "delete its job": ("delete", "rayjob", "tune", *HERE, "--dry-run=server"),
}
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "notes", "uid": "uid-notes", "controller": True}
PARENT = {"ray.io/originated-from-cr-name": "other", "ray.io/originated-from-crd": "RayJob"}
ANOTHERS = {api_names.MANAGER_UID_LABEL: "another", api_names.RAYJOB_LABEL: "tune"}
ONLY_AGENT = "slicebus: only its agent"
KEEP = "the pod templates of its jobs keep the gate"
TENANT_CANNOT: dict[str, tuple[tuple[str, ...] | Manifest, str]] = {
    "grant itself pods": (patch("job", "sweep", noted(api_names.GRANTED_ANNOTATION, '{"main":99}')), ONLY_AGENT),
    "grant itself pods by the status": (
        patch("job", "sweep", noted(api_names.GRANTED_ANNOTATION, '{"main":99}'), "--subresource=status"),
        ONLY_AGENT,
    ),
    "take its grant away": (patch("job", "sweep", noted(api_names.GRANTED_ANNOTATION, None)), ONLY_AGENT),
    "hide a job from the agent": (
        patch("job", "sweep", labelled(api_names.ORIGIN_LABEL, None)),
        ONLY_AGENT,
    ),
    "make its job one of ours": (patch("job", "foreign", {"metadata": {"labels": ORIGIN}}), ONLY_AGENT),
    "make a job of ours": (job("forged", labels=ORIGIN), ONLY_AGENT),
    "make a job with a grant": (job("forged", annotations={api_names.GRANTED_ANNOTATION: '{"main":9}'}), ONLY_AGENT),
    "make a RayCluster of ours": (
        objects.ray_cluster("forged")
        | {"metadata": {"name": "forged", "namespace": TENANT_NAMESPACE, "labels": ORIGIN}},
        ONLY_AGENT,
    ),
    "make a Workload of ours": (workload("forged", labels=ORIGIN), ONLY_AGENT),
    "make a pod of ours": (
        pod_of(
            {"metadata": {"labels": ORIGIN}, "spec": {"containers": [{"name": "a", "image": "b"}]}},
            name="p",
            owner=None,
        ),
        "only the controllers of its jobs",
    ),
    "open a gate": (patch("pod", POD, UNGATE), "only its agent removes the gate"),
    "take our label off a pod": (
        patch("pod", POD, labelled(api_names.MANAGER_UID_LABEL, None)),
        ONLY_AGENT,
    ),
    "hide a pod from the count": (
        patch("pod", POD, labelled(kueue.POD_SET_LABEL, None)),
        "nobody changes the labels",
    ),
    "hide a pod's job": (
        patch("pod", POD, labelled("batch.kubernetes.io/job-name", "other")),
        "nobody changes the labels",
    ),
    "take a pod for one that cleans up Redis": (
        patch("pod", POD, labelled("ray.io/node-type", "redis-cleanup")),
        "nobody changes the labels",
    ),
    "take a submitter for a pod that cleans up Redis": (
        patch(
            "rayjob",
            "tune",
            [
                {
                    "op": "add",
                    "path": "/spec/submitterPodTemplate/metadata/labels/ray.io~1node-type",
                    "value": "redis-cleanup",
                }
            ],
        ),
        "nobody writes the label ray.io/node-type",
    ),
    "give a job a controller of its own": (
        patch("job", "sweep", {"metadata": {"ownerReferences": [OWNER]}}),
        "nobody gives an object of its agent a controller",
    ),
    "give a Workload a controller of its own": (
        patch("workload", "sweep-2", {"metadata": {"ownerReferences": [OWNER]}}),
        "nobody gives an object of its agent a controller",
    ),
    "give a RayCluster a parent of its own": (
        patch("raycluster", "grid", {"metadata": {"labels": PARENT}}),
        "nobody changes the labels that name the parent",
    ),
    "set an epoch": (patch("pod", POD, noted(api_names.EPOCH_ANNOTATION, "99999999")), ONLY_AGENT),
    "set an epoch as a label": (patch("pod", POD, labelled(api_names.EPOCH_ANNOTATION, "99999999")), ONLY_AGENT),
    "take the gate out of a RayCluster": (
        patch("raycluster", "grid", remove("/spec/workerGroupSpecs/0/template/spec/schedulingGates")),
        KEEP,
    ),
    "take the gate out of a RayJob": (
        patch("rayjob", "tune", remove("/spec/submitterPodTemplate/spec/schedulingGates")),
        KEEP,
    ),
    "take the gate out of a RayService": (
        patch("rayservice", "chat", remove("/spec/rayClusterConfig/workerGroupSpecs/0/template/spec/schedulingGates")),
        KEEP,
    ),
    "take our label out of a template": (
        patch(
            "raycluster",
            "grid",
            remove("/spec/headGroupSpec/template/metadata/labels/slicebus.dev~1manager-uid"),
        ),
        KEEP,
    ),
    "add a group without a gate": (
        patch(
            "raycluster",
            "grid",
            [
                {
                    "op": "add",
                    "path": "/spec/workerGroupSpecs/-",
                    "value": {
                        "groupName": "free",
                        "replicas": 9,
                        "minReplicas": 9,
                        "maxReplicas": 9,
                        "rayStartParams": {},
                        "template": BARE,
                    },
                }
            ],
        ),
        KEEP,
    ),
    "write our labels into a template": (
        patch(
            "raycluster",
            "foreign",
            {"spec": {"headGroupSpec": {"template": {"metadata": {"labels": {api_names.MANAGER_UID_LABEL: "x"}}}}}},
        ),
        "only its agent writes slicebus.dev/* in pod templates",
    ),
    "write our labels onto the pods of a group": (
        patch("raycluster", "grid", [{"op": "add", "path": "/spec/workerGroupSpecs/0/labels", "value": ANOTHERS}]),
        "only its agent writes slicebus.dev/* in labels of groups",
    ),
    "write our labels onto the head of a RayService": (
        patch("rayservice", "chat", {"spec": {"rayClusterConfig": {"headGroupSpec": {"labels": ANOTHERS}}}}),
        "only its agent writes slicebus.dev/* in labels of groups",
    ),
    "make a RayCluster whose pods have our labels": (labelling(objects.ray_cluster("forged"), ANOTHERS), ONLY_AGENT),
    "make a RayJob whose pods have our labels": (labelling(objects.ray_job("forged"), ANOTHERS), ONLY_AGENT),
    "open a gate of a suspended job": (
        patch(
            "job",
            "paused",
            remove("/spec/template/spec/schedulingGates"),
        ),
        KEEP,
    ),
}
TENANT_CAN: dict[str, tuple[str, ...] | Manifest] = {
    "resize a copy": patch("job", "sweep", {"spec": {"parallelism": 2}}),
    "resize a group": patch(
        "raycluster", "grid", [{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": 3}]
    ),
    "resize a large copy": patch(
        "raycluster", "large", [{"op": "replace", "path": "/spec/workerGroupSpecs/16/replicas", "value": 3}]
    ),
    "label a copy": patch("job", "sweep", labelled("team", "a")),
    "annotate a pod of a copy": patch("pod", POD, noted("example.dev/a", "b")),
    "delete a pod of a copy": ("delete", "pod", POD, *HERE, "--dry-run=server"),
    "delete a copy": ("delete", "job", "sweep", *HERE, "--dry-run=server"),
    "make its own job": job("own"),
    "make a RayCluster whose pods have its own labels": labelling(objects.ray_cluster("own"), {"team": "a"}),
    "label the pods of a group": patch(
        "raycluster", "grid", [{"op": "add", "path": "/spec/workerGroupSpecs/0/labels", "value": {"team": "a"}}]
    ),
    "change its own job": patch("job", "foreign", {"spec": {"parallelism": 2}}),
    "open the gate of a pod that is not of slicebus": patch("pod", "foreign", UNGATE, "--dry-run=server"),
}


def large() -> Manifest:
    """As many groups as a Workload takes, and many labels: the API server judges only what it can in a set time."""
    made = objects.ray_cluster("large")
    (group,) = made["spec"]["workerGroupSpecs"]
    template = group["template"] | {"metadata": {"labels": {f"example.dev/label-{n}": "a" * 60 for n in range(40)}}}
    groups = [group | {"groupName": f"group-{number}", "template": template} for number in range(17)]
    return made | {"spec": made["spec"] | {"workerGroupSpecs": groups}}


@pytest.fixture(scope="module")
def attacked(worker: Worker) -> Worker:
    """With what is not the agent's beside what is."""
    spec = {"containers": [{"name": "main", "image": "busybox"}], "schedulingGates": [GATE]}
    tenant = worker.tenant
    tenant.create(job("foreign"))
    tenant.create(workload("foreign"))
    foreign = objects.ray_cluster("foreign")
    tenant.create(foreign | {"metadata": {"name": "foreign", "namespace": TENANT_NAMESPACE}})
    tenant.create(pod_of({"metadata": {}, "spec": spec}, name="foreign", owner=None))
    worker.agent.create(copy_of(large()))
    worker.agent.create(workload("sweep-2", labels=ORIGIN))
    paused = copy_of(objects.job("paused"))
    worker.agent.create(paused | {"spec": paused["spec"] | {"suspend": True}})
    sweep = worker.get("job", "sweep")
    template = sweep["spec"]["template"]
    two = {"metadata": {"labels": {api_names.MANAGER_UID_LABEL: "x"}}, "spec": template["spec"]}
    two["spec"] = two["spec"] | {"schedulingGates": [{"name": "example.dev/other"}, GATE]}
    worker.admin.create(pod_of(two, name="two-gates", owner=sweep))
    unplaced = {api_names.MANAGER_UID_LABEL: "x", api_names.UNPLACED_LABEL: "true"}
    without_flavor = {"metadata": {"labels": unplaced}, "spec": template["spec"]}
    worker.admin.create(pod_of(without_flavor, name="unplaced", owner=sweep))
    # KubeRay before 1.1 copies neither labels nor annotations.
    for kind, name in (("rayjob", "tune"), ("rayservice", "chat")):
        worker.kuberay.create(child_of(worker.get(kind, name), name=f"{name}-older", labels={}, annotations={}))
    return worker


def attempt(worker: Worker, account: Account, command: tuple[str, ...] | Manifest) -> None:
    """Run a command, or create an object."""
    if isinstance(command, dict):
        account.create(command)
    else:
        account.kubectl(*(worker.pods[0] if word == POD else word for word in command))


@pytest.mark.parametrize(("command", "told"), AGENT_CANNOT.values(), ids=AGENT_CANNOT.keys())
def test_a_leaked_token_of_the_agent_cannot(attacked: Worker, command: tuple[str, ...] | Manifest, told: str) -> None:
    with pytest.raises(Refused, match=re.escape(told)):
        attempt(attacked, attacked.agent, command)


@pytest.mark.parametrize("name", ["foreign", "sweep-2"])
async def test_a_leaked_token_of_the_agent_writes_no_status_of_a_workload(attacked: Worker, name: str) -> None:
    async with await KubeClient.from_kubeconfig(attacked.agent.kubeconfig) as client:
        body = MergePatch({"status": {"clusterName": "east"}})
        with pytest.raises(ForbiddenError, match='cannot patch resource "workloads/status"'):
            await client.patch(WORKLOADS, name, TENANT_NAMESPACE, body, subresource="status")


@pytest.mark.parametrize("command", AGENT_CAN.values(), ids=AGENT_CAN.keys())
def test_the_agent_can(attacked: Worker, command: tuple[str, ...] | Manifest) -> None:
    attempt(attacked, attacked.agent, command)


@pytest.mark.parametrize(("command", "told"), TENANT_CANNOT.values(), ids=TENANT_CANNOT.keys())
def test_a_tenant_cannot(attacked: Worker, command: tuple[str, ...] | Manifest, told: str) -> None:
    with pytest.raises(Refused, match=re.escape(told)):
        attempt(attacked, attacked.tenant, command)


@pytest.mark.parametrize("command", TENANT_CAN.values(), ids=TENANT_CAN.keys())
def test_a_tenant_can(attacked: Worker, command: tuple[str, ...] | Manifest) -> None:
    attempt(attacked, attacked.tenant, command)


def test_an_administrator_grants_nothing_either(attacked: Worker) -> None:
    with pytest.raises(Refused, match=ONLY_AGENT):
        attacked.admin.kubectl(*patch("job", "sweep", noted(api_names.GRANTED_ANNOTATION, '{"main":99}')))


def test_kuberay_copies_what_the_agent_has_written(attacked: Worker) -> None:
    child = child_of(attacked.get("rayjob", "tune"))
    attacked.kuberay.create(child)
    made = attacked.get("raycluster", child["metadata"]["name"])
    assert made["metadata"]["labels"].items() >= ORIGIN.items()
    template = made["spec"]["headGroupSpec"]["template"]
    attacked.kuberay.create(pod_of(template, name="tune-head", owner=made))
    with pytest.raises(Refused, match="only its agent removes the gate"):
        attacked.tenant.kubectl(*patch("pod", "tune-head", UNGATE))
    submitter = attacked.get("rayjob", "tune")["spec"]["submitterPodTemplate"]
    owner = made["metadata"]["ownerReferences"]
    metadata = {"name": "tune", "namespace": TENANT_NAMESPACE, "ownerReferences": owner}
    spec = {"template": submitter, "suspend": True}
    attacked.kuberay.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})


def test_kuberay_makes_another_cluster_of_a_service(attacked: Worker) -> None:
    service = attacked.get("rayservice", "chat")
    for name in ("chat-x7k2p", "chat-next"):
        attacked.kuberay.create(child_of(service, name=name))
        made = attacked.get("raycluster", name)
        attacked.kuberay.create(pod_of(made["spec"]["headGroupSpec"]["template"], name=f"{name}-head", owner=made))


def test_kuberay_cleans_up_redis_after_a_cluster(attacked: Worker) -> None:
    grid = attacked.get("raycluster", "grid")
    template = grid["spec"]["headGroupSpec"]["template"]
    labels = template["metadata"]["labels"] | {"ray.io/cluster": "grid", "ray.io/node-type": "redis-cleanup"}
    made = pod_of(template | {"metadata": {"labels": labels}}, name="grid-redis-cleanup", owner=grid)
    pod_template = {"metadata": {"labels": labels}, "spec": made["spec"] | {"restartPolicy": "Never"}}
    attacked.kuberay.create(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": made["metadata"],
            "spec": {"template": pod_template, "suspend": True},
        }
    )
    cleanup = attacked.get("job", "grid-redis-cleanup")
    # Without the labels of the Job's selector: its controller would delete the pod, since the Job is suspended.
    attacked.admin.create(pod_of(pod_template, name="grid-redis-cleanup-x", owner=cleanup))
    attacked.agent.kubectl(*patch("pod", "grid-redis-cleanup-x", UNGATE))


@pytest.mark.parametrize(
    "owner", [[], [{"apiVersion": "ray.io/v1", "kind": "RayCronJob", "name": "s", "uid": "u", "controller": True}]]
)
def test_kuberay_copies_our_labels_from_nothing_else(attacked: Worker, owner: list[Manifest]) -> None:
    child = child_of(attacked.get("rayjob", "tune"), name="laundered", ownerReferences=owner)
    with pytest.raises(Refused, match="only its agent makes objects"):
        attacked.kuberay.create(child)


def test_a_tenant_names_no_owner_to_get_our_labels(attacked: Worker) -> None:
    with pytest.raises(Refused, match="only its agent makes objects"):
        attacked.tenant.create(child_of(attacked.get("rayjob", "tune"), name="forged"))
    sweep = attacked.get("job", "sweep")
    with pytest.raises(Refused, match="only the controllers of its jobs"):
        attacked.tenant.create(pod_of(sweep["spec"]["template"], name="forged", owner=sweep))
