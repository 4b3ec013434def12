"""A worker cluster with the agent's chart, and the accounts that attack it: the agent's own and a tenant's."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from slicebus.agent.state.annotations import job_metadata
from slicebus.cli.demo import objects
from slicebus.kube.crds import custom_resource_definitions
from slicebus.proto.messages import JobRef
from slicebus.sandbox.controllers import crds as ray_crds
from slicebus.slices.api import api_names
from slicebus.slices.jobs import KINDS, Placement
from support.controlplane import Cluster
from support.helm import Manifest
from support.installation import apply, install, kubeconfig_of, uninstall
from support.waiting import KUBECTL_PATIENCE

TENANT_NAMESPACE = objects.NAMESPACE
OTHER_NAMESPACE = "team-b"
MANAGER_UID = "3f0c7a52-6b1e-4f0e-9d43-2f0f6c1f9a11"
_VALUES: dict[str, object] = {"cluster": "east", "managerUser": "manager"}
_EVERYTHING = ["get", "list", "watch", "create", "update", "patch", "delete"]
_KUBERAY = "ray-system"


class Refused(Exception):
    """The API server's words."""


class Account(msgspec.Struct, frozen=True):
    """Somebody with a token."""

    cluster: Cluster
    kubeconfig: Path

    def kubectl(self, *arguments: str, stdin: Manifest | None = None) -> str:
        """Its standard output. Raises Refused."""
        text = json.dumps(stdin) if stdin is not None else None
        try:
            return self.cluster.kubectl(*arguments, stdin=text, kubeconfig=self.kubeconfig)
        except RuntimeError as error:
            raise Refused(str(error)) from error

    def create(self, manifest: Manifest) -> None:
        """Create an object."""
        self.kubectl("create", "--validate=false", "-f", "-", stdin=manifest)

    def acting_as(self, user: str, path: Path, *groups: str, extra: Mapping[str, str] = {}) -> "Account":
        """The same, where each of its requests impersonates somebody. `path` is for the kubeconfig that says so."""
        config = yaml.safe_load(self.kubeconfig.read_text())
        more = {"as-groups": list(groups), "as-user-extra": {key: [value] for key, value in extra.items()}}
        config["users"][0]["user"] |= {"as": user, **more}
        path.write_text(yaml.safe_dump(config))
        return Account(self.cluster, path)


class Worker(msgspec.Struct, frozen=True):
    """East, where an agent has made a Job with two gated pods, a RayCluster, a RayJob and a RayService."""

    admin: Account
    agent: Account
    tenant: Account
    kuberay: Account
    pods: list[str]
    """Of the Job."""

    def get(self, kind: str, name: str) -> Manifest:
        """An object of the tenant's namespace."""
        found: Manifest = json.loads(self.admin.kubectl("get", kind, name, "-n", TENANT_NAMESPACE, "-o", "json"))
        return found


def copy_of(job: Manifest) -> Manifest:
    """A job as the agent makes it."""
    kind = KINDS[job["kind"]]
    place = Placement(labels={api_names.MANAGER_UID_LABEL: MANAGER_UID})
    copy = kind.worker_copy(job, {pod_set["name"]: place for pod_set in kind.pod_sets(job)})
    ref = JobRef(job["apiVersion"], job["kind"], TENANT_NAMESPACE, job["metadata"]["name"], MANAGER_UID)
    at = job_metadata(ref, workload=f"{job['metadata']['name']}-1", version=1, grant={"main": 0})
    metadata = copy["metadata"]
    merged = {name: metadata[name] | at[name] for name in ("labels", "annotations")}
    return copy | {"metadata": metadata | merged}


def child_of(parent: Manifest, **metadata: Any) -> Manifest:
    """The RayCluster that KubeRay makes of a RayJob or a RayService: with all its labels and annotations."""
    own, kind = parent["metadata"], parent["kind"]
    owner = {"apiVersion": "ray.io/v1", "kind": kind, "name": own["name"], "uid": own["uid"], "controller": True}
    origin = {"ray.io/originated-from-crd": kind, "ray.io/originated-from-cr-name": own["name"]}
    made: Manifest = {
        "name": f"{own['name']}-x7k2p",
        "namespace": own["namespace"],
        "labels": own["labels"] | origin,
        "annotations": own["annotations"],
        "ownerReferences": [owner],
    }
    spec = parent["spec"]["rayClusterSpec" if kind == "RayJob" else "rayClusterConfig"]
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": made | metadata, "spec": spec}


def pod_of(template: Manifest, *, name: str, owner: Manifest | None) -> Manifest:
    """A pod as a controller makes it of a template."""
    metadata: Manifest = dict(template["metadata"]) | {"name": name, "namespace": TENANT_NAMESPACE}
    if owner is not None:
        of = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
        metadata["ownerReferences"] = [of | {name: owner["metadata"][name] for name in ("name", "uid")}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


@contextmanager
def guarded(east: Cluster, *, helm: Path, folder: Path, more: Mapping[str, object] = {}) -> Iterator[Worker]:
    """East, with the chart, and more values of it, until the context is left."""
    values = {**_VALUES, **more}
    for definition in custom_resource_definitions(ray_crds.__name__):
        apply(east, definition)
    address = folder / "east.env"
    address.write_text("url=amqps://east:secret@broker:5671/slicebus\n")
    apply(east, *map(objects.namespace, (TENANT_NAMESPACE, OTHER_NAMESPACE, _KUBERAY)), *_accounts())
    install(helm, "slicebus-agent", east, values, address=address)
    admin = Account(east, east.kubeconfig)
    agent, tenant, kuberay = (
        Account(east, kubeconfig_of(east, name, folder / name, namespace=namespace))
        for name, namespace in (
            ("slicebus-agent", "slicebus-system"),
            ("dev", TENANT_NAMESPACE),
            ("kuberay-operator", _KUBERAY),
        )
    )
    _wait_for_policies(tenant)
    try:
        jobs = (objects.job("sweep", parallelism=2), objects.ray_cluster("grid"))
        for job in (*jobs, objects.ray_job("tune"), objects.ray_service("chat")):
            agent.create(copy_of(job))
        yield Worker(admin, agent, tenant, kuberay, _pods(admin, 2))
    finally:
        uninstall(helm, "slicebus-agent", east, values)
        # Whoever comes next makes them again.
        east.kubectl("delete", "namespace", KUBECTL_PATIENCE, OTHER_NAMESPACE, _KUBERAY)
        kinds = (
            "jobs,rayclusters,rayjobs,rayservices,workloads,pods,secrets,configmaps,roles,rolebindings,serviceaccounts"
        )
        east.kubectl("delete", kinds, "--all", "-n", TENANT_NAMESPACE, "--wait=false")
        east.kubectl("delete", "events", "--all", "-n", TENANT_NAMESPACE)


def _accounts() -> Iterator[Manifest]:
    """A tenant with every right in its namespace, and KubeRay with rights in all of them."""
    rbac = "rbac.authorization.k8s.io"
    ray = ["rayclusters", "rayjobs", "rayservices"]
    roles = {
        "tenant": [
            {"apiGroups": ["", "batch", "ray.io", "kueue.x-k8s.io"], "resources": ["*"], "verbs": ["*"]},
        ],
        "kuberay-operator": [
            {"apiGroups": ["ray.io"], "resources": [*ray, *(f"{name}/status" for name in ray)], "verbs": _EVERYTHING},
            {"apiGroups": ["", "batch"], "resources": ["pods", "jobs"], "verbs": _EVERYTHING},
        ],
    }
    for name, rules in roles.items():
        yield {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}
    for binding, role, account, namespace in (
        ("RoleBinding", "tenant", "dev", TENANT_NAMESPACE),
        ("ClusterRoleBinding", "kuberay-operator", "kuberay-operator", _KUBERAY),
    ):
        metadata = {"name": role} | ({"namespace": namespace} if binding == "RoleBinding" else {})
        yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account, "namespace": namespace}}
        yield {
            "apiVersion": f"{rbac}/v1",
            "kind": binding,
            "metadata": metadata,
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
        }


def _wait_for_policies(tenant: Account) -> None:
    """An API server needs a moment to take policies over."""
    probe = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe", "namespace": TENANT_NAMESPACE}}
    probe["metadata"]["labels"] = {api_names.ORIGIN_LABEL: api_names.ORIGIN}  # type: ignore[index]
    spec = {"containers": [{"name": "main", "image": "busybox"}]}
    ends_at = time.monotonic() + 30
    while time.monotonic() < ends_at:
        try:
            tenant.kubectl("create", "--dry-run=server", "-f", "-", stdin=probe | {"spec": spec})
        except Refused as refused:
            if "slicebus: " in str(refused):
                return
        time.sleep(0.2)
    pytest.fail("the policies are not in force after 30 s")


def _pods(admin: Account, count: int) -> list[str]:
    ends_at = time.monotonic() + 30
    while time.monotonic() < ends_at:
        found = admin.kubectl("get", "pods", "-n", TENANT_NAMESPACE, "-l", "job-name=sweep", "-o", "name").split()
        if len(found) == count:
            return [name.removeprefix("pod/") for name in found]
        time.sleep(0.2)
    pytest.fail("the Job controller made no pods from the agent's Job")
