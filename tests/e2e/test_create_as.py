"""An agent that creates jobs as a service account of their namespace: the cluster's own RBAC and admission judge it,
and the manager's user reads what they say."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from slicebus.cli.demo import objects
from slicebus.kube.client import KubeClient
from slicebus.slices.api import api_names
from slicebus.slices.api.api_names import DISPATCHED_CONDITION
from support.controlplane import Cluster, ControlPlane
from support.installation import apply
from support.previous import checkout_version
from support.rabbitmq import RabbitBroker
from support.release import Deployed, Release, add_secret
from support.waiting import eventually
from support.wiping import wipe

pytestmark = [pytest.mark.rabbitmq, pytest.mark.controlplane, pytest.mark.helm]

HERE, ELSEWHERE = objects.NAMESPACE, "team-without-account"
NAMESPACES = [HERE, ELSEWHERE]
NAME = "slicebus-jobs"
DOCUMENT = Path(__file__).parents[2] / "docs" / "operations.md"
AGENT = "slicebus-agent-jobs"
"""The agent's own Role in each namespace."""
SECRET = {"amqp": {"existingSecret": {"name": "slicebus-amqp"}}}
Manifest = dict[str, Any]
VALUES: dict[str, dict[str, Any]] = {
    "manager": {},
    "agent": {
        "cluster": "east",
        "managerUser": "manager",
        "heartbeatSeconds": 1,
        "namespaces": NAMESPACES,
        "policy": {"createAs": NAME},
    },
}


def may_create_jobs(namespace: str) -> list[Manifest]:
    """The service account of a namespace with its right, as docs/operations.md makes them for team-a."""
    _, _, section = DOCUMENT.read_text().partition("## Create jobs as a service account\n")
    objects, _, _ = section.partition("```yaml\n")[2].partition("```")
    return list(yaml.safe_load_all(objects.replace("team-a", namespace)))


def names_the_creator() -> Iterator[Manifest]:
    """A policy of the cluster that refuses the Job `asked`, and says who would create it, and for whom."""
    policy: Manifest = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs"]}
            ]
        },
        "matchConditions": [{"name": "is-asked", "expression": "object.metadata.name == 'asked'"}],
        "validations": [
            {
                "expression": "false",
                "messageExpression": "'created by ' + request.userInfo.username + ' for the agent in '"
                " + request.userInfo.extra['slicebus.dev/agent'][0]",
            }
        ],
    }
    binding = {"policyName": "names-the-creator", "validationActions": ["Deny"]}
    for kind, spec in (("ValidatingAdmissionPolicy", policy), ("ValidatingAdmissionPolicyBinding", binding)):
        metadata = {"name": "names-the-creator"}
        yield {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


@pytest.fixture
async def deployed(
    helm: Path, control_plane: ControlPlane, rabbitmq: RabbitBroker, vhost: str, tmp_path: Path
) -> AsyncIterator[dict[str, Deployed]]:
    """A manager with a queue in both namespaces, and the agent of east."""
    clusters = {"manager": control_plane.clusters["manager"], "agent": control_plane.clusters["east"]}
    made, version = {}, checkout_version()
    queue = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "spec": {"clusterQueue": "batch"}}
    try:
        for command, cluster in clusters.items():
            user = "manager" if command == "manager" else "east"
            add_secret(cluster, rabbitmq.url(vhost, user), tmp_path)
            apply(cluster, *map(objects.namespace, NAMESPACES))
            made[command] = Deployed(Release(helm, cluster, f"slicebus-{command}"), tmp_path)
            made[command].release.install(version.charts, VALUES[command] | SECRET)
            made[command].roll(version.program)
            if command == "manager":
                elsewhere = queue | {"metadata": {"name": objects.QUEUE, "namespace": ELSEWHERE}}
                apply(
                    cluster, objects.worker_cluster("east"), *(manifest for _, manifest in objects.quota(8)), elsewhere
                )
        apply(clusters["agent"], *names_the_creator())
        yield made
    finally:
        for each in made.values():
            each.stop()
            each.release.uninstall()
        clusters["agent"].kubectl("delete", "--ignore-not-found", "-f", "-", stdin=json.dumps(rights_and_policy()))
        for cluster in clusters.values():
            cluster.kubectl("delete", "namespace", ELSEWHERE, "--wait=false", "--ignore-not-found")
            async with await KubeClient.from_kubeconfig(cluster.kubeconfig) as client:
                await wipe(client)


def rights_and_policy() -> Manifest:
    """What the test makes on east beside its jobs."""
    return {"apiVersion": "v1", "kind": "List", "items": [*may_create_jobs(HERE), *names_the_creator()]}


def submit(manager: Cluster, name: str, namespace: str = HERE) -> None:
    """A job on the manager's cluster."""
    job = objects.job(name)
    apply(manager, job | {"metadata": job["metadata"] | {"namespace": namespace}})


async def expect_running(east: Cluster, name: str, size: int, namespace: str = HERE) -> None:
    """Return when so many pods of the job run."""

    async def look() -> bool:
        found = json.loads(east.kubectl("get", "pods", "-n", namespace, "-l", f"job-name={name}", "-o", "json"))
        return sum(pod["status"]["phase"] == "Running" for pod in found["items"]) == size

    await eventually(look, f"{size} pods of {name} run")


async def refusal(manager: Cluster, name: str, namespace: str = HERE) -> tuple[str, str]:
    """The reason and the message of the job's Workload on the manager, when its cluster has refused it."""

    async def look() -> tuple[str, str] | None:
        found = json.loads(manager.kubectl("get", "workloads", "-n", namespace, "-o", "json"))["items"]
        for workload in found:
            if workload["metadata"].get("ownerReferences", [{}])[0].get("name") == name:
                for each in workload.get("status", {}).get("conditions", ()):
                    if each["type"] == DISPATCHED_CONDITION and each["status"] == "False":
                        return each["reason"], each["message"]
        return None

    told = await eventually(look, f"{name} is refused")
    assert told is not None
    return told


async def test_the_cluster_judges_the_account_of_the_namespace(deployed: dict[str, Deployed]) -> None:
    """Over 20 s: two releases, and refusals that are tried again."""
    manager, east = (deployed[command].release.cluster for command in ("manager", "agent"))
    account = f"system:serviceaccount:{HERE}:{NAME}"
    submit(manager, "sweep")
    reason, message = await refusal(manager, "sweep")
    assert reason == "Forbidden"
    assert f'User "{account}" cannot create resource "jobs" in API group "batch"' in message

    apply(east, *may_create_jobs(HERE))
    await expect_running(east, "sweep", 1)
    # Everything else is the agent's own: the account may only create.
    east.kubectl("patch", "job", "sweep", "-n", HERE, "--type=merge", "-p", '{"spec":{"parallelism":2}}')
    await expect_running(east, "sweep", 2)

    submit(manager, "asked")
    reason, message = await refusal(manager, "asked")
    assert reason == "Invalid"
    assert f"created by {account} for the agent in slicebus-system" in message

    submit(manager, "outside", ELSEWHERE)
    reason, message = await refusal(manager, "outside", ELSEWHERE)
    assert reason == "Forbidden"
    assert f'User "{account.replace(HERE, ELSEWHERE)}" cannot create resource "jobs"' in message

    manager.kubectl("delete", "job", "sweep", "-n", HERE)
    await expect_running(east, "sweep", 0)

    await take_impersonation_away(east)
    for namespace, what in ((HERE, "userextras/slicebus.dev/agent"), (ELSEWHERE, "serviceaccounts")):
        submit(manager, "late", namespace)
        reason, message = await refusal(manager, "late", namespace)
        assert reason == "ImpersonationForbidden"
        assert f'cannot impersonate resource "{what}"' in message


async def take_impersonation_away(east: Cluster) -> None:
    """Leave the agent the right to the account in one namespace, and none to the extra."""
    role = json.loads(east.kubectl("get", "role", AGENT, "-n", ELSEWHERE, "-o", "json"))
    rules = [rule for rule in role["rules"] if rule["resources"] != ["serviceaccounts"]]
    east.kubectl("patch", "role", AGENT, "-n", ELSEWHERE, "--type=merge", "-p", json.dumps({"rules": rules}))
    east.kubectl("delete", "clusterrolebinding", "slicebus-agent.slicebus-system-policy")
    account = ("impersonate", f"serviceaccounts/{NAME}", "-n", ELSEWHERE)
    extra = (
        "impersonate",
        "userextras.authentication.k8s.io/slicebus-system",
        f"--subresource={api_names.AGENT_EXTRA}",
    )

    async def gone() -> bool:
        return not any(may(east, *what) for what in (account, extra))

    await eventually(gone, "the API server knows of it")


def may(east: Cluster, *what: str) -> bool:
    """Whether the API server allows the agent that."""
    try:
        east.kubectl("auth", "can-i", *what, "--as=system:serviceaccount:slicebus-system:slicebus-agent")
    except RuntimeError:
        return False
    return True
