"""The agent's policies about declared job kinds: their gates hold, and only their controllers make their pods."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slicebus.cli.demo import objects
from slicebus.slices.api import api_names
from slicebus.slices.jobs import KINDS
from support.accounts import TENANT_NAMESPACE, Account, Refused, Worker, copy_of, guarded, pod_of
from support.controlplane import ControlPlane
from support.declared.cluster import definitions
from support.helm import Manifest
from support.installation import apply
from unit.slices.jobs.declared import DECLARED, ENTRIES, a_deployment, a_group_set, a_jobset

pytestmark = [pytest.mark.helm, pytest.mark.controlplane]

HERE = ("-n", TENANT_NAMESPACE)
NAMES = {"JobSet": "sets", "LeaderWorkerSet": "groups", "Deployment": "web"}
MAIN = {"name": "main", "image": "busybox"}
KEEP = "the pod templates of its jobs keep the gate"
GATES = {
    "jobset": "/spec/replicatedJobs/0/template/spec/template/spec/schedulingGates",
    "leaderworkerset": "/spec/leaderWorkerTemplate/workerTemplate/spec/schedulingGates",
    "deployment": "/spec/template/spec/schedulingGates",
}


def remove(path: str) -> str:
    return json.dumps([{"op": "remove", "path": path}])


def in_the_namespace(job: Manifest) -> Manifest:
    metadata = objects.job(NAMES[job["kind"]])["metadata"]
    return {name: value for name, value in job.items() if name != "status"} | {"metadata": metadata}


@pytest.fixture(scope="module")
def declared(helm: Path, control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """East with a job of each kind, which the agent has made, and a tenant with every right to them."""
    east, folder = control_plane.clusters["east"], tmp_path_factory.mktemp("declared")
    for definition in definitions():
        apply(east, definition)
    groups = ["apps", "jobset.x-k8s.io", "leaderworkerset.x-k8s.io"]
    rule = {"apiGroups": groups, "resources": ["*"], "verbs": ["*"]}
    with pytest.MonkeyPatch.context() as patched:
        for name in NAMES:
            patched.setitem(KINDS, name, DECLARED[name])
        values = {"declaredJobKinds": [ENTRIES[name] for name in NAMES]}
        with guarded(east, helm=helm, folder=folder, more=values) as worker:
            rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "more", "namespace": HERE[1]}}
            role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "more"}
            subjects = [{"kind": "ServiceAccount", "name": "dev", "namespace": TENANT_NAMESPACE}]
            worker.admin.create(rbac | {"kind": "Role", "rules": [rule]})
            worker.admin.create(rbac | {"kind": "RoleBinding", "roleRef": role, "subjects": subjects})
            try:
                for job in (a_jobset(), a_group_set(), a_deployment()):
                    worker.agent.create(copy_of(in_the_namespace(job)))
                yield worker
            finally:
                for kind, name in NAMES.items():
                    worker.admin.kubectl("delete", kind.lower(), name, *HERE)
                names = (definition["metadata"]["name"] for definition in definitions())
                worker.admin.kubectl("delete", "customresourcedefinitions", *names)


@pytest.mark.parametrize(("kind", "path"), GATES.items(), ids=GATES.keys())
def test_nobody_takes_the_gate_out_of_a_template(declared: Worker, kind: str, path: str) -> None:
    name = next(name for of, name in NAMES.items() if of.lower() == kind)
    with pytest.raises(Refused, match=KEEP):
        declared.tenant.kubectl("patch", kind, name, *HERE, "--type=json", "-p", remove(path))


def test_a_tenant_resizes_and_labels_a_copy(declared: Worker) -> None:
    for body in ({"spec": {"replicas": 2}}, {"metadata": {"labels": {"team": "a"}}}):
        declared.tenant.kubectl("patch", "deployment", "web", *HERE, "--type=merge", "-p", json.dumps(body))


def test_a_tenant_acknowledges_a_notice_and_gives_none(declared: Worker) -> None:
    def noted(name: str, value: str | None) -> str:
        return json.dumps({"metadata": {"annotations": {name: value}}})

    for value in ("an-id", "another", None):
        body = noted(api_names.RECLAIM_ACK_ANNOTATION, value)
        declared.tenant.kubectl("patch", "deployment", "web", *HERE, "--type=merge", "-p", body)
    body = noted(api_names.RECLAIM_ANNOTATION, "{}")
    with pytest.raises(Refused, match="only its agent changes annotations"):
        declared.tenant.kubectl("patch", "deployment", "web", *HERE, "--type=merge", "-p", body)


def test_a_tenant_grants_itself_nothing_and_makes_no_job_of_ours(declared: Worker) -> None:
    granted = json.dumps({"metadata": {"annotations": {api_names.GRANTED_ANNOTATION: '{"main":99}'}}})
    with pytest.raises(Refused, match="only its agent changes annotations"):
        declared.tenant.kubectl("patch", "deployment", "web", *HERE, "--type=merge", "-p", granted)
    forged = copy_of(in_the_namespace(a_deployment()))
    with pytest.raises(Refused, match="only its agent makes objects"):
        declared.tenant.create(forged | {"metadata": forged["metadata"] | {"name": "forged"}})


def replica_set(worker: Worker) -> tuple[Manifest, Any]:
    """One of the Deployment, as its controller makes it, and the pod template."""
    template = worker.get("deployment", "web")["spec"]["template"]
    labels = template["metadata"]["labels"]
    metadata = {"name": "web-by-hand", "namespace": TENANT_NAMESPACE}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    worker.admin.create({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": spec})
    return worker.get("replicaset", "web-by-hand"), template


def test_the_controller_that_is_declared_makes_the_pods_and_nobody_else(declared: Worker, tmp_path: Path) -> None:
    owner, template = replica_set(declared)
    controller = declared.admin.acting_as(
        "system:serviceaccount:kube-system:replicaset-controller", tmp_path / "replicasets"
    )
    controller.create(pod_of(template, name="web-by-hand-a", owner=owner))
    with pytest.raises(Refused, match="only the controllers of its jobs make pods"):
        declared.tenant.create(pod_of(template, name="web-by-hand-b", owner=owner))


def eventually(found: Callable[[], str]) -> str:
    """What is found within 30 s; a controller needs a moment."""
    ends_at = time.monotonic() + 30
    while not (text := found()) and time.monotonic() < ends_at:
        time.sleep(0.2)
    return text


def made_by_the_controller(worker: Worker) -> str:
    """The name of the ReplicaSet that the Deployment's controller has made."""
    label = f"{api_names.OWNER_LABEL_PREFIX}deployment=web"
    query = '{range .items[?(@.metadata.ownerReferences)]}{.metadata.name}{"\\n"}{end}'
    command = ("get", "replicasets", *HERE, "-l", label, "-o", f"jsonpath={query}")
    return eventually(lambda: worker.admin.kubectl(*command).strip()).splitlines()[0]


def test_nobody_takes_the_gate_out_of_what_is_between_a_job_and_its_pods(declared: Worker) -> None:
    path = "/spec/template/spec/schedulingGates"
    name = made_by_the_controller(declared)
    with pytest.raises(Refused, match=KEEP):
        declared.tenant.kubectl("patch", "replicaset", name, *HERE, "--type=json", "-p", remove(path))


def test_nor_our_labels_nor_makes_one_with_them(declared: Worker) -> None:
    name = made_by_the_controller(declared)
    labels = {"metadata": {"labels": {api_names.MANAGER_UID_LABEL: "another"}}}
    body = json.dumps({"spec": {"template": labels}})
    with pytest.raises(Refused, match="only its agent writes"):
        declared.tenant.kubectl("patch", "replicaset", name, *HERE, "--type=merge", "-p", body)
    template = {"metadata": {"labels": {"a": "b", **labels["metadata"]["labels"]}}, "spec": {"containers": [MAIN]}}
    metadata = {"name": "forged", "namespace": TENANT_NAMESPACE}
    spec = {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    made = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": spec}
    with pytest.raises(Refused, match="only its agent makes objects"):
        declared.tenant.create(made)
    plain = {"metadata": {"labels": {"a": "b"}}, "spec": template["spec"]}
    declared.tenant.create(made | {"spec": spec | {"template": plain}})
    declared.admin.kubectl("delete", "replicaset", metadata["name"], *HERE)


def test_its_controller_copies_what_the_agent_writes(declared: Worker) -> None:
    name = made_by_the_controller(declared)
    body = json.dumps(
        {"metadata": {"annotations": {api_names.GRANTED_ANNOTATION: '{"main":7}'}}, "spec": {"replicas": 3}}
    )
    declared.agent.kubectl("patch", "deployment", "web", *HERE, "--type=merge", "-p", body)

    def copied() -> str:
        made = declared.get("replicaset", name)
        return (
            made["metadata"]["annotations"].get(api_names.GRANTED_ANNOTATION, "")
            if made["spec"]["replicas"] == 3
            else ""
        )

    assert eventually(lambda: "yes" if copied() == '{"main":7}' else "")


def test_the_label_that_names_a_deployment_stays_on_its_pods(declared: Worker) -> None:
    label = f"{api_names.OWNER_LABEL_PREFIX}deployment"
    selected = ("get", "pods", *HERE, "-l", f"{label}=web", "-o", "name")
    ends_at = time.monotonic() + 30
    while not (pods := declared.admin.kubectl(*selected).split()) and time.monotonic() < ends_at:
        time.sleep(0.2)
    _cannot_be_hidden(declared.tenant, pods[0].removeprefix("pod/"), label, "only its agent changes labels")


def test_the_labels_of_a_declaration_stay_on_the_pods(declared: Worker) -> None:
    owner = declared.get("jobset", "sets")
    template = owner["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    label = "jobset.sigs.k8s.io/jobset-name"
    metadata = template["metadata"] | {"labels": template["metadata"]["labels"] | {label: "sets"}}
    declared.admin.create(pod_of(template | {"metadata": metadata}, name="sets-a", owner=owner))
    _cannot_be_hidden(declared.tenant, "sets-a", label, "nobody changes the labels that name the job")


def _cannot_be_hidden(tenant: Account, pod: str, label: str, told: str) -> None:
    with pytest.raises(Refused, match=told):
        tenant.kubectl("label", "pod", pod, *HERE, f"{label}-")
