"""What the charts render, and what they refuse."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from slicebus.agent.permissions import PERMISSIONS as AGENT_PERMISSIONS
from slicebus.agent.settings import AgentSettings
from slicebus.kube.crds import custom_resource_definitions
from slicebus.kube.resources import RAYCLUSTERS, Resource
from slicebus.manager.permissions import permissions as manager_permissions
from slicebus.manager.settings import Admission, ManagerSettings
from slicebus.proto.topology import JOURNAL_MAX_AGE, JOURNAL_MAX_BYTES
from slicebus.runtime.permissions import Permission, definitions_of
from slicebus.runtime.settings import RoleSettings
from support.helm import CHARTS, HelmError, Manifest, environment, only, render

pytestmark = pytest.mark.helm

URL = "amqps://east:secret@broker:5671/slicebus"
VALUES: dict[str, dict[str, Any]] = {
    "slicebus-agent": {"cluster": "east", "amqp": {"url": URL}},
    "slicebus-manager": {"amqp": {"url": URL}},
}
RULES: dict[str, tuple[str, dict[str, Any], tuple[Permission, ...]]] = {
    "agent": ("slicebus-agent", {}, AGENT_PERMISSIONS),
    "manager": ("slicebus-manager", {}, manager_permissions(Admission.BUILTIN)),
    "manager beside a Kueue": (
        "slicebus-manager",
        {"admission": {"mode": "kueue"}},
        manager_permissions(Admission.KUEUE),
    ),
}

each_chart = pytest.mark.parametrize("chart", VALUES)


@pytest.mark.parametrize(("chart", "values", "wanted"), RULES.values(), ids=RULES.keys())
def test_the_rules_are_what_the_role_does_and_no_more(
    helm: Path, chart: str, values: dict[str, Any], wanted: tuple[Permission, ...]
) -> None:
    rendered = render(helm, chart, VALUES[chart] | values)
    assert granted(only(rendered, "ClusterRole")) == verbs(p for p in wanted if not p.own_namespace)
    assert granted(only(rendered, "Role")) == verbs(p for p in wanted if p.own_namespace)


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
    rendered = render(helm, chart, VALUES[chart] | values | extra)
    wanted = verbs_for_more_kinds(wanted, more)
    assert granted(only(rendered, "ClusterRole")) == verbs(p for p in wanted if not p.own_namespace)


def test_the_agents_variables_are_its_settings(helm: Path) -> None:
    found = environment(render(helm, "slicebus-agent", VALUES["slicebus-agent"] | {"managerUser": "boss"}))
    assert set(found) <= set(AgentSettings.variables.values())
    settings = AgentSettings.from_env(found)
    assert (settings.cluster, settings.amqp_url, settings.manager_user) == ("east", URL, "boss")
    assert (settings.heartbeat_s, settings.status_interval_s) == (10.0, 0.5)
    assert (settings.namespace, settings.identity) == ("slicebus-system", "agent-pod")


def test_the_managers_variables_are_its_settings(helm: Path) -> None:
    found = environment(render(helm, "slicebus-manager", VALUES["slicebus-manager"]))
    assert set(found) <= set(ManagerSettings.variables.values())
    settings = ManagerSettings.from_env(found)
    assert (settings.amqp_url, settings.cluster_lost_s, settings.identity) == (URL, 30.0, "manager-pod")
    assert settings.admission is Admission.BUILTIN


def test_beside_a_kueue_the_chart_brings_only_its_own_definition(helm: Path) -> None:
    rendered = render(helm, "slicebus-manager", VALUES["slicebus-manager"] | {"admission": {"mode": "kueue"}})
    assert ManagerSettings.from_env(environment(rendered)).admission is Admission.KUEUE
    assert only(rendered, "CustomResourceDefinition")["metadata"]["name"] == "workerclusters.slicebus.dev"


@each_chart
def test_the_journals_limits_are_the_values(helm: Path, chart: str) -> None:
    def settings(**journal: object) -> RoleSettings:
        variables = environment(render(helm, chart, VALUES[chart] | ({"journal": journal} if journal else {})))
        return (AgentSettings if chart == "slicebus-agent" else ManagerSettings).from_env(variables)

    plain = settings()
    assert (plain.record_decisions, plain.journal_max_age) == (True, JOURNAL_MAX_AGE)
    assert plain.journal_max_bytes == JOURNAL_MAX_BYTES
    other = settings(recordDecisions=False, maxAge="30D", maxBytes=107374182400)
    assert (other.record_decisions, other.journal_max_age) == (False, "30D")
    assert other.journal_max_bytes == 107374182400
    with pytest.raises(HelmError, match="does not match pattern"):
        settings(maxAge="7d")


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
    assert pod["volumes"] == [{"name": "amqp-ca", "secret": {"secretName": "broker-ca"}}]
    assert {"name": "SSL_CERT_FILE", "value": "/etc/slicebus/amqp-ca/ca.crt"} in pod["containers"][0]["env"]


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
    rendered = render(helm, chart, VALUES[chart] | {"crds": crds})
    found = [manifest for manifest in rendered if manifest["kind"] == "CustomResourceDefinition"]
    assert {crd["metadata"]["name"] for crd in found} == groups
    assert all(crd["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"} for crd in found)


@pytest.mark.parametrize(
    ("chart", "values", "told"),
    [
        ("slicebus-agent", {"amqp": {"url": URL}}, "cluster is needed"),
        ("slicebus-agent", {"cluster": "East_1", "amqp": {"url": URL}}, "'East_1' does not match pattern"),
        ("slicebus-agent", {"cluster": "east"}, "the broker's address is needed"),
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


@each_chart
def test_every_value_is_in_the_schema(chart: str) -> None:
    values = yaml.safe_load((CHARTS / chart / "values.yaml").read_text())
    schema = yaml.safe_load((CHARTS / chart / "values.schema.json").read_text())
    assert set(values) == set(schema["properties"]) - {"global"}


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
