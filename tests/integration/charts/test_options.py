"""What a chart's values turn on and off, and whether its schema says the same as its values."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.helm import CHARTS, HelmError, Manifest, only, render
from support.processes import COMMAND_S

pytestmark = pytest.mark.helm

SECRET = {"existingSecret": {"name": "slicebus-amqp"}}
VALUES: dict[str, dict[str, Any]] = {
    "slicebus-agent": {"cluster": "east", "managerUser": "boss", "amqp": SECRET},
    "slicebus-manager": {"amqp": SECRET},
}
OPEN = {
    "global",
    "extraEnv.valueFrom",
    "extraVolumes",
    *(f"affinity.{kind}" for kind in ("nodeAffinity", "podAffinity", "podAntiAffinity")),
    *(
        f"networkPolicy.{peers}.{selector}"
        for peers in ("apiServer.to", "broker.to", "metricsFrom")
        for selector in ("namespaceSelector", "podSelector")
    ),
}
"""Parts of values that are Kubernetes' own, and are taken as they are."""
OPEN_OF_THE_MANAGER = {
    "view.proxy.env.valueFrom",
    "view.volumes",
    *(f"networkPolicy.view.{peers}.{kind}Selector" for peers in ("from", "to") for kind in ("namespace", "pod")),
    *(f"networkPolicy.ledger.to.{kind}Selector" for kind in ("namespace", "pod")),
}
"""The same, in the manager's chart alone."""
DIGEST = f"sha256:{'0123456789abcdef' * 4}"

each_chart = pytest.mark.parametrize("chart", VALUES)


def of_kind(rendered: list[Manifest], kind: str) -> list[Manifest]:
    """The manifests of a kind."""
    return [manifest for manifest in rendered if manifest["kind"] == kind]


def pod_of(rendered: list[Manifest]) -> Manifest:
    """The pod template of the Deployment."""
    template: Manifest = only(rendered, "Deployment")["spec"]["template"]
    return template


@each_chart
def test_a_chart_passes_the_strict_lint(helm: Path, chart: str) -> None:
    command = [str(helm), "lint", "--strict", str(CHARTS / chart), "--values", "-"]
    text = yaml.safe_dump(VALUES[chart])
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    assert done.returncode == 0, done.stdout


@each_chart
def test_the_image_is_named_by_its_digest(helm: Path, chart: str) -> None:
    def image(**values: str) -> str:
        pod = pod_of(render(helm, chart, VALUES[chart] | {"image": values}))
        found: str = pod["spec"]["containers"][0]["image"]
        return found

    assert image(repository="r/slicebus", tag="1.2") == "r/slicebus:1.2"
    assert image(repository="r/slicebus", tag="1.2", digest=DIGEST) == f"r/slicebus@{DIGEST}"
    with pytest.raises(HelmError, match="does not match pattern"):
        image(digest="sha256:short")


@each_chart
def test_a_namespace_may_give_the_user(helm: Path, chart: str) -> None:
    """As OpenShift does: a null takes a default out."""
    values = {"podSecurityContext": {"runAsUser": None, "runAsGroup": None}}
    pod = pod_of(render(helm, chart, VALUES[chart] | values))
    assert pod["spec"]["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


@each_chart
def test_a_changed_address_starts_the_pods_anew(helm: Path, chart: str) -> None:
    def annotations(password: str) -> dict[str, str]:
        url = f"amqps://east:{password}@broker:5671/slicebus"
        found = pod_of(render(helm, chart, VALUES[chart] | {"amqp": {"url": url}, "podAnnotations": {"a": "b"}}))
        noted: dict[str, str] = found["metadata"]["annotations"]
        return noted

    one, same, other = annotations("one"), annotations("one"), annotations("other")
    assert one == same
    assert one["checksum/amqp"] != other["checksum/amqp"]
    assert one["a"] == "b"
    assert "annotations" not in pod_of(render(helm, chart, VALUES[chart]))["metadata"]


@each_chart
def test_volumes_stand_beside_the_certificate(helm: Path, chart: str) -> None:
    values: dict[str, Any] = {
        "extraVolumes": [{"name": "more", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
    }
    policy = ["policy"] if chart == "slicebus-agent" else []
    spec = pod_of(render(helm, chart, VALUES[chart] | values))["spec"]
    assert [volume for volume in spec["volumes"] if volume["name"] not in policy] == values["extraVolumes"]
    mounts = [mount for mount in spec["containers"][0]["volumeMounts"] if mount["name"] not in policy]
    assert mounts == values["extraVolumeMounts"]
    both = VALUES[chart] | values | {"amqp": SECRET | {"caSecret": {"name": "ca"}}}
    spec = pod_of(render(helm, chart, both))["spec"]
    assert [volume["name"] for volume in spec["volumes"]] == [*policy, "amqp-ca", "more"]
    assert [mount["name"] for mount in spec["containers"][0]["volumeMounts"]] == [*policy, "amqp-ca", "more"]


@each_chart
def test_metrics_and_network_policy_are_off_by_default(helm: Path, chart: str) -> None:
    kinds = {manifest["kind"] for manifest in render(helm, chart, VALUES[chart])}
    assert kinds.isdisjoint({"Service", "PodMonitor", "NetworkPolicy"})
    assert "PodDisruptionBudget" in kinds


@each_chart
def test_what_stands_around_selects_the_pods(helm: Path, chart: str) -> None:
    values = {
        "metrics": {"service": {"enabled": True}, "podMonitor": {"enabled": True, "labels": {"team": "a"}}},
        "podDisruptionBudget": {"maxUnavailable": "50%"},
    }
    rendered = render(helm, chart, VALUES[chart] | values)
    labels = pod_of(rendered)["metadata"]["labels"]
    service, monitor, budget = (only(rendered, kind) for kind in ("Service", "PodMonitor", "PodDisruptionBudget"))
    for selector in (
        service["spec"]["selector"],
        monitor["spec"]["selector"]["matchLabels"],
        budget["spec"]["selector"]["matchLabels"],
    ):
        assert selector
        assert labels.items() >= selector.items()
    assert service["spec"]["ports"][0]["targetPort"] == "http"
    assert monitor["metadata"]["labels"]["team"] == "a"
    assert budget["spec"]["maxUnavailable"] == "50%"
    off = {"podDisruptionBudget": {"enabled": False}}
    assert not of_kind(render(helm, chart, VALUES[chart] | off), "PodDisruptionBudget")


@each_chart
def test_the_network_policy_lets_the_pods_reach_what_they_need(helm: Path, chart: str) -> None:
    server = {"ipBlock": {"cidr": "10.0.0.1/32"}}
    peer = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    values = {"networkPolicy": {"enabled": True, "apiServer": {"to": [server], "ports": [6443]}}}
    policy = only(render(helm, chart, VALUES[chart] | values), "NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["ingress"] == []
    dns, to_server, to_broker = policy["egress"]
    assert {port["port"] for port in dns["ports"]} == {53}
    assert to_server == {"ports": [{"protocol": "TCP", "port": 6443}], "to": [server]}
    assert to_broker == {"ports": [{"protocol": "TCP", "port": 5671}]}
    values["networkPolicy"]["metricsFrom"] = [peer]
    (ingress,) = only(render(helm, chart, VALUES[chart] | values), "NetworkPolicy")["spec"]["ingress"]
    assert ingress == {"from": [peer], "ports": [{"protocol": "TCP", "port": "http"}]}


@each_chart
def test_helm_test_runs_the_doctor_as_the_role(helm: Path, chart: str) -> None:
    plain = render(helm, chart, VALUES[chart])
    rendered = render(helm, chart, VALUES[chart], "--show-only=templates/test.yaml")
    pod = only(rendered, "Pod")
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    (container,), (role,) = pod["spec"]["containers"], pod_of(plain)["spec"]["containers"]
    assert container["args"] == ["doctor"]
    assert {key: container[key] for key in ("image", "env", "securityContext")} == {
        key: role[key] for key in ("image", "env", "securityContext")
    }
    assert pod["spec"]["serviceAccountName"] == pod_of(plain)["spec"]["serviceAccountName"]
    assert pod["spec"]["restartPolicy"] == "Never"
    selector = only(plain, "Deployment")["spec"]["selector"]["matchLabels"]
    assert not pod["metadata"]["labels"].items() >= selector.items(), "it would count as a pod of the role"


@each_chart
def test_two_releases_share_no_name_in_the_cluster(helm: Path, chart: str) -> None:
    scoped = {"ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}

    def names(*more: str, release: str) -> set[tuple[str, str]]:
        rendered = render(helm, chart, VALUES[chart], "--skip-tests", *more, release=release)
        return {(each["kind"], each["metadata"]["name"]) for each in rendered if each["kind"] in scoped}

    first = names(release=chart)
    assert first
    assert first.isdisjoint(names(release="blue"))
    assert first.isdisjoint(names("--namespace=other", release=chart))


@each_chart
def test_users_roles_can_be_left_out(helm: Path, chart: str) -> None:
    aggregated = "rbac.authorization.k8s.io/aggregate-to-"

    def roles(**values: Any) -> list[str]:
        found = of_kind(render(helm, chart, VALUES[chart] | values), "ClusterRole")
        labels = (label for role in found for label in role["metadata"]["labels"])
        return sorted(label.removeprefix(aggregated) for label in labels if label.startswith(aggregated))

    assert roles() == (["view"] if chart == "slicebus-agent" else ["admin", "edit", "view"])
    assert roles(userRoles={"create": False}) == []


def test_who_may_view_may_see_who_leads(helm: Path) -> None:
    def leases(**values: Any) -> list[str]:
        roles = of_kind(render(helm, "slicebus-manager", VALUES["slicebus-manager"] | values), "ClusterRole")
        [view] = [role for role in roles if role["metadata"]["name"].endswith(".view")]
        [rule] = [rule for rule in view["rules"] if rule["resources"] == ["leases"]]
        assert rule["verbs"] == ["get"]
        names: list[str] = rule["resourceNames"]
        return names

    assert leases() == ["slicebus-manager"]
    assert leases(shards=3, replicas=3) == ["slicebus-manager", "slicebus-manager-1", "slicebus-manager-2"]


def test_policies_can_be_left_out_or_only_warn(helm: Path) -> None:
    chart = "slicebus-agent"
    plain = render(helm, chart, VALUES[chart])
    policies, bindings = (of_kind(plain, f"ValidatingAdmissionPolicy{of}") for of in ("", "Binding"))
    assert [binding["spec"]["policyName"] for binding in bindings] == [p["metadata"]["name"] for p in policies]
    assert {tuple(binding["spec"]["validationActions"]) for binding in bindings} == {("Deny",)}
    warned = render(helm, chart, VALUES[chart] | {"admissionPolicies": {"actions": ["Warn", "Audit"]}})
    for binding in of_kind(warned, "ValidatingAdmissionPolicyBinding"):
        assert binding["spec"]["validationActions"] == ["Warn", "Audit"]
    without = render(helm, chart, VALUES[chart] | {"admissionPolicies": {"enabled": False}})
    assert not [manifest for manifest in without if manifest["kind"].startswith("ValidatingAdmissionPolicy")]


def test_the_policies_are_about_the_account_of_the_release(helm: Path) -> None:
    values = VALUES["slicebus-agent"] | {"serviceAccount": {"create": False, "name": "mine"}}
    for policy in of_kind(render(helm, "slicebus-agent", values), "ValidatingAdmissionPolicy"):
        condition = policy["spec"]["matchConditions"][0]["expression"]
        assert "'system:serviceaccount:slicebus-system:mine'" in condition


@each_chart
def test_the_schema_knows_every_value_and_no_other(chart: str) -> None:
    values = yaml.safe_load((CHARTS / chart / "values.yaml").read_text())
    schema = yaml.safe_load((CHARTS / chart / "values.schema.json").read_text())
    missing = [path for path in paths(values) if not is_described(schema, path)]
    assert not missing
    assert {path for path, node in objects(schema) if not is_closed(node)} == (
        OPEN | OPEN_OF_THE_MANAGER if chart == "slicebus-manager" else OPEN
    )
    unset = [name for name in schema["properties"] if name not in values and name != "global"]
    assert not unset, "values.yaml shows what there is to set"


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"resources": {"limit": {}}}, "properties 'limit' not allowed"),
        ({"tolerations": [{"keys": "a"}]}, "properties 'keys' not allowed"),
        ({"podLabels": {"a": 1}}, "got number, want string"),
        ({"extraEnv": [{"name": "A", "value": 1}]}, "got number, want string"),
        ({"networkPolicy": {"broker": {"ports": [0]}}}, "minimum: got 0, want 1"),
        ({"metrics": {"podMonitor": {"interval": "often"}}}, "does not match pattern"),
        ({"podSecurityContext": {"runasuser": 1}}, "properties 'runasuser' not allowed"),
        ({"podDisruptionBudget": {"maxUnavailable": 0}}, "minimum: got 0, want 1"),
    ],
)
@each_chart
def test_a_slip_in_a_value_is_named(helm: Path, chart: str, values: dict[str, Any], told: str) -> None:
    with pytest.raises(HelmError, match=told):
        render(helm, chart, VALUES[chart] | values)


def paths(values: Any, at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every value by its path."""
    for name, value in values.items() if isinstance(values, dict) else ():
        yield (*at, name)
        yield from paths(value, (*at, name))


def is_described(schema: Manifest, path: tuple[str, ...]) -> bool:
    """Whether the schema names the value at a path."""
    for name in path:
        more = schema.get("additionalProperties")
        schema = schema.get("properties", {}).get(name) or (more if isinstance(more, dict) else {})
        if not schema:
            return False
    return True


def objects(schema: Manifest, at: str = "") -> Iterator[tuple[str, Manifest]]:
    """Every object that a schema describes, by its path without places in arrays."""
    types = schema.get("type")
    if types == "object" or (isinstance(types, list) and "object" in types):
        yield at, schema
    for name, inner in schema.get("properties", {}).items():
        yield from objects(inner, f"{at}.{name}".lstrip("."))
    if "items" in schema:
        yield from objects(schema["items"], at)


def is_closed(schema: Manifest) -> bool:
    """Whether an object takes no other keys, or says of what type its values are."""
    return schema.get("additionalProperties", True) is not True
