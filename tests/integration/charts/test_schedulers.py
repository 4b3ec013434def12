"""What the agent's chart makes of its schedulers: settings, and on a real API server rights and policies."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slicebus.agent.settings import AgentSettings
from slicebus.cli.demo import objects
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.proto.errors import ForbiddenError
from slicebus.slices.api import api_names
from slicebus.slices.schedulers import NAMES, NO_PROFILES, Profile
from slicebus.slices.schedulers.grove import POD_GANGS
from support.accounts import TENANT_NAMESPACE, Refused, Worker, child_of, copy_of, guarded, pod_of
from support.controlplane import Cluster, ControlPlane
from support.helm import CHARTS, HelmError, Manifest, environment, render
from support.helm import NAMESPACE as SYSTEM_NAMESPACE
from support.installation import apply
from support.schedulers import BACKENDS, GROVE, KAI, VOLCANO, Backend, definitions, prepared
from support.waiting import KUBECTL_PATIENCE, eventually

pytestmark = [pytest.mark.helm]

VALUES: dict[str, Any] = {"cluster": "east", "managerUser": "boss", "amqp": {"url": "amqps://east:secret@broker/v"}}
HERE = ("-n", TENANT_NAMESPACE)
ORIGIN = {api_names.ORIGIN_LABEL: api_names.ORIGIN}
FOREIGN = "touches only objects with the label slicebus.dev/origin=slicebus"
ONLY_AGENT = "slicebus: only its agent"
on_servers = pytest.mark.controlplane


def test_the_profiles_of_schedulers_are_the_values(helm: Path) -> None:
    def profiles(**values: object) -> tuple[Profile, ...]:
        rendered = render(helm, "slicebus-agent", VALUES | values)
        return AgentSettings.from_env(environment(rendered)).profiles

    assert profiles() == NO_PROFILES
    kai = {"name": "kai", "queue": "research", "schedulerName": 'my "kai"'}
    found = profiles(schedulers=[kai, {"name": "default"}])
    assert found == (Profile("kai", scheduler_name='my "kai"', queue="research"), Profile("default"))


@pytest.mark.parametrize(
    ("schedulers", "told"),
    [
        ([], "minItems: got 0, want 1"),
        ([{"name": "slurm"}], "must be one of 'default', 'kube', 'kai', 'volcano', 'grove'"),
        ([{"queue": "research"}], "missing property 'name'"),
        ([{"name": "kai", "que": "research"}], "additional properties 'que' not allowed"),
        ([{"name": "kai", "queue": "a"}, {"name": "kai", "queue": "b"}], "schedulers: kai has two profiles"),
    ],
    ids=["none", "unknown", "unnamed", "misspelt", "twice"],
)
def test_wrong_profiles_of_schedulers_are_refused(helm: Path, schedulers: list[Manifest], told: str) -> None:
    with pytest.raises(HelmError) as refusal:
        render(helm, "slicebus-agent", VALUES | {"schedulers": schedulers})
    assert told in str(refusal.value)


def test_every_backend_can_be_enabled() -> None:
    schema = json.loads((CHARTS / "slicebus-agent" / "values.schema.json").read_text())
    assert schema["properties"]["schedulers"]["items"]["properties"]["name"]["enum"] == list(NAMES)


# --- on a real API server: KAI and Grove are enabled, Volcano is not -----------------------------------------------


def made(backend: Backend, name: str, **metadata: Any) -> Manifest:
    """An object of a backend."""
    spec: Manifest = {"podgroups": []} if backend == GROVE else {"minMember": 1}
    return {
        "apiVersion": backend.makes.api_version,
        "kind": backend.makes.kind,
        "metadata": {"name": name, "namespace": TENANT_NAMESPACE, **metadata},
        "spec": spec,
    }


def named(backend: Backend, name: str) -> str:
    """As kubectl takes it: kinds of several groups have one plural."""
    return f"{backend.makes.plural}.{backend.makes.group}/{name}"


def patch(backend: Backend, name: str, body: Manifest) -> tuple[str, ...]:
    return ("patch", named(backend, name), *HERE, "--type=merge", "-p", json.dumps(body))


def labelled(value: str | None) -> Manifest:
    """A patch of our label."""
    return {"metadata": {"labels": {api_names.ORIGIN_LABEL: value}}}


@pytest.fixture(scope="module")
def scheduled(helm: Path, control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """East with the definitions of every backend, an object of the agent's, and one of the tenant's."""
    east = control_plane.clusters["east"]
    apply(east, *definitions(*BACKENDS))
    wait_until_served(east)
    apply(east, objects.namespace(TENANT_NAMESPACE), *tenants_rights())
    schedulers = [{"name": "default"}, {"name": KAI.name}, {"name": GROVE.name}]
    folder = tmp_path_factory.mktemp("accounts")
    try:
        with guarded(east, helm=helm, folder=folder, more={"schedulers": schedulers}) as worker:
            for backend in (KAI, GROVE):
                worker.agent.create(made(backend, "ours", labels=ORIGIN))
            for backend in BACKENDS:
                worker.tenant.create(made(backend, "theirs"))
            yield worker
    finally:
        gone = {resource.definition for backend in BACKENDS for resource in backend.needs}
        east.kubectl("delete", "crds", *sorted(gone), KUBECTL_PATIENCE)


def wait_until_served(cluster: Cluster) -> None:
    """A definition needs a moment."""
    ends_at = time.monotonic() + 30
    for resource in (resource for backend in BACKENDS for resource in backend.needs):
        while True:
            try:
                cluster.kubectl("get", resource.definition, "-A")
                break
            except RuntimeError:
                assert time.monotonic() < ends_at, f"{resource.definition} is not served after 30 s"
                time.sleep(0.2)


def tenants_rights() -> Iterator[Manifest]:
    """Every right on what schedulers need, as the tenant has it on its jobs."""
    rbac, name = "rbac.authorization.k8s.io", "schedulers-of-the-tenant"
    groups = sorted({backend.makes.group for backend in BACKENDS})
    metadata = {"name": name, "namespace": TENANT_NAMESPACE}
    rules = [{"apiGroups": groups, "resources": ["*"], "verbs": ["*"]}]
    yield {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": metadata, "rules": rules}
    yield {
        "apiVersion": f"{rbac}/v1",
        "kind": "RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": "dev", "namespace": TENANT_NAMESPACE}],
    }


def attempt(account: Any, command: tuple[str, ...] | Manifest) -> None:
    """Run a command, or create an object."""
    if isinstance(command, dict):
        account.create(command)
    else:
        account.kubectl(*command)


AGENT_CAN: dict[str, tuple[str, ...] | Manifest] = {
    "make its PodGroup": made(KAI, "job-own", labels=ORIGIN),
    "lower its minimum": patch(KAI, "ours", {"spec": {"minMember": 2}}),
    "delete its PodGroup": ("delete", named(KAI, "ours"), *HERE, "--dry-run=server"),
    "name pods in its PodGang": patch(
        GROVE, "ours", {"spec": {"podgroups": []}, "metadata": {"annotations": {"a": "b"}}}
    ),
    "read queues": ("get", f"{KAI.needs[1].plural}.{KAI.makes.group}"),
}
AGENT_CANNOT: dict[str, tuple[tuple[str, ...] | Manifest, str]] = {
    "make a PodGroup without our label": (made(KAI, "bare"), FOREIGN),
    "change another's PodGroup": (patch(KAI, "theirs", {"spec": {"minMember": 9}}), FOREIGN),
    "take another's PodGang over": (patch(GROVE, "theirs", labelled(api_names.ORIGIN)), FOREIGN),
    "delete another's PodGang": (("delete", named(GROVE, "theirs"), *HERE), FOREIGN),
    "give its PodGroup away": (patch(KAI, "ours", labelled(None)), "off nothing"),
    "make one beside itself": (
        made(KAI, "x", labels=ORIGIN) | {"metadata": {"name": "x", "namespace": SYSTEM_NAMESPACE, "labels": ORIGIN}},
        "or in its own",
    ),
    "make a queue": (
        {"apiVersion": KAI.needs[1].api_version, "kind": "Queue", "metadata": {"name": "q"}, "spec": {}},
        "cannot create resource",
    ),
    "make what no profile enables": (made(VOLCANO, "x", labels=ORIGIN), "cannot create resource"),
    "read what no profile enables": (("get", f"podgroups.{VOLCANO.makes.group}", *HERE), "cannot list resource"),
}
TENANT_CAN: dict[str, tuple[str, ...] | Manifest] = {
    "make its own PodGroup": made(KAI, "own"),
    "change its own PodGang": patch(GROVE, "theirs", {"spec": {"podgroups": []}}),
    "delete one of ours": ("delete", named(KAI, "ours"), *HERE, "--dry-run=server"),
}
TENANT_CANNOT: dict[str, tuple[str, ...] | Manifest] = {
    "make a PodGroup of ours": made(KAI, "forged", labels=ORIGIN),
    "make its own one of ours": patch(KAI, "theirs", labelled(api_names.ORIGIN)),
    "hide one from the agent": patch(GROVE, "ours", labelled(None)),
    "write what the agent asked for": patch(
        KAI, "ours", {"metadata": {"annotations": {api_names.SPEC_HASH_ANNOTATION: "x"}}}
    ),
}


@on_servers
@pytest.mark.parametrize("command", AGENT_CAN.values(), ids=AGENT_CAN.keys())
def test_the_agent_can(scheduled: Worker, command: tuple[str, ...] | Manifest) -> None:
    attempt(scheduled.agent, command)


@on_servers
@pytest.mark.parametrize(("command", "told"), AGENT_CANNOT.values(), ids=AGENT_CANNOT.keys())
def test_the_agent_cannot(scheduled: Worker, command: tuple[str, ...] | Manifest, told: str) -> None:
    with pytest.raises(Refused, match=told):
        attempt(scheduled.agent, command)


@on_servers
@pytest.mark.parametrize("command", TENANT_CAN.values(), ids=TENANT_CAN.keys())
def test_a_tenant_can(scheduled: Worker, command: tuple[str, ...] | Manifest) -> None:
    attempt(scheduled.tenant, command)


@on_servers
@pytest.mark.parametrize("command", TENANT_CANNOT.values(), ids=TENANT_CANNOT.keys())
def test_a_tenant_cannot(scheduled: Worker, command: tuple[str, ...] | Manifest) -> None:
    with pytest.raises(Refused, match=ONLY_AGENT):
        attempt(scheduled.tenant, command)


@on_servers
async def test_the_agent_writes_the_status_of_its_pod_gangs_only(scheduled: Worker) -> None:
    body = MergePatch({"status": {"phase": "Pending"}})
    async with await KubeClient.from_kubeconfig(scheduled.agent.kubeconfig) as client:
        await client.patch(POD_GANGS, "ours", TENANT_NAMESPACE, body, subresource="status")
        with pytest.raises(ForbiddenError, match=FOREIGN):
            await client.patch(POD_GANGS, "theirs", TENANT_NAMESPACE, body, subresource="status")
        with pytest.raises(ForbiddenError, match="podgroups/status"):
            await client.patch(KAI.makes, "ours", TENANT_NAMESPACE, body, subresource="status")


@on_servers
async def test_the_scheduler_writes_what_is_its_own(scheduled: Worker) -> None:
    """As any account with the rights: here the administrator's."""
    async with await KubeClient.from_kubeconfig(scheduled.admin.kubeconfig) as client:
        for backend in (KAI, GROVE):
            status = MergePatch({"status": {"phase": "Running"}})
            await client.patch(backend.makes, "ours", TENANT_NAMESPACE, status, subresource="status")
            own = MergePatch({"metadata": {"annotations": {"example.dev/placed": "true"}}})
            await client.patch(backend.makes, "ours", TENANT_NAMESPACE, own)


@on_servers
@pytest.mark.parametrize("backend", [KAI, GROVE], ids=["kai", "grove"])
def test_kuberay_makes_pods_with_what_the_backend_gives_them(scheduled: Worker, backend: Backend) -> None:
    child = child_of(scheduled.get("rayjob", "tune"), name=f"tune-{backend.name}")
    given = prepared(backend, child, "head")
    template = child["spec"]["headGroupSpec"]["template"]
    metadata = {name: template["metadata"].get(name, {}) | given[name] for name in ("labels", "annotations")}
    child["spec"]["headGroupSpec"]["template"] = template | {"metadata": metadata}
    scheduled.kuberay.create(child)
    owner = scheduled.get("raycluster", child["metadata"]["name"])
    made_of = owner["spec"]["headGroupSpec"]["template"]
    scheduled.kuberay.create(pod_of(made_of, name=f"{backend.name}-head", owner=owner))
    pod = scheduled.get("pod", f"{backend.name}-head")
    assert pod["metadata"]["labels"].items() >= given["labels"].items()
    gate = [{"op": "remove", "path": "/spec/schedulingGates/0"}]
    scheduled.agent.kubectl("patch", "pod", f"{backend.name}-head", *HERE, "--type=json", "-p", json.dumps(gate))


@on_servers
@pytest.mark.parametrize("propagation", ["background", "foreground"])
async def test_the_garbage_collector_takes_what_was_the_jobs(scheduled: Worker, propagation: str) -> None:
    name = f"collected-{propagation}"
    scheduled.agent.create(copy_of(objects.job(name)))
    job = scheduled.get("job", name)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": job["metadata"]["uid"], "controller": True}
    for backend in (KAI, GROVE):
        scheduled.agent.create(made(backend, f"job-{name}", labels=ORIGIN, ownerReferences=[owner]))
    scheduled.agent.kubectl("delete", "job", name, *HERE, f"--cascade={propagation}", "--wait=false")
    async with await KubeClient.from_kubeconfig(scheduled.admin.kubeconfig) as client:

        async def gone() -> bool:
            found = [await client.list(each.makes, namespace=TENANT_NAMESPACE) for each in (KAI, GROVE)]
            return not any(name in item["metadata"]["name"] for page in found for item in page.items)

        await eventually(gone, "the objects go with their owner")
