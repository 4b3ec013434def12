"""The policy of the agent's cluster, as its API server holds the agent's own account to it: every pod template of every
kind of job, at creation and in later writes. What jobs ordinarily have passes."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from slicebus.cli.demo import objects
from support.accounts import TENANT_NAMESPACE, Refused, Worker, child_of, copy_of, guarded
from support.controlplane import ControlPlane
from support.examples import EXAMPLES
from support.helm import Manifest
from support.installation import install
from support.waiting import eventually

pytestmark = [pytest.mark.helm, pytest.mark.controlplane]

HERE = ("-n", TENANT_NAMESPACE)
DRY = ("create", "--dry-run=server", "--validate=false", "-f", "-")
POLICY: dict[str, object] = {
    "runtimeClasses": ["sandboxed"],
    "serviceAccounts": ["default", "jobs"],
    "autoscalerAccounts": True,
    "csiDrivers": ["secrets-store.csi.k8s.io"],
    "serviceNames": ["api"],
}
"""The other rules are as they are by default."""


def ray_job(name: str) -> Manifest:
    """A RayJob with a template of its own for the submitter."""
    made = objects.ray_job(name)
    template = {"spec": objects.pod_spec("1", image=objects.IMAGE) | {"restartPolicy": "Never"}}
    return made | {"spec": made["spec"] | {"submitterPodTemplate": template}}


HEAD, GROUP = ("headGroupSpec", "template"), ("workerGroupSpecs", 0, "template")
TEMPLATES: dict[str, tuple[Callable[[str], Manifest], tuple[str | int, ...]]] = {
    "job": (objects.job, ("template",)),
    "head-of-a-raycluster": (objects.ray_cluster, HEAD),
    "group-of-a-raycluster": (objects.ray_cluster, GROUP),
    "head-of-a-rayjob": (objects.ray_job, ("rayClusterSpec", *HEAD)),
    "group-of-a-rayjob": (objects.ray_job, ("rayClusterSpec", *GROUP)),
    "submitter-of-a-rayjob": (ray_job, ("submitterPodTemplate",)),
    "head-of-a-rayservice": (objects.ray_service, ("rayClusterConfig", *HEAD)),
    "group-of-a-rayservice": (objects.ray_service, ("rayClusterConfig", *GROUP)),
}
"""Who makes a job of each kind, and where in its spec a pod template is."""


def everywhere(fields: Manifest) -> list[Manifest]:
    """Jobs as the agent makes them, each with these fields in another pod template."""
    made = []
    for name, (make, path) in TEMPLATES.items():
        job = make(name)
        template: Any = job["spec"]
        for step in path:
            template = template[step]
        template["spec"] |= fields
        made.append(copy_of(job))
    return made


def in_one(items: list[Manifest]) -> Manifest:
    """A list for one `kubectl create`."""
    return {"apiVersion": "v1", "kind": "List", "items": items}


@pytest.fixture(scope="module")
def strict(helm: Path, control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """East, with a policy, and the RayCluster that KubeRay has made of a RayJob."""
    folder = tmp_path_factory.mktemp("policy")
    with guarded(control_plane.clusters["east"], helm=helm, folder=folder, more={"policy": POLICY}) as worker:
        worker.kuberay.create(child_of(worker.get("rayjob", "tune"), name="tune-child"))
        yield worker


def volume(**source: Any) -> Manifest:
    """The field of a pod with one volume."""
    return {"volumes": [{"name": "v", **source}]}


POD_RULES: dict[str, tuple[Manifest, str]] = {
    "a class of the cluster": ({"priorityClassName": "system-cluster-critical"}, "PriorityClass (priorityClasses)"),
    "every taint": ({"tolerations": [{"operator": "Exists", "effect": "NoExecute"}]}, "toleration (tolerationKeys)"),
    "the control plane": (
        {"tolerations": [{"key": "gpu"}, {"key": "node-role.kubernetes.io/master", "operator": "Exists"}]},
        "toleration (tolerationKeys)",
    ),
    "a runtime": ({"runtimeClassName": "unconfined"}, "RuntimeClass (runtimeClasses)"),
    "a scheduler": ({"schedulerName": "mine"}, "scheduler (schedulerNames)"),
    "a CSI driver": (volume(csi={"driver": "mine"}), "driver (csiDrivers)"),
    "a Flex driver": (volume(flexVolume={"driver": "mine"}), "driver (csiDrivers)"),
    "an account": ({"serviceAccountName": "admin"}, "service account (serviceAccounts)"),
    "an account by its old field": ({"serviceAccount": "admin"}, "service account (serviceAccounts)"),
}


@pytest.mark.parametrize(("fields", "told"), POD_RULES.values(), ids=POD_RULES.keys())
def test_no_pod_template_of_any_kind_may_have(strict: Worker, fields: Manifest, told: str) -> None:
    jobs = everywhere(fields)
    with pytest.raises(Refused) as refused:
        strict.agent.kubectl(*DRY, stdin=in_one(jobs))
    for job in jobs:
        name = re.escape(job["metadata"]["name"])
        assert re.search(f'"{name}" is forbidden: .*{re.escape(told)}', str(refused.value)), name


HEAD_RULES: dict[str, tuple[Manifest, str]] = {
    "an Ingress": ({"enableIngress": True}, "an Ingress or a Gateway (ingress)"),
    "a public Service": ({"serviceType": "LoadBalancer"}, "a Service of this type (serviceTypes)"),
    "a public Service of its own": ({"headService": {"spec": {"type": "NodePort"}}}, "of this type (serviceTypes)"),
    "addresses": ({"headService": {"spec": {"externalIPs": ["10.0.0.1"]}}}, "of this type (serviceTypes)"),
    "another's Service": ({"headService": {"metadata": {"name": "postgres"}}}, "of this name (serviceNames)"),
    "a neighbour's Service": ({"headService": {"metadata": {"name": "other-head-svc"}}}, "of this name (serviceNames)"),
}
HEADS = {"raycluster": (), "rayjob": ("rayClusterSpec",), "rayservice": ("rayClusterConfig",)}
RUNNING = [
    ("raycluster", "grid", ()),
    ("rayjob", "tune", ("rayClusterSpec",)),
    ("rayservice", "chat", ("rayClusterConfig",)),
    ("raycluster", "tune-child", ()),
]


def below(path: tuple[str, ...], value: Manifest) -> Manifest:
    """The value under these names."""
    for name in reversed(path):
        value = {name: value}
    return value


@pytest.mark.parametrize(("fields", "told"), HEAD_RULES.values(), ids=HEAD_RULES.keys())
def test_no_head_of_any_kind_may_have(strict: Worker, fields: Manifest, told: str) -> None:
    jobs = [objects.ray_cluster("c"), objects.ray_job("j"), objects.ray_service("s")]
    for job, above in zip(jobs, HEADS.values(), strict=True):
        cluster = job["spec"]
        for name in above:
            cluster = cluster[name]
        cluster["headGroupSpec"] |= fields
    with pytest.raises(Refused) as refused:
        strict.agent.kubectl(*DRY, stdin=in_one([copy_of(job) for job in jobs]))
    for name in "cjs":
        assert re.search(f'"{name}" is forbidden: .*{re.escape(told)}', str(refused.value)), name


@pytest.mark.parametrize(("kind", "name", "above"), RUNNING, ids=[name for _, name, _ in RUNNING])
def test_no_head_that_runs_gets(strict: Worker, kind: str, name: str, above: tuple[str, ...]) -> None:
    for fields, told in HEAD_RULES.values():
        body = json.dumps({"spec": below((*above, "headGroupSpec"), fields)})
        with pytest.raises(Refused, match=re.escape(told)):
            strict.agent.kubectl("patch", kind, name, *HERE, "--type=merge", "-p", body)


SERVICE_RULES: dict[str, tuple[Manifest, str]] = {
    "a Gateway": (
        {"upgradeStrategy": {"type": "NewClusterWithIncrementalUpgrade"}},
        "an Ingress or a Gateway (ingress)",
    ),
    "another's Service": ({"serveService": {"metadata": {"name": "postgres"}}}, "of this name (serviceNames)"),
    "a public Service": ({"serveService": {"spec": {"type": "LoadBalancer"}}}, "of this type (serviceTypes)"),
    "addresses": ({"serveService": {"spec": {"externalIPs": ["10.0.0.1"]}}}, "of this type (serviceTypes)"),
}


@pytest.mark.parametrize(("fields", "told"), SERVICE_RULES.values(), ids=SERVICE_RULES.keys())
def test_no_service_may_have_or_get(strict: Worker, fields: Manifest, told: str) -> None:
    made = objects.ray_service("open")
    with pytest.raises(Refused, match=re.escape(told)):
        strict.agent.kubectl(*DRY, stdin=copy_of(made | {"spec": made["spec"] | fields}))
    body = json.dumps({"spec": fields})
    with pytest.raises(Refused, match=re.escape(told)):
        strict.agent.kubectl("patch", "rayservice", "chat", *HERE, "--type=merge", "-p", body)


ORDINARY: Manifest = {
    "priorityClassName": "research",
    "tolerations": [{"key": "gpu", "operator": "Exists"}, {"key": "spot", "value": "true", "effect": "NoSchedule"}],
    "runtimeClassName": "sandboxed",
    "schedulerName": "default-scheduler",
    "serviceAccountName": "jobs",
    "initContainers": [{"name": "fetch", "image": "busybox", "restartPolicy": "Always"}],
    "volumes": [
        {"name": "scratch", "emptyDir": {}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "keys", "csi": {"driver": "secrets-store.csi.k8s.io", "readOnly": True}},
    ],
}


def test_what_pods_ordinarily_have_passes(strict: Worker) -> None:
    made = everywhere(ORDINARY)
    assert strict.agent.kubectl(*DRY, stdin=in_one(made)).count("created") == len(made)


def test_the_examples_pass(strict: Worker) -> None:
    files = ("job.yaml", "raycluster.yaml", "rayjob.yaml", "rayservice.yaml")
    jobs = [job for file in files for job in yaml.safe_load_all((EXAMPLES / file).read_text())]
    for job in jobs:
        job["metadata"]["namespace"] = TENANT_NAMESPACE
    assert strict.agent.kubectl(*DRY, stdin=in_one(list(map(copy_of, jobs)))).count("created") == len(files)


def test_services_of_the_controllers_own_or_allowed_names_pass(strict: Worker) -> None:
    named = objects.ray_service("api-2")
    named["spec"] |= {"serveService": {"metadata": {"name": "api"}, "spec": {"type": "ClusterIP"}}}
    named["spec"]["rayClusterConfig"]["headGroupSpec"]["headService"] = {"metadata": {"name": "api-2-head-svc"}}
    named["spec"]["upgradeStrategy"] = {"type": "NewCluster"}
    assert "created" in strict.agent.kubectl(*DRY, stdin=copy_of(named))


async def test_what_runs_goes_on_under_a_stricter_policy(strict: Worker, helm: Path, tmp_path: Path) -> None:
    address = tmp_path / "east.env"
    address.write_text("url=amqps://east:secret@broker:5671/slicebus\n")
    east, values = strict.admin.cluster, {"cluster": "east", "managerUser": "manager"}
    new = copy_of(objects.ray_cluster("late"))
    assert "created" in strict.agent.kubectl(*DRY, stdin=new)
    install(helm, "slicebus-agent", east, values | {"policy": POLICY | {"autoscalerAccounts": False}}, address=address)

    async def is_refused() -> bool:
        try:
            strict.agent.kubectl(*DRY, stdin=new)
        except Refused as refused:
            return "the service account of Ray's autoscaler (autoscalerAccounts)" in str(refused)
        return False

    await eventually(is_refused, "the stricter policy is in force")
    for kind, name, above in RUNNING:
        path = "".join(f"/{step}" for step in ("spec", *above, "workerGroupSpecs", 0, "replicas"))
        resize = [{"op": "replace", "path": path, "value": 3}]
        strict.agent.kubectl("patch", kind, name, *HERE, "--type=json", "-p", json.dumps(resize))
