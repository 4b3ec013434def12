"""`slicebus ledger` in the cluster: what the manager's chart makes of `ledger.enabled`, and what it refuses."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from slicebus.cli.ledger import command
from slicebus.runtime.broker_settings import BrokerSettings
from slicebus.slices.workload.pod_security import Level, violations
from support.helm import CHARTS, HelmError, Manifest, only, render

pytestmark = pytest.mark.helm

CHART = "slicebus-manager"
NAME = "slicebus-manager-ledger"
READER: dict[str, Any] = {"existingSecret": {"name": "reader"}}
LEDGER: dict[str, Any] = {"enabled": True, "amqp": READER}
POSTGRESQL = LEDGER | {"database": {"existingSecret": {"name": "database"}}}
SECRET: dict[str, Any] = {"existingSecret": {"name": "slicebus-amqp"}}


def rendered(helm: Path, ledger: dict[str, Any] = LEDGER, **more: Any) -> list[Manifest]:
    """The objects of the ledger alone."""
    values = {"amqp": SECRET, "ledger": ledger, **more}
    found = render(helm, CHART, values)
    of_ledger = [each for each in found if each["metadata"].get("labels", {}).get("app.kubernetes.io/name") == NAME]
    others = [each for each in found if each not in of_ledger]
    assert others == render(helm, CHART, {**values, "ledger": {"enabled": False}}), "nothing else changes"
    return of_ledger


def pod_of(found: list[Manifest]) -> Manifest:
    """The pod of the ledger, with its one container as `one`."""
    spec: Manifest = only(found, "Deployment")["spec"]["template"]["spec"]
    [container] = spec["containers"]
    return spec | {"one": container}


def variables_of(pod: Manifest) -> dict[str, Any]:
    return {each["name"]: each.get("value") or each["valueFrom"] for each in pod["one"]["env"]}


def test_it_is_off_by_default(helm: Path) -> None:
    assert rendered(helm, {}) == []


def test_the_values_of_the_document_are_taken(helm: Path) -> None:
    page = (CHARTS.parent / "docs" / "ledger.md").read_text()
    _, _, section = page.partition("## In the cluster\n")
    found = re.search(r"^```yaml\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert found
    values = yaml.safe_load(found[1])
    pod = pod_of(rendered(helm, values["ledger"]))
    assert f"--user-label={values['ledger']['userLabel']}" in pod["one"]["args"]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"amqp": {}}, "ledger.amqp.existingSecret.name, a Secret with the broker's address"),
        ({"keep": "ninety"}, "does not match pattern"),
        ({"volume": {"size": "big"}}, "does not match pattern"),
        ({"databse": {}}, "'databse' not allowed"),
    ],
)
def test_what_cannot_work_is_refused(helm: Path, changed: dict[str, Any], told: str) -> None:
    with pytest.raises(HelmError, match=told):
        render(helm, CHART, {"amqp": SECRET, "ledger": LEDGER | changed})


def test_one_writes_into_a_file_of_a_volume(helm: Path) -> None:
    found = rendered(helm)
    assert {each["kind"] for each in found} == {"Deployment", "PersistentVolumeClaim"}
    deployment, claim = only(found, "Deployment"), only(found, "PersistentVolumeClaim")
    assert (deployment["spec"]["replicas"], deployment["spec"]["strategy"]) == (1, {"type": "Recreate"})
    pod = pod_of(found)
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts = {mount["name"]: mount for mount in pod["one"]["volumeMounts"]}
    assert volumes["database"]["persistentVolumeClaim"] == {"claimName": claim["metadata"]["name"]}
    assert variables_of(pod)["LEDGER_DATABASE"].startswith(f"{mounts['database']['mountPath']}/")
    assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsGroup"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
    assert claim["spec"]["resources"] == {"requests": {"storage": "10Gi"}}
    assert "storageClassName" not in claim["spec"]
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_a_volume_may_be_there_already(helm: Path) -> None:
    own = rendered(helm, LEDGER | {"volume": {"existingClaim": "mine"}})
    assert [each["kind"] for each in own] == ["Deployment"]
    assert {"name": "database", "persistentVolumeClaim": {"claimName": "mine"}} in pod_of(own)["volumes"]
    claim = only(
        rendered(helm, LEDGER | {"volume": {"size": "1Ti", "storageClassName": "fast"}}), "PersistentVolumeClaim"
    )
    assert (claim["spec"]["storageClassName"], claim["spec"]["resources"]["requests"]["storage"]) == ("fast", "1Ti")


def test_a_postgresql_has_its_address_in_a_secret_and_no_volume(helm: Path) -> None:
    found = rendered(helm, POSTGRESQL)
    assert [each["kind"] for each in found] == ["Deployment"]
    pod = pod_of(found)
    assert variables_of(pod)["LEDGER_DATABASE"] == {"secretKeyRef": {"name": "database", "key": "url"}}
    assert [volume["name"] for volume in pod["volumes"]] == ["tmp"]
    assert "fsGroup" not in pod["securityContext"]


def test_it_runs_as_the_roles_do(helm: Path) -> None:
    found = rendered(helm)
    assert violations(only(found, "Deployment")["spec"]["template"], Level.RESTRICTED) == []
    pod = pod_of(found)
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["one"]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["one"]["resources"]["limits"]["memory"]
    given = {"podSecurityContext": {"runAsUser": None, "runAsGroup": None}}
    assert "fsGroup" not in pod_of(rendered(helm, **given))["securityContext"], "the namespace gives it"


def test_its_probes_look_at_the_file_that_it_touches(helm: Path) -> None:
    container = pod_of(rendered(helm))["one"]
    [alive] = [each.partition("=")[2] for each in container["args"] if each.startswith("--alive=")]
    assert any(alive.startswith(f"{mount['mountPath']}/") for mount in container["volumeMounts"])
    for probe in ("startupProbe", "livenessProbe"):
        *_, script = container[probe]["exec"]["command"]
        assert alive in {node.value for node in ast.walk(ast.parse(script)) if isinstance(node, ast.Constant)}


def test_the_command_has_its_options(helm: Path) -> None:
    options = LEDGER | {"userLabel": "team.example/user", "keep": "30d", "keepDays": "400d"}
    first, *arguments = pod_of(rendered(helm, options))["one"]["args"]
    given = dict(argument.removeprefix("--").split("=", 1) for argument in arguments)
    assert first == command.ledger.__name__
    assert {name.replace("-", "_") for name in given} <= command.ledger.__annotations__.keys()
    assert given == {"alive": "/tmp/alive", "keep": "30d", "keep-days": "400d", "user-label": "team.example/user"}


def test_it_reads_as_a_viewer_and_has_nothing_of_the_managers(helm: Path) -> None:
    amqp = SECRET | {
        "hosts": ["one:5671"],
        "caSecret": {"name": "tls", "key": "ca.pem"},
        "certSecret": {"name": "tls"},
        "passwordSecret": {"name": "password"},
    }
    pod = pod_of(rendered(helm, amqp=amqp))
    variables = variables_of(pod)
    assert variables.pop("AMQP_URL") == {"secretKeyRef": {"name": "reader", "key": "url"}}
    variables.pop("LEDGER_DATABASE")
    access = BrokerSettings.from_env({**variables, "AMQP_URL": "amqps://reader:x@broker"}).access
    assert (access.hosts, access.ca_file) == ("one:5671", "/etc/slicebus/amqp-ca/ca.pem")
    assert not access.cert_file
    assert not access.password_file
    [secret] = [volume["secret"] for volume in pod["volumes"] if "secret" in volume]
    assert secret == {"secretName": "tls", "items": [{"key": "ca.pem", "path": "ca.pem"}]}


def test_no_other_object_counts_its_pod_as_its_own(helm: Path) -> None:
    found = render(helm, CHART, {"amqp": SECRET, "ledger": LEDGER, "metrics": {"service": {"enabled": True}}})
    [template] = [
        each["spec"]["template"] for each in found if (each["kind"], each["metadata"]["name"]) == ("Deployment", NAME)
    ]
    labels = template["metadata"]["labels"]
    assert not [
        each for each in found if each["kind"] == "Service" and labels.items() >= each["spec"]["selector"].items()
    ]
    budget = only(found, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"]
    assert not labels.items() >= budget.items()


def test_the_network_policy_has_the_broker_and_the_database(helm: Path) -> None:
    def policy(ledger: dict[str, Any], **peers: Any) -> Manifest:
        found = rendered(helm, ledger, networkPolicy={"enabled": True, "ledger": peers})
        spec: Manifest = only(found, "NetworkPolicy")["spec"]
        labels = only(found, "Deployment")["spec"]["template"]["metadata"]["labels"]
        assert labels.items() >= spec["podSelector"]["matchLabels"].items()
        assert (spec["policyTypes"], spec["ingress"]) == (["Ingress", "Egress"], [])
        return spec

    ports = [[port["port"] for port in rule["ports"]] for rule in policy(LEDGER)["egress"]]
    assert ports == [[53, 53], [5671]]
    database = {"ipBlock": {"cidr": "10.9.9.9/32"}}
    found = policy(POSTGRESQL, to=[database], ports=[6432])
    assert found["egress"][2:] == [{"to": [database], "ports": [{"protocol": "TCP", "port": 6432}]}]
