"""An agent that creates jobs as a service account of their namespace: what it may do with that, and what nobody else
may. On a real API server, with the roles and the ValidatingAdmissionPolicies of the agent's chart."""

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from slicebus.agent.decide.order.policy import creator
from slicebus.agent.permissions import permissions_to_create_as
from slicebus.agent.state.policy import Policy
from slicebus.cli.demo import objects
from slicebus.kube.client import JsonPatch, KubeClient
from slicebus.kube.resources import JOB_RESOURCES, RAYSERVICES
from slicebus.proto.errors import ForbiddenError
from slicebus.runtime.permissions import missing
from slicebus.slices.api import api_names
from support.accounts import OTHER_NAMESPACE, TENANT_NAMESPACE, Account, Refused, Worker, copy_of, guarded
from support.controlplane import ControlPlane
from support.helm import NAMESPACE as SYSTEM_NAMESPACE
from support.helm import Manifest
from support.installation import apply, kubeconfig_of

pytestmark = [pytest.mark.helm, pytest.mark.controlplane]

NAME = "slicebus-jobs"
ACCOUNT = f"system:serviceaccount:{TENANT_NAMESPACE}:{NAME}"
AGENT = {api_names.AGENT_EXTRA: SYSTEM_NAMESPACE}
POLICY = Policy(create_as=NAME, own_namespace=SYSTEM_NAMESPACE)
RBAC = "rbac.authorization.k8s.io"
HERE = ("-n", TENANT_NAMESPACE)
JOBS = (objects.job("sweep-2"), objects.ray_cluster("grid-2"), objects.ray_job("tune-2"))
SERVICE = ("patch", "rayservice", "chat-2", *HERE)
GRANT = ("patch", "job", "sweep", *HERE, "--type=merge", "-p")
NO_ACCOUNT = 'cannot impersonate resource "serviceaccounts"'
NO_EXTRA = 'cannot impersonate resource "userextras/slicebus.dev/agent" .* at the cluster scope'
ONLY_AGENT = "slicebus: only its agent"


class Creating(msgspec.Struct, frozen=True):
    """East, and the service account there that jobs are created as."""

    worker: Worker
    account: Account
    folder: Path
    everywhere: bool
    """Whether the agent works in all namespaces."""

    def agent_as(self, user: str, *groups: str, **extra: str) -> Account:
        """The agent's token, where each request impersonates somebody."""
        return acting(self, self.worker.agent, user, *groups, extra=extra)


def acting(creating: Creating, account: Account, user: str, *groups: str, extra: dict[str, str]) -> Account:
    return account.acting_as(user, creating.folder / "acting.kubeconfig", *groups, extra=extra)


@pytest.fixture(scope="module", params=[[], [TENANT_NAMESPACE]], ids=["everywhere", "in namespaces"])
def creating(
    request: pytest.FixtureRequest, helm: Path, control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Creating]:
    """One for each mode of the chart."""
    east, folder = control_plane.clusters["east"], tmp_path_factory.mktemp("create-as")
    values = {"policy": {"createAs": NAME}, "namespaces": request.param}
    with guarded(east, helm=helm, folder=folder, more=values) as worker:
        rules = [{"apiGroups": ["batch", "ray.io"], "resources": ["*"], "verbs": ["create", "get", "patch"]}]
        apply(east, *bound("creates-jobs", rules, account=NAME))
        account = Account(east, kubeconfig_of(east, NAME, folder / NAME, namespace=TENANT_NAMESPACE))
        yield Creating(worker, account, folder, everywhere=not request.param)


def bound(role: str, rules: list[Manifest], *, account: str) -> Iterator[Manifest]:
    """A service account of the tenant's namespace, and a Role for it."""
    metadata = {"name": role, "namespace": TENANT_NAMESPACE}
    subject = {"kind": "ServiceAccount", "name": account, "namespace": TENANT_NAMESPACE}
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata | {"name": account}}
    yield {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": rules}
    role_ref = {"apiGroup": RBAC, "kind": "Role", "name": role}
    binding = {"apiVersion": f"{RBAC}/v1", "kind": "RoleBinding", "metadata": metadata}
    yield binding | {"roleRef": role_ref, "subjects": [subject]}


def plain(name: str) -> Manifest:
    """A Job of a tenant, suspended: nobody runs it."""
    made = objects.job(name)
    spec = {key: value for key, value in made["spec"].items() if key != "managedBy"} | {"suspend": True}
    return made | {"metadata": {"name": name, "namespace": TENANT_NAMESPACE}, "spec": spec}


async def test_the_agent_creates_jobs_as_the_account(creating: Creating) -> None:
    async with await KubeClient.from_kubeconfig(creating.worker.agent.kubeconfig) as client:
        for job in JOBS:
            resource = JOB_RESOURCES[job["kind"]]
            await client.create(resource, copy_of(job), impersonate=creator(POLICY, TENANT_NAMESPACE))
            assert creating.worker.get(resource.plural, job["metadata"]["name"])


async def test_where_the_account_has_no_right_the_server_says_so(creating: Creating) -> None:
    job = copy_of(objects.job("elsewhere"))
    elsewhere = job | {"metadata": job["metadata"] | {"namespace": OTHER_NAMESPACE}}
    told = f'"system:serviceaccount:{OTHER_NAMESPACE}:{NAME}" cannot create resource "jobs"'
    async with await KubeClient.from_kubeconfig(creating.worker.agent.kubeconfig) as client:
        with pytest.raises(ForbiddenError, match=told if creating.everywhere else NO_ACCOUNT):
            await client.create(JOB_RESOURCES["Job"], elsewhere, impersonate=creator(POLICY, OTHER_NAMESPACE))


async def test_the_doctor_finds_these_rights_and_no_more(creating: Creating) -> None:
    namespaces = () if creating.everywhere else (TENANT_NAMESPACE,)
    where = "".join(f" in {name}" for name in namespaces)
    async with await KubeClient.from_kubeconfig(creating.worker.agent.kubeconfig) as client:
        for account, told in ((NAME, []), ("another", [f"impersonate serviceaccounts another{where}"])):
            wanted = permissions_to_create_as(account, own_namespace=SYSTEM_NAMESPACE, namespaces=namespaces)
            assert await missing(client, wanted, namespace=SYSTEM_NAMESPACE) == told
        [_, extra] = permissions_to_create_as(NAME, own_namespace="b", namespaces=namespaces)
        assert await missing(client, [extra], namespace="b") == [f"impersonate {extra}"]


AGENT_CANNOT: dict[str, tuple[str, tuple[str, ...], dict[str, str], Manifest, str]] = {
    "act as another account of the namespace": (f"{ACCOUNT}-2", (), AGENT, copy_of(objects.job("a")), NO_ACCOUNT),
    "act as the tenant": (ACCOUNT.replace(NAME, "dev"), (), {}, copy_of(objects.job("a")), "cannot impersonate"),
    "act as a user": ("admin", (), {}, copy_of(objects.job("a")), "cannot impersonate"),
    "join a group": (ACCOUNT, ("system:masters",), AGENT, copy_of(objects.job("a")), "cannot impersonate"),
    "pass for another agent": (ACCOUNT, (), {api_names.AGENT_EXTRA: "b"}, copy_of(objects.job("a")), NO_EXTRA),
    "add another extra": (ACCOUNT, (), AGENT | {"a": "b"}, copy_of(objects.job("a")), "cannot impersonate"),
    "make a job of ours as the account alone": (ACCOUNT, (), {}, copy_of(objects.job("a")), ONLY_AGENT),
    "make a job without our label": (ACCOUNT, (), AGENT, plain("a"), "touches only objects with the label"),
}


@pytest.mark.parametrize(("user", "groups", "extra", "job", "told"), AGENT_CANNOT.values(), ids=AGENT_CANNOT.keys())
def test_a_leaked_token_of_the_agent_cannot(
    creating: Creating, user: str, groups: tuple[str, ...], extra: dict[str, str], job: Manifest, told: str
) -> None:
    with pytest.raises(Refused, match=told):
        creating.agent_as(user, *groups, **extra).create(job)


async def test_the_agent_upgrades_a_service_as_the_account(creating: Creating) -> None:
    made = copy_of(objects.ray_service("chat-2"))
    creating.worker.agent.create(made)
    labels = made["spec"]["rayClusterConfig"]["headGroupSpec"]["template"]["metadata"]["labels"]
    # As for pods whose flavor is not known yet: a tenant may write no such label.
    path = "/spec/rayClusterConfig/headGroupSpec/template/metadata/labels"
    edit = [{"op": "add", "path": path, "value": labels | {api_names.UNPLACED_LABEL: "true"}}]
    with pytest.raises(Refused, match=ONLY_AGENT):
        creating.agent_as(ACCOUNT).kubectl(*SERVICE, "--type=json", "-p", json.dumps(edit))
    async with await KubeClient.from_kubeconfig(creating.worker.agent.kubeconfig) as client:
        where = RAYSERVICES, "chat-2", TENANT_NAMESPACE
        await client.patch(*where, JsonPatch(edit), impersonate=creator(POLICY, TENANT_NAMESPACE))
    creating.account.create(objects.ray_service("theirs"))
    with pytest.raises(Refused, match="takes the label"):
        creating.agent_as(ACCOUNT, **AGENT).kubectl(
            "label", "rayservice", "chat-2", *HERE, f"{api_names.ORIGIN_LABEL}-"
        )
    with pytest.raises(Refused, match="touches only objects with the label"):
        creating.agent_as(ACCOUNT, **AGENT).kubectl("label", "rayservice", "theirs", *HERE, "a=b")


def test_the_account_is_the_agent_in_nothing_else(creating: Creating) -> None:
    """The account may patch jobs here, which it should not."""
    acting_as = creating.agent_as(ACCOUNT, **AGENT)
    with pytest.raises(Refused, match=ONLY_AGENT):
        acting_as.kubectl(
            *GRANT, json.dumps({"metadata": {"annotations": {api_names.GRANTED_ANNOTATION: '{"main":9}'}}})
        )
    with pytest.raises(Refused, match="cannot create resource"):
        acting_as.kubectl("create", "configmap", "a", *HERE)


def test_the_accounts_own_token_is_a_tenants(creating: Creating) -> None:
    creating.account.create(plain("own"))
    for job in JOBS:
        with pytest.raises(Refused, match=ONLY_AGENT):
            creating.account.create(copy_of(job))
    for extra in ({}, AGENT):
        with pytest.raises(Refused, match="cannot impersonate"):
            acting(creating, creating.account, ACCOUNT, extra=extra).create(copy_of(objects.job("a")))


def test_who_rules_a_namespace_cannot_pass_for_the_agent(creating: Creating) -> None:
    """Kubernetes' own role `edit` lets users impersonate the service accounts of a namespace. A Role gives nobody the
    extra, which lies in no namespace."""
    rules = [
        {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"]},
        {"apiGroups": ["authentication.k8s.io"], "resources": ["userextras/slicebus.dev/agent"], "verbs": ["*"]},
    ]
    apply(creating.worker.admin.cluster, *bound("impersonates", rules, account="dev"))
    tenant = creating.worker.tenant
    acting(creating, tenant, ACCOUNT, extra={}).create(plain("by-the-tenant"))
    with pytest.raises(Refused, match=ONLY_AGENT):
        acting(creating, tenant, ACCOUNT, extra={}).create(copy_of(objects.job("a")))
    with pytest.raises(Refused, match=NO_EXTRA):
        acting(creating, tenant, ACCOUNT, extra=AGENT).create(copy_of(objects.job("a")))
