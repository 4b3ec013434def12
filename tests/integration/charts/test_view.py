"""`slicebus view` in the cluster: what the manager's chart makes of `view.enabled`, and what it refuses."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from integration.charts.test_rendering import granted
from slicebus.cli.cluster.reading import _caches
from slicebus.cli.view import command
from slicebus.cli.view.guard import HEALTH_PATH
from slicebus.manager.state.store import ManagerStore
from slicebus.runtime.broker_settings import BrokerSettings
from slicebus.slices.workload.pod_security import Level, violations
from support.helm import CHARTS, HelmError, Manifest, only, render
from unit.slices.jobs.declared import DECLARED, ENTRIES

pytestmark = pytest.mark.helm

CHART = "slicebus-manager"
NAME = "slicebus-manager-view"
PROXY: dict[str, Any] = {"image": "oauth2-proxy:v7", "args": ["--upstream=http://127.0.0.1:8439"]}
VIEW: dict[str, Any] = {"enabled": True, "host": "slicebus.example.com", "proxy": PROXY}
SECRET = {"existingSecret": {"name": "slicebus-amqp"}}


def rendered(helm: Path, view: dict[str, Any] = VIEW, **more: Any) -> list[Manifest]:
    """The objects of the view alone."""
    values = {"amqp": SECRET, "view": view, **more}
    found = render(helm, CHART, values)
    of_view = [each for each in found if each["metadata"].get("labels", {}).get("app.kubernetes.io/name") == NAME]
    others = [each for each in found if each not in of_view]
    assert others == render(helm, CHART, {**values, "view": {"enabled": False}}), "nothing else changes"
    return of_view


def pod_of(found: list[Manifest]) -> Manifest:
    """The pod of the view, with its containers by name in `by`."""
    spec: Manifest = only(found, "Deployment")["spec"]["template"]["spec"]
    return spec | {"by": {container["name"]: container for container in spec["containers"]}}


def test_it_is_off_by_default(helm: Path) -> None:
    assert rendered(helm, {}) == []


def test_the_values_of_the_document_are_taken(helm: Path) -> None:
    page = (CHARTS.parent / "docs" / "operations.md").read_text()
    _, _, section = page.partition("## The view in the cluster\n")
    found = re.search(r"^```yaml\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert found
    values = yaml.safe_load(found[1])
    pod = pod_of(rendered(helm, values["view"]))
    arguments = pod["by"]["proxy"]["args"]
    assert f"--upstream=http://127.0.0.1:{command._PORT}" in arguments
    assert f"--http-address=0.0.0.0:{values['view']['proxy']['port']}" in arguments
    assert pod["by"]["view"]["args"] == ["view", f"--behind-proxy={values['view']['host']}"]
    assert f"--redirect-url=https://{values['view']['host']}/oauth2/callback" in arguments


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"proxy": {}}, "view.proxy.image, your own auth proxy"),
        ({"proxy": {"args": ["--x"]}}, "nobody may reach it without one"),
        ({"host": ""}, "view.host, the name by which people open it"),
        ({"host": "https://slicebus.example.com"}, "does not match pattern"),
        ({"proxy": PROXY | {"port": 8439}}, "8439 is the view's own port"),
        ({"proxy": PROXY | {"imag": "x"}}, "'imag' not allowed"),
    ],
)
def test_what_would_let_everybody_in_or_nobody_is_refused(helm: Path, changed: dict[str, Any], told: str) -> None:
    with pytest.raises(HelmError, match=told):
        render(helm, CHART, {"amqp": SECRET, "view": VIEW | changed})


def test_only_the_proxy_is_reached(helm: Path) -> None:
    found = rendered(helm)
    pod, [port] = pod_of(found), only(found, "Service")["spec"]["ports"]
    assert "ports" not in pod["by"]["view"]
    assert pod["by"]["proxy"]["ports"] == [{"name": port["targetPort"], "containerPort": 4180}]
    labels = only(found, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert labels.items() >= only(found, "Service")["spec"]["selector"].items()
    assert "hostNetwork" not in pod
    assert pod["by"]["view"]["args"] == ["view", "--behind-proxy=slicebus.example.com"]
    assert (pod["by"]["proxy"]["image"], pod["by"]["proxy"]["args"]) == (PROXY["image"], PROXY["args"])


def test_no_other_object_counts_its_pod_as_its_own(helm: Path) -> None:
    values = {"amqp": SECRET, "view": VIEW, "metrics": {"service": {"enabled": True}}}
    found = render(helm, CHART, values)
    [template] = [
        each["spec"]["template"] for each in found if (each["kind"], each["metadata"]["name"]) == ("Deployment", NAME)
    ]
    labels = template["metadata"]["labels"]
    services = {each["metadata"]["name"]: each["spec"]["selector"] for each in found if each["kind"] == "Service"}
    assert {name for name, selector in services.items() if labels.items() >= selector.items()} == {NAME}
    budget = only(found, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"]
    assert not labels.items() >= budget.items()


def test_it_runs_as_the_roles_do(helm: Path) -> None:
    found = rendered(
        helm, VIEW | {"amqp": {"existingSecret": {"name": "viewer"}}}, amqp=SECRET | {"caSecret": {"name": "ca"}}
    )
    assert violations(only(found, "Deployment")["spec"]["template"], Level.RESTRICTED) == []
    pod = pod_of(found)
    assert pod["securityContext"]["runAsNonRoot"] is True
    for container in pod["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["limits"]["memory"]
    for probe in ("livenessProbe", "readinessProbe"):
        *_, script = pod["by"]["view"][probe]["exec"]["command"]
        words = {node.value for node in ast.walk(ast.parse(script)) if isinstance(node, ast.Constant)}
        assert {HEALTH_PATH, "127.0.0.1", command._PORT} <= words


def test_the_proxy_has_no_token(helm: Path) -> None:
    pod = pod_of(rendered(helm, VIEW | {"proxy": PROXY | {"volumeMounts": [{"name": "a", "mountPath": "/a"}]}}))
    assert pod["automountServiceAccountToken"] is False
    [token] = [volume["name"] for volume in pod["volumes"] if "projected" in volume]
    assert token in [mount["name"] for mount in pod["by"]["view"]["volumeMounts"]]
    assert [mount["name"] for mount in pod["by"]["proxy"]["volumeMounts"]] == ["a"]


def test_its_account_may_read_what_the_pages_show_and_no_more(helm: Path) -> None:
    found = rendered(helm, shards=2, extraJobKinds=[{"group": "example.dev", "plural": "trainjobs"}])
    read = {(resource.group, resource.plural, ""): {"list", "watch"} for resource, _ in _caches(ManagerStore())}
    trainjobs = {("example.dev", "trainjobs", ""): {"list", "watch"}}
    leases = {("coordination.k8s.io", "leases", f"slicebus-{role}"): {"list"} for role in ("manager", "agent")}
    assert granted(only(found, "ClusterRole")) == read | trainjobs | leases
    roles = {each["metadata"]["namespace"]: granted(each) for each in found if each["kind"] == "Role"}
    led = ("slicebus-manager", "slicebus-manager-1")
    assert roles == {
        "slicebus-system": {("coordination.k8s.io", "leases", name): {"get"} for name in led},
        "default": {("", "events", ""): {"list"}},
    }
    bindings = [each for each in found if each["kind"].endswith("Binding")]
    account = {"kind": "ServiceAccount", "name": only(found, "ServiceAccount")["metadata"]["name"]}
    assert [each["subjects"] for each in bindings] == [[account | {"namespace": "slicebus-system"}]] * 3
    assert pod_of(found)["serviceAccountName"] == account["name"]
    named = {(each["kind"], each["metadata"]["name"]) for each in found}
    assert {(each["roleRef"]["kind"], each["roleRef"]["name"]) for each in bindings} <= named


def test_it_knows_declared_kinds(helm: Path) -> None:
    found = rendered(helm, declaredJobKinds=[*ENTRIES.values()])
    rules = granted(only(found, "ClusterRole"))
    assert all(rules[kind.resource.group, kind.resource.plural, ""] == {"list", "watch"} for kind in DECLARED.values())
    view = pod_of(found)["by"]["view"]
    [file] = [each["value"] for each in view["env"] if each["name"] == "SLICEBUS_JOB_KINDS_FILE"]
    assert any(file.startswith(f"{mount['mountPath']}/") for mount in view["volumeMounts"])


def test_it_reads_the_journal_as_a_viewer_and_has_nothing_of_the_managers(helm: Path) -> None:
    amqp = SECRET | {
        "hosts": ["one:5671"],
        "caSecret": {"name": "tls", "key": "ca.pem"},
        "certSecret": {"name": "tls"},
        "passwordSecret": {"name": "password"},
    }
    plain = pod_of(rendered(helm, amqp=amqp))
    assert [each["name"] for each in plain["by"]["view"]["env"]] == ["SLICEBUS_NAMESPACE"]
    assert [volume["name"] for volume in plain["volumes"]] == ["token"]
    pod = pod_of(rendered(helm, VIEW | {"amqp": {"existingSecret": {"name": "viewer"}}}, amqp=amqp))
    variables = {each["name"]: each.get("value") or each["valueFrom"] for each in pod["by"]["view"]["env"]}
    assert variables.pop("AMQP_URL") == {"secretKeyRef": {"name": "viewer", "key": "url"}}
    variables.pop("SLICEBUS_NAMESPACE")
    access = BrokerSettings.from_env({**variables, "AMQP_URL": "amqps://viewer:x@broker"}).access
    assert (access.hosts, access.ca_file) == ("one:5671", "/etc/slicebus/amqp-ca/ca.pem")
    assert not access.cert_file
    assert not access.password_file
    [secret] = [volume["secret"] for volume in pod["volumes"] if "secret" in volume]
    assert secret == {"secretName": "tls", "items": [{"key": "ca.pem", "path": "ca.pem"}]}
    assert "env" not in pod["by"]["proxy"]


def test_it_reads_a_ledger_by_an_address_of_its_own(helm: Path) -> None:
    """Not that of ledger.database, whose user may write."""
    own = {"database": {"existingSecret": {"name": "reader", "key": "address"}}}
    written = {"enabled": True, "amqp": SECRET, "database": {"existingSecret": {"name": "writer"}}}
    values = {"ledger": written, "networkPolicy": {"enabled": True}}
    for view, expected in ((VIEW, []), (VIEW | own, [{"secretKeyRef": {"name": "reader", "key": "address"}}])):
        found = rendered(helm, view, **values)
        variables = pod_of(found)["by"]["view"]["env"]
        assert [each["valueFrom"] for each in variables if each["name"] == "LEDGER_DATABASE"] == expected
        [policy] = [
            each["spec"] for each in found if (each["kind"], each["metadata"]["name"]) == ("NetworkPolicy", NAME)
        ]
        ports = [[port["port"] for port in rule["ports"]] for rule in policy["egress"]]
        assert ([5432] in ports, [5671] in ports) == (bool(expected), False)


def test_the_network_policy_lets_only_the_named_reach_the_proxy(helm: Path) -> None:
    def policy(view: dict[str, Any] = VIEW, **peers: Any) -> Manifest:
        found = rendered(helm, view, networkPolicy={"enabled": True, "view": peers})
        spec: Manifest = only(found, "NetworkPolicy")["spec"]
        labels = only(found, "Deployment")["spec"]["template"]["metadata"]["labels"]
        assert labels.items() >= spec["podSelector"]["matchLabels"].items()
        assert spec["policyTypes"] == ["Ingress", "Egress"]
        return spec

    ports = [[port["port"] for port in rule["ports"]] for rule in policy()["egress"]]
    assert (policy()["ingress"], ports) == ([], [[53, 53], [443, 6443], [443]])
    ingress = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}
    provider = {"ipBlock": {"cidr": "10.9.9.9/32"}}
    reading = VIEW | {"amqp": {"existingSecret": {"name": "viewer"}}}
    found = policy(reading, **{"from": [ingress], "to": [provider], "ports": [8443]})
    assert found["ingress"] == [{"from": [ingress], "ports": [{"protocol": "TCP", "port": "proxy"}]}]
    assert {"to": [provider], "ports": [{"protocol": "TCP", "port": 8443}]} in found["egress"]
    assert [5671] in [[port["port"] for port in rule["ports"]] for rule in found["egress"]]
