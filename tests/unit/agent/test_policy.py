"""The policy of the agent's own cluster: what it allows, how it is read, and that every order is judged by it."""

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from slicebus.agent.act.policy import PolicySource, read_policy
from slicebus.agent.decide.order import orders
from slicebus.agent.decide.order.policy import NAMESPACE, ensure_allowed, ensure_namespace
from slicebus.agent.decide.order.refusals import RefusedOrder
from slicebus.agent.state.policy import Policy
from slicebus.agent.state.store import POLICY
from slicebus.agent.state.views import JobKey, WorkerView
from slicebus.decisions.commands import Create
from slicebus.kube.client import MergePatch
from slicebus.kube.impersonation import Impersonation
from slicebus.kube.resources import JOB_RESOURCES, JOBS, NAMESPACES, WORKLOADS, Resource
from slicebus.proto.errors import ConfigurationError, ForbiddenError
from slicebus.proto.messages import Manifest, Refused
from slicebus.slices.api.selectors import LabelSelector
from slicebus.slices.jobs import KINDS
from slicebus.slices.workload.pod_security import Level
from unit.agent.objects import EAST, REF, a_job, a_spec, a_view
from unit.agent.test_inbox import Manager, receiving, standing
from unit.agent.test_order_contents import ORDERS
from unit.agent.worker import Worker
from unit.kube.servers import NAMESPACE as TEAM
from unit.kube.servers import SYSTEM
from unit.slices.jobs.manifests import a_cluster, a_rayjob, a_rayservice
from unit.slices.jobs.manifests import a_job as a_batch_job

OPEN = Policy(pod_security=Level.PRIVILEGED, service_types=("ClusterIP", "NodePort", "LoadBalancer"), ingress=True)


def copy_of(job: Manifest) -> Manifest:
    return KINDS[job["kind"]].worker_copy(job, {})


def pod(job: Manifest, **fields: Any) -> Manifest:
    """The Job with these fields in its pod template's spec."""
    changed = deepcopy(job)
    changed["spec"]["template"]["spec"] |= fields
    return changed


def head(**fields: Any) -> Manifest:
    cluster = a_cluster()
    cluster["spec"]["headGroupSpec"] |= fields
    return cluster


def service(**fields: Any) -> Manifest:
    return a_rayservice() | {"spec": a_rayservice()["spec"] | fields}


def labelled(job: Manifest, **metadata: Any) -> Manifest:
    return job | {"metadata": job["metadata"] | metadata}


HOST_PATH = [{"name": "node", "hostPath": {"path": "/"}}]
SERVICE: str = a_rayservice()["metadata"]["name"]
JOB, RAY = a_batch_job(), a_cluster()
PRODUCTION = LabelSelector(match_labels={"stage": "production"})
REFUSED: dict[str, tuple[Policy, Manifest, str, str]] = {
    "a namespace that is not selected": (Policy(namespace_selector=PRODUCTION), JOB, NAMESPACE, "namespaceSelector"),
    "the node's files": (
        Policy(),
        pod(JOB, volumes=HOST_PATH),
        "PodSecurity",
        "hostPathVolumes.*podSecurity: baseline",
    ),
    "the node's network in a group": (
        Policy(),
        RAY
        | {
            "spec": RAY["spec"]
            | {
                "workerGroupSpecs": [
                    group | {"template": {"spec": group["template"]["spec"] | {"hostNetwork": True}}}
                    for group in RAY["spec"]["workerGroupSpecs"]
                ]
            }
        },
        "PodSecurity",
        "in pod set small hostNamespaces: spec.hostNetwork=True",
    ),
    "no hardening where that is asked for": (
        Policy(pod_security=Level.RESTRICTED),
        JOB,
        "PodSecurity",
        r"runAsNonRoot.*podSecurity: restricted.*and \d more",
    ),
    "a privileged autoscaler": (
        Policy(),
        a_cluster(enableInTreeAutoscaling=True, autoscalerOptions={"securityContext": {"privileged": True}}),
        "PodSecurity",
        "in pod set head privileged",
    ),
    "another service account": (
        Policy(service_accounts=("default", "jobs")),
        pod(JOB, serviceAccountName="admin"),
        "ServiceAccountNotAllowed",
        "service account admin in pod set main",
    ),
    "another service account by its old field": (
        Policy(service_accounts=("default",)),
        pod(JOB, serviceAccount="admin"),
        "ServiceAccountNotAllowed",
        "admin",
    ),
    "the namespace's default account": (
        Policy(service_accounts=("jobs",)),
        JOB,
        "ServiceAccountNotAllowed",
        "service account default",
    ),
    "a label": (
        Policy(label_prefixes=("team.example/",)),
        labelled(JOB, labels={"istio.io/rev": "x", "team.example/a": "b"}),
        "LabelNotAllowed",
        "the label istio.io/rev ",
    ),
    "a label of pods": (
        Policy(label_prefixes=()),
        JOB | {"spec": JOB["spec"] | {"template": JOB["spec"]["template"] | {"metadata": {"labels": {"a": "b"}}}}},
        "LabelNotAllowed",
        "the label a ",
    ),
    "an annotation": (
        Policy(annotation_prefixes=("team.example/",)),
        labelled(JOB, annotations={"iam.example/role": "admin"}),
        "AnnotationNotAllowed",
        "the annotation iam.example/role ",
    ),
    "an annotation of a Service": (
        Policy(annotation_prefixes=()),
        labelled(RAY, annotations={}) | {"spec": RAY["spec"] | {"headServiceAnnotations": {"lb.example/public": "1"}}},
        "AnnotationNotAllowed",
        "lb.example/public",
    ),
    "a public Service": (Policy(), head(serviceType="LoadBalancer"), "ServiceTypeNotAllowed", "type LoadBalancer"),
    "a public Service of its own": (
        Policy(),
        head(headService={"spec": {"type": "NodePort"}}),
        "ServiceTypeNotAllowed",
        "type NodePort",
    ),
    "somebody else's address": (
        OPEN,
        head(headService={"spec": {"externalIPs": ["10.0.0.1"]}}),
        "ServiceTypeNotAllowed",
        "externalIPs",
    ),
    "an Ingress": (Policy(), head(enableIngress=True), "IngressNotAllowed", "an Ingress"),
    "a Gateway": (
        Policy(),
        service(upgradeStrategy={"type": "NewClusterWithIncrementalUpgrade", "clusterUpgradeOptions": {}}),
        "IngressNotAllowed",
        "a Gateway .policy ingress: false",
    ),
    "another's Service": (
        Policy(),
        service(serveService={"metadata": {"name": "postgres"}}),
        "ServiceNameNotAllowed",
        "a Service named postgres .policy serviceNames",
    ),
    "the Service of another RayService": (
        Policy(),
        service(serveService={"metadata": {"name": "other-serve-svc"}}),
        "ServiceNameNotAllowed",
        "other-serve-svc",
    ),
    "another's Service for its head": (
        Policy(),
        head(headService={"metadata": {"name": "postgres"}}),
        "ServiceNameNotAllowed",
        "postgres",
    ),
    "a class of the cluster": (
        Policy(),
        pod(JOB, priorityClassName="system-node-critical"),
        "PriorityClassNotAllowed",
        "PriorityClass system-node-critical in pod set main .policy priorityClasses",
    ),
    "another class": (
        Policy(priority_classes=("low",)),
        pod(JOB, priorityClassName="high"),
        "PriorityClassNotAllowed",
        "high",
    ),
    "every taint": (
        Policy(),
        pod(JOB, tolerations=[{"operator": "Exists"}]),
        "TolerationNotAllowed",
        "a toleration of every taint in pod set main .policy tolerationKeys",
    ),
    "every taint, of one effect": (
        Policy(),
        pod(JOB, tolerations=[{"key": "", "operator": "Exists", "effect": "NoSchedule"}]),
        "TolerationNotAllowed",
        "every taint",
    ),
    "the control plane": (
        Policy(),
        pod(JOB, tolerations=[{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}]),
        "TolerationNotAllowed",
        "control-plane",
    ),
    "another taint": (
        Policy(toleration_keys=("spot",)),
        pod(JOB, tolerations=[{"key": "spot"}, {"key": "gpu"}]),
        "TolerationNotAllowed",
        "the taint gpu",
    ),
    "another runtime": (
        Policy(runtime_classes=()),
        pod(JOB, runtimeClassName="unconfined"),
        "RuntimeClassNotAllowed",
        "RuntimeClass unconfined in pod set main .policy runtimeClasses",
    ),
    "another scheduler": (
        Policy(),
        pod(JOB, schedulerName="mine"),
        "SchedulerNotAllowed",
        "the scheduler mine in pod set main .policy schedulerNames",
    ),
    "a driver": (
        Policy(),
        pod(JOB, volumes=[{"name": "v", "csi": {"driver": "secrets-store.csi.k8s.io"}}]),
        "VolumeNotAllowed",
        "secrets-store.csi.k8s.io in pod set main .policy csiDrivers",
    ),
    "a driver of the older sort": (
        Policy(csi_drivers=("nfs",)),
        pod(JOB, volumes=[{"name": "v", "flexVolume": {"driver": "mine/root"}}]),
        "VolumeNotAllowed",
        "mine/root in pod set main .policy csiDrivers",
    ),
    "an account of KubeRay's where accounts are named": (
        Policy(service_accounts=("default",)),
        a_cluster(enableInTreeAutoscaling=True),
        "ServiceAccountNotAllowed",
        "the service account that KubeRay makes.*policy autoscalerAccounts",
    ),
    "an account of KubeRay's": (
        Policy(autoscaler_accounts=False),
        a_rayjob(cluster=a_cluster(enableInTreeAutoscaling=True)["spec"]),
        "ServiceAccountNotAllowed",
        "autoscalerAccounts",
    ),
    "an Ingress of a RayJob": (
        Policy(),
        a_rayjob(cluster=head(enableIngress=True)["spec"]),
        "IngressNotAllowed",
        "an Ingress",
    ),
}


@pytest.mark.parametrize(("policy", "job", "reason", "text"), REFUSED.values(), ids=REFUSED.keys())
def test_what_a_policy_does_not_allow_is_refused_with_its_rule(
    policy: Policy, job: Manifest, reason: str, text: str
) -> None:
    with pytest.raises(RefusedOrder, match=text) as raised:
        ensure_allowed(policy, copy_of(job), namespace_labels={"stage": "test"})
    assert raised.value.reason == reason


def pod_specs(value: Any) -> Iterator[Manifest]:
    """The specs of all pod templates in a value."""
    if isinstance(value, dict) and "containers" in value:
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from pod_specs(inner)


SUBMITTED = a_rayjob(submitterPodTemplate={"spec": {"containers": [{"name": "submitter", "image": "ray"}]}})
EVERY_KIND = {"Job": (JOB, 1), "RayCluster": (RAY, 2), "RayJob": (SUBMITTED, 3), "RayService": (a_rayservice(), 2)}
"""A job of each kind, and how many pod templates it has."""


@pytest.mark.parametrize(("job", "templates"), EVERY_KIND.values(), ids=EVERY_KIND.keys())
@pytest.mark.parametrize("sort", ["containers", "initContainers", "ephemeralContainers"])
def test_no_container_of_any_sort_in_any_template_escapes_the_policy(job: Manifest, templates: int, sort: str) -> None:
    assert len(list(pod_specs(job["spec"]))) == templates
    for number in range(templates):
        changed = deepcopy(job)
        spec = list(pod_specs(changed["spec"]))[number]
        spec[sort] = [*(spec.get(sort) or ()), {"name": "more", "securityContext": {"privileged": True}}]
        with pytest.raises(RefusedOrder, match=f"privileged: spec.{sort}"):
            ensure_allowed(Policy(), copy_of(changed), namespace_labels={})


ALLOWED: dict[str, tuple[Policy, Manifest]] = {
    "a Job by default": (Policy(), JOB),
    "a RayCluster by default": (Policy(), a_cluster(enableInTreeAutoscaling=True)),
    "a RayJob by default": (Policy(), a_rayjob()),
    "a namespace that is selected": (Policy(namespace_selector=LabelSelector({"stage": "test"})), JOB),
    "any namespace": (Policy(namespace_selector=LabelSelector()), JOB),
    "the node's files where everything is": (OPEN, pod(JOB, volumes=HOST_PATH)),
    "a service account": (Policy(service_accounts=("jobs",)), pod(JOB, serviceAccountName="jobs")),
    "what slicebus sets itself": (
        Policy(label_prefixes=(), annotation_prefixes=()),
        labelled(JOB, labels={}, annotations={"kueue.x-k8s.io/elastic-job": "true"}),
    ),
    "a label": (Policy(label_prefixes=("team",)), labelled(JOB, labels={"team": "a"})),
    "a class": (Policy(), pod(JOB, priorityClassName="high")),
    "a class of the cluster where that is named": (
        Policy(priority_classes=("system-node-critical",)),
        pod(JOB, priorityClassName="system-node-critical"),
    ),
    "a taint": (Policy(), pod(JOB, tolerations=[{"key": "gpu", "operator": "Exists"}])),
    "every taint where that is named": (Policy(toleration_keys=("",)), pod(JOB, tolerations=[{"operator": "Exists"}])),
    "a runtime": (Policy(), pod(JOB, runtimeClassName="nvidia")),
    "the default scheduler": (Policy(), pod(JOB, schedulerName="default-scheduler")),
    "a scheduler": (Policy(scheduler_names=("mine",)), pod(JOB, schedulerName="mine")),
    "a driver": (
        Policy(csi_drivers=("mine",)),
        pod(JOB, volumes=[{"name": "v", "csi": {"driver": "mine"}}, {"name": "w", "emptyDir": {}}]),
    ),
    "an account of KubeRay's": (
        Policy(service_accounts=("default",), autoscaler_accounts=True),
        a_cluster(enableInTreeAutoscaling=True),
    ),
    "KubeRay's own names": (Policy(), service(serveService={"metadata": {"name": f"{SERVICE}-serve-svc"}})),
    "any name": (Policy(service_names=None), service(serveService={"metadata": {"name": "postgres"}})),
    "a name": (Policy(service_names=("api",)), service(serveService={"metadata": {"name": "api"}})),
    "a Gateway": (OPEN, service(upgradeStrategy={"type": "NewClusterWithIncrementalUpgrade"})),
    "another upgrade": (Policy(), service(upgradeStrategy={"type": "NewCluster"})),
    "public Services": (OPEN, head(serviceType="LoadBalancer", enableIngress=True)),
}


@pytest.mark.parametrize(("policy", "job"), ALLOWED.values(), ids=ALLOWED.keys())
def test_what_a_policy_allows(policy: Policy, job: Manifest) -> None:
    ensure_allowed(policy, copy_of(job), namespace_labels={"stage": "test"})


def test_a_namespace_that_is_missing_is_selected_by_nothing() -> None:
    with pytest.raises(RefusedOrder, match="namespaceSelector"):
        ensure_allowed(Policy(namespace_selector=LabelSelector()), copy_of(JOB), namespace_labels=None)


@pytest.mark.parametrize("namespace", ["kube-system", "kube-public", "kube-anything", "slicebus-system"])
def test_no_policy_allows_the_clusters_own_namespaces(namespace: str) -> None:
    with pytest.raises(RefusedOrder, match=namespace) as raised:
        ensure_namespace(Policy(own_namespace="slicebus-system"), namespace)
    assert raised.value.reason == NAMESPACE


@pytest.mark.parametrize("namespace", ["team", "kubernetes", "slicebus"])
def test_other_namespaces_are_left_to_the_policy(namespace: str) -> None:
    ensure_namespace(Policy(own_namespace="slicebus-system"), namespace)


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: order.job.kind)
def test_an_order_that_would_create_a_job_is_judged_by_the_policy(order: Any) -> None:
    view = WorkerView(key=JobKey.of(order.job), job=None, policy=Policy(namespace_selector=PRODUCTION))
    with pytest.raises(RefusedOrder, match="namespaceSelector"):
        orders.next_step(orders.workload_spec(order, EAST), 0, view)


def test_a_job_that_is_there_goes_on_under_a_stricter_policy() -> None:
    """The policy is for what is made. An order changes nothing else of a job."""
    there = a_view(a_job())
    view = WorkerView(key=there.key, job=there.job, reading=there.reading, policy=Policy(namespace_selector=PRODUCTION))
    assert orders.next_step(orders.workload_spec(a_spec(2, "w2"), EAST), 0, view).commands


# --- who creates a job ----------------------------------------------------------------------------------------------


def creates(order: Any, policy: Policy) -> dict[Resource, Impersonation | None]:
    """What an order creates, and as whom."""
    view = WorkerView(key=JobKey.of(order.job), job=None, policy=policy)
    decided = [command for step in orders.workload_spec(order, EAST) for command in step.decide(view)]
    return {command.resource: command.impersonate for command in decided if isinstance(command, Create)}


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: order.job.kind)
def test_only_the_job_itself_is_created_as_the_service_account(order: Any) -> None:
    resource, namespace = JOB_RESOURCES[order.job.kind], order.job.namespace
    assert creates(order, Policy()) == {WORKLOADS: None, resource: None}
    account = Impersonation(f"system:serviceaccount:{namespace}:jobs", {"slicebus.dev/agent": SYSTEM})
    policy = Policy(create_as="jobs", own_namespace=SYSTEM)
    assert creates(order, policy) == {WORKLOADS: None, resource: account}


NOT_ITS_OWN = (
    'jobs.batch is forbidden: User "system:serviceaccount:team:jobs" cannot create resource "jobs" in API group '
    '"batch" in the namespace "team"'
)
NO_RIGHT = (
    'serviceaccounts "jobs" is forbidden: User "system:serviceaccount:slicebus-system:slicebus-agent" cannot '
    'impersonate resource "serviceaccounts" in API group "" in the namespace "team"'
)
NO_EXTRA = NO_RIGHT.replace('serviceaccounts "jobs"', 'userextras.authentication.k8s.io "slicebus-system"')


@pytest.mark.parametrize(
    ("words", "reason"),
    [(NOT_ITS_OWN, "Forbidden"), (NO_RIGHT, "ImpersonationForbidden"), (NO_EXTRA, "ImpersonationForbidden")],
    ids=["of the account", "of the agent", "of the agent to its extra"],
)
async def test_a_missing_right_is_told_in_the_servers_words(
    worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, reason: str
) -> None:
    create = worker.client.create

    async def guarded(resource: Resource, *args: Any, **given: Any) -> Manifest:
        if resource == JOBS:
            raise ForbiddenError(f"403: {words}")
        return await create(resource, *args, **given)

    monkeypatch.setattr(worker.client, "create", guarded)
    file = tmp_path / "policy.yaml"
    file.write_text("createAs: jobs")
    assert await ordered(worker, file, 1) == [reason]
    [refused] = worker.published
    assert isinstance(refused, Refused)
    assert refused.message == f"403: {words}"


# --- how it is read -------------------------------------------------------------------------------------------------

WRONG: dict[str, tuple[str, str]] = {
    "no YAML": ("{", "cannot be read"),
    "no mapping": ("- a", "Expected `object`, got `array`"),
    "an unknown field": ("podsecurity: baseline", "unknown field `podsecurity`"),
    "no level": ("podSecurity: strict", "podSecurity: Invalid enum value 'strict'"),
    "a text for a list": ("serviceAccounts: default", "serviceAccounts: Expected `array"),
    "no type of Service": ("serviceTypes: [ClusterIP, Public]", r"serviceTypes\[1\]: "),
    "no operator": (
        "namespaceSelector: {matchExpressions: [{key: a, operator: Is}]}",
        r"namespaceSelector.matchExpressions\[0\].operator: ",
    ),
    "no name of a service account": ("createAs: Jobs_1", "createAs: Expected `str` matching regex"),
    "an account of another namespace": ("createAs: kube-system:admin", "createAs: Expected `str` matching regex"),
    "no account": ("createAs: ''", "createAs: Expected `str` matching regex"),
    "several accounts": ("createAs: [jobs]", "createAs: Expected `str | null`, got `array`"),
    "the agent's namespace": ("ownNamespace: other", "unknown field `ownNamespace`"),
}


@pytest.mark.parametrize(("text", "told"), WRONG.values(), ids=WRONG.keys())
def test_the_error_of_a_wrong_policy_names_the_file_and_the_field(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=told) as raised:
        read_policy(file)
    assert str(file) in str(raised.value)


def test_an_empty_file_is_the_default_policy(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("# nothing\n")
    assert Policy(own_namespace="x") == Policy(**{**_fields(read_policy(file)), "own_namespace": "x"})
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_policy(tmp_path / "missing.yaml")


def _fields(policy: Any) -> dict[str, Any]:
    return {name: getattr(policy, name) for name in policy.__struct_fields__}


async def ordered(worker: Worker, path: Path | None, *versions: int) -> list[Any]:
    """What comes of orders for the job: whether it stands, or why not."""
    policy = PolicySource(str(path) if path else None, own_namespace=SYSTEM, client=worker.client, store=worker.store)
    policy.load()
    worker.inbox._policy = policy
    found: list[Any] = []
    async with receiving(worker):
        for version in versions:
            await Manager(worker).order(a_spec(version))
            last = worker.published[-1]
            found.append(last.reason if isinstance(last, Refused) else (await standing(worker) or ("none",))[0])
    return found


async def test_a_policy_is_read_again_when_its_file_changes(worker: Worker, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("serviceAccounts: [jobs]")
    assert await ordered(worker, file, 1) == ["ServiceAccountNotAllowed"]
    policy = worker.inbox._policy
    file.write_text("podSecurity: no level")
    await policy.refresh(REF)
    assert worker.store.policy[POLICY].service_accounts == ("jobs",), "one that cannot be read changes nothing"
    file.unlink()
    await policy.refresh(REF)
    assert worker.store.policy[POLICY].service_accounts == ("jobs",)
    file.write_text("serviceAccounts: [jobs, default]")
    await policy.refresh(REF)
    assert worker.store.policy[POLICY] == Policy(service_accounts=("jobs", "default"), own_namespace=SYSTEM)
    assert await ordered(worker, file, 2) == ["w1"]


async def test_the_labels_of_a_namespace_are_read_for_a_job_that_would_be_created(
    worker: Worker, tmp_path: Path
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("namespaceSelector: {matchLabels: {jobs: allowed}}")
    assert await ordered(worker, file, 1) == [NAMESPACE]
    patch = MergePatch({"metadata": {"labels": {"jobs": "allowed"}}})
    await worker.client.patch(NAMESPACES, TEAM, None, patch)
    assert await ordered(worker, file, 2) == ["w1"]


async def test_without_a_selector_no_namespace_is_read(worker: Worker) -> None:
    """It needs a permission that the agent has only where a policy asks for it."""
    assert await ordered(worker, None, 1) == ["w1"]
    assert not worker.store.namespaces
