"""The alerts of the charts, by Prometheus' own tool: each fires in its incident, within its time, and not before."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import yaml

from support import metrics_page
from support.helm import HelmError, only, render
from support.processes import COMMAND_S

from .test_options import VALUES

pytestmark = pytest.mark.helm

ON = {"metrics": {"prometheusRule": {"enabled": True}}}
MANAGER, AGENT = "slicebus-manager", "slicebus-agent"
POD = {MANAGER: "slicebus-manager-7c9", AGENT: "slicebus-agent-7c9"}
ELSEWHERE = "another"
"""The namespace of another installation, in which nothing is wrong."""
each_chart = pytest.mark.parametrize("chart", VALUES)


class Incident(NamedTuple):
    """A metric that shows something, and the alert that it raises."""

    chart: str
    alert: str
    metric: str
    labels: dict[str, str]
    good: str
    bad: str
    """Both in promtool's notation, a value a minute."""
    after_min: int
    """The minute in which it fires, from the first bad value on; in the one before it does not."""
    severity: str = "warning"
    kept: Mapping[str, str] = MappingProxyType({})
    """The labels that the alert has."""


DAY_S = 86400
_FAST, _LATE = "fast", "late"
_BUCKETS = {
    _FAST: {"0.5": "0+9x90", "60.0": "0+9x90", "300.0": "0+9x90", "+Inf": "0+9x90"},
    _LATE: {"0.5": "0+1x90", "60.0": "0+5x90", "300.0": "0+9x90", "+Inf": "0+9x90"},
}
"""The buckets of a histogram, in place of one series."""
INCIDENTS = {
    "no manager has the Lease": Incident(
        MANAGER, "SlicebusNoManagerLeads", "slicebus_leader", {"lease": MANAGER}, "1x90", "0x90", 1, "critical"
    ),
    "no manager is there": Incident(
        MANAGER, "SlicebusNoManagerLeads", "slicebus_leader", {"lease": MANAGER}, "1x90", "stale", 1, "critical"
    ),
    "no agent has the Lease": Incident(
        AGENT, "SlicebusNoAgentLeads", "slicebus_leader", {"lease": AGENT}, "1x90", "0x90", 1, "critical"
    ),
    "a cluster falls silent": Incident(
        MANAGER,
        "SlicebusClusterLost",
        "slicebus_cluster_connected",
        {"cluster": "east"},
        "1x90",
        "0x90",
        2,
        "critical",
        {"cluster": "east"},
    ),
    "an agent does not keep up": Incident(
        MANAGER,
        "SlicebusClusterBehind",
        "slicebus_cluster_lag_seconds",
        {"cluster": "east"},
        "4x90",
        "301x90",
        5,
        kept={"cluster": "east"},
    ),
    "specs are late": Incident(
        MANAGER,
        "SlicebusSpecsLate",
        "slicebus_spec_propagation_seconds_bucket",
        {"cluster": "east"},
        _FAST,
        _LATE,
        16,
        kept={"cluster": "east"},
    ),
    "a workload waits for a day": Incident(
        MANAGER,
        "SlicebusPendingForLong",
        "slicebus_pending_oldest_seconds",
        {"cluster_queue": "cq"},
        "0x90",
        f"{DAY_S + 1}x90",
        10,
        "info",
        {"cluster_queue": "cq"},
    ),
    "a dead letter lies about": Incident(
        MANAGER, "SlicebusDeadLetters", "slicebus_dead_letter_oldest_seconds", {}, "0x90", "601x90", 1
    ),
    "deletes are held": Incident(
        MANAGER,
        "SlicebusDeletesHeld",
        "slicebus_deletes_held",
        {"cluster": "east"},
        "0x90",
        "9x90",
        1,
        kept={"cluster": "east"},
    ),
    **{
        f"{what}, {chart}": Incident(chart, alert, metric, labels, good, bad, after_min, severity, kept)
        for chart in (MANAGER, AGENT)
        for what, alert, metric, labels, good, bad, after_min, severity, kept in (
            (
                "the broker is away",
                "SlicebusBrokerUnreachable",
                "slicebus_broker_connected",
                {},
                "1x90",
                "0x90",
                2,
                "critical",
                {"pod": POD[chart]},
            ),
            (
                "the broker confirms nothing",
                "SlicebusPublishesFail",
                "slicebus_broker_publish_failures_total",
                {"exchange": "slicebus.up", "reason": "unconfirmed"},
                "7x90",
                "7+2x90",
                6,
                "warning",
                {"pod": POD[chart], "reason": "unconfirmed"},
            ),
            (
                "a change is not dealt with",
                "SlicebusBehind",
                "slicebus_oldest_unreconciled_seconds",
                {},
                "3x90",
                "301x90",
                5,
                "warning",
                {"pod": POD[chart]},
            ),
            (
                "a job is set aside",
                "SlicebusSetAside",
                "slicebus_set_aside",
                {"of": "jobs"},
                "0x90",
                "1x90",
                1,
                "warning",
                {"pod": POD[chart], "of": "jobs"},
            ),
            (
                "a certificate ends",
                "SlicebusCertificateExpires",
                "slicebus_certificate_expiry_timestamp_seconds",
                {"certificate": "client"},
                f"{30 * DAY_S}x90",
                f"{13 * DAY_S}x90",
                60,
                "warning",
                {"certificate": "client"},
            ),
        )
    },
}


def rules_of(helm: Path, chart: str, **values: Any) -> dict[str, Any]:
    """What Prometheus gets of a chart."""
    return {"groups": only(render(helm, chart, VALUES[chart] | ON | values), "PrometheusRule")["spec"]["groups"]}


def run(promtool: Path, *arguments: str, given: bytes = b"") -> str:
    """What promtool says. Fails where it finds a fault."""
    done = subprocess.run([promtool, *arguments], input=given, capture_output=True, timeout=COMMAND_S, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
    return (done.stdout + done.stderr).decode()


def series(incident: Incident, values: str, *, namespace: str = "slicebus-system") -> list[dict[str, str]]:
    """The input of promtool."""
    labels = {"namespace": namespace, "pod": POD[incident.chart]} | incident.labels
    if values not in _BUCKETS:
        return [{"series": named(incident.metric, labels), "values": values}]
    return [
        {"series": named(incident.metric, labels | {"le": le}), "values": value}
        for le, value in _BUCKETS[values].items()
    ]


def named(metric: str, labels: dict[str, str]) -> str:
    return metric + "{" + ",".join(f"{name}={json.dumps(value)}" for name, value in labels.items()) + "}"


@each_chart
def test_the_alerts_are_off_by_default_and_get_labels_and_the_address_of_the_runbooks(helm: Path, chart: str) -> None:
    assert "PrometheusRule" not in {manifest["kind"] for manifest in render(helm, chart, VALUES[chart])}
    how = {"enabled": True, "labels": {"release": "prometheus"}, "runbooks": "https://wiki.example/ops"}
    made = only(render(helm, chart, VALUES[chart] | {"metrics": {"prometheusRule": how}}), "PrometheusRule")
    assert made["metadata"]["labels"]["release"] == "prometheus"
    rules = [rule for group in made["spec"]["groups"] for rule in group["rules"]]
    assert rules
    for rule in rules:
        assert rule["annotations"]["runbook_url"] == f"https://wiki.example/ops#{rule['alert'].lower()}"
    assert "@" not in yaml.safe_dump(made["spec"])
    with pytest.raises(HelmError, match="runbooks"):
        render(helm, chart, VALUES[chart] | {"metrics": {"prometheusRule": how | {"runbooks": ""}}})


def test_each_shard_needs_a_leader(helm: Path) -> None:
    first = rules_of(helm, MANAGER, shards=3, replicas=4)["groups"][0]["rules"][0]
    assert first["expr"].endswith("< 3")


@each_chart
def test_promtool_finds_no_fault_in_the_rules(helm: Path, promtool: Path, chart: str, tmp_path: Path) -> None:
    rules = rules_of(helm, chart)
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    number = sum(len(group["rules"]) for group in rules["groups"])
    assert f"SUCCESS: {number} rules found" in run(promtool, "check", "rules", str(tmp_path / "rules.yaml"))


def test_promtool_finds_no_fault_in_what_the_roles_show(promtool: Path) -> None:
    for role, shown in metrics_page.scrapes().items():
        assert run(promtool, "check", "metrics", given=shown) == "", role


@each_chart
def test_each_alert_fires_in_its_incident_in_its_time(helm: Path, promtool: Path, chart: str, tmp_path: Path) -> None:
    """All of a chart's in one call, each on series of its own."""
    rules = rules_of(helm, chart)
    by_name = {rule["alert"]: rule for group in rules["groups"] for rule in group["rules"]}
    incidents = [incident for incident in INCIDENTS.values() if incident.chart == chart]
    assert {incident.alert for incident in incidents} == set(by_name), "each alert has an incident"
    tests = []
    for incident in incidents:
        firing = {"exp_labels": {"severity": incident.severity, **incident.kept}}
        elsewhere = series(incident, incident.good, namespace=ELSEWHERE)
        for shown, minute, expected in (
            (incident.bad, incident.after_min, [firing]),
            (incident.bad, incident.after_min - 1, []),
            (incident.good, 80, []),
        ):
            check = {"alertname": incident.alert, "eval_time": f"{minute}m", "exp_alerts": expected}
            inputs = [*series(incident, shown), *elsewhere]
            tests.append({"interval": "1m", "input_series": inputs, "alert_rule_test": [check]})
    for rule in by_name.values():
        rule["annotations"] = {}  # `check rules` tries their templates.
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    (tmp_path / "tests.yaml").write_text(
        yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests})
    )
    assert "SUCCESS" in run(promtool, "test", "rules", str(tmp_path / "tests.yaml"))
