"""Each alert asks for metrics that exist, and leads to a heading that says what to do."""

import re

import pytest

from support.alerts import alerts
from unit.test_metrics_page import NAMED, PARTS_OF_HISTOGRAMS, TOP, families
from unit.test_repository import anchors

CHARTS = {"slicebus-manager": "manager", "slicebus-agent": "agent"}
OPERATIONS = (TOP / "docs" / "operations.md").read_text()
each_chart = pytest.mark.parametrize("chart", CHARTS)


@each_chart
def test_every_metric_of_an_alert_is_one_of_its_role(chart: str) -> None:
    for rule in alerts(chart):
        named = {PARTS_OF_HISTOGRAMS.sub("", name) for name in NAMED.findall(rule["expr"])}
        assert named, rule["alert"]
        for name in named:
            assert CHARTS[chart] in families()[name].roles, f"{rule['alert']}: {name}"


@each_chart
def test_every_alert_has_a_runbook_and_says_who_and_how_bad(chart: str) -> None:
    for rule in alerts(chart):
        base, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert base == "@RUNBOOKS@"
        assert anchor == rule["alert"].lower()
        assert anchor in anchors(OPERATIONS)
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert rule["for"]
        assert {*rule["annotations"]} == {"summary", "description", "runbook_url"}


def test_the_absence_of_a_leader_comes_first() -> None:
    assert [alerts(chart)[0]["alert"] for chart in CHARTS] == ["SlicebusNoManagerLeads", "SlicebusNoAgentLeads"]


def test_every_runbook_is_that_of_an_alert() -> None:
    known = {rule["alert"] for chart in CHARTS for rule in alerts(chart)}
    assert {*re.findall(r"^#### (Slicebus\w+)$", OPERATIONS, re.MULTILINE)} == known
