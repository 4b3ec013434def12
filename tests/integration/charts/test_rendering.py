"""What the charts render, and what they refuse."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from slicebus.agent.act.policy import read_policy
from slicebus.agent.permissions import permissions as agent_permissions
from slicebus.agent.settings import AgentSettings
from slicebus.agent.state.policy import PolicyFile
from slicebus.bus.access.address import Access
from slicebus.bus.sizes import LEAST_MESSAGE_BYTES, MESSAGE_BYTES
from slicebus.kube.crds import custom_resource_definitions
from slicebus.kube.resources import RAYCLUSTERS, Resource
from slicebus.manager.permissions import permissions as manager_permissions
from slicebus.manager.settings import ManagerSettings
from slicebus.manager.state.settings import AdmissionModeName
from slicebus.proto.topology import JOURNAL_MAX_AGE, JOURNAL_MAX_BYTES
from slicebus.runtime.environment import variables_of
from slicebus.runtime.permissions import Permission, definitions_of
from slicebus.runtime.settings import RoleSettings
from slicebus.slices.jobs.registry import DECLARATIONS, load
from slicebus.slices.quota.consumption import ResourceWeight, UsageRule
from slicebus.slices.schedulers import NAMES
from support.helm import HelmError, Manifest, environment, only, render
from unit.slices.jobs.declared import DECLARED, ENTRIES
from unit.slices.jobs.test_declaration import changed

pytestmark = pytest.mark.helm

URL = "amqps://east:secret@broker:5671/slicebus"
VALUES: dict[str, dict[str, Any]] = {
    "slicebus-agent": {"cluster": "east", "managerUser": "boss", "amqp": {"url": URL}},
    "slicebus-manager": {"amqp": {"url": URL}},
}
OF_A_SECRET = {chart: values | {"amqp": {"existingSecret": {"name": "mine"}}} for chart, values in VALUES.items()}
"""Without an address, whose checksum takes a fifth of a second of processor time."""
RULES: dict[str, tuple[str, dict[str, Any], tuple[Permission, ...]]] = {
    "agent": ("slicebus-agent", {}, agent_permissions()),
    **{
        f"agent with {name}": ("slicebus-agent", {"schedulers": [{"name": name}]}, agent_permissions(schedulers=[name]))
        for name in NAMES
    },
    "agent with every scheduler": (
        "slicebus-agent",
        {"schedulers": [{"name": name} for name in NAMES]},
        agent_permissions(schedulers=NAMES),
    ),
    "manager": ("slicebus-manager", {}, manager_permissions(AdmissionModeName.BUILTIN)),
    "manager of two shards": (
        "slicebus-manager",
        {"shards": 2},
        manager_permissions(AdmissionModeName.BUILTIN, shards=2),
    ),
    "manager that counts devices": (
        "slicebus-manager",
        {"admission": {"deviceClassMappings": [{"name": "example.com/gpu", "deviceClassNames": ["gpu.example.com"]}]}},
        manager_permissions(AdmissionModeName.BUILTIN, counts_devices=True),
    ),
    "manager beside a Kueue": (
        "slicebus-manager",
        {"admission": {"mode": "kueue"}},
        manager_permissions(AdmissionModeName.KUEUE),
    ),
}

each_chart = pytest.mark.parametrize("chart", VALUES)


@pytest.mark.parametrize(("chart", "values", "wanted"), RULES.values(), ids=RULES.keys())
def test_the_rules_are_what_the_role_does_and_no_more(
    helm: Path, chart: str, values: dict[str, Any], wanted: tuple[Permission, ...]
) -> None:
    rendered = render(helm, chart, OF_A_SECRET[chart] | values)
    assert granted(own_role(rendered)) == verbs(p for p in wanted if not p.own_namespace)
    assert granted(only(rendered, "Role")) == verbs(p for p in wanted if p.own_namespace)


def own_role(rendered: list[Manifest]) -> Manifest:
    """The ClusterRole of the role itself, which its binding names."""
    name = only(rendered, "ClusterRoleBinding")["roleRef"]["name"]
    (found,) = (each for each in rendered if each["kind"] == "ClusterRole" and each["metadata"]["name"] == name)
    return found


def verbs_for_more_kinds(wanted: tuple[Permission, ...], more: Resource) -> tuple[Permission, ...]:
    """The permissions with those for RayClusters given for another kind too."""
    of_ray = (p for p in wanted if p.resource == RAYCLUSTERS)
    return (*wanted, *(replace(p, resource=more) for p in of_ray), *definitions_of((more,)))


@pytest.mark.parametrize(("chart", "values", "wanted"), RULES.values(), ids=RULES.keys())
def test_a_job_kind_from_elsewhere_is_allowed_what_every_kind_is(
    helm: Path, chart: str, values: dict[str, Any], wanted: tuple[Permission, ...]
) -> None:
    more = Resource("example.dev", "v1", "trainjobs", "TrainJob")
    extra = {"extraJobKinds": [{"group": more.group, "plural": more.plural}]}
    rendered = render(helm, chart, OF_A_SECRET[chart] | values | extra)
    wanted = verbs_for_more_kinds(wanted, more)
    assert granted(own_role(rendered)) == verbs(p for p in wanted if not p.own_namespace)


@pytest.mark.parametrize(("chart", "values", "wanted"), RULES.values(), ids=RULES.keys())
def test_a_declared_job_kind_is_allowed_what_every_kind_is(
    helm: Path, chart: str, values: dict[str, Any], wanted: tuple[Permission, ...]
) -> None:
    declared = {"declaredJobKinds": [ENTRIES[name] for name in DECLARED]}
    rendered = render(helm, chart, OF_A_SECRET[chart] | values | declared)
    for kind in DECLARED.values():
        wanted = verbs_for_more_kinds(wanted, kind.resource)
    assert granted(own_role(rendered)) == verbs(p for p in wanted if not p.own_namespace)


@each_chart
def test_the_role_reads_the_declarations_as_they_are_written(helm: Path, chart: str, tmp_path: Path) -> None:
    plain = render(helm, chart, VALUES[chart])
    assert DECLARATIONS not in environment(plain)
    assert "job-kinds" not in str(plain)
    entries = [*ENTRIES.values()]
    rendered = render(helm, chart, VALUES[chart] | {"declaredJobKinds": entries})
    pod = only(rendered, "Deployment")["spec"]["template"]["spec"]
    [mount] = [mount for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == "job-kinds"]
    [volume] = [volume for volume in pod["volumes"] if volume["name"] == "job-kinds"]
    [content] = [
        found["data"]
        for found in rendered
        if (found["kind"], found["metadata"]["name"]) == ("ConfigMap", volume["configMap"]["name"])
    ]
    path = Path(environment(rendered)[DECLARATIONS])
    assert str(path.parent) == mount["mountPath"]
    (tmp_path / path.name).write_text(content[path.name])
    kinds, left_out = load([], str(tmp_path / path.name))
    assert left_out == {}
    assert {name: kinds[name].declaration for name in DECLARED} == {n: k.declaration for n, k in DECLARED.items()}


@each_chart
def test_a_changed_declaration_starts_the_pods_anew(helm: Path, chart: str) -> None:
    def annotation(*entries: Manifest) -> str:
        rendered = render(helm, chart, OF_A_SECRET[chart] | {"declaredJobKinds": list(entries)})
        found: str = only(rendered, "Deployment")["spec"]["template"]["metadata"]["annotations"]["checksum/job-kinds"]
        return found

    assert annotation(ENTRIES["JobSet"]) == annotation(ENTRIES["JobSet"]) != annotation(ENTRIES["Deployment"])


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        (changed("JobSet", "spec..suspend", "suspendPath"), "does not match pattern"),
        (changed("JobSet", "spec.suspend", "suspendedPath"), "'suspendedPath' not allowed"),
        (changed("JobSet", None, "podSets", 0, "templatePath"), "missing property 'templatePath'"),
    ],
    ids=["a path", "a field", "a missing field"],
)
@each_chart
def test_a_slip_in_a_declaration_is_named(helm: Path, chart: str, entry: Manifest, told: str) -> None:
    with pytest.raises(HelmError, match=told):
        render(helm, chart, VALUES[chart] | {"declaredJobKinds": [entry]})


@pytest.mark.parametrize("schedulers", [("default",), NAMES], ids=["no schedulers", "every scheduler"])
def test_in_namespaces_the_agent_may_do_in_these_only_what_it_may_do_in_all(
    helm: Path, schedulers: tuple[str, ...]
) -> None:
    chart, namespaces = "slicebus-agent", ("team-a", "team-b")
    values = {"namespaces": list(namespaces), "schedulers": [{"name": name} for name in schedulers]}
    rendered = render(helm, chart, VALUES[chart] | values)
    wanted = agent_permissions(namespaces, schedulers)
    assert granted(own_role(rendered)) == verbs(p for p in wanted if not (p.own_namespace or p.namespaces))
    roles = {role["metadata"]["namespace"]: role for role in rendered if role["kind"] == "Role"}
    assert set(roles) == {"slicebus-system", *namespaces}
    bindings = {each["metadata"]["namespace"]: each for each in rendered if each["kind"] == "RoleBinding"}
    for namespace in namespaces:
        assert granted(roles[namespace]) == verbs(p for p in wanted if p.namespaces)
        assert bindings[namespace]["roleRef"]["name"] == roles[namespace]["metadata"]["name"]
        assert bindings[namespace]["subjects"] == bindings["slicebus-system"]["subjects"]
    found = AgentSettings.from_env(environment(rendered))
    assert found.watched_namespaces == namespaces
    for binding in rendered:
        if binding["kind"] == "ValidatingAdmissionPolicyBinding" and ".others-" in binding["metadata"]["name"]:
            (expression,) = binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
            assert expression["values"] == list(namespaces)


def test_the_agents_variables_are_its_settings(helm: Path) -> None:
    found = environment(render(helm, "slicebus-agent", VALUES["slicebus-agent"]))
    assert set(found) <= set(variables_of(AgentSettings).values())
    settings = AgentSettings.from_env(found)
    assert (settings.cluster, settings.amqp_url, settings.manager_user) == ("east", URL, "boss")
    assert (settings.heartbeat_s, settings.status_interval_s) == (10.0, 0.5)
    assert (settings.namespace, settings.identity) == ("slicebus-system", "agent-pod")


def test_the_managers_variables_are_its_settings(helm: Path) -> None:
    found = environment(render(helm, "slicebus-manager", VALUES["slicebus-manager"]))
    assert set(found) <= set(variables_of(ManagerSettings).values())
    settings = ManagerSettings.from_env(found)
    assert (settings.amqp_url, settings.cluster_lost_s, settings.identity) == (URL, 30.0, "manager-pod")
    assert settings.decisions.admission is AdmissionModeName.BUILTIN


def test_what_the_manager_waits_for_and_what_it_runs_are_values(helm: Path) -> None:
    def settings(**values: object) -> ManagerSettings:
        rendered = render(helm, "slicebus-manager", VALUES["slicebus-manager"] | values)
        return ManagerSettings.from_env(environment(rendered))

    plain = settings()
    assert not plain.decisions.waits_for_pods
    assert plain.decisions.cluster_lost_requeue_s is None
    assert [plain.decisions.refused_requeue_s, settings(refusedRequeueSeconds=0).decisions.refused_requeue_s] == [
        600,
        0,
    ]
    assert [one.decisions.notice_cap_s for one in (plain, settings(noticeCapSeconds=90))] == [0, 90]
    waits = {"timeoutSeconds": 300, "recoveryTimeoutSeconds": 60.5, "scaleUpTimeoutSeconds": 120}
    other = settings(waitForPodsReady=waits, clusterLostRequeueSeconds=900).decisions
    assert (other.pods_ready_s, other.pods_recovery_s, other.scale_up_ready_s) == (300, 60.5, 120)
    assert other.cluster_lost_requeue_s == 900
    assert [settings(admission={"fixedJobs": value}).decisions.fixed_jobs for value in (False, True)] == [False, True]
    first = [settings(admission={"podsBeforeJobs": value}).decisions.pods_before_jobs for value in (True, False)]
    assert [plain.decisions.pods_before_jobs, *first] == [True, True, False]
    idle = settings(admission={"idleQuota": {"growthSeconds": 0, "headroom": 0.25}}).decisions
    assert (idle.idle_growth_s, idle.idle_headroom) == (0.0, 0.25)
    assert (plain.decisions.idle_growth_s, plain.decisions.idle_headroom) == (300.0, 0.05)
    weights = [{"name": "nvidia.com/gpu", "weight": 10}]
    usage = {"halfLifeSeconds": 3600, "samplingSeconds": 60, "resourceWeights": weights}
    by_use = settings(admission={"usageFairSharing": usage}).decisions.usage_rule
    assert by_use == UsageRule(3600.0, 60.0, (ResourceWeight("nvidia.com/gpu", 10.0),))
    assert plain.decisions.usage_rule == UsageRule()
    with pytest.raises(HelmError, match="timeoutSeconds"):
        settings(waitForPodsReady={"timeoutSeconds": 0})
    assert (plain.shards, settings(shards=2, replicas=3).shards) == (1, 2)
    with pytest.raises(HelmError, match="replicas must not be less than shards"):
        settings(shards=3, replicas=2)


def test_beside_a_kueue_the_chart_brings_only_its_own_definition(helm: Path) -> None:
    rendered = render(helm, "slicebus-manager", VALUES["slicebus-manager"] | {"admission": {"mode": "kueue"}})
    assert ManagerSettings.from_env(environment(rendered)).decisions.admission is AdmissionModeName.KUEUE
    assert only(rendered, "CustomResourceDefinition")["metadata"]["name"] == "workerclusters.slicebus.dev"


def test_the_journals_limits_are_the_values(helm: Path) -> None:
    def settings(**journal: object) -> ManagerSettings:
        values = VALUES["slicebus-manager"] | ({"journal": journal} if journal else {})
        return ManagerSettings.from_env(environment(render(helm, "slicebus-manager", values)))

    plain = settings()
    assert (plain.record_decisions, plain.journal_max_age) == (True, JOURNAL_MAX_AGE)
    assert plain.journal_max_bytes == JOURNAL_MAX_BYTES
    other = settings(recordDecisions=False, maxAge="30D", maxBytes=107374182400)
    assert (other.record_decisions, other.journal_max_age) == (False, "30D")
    assert other.journal_max_bytes == 107374182400
    with pytest.raises(HelmError, match="does not match pattern"):
        settings(maxAge="7d")


@each_chart
def test_the_bounds_of_messages_are_the_values(helm: Path, chart: str) -> None:
    def settings(**messages: int) -> RoleSettings:
        values = VALUES[chart] | ({"messages": messages} if messages else {})
        role = ManagerSettings if chart == "slicebus-manager" else AgentSettings
        return role.from_env(environment(render(helm, chart, values)))

    assert (settings().message_bytes, settings().held_bytes) == (MESSAGE_BYTES, 128 * 1024**2)
    other = settings(maxBytes=8388608, maxHeldBytes=1073741824)
    assert (other.message_bytes, other.held_bytes) == (8388608, 1073741824)
    with pytest.raises(HelmError, match="maxBytes"):
        settings(maxBytes=LEAST_MESSAGE_BYTES - 1)


def test_an_agent_makes_no_journal_and_records_by_its_value(helm: Path) -> None:
    values = VALUES["slicebus-agent"] | {"journal": {"recordDecisions": False}}
    assert not AgentSettings.from_env(environment(render(helm, "slicebus-agent", values))).record_decisions
    with pytest.raises(HelmError, match="maxAge"):
        render(helm, "slicebus-agent", VALUES["slicebus-agent"] | {"journal": {"maxAge": "7D"}})


@each_chart
def test_the_pod_is_not_root_and_its_probes_touch_no_dependency(helm: Path, chart: str) -> None:
    pod = only(render(helm, chart, VALUES[chart]), "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}


@each_chart
def test_a_secret_of_the_users_own_takes_the_place_of_the_charts(helm: Path, chart: str) -> None:
    values = VALUES[chart] | {"amqp": {"existingSecret": {"name": "mine", "key": "uri"}}}
    rendered = render(helm, chart, values)
    assert not [manifest for manifest in rendered if manifest["kind"] == "Secret"]
    (container,) = only(rendered, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["env"][0] == {
        "name": "AMQP_URL",
        "valueFrom": {"secretKeyRef": {"name": "mine", "key": "uri"}},
    }


@each_chart
def test_a_certificate_authority_is_mounted(helm: Path, chart: str) -> None:
    values = VALUES[chart] | {"amqp": {"url": URL, "caSecret": {"name": "broker-ca"}}}
    pod = only(render(helm, chart, values), "Deployment")["spec"]["template"]["spec"]
    assert {"name": "amqp-ca", "secret": {"secretName": "broker-ca"}} in pod["volumes"]
    ca = {"name": "SLICEBUS_AMQP_CA_FILE", "value": "/etc/slicebus/amqp-ca/ca.crt"}
    assert ca in pod["containers"][0]["env"]


@each_chart
def test_secrets_are_mounted_whole_so_that_their_updates_arrive(helm: Path, chart: str) -> None:
    amqp = {
        "url": "amqps://east@broker:5671/slicebus",
        "hosts": ["one:5671", "[fd00::2]:5671", "three"],
        "caSecret": {"name": "tls", "key": "authority.pem"},
        "certSecret": {"name": "tls"},
        "passwordSecret": {"name": "password"},
    }
    rendered = render(helm, chart, VALUES[chart] | {"amqp": amqp})
    variables = environment(rendered)
    settings = (AgentSettings if chart == "slicebus-agent" else ManagerSettings).from_env(variables)
    assert set(variables) <= set(variables_of(type(settings)).values())
    assert settings.access == Access(
        hosts="one:5671,[fd00::2]:5671,three",
        ca_file="/etc/slicebus/amqp-ca/authority.pem",
        cert_file="/etc/slicebus/amqp-cert/tls.crt",
        key_file="/etc/slicebus/amqp-cert/tls.key",
        password_file="/etc/slicebus/amqp-password/password",
    )
    pod = only(rendered, "Deployment")["spec"]["template"]["spec"]
    mounts = {m["mountPath"]: m for m in pod["containers"][0]["volumeMounts"] if m["name"] != "policy"}
    secrets = {volume["name"]: volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}
    assert {path: secrets[mount["name"]] for path, mount in mounts.items()} == {
        "/etc/slicebus/amqp-ca": "tls",
        "/etc/slicebus/amqp-cert": "tls",
        "/etc/slicebus/amqp-password": "password",
    }
    assert all(mount["readOnly"] and "subPath" not in mount for mount in mounts.values())


PLAIN = "amqp://east:secret@broker/slicebus"
UNVERIFIED = "amqps://east:secret@broker/slicebus?heartbeat=9&no_verify_ssl=1"


@each_chart
@pytest.mark.parametrize(
    ("amqp", "told"),
    [
        ({"url": PLAIN}, "plain amqp:// to broker"),
        ({"url": PLAIN, "insecure": "unverified"}, "set amqp.insecure=plaintext"),
        ({"url": "amqp://east:se@localhost@broker:5672"}, "plain amqp:// to broker:5672"),
        ({"url": "amqp://127.0.0.1.example.org/"}, "plain amqp:// to 127.0.0.1.example.org"),
        ({"url": PLAIN, "hosts": ["localhost", "other:1"]}, "plain amqp:// to other:1"),
        ({"url": UNVERIFIED}, "set amqp.insecure=unverified"),
        ({"url": UNVERIFIED, "insecure": "plaintext"}, "set amqp.insecure=unverified"),
        ({"url": PLAIN, "insecure": "yes"}, "must be one of"),
        ({"url": URL, "hosts": ["a/b"]}, "does not match pattern"),
    ],
)
def test_an_insecure_address_is_refused(helm: Path, chart: str, amqp: dict[str, Any], told: str) -> None:
    with pytest.raises(HelmError) as refusal:
        render(helm, chart, VALUES[chart] | {"amqp": amqp})
    assert told in str(refusal.value)
    assert "secret@" not in str(refusal.value)


@each_chart
@pytest.mark.parametrize(
    "amqp",
    [
        {"url": PLAIN, "insecure": "plaintext"},
        {"url": PLAIN, "hosts": ["localhost:1", "127.0.0.1:2", "[::1]:3"]},
        {"url": "amqp://localhost"},
        {"url": "amqp://east:secret@[::1]:5672/slicebus"},
        {"url": UNVERIFIED, "insecure": "unverified"},
        {"url": UNVERIFIED.replace("=1", "=0")},
    ],
)
def test_what_the_chart_takes_the_role_takes_too(helm: Path, chart: str, amqp: dict[str, Any]) -> None:
    found = environment(render(helm, chart, VALUES[chart] | {"amqp": amqp}))
    assert (AgentSettings if chart == "slicebus-agent" else ManagerSettings).from_env(found).amqp_url == amqp["url"]


@pytest.mark.parametrize(
    ("chart", "crds", "groups"),
    [
        ("slicebus-agent", {}, {"workloads.kueue.x-k8s.io"}),
        ("slicebus-agent", {"kueue": False}, set()),
        ("slicebus-manager", {}, {crd["metadata"]["name"] for crd in custom_resource_definitions()}),
        ("slicebus-manager", {"kueue": False}, {"workerclusters.slicebus.dev"}),
        ("slicebus-manager", {"kueue": False, "slicebus": False}, set()),
    ],
)
def test_definitions_can_be_left_out(helm: Path, chart: str, crds: dict[str, bool], groups: set[str]) -> None:
    rendered = render(helm, chart, OF_A_SECRET[chart] | {"crds": crds})
    found = [manifest for manifest in rendered if manifest["kind"] == "CustomResourceDefinition"]
    assert {crd["metadata"]["name"] for crd in found} == groups
    assert all(crd["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"} for crd in found)


@pytest.mark.parametrize(
    ("chart", "values", "told"),
    [
        ("slicebus-agent", {"managerUser": "boss", "amqp": {"url": URL}}, "cluster is needed"),
        ("slicebus-agent", {"cluster": "east", "amqp": {"url": URL}}, "managerUser is needed"),
        ("slicebus-agent", {"cluster": "East_1", "amqp": {"url": URL}}, "'East_1' does not match pattern"),
        ("slicebus-agent", {"cluster": "east", "managerUser": "boss"}, "the broker's address is needed"),
        ("slicebus-manager", {}, "the broker's address is needed"),
        ("slicebus-manager", {"amqp": {"url": "http://broker"}}, "does not match pattern"),
        ("slicebus-manager", VALUES["slicebus-manager"] | {"replica": 3}, "properties 'replica' not allowed"),
        ("slicebus-manager", VALUES["slicebus-manager"] | {"replicas": 0}, "minimum: got 0, want 1"),
        ("slicebus-manager", VALUES["slicebus-manager"] | {"admission": {"mode": "both"}}, "must be one of"),
    ],
)
def test_wrong_values_are_refused_with_their_name(helm: Path, chart: str, values: dict[str, Any], told: str) -> None:
    with pytest.raises(HelmError) as refusal:
        render(helm, chart, values)
    assert told in str(refusal.value)


Verbs = dict[tuple[str, str, str], set[str]]
"""By group, resource and name; an empty name is every name."""


def granted(role: Manifest) -> Verbs:
    """The verbs of a role's rules."""
    found: Verbs = {}
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for name in rule.get("resourceNames", [""]):
                    found.setdefault((group, resource, name), set()).update(rule["verbs"])
    return found


def verbs(permissions: Any) -> Verbs:
    """The verbs that a role needs."""
    found: Verbs = {}
    permission: Permission
    for permission in permissions:
        name = permission.resource.plural + (f"/{permission.subresource}" if permission.subresource else "")
        found.setdefault((permission.resource.group, name, permission.name), set()).update(permission.verbs)
    return found


def policy_of(rendered: list[Manifest], folder: Path) -> PolicyFile:
    """The policy that the agent would read."""
    pod = only(rendered, "Deployment")["spec"]["template"]["spec"]
    [volume] = [volume for volume in pod["volumes"] if volume["name"] == "policy"]
    [config] = [each for each in rendered if each["kind"] == "ConfigMap"]
    assert volume["configMap"]["name"] == config["metadata"]["name"]
    [mount] = [mount for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == "policy"]
    path = AgentSettings.from_env(environment(rendered)).policy_file
    assert path is not None
    file = folder / Path(path).relative_to(mount["mountPath"])
    file.write_text(config["data"][file.name])
    return read_policy(file)


def test_the_agents_policy_is_its_values(helm: Path, tmp_path: Path) -> None:
    rendered = render(helm, "slicebus-agent", VALUES["slicebus-agent"])
    assert policy_of(rendered, tmp_path) == PolicyFile()
    values = {
        "namespaceSelector": {"matchExpressions": [{"key": "jobs", "operator": "Exists"}]},
        "podSecurity": "restricted",
        "serviceAccounts": ["jobs"],
        "labelPrefixes": ["team/"],
        "annotationPrefixes": [],
        "serviceTypes": ["ClusterIP", "NodePort"],
        "serviceNames": ["train"],
        "ingress": True,
        "autoscalerAccounts": True,
        "priorityClasses": ["batch"],
        "tolerationKeys": ["gpu"],
        "runtimeClasses": ["gvisor"],
        "schedulerNames": ['my "own"'],
        "csiDrivers": ["disks.example.dev"],
        "createAs": None,
    }
    rendered = render(helm, "slicebus-agent", VALUES["slicebus-agent"] | {"policy": values})
    found = policy_of(rendered, tmp_path)
    assert {name: value for name, value in msgspec.to_builtins(found).items() if name != "namespaceSelector"} == {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in values.items()
        if name != "namespaceSelector"
    }
    assert found.namespace_selector is not None
    assert found.namespace_selector.match_expressions[0].key == "jobs"
    assert not [each for each in rendered if "-policy" in each["metadata"]["name"] and each["kind"] == "ClusterRole"], (
        "an agent reads the namespaces of jobs, whatever its policy"
    )


IMPERSONATE_ACCOUNT = {("", "serviceaccounts", "jobs"): {"impersonate"}}
IMPERSONATE_EXTRA = {("authentication.k8s.io", "userextras/slicebus.dev/agent", "slicebus-system"): {"impersonate"}}


@pytest.mark.parametrize("namespaces", [[], ["team-a", "team-b"]], ids=["everywhere", "in namespaces"])
def test_to_create_as_a_service_account_the_agent_may_impersonate_that_one_only(
    helm: Path, tmp_path: Path, namespaces: list[str]
) -> None:
    chart = "slicebus-agent"
    values = VALUES[chart] | {"namespaces": namespaces}
    before, after = (render(helm, chart, values | more) for more in ({}, {"policy": {"createAs": "jobs"}}))
    assert policy_of(after, tmp_path).create_as == "jobs"
    plain, roles = roles_of(before), roles_of(after)
    [role] = roles.keys() - plain.keys()
    assert roles[role] == (IMPERSONATE_EXTRA if namespaces else IMPERSONATE_EXTRA | IMPERSONATE_ACCOUNT)
    gained = {key: IMPERSONATE_ACCOUNT if key[1] in namespaces else {} for key in plain}
    assert {key: roles[key] for key in plain} == {key: plain[key] | gained[key] for key in plain}
    [binding] = [each for each in after if each["kind"] == "ClusterRoleBinding" and each["roleRef"]["name"] == role[2]]
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": "slicebus-agent", "namespace": "slicebus-system"},
    ]


def roles_of(rendered: list[Manifest]) -> dict[tuple[str, str, str], Verbs]:
    """What each role gives, by kind, namespace and name."""
    roles = [each for each in rendered if each["kind"] in ("Role", "ClusterRole") and "rules" in each]
    return {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): granted(each) for each in roles
    }


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ({"podSecurity": "strict"}, "podSecurity"),
        ({"createAs": "Jobs_1"}, "createAs"),
        ({"createAs": "a' || true"}, "createAs"),
        ({"createAs": ""}, "createAs"),
        ({"namespaces": ["a"]}, "'namespaces' not allowed"),
        ({"serviceTypes": ["Public"]}, "serviceTypes"),
    ],
)
def test_a_wrong_policy_is_refused_with_its_name(helm: Path, policy: dict[str, Any], told: str) -> None:
    with pytest.raises(HelmError, match=told):
        render(helm, "slicebus-agent", VALUES["slicebus-agent"] | {"policy": policy})
